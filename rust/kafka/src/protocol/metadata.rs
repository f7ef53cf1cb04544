//! `Metadata`: brokers and partition leaders, with topic ids (KIP-516) and leader epochs (KIP-320).

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::topic::TopicId;
use crate::wire::{DecodeError, Reader, Writer};

/// Asks for topics by name; never creates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetadataRequest {
    pub(crate) topics: Vec<String>,
}

/// The cluster as one broker sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterMetadata {
    pub(crate) error: ErrorCode,
    pub(crate) cluster_id: Option<String>,
    pub(crate) brokers: Vec<Broker>,
    pub(crate) topics: Vec<TopicMetadata>,
}

/// Address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) id: i32,
    pub(crate) host: String,
    pub(crate) port: i32,
}

/// A topic, or its error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicMetadata {
    pub(crate) error: ErrorCode,
    pub(crate) name: String,
    pub(crate) id: TopicId,
    pub(crate) partitions: Vec<PartitionMetadata>,
}

/// The leader of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartitionMetadata {
    pub(crate) error: ErrorCode,
    pub(crate) index: i32,
    /// -1 for none.
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
}

impl Request for MetadataRequest {
    // 10 is the first version with topic ids
    const API: Api = Api {
        key: 3,
        name: "Metadata",
        versions: (10, 13),
        flexible: 9,
    };

    type Answer = ClusterMetadata;

    fn write(&self, version: i16, out: &mut Writer) {
        out.structures(&self.topics, |out, name| {
            out.topic_id(TopicId::NONE);
            out.compact_string(name);
        });
        out.bool(false); // allow_auto_topic_creation
        if version <= 10 {
            out.bool(false); // include_cluster_authorized_operations
        }
        out.bool(false); // include_topic_authorized_operations
    }

    fn read(version: i16, from: &mut Reader) -> Result<ClusterMetadata, DecodeError> {
        from.throttle()?;
        let brokers = from.structures(11, |from| {
            let broker = Broker {
                id: from.int32()?,
                host: from.compact_string()?,
                port: from.int32()?,
            };
            from.nullable_compact_string()?; // rack
            Ok(broker)
        })?;
        let cluster_id = from.nullable_compact_string()?;
        from.int32()?; // controller
        let topics = from.structures(26, topic)?;
        if version <= 10 {
            from.int32()?; // authorized operations
        }
        let error = if version >= 13 {
            from.error_code()?
        } else {
            ErrorCode::NONE
        };
        Ok(ClusterMetadata {
            error,
            cluster_id,
            brokers,
            topics,
        })
    }
}

fn topic(from: &mut Reader) -> Result<TopicMetadata, DecodeError> {
    let error = from.error_code()?;
    // from version 12 on the name of an unknown id is null, but requests have names only
    let name = from.nullable_compact_string()?.unwrap_or_default();
    let id = from.topic_id()?;
    from.bool()?; // is_internal
    let partitions = from.structures(18, partition)?;
    from.int32()?; // authorized operations
    Ok(TopicMetadata {
        error,
        name,
        id,
        partitions,
    })
}

fn partition(from: &mut Reader) -> Result<PartitionMetadata, DecodeError> {
    let partition = PartitionMetadata {
        error: from.error_code()?,
        index: from.int32()?,
        leader: from.int32()?,
        leader_epoch: from.int32()?,
    };
    for _ in ["replicas", "in-sync replicas", "offline replicas"] {
        from.compact_array(4, Reader::int32)?;
    }
    Ok(partition)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::metadata_response::{
        MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
    };
    use kafka_protocol::messages::{
        BrokerId, MetadataRequest as Oracle, MetadataResponse, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read, read_throttled};
    use super::MetadataRequest;
    use crate::topic::TopicId;

    #[test]
    fn every_version_is_what_kafka_expects() {
        for version in 10..=13 {
            let request: Oracle = oracle::read(
                &MetadataRequest {
                    topics: vec!["a".to_owned(), "b".to_owned()],
                },
                version,
            );
            assert!(!request.allow_auto_topic_creation);
            let names: Vec<_> = request
                .topics
                .unwrap()
                .into_iter()
                .map(|t| t.name.unwrap().to_string())
                .collect();
            assert_eq!(names, ["a", "b"]);

            let partition = MetadataResponsePartition::default()
                .with_partition_index(4)
                .with_leader_id(BrokerId(2))
                .with_leader_epoch(9)
                .with_replica_nodes(vec![BrokerId(1), BrokerId(2)])
                .with_offline_replicas(vec![BrokerId(3)]);
            let topic = MetadataResponseTopic::default()
                .with_name(Some(TopicName(StrBytes::from_static_str("a"))))
                .with_topic_id(uuid::Uuid::from_bytes([7; 16]))
                .with_partitions(vec![partition]);
            let answer = MetadataResponse::default()
                .with_throttle_time_ms(3)
                .with_cluster_id(Some(StrBytes::from_static_str("id")))
                .with_brokers(vec![
                    MetadataResponseBroker::default()
                        .with_node_id(BrokerId(2))
                        .with_host(StrBytes::from_static_str("h"))
                        .with_port(9092)
                        .with_rack(Some(StrBytes::from_static_str("r"))),
                ])
                .with_topics(vec![topic]);
            let body = oracle::write(&answer, version);
            let (read, throttle_ms) =
                read_throttled::<MetadataRequest>(version, body.clone()).unwrap();
            assert_eq!((throttle_ms, read.cluster_id.as_deref()), (3, Some("id")));
            assert_eq!((read.brokers[0].id, read.brokers[0].port), (2, 9092));
            assert_eq!(read.topics[0].id, TopicId([7; 16]));
            let partition = read.topics[0].partitions[0];
            assert_eq!(
                (partition.index, partition.leader, partition.leader_epoch),
                (4, 2, 9)
            );
            oracle::survives_damage::<MetadataRequest>(version, &body);
        }
    }

    #[test]
    fn an_answer_of_nothing_but_empty_things_is_read() {
        for version in 10..=13 {
            let partitions = vec![MetadataResponsePartition::default(); 100];
            let topic = MetadataResponseTopic::default()
                .with_name(Some(TopicName(StrBytes::new())))
                .with_partitions(partitions);
            let answer = MetadataResponse::default()
                .with_brokers(vec![MetadataResponseBroker::default(); 100])
                .with_topics(vec![topic; 100]);
            let read = read::<MetadataRequest>(version, oracle::write(&answer, version)).unwrap();
            assert_eq!((read.brokers.len(), read.topics.len()), (100, 100));
            assert_eq!(read.topics[99].partitions.len(), 100);
        }
    }
}
