//! `ListOffsets`: first and end offsets of a partition, and the offset of a timestamp (KIP-79).

use crate::error_code::ErrorCode;

use super::{Api, IsolationLevel, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks a leader for offsets of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListOffsetsRequest {
    pub(crate) isolation: IsolationLevel,
    pub(crate) topics: Vec<(String, Vec<AskedOffset>)>,
    pub(crate) timeout_ms: i32,
}

/// A requested offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskedOffset {
    pub(crate) partition: i32,
    pub(crate) leader_epoch: i32,
    /// -2 for the earliest offset, -1 for the latest, otherwise milliseconds since the epoch.
    pub(crate) timestamp: i64,
}

/// The answer for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredOffset {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) error: ErrorCode,
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
}

impl Request for ListOffsetsRequest {
    const API: Api = Api {
        key: 2,
        name: "ListOffsets",
        versions: (6, 10),
        flexible: 6,
    };

    type Answer = Vec<AnsweredOffset>;

    fn write(&self, version: i16, out: &mut Writer) {
        out.int32(-1); // replica
        out.int8(self.isolation.wire());
        out.structures(&self.topics, |out, (name, partitions)| {
            out.compact_string(name);
            out.structures(partitions, |out, asked| {
                out.int32(asked.partition);
                out.int32(asked.leader_epoch);
                out.int64(asked.timestamp);
            });
        });
        if version >= 10 {
            out.int32(self.timeout_ms);
        }
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Vec<AnsweredOffset>, DecodeError> {
        from.throttle()?;
        from.partitions(27, |from, topic| {
            Ok(AnsweredOffset {
                topic: topic.to_owned(),
                partition: from.int32()?,
                error: from.error_code()?,
                timestamp: from.int64()?,
                offset: from.int64()?,
                leader_epoch: from.int32()?,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };
    use kafka_protocol::messages::{ListOffsetsRequest as Oracle, ListOffsetsResponse, TopicName};
    use kafka_protocol::protocol::StrBytes;

    use super::super::{IsolationLevel, oracle, read};
    use super::{AskedOffset, ListOffsetsRequest};

    #[test]
    fn every_version_is_what_kafka_expects() {
        for version in 6..=10 {
            let asked = AskedOffset {
                partition: 3,
                leader_epoch: 8,
                timestamp: -2,
            };
            let request: Oracle = oracle::read(
                &ListOffsetsRequest {
                    isolation: IsolationLevel::ReadCommitted,
                    topics: vec![("a".to_owned(), vec![asked])],
                    timeout_ms: 500,
                },
                version,
            );
            assert_eq!((request.isolation_level, request.replica_id.0), (1, -1));
            let partition = &request.topics[0].partitions[0];
            assert_eq!(
                (partition.partition_index, partition.current_leader_epoch),
                (3, 8)
            );
            assert_eq!(partition.timestamp, -2);

            let answer = ListOffsetsResponse::default().with_topics(vec![
                ListOffsetsTopicResponse::default()
                    .with_name(TopicName(StrBytes::from_static_str("a")))
                    .with_partitions(vec![
                        ListOffsetsPartitionResponse::default()
                            .with_partition_index(3)
                            .with_error_code(6)
                            .with_offset(77)
                            .with_leader_epoch(9),
                    ]),
            ]);
            let body = oracle::write(&answer, version);
            let read = read::<ListOffsetsRequest>(version, body.clone()).unwrap();
            let partition = &read[0];
            assert_eq!((partition.topic.as_str(), partition.partition), ("a", 3));
            assert_eq!(
                (partition.error.0, partition.offset, partition.leader_epoch),
                (6, 77, 9)
            );
            oracle::survives_damage::<ListOffsetsRequest>(version, &body);
        }
    }

    #[test]
    fn an_answer_of_nothing_but_empty_partitions_is_read() {
        for version in 6..=10 {
            let topic = ListOffsetsTopicResponse::default()
                .with_partitions(vec![ListOffsetsPartitionResponse::default(); 100]);
            let answer = ListOffsetsResponse::default().with_topics(vec![topic]);
            let read = read::<ListOffsetsRequest>(version, oracle::write(&answer, version));
            assert_eq!(read.unwrap().len(), 100);
        }
    }
}
