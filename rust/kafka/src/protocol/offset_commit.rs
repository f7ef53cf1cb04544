//! Offsets of a consumer group in a transaction: the group's coordinator (`FindCoordinator`), and `TxnOffsetCommit` of
//! transaction protocol V2, which adds the group to the transaction (KIP-890).

use crate::topic::TopicPartition;

use super::transaction::{FindCoordinator, FoundCoordinator, PartitionCodes, partition_codes};
use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks for the coordinator of a consumer group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FindGroupCoordinator {
    pub(crate) group: String,
}

impl Request for FindGroupCoordinator {
    const API: Api = Api {
        versions: (4, 6),
        ..FindCoordinator::API
    };

    type Answer = FoundCoordinator;

    fn write(&self, _version: i16, out: &mut Writer) {
        const OF_A_GROUP: i8 = 0;
        out.int8(OF_A_GROUP);
        out.compact_array(std::slice::from_ref(&self.group), |out, key| {
            out.compact_string(key);
        });
    }

    fn read(version: i16, from: &mut Reader) -> Result<FoundCoordinator, DecodeError> {
        FindCoordinator::read(version, from)
    }
}

/// Commits offsets of a group when the transaction commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TxnOffsetCommit {
    pub(crate) transactional_id: String,
    pub(crate) group: String,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    /// Offsets by partition, sorted by topic.
    pub(crate) offsets: Vec<(TopicPartition, i64)>,
}

impl Request for TxnOffsetCommit {
    const API: Api = Api {
        key: 28,
        name: "TxnOffsetCommit",
        versions: (5, 5),
        flexible: 3,
    };

    type Answer = PartitionCodes;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_string(&self.transactional_id);
        out.compact_string(&self.group);
        out.int64(self.producer_id);
        out.int16(self.epoch);
        out.int32(-1); // generation: the writer is no member of the group
        out.compact_string(""); // member
        out.nullable_compact_string(None); // instance
        let mut topics: Vec<(&str, Vec<(i32, i64)>)> = Vec::new();
        for (at, offset) in &self.offsets {
            match topics.last_mut().filter(|(topic, _)| *topic == at.topic) {
                Some((_, offsets)) => offsets.push((at.partition, *offset)),
                None => topics.push((&at.topic, vec![(at.partition, *offset)])),
            }
        }
        out.structures(&topics, |out, (topic, offsets)| {
            out.compact_string(topic);
            out.structures(offsets, |out, (partition, offset)| {
                out.int32(*partition);
                out.int64(*offset);
                out.int32(-1); // leader epoch
                out.nullable_compact_string(Some("")); // metadata
            });
        });
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError> {
        partition_codes(from)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::txn_offset_commit_response::{
        TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
    };
    use kafka_protocol::messages::{
        FindCoordinatorRequest, ProducerId, TopicName, TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read};
    use super::{FindGroupCoordinator, TxnOffsetCommit};
    use crate::topic::TopicPartition;

    #[test]
    fn a_groups_coordinator_is_asked_for_as_kafka_expects() {
        for version in 4..=6 {
            let request = FindGroupCoordinator {
                group: "g".to_owned(),
            };
            let asked: FindCoordinatorRequest = oracle::read(&request, version);
            assert_eq!(asked.key_type, 0);
            assert_eq!(asked.coordinator_keys, [StrBytes::from_static_str("g")]);
        }
    }

    #[test]
    fn offsets_are_committed_as_kafka_expects() {
        let request = TxnOffsetCommit {
            transactional_id: "t".to_owned(),
            group: "g".to_owned(),
            producer_id: 7,
            epoch: 3,
            offsets: vec![
                (TopicPartition::new("a", 1), 5),
                (TopicPartition::new("a", 2), 6),
                (TopicPartition::new("b", 0), 7),
            ],
        };
        let asked: TxnOffsetCommitRequest = oracle::read(&request, 5);
        assert_eq!(asked.transactional_id.as_str(), "t");
        assert_eq!(asked.group_id.as_str(), "g");
        assert_eq!(
            (asked.producer_id, asked.producer_epoch),
            (ProducerId(7), 3)
        );
        assert_eq!((asked.generation_id, asked.member_id.as_str()), (-1, ""));
        assert!(asked.group_instance_id.is_none());
        let told: Vec<(&str, i32, i64)> = asked
            .topics
            .iter()
            .flat_map(|topic| {
                let name = topic.name.as_str();
                topic
                    .partitions
                    .iter()
                    .map(move |it| (name, it.partition_index, it.committed_offset))
            })
            .collect();
        assert_eq!(told, [("a", 1, 5), ("a", 2, 6), ("b", 0, 7)]);

        let said = TxnOffsetCommitResponsePartition::default()
            .with_partition_index(2)
            .with_error_code(51);
        let topic = TxnOffsetCommitResponseTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("a")))
            .with_partitions(vec![said]);
        let answer = TxnOffsetCommitResponse::default()
            .with_throttle_time_ms(6)
            .with_topics(vec![topic]);
        let body = oracle::write(&answer, 5);
        let told = read::<TxnOffsetCommit>(5, body.clone()).unwrap();
        assert_eq!(
            told,
            [("a".to_owned(), 2, crate::error_code::ErrorCode(51))]
        );
        oracle::survives_damage::<TxnOffsetCommit>(5, &body);
    }
}
