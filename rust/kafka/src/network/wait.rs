//! The only place that blocks.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Network;
use crate::clock::Clock;

/// Waits until a connection of one of the networks can continue, or until `until`.
///
/// Several networks, because a program may read from one cluster and write to another. Returns early on a signal.
pub fn wait(networks: &mut [&mut Network], clock: &dyn Clock, until: Instant) {
    wait_unless(networks, None, clock, until);
}

/// Waits like [`wait`], and returns true when a signal came, or when `other`, which belongs to the caller, can be read.
pub fn wait_unless(
    networks: &mut [&mut Network],
    other: Option<BorrowedFd<'_>>,
    clock: &dyn Clock,
    until: Instant,
) -> bool {
    let until = networks
        .iter()
        .filter_map(|network| network.deadline())
        .fold(until, Instant::min);
    // a request that failed while it was sent has its answer already
    let answered = networks.iter().any(|network| !network.answers.is_empty());
    let left = if answered {
        Duration::ZERO
    } else {
        until.saturating_duration_since(clock.now())
    };
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut seen: Vec<bool> = {
        let connections = networks
            .iter()
            .flat_map(|network| network.peers.values())
            .filter_map(|state| state.connection.as_ref());
        let mut fds: Vec<PollFd<'_>> = connections
            .map(|connection| {
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, connection.wants_read());
                flags.set(PollFlags::OUT, connection.wants_write());
                PollFd::from_borrowed_fd(connection.fd(), flags)
            })
            .chain(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => fds.iter().map(|fd| !fd.revents().is_empty()).collect(),
            // a signal: the caller checks its deadline and calls again
            Err(_) => return true,
        }
    };
    let woken = other.is_some() && seen.pop() == Some(true);
    let connections = networks
        .iter_mut()
        .flat_map(|network| network.peers.values_mut())
        .filter_map(|state| state.connection.as_mut());
    for (connection, seen) in connections.zip(seen) {
        if seen {
            connection.wake();
        }
    }
    woken
}
