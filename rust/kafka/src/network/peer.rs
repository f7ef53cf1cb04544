//! A peer: its address, connection and failures.

use std::time::Instant;

use super::{Answer, Peer, RequestId};
use crate::connection::Connection;
use crate::error::Error;
use crate::metadata::Endpoint;

pub(super) struct PeerState {
    pub(super) endpoint: Endpoint,
    pub(super) connection: Option<Connection<RequestId>>,
    /// Number of the current or last connection; never reused.
    pub(super) number: u64,
    pub(super) failures: u32,
    /// Number of failed attempts to connect; selects the address of the host.
    pub(super) turn: usize,
    pub(super) rest_until: Option<Instant>,
    pub(super) last: Option<Error>,
}

impl PeerState {
    pub(super) const fn to(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            connection: None,
            number: 0,
            failures: 0,
            turn: 0,
            rest_until: None,
            last: None,
        }
    }

    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.rest_until.is_none_or(|until| until <= now)
            && self
                .connection
                .as_ref()
                .is_some_and(|connection| connection.is_ready(now))
    }

    pub(super) fn unanswered_since(&self) -> Option<Instant> {
        self.connection
            .as_ref()
            .and_then(Connection::unanswered_since)
    }

    pub(super) fn give_up(&mut self, peer: Peer, error: &Error, answers: &mut Vec<Answer>) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        answers.extend(connection.abandon().into_iter().map(|id| Answer {
            id,
            peer,
            body: Err(error.clone()),
        }));
    }
}
