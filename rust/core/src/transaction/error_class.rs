//! Classes of a leader's error codes, as they concern a batch.

use super::code;

/// Returns true if a batch was refused only because an earlier one was.
pub(super) const fn is_follow_up(error: i16, behind_failure: bool) -> bool {
    error == code::OUT_OF_ORDER_SEQUENCE_NUMBER && behind_failure
}

/// Returns true if the same batch may be accepted later.
pub(super) const fn is_passing(error: i16) -> bool {
    is_about_leaders(error)
        || matches!(
            error,
            code::COORDINATOR_LOAD_IN_PROGRESS
                | code::COORDINATOR_NOT_AVAILABLE
                | code::NOT_COORDINATOR
                | code::NOT_ENOUGH_REPLICAS
                | code::NOT_ENOUGH_REPLICAS_AFTER_APPEND
                | code::CONCURRENT_TRANSACTIONS
                | code::THROTTLING_QUOTA_EXCEEDED
        )
}

/// Returns true if another broker may lead the partition.
pub(super) const fn is_about_leaders(error: i16) -> bool {
    matches!(
        error,
        code::UNKNOWN_TOPIC_OR_PARTITION
            | code::LEADER_NOT_AVAILABLE
            | code::NOT_LEADER_OR_FOLLOWER
            | code::REQUEST_TIMED_OUT
            | code::BROKER_NOT_AVAILABLE
            | code::REPLICA_NOT_AVAILABLE
            | code::NETWORK_EXCEPTION
            | code::KAFKA_STORAGE_ERROR
            | code::FENCED_LEADER_EPOCH
            | code::UNKNOWN_LEADER_EPOCH
            | code::UNKNOWN_TOPIC_ID
            | code::INCONSISTENT_TOPIC_ID
    )
}
