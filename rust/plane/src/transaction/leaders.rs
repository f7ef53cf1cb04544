//! Keeps what is known of partition leaders fresh, by asking for metadata beside everything else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, RequestId};
use crate::protocol::metadata::MetadataRequest;

/// At most ten times a second, however much goes wrong.
const METADATA_PAUSE: Duration = Duration::from_millis(100);

/// When to ask for metadata.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    asked: Option<RequestId>,
    not_before: Option<Instant>,
    stale: bool,
}

impl Leaders {
    /// Notes that what is known may be out of date.
    pub(super) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// Whether to ask. `lacking` says that a leader is not known.
    pub(super) const fn wants(&self, lacking: bool) -> bool {
        self.asked.is_none() && (self.stale || lacking)
    }

    /// Asks if it may be asked again already; gives the time at which to come back.
    pub(super) fn ask(
        &mut self,
        client: &mut Client,
        topics: BTreeSet<String>,
        now: Instant,
    ) -> Result<Option<Instant>, Error> {
        if let Some(at) = self.not_before.filter(|at| *at > now) {
            return Ok(Some(at));
        }
        match client.any_ready(now)? {
            Ok(peer) => {
                let request = MetadataRequest {
                    topics: topics.into_iter().collect(),
                };
                self.asked = Some(client.network().ask(peer, &request, now, Duration::ZERO));
                self.not_before = Some(now + METADATA_PAUSE);
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
        Ok(taken)
    }
}
