//! Keeps what is known of partition leaders fresh, by asking for metadata beside everything else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, RequestId};
use crate::pauses::{Backoff, Pauses};
use crate::protocol::metadata::MetadataRequest;

/// When to ask again who leads partitions that had no leader, while nothing waits for them.
const RECHECK: Duration = Duration::from_secs(1);

/// When to ask for metadata.
#[derive(Debug)]
pub(super) struct Leaders {
    asked: Option<RequestId>,
    pauses: Pauses,
    stale: bool,
    /// When to look again at partitions without a leader.
    recheck: Option<Instant>,
    /// How many connections had been lost when it was looked last.
    lost: u64,
}

impl Leaders {
    pub(super) const fn new(backoff: Backoff) -> Self {
        Self {
            asked: None,
            pauses: Pauses::new(backoff),
            stale: false,
            recheck: None,
            lost: 0,
        }
    }

    /// Notes how many connections have been lost: behind one of them leaders may have changed that nobody asks for now.
    pub(super) const fn lost(&mut self, connections: u64) {
        self.stale |= connections != self.lost;
        self.lost = connections;
    }

    /// Notes that what is known may be out of date.
    pub(super) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// A transaction was brought to its end, or can begin: whatever was wrong is over.
    pub(super) fn begin_anew(&mut self) {
        self.pauses.begin_anew();
    }

    /// Whether to ask. `lacking` says that a leader is not known that batches wait for.
    pub(super) fn wants(&self, lacking: bool, now: Instant) -> bool {
        let due = self.recheck.is_some_and(|at| at <= now);
        self.asked.is_none() && (self.stale || lacking || due)
    }

    /// Asks if it may be asked again already; gives the time at which to come back.
    pub(super) fn ask(
        &mut self,
        client: &mut Client,
        topics: BTreeSet<String>,
        now: Instant,
    ) -> Result<Option<Instant>, Error> {
        if let Some(at) = self.pauses.until().filter(|at| *at > now) {
            return Ok(Some(at));
        }
        match client.any_ready(now)? {
            Ok(peer) => {
                let request = MetadataRequest {
                    topics: topics.into_iter().collect(),
                };
                self.asked = Some(client.network().ask(peer, &request, now, Duration::ZERO));
                self.pauses.asked(client.network().spread(), now);
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
        if self.asked != Some(answer.id) {
            return Err(answer);
        }
        self.asked = None;
        let taken = answer
            .body
            .and_then(|(version, body)| client.read::<MetadataRequest>(answer.peer, version, body))
            .and_then(|metadata| client.take_metadata(metadata));
        self.stale |= taken.is_err();
        let lacks = client.directory().lacks_leaders();
        self.recheck = lacks.then(|| client.clock().now() + RECHECK);
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{Leaders, RECHECK};
    use crate::pauses::Backoff;

    fn leaders() -> Leaders {
        Leaders::new(Backoff {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(1),
        })
    }

    #[test]
    fn a_connection_that_was_lost_is_a_reason_to_ask_once() {
        let now = Instant::now();
        let mut leaders = leaders();
        leaders.lost(0);
        assert!(!leaders.wants(false, now));
        assert!(leaders.wants(true, now), "somebody waits");
        leaders.lost(1);
        assert!(leaders.wants(false, now));
        leaders.stale = false;
        leaders.lost(1);
        assert!(!leaders.wants(false, now), "it is known already");
    }

    #[test]
    fn partitions_without_a_leader_are_looked_at_again_after_a_while() {
        let now = Instant::now();
        let mut leaders = leaders();
        leaders.recheck = Some(now + RECHECK);
        assert!(!leaders.wants(false, now));
        assert!(leaders.wants(false, now + RECHECK));
    }
}
