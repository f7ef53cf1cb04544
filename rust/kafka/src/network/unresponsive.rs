//! Detection of unresponsive brokers: they owe an answer and send nothing, because they are frozen or cut off. Their
//! connections stay open until `socket.timeout.ms` (60 s) has passed. Long before, the cluster has elected other
//! leaders, which can be asked. Metadata without the broker closes its connections ([`Network::set_brokers`]).

use std::time::{Duration, Instant};

use super::peer::PeerState;
use super::{Network, Peer};

/// A broker that has not answered a request for this long, beyond the request's own max wait, is unresponsive.
pub(crate) const UNRESPONSIVE_AFTER: Duration = Duration::from_secs(5);

/// Interval of metadata refreshes while a broker is unresponsive: the controller, too, needs time to notice
/// (`broker.session.timeout.ms`, 9 s).
pub(crate) const UNRESPONSIVE_RECHECK: Duration = Duration::from_secs(2);

impl Network {
    /// Returns whether a peer owes an answer for too long, also over another connection to the same address: a
    /// bootstrap server is a broker, too.
    pub(crate) fn is_unresponsive(&self, peer: Peer, now: Instant) -> bool {
        let Some(PeerState { endpoint, .. }) = self.peers.get(&peer) else {
            return false;
        };
        let mut there = self.peers.values().filter(|it| it.endpoint == *endpoint);
        there.any(|state| is_unresponsive(state, now))
    }

    /// Returns whether a broker of the metadata is unresponsive: its partitions may have new leaders.
    pub(crate) fn has_unresponsive_broker(&self, now: Instant) -> bool {
        let mut peers = self.peers.iter();
        peers.any(|(peer, state)| matches!(peer, Peer::Broker(_)) && is_unresponsive(state, now))
    }

    /// Returns the brokers of the metadata that are unresponsive.
    pub(crate) fn unresponsive_brokers(&self, now: Instant) -> Vec<i32> {
        let brokers = self.peers.keys().filter_map(|peer| match peer {
            Peer::Broker(id) => Some(*id),
            Peer::Bootstrap(_) => None,
        });
        brokers
            .filter(|id| self.is_unresponsive(Peer::Broker(*id), now))
            .collect()
    }

    /// Returns the time at which the next peer becomes unresponsive.
    pub(crate) fn unresponsive_at(&self, now: Instant) -> Option<Instant> {
        let since = self.peers.values().filter_map(PeerState::unanswered_since);
        since
            .map(|since| since + UNRESPONSIVE_AFTER)
            .filter(|at| *at > now)
            .min()
    }
}

fn is_unresponsive(state: &PeerState, now: Instant) -> bool {
    state
        .unanswered_since()
        .is_some_and(|since| now.saturating_duration_since(since) >= UNRESPONSIVE_AFTER)
}
