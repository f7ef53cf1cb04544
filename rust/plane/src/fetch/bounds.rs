//! Where the log of a partition begins and ends whose position is not within it.
//!
//! A leader that answers `OFFSET_OUT_OF_RANGE` says neither: its answer has -1 in both places (Kafka's `ReplicaManager`).
//! So it is asked for both, beside everything else, and the partition's stop is handed out when it has answered.

use std::time::{Duration, Instant};

use super::{FetchedPartition, LogBounds, Outcome, Stop};
use crate::client::{Client, OffsetSpec};
use crate::error::ErrorCode;
use crate::network::{Answer, Peer, RequestId};
use crate::protocol::IsolationLevel;
use crate::protocol::list_offsets::{AskedOffset, ListOffsetsRequest};

/// A partition that has stopped, and what is known of its log.
struct Waiting {
    stopped: FetchedPartition,
    start: Known,
    end: Known,
}

/// One of the two ends.
enum Known {
    Asked(RequestId),
    Is(i64),
    /// The leader did not say, for whatever reason: somebody else has to look.
    Not,
}

/// Partitions whose stop is not told yet.
#[derive(Default)]
pub(super) struct Bounds {
    waiting: Vec<Waiting>,
}

impl Bounds {
    /// Asks `broker`, which leads the partition, for both ends of its log.
    pub(super) fn ask(
        &mut self,
        stopped: FetchedPartition,
        broker: i32,
        client: &mut Client,
        now: Instant,
    ) {
        let at = &stopped.partition;
        let leader = client.directory().leader(&at.topic, at.partition);
        let leader_epoch = leader.map_or(-1, |(_, epoch)| epoch);
        let [start, end] = [OffsetSpec::Earliest, OffsetSpec::Latest].map(|spec| {
            let asked = AskedOffset {
                partition: at.partition,
                leader_epoch,
                timestamp: spec.timestamp(),
            };
            // one request for each: a broker refuses one that names a partition twice
            let request = ListOffsetsRequest {
                isolation: IsolationLevel::ReadUncommitted,
                topics: vec![(at.topic.clone(), vec![asked])],
                timeout_ms: 1_000,
            };
            let network = client.network();
            Known::Asked(network.ask(Peer::Broker(broker), &request, now, Duration::ZERO))
        });
        self.waiting.push(Waiting {
            stopped,
            start,
            end,
        });
    }

    /// Forgets all of them: their partitions begin anew, or are not wanted any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes an answer to one of the questions, and gives the partition when it was the last; gives back what is none.
    pub(super) fn take(
        &mut self,
        answer: Answer,
        client: &mut Client,
    ) -> Result<Option<FetchedPartition>, Answer> {
        let is_it = |known: &Known| matches!(known, Known::Asked(id) if *id == answer.id);
        let Some(place) = self
            .waiting
            .iter()
            .position(|one| is_it(&one.start) || is_it(&one.end))
        else {
            return Err(answer);
        };
        let waiting = &mut self.waiting[place];
        let known = if is_it(&waiting.start) {
            &mut waiting.start
        } else {
            &mut waiting.end
        };
        let peer = answer.peer;
        let listed = answer
            .body
            .and_then(|(version, body)| client.read::<ListOffsetsRequest>(peer, version, body));
        *known = match listed.map(|listed| listed.partitions) {
            Ok(said) => match &said[..] {
                [one] if ErrorCode(one.error).is_none() && one.offset >= 0 => Known::Is(one.offset),
                _ => Known::Not,
            },
            Err(_) => Known::Not,
        };
        if matches!(waiting.start, Known::Asked(_)) || matches!(waiting.end, Known::Asked(_)) {
            return Ok(None);
        }
        let Waiting {
            mut stopped,
            start,
            end,
        } = self.waiting.swap_remove(place);
        if let (Known::Is(start), Known::Is(end)) = (start, end) {
            let log = Some(LogBounds { start, end });
            stopped.outcome = Outcome::Stopped(Stop::OutOfRange { log });
        }
        Ok(Some(stopped))
    }
}
