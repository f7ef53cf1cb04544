//! `Produce`: record batches in a transaction, without copying them.
//!
//! Versions 12, in which a leader adds the partition to the transaction (KIP-890), and 13, in which topics go by id
//! (KIP-516). An answer has the new leader of a partition that has moved (KIP-951).

use bytes::Bytes;

use crate::error_code::ErrorCode;

use super::fetch::NewLeader;
use super::{Api, Request, read_topic, write_topic};
use crate::topic::TopicId;
use crate::wire::{DecodeError, Reader, Writer};

/// Size of a batch's header.
pub(crate) const HEADER: usize = 61;

/// A batch: the header for this producer, and the records as they were fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FramedBatch {
    pub(crate) head: [u8; HEADER],
    pub(crate) body: Bytes,
}

/// Asks a leader to append to its partitions, and to answer when all in-sync replicas have the records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProduceRequest {
    /// None for records outside of a transaction.
    pub(crate) transactional_id: Option<String>,
    pub(crate) timeout_ms: i32,
    pub(crate) topics: Vec<WrittenTopic>,
}

/// Partitions of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenTopic {
    pub(crate) name: String,
    /// [`TopicId::NONE`] when the broker has none, which limits the whole request to version 12.
    pub(crate) id: TopicId,
    /// One batch per partition; brokers accept no more.
    pub(crate) partitions: Vec<(i32, FramedBatch)>,
}

/// The answer for one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenPartition {
    /// Empty from version 13 on.
    pub(crate) topic: String,
    /// [`TopicId::NONE`] up to version 12.
    pub(crate) id: TopicId,
    pub(crate) index: i32,
    pub(crate) error: ErrorCode,
    /// -1 unless the batch was appended, now or earlier.
    pub(crate) base_offset: i64,
    /// The broker's explanation of an error.
    pub(crate) reason: Option<String>,
    pub(crate) leader: Option<NewLeader>,
}

impl Request for ProduceRequest {
    const API: Api = Api {
        key: 0,
        name: "Produce",
        versions: (12, 13),
        flexible: 9,
    };

    type Answer = Vec<WrittenPartition>;

    fn highest(&self) -> i16 {
        if self.topics.iter().any(|topic| topic.id.is_none()) {
            12
        } else {
            13
        }
    }

    fn write(&self, version: i16, out: &mut Writer) {
        write_request(self, version, out);
    }

    fn read(version: i16, from: &mut Reader) -> Result<Vec<WrittenPartition>, DecodeError> {
        read_answer(version, from)
    }
}

/// `Produce` of transaction protocol V1, whose partitions were added to the transaction by request, and of records outside
/// of a transaction. Topics go by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProduceV1(pub(crate) ProduceRequest);

impl Request for ProduceV1 {
    const API: Api = Api {
        key: 0,
        name: "Produce",
        versions: (9, 11),
        flexible: 9,
    };

    type Answer = Vec<WrittenPartition>;

    fn write(&self, version: i16, out: &mut Writer) {
        write_request(&self.0, version, out);
    }

    fn read(version: i16, from: &mut Reader) -> Result<Vec<WrittenPartition>, DecodeError> {
        read_answer(version, from)
    }
}

fn write_request(request: &ProduceRequest, version: i16, out: &mut Writer) {
    out.nullable_compact_string(request.transactional_id.as_deref());
    out.int16(-1); // all in-sync replicas
    out.int32(request.timeout_ms);
    out.structures(&request.topics, |out, topic| {
        write_topic(version, &topic.name, topic.id, out);
        out.structures(&topic.partitions, |out, (index, batch)| {
            out.int32(*index);
            out.compact_pieces(&batch.head, &batch.body);
        });
    });
}

fn read_answer(version: i16, from: &mut Reader) -> Result<Vec<WrittenPartition>, DecodeError> {
    // its tagged fields are addresses of new leaders: metadata is asked for them
    let topics = from.structures(3, |from| {
        let (name, id) = read_topic(version, from)?;
        from.compact_array(33, |from| partition(&name, id, from))
    })?;
    from.throttle()?;
    Ok(topics.into_iter().flatten().collect())
}

fn partition(topic: &str, id: TopicId, from: &mut Reader) -> Result<WrittenPartition, DecodeError> {
    let mut written = WrittenPartition {
        topic: topic.to_owned(),
        id,
        index: from.int32()?,
        error: from.error_code()?,
        base_offset: from.int64()?,
        ..WrittenPartition::default()
    };
    from.int64()?; // log append time
    from.int64()?; // log start offset
    let of_records = from.structures(6, |from| {
        from.int32()?;
        from.nullable_compact_string()
    })?;
    written.reason = from
        .nullable_compact_string()?
        .or_else(|| of_records.into_iter().flatten().next());
    from.tags(|tag, field| {
        if tag == 0 {
            written.leader = Some(NewLeader {
                broker: field.int32()?,
                epoch: field.int32()?,
            });
        }
        Ok(())
    })?;
    // the structure has defaults that mean "none"
    written.leader = written
        .leader
        .filter(|leader| leader.broker >= 0 && leader.epoch >= 0);
    Ok(written)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::produce_response::{
        BatchIndexAndErrorMessage, LeaderIdAndEpoch, PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{
        BrokerId, ProduceRequest as Oracle, ProduceResponse, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::fetch::NewLeader;
    use super::super::{Request as _, oracle, read_throttled};
    use super::{FramedBatch, HEADER, ProduceRequest, WrittenTopic};
    use crate::topic::TopicId;

    const ID: TopicId = TopicId([5; 16]);

    fn request(id: TopicId, size: usize) -> ProduceRequest {
        let batch = FramedBatch {
            head: [1; HEADER],
            body: Bytes::from(vec![2; size]),
        };
        ProduceRequest {
            transactional_id: Some("x".to_owned()),
            timeout_ms: 1234,
            topics: vec![WrittenTopic {
                name: "a".to_owned(),
                id,
                partitions: vec![(3, batch.clone()), (4, batch)],
            }],
        }
    }

    #[test]
    fn every_version_is_what_kafka_expects() {
        for version in [12, 13] {
            // bodies that are copied, and bodies that are sent without a copy
            for size in [0, 10, 100_000] {
                let read: Oracle = oracle::read(&request(ID, size), version);
                assert_eq!(read.transactional_id.unwrap().as_str(), "x");
                assert_eq!((read.acks, read.timeout_ms), (-1, 1234));
                let topic = &read.topic_data[0];
                if version == 12 {
                    assert_eq!(topic.name.as_str(), "a");
                } else {
                    assert_eq!(topic.topic_id.as_bytes(), &ID.0);
                }
                let indexes: Vec<i32> = topic.partition_data.iter().map(|p| p.index).collect();
                assert_eq!(indexes, [3, 4]);
                for partition in &topic.partition_data {
                    let records = partition.records.as_ref().unwrap();
                    assert_eq!(records[..HEADER], [1; HEADER]);
                    assert_eq!(records[HEADER..], vec![2; size]);
                }
            }
        }
        assert_eq!(request(ID, 0).highest(), 13);
        assert_eq!(request(TopicId::NONE, 0).highest(), 12);
    }

    #[test]
    fn an_answer_is_read_with_reasons_and_new_leaders() {
        for version in [12, 13] {
            let moved = PartitionProduceResponse::default()
                .with_index(3)
                .with_error_code(6)
                .with_base_offset(-1)
                .with_current_leader(
                    LeaderIdAndEpoch::default()
                        .with_leader_id(BrokerId(2))
                        .with_leader_epoch(8),
                );
            let refused = PartitionProduceResponse::default()
                .with_index(4)
                .with_error_code(87)
                .with_record_errors(vec![
                    BatchIndexAndErrorMessage::default()
                        .with_batch_index_error_message(Some(StrBytes::from_static_str("no"))),
                ]);
            let fine = PartitionProduceResponse::default()
                .with_index(5)
                .with_base_offset(77);
            let mut topic = TopicProduceResponse::default()
                .with_partition_responses(vec![moved, refused, fine]);
            if version == 12 {
                topic = topic.with_name(TopicName(StrBytes::from_static_str("a")));
            } else {
                topic = topic.with_topic_id(uuid::Uuid::from_bytes(ID.0));
            }
            let answer = ProduceResponse::default()
                .with_throttle_time_ms(9)
                .with_responses(vec![topic]);
            let body = oracle::write(&answer, version);
            let (read, throttle_ms) =
                read_throttled::<ProduceRequest>(version, body.clone()).unwrap();
            assert_eq!(throttle_ms, 9);
            let [moved, refused, fine] = &read[..] else {
                panic!("{read:?}");
            };
            assert_eq!((moved.index, moved.error.0), (3, 6));
            let leader = NewLeader {
                broker: 2,
                epoch: 8,
            };
            assert_eq!(moved.leader, Some(leader));
            assert_eq!(
                (refused.error.0, refused.reason.as_deref()),
                (87, Some("no"))
            );
            assert_eq!((fine.error.0, fine.base_offset, fine.leader), (0, 77, None));
            let named = if version == 12 {
                ("a", TopicId::NONE)
            } else {
                ("", ID)
            };
            assert_eq!((fine.topic.as_str(), fine.id), named);
            oracle::survives_damage::<ProduceRequest>(version, &body);
        }
    }
}
