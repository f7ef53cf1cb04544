//! Looks up the bounds of a log that does not contain the position.
//!
//! A leader that answers `OFFSET_OUT_OF_RANGE` has -1 in both fields (Kafka's `ReplicaManager`). So it is asked for
//! both offsets, without blocking other partitions, and the stop is reported with its answer.
//!
//! It also answers so when all of its epochs are older than the epoch before the position (Kafka's `Partition`). Then
//! the source was restored from an older state and written beyond the position: it is another log, although it contains
//! the offset.

use std::time::{Duration, Instant};

use super::{FetchedPartition, LogBounds, Outcome, Stop};
use crate::client::{Client, OffsetSpec};
use crate::network::{Answer, Peer, RequestId};
use crate::protocol::IsolationLevel;
use crate::protocol::list_offsets::{AskedOffset, ListOffsetsRequest};

/// A stopped partition, and what is known of its log.
struct Waiting {
    stopped: FetchedPartition,
    /// Leader epoch of the record before the position, -1 when unknown.
    last_epoch: i32,
    start: Known,
    end: Known,
}

/// One of the two bounds.
enum Known {
    Asked(RequestId),
    Is {
        offset: i64,
        epoch: i32,
    },
    /// The leader did not answer; another one has to be asked.
    Not,
}

/// Stopped partitions that are not reported yet.
#[derive(Default)]
pub(super) struct Bounds {
    waiting: Vec<Waiting>,
}

impl Bounds {
    /// Asks the leader `broker` for both bounds of the log. `last_epoch` is the leader epoch of the record before the
    /// position, -1 when unknown.
    pub(super) fn ask(
        &mut self,
        stopped: FetchedPartition,
        last_epoch: i32,
        broker: i32,
        client: &mut Client,
        now: Instant,
    ) {
        let at = &stopped.partition;
        let leader = client.cached_metadata().leader(&at.topic, at.partition);
        let leader_epoch = leader.map_or(-1, |(_, epoch)| epoch);
        let [start, end] = [OffsetSpec::Earliest, OffsetSpec::Latest].map(|spec| {
            let asked = AskedOffset {
                partition: at.partition,
                leader_epoch,
                timestamp: spec.timestamp(),
            };
            // one request each: a broker refuses a request that names a partition twice
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
            last_epoch,
            start,
            end,
        });
    }

    /// Drops all lookups: their partitions restart, or are not wanted any more.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Takes an answer of a lookup, and returns the partition when it was the last one. Gives back any other answer.
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
        *known = match listed.as_deref() {
            Ok([one]) if one.error.is_none() && one.offset >= 0 => Known::Is {
                offset: one.offset,
                epoch: one.leader_epoch,
            },
            _ => Known::Not,
        };
        if matches!(waiting.start, Known::Asked(_)) || matches!(waiting.end, Known::Asked(_)) {
            return Ok(None);
        }
        Ok(Some(self.waiting.swap_remove(place).told()))
    }
}

impl Waiting {
    /// Returns the partition, with the bounds of its log.
    fn told(self) -> FetchedPartition {
        let Self {
            mut stopped,
            last_epoch,
            start,
            end,
        } = self;
        if let (Known::Is { offset: start, .. }, Known::Is { offset: end, epoch }) = (start, end) {
            let within = (start..=end).contains(&stopped.offset);
            let stop = if within && (0..last_epoch).contains(&epoch) {
                Stop::Truncated {
                    epoch,
                    end_offset: end,
                }
            } else {
                Stop::OutOfRange {
                    log: Some(LogBounds { start, end }),
                }
            };
            stopped.outcome = Outcome::Stopped(stop);
        }
        stopped
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, Waiting};
    use crate::fetch::{FetchedPartition, LogBounds, Outcome, Stop};
    use crate::topic::TopicId;
    use crate::topic::TopicPartition;

    /// Returns the stop of a position in a log with offsets 40 to 90, whose last epoch is 3.
    fn stop(offset: i64, last_epoch: i32) -> Outcome {
        let waiting = Waiting {
            stopped: FetchedPartition {
                partition: TopicPartition::new("t", 0),
                topic_id: TopicId([1; 16]),
                offset,
                compares: false,
                outcome: Outcome::Stopped(Stop::OutOfRange { log: None }),
            },
            last_epoch,
            start: Known::Is {
                offset: 40,
                epoch: 1,
            },
            end: Known::Is {
                offset: 90,
                epoch: 3,
            },
        };
        waiting.told().outcome
    }

    /// EO-6: a diverging log is reported as such, even if its leader only says that it cannot compare.
    #[test]
    fn a_log_that_never_had_the_positions_epoch_is_another_log() {
        let truncated = Stop::Truncated {
            epoch: 3,
            end_offset: 90,
        };
        for offset in [40, 60, 90] {
            assert_eq!(stop(offset, 4), Outcome::Stopped(truncated.clone()));
        }
    }

    #[test]
    fn a_position_outside_of_the_log_is_that_whatever_its_epoch() {
        let log = Some(LogBounds { start: 40, end: 90 });
        for (offset, last_epoch) in [(39, 4), (91, 4), (39, -1), (60, 3), (60, -1)] {
            assert_eq!(
                stop(offset, last_epoch),
                Outcome::Stopped(Stop::OutOfRange { log })
            );
        }
    }
}
