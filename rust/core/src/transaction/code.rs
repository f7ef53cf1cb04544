//! Kafka's error codes that a transaction meets (<https://kafka.apache.org/protocol#protocol_error_codes>).

/// `UNKNOWN_TOPIC_OR_PARTITION`: this broker does not host it, yet or any more.
pub const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
/// `LEADER_NOT_AVAILABLE`.
pub const LEADER_NOT_AVAILABLE: i16 = 5;
/// `NOT_LEADER_OR_FOLLOWER`.
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// `REQUEST_TIMED_OUT`: followers did not confirm in time; the batch may be in the log.
pub const REQUEST_TIMED_OUT: i16 = 7;
/// `BROKER_NOT_AVAILABLE`.
pub const BROKER_NOT_AVAILABLE: i16 = 8;
/// `REPLICA_NOT_AVAILABLE`.
pub const REPLICA_NOT_AVAILABLE: i16 = 9;
/// `MESSAGE_TOO_LARGE`: the batch is over the topic's `max.message.bytes`.
pub const MESSAGE_TOO_LARGE: i16 = 10;
/// `NETWORK_EXCEPTION`: between brokers.
pub const NETWORK_EXCEPTION: i16 = 13;
/// `COORDINATOR_LOAD_IN_PROGRESS`: it reads the log of transactions.
pub const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
/// `COORDINATOR_NOT_AVAILABLE`.
pub const COORDINATOR_NOT_AVAILABLE: i16 = 15;
/// `NOT_COORDINATOR`: another broker is.
pub const NOT_COORDINATOR: i16 = 16;
/// `NOT_ENOUGH_REPLICAS`: nothing was written.
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
/// `NOT_ENOUGH_REPLICAS_AFTER_APPEND`: the batch is in the log, and may be lost with the leader.
pub const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
/// `OUT_OF_ORDER_SEQUENCE_NUMBER`.
pub const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
/// `DUPLICATE_SEQUENCE_NUMBER`: the batch is in the log, the broker has forgotten where.
pub const DUPLICATE_SEQUENCE_NUMBER: i16 = 46;
/// `INVALID_PRODUCER_EPOCH`: older than what the broker knows.
pub const INVALID_PRODUCER_EPOCH: i16 = 47;
/// `INVALID_TXN_STATE`: the transaction is not in a state for this.
pub const INVALID_TXN_STATE: i16 = 48;
/// `INVALID_PRODUCER_ID_MAPPING`: the coordinator knows another producer id, or none.
pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
/// `CONCURRENT_TRANSACTIONS`: the one before is still being ended.
pub const CONCURRENT_TRANSACTIONS: i16 = 51;
/// `KAFKA_STORAGE_ERROR`: a disk of the leader failed.
pub const KAFKA_STORAGE_ERROR: i16 = 56;
/// `FENCED_LEADER_EPOCH`.
pub const FENCED_LEADER_EPOCH: i16 = 74;
/// `UNKNOWN_LEADER_EPOCH`.
pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
/// `THROTTLING_QUOTA_EXCEEDED`.
pub const THROTTLING_QUOTA_EXCEEDED: i16 = 89;
/// `PRODUCER_FENCED`: another producer has this transactional id now.
pub const PRODUCER_FENCED: i16 = 90;
/// `UNKNOWN_TOPIC_ID`.
pub const UNKNOWN_TOPIC_ID: i16 = 100;
/// `INCONSISTENT_TOPIC_ID`.
pub const INCONSISTENT_TOPIC_ID: i16 = 103;
/// `TRANSACTION_ABORTABLE`: nothing is wrong with the producer, but this transaction must be aborted (KIP-890).
pub const TRANSACTION_ABORTABLE: i16 = 120;
