//! `DescribeProducers`: the producers of a partition, and their open transactions (KIP-664).

use crate::error_code::ErrorCode;

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

impl Request for DescribeProducers {
    const API: Api = Api {
        key: 61,
        name: "DescribeProducers",
        versions: (0, 0),
        flexible: 0,
    };

    type Answer = Vec<DescribedPartition>;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.partitions(&self.topics);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Vec<DescribedPartition>, DecodeError> {
        from.throttle()?;
        from.partitions(9, |from, topic| {
            let partition = from.int32()?;
            let error = from.error_code()?;
            from.nullable_compact_string()?; // message
            Ok(DescribedPartition {
                topic: topic.to_owned(),
                partition,
                error,
                producers: from.structures(37, producer)?,
            })
        })
    }
}

fn producer(from: &mut Reader) -> Result<ActiveProducer, DecodeError> {
    let producer_id = from.int64()?;
    let epoch = from.int32()?;
    from.int32()?; // last sequence
    from.int64()?; // last timestamp
    from.int32()?; // coordinator epoch
    Ok(ActiveProducer {
        producer_id,
        epoch,
        open_from: from.int64()?,
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

    use super::super::{oracle, read_throttled};
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
        let (read, throttle_ms) = read_throttled::<DescribeProducers>(0, body.clone()).unwrap();
        assert_eq!(throttle_ms, 2);
        let found = &read[0];
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
