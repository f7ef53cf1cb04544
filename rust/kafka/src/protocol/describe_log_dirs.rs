//! `DescribeLogDirs`: the size of a broker's replicas on its disks (KIP-113).

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks a broker for the sizes of its replicas of these partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribeLogDirs {
    pub(crate) topics: Vec<(String, Vec<i32>)>,
}

/// The replicas of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribedLogDirs {
    /// That of the whole request; a broker before Kafka 3.2 answers a refused one with no replicas.
    pub(crate) error: ErrorCode,
    /// Topic, partition, and bytes of its segments; a replica that moves to another disk is left out there.
    pub(crate) sizes: Vec<(String, i32, i64)>,
}

impl Request for DescribeLogDirs {
    const API: Api = Api {
        key: 35,
        name: "DescribeLogDirs",
        versions: (2, 4),
        flexible: 2,
    };

    type Answer = DescribedLogDirs;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.partitions(&self.topics);
    }

    fn read(version: i16, from: &mut Reader) -> Result<DescribedLogDirs, DecodeError> {
        from.throttle()?;
        let error = if version >= 3 {
            from.error_code()?
        } else {
            ErrorCode::NONE
        };
        let directories = from.structures(5, |from| {
            from.error_code()?;
            from.compact_string()?; // directory
            let replicas = from.partitions(22, |from, topic| {
                let partition = from.int32()?;
                let size = from.int64()?;
                from.int64()?; // offset lag
                let is_future = from.bool()?;
                Ok((!is_future).then(|| (topic.to_owned(), partition, size)))
            })?;
            if version >= 4 {
                from.int64()?; // total bytes
                from.int64()?; // usable bytes
            }
            Ok(replicas)
        })?;
        Ok(DescribedLogDirs {
            error,
            sizes: directories.into_iter().flatten().flatten().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_log_dirs_response::{
        DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
    };
    use kafka_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName};
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read_throttled};
    use super::DescribeLogDirs;

    #[test]
    fn sizes_are_asked_for_as_kafka_expects() {
        let request = DescribeLogDirs {
            topics: vec![("a".to_owned(), vec![3, 4])],
        };
        for version in 2..=4 {
            let asked: DescribeLogDirsRequest = oracle::read(&request, version);
            let topics = asked.topics.unwrap();
            assert_eq!(topics[0].topic.as_str(), "a");
            assert_eq!(topics[0].partitions, [3, 4]);
        }
    }

    #[test]
    fn the_sizes_of_all_directories_are_read() {
        let replica = |partition, size, is_future| {
            DescribeLogDirsPartition::default()
                .with_partition_index(partition)
                .with_partition_size(size)
                .with_is_future_key(is_future)
        };
        let directory = |partitions| {
            let topic = DescribeLogDirsTopic::default()
                .with_name(TopicName(StrBytes::from_static_str("a")))
                .with_partitions(partitions);
            DescribeLogDirsResult::default()
                .with_log_dir(StrBytes::from_static_str("/data"))
                .with_topics(vec![topic])
        };
        for version in 2..=4 {
            let mut answer = DescribeLogDirsResponse::default()
                .with_throttle_time_ms(2)
                .with_results(vec![
                    directory(vec![replica(3, 700, false), replica(4, 9, true)]),
                    directory(vec![replica(4, 80, false)]),
                ]);
            if version >= 3 {
                answer = answer.with_error_code(31);
            }
            let body = oracle::write(&answer, version);
            let (found, throttle_ms) =
                read_throttled::<DescribeLogDirs>(version, body.clone()).unwrap();
            assert_eq!(throttle_ms, 2);
            assert_eq!(found.error.0, if version >= 3 { 31 } else { 0 });
            assert_eq!(
                found.sizes,
                [("a".to_owned(), 3, 700), ("a".to_owned(), 4, 80)]
            );
            oracle::survives_damage::<DescribeLogDirs>(version, &body);
        }
    }
}
