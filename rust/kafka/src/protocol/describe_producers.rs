//! `DescribeProducers`: the producers of a partition, and their open transactions (KIP-664).

use eomirror_core::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks a leader for the producers of its partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribeProducers {
    pub(crate) topics: Vec<(String, Vec<i32>)>,
}

/// A producer, as the leader of a partition remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ActiveProducer {
    pub(crate) producer_id: i64,
    pub(crate) epoch: i32,
    /// First offset of its open transaction; -1 for none.
    pub(crate) open_from: i64,
}

/// The producers of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedPartition {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) error: ErrorCode,
    pub(crate) producers: Vec<ActiveProducer>,
}

/// All partitions of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedProducers {
    pub(crate) throttle_ms: i32,
    pub(crate) partitions: Vec<DescribedPartition>,
}

impl Request for DescribeProducers {
    const API: Api = Api {
        key: 61,
        name: "DescribeProducers",
        versions: (0, 0),
        flexible: 0,
    };

    type Answer = DescribedProducers;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_array(&self.topics, |out, (name, partitions)| {
            out.compact_string(name);
            out.compact_array(partitions, |out, partition| out.int32(*partition));
            out.no_tags();
        });
        out.no_tags();
    }

    fn read(_version: i16, from: &mut Reader) -> Result<DescribedProducers, DecodeError> {
        let throttle_ms = from.int32()?;
        let topics = from.compact_array(3, |from| {
            let topic = from.compact_string()?;
            let partitions = from.compact_array(9, |from| {
                let partition = from.int32()?;
                let error = from.error_code()?;
                from.nullable_compact_string()?; // message
                let producers = from.compact_array(37, producer)?;
                from.skip_tags()?;
                Ok(DescribedPartition {
                    topic: topic.clone(),
                    partition,
                    error,
                    producers,
                })
            })?;
            from.skip_tags()?;
            Ok(partitions)
        })?;
        from.skip_tags()?;
        Ok(DescribedProducers {
            throttle_ms,
            partitions: topics.into_iter().flatten().collect(),
        })
    }

    fn throttle_ms(answer: &Self::Answer) -> i32 {
        answer.throttle_ms
    }
}

fn producer(from: &mut Reader) -> Result<ActiveProducer, DecodeError> {
    let producer_id = from.int64()?;
    let epoch = from.int32()?;
    from.int32()?; // last sequence
    from.int64()?; // last timestamp
    from.int32()?; // coordinator epoch
    let open_from = from.int64()?;
    from.skip_tags()?;
    Ok(ActiveProducer {
        producer_id,
        epoch,
        open_from,
    })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_producers_response::{
        PartitionResponse, ProducerState, TopicResponse,
    };
    use kafka_protocol::messages::{
        DescribeProducersRequest, DescribeProducersResponse, ProducerId, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read};
    use super::DescribeProducers;

    #[test]
    fn producers_are_asked_for_as_kafka_expects() {
        let request = DescribeProducers {
            topics: vec![("a".to_owned(), vec![3, 4])],
        };
        let asked: DescribeProducersRequest = oracle::read(&request, 0);
        assert_eq!(asked.topics[0].name.as_str(), "a");
        assert_eq!(asked.topics[0].partition_indexes, [3, 4]);

        let partition = PartitionResponse::default()
            .with_partition_index(3)
            .with_error_code(6)
            .with_error_message(Some(StrBytes::from_static_str("moved")))
            .with_active_producers(vec![
                ProducerState::default()
                    .with_producer_id(ProducerId(77))
                    .with_producer_epoch(5)
                    .with_current_txn_start_offset(1_000),
                ProducerState::default().with_current_txn_start_offset(-1),
            ]);
        let answer = DescribeProducersResponse::default()
            .with_throttle_time_ms(2)
            .with_topics(vec![
                TopicResponse::default()
                    .with_name(TopicName(StrBytes::from_static_str("a")))
                    .with_partitions(vec![partition]),
            ]);
        let body = oracle::write(&answer, 0);
        let read = read::<DescribeProducers>(0, body.clone()).unwrap();
        assert_eq!(read.throttle_ms, 2);
        let found = &read.partitions[0];
        assert_eq!(
            (found.topic.as_str(), found.partition, found.error.0),
            ("a", 3, 6)
        );
        let first = found.producers[0];
        assert_eq!(
            (first.producer_id, first.epoch, first.open_from),
            (77, 5, 1_000)
        );
        assert_eq!(found.producers[1].open_from, -1);
        oracle::survives_damage::<DescribeProducers>(0, &body);
    }
}
