//! Keeps what is known of partition leaders fresh, by asking for metadata beside everything else.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, RequestId};
use crate::pauses::{Backoff, Pauses};
use crate::protocol::metadata::MetadataRequest;

/// When to ask for metadata.
#[derive(Debug)]
pub(super) struct Leaders {
    asked: Option<RequestId>,
    pauses: Pauses,
    stale: bool,
}

impl Leaders {
    pub(super) const fn new(backoff: Backoff) -> Self {
        Self {
            asked: None,
            pauses: Pauses::new(backoff),
            stale: false,
        }
    }

    /// Notes that what is known may be out of date.
    pub(super) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// A transaction was brought to its end, or can begin: whatever was wrong is over.
    pub(super) fn begin_anew(&mut self) {
        self.pauses.begin_anew();
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
        Ok(taken)
    }
}
