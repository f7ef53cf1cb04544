//! Refreshes the metadata of the written partitions, without blocking.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, Network, Peer, RequestId, UNRESPONSIVE_RECHECK};
use crate::properties::Properties;
use crate::protocol::metadata::MetadataRequest;

/// Interval of refreshes while a partition has no leader and no batch waits for it. It is also the first interval after
/// a lost connection, and doubles with each answer: a broker that answers at once does not know yet that another one
/// has died, which the controller notices after `broker.session.timeout.ms`.
const RECHECK: Duration = Duration::from_secs(1);

/// Decides when to refresh metadata.
#[derive(Debug)]
pub(super) struct MetadataRefresh {
    asked: Option<(RequestId, Peer)>,
    asked_at: Option<Instant>,
    backoff: Backoff,
    stale: bool,
    /// Time of the next refresh without a cause.
    recheck: Option<Instant>,
    /// Interval until the refresh after the next answer.
    patience: Duration,
    /// The longest interval: it also detects a leader that was away for a moment and lost no connection.
    refresh: Duration,
    /// Number of lost connections at the last check.
    lost: u64,
    /// Number of reasons for which leaders may be others than known; that of them at the last request, and at the last
    /// request that was answered.
    doubts: u64,
    doubts_asked: u64,
    doubts_answered: u64,
}

impl MetadataRefresh {
    pub(super) const fn new(properties: &Properties) -> Self {
        Self {
            asked: None,
            asked_at: None,
            backoff: Backoff::new(properties.metadata_backoff),
            stale: false,
            recheck: None,
            patience: properties.metadata_refresh,
            refresh: properties.metadata_refresh,
            lost: 0,
            doubts: 0,
            doubts_asked: 0,
            doubts_answered: 0,
        }
    }

    /// Notes the number of lost connections: after one, leaders may have changed or may be about to.
    pub(super) const fn note_lost(&mut self, connections: u64) {
        if connections != self.lost {
            self.lost = connections;
            self.patience = RECHECK;
            self.ask_anew();
        }
    }

    /// Notes that leaders may be others than known.
    pub(super) const fn ask_anew(&mut self) {
        self.stale = true;
        self.doubts += 1;
    }

    /// Returns the number of reasons, until now, for which leaders may be others than known.
    pub(super) const fn doubts(&self) -> u64 {
        self.doubts
    }

    /// Returns whether an answer was requested after so many of these reasons.
    pub(super) const fn is_answered(&self, doubts: u64) -> bool {
        self.doubts_answered >= doubts
    }

    /// Notes that the metadata may be out of date.
    pub(super) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// Resets the backoff, after a transaction has ended or can begin.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff.begin_anew();
    }

    /// Notes unresponsive brokers: other brokers may take over their partitions. A request to an unresponsive broker is
    /// repeated to another one.
    pub(super) fn note_unresponsive(&mut self, network: &Network, now: Instant) {
        let silent = self
            .asked
            .take_if(|(_, peer)| network.is_unresponsive(*peer, now));
        self.stale |= silent.is_some();
        if network.has_unresponsive_broker(now) {
            let again = self.asked_at.map_or(now, |at| at + UNRESPONSIVE_RECHECK);
            self.recheck = Some(self.recheck.map_or(again, |at| at.min(again)));
        }
    }

    /// Returns whether a refresh is due. `lacking` says that batches wait for a leader.
    pub(super) fn is_due(&self, lacking: bool, now: Instant) -> bool {
        let due = self.recheck.is_some_and(|at| at <= now);
        self.asked.is_none() && (self.stale || lacking || due)
    }

    /// Returns the time of the next refresh.
    pub(super) fn recheck(&self) -> Option<Instant> {
        self.recheck.filter(|_| self.asked.is_none())
    }

    /// Sends a request if the backoff has passed; otherwise returns the time to try again.
    pub(super) fn ask(
        &mut self,
        client: &mut Client,
        topics: BTreeSet<String>,
        now: Instant,
    ) -> Result<Option<Instant>, Error> {
        if let Some(at) = self.backoff.until().filter(|at| *at > now) {
            return Ok(Some(at));
        }
        match client.any_ready(now)? {
            Ok(peer) => {
                let request = MetadataRequest {
                    topics: topics.into_iter().collect(),
                };
                let id = client.network().ask(peer, &request, now, Duration::ZERO);
                self.asked = Some((id, peer));
                self.asked_at = Some(now);
                self.backoff.asked(client.network().spread(), now);
                self.stale = false;
                self.doubts_asked = self.doubts;
                Ok(None)
            }
            Err(again) => Ok(Some(again)),
        }
    }

    /// Takes an answer to a refresh; gives back any other answer.
    pub(super) fn take(
        &mut self,
        client: &mut Client,
        answer: Answer,
    ) -> Result<Result<(), Error>, Answer> {
        if self.asked.take_if(|(id, _)| *id == answer.id).is_none() {
            return Err(answer);
        }
        let taken = answer
            .body
            .and_then(|(version, body)| client.read::<MetadataRequest>(answer.peer, version, body))
            .and_then(|metadata| client.take_metadata(metadata));
        self.stale |= taken.is_err();
        if taken.is_ok() {
            self.doubts_answered = self.doubts_asked;
        }
        let lacking = client.cached_metadata().lacks_leaders();
        self.answered(lacking, client.clock().now());
        Ok(taken)
    }

    /// Notes an answer; `lacking` says that a partition has no leader.
    fn answered(&mut self, lacking: bool, now: Instant) {
        let patience = if lacking { RECHECK } else { self.patience };
        self.recheck = Some(now + patience.min(self.refresh));
        self.patience = self.patience.saturating_mul(2).min(self.refresh);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{MetadataRefresh, RECHECK};
    use crate::properties::Properties;

    const REFRESH: Duration = Duration::from_secs(300);

    fn refresh() -> MetadataRefresh {
        MetadataRefresh::new(&Properties::parse([("bootstrap.servers", "b:1")]).unwrap())
    }

    /// Returns the time until the refresh after an answer.
    fn pause(refresh: &mut MetadataRefresh, lacking: bool) -> Duration {
        let now = Instant::now();
        refresh.stale = false;
        refresh.answered(lacking, now);
        let again = refresh.recheck.unwrap();
        assert!(!refresh.is_due(false, now));
        assert!(refresh.is_due(false, again));
        again - now
    }

    #[test]
    fn a_connection_that_was_lost_is_a_reason_to_ask_once() {
        let now = Instant::now();
        let mut refresh = refresh();
        refresh.note_lost(0);
        assert!(!refresh.is_due(false, now));
        assert!(refresh.is_due(true, now), "a batch waits");
        refresh.note_lost(1);
        assert!(refresh.is_due(false, now));
        refresh.stale = false;
        refresh.note_lost(1);
        assert!(!refresh.is_due(false, now), "it is known already");
    }

    #[test]
    fn partitions_without_a_leader_are_refreshed_repeatedly() {
        let mut refresh = refresh();
        for _ in 0..3 {
            assert_eq!(pause(&mut refresh, true), RECHECK);
        }
        assert_eq!(pause(&mut refresh, false), REFRESH);
    }

    #[test]
    fn refreshes_repeat_after_a_lost_connection() {
        let mut refresh = refresh();
        assert_eq!(pause(&mut refresh, false), REFRESH);
        refresh.note_lost(1);
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            let pause = pause(&mut refresh, false);
            assert_eq!(pause, Duration::from_secs(seconds));
            refresh.note_lost(1);
        }
    }
}
