use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;
use bytes::Bytes;
use proptest::prelude::*;

use super::super::{Assignment, FetchedPartition, Limits, Outcome, StalledPartition, Stop};
use super::FetchState;
use crate::metadata::Metadata;
use crate::protocol::IsolationLevel;
use crate::protocol::fetch::{AnsweredPartition, AnsweredTopic, FetchAnswer, FetchRequest};
use crate::protocol::metadata::{Broker, ClusterMetadata, PartitionMetadata, TopicMetadata};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

mod closest;
mod sessions;
mod troubles;

const A: TopicId = TopicId([1; 16]);
const B: TopicId = TopicId([2; 16]);
const MILLI: Duration = Duration::from_millis(1);

const LIMITS: Limits = Limits {
    wait: Duration::from_millis(500),
    min_bytes: 1,
    answer_bytes: 1000,
    partition_bytes: 100,
    budget: 1000,
    patience_bytes: 0,
    retry: Duration::from_millis(50),
    patience: Duration::from_secs(5),
};

/// Topic `a`: broker 1 leads the even partitions of 0 to 3, broker 2 the odd ones, in epoch 7.
fn cluster() -> ClusterMetadata {
    let partitions = (0..4).map(|index| PartitionMetadata {
        error: ErrorCode::NONE,
        index,
        leader: 1 + index % 2,
        leader_epoch: 7,
    });
    ClusterMetadata {
        brokers: [1, 2]
            .map(|id| Broker {
                id,
                host: format!("h{id}"),
                port: 9092,
            })
            .into(),
        topics: vec![TopicMetadata {
            error: ErrorCode::NONE,
            name: "a".to_owned(),
            id: A,
            partitions: partitions.collect(),
        }],
        ..ClusterMetadata::default()
    }
}

/// A reader of a simulated cluster.
struct Reader {
    state: FetchState,
    metadata: Metadata,
    silent: Vec<i32>,
    /// Number of the connection to each broker.
    connection: u64,
    now: Instant,
}

fn reading(partitions: &[i32]) -> Reader {
    reading_with(partitions, LIMITS)
}

fn reading_with(partitions: &[i32], limits: Limits) -> Reader {
    let mut reader = Reader {
        state: FetchState::new(IsolationLevel::ReadUncommitted, limits),
        metadata: Metadata::default(),
        silent: Vec::new(),
        connection: 1,
        now: Instant::now(),
    };
    let assignments: Vec<_> = partitions
        .iter()
        .map(|index| Assignment::new("a", *index, 10))
        .collect();
    reader.state.assign(&assignments);
    assert!(reader.wants_metadata());
    assert!(reader.learn(cluster()).is_empty());
    assert!(!reader.wants_metadata());
    reader
}

impl Reader {
    fn learn(&mut self, metadata: ClusterMetadata) -> Vec<FetchedPartition> {
        self.metadata.apply(metadata, self.now);
        self.state.compare(&self.metadata, &self.silent, self.now)
    }

    fn wants_metadata(&mut self) -> bool {
        self.state.wants_metadata(&self.metadata)
    }

    fn stalled(&self) -> Vec<StalledPartition> {
        self.state.stalled(self.now)
    }

    fn plan(&mut self, broker: i32) -> Option<FetchRequest> {
        self.state
            .plan(broker, self.connection, &self.metadata, self.now)
    }

    /// Returns the partitions and offsets that a broker would be asked for.
    fn asked(&mut self, broker: i32) -> Vec<(i32, i64)> {
        let topics = self
            .plan(broker)
            .map(|request| request.topics)
            .unwrap_or_default();
        topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|asked| (asked.index, asked.offset))
            .collect()
    }

    fn answer(&mut self, broker: i32, partitions: Vec<AnsweredPartition>) -> Vec<FetchedPartition> {
        let answer = FetchAnswer {
            topics: vec![AnsweredTopic {
                id: A,
                partitions,
                ..AnsweredTopic::default()
            }],
            ..FetchAnswer::default()
        };
        self.state
            .answered(broker, answer, &mut self.metadata, self.now)
    }
}

fn at(index: i32) -> TopicPartition {
    TopicPartition::new("a", index)
}

fn said(index: i32, records: &'static [u8]) -> AnsweredPartition {
    AnsweredPartition {
        index,
        high_watermark: 100,
        records: Bytes::from_static(records),
        ..AnsweredPartition::default()
    }
}

fn error(index: i32, error: i16) -> AnsweredPartition {
    AnsweredPartition {
        error: ErrorCode(error),
        ..said(index, b"")
    }
}

fn stop_of(fetched: &[FetchedPartition]) -> &Stop {
    match fetched {
        [
            FetchedPartition {
                outcome: Outcome::Stopped(stop),
                ..
            },
        ] => stop,
        other => panic!("no stop: {other:?}"),
    }
}

#[test]
fn each_leader_is_asked_for_its_own_partitions_in_one_request() {
    let mut reader = reading(&[0, 1, 2]);
    assert_eq!(
        reader.state.brokers(&reader.metadata, reader.now),
        [1, 2].into()
    );
    let request = reader.plan(1).unwrap();
    assert_eq!((request.topics.len(), request.topics[0].id), (1, A));
    let partitions = &request.topics[0].partitions;
    assert_eq!(
        partitions
            .iter()
            .map(|asked| asked.index)
            .collect::<Vec<_>>(),
        [0, 2]
    );
    assert_eq!(
        (partitions[0].leader_epoch, partitions[0].last_epoch),
        (7, -1)
    );
    // one request a broker
    assert_eq!(
        reader.state.brokers(&reader.metadata, reader.now),
        [2].into()
    );
    assert!(reader.plan(1).is_none());
}

#[test]
fn a_partition_is_held_until_the_reader_advances() {
    let mut reader = reading(&[0]);
    assert_eq!(reader.asked(1), [(0, 10)]);
    let fetched = reader.answer(1, vec![said(0, b"x")]);
    assert_eq!((fetched[0].offset, fetched[0].topic_id), (10, A));
    assert!(reader.asked(1).is_empty());
    assert_eq!(reader.state.position(&at(0)), Some(10));
    assert!(reader.state.advance(&at(0), 15, 6));
    let request = reader.plan(1).unwrap();
    let asked = request.topics[0].partitions[0];
    assert_eq!((asked.offset, asked.last_epoch), (15, 6));
}

#[test]
fn an_answer_is_void_once_the_reader_went_elsewhere() {
    let mut reader = reading(&[0]);
    assert_eq!(reader.asked(1), [(0, 10)]);
    assert!(reader.state.advance(&at(0), 50, -1));
    assert!(reader.answer(1, vec![said(0, b"x")]).is_empty());
    assert_eq!(reader.asked(1), [(0, 50)]);
}

#[test]
fn an_answer_is_void_once_the_partition_was_assigned_anew() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    reader.state.assign(&[]);
    reader.state.assign(&[Assignment::new("a", 0, 10)]);
    assert!(reader.learn(cluster()).is_empty());
    assert!(reader.answer(1, vec![said(0, b"x")]).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}

#[test]
fn assigning_more_partitions_does_not_disturb_the_others() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    reader
        .state
        .assign(&[Assignment::new("a", 0, 10), Assignment::new("a", 2, 3)]);
    assert!(reader.wants_metadata());
    assert_eq!(reader.answer(1, vec![said(0, b"x")]).len(), 1);
}

#[test]
fn an_answer_without_news_is_not_handed_out() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    assert_eq!(
        reader.answer(1, vec![said(0, b"")]).len(),
        1,
        "watermarks are news the first time"
    );
    reader.asked(1);
    assert!(reader.answer(1, vec![said(0, b"")]).is_empty());
    reader.asked(1);
    let moved = AnsweredPartition {
        last_stable_offset: 99,
        ..said(0, b"")
    };
    assert_eq!(reader.answer(1, vec![moved]).len(), 1);
    assert_eq!(reader.asked(1), [(0, 10)], "nothing to hold");
}

#[test]
fn the_partition_that_gave_records_longest_ago_comes_first() {
    let mut reader = reading(&[0, 2]);
    assert_eq!(reader.asked(1), [(0, 10), (2, 10)]);
    // the answer was full after partition 0
    reader.answer(1, vec![said(0, b"x"), said(2, b"")]);
    reader.state.advance(&at(0), 11, 7);
    assert_eq!(reader.asked(1), [(2, 10), (0, 11)]);
    reader.answer(1, vec![said(2, b"x"), said(0, b"")]);
    reader.state.advance(&at(2), 12, 7);
    assert_eq!(reader.asked(1), [(0, 11), (2, 12)]);
    reader.answer(1, vec![said(0, b""), said(2, b"")]);
    assert_eq!(
        reader.asked(1),
        [(0, 11), (2, 12)],
        "no partition was served"
    );
}

#[test]
fn a_broker_answers_soon_while_a_partition_of_it_is_held() {
    let mut reader = reading(&[0, 2]);
    assert_eq!(reader.plan(1).unwrap().max_wait_ms, 500);
    reader.answer(1, vec![said(0, b"x"), said(2, b"")]);
    assert_eq!(reader.plan(1).unwrap().max_wait_ms, 20);
}

#[test]
fn a_broker_is_not_asked_again_while_little_of_it_is_held() {
    let limits = Limits {
        patience_bytes: 4,
        ..LIMITS
    };
    let mut reader = reading_with(&[0, 2], limits);
    reader.plan(1).unwrap();
    reader.answer(1, vec![said(0, b"xxxx"), said(2, b"")]);
    assert!(
        reader.plan(1).is_none(),
        "the reader will be through at once"
    );
    reader.state.advance(&at(0), 11, 7);
    assert_eq!(reader.asked(1), [(2, 10), (0, 11)], "all in one request");
    reader.answer(1, vec![said(0, b"xxxxx"), said(2, b"")]);
    assert_eq!(reader.asked(1), [(2, 10)], "more is worked on for a while");
}

#[test]
fn a_hurried_broker_answers_at_once_and_only_once() {
    let mut reader = reading(&[0, 1]);
    reader.plan(2).unwrap();
    let (metadata, now) = (&reader.metadata, reader.now);
    reader.state.hurry(metadata, now);
    assert!(reader.state.is_hurrying());
    assert_eq!(reader.plan(1).unwrap().max_wait_ms, 0);
    assert!(
        reader.state.is_hurrying(),
        "broker 2 has a request already, and broker 1 has not answered"
    );
    reader.answer(1, vec![said(0, b"")]);
    assert!(!reader.state.is_hurrying());
    assert_eq!(reader.plan(1).unwrap().max_wait_ms, 500);
}

#[test]
fn the_answers_of_all_leaders_together_stay_within_the_budget() {
    let asked = |partitions: &[i32], budget| {
        let mut reader = reading_with(partitions, Limits { budget, ..LIMITS });
        [1, 2].map(|broker| reader.plan(broker).map(|request| request.max_bytes))
    };
    assert_eq!(
        asked(&[0, 2], 1500),
        [Some(1000), None],
        "one answer has its own limit"
    );
    assert_eq!(asked(&[0, 1], 1500), [Some(750), Some(750)]);
    assert_eq!(
        asked(&[0, 1], 0),
        [Some(100), Some(100)],
        "a partition is always asked for"
    );
}

#[test]
fn what_is_held_leaves_less_to_ask_for() {
    let large: &'static [u8] = &[0; 200];
    let limits = Limits {
        budget: 250,
        ..LIMITS
    };
    let mut reader = reading_with(&[0, 2], limits);
    assert_eq!(reader.plan(1).unwrap().max_bytes, 250);
    reader.answer(1, vec![said(0, large), said(2, b"")]);
    assert_eq!(reader.state.held_bytes(), 200);
    assert_eq!(
        reader.plan(1).unwrap().max_bytes,
        250,
        "the next records come while these are worked on"
    );
    let mut reader = reading_with(&[0, 2], limits);
    let huge: &'static [u8] = &[0; 350];
    reader.asked(1);
    reader.answer(1, vec![said(0, huge), said(2, b"")]);
    assert_eq!(reader.plan(1).unwrap().max_bytes, 150);
    reader.answer(1, vec![said(2, large)]);
    reader.state.advance(&at(2), 11, 7);
    assert_eq!(reader.plan(1).unwrap().max_bytes, 150);
}

#[test]
fn a_broker_of_which_too_much_is_held_is_not_asked() {
    let huge: &'static [u8] = &[0; 250];
    let mut reader = reading_with(
        &[0, 2],
        Limits {
            budget: 150,
            ..LIMITS
        },
    );
    reader.asked(1);
    reader.answer(1, vec![said(0, huge), said(2, b"")]);
    assert!(
        reader
            .state
            .brokers(&reader.metadata, reader.now)
            .is_empty()
    );
    assert!(reader.plan(1).is_none());
    reader.state.advance(&at(0), 11, 7);
    assert_eq!(reader.plan(1).unwrap().max_bytes, 150);
    reader.answer(1, vec![said(0, huge)]);
    reader.state.assign(&[Assignment::new("a", 2, 10)]);
    assert_eq!(reader.state.held_bytes(), 0, "it is not read any more");
}

#[test]
fn an_error_of_the_whole_answer_counts_for_each_partition() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    let answer = FetchAnswer {
        error: ErrorCode(70),
        ..FetchAnswer::default()
    };
    assert!(
        reader
            .state
            .answered(1, answer, &mut reader.metadata, reader.now)
            .is_empty()
    );
    assert_eq!(
        reader.stalled()[0].reason,
        "FETCH_SESSION_ID_NOT_FOUND (70)"
    );
}

#[test]
fn an_answer_by_name_counts_as_well() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    let answer = FetchAnswer {
        topics: vec![AnsweredTopic {
            name: "a".to_owned(),
            partitions: vec![said(0, b"x")],
            ..AnsweredTopic::default()
        }],
        ..FetchAnswer::default()
    };
    assert_eq!(
        reader
            .state
            .answered(1, answer, &mut reader.metadata, reader.now)
            .len(),
        1
    );
}

proptest! {
    /// Answers in any order: a partition's records are those at its position, and only the reader moves positions.
    #[test]
    fn no_offset_is_skipped_or_read_twice(
        steps in proptest::collection::vec((0_u8..6, 0_i32..4, 0_usize..6), 1..200),
    ) {
        let codes = [0, 0, 6, 78, 3, 100];
        let mut reader = reading(&[0, 1, 2, 3]);
        let mut positions: BTreeMap<i32, i64> = (0..4).map(|index| (index, 10)).collect();
        let mut held: BTreeMap<i32, i64> = BTreeMap::new();
        let mut asked: BTreeMap<i32, Vec<(i32, i64)>> = BTreeMap::new();
        for (step, index, pick) in steps {
            let broker = 1 + index % 2;
            reader.now += MILLI * 17;
            match step {
                0 | 1 => {
                    let partitions = reader.asked(broker);
                    if !partitions.is_empty() {
                        for (index, offset) in &partitions {
                            prop_assert_eq!(positions[index], *offset);
                            prop_assert!(!held.contains_key(index));
                        }
                        prop_assert!(asked.insert(broker, partitions).is_none());
                    }
                }
                2 | 3 => {
                    let Some(partitions) = asked.remove(&broker) else { continue };
                    let answers = partitions.iter().enumerate().map(|(nth, (index, _))| AnsweredPartition {
                        error: ErrorCode(codes[(pick + nth) % codes.len()]),
                        ..said(*index, if codes[(pick + nth) % codes.len()] == 0 { b"x" } else { b"" })
                    }).collect();
                    for fetched in reader.answer(broker, answers) {
                        let index = fetched.partition.partition;
                        prop_assert_eq!(positions[&index], fetched.offset);
                        prop_assert!(held.insert(index, fetched.offset).is_none());
                    }
                }
                4 => {
                    if let Some(offset) = held.remove(&index) {
                        prop_assert!(reader.state.advance(&at(index), offset + 1, 7));
                        positions.insert(index, offset + 1);
                    }
                }
                _ => {
                    asked.remove(&broker);
                    reader.state.failed(broker, "lost", reader.now);
                    prop_assert!(reader.learn(cluster()).is_empty());
                }
            }
            for (index, offset) in &positions {
                prop_assert_eq!(reader.state.position(&at(*index)), Some(*offset));
            }
        }
    }
}
