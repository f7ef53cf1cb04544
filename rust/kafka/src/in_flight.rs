//! Requests in flight on one connection. A broker answers them in the order in which they came.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::protocol::{self, Api, Request};
use crate::wire::{DecodeError, Reader};

/// A request that has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending<Id> {
    /// Who asked.
    pub(crate) id: Id,
    /// What was asked.
    pub(crate) api: Api,
    /// In which version.
    pub(crate) version: i16,
    correlation: i32,
    /// How long the broker may hold the answer back.
    held: Duration,
    deadline: Instant,
}

/// Pairs answers with requests.
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

    /// Writes a request, and expects its answer until `deadline`.
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

    /// Which request a frame answers, and the answer's body. On an error nothing counts as answered: whoever waits for the
    /// request in front is told with all the others ([`Self::abandon`]), and would otherwise wait for ever.
    pub(crate) fn answer(&mut self, frame: Bytes) -> Result<(Pending<Id>, Bytes), DecodeError> {
        let mut reader = Reader::new(frame);
        let correlation = reader.int32()?;
        let Some(pending) = self.pending.front().copied() else {
            return Err(DecodeError {
                reason: "nothing was asked",
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

    /// Whether nothing was ever asked.
    pub(crate) const fn is_unused(&self) -> bool {
        self.next == 0
    }

    /// The earliest deadline. Later requests may have an earlier one: nothing makes them wait for each other.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// How long the broker may hold the next answer back because there is no news.
    pub(crate) fn held(&self) -> Duration {
        let front = self.pending.front();
        front.map_or(Duration::ZERO, |pending| pending.held)
    }

    /// All requests that will not be answered any more.
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
        // ApiVersions has no tags in its answer's header, other flexible answers have
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
    fn a_request_whose_answer_is_refused_is_among_those_that_will_not_be_answered() {
        // another number; and of a flexible answer, tags that are cut
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
            "nothing was asked"
        );
        assert!(asked().answer(Bytes::from_static(&[0])).is_err());
    }
}
