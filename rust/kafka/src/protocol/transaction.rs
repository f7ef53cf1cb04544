//! Requests about a transaction: its coordinator (`FindCoordinator`), the producer's identity (`InitProducerId`,
//! KIP-360), and its end (`EndTxn`, KIP-890). Also `AddPartitionsToTxn` of the protocol before (KIP-98), which adds
//! partitions without a record.

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks for the coordinator of a transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FindCoordinator {
    pub(crate) transactional_id: String,
}

/// The coordinator's id, or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FoundCoordinator {
    pub(crate) error: ErrorCode,
    pub(crate) broker: i32,
}

impl Request for FindCoordinator {
    // 3 takes one id (Kafka 2.8), 4 and later several; 6 is the last that changes nothing else
    const API: Api = Api {
        key: 10,
        name: "FindCoordinator",
        versions: (3, 6),
        flexible: 3,
    };

    type Answer = FoundCoordinator;

    fn write(&self, version: i16, out: &mut Writer) {
        const OF_A_TRANSACTION: i8 = 1;
        if version == 3 {
            out.compact_string(&self.transactional_id);
            out.int8(OF_A_TRANSACTION);
            return;
        }
        out.int8(OF_A_TRANSACTION);
        out.compact_array(std::slice::from_ref(&self.transactional_id), |out, key| {
            out.compact_string(key);
        });
    }

    fn read(version: i16, from: &mut Reader) -> Result<FoundCoordinator, DecodeError> {
        from.throttle()?;
        if version == 3 {
            let error = from.error_code()?;
            from.nullable_compact_string()?; // message
            let broker = from.int32()?;
            from.compact_string()?; // host: metadata says it too
            from.int32()?;
            return Ok(FoundCoordinator { error, broker });
        }
        let found = from.structures(14, |from| {
            from.compact_string()?; // key
            let broker = from.int32()?;
            from.compact_string()?; // host: metadata says it too
            from.int32()?;
            let error = from.error_code()?;
            from.nullable_compact_string()?; // message
            Ok((error, broker))
        })?;
        let [(error, broker)] = found[..] else {
            return Err(DecodeError {
                reason: "it is not about the one transaction that was asked about",
            });
        };
        Ok(FoundCoordinator { error, broker })
    }
}

/// Asks for an identity, and ends the open transaction of an earlier producer of this transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InitProducerId {
    pub(crate) transactional_id: String,
    pub(crate) timeout_ms: i32,
    /// Previous producer id and epoch; -1 and -1 for none.
    pub(crate) previous: (i64, i16),
}

/// An identity, or an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GivenIdentity {
    pub(crate) error: ErrorCode,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
}

fn identity(from: &mut Reader) -> Result<GivenIdentity, DecodeError> {
    from.throttle()?;
    Ok(GivenIdentity {
        error: from.error_code()?,
        producer_id: from.int64()?,
        epoch: from.int16()?,
    })
}

impl Request for InitProducerId {
    // 3 is the first that takes an identity, 5 is for transaction protocol V2, 6 for two-phase commit (KIP-939)
    const API: Api = Api {
        key: 22,
        name: "InitProducerId",
        versions: (3, 5),
        flexible: 2,
    };

    type Answer = GivenIdentity;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_string(&self.transactional_id);
        out.int32(self.timeout_ms);
        out.int64(self.previous.0);
        out.int16(self.previous.1);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<GivenIdentity, DecodeError> {
        identity(from)
    }
}

/// Commits or aborts; the answer has the identity for the next transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndTxn {
    pub(crate) transactional_id: String,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) commit: bool,
}

impl Request for EndTxn {
    const API: Api = Api {
        key: 26,
        name: "EndTxn",
        versions: (5, 5),
        flexible: 3,
    };

    type Answer = GivenIdentity;

    fn write(&self, _version: i16, out: &mut Writer) {
        write_end(self, out);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<GivenIdentity, DecodeError> {
        identity(from)
    }
}

fn write_end(end: &EndTxn, out: &mut Writer) {
    out.compact_string(&end.transactional_id);
    out.int64(end.producer_id);
    out.int16(end.epoch);
    out.bool(end.commit);
}

/// `EndTxn` of transaction protocol V1, for a transaction whose partitions were added by request: the identity stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndTxnV1(pub(crate) EndTxn);

impl Request for EndTxnV1 {
    const API: Api = Api {
        key: 26,
        name: "EndTxn",
        versions: (3, 4),
        flexible: 3,
    };

    type Answer = ErrorCode;

    fn write(&self, _version: i16, out: &mut Writer) {
        write_end(&self.0, out);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<ErrorCode, DecodeError> {
        from.throttle()?;
        from.error_code()
    }
}

/// Adds partitions to a transaction: its end writes a marker to each, even without records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AddPartitions {
    pub(crate) transactional_id: String,
    pub(crate) producer_id: i64,
    pub(crate) epoch: i16,
    pub(crate) topics: Vec<(String, Vec<i32>)>,
}

impl Request for AddPartitions {
    // from 4 on it is for brokers only
    const API: Api = Api {
        key: 24,
        name: "AddPartitionsToTxn",
        versions: (3, 3),
        flexible: 3,
    };

    type Answer = PartitionCodes;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_string(&self.transactional_id);
        out.int64(self.producer_id);
        out.int16(self.epoch);
        out.partitions(&self.topics);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError> {
        partition_codes(from)
    }
}

/// Topic, partition and error code of each partition of a request.
pub(super) type PartitionCodes = Vec<(String, i32, ErrorCode)>;

/// Reads an answer that has an error code for each partition.
pub(super) fn partition_codes(from: &mut Reader) -> Result<PartitionCodes, DecodeError> {
    from.throttle()?;
    from.partitions(7, |from, topic| {
        Ok((topic.to_owned(), from.int32()?, from.error_code()?))
    })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::add_partitions_to_txn_response::{
        AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
    };
    use kafka_protocol::messages::find_coordinator_response::Coordinator;
    use kafka_protocol::messages::{
        AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, BrokerId, EndTxnRequest,
        EndTxnResponse, FindCoordinatorRequest, FindCoordinatorResponse, InitProducerIdRequest,
        InitProducerIdResponse, ProducerId, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read, read_throttled};
    use super::{AddPartitions, EndTxn, EndTxnV1, FindCoordinator, InitProducerId};

    const NAME: &str = "orders.a-b.0";

    #[test]
    fn a_coordinator_is_asked_for_as_kafka_expects() {
        for version in 4..=6 {
            let request = FindCoordinator {
                transactional_id: NAME.to_owned(),
            };
            let asked: FindCoordinatorRequest = oracle::read(&request, version);
            assert_eq!(asked.key_type, 1);
            assert_eq!(asked.coordinator_keys, [StrBytes::from_static_str(NAME)]);

            let coordinator = Coordinator::default()
                .with_key(StrBytes::from_static_str(NAME))
                .with_node_id(BrokerId(3))
                .with_host(StrBytes::from_static_str("h"))
                .with_port(9092)
                .with_error_code(15)
                .with_error_message(Some(StrBytes::from_static_str("wait")));
            let answer = |count| {
                FindCoordinatorResponse::default()
                    .with_throttle_time_ms(4)
                    .with_coordinators(vec![coordinator.clone(); count])
            };
            let body = oracle::write(&answer(1), version);
            let (found, throttle_ms) =
                read_throttled::<FindCoordinator>(version, body.clone()).unwrap();
            assert_eq!((throttle_ms, found.error.0, found.broker), (4, 15, 3));
            oracle::survives_damage::<FindCoordinator>(version, &body);
            for count in [0, 2] {
                assert!(
                    read::<FindCoordinator>(version, oracle::write(&answer(count), version))
                        .is_err()
                );
            }
        }
    }

    #[test]
    fn the_coordinator_of_one_id_is_asked_for_as_kafka_2_8_expects() {
        let request = FindCoordinator {
            transactional_id: NAME.to_owned(),
        };
        let asked: FindCoordinatorRequest = oracle::read(&request, 3);
        assert_eq!((asked.key.as_str(), asked.key_type), (NAME, 1));
        let answer = FindCoordinatorResponse::default()
            .with_throttle_time_ms(4)
            .with_error_code(15)
            .with_error_message(Some(StrBytes::from_static_str("wait")))
            .with_node_id(BrokerId(3))
            .with_host(StrBytes::from_static_str("h"))
            .with_port(9092);
        let body = oracle::write(&answer, 3);
        let (found, throttle_ms) = read_throttled::<FindCoordinator>(3, body.clone()).unwrap();
        assert_eq!((throttle_ms, found.error.0, found.broker), (4, 15, 3));
        oracle::survives_damage::<FindCoordinator>(3, &body);
    }

    #[test]
    fn an_identity_is_asked_for_as_kafka_expects() {
        let request = InitProducerId {
            transactional_id: NAME.to_owned(),
            timeout_ms: 15_000,
            previous: (7, 3),
        };
        let asked: InitProducerIdRequest = oracle::read(&request, 5);
        assert_eq!(asked.transactional_id.unwrap().as_str(), NAME);
        assert_eq!(asked.transaction_timeout_ms, 15_000);
        assert_eq!(
            (asked.producer_id, asked.producer_epoch),
            (ProducerId(7), 3)
        );
        let answer = InitProducerIdResponse::default()
            .with_throttle_time_ms(2)
            .with_error_code(51)
            .with_producer_id(ProducerId(8))
            .with_producer_epoch(9);
        let body = oracle::write(&answer, 5);
        let (given, throttle_ms) = read_throttled::<InitProducerId>(5, body.clone()).unwrap();
        assert_eq!((throttle_ms, given.error.0), (2, 51));
        assert_eq!((given.producer_id, given.epoch), (8, 9));
        oracle::survives_damage::<InitProducerId>(5, &body);
    }

    #[test]
    fn an_end_is_asked_for_as_kafka_expects() {
        for commit in [false, true] {
            let request = EndTxn {
                transactional_id: NAME.to_owned(),
                producer_id: 7,
                epoch: 3,
                commit,
            };
            let asked: EndTxnRequest = oracle::read(&request, 5);
            assert_eq!(asked.transactional_id.as_str(), NAME);
            assert_eq!(
                (asked.producer_id, asked.producer_epoch),
                (ProducerId(7), 3)
            );
            assert_eq!(asked.committed, commit);
        }
        let answer = EndTxnResponse::default()
            .with_producer_id(ProducerId(7))
            .with_producer_epoch(4);
        let body = oracle::write(&answer, 5);
        let given = read::<EndTxn>(5, body.clone()).unwrap();
        assert_eq!((given.error.0, given.producer_id, given.epoch), (0, 7, 4));
        oracle::survives_damage::<EndTxn>(5, &body);
    }

    #[test]
    fn an_end_without_a_new_identity_is_asked_for_as_kafka_expects() {
        for version in 3..=4 {
            let request = EndTxnV1(EndTxn {
                transactional_id: NAME.to_owned(),
                producer_id: 7,
                epoch: 3,
                commit: true,
            });
            let asked: EndTxnRequest = oracle::read(&request, version);
            assert_eq!(asked.transactional_id.as_str(), NAME);
            assert_eq!(
                (asked.producer_id, asked.producer_epoch, asked.committed),
                (ProducerId(7), 3, true)
            );
            let answer = EndTxnResponse::default()
                .with_throttle_time_ms(5)
                .with_error_code(51);
            let body = oracle::write(&answer, version);
            let (ended, throttle_ms) = read_throttled::<EndTxnV1>(version, body.clone()).unwrap();
            assert_eq!((throttle_ms, ended.0), (5, 51));
            oracle::survives_damage::<EndTxnV1>(version, &body);
        }
    }

    #[test]
    fn partitions_are_added_as_kafka_expects() {
        let request = AddPartitions {
            transactional_id: NAME.to_owned(),
            producer_id: 7,
            epoch: 3,
            topics: vec![("a".to_owned(), vec![1, 2])],
        };
        let asked: AddPartitionsToTxnRequest = oracle::read(&request, 3);
        assert_eq!(asked.v3_and_below_transactional_id.as_str(), NAME);
        assert_eq!(
            (
                asked.v3_and_below_producer_id,
                asked.v3_and_below_producer_epoch
            ),
            (ProducerId(7), 3)
        );
        let topic = &asked.v3_and_below_topics[0];
        assert_eq!(
            (topic.name.as_str(), &topic.partitions[..]),
            ("a", &[1, 2][..])
        );

        let said = AddPartitionsToTxnPartitionResult::default()
            .with_partition_index(2)
            .with_partition_error_code(51);
        let topic = AddPartitionsToTxnTopicResult::default()
            .with_name(TopicName(StrBytes::from_static_str("a")))
            .with_results_by_partition(vec![said]);
        let answer = AddPartitionsToTxnResponse::default()
            .with_throttle_time_ms(6)
            .with_results_by_topic_v3_and_below(vec![topic]);
        let body = oracle::write(&answer, 3);
        let (added, throttle_ms) = read_throttled::<AddPartitions>(3, body.clone()).unwrap();
        assert_eq!(throttle_ms, 6);
        assert_eq!(
            added,
            [("a".to_owned(), 2, crate::error_code::ErrorCode(51))]
        );
        oracle::survives_damage::<AddPartitions>(3, &body);
    }
}
