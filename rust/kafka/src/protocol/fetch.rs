//! `Fetch`: record batches as they lie in the log, byte for byte.
//!
//! Versions 12 (leader and diverging epochs, KIP-595) to 17. From 13 on topics go by id (KIP-516), and from 16 on an
//! answer has the new leader's address (KIP-951). `crate::fetch_session` keeps sessions (KIP-227).

use std::sync::Arc;

use crate::error_code::ErrorCode;
use bytes::Bytes;
use eomirror_batch::AbortedTransaction;

use super::{Api, IsolationLevel, Request, read_topic, write_topic};
use crate::topic::TopicId;
use crate::wire::{DecodeError, Reader, Writer};

/// Asks a leader for records of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FetchRequest {
    pub(crate) max_wait_ms: i32,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
    pub(crate) isolation: IsolationLevel,
    /// 0 for none.
    pub(crate) session_id: i32,
    /// 0 requests a session, -1 requests none; both name every partition.
    pub(crate) session_epoch: i32,
    pub(crate) topics: Vec<AskedTopic>,
    /// Partitions to remove from the session.
    pub(crate) forgotten: Vec<ForgottenTopic>,
    /// Location of the reader (KIP-392): the leader may name a closer replica. Empty to read from the leader.
    pub(crate) rack: Arc<str>,
}

/// Partitions of one topic, in the order in which the broker fills its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AskedTopic {
    pub(crate) name: Arc<str>,
    /// [`TopicId::NONE`] when the broker has none, which limits the whole request to version 12.
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<AskedPartition>,
}

/// Partitions of one topic to remove from the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ForgottenTopic {
    pub(crate) name: Arc<str>,
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<i32>,
}

/// A requested partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskedPartition {
    pub(crate) index: i32,
    /// From the metadata; a broker with newer metadata answers `FENCED_LEADER_EPOCH`.
    pub(crate) leader_epoch: i32,
    pub(crate) offset: i64,
    /// Leader epoch of the record before `offset`; -1 when unknown. With it the broker detects a truncated log.
    pub(crate) last_epoch: i32,
    pub(crate) max_bytes: i32,
}

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FetchAnswer {
    pub(crate) throttle_ms: i32,
    pub(crate) error: ErrorCode,
    /// 0 for none.
    pub(crate) session_id: i32,
    pub(crate) topics: Vec<AnsweredTopic>,
}

/// Partitions of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnsweredTopic {
    /// Empty from version 13 on.
    pub(crate) name: String,
    /// [`TopicId::NONE`] up to version 12.
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<AnsweredPartition>,
}

/// The answer for one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnsweredPartition {
    pub(crate) index: i32,
    pub(crate) error: ErrorCode,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable_offset: i64,
    pub(crate) log_start_offset: i64,
    /// Null for read uncommitted.
    pub(crate) aborted: Option<Vec<AbortedTransaction>>,
    /// The closer replica to read from.
    pub(crate) closer: Option<i32>,
    /// Shares the memory of its frame.
    pub(crate) records: Bytes,
    /// End of the common log: the log was truncated there.
    pub(crate) diverging: Option<EpochEnd>,
    /// The current leader, if another broker leads.
    pub(crate) leader: Option<NewLeader>,
}

/// The largest epoch at or below the requested one, and its end offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochEnd {
    pub(crate) epoch: i32,
    pub(crate) end_offset: i64,
}

/// A leader and its leader epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewLeader {
    pub(crate) broker: i32,
    pub(crate) epoch: i32,
}

impl Request for FetchRequest {
    const API: Api = Api {
        key: 1,
        name: "Fetch",
        versions: (12, 17),
        flexible: 12,
    };

    type Answer = FetchAnswer;

    fn highest(&self) -> i16 {
        let asked = self.topics.iter().map(|topic| topic.id);
        let forgotten = self.forgotten.iter().map(|topic| topic.id);
        if asked.chain(forgotten).any(TopicId::is_none) {
            12
        } else {
            Self::API.versions.1
        }
    }

    fn held_ms(&self) -> i32 {
        self.max_wait_ms
    }

    fn write(&self, version: i16, out: &mut Writer) {
        if version <= 14 {
            out.int32(-1); // replica; a tagged field with that default from version 15 on
        }
        out.int32(self.max_wait_ms);
        out.int32(self.min_bytes);
        out.int32(self.max_bytes);
        out.int8(self.isolation.wire());
        out.int32(self.session_id);
        out.int32(self.session_epoch);
        out.structures(&self.topics, |out, topic| {
            write_topic(version, &topic.name, topic.id, out);
            out.structures(&topic.partitions, |out, asked| {
                out.int32(asked.index);
                out.int32(asked.leader_epoch);
                out.int64(asked.offset);
                out.int32(asked.last_epoch);
                out.int64(-1); // log start offset, of followers
                out.int32(asked.max_bytes);
            });
        });
        out.structures(&self.forgotten, |out, topic| {
            write_topic(version, &topic.name, topic.id, out);
            out.compact_array(&topic.partitions, |out, index| out.int32(*index));
        });
        out.compact_string(&self.rack);
    }

    fn read(version: i16, from: &mut Reader) -> Result<FetchAnswer, DecodeError> {
        // its tagged fields are addresses of new leaders: metadata is asked for them
        let throttle_ms = from.throttle()?;
        let error = from.error_code()?;
        let session_id = from.int32()?;
        let mut topics = Vec::new();
        from.structures(3, |from| {
            let (name, id) = read_topic(version, from)?;
            let partitions = from.compact_array(37, partition)?;
            // a topic without partitions has no content, and takes up to 21 times the memory of its 3 bytes on the wire
            if !partitions.is_empty() {
                topics.push(AnsweredTopic {
                    name,
                    id,
                    partitions,
                });
            }
            Ok(())
        })?;
        Ok(FetchAnswer {
            throttle_ms,
            error,
            session_id,
            topics,
        })
    }
}

fn partition(from: &mut Reader) -> Result<AnsweredPartition, DecodeError> {
    let mut answered = AnsweredPartition {
        index: from.int32()?,
        error: from.error_code()?,
        high_watermark: from.int64()?,
        last_stable_offset: from.int64()?,
        log_start_offset: from.int64()?,
        aborted: from.nullable_compact_array(17, |from| {
            let aborted = AbortedTransaction {
                producer_id: from.int64()?,
                first_offset: from.int64()?,
            };
            from.skip_tags()?;
            Ok(aborted)
        })?,
        ..AnsweredPartition::default()
    };
    answered.closer = Some(from.int32()?).filter(|broker| *broker >= 0);
    answered.records = from.nullable_compact_bytes()?.unwrap_or_default();
    from.tags(|tag, field| {
        match tag {
            0 => {
                answered.diverging = Some(EpochEnd {
                    epoch: field.int32()?,
                    end_offset: field.int64()?,
                });
            }
            1 => {
                answered.leader = Some(NewLeader {
                    broker: field.int32()?,
                    epoch: field.int32()?,
                });
            }
            _ => {}
        }
        Ok(())
    })?;
    // both structures have defaults that mean "none"
    answered.diverging = answered
        .diverging
        .filter(|end| end.epoch >= 0 || end.end_offset >= 0);
    answered.leader = answered
        .leader
        .filter(|leader| leader.broker >= 0 && leader.epoch >= 0);
    Ok(answered)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction as OracleAborted, EpochEndOffset, FetchableTopicResponse,
        LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    };
    use kafka_protocol::messages::{
        BrokerId, FetchRequest as Oracle, FetchResponse, ProducerId, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{IsolationLevel, Request as _, oracle, read};
    use super::{
        AbortedTransaction, AnsweredPartition, AnsweredTopic, AskedPartition, AskedTopic, EpochEnd,
        FetchAnswer, FetchRequest, ForgottenTopic, NewLeader,
    };
    use crate::topic::TopicId;

    const ID: TopicId = TopicId([5; 16]);

    fn request(id: TopicId) -> FetchRequest {
        FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1000,
            isolation: IsolationLevel::ReadCommitted,
            session_id: 9,
            session_epoch: 2,
            topics: vec![AskedTopic {
                name: "a".into(),
                id,
                partitions: vec![AskedPartition {
                    index: 2,
                    leader_epoch: 4,
                    offset: 1 << 40,
                    last_epoch: 3,
                    max_bytes: 100,
                }],
            }],
            forgotten: vec![ForgottenTopic {
                name: "b".into(),
                id,
                partitions: vec![5, 6],
            }],
            rack: "here".into(),
        }
    }

    #[test]
    fn every_version_of_the_request_is_what_kafka_expects() {
        for version in 12..=17 {
            let read: Oracle = oracle::read(&request(ID), version);
            assert_eq!(read.replica_id, BrokerId(-1));
            assert_eq!((read.session_id, read.session_epoch), (9, 2));
            assert_eq!(read.rack_id.as_str(), "here");
            let forgotten = &read.forgotten_topics_data[0];
            assert_eq!(forgotten.partitions, [5, 6]);
            if version <= 12 {
                assert_eq!(forgotten.topic.as_str(), "b");
            } else {
                assert_eq!(forgotten.topic_id.into_bytes(), ID.0);
            }
            assert_eq!((read.max_bytes, read.isolation_level), (1000, 1));
            let topic = &read.topics[0];
            if version <= 12 {
                assert_eq!(topic.topic.as_str(), "a");
            } else {
                assert_eq!(topic.topic_id.into_bytes(), ID.0);
            }
            let partition = &topic.partitions[0];
            assert_eq!((partition.partition, partition.fetch_offset), (2, 1 << 40));
            assert_eq!(
                (partition.current_leader_epoch, partition.last_fetched_epoch),
                (4, 3)
            );
            assert_eq!(partition.partition_max_bytes, 100);
        }
    }

    #[test]
    fn a_topic_without_id_keeps_the_request_at_version_12() {
        assert_eq!(request(ID).highest(), 17);
        assert_eq!(request(TopicId::NONE).highest(), 12);
        let mut forgets = request(ID);
        forgets.forgotten[0].id = TopicId::NONE;
        assert_eq!(forgets.highest(), 12);
    }

    #[test]
    fn every_version_of_the_answer_is_read_in_full() {
        let records = Bytes::from_static(b"not parsed here");
        for version in 12..=17 {
            let full = PartitionData::default()
                .with_partition_index(2)
                .with_high_watermark(30)
                .with_last_stable_offset(20)
                .with_log_start_offset(10)
                .with_aborted_transactions(Some(vec![
                    OracleAborted::default()
                        .with_producer_id(ProducerId(77))
                        .with_first_offset(12),
                ]))
                .with_records(Some(records.clone()));
            let moved = PartitionData::default()
                .with_partition_index(3)
                .with_error_code(6)
                .with_aborted_transactions(None)
                .with_preferred_read_replica(BrokerId(4))
                .with_diverging_epoch(EpochEndOffset::default().with_epoch(1).with_end_offset(9))
                .with_current_leader(
                    LeaderIdAndEpoch::default()
                        .with_leader_id(BrokerId(8))
                        .with_leader_epoch(5),
                );
            let mut topic = FetchableTopicResponse::default().with_partitions(vec![full, moved]);
            topic = if version <= 12 {
                topic.with_topic(TopicName(StrBytes::from_static_str("a")))
            } else {
                topic.with_topic_id(uuid::Uuid::from_bytes(ID.0))
            };
            let mut answer = FetchResponse::default()
                .with_throttle_time_ms(11)
                .with_session_id(99)
                .with_responses(vec![topic]);
            if version >= 16 {
                answer = answer.with_node_endpoints(vec![
                    NodeEndpoint::default()
                        .with_node_id(BrokerId(8))
                        .with_host(StrBytes::from_static_str("h"))
                        .with_port(1),
                ]);
            }
            let body = oracle::write(&answer, version);
            let read = read::<FetchRequest>(version, body.clone()).unwrap();
            assert_eq!((read.throttle_ms, read.session_id), (11, 99));
            let topic = &read.topics[0];
            assert_eq!(topic.name, if version <= 12 { "a" } else { "" });
            let [full, moved] = &topic.partitions[..] else {
                panic!("two partitions")
            };
            assert_eq!(full.records, records);
            assert_eq!(
                (
                    full.high_watermark,
                    full.last_stable_offset,
                    full.log_start_offset
                ),
                (30, 20, 10)
            );
            let aborted = full.aborted.as_ref().unwrap()[0];
            assert_eq!((aborted.producer_id, aborted.first_offset), (77, 12));
            assert_eq!((full.diverging, full.leader), (None, None));
            assert_eq!((full.closer, moved.closer), (None, Some(4)));
            assert_eq!((moved.error.0, &moved.aborted), (6, &None));
            let end = EpochEnd {
                epoch: 1,
                end_offset: 9,
            };
            assert_eq!(moved.diverging, Some(end));
            let leader = NewLeader {
                broker: 8,
                epoch: 5,
            };
            assert_eq!(moved.leader, Some(leader));
            oracle::survives_damage::<FetchRequest>(version, &body);
        }
    }

    #[test]
    fn an_answer_of_nothing_but_empty_partitions_is_read() {
        for version in 12..=17 {
            let empty = (0..100).map(|index| {
                PartitionData::default()
                    .with_partition_index(index)
                    .with_aborted_transactions(Some(vec![]))
                    .with_records(Some(Bytes::new()))
            });
            let topic = FetchableTopicResponse::default().with_partitions(empty.collect());
            let answer = FetchResponse::default().with_responses(vec![topic]);
            let read = read::<FetchRequest>(version, oracle::write(&answer, version)).unwrap();
            assert_eq!(read.topics[0].partitions.len(), 100);
        }
    }

    /// Returns the heap memory of an answer without the records, which share the frame's.
    fn footprint(answer: &FetchAnswer) -> usize {
        let partitions = answer.topics.iter().map(|topic| {
            let aborted = topic.partitions.iter().flat_map(|one| &one.aborted);
            topic.name.capacity()
                + topic.partitions.capacity() * size_of::<AnsweredPartition>()
                + aborted.map(Vec::capacity).sum::<usize>() * size_of::<AbortedTransaction>()
        });
        answer.topics.capacity() * size_of::<AnsweredTopic>() + partitions.sum::<usize>()
    }

    fn answer_of(topics: usize, partitions: i32, version: i16) -> Bytes {
        let empty =
            (0..partitions).map(|index| PartitionData::default().with_partition_index(index));
        let topic = FetchableTopicResponse::default().with_partitions(empty.collect());
        let topics = std::iter::repeat_n(topic, topics).collect();
        oracle::write(&FetchResponse::default().with_responses(topics), version)
    }

    #[test]
    fn topics_that_say_nothing_take_no_memory() {
        for version in 12..=17 {
            let body = answer_of(100_000, 0, version);
            let read = read::<FetchRequest>(version, body.clone()).unwrap();
            assert!(
                footprint(&read) <= body.len(),
                "version {version}: {} bytes of memory for {} on the wire",
                footprint(&read),
                body.len()
            );
        }
    }

    #[test]
    fn the_memory_of_an_answer_is_bounded_by_its_bytes() {
        for version in 12..=17 {
            for (topics, partitions) in [(20_000, 1), (200, 100), (1, 20_000)] {
                let body = answer_of(topics, partitions, version);
                let read = read::<FetchRequest>(version, body.clone()).unwrap();
                assert_eq!(read.topics.len(), topics);
                assert!(
                    footprint(&read) <= 8 * body.len(),
                    "version {version}: {} bytes of memory for {} on the wire",
                    footprint(&read),
                    body.len()
                );
            }
        }
    }
}
