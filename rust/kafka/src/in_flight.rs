//! In-flight requests of one connection. A broker answers them in order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::protocol::{self, Api, Request};
use crate::wire::{DecodeError, Reader};

/// A request that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending<Id> {
    /// Id of the request.
    pub(crate) id: Id,
    pub(crate) api: Api,
    pub(crate) version: i16,
    correlation: i32,
    /// Time for which the broker may hold the answer back.
    held: Duration,
    deadline: Instant,
}

/// Matches answers to requests.
#[derive(Debug)]
pub(crate) struct InFlight<Id> {
    client_id: String,
    next: i32,
    pending: VecDeque<Pending<Id>>,
}

impl<Id: Copy> InFlight<Id> {
    pub(crate) const fn new(client_id: String) -> Self {
        Self {
            client_id,
            next: 0,
            pending: VecDeque::new(),
        }
    }

    /// Encodes a request, and expects its answer until `deadline`.
    pub(crate) fn ask<R: Request>(
        &mut self,
        id: Id,
        request: &R,
        version: i16,
        deadline: Instant,
    ) -> Vec<Bytes> {
        let correlation = self.next;
        self.next = self.next.wrapping_add(1) & i32::MAX;
        self.pending.push_back(Pending {
            id,
            api: R::API,
            version,
            correlation,
            held: Duration::from_millis(u64::try_from(request.held_ms()).unwrap_or(0)),
            deadline,
        });
        protocol::frame(request, version, correlation, &self.client_id)
    }

    /// Returns the request that a frame answers, and the answer's body. After an error the request at the front stays
    /// in flight: [`Self::abandon`] then reports it with all others.
    pub(crate) fn answer(&mut self, frame: Bytes) -> Result<(Pending<Id>, Bytes), DecodeError> {
        let mut reader = Reader::new(frame);
        let correlation = reader.int32()?;
        let Some(pending) = self.pending.front().copied() else {
            return Err(DecodeError {
                reason: "no request is in flight",
            });
        };
        if pending.correlation != correlation {
            return Err(DecodeError {
                reason: "it answers another request",
            });
        }
        if protocol::has_tagged_header(pending.api, pending.version) {
            reader.skip_tags()?;
        }
        self.pending.pop_front();
        Ok((pending, reader.rest()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns whether no request was ever sent.
    pub(crate) const fn is_unused(&self) -> bool {
        self.next == 0
    }

    /// Returns the earliest deadline. Later requests may have an earlier one: they do not depend on each other.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// Returns the time for which the broker may hold the next answer back.
    pub(crate) fn held(&self) -> Duration {
        let front = self.pending.front();
        front.map_or(Duration::ZERO, |pending| pending.held)
    }

    /// Removes and returns all requests, which will not be answered.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = Pending<Id>> {
        self.pending.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bytes::{BufMut, Bytes, BytesMut};

    use super::InFlight;
    use crate::protocol::api_versions::ApiVersions;
    use crate::protocol::metadata::MetadataRequest;

    fn answer(correlation: i32, rest: &[u8]) -> Bytes {
        let mut frame = BytesMut::new();
        frame.put_i32(correlation);
        frame.put_slice(rest);
        frame.freeze()
    }

    fn asked() -> InFlight<u64> {
        let mut in_flight = InFlight::new("me".to_owned());
        let now = Instant::now();
        in_flight.ask(7, &ApiVersions, 4, now + Duration::from_secs(9));
        in_flight.ask(
            8,
            &MetadataRequest { topics: vec![] },
            12,
            now + Duration::from_secs(5),
        );
        assert_eq!(in_flight.deadline(), Some(now + Duration::from_secs(5)));
        in_flight
    }

    #[test]
    fn answers_go_to_requests_in_order() {
        let mut in_flight = asked();
        // the answer to ApiVersions has no tagged fields in its header, other flexible answers have
        let (first, body) = in_flight.answer(answer(0, &[0, 1])).unwrap();
        assert_eq!((first.id, &body[..]), (7, &[0, 1][..]));
        let (second, body) = in_flight.answer(answer(1, &[0, 1])).unwrap();
        assert_eq!((second.id, &body[..]), (8, &[1][..]));
        assert!(in_flight.is_empty());
    }

    #[test]
    fn an_answer_out_of_order_is_refused() {
        let reason = asked().answer(answer(1, &[])).unwrap_err().reason;
        assert_eq!(reason, "it answers another request");
    }

    #[test]
    fn a_request_with_a_refused_answer_is_abandoned_with_the_rest() {
        // another correlation id; and truncated tagged fields in a flexible answer
        for (frame, left) in [(answer(1, &[]), vec![7, 8]), (answer(1, &[1]), vec![8])] {
            let mut in_flight = asked();
            if left.len() == 1 {
                in_flight.answer(answer(0, &[])).unwrap();
            }
            in_flight.answer(frame).unwrap_err();
            let told: Vec<u64> = in_flight.abandon().map(|pending| pending.id).collect();
            assert_eq!(told, left);
        }
    }

    #[test]
    fn an_answer_without_a_question_is_refused() {
        let mut in_flight: InFlight<u64> = InFlight::new(String::new());
        assert_eq!(
            in_flight.answer(answer(0, &[])).unwrap_err().reason,
            "no request is in flight"
        );
        assert!(asked().answer(Bytes::from_static(&[0])).is_err());
    }
}
