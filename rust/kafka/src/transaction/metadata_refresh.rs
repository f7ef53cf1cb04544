//! Keeps what is known of partition leaders fresh, by asking for metadata beside everything else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, Network, Peer, RequestId, UNRESPONSIVE_RECHECK};
use crate::properties::Properties;
use crate::protocol::metadata::MetadataRequest;

/// When to ask again who leads partitions that had no leader, while nothing waits for them. So soon too behind a
/// connection that was lost, then twice as long after each answer: who answers at once does not know yet that a broker has
/// died, of which the controller hears when `broker.session.timeout.ms` has passed.
const RECHECK: Duration = Duration::from_secs(1);

/// When to ask for metadata.
#[derive(Debug)]
pub(super) struct MetadataRefresh {
    asked: Option<(RequestId, Peer)>,
    asked_at: Option<Instant>,
    backoff: Backoff,
    stale: bool,
    /// When to look again although nothing is known to be out of date.
    recheck: Option<Instant>,
    /// How long after the next answer that is.
    patience: Duration,
    /// The longest that it gets: also a leader that was away for a moment, and has cut off nobody, is heard of.
    refresh: Duration,
    /// How many connections had been lost when it was looked last.
    lost: u64,
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
        }
    }

    /// Notes how many connections have been lost: behind one of them leaders may have changed that nobody asks for now,
    /// or may be about to.
    pub(super) const fn note_lost(&mut self, connections: u64) {
        if connections != self.lost {
            self.lost = connections;
            self.stale = true;
            self.patience = RECHECK;
        }
    }

    /// Notes that what is known may be out of date.
    pub(super) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// A transaction was brought to its end, or can begin: whatever was wrong is over.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff.begin_anew();
    }

    /// Notes that a broker is silent, if one is: its work may be done by others, which shows sooner or later. What a silent
    /// one was asked is asked of somebody else.
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

    /// Whether to ask. `lacking` says that a leader is not known that batches wait for.
    pub(super) fn is_due(&self, lacking: bool, now: Instant) -> bool {
        let due = self.recheck.is_some_and(|at| at <= now);
        self.asked.is_none() && (self.stale || lacking || due)
    }

    /// When to come back although nothing has happened.
    pub(super) fn recheck(&self) -> Option<Instant> {
        self.recheck.filter(|_| self.asked.is_none())
    }

    /// Asks if it may be asked again already; gives the time at which to come back.
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
                Ok(None)
            }
            Err(again) => Ok(Some(again)),
        }
    }

    /// Takes an answer to metadata; gives back one that is none.
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
        let lacking = client.cached_metadata().lacks_leaders();
        self.answered(lacking, client.clock().now());
        Ok(taken)
    }

    /// There was an answer; `lacking` says that a partition has no leader.
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

    /// For how long nobody asks behind an answer.
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
        assert!(refresh.is_due(true, now), "somebody waits");
        refresh.note_lost(1);
        assert!(refresh.is_due(false, now));
        refresh.stale = false;
        refresh.note_lost(1);
        assert!(!refresh.is_due(false, now), "it is known already");
    }

    #[test]
    fn partitions_without_a_leader_are_looked_at_again_after_a_while() {
        let mut refresh = refresh();
        for _ in 0..3 {
            assert_eq!(pause(&mut refresh, true), RECHECK);
        }
        assert_eq!(pause(&mut refresh, false), REFRESH);
    }

    #[test]
    fn who_answers_behind_a_lost_connection_may_not_know_yet_what_has_changed() {
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
