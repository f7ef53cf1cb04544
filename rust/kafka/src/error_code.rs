//! Kafka's error codes, and the reactions to them (<https://kafka.apache.org/protocol#protocol_error_codes>).
//!
//! The protocol's documentation says of each code whether it is retriable. That does not decide the reaction, which also
//! depends on the sender: `NOT_ENOUGH_REPLICAS_AFTER_APPEND` is temporary when a leader returns it for a batch, and final
//! from a coordinator. So each context has a method of its own.

use std::fmt;

/// An error code of the Kafka protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ErrorCode(pub i16);

/// Defines a constant for each code, its name, and the protocol's "retriable".
macro_rules! codes {
    (retriable: $($passing:literal $retriable:ident,)+ others: $($lasting:literal $other:ident,)+) => {
        impl ErrorCode {
            $(
                #[doc = concat!("`", stringify!($retriable), "`, retriable.")]
                pub const $retriable: Self = Self($passing);
            )+
            $(
                #[doc = concat!("`", stringify!($other), "`.")]
                pub const $other: Self = Self($lasting);
            )+

            /// Returns Kafka's name of the code.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($passing => stringify!($retriable),)+
                    $($lasting => stringify!($other),)+
                    _ => "error code",
                }
            }

            /// Returns true if the protocol's documentation calls the code retriable.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                matches!(self.0, $($passing)|+)
            }
        }
    };
}

// of Kafka 4.3
codes! {
    retriable:
        2 CORRUPT_MESSAGE, 3 UNKNOWN_TOPIC_OR_PARTITION, 5 LEADER_NOT_AVAILABLE, 6 NOT_LEADER_OR_FOLLOWER,
        7 REQUEST_TIMED_OUT, 9 REPLICA_NOT_AVAILABLE, 13 NETWORK_EXCEPTION, 14 COORDINATOR_LOAD_IN_PROGRESS,
        15 COORDINATOR_NOT_AVAILABLE, 16 NOT_COORDINATOR, 19 NOT_ENOUGH_REPLICAS, 20 NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        41 NOT_CONTROLLER, 51 CONCURRENT_TRANSACTIONS, 56 KAFKA_STORAGE_ERROR, 70 FETCH_SESSION_ID_NOT_FOUND,
        71 INVALID_FETCH_SESSION_EPOCH, 72 LISTENER_NOT_FOUND, 74 FENCED_LEADER_EPOCH, 75 UNKNOWN_LEADER_EPOCH,
        78 OFFSET_NOT_AVAILABLE, 80 PREFERRED_LEADER_NOT_AVAILABLE, 83 ELIGIBLE_LEADERS_NOT_AVAILABLE,
        84 ELECTION_NOT_NEEDED, 88 UNSTABLE_OFFSET_COMMIT, 89 THROTTLING_QUOTA_EXCEEDED, 100 UNKNOWN_TOPIC_ID,
        103 INCONSISTENT_TOPIC_ID, 106 FETCH_SESSION_TOPIC_ID_ERROR, 122 SHARE_SESSION_NOT_FOUND,
        123 INVALID_SHARE_SESSION_EPOCH, 133 SHARE_SESSION_LIMIT_REACHED,
    others:
        -1 UNKNOWN_SERVER_ERROR, 0 NONE, 1 OFFSET_OUT_OF_RANGE, 4 INVALID_FETCH_SIZE, 8 BROKER_NOT_AVAILABLE,
        10 MESSAGE_TOO_LARGE, 11 STALE_CONTROLLER_EPOCH, 12 OFFSET_METADATA_TOO_LARGE, 17 INVALID_TOPIC_EXCEPTION,
        18 RECORD_LIST_TOO_LARGE, 21 INVALID_REQUIRED_ACKS, 22 ILLEGAL_GENERATION, 23 INCONSISTENT_GROUP_PROTOCOL,
        24 INVALID_GROUP_ID, 25 UNKNOWN_MEMBER_ID, 26 INVALID_SESSION_TIMEOUT, 27 REBALANCE_IN_PROGRESS,
        28 INVALID_COMMIT_OFFSET_SIZE, 29 TOPIC_AUTHORIZATION_FAILED, 30 GROUP_AUTHORIZATION_FAILED,
        31 CLUSTER_AUTHORIZATION_FAILED, 32 INVALID_TIMESTAMP, 33 UNSUPPORTED_SASL_MECHANISM, 34 ILLEGAL_SASL_STATE,
        35 UNSUPPORTED_VERSION, 36 TOPIC_ALREADY_EXISTS, 37 INVALID_PARTITIONS, 38 INVALID_REPLICATION_FACTOR,
        39 INVALID_REPLICA_ASSIGNMENT, 40 INVALID_CONFIG, 42 INVALID_REQUEST, 43 UNSUPPORTED_FOR_MESSAGE_FORMAT,
        44 POLICY_VIOLATION, 45 OUT_OF_ORDER_SEQUENCE_NUMBER, 46 DUPLICATE_SEQUENCE_NUMBER, 47 INVALID_PRODUCER_EPOCH,
        48 INVALID_TXN_STATE, 49 INVALID_PRODUCER_ID_MAPPING, 50 INVALID_TRANSACTION_TIMEOUT,
        52 TRANSACTION_COORDINATOR_FENCED, 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 54 SECURITY_DISABLED,
        55 OPERATION_NOT_ATTEMPTED, 57 LOG_DIR_NOT_FOUND, 58 SASL_AUTHENTICATION_FAILED, 59 UNKNOWN_PRODUCER_ID,
        60 REASSIGNMENT_IN_PROGRESS, 61 DELEGATION_TOKEN_AUTH_DISABLED, 62 DELEGATION_TOKEN_NOT_FOUND,
        63 DELEGATION_TOKEN_OWNER_MISMATCH, 64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        65 DELEGATION_TOKEN_AUTHORIZATION_FAILED, 66 DELEGATION_TOKEN_EXPIRED, 67 INVALID_PRINCIPAL_TYPE,
        68 NON_EMPTY_GROUP, 69 GROUP_ID_NOT_FOUND, 73 TOPIC_DELETION_DISABLED, 76 UNSUPPORTED_COMPRESSION_TYPE,
        77 STALE_BROKER_EPOCH, 79 MEMBER_ID_REQUIRED, 81 GROUP_MAX_SIZE_REACHED, 82 FENCED_INSTANCE_ID,
        85 NO_REASSIGNMENT_IN_PROGRESS, 86 GROUP_SUBSCRIBED_TO_TOPIC, 87 INVALID_RECORD, 90 PRODUCER_FENCED,
        91 RESOURCE_NOT_FOUND, 92 DUPLICATE_RESOURCE, 93 UNACCEPTABLE_CREDENTIAL, 94 INCONSISTENT_VOTER_SET,
        95 INVALID_UPDATE_VERSION, 96 FEATURE_UPDATE_FAILED, 97 PRINCIPAL_DESERIALIZATION_FAILURE,
        98 SNAPSHOT_NOT_FOUND, 99 POSITION_OUT_OF_RANGE, 101 DUPLICATE_BROKER_REGISTRATION,
        102 BROKER_ID_NOT_REGISTERED, 104 INCONSISTENT_CLUSTER_ID, 105 TRANSACTIONAL_ID_NOT_FOUND,
        107 INELIGIBLE_REPLICA, 108 NEW_LEADER_ELECTED, 109 OFFSET_MOVED_TO_TIERED_STORAGE, 110 FENCED_MEMBER_EPOCH,
        111 UNRELEASED_INSTANCE_ID, 112 UNSUPPORTED_ASSIGNOR, 113 STALE_MEMBER_EPOCH, 114 MISMATCHED_ENDPOINT_TYPE,
        115 UNSUPPORTED_ENDPOINT_TYPE, 116 UNKNOWN_CONTROLLER_ID, 117 UNKNOWN_SUBSCRIPTION_ID, 118 TELEMETRY_TOO_LARGE,
        119 INVALID_REGISTRATION, 120 TRANSACTION_ABORTABLE, 121 INVALID_RECORD_STATE, 124 FENCED_STATE_EPOCH,
        125 INVALID_VOTER_KEY, 126 DUPLICATE_VOTER, 127 VOTER_NOT_FOUND, 128 INVALID_REGULAR_EXPRESSION,
        129 REBOOTSTRAP_REQUIRED, 130 STREAMS_INVALID_TOPOLOGY, 131 STREAMS_INVALID_TOPOLOGY_EPOCH,
        132 STREAMS_TOPOLOGY_FENCED,
}

/// The reaction of a reader to an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// No error.
    Fine,
    /// Another broker leads, or the metadata is old: refresh it, then retry.
    Moved,
    /// The broker does not know the topic, perhaps not yet: refresh metadata, and believe it after a while.
    Unknown,
    /// A temporary error of the broker: retry after a pause.
    Later,
    /// The broker cannot read its log, or reports an unknown error: retry, and believe it after a while.
    Failing,
    /// The offset is not in the log.
    OutOfRange,
    /// A right or a credential is missing.
    Refused,
    /// Any other code: a retry would return it again.
    Final,
}

impl ErrorCode {
    /// Returns true if there is no error.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the meaning for a reader: of a leader's log, or of a cluster's metadata.
    #[must_use]
    pub const fn meaning(self) -> Meaning {
        match self {
            Self::NONE => Meaning::Fine,
            Self::OFFSET_OUT_OF_RANGE => Meaning::OutOfRange,
            Self::REQUEST_TIMED_OUT
            | Self::OFFSET_NOT_AVAILABLE
            | Self::THROTTLING_QUOTA_EXCEEDED => Meaning::Later,
            // the replica may read its log while it changes, and a retry succeeds
            Self::UNKNOWN_SERVER_ERROR | Self::CORRUPT_MESSAGE => Meaning::Failing,
            // UNKNOWN_LEADER_EPOCH: the broker's metadata is older than ours; it will catch up, or newer metadata will
            // correct us
            Self::LEADER_NOT_AVAILABLE
            | Self::NOT_LEADER_OR_FOLLOWER
            | Self::BROKER_NOT_AVAILABLE
            | Self::REPLICA_NOT_AVAILABLE
            | Self::NETWORK_EXCEPTION
            | Self::KAFKA_STORAGE_ERROR
            | Self::FENCED_LEADER_EPOCH
            | Self::UNKNOWN_LEADER_EPOCH
            | Self::INCONSISTENT_TOPIC_ID
            | Self::FETCH_SESSION_TOPIC_ID_ERROR
            | Self::REBOOTSTRAP_REQUIRED => Meaning::Moved,
            Self::UNKNOWN_TOPIC_OR_PARTITION | Self::UNKNOWN_TOPIC_ID => Meaning::Unknown,
            Self::TOPIC_AUTHORIZATION_FAILED
            | Self::GROUP_AUTHORIZATION_FAILED
            | Self::CLUSTER_AUTHORIZATION_FAILED
            | Self::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | Self::SASL_AUTHENTICATION_FAILED => Meaning::Refused,
            _ => Meaning::Final,
        }
    }

    /// Returns true if another broker may lead the partition of a batch. A timed-out leader may have been replaced.
    #[must_use]
    pub const fn means_leader_change(self) -> bool {
        matches!(self.meaning(), Meaning::Moved | Meaning::Unknown)
            || matches!(self, Self::REQUEST_TIMED_OUT)
    }

    /// Returns true if a leader may accept the same batch later. It passes on what its coordinator returns.
    #[must_use]
    pub const fn is_passing_for_leader(self) -> bool {
        self.means_leader_change()
            || self.is_passing_for_coordinator()
            || matches!(self, Self::NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    }

    /// Returns true if a transaction coordinator may accept the same request later.
    #[must_use]
    pub const fn is_passing_for_coordinator(self) -> bool {
        matches!(
            self,
            Self::REQUEST_TIMED_OUT
                | Self::BROKER_NOT_AVAILABLE
                | Self::NETWORK_EXCEPTION
                | Self::COORDINATOR_LOAD_IN_PROGRESS
                | Self::COORDINATOR_NOT_AVAILABLE
                | Self::NOT_COORDINATOR
                | Self::NOT_ENOUGH_REPLICAS
                | Self::CONCURRENT_TRANSACTIONS
                | Self::THROTTLING_QUOTA_EXCEEDED
        )
    }

    /// Returns true if a leader refuses a batch for its content: too large for the topic or its segments, a timestamp
    /// out of bounds, or against the topic's rules.
    #[must_use]
    pub const fn refuses_content(self) -> bool {
        matches!(
            self,
            Self::INVALID_FETCH_SIZE
                | Self::MESSAGE_TOO_LARGE
                | Self::RECORD_LIST_TOO_LARGE
                | Self::INVALID_TIMESTAMP
                | Self::INVALID_RECORD
        )
    }

    /// Returns true if the error is about the user's identity or cluster-wide rights, even when it is reported for a
    /// partition: a leader reports it for every partition of the request.
    #[must_use]
    pub const fn concerns_everything(self) -> bool {
        matches!(self.meaning(), Meaning::Refused)
            && !matches!(self, Self::TOPIC_AUTHORIZATION_FAILED)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, Meaning};
    use kafka_protocol::error::ResponseError;

    #[test]
    fn an_error_code_is_shown_with_kafkas_name_and_number() {
        assert_eq!(ErrorCode(74).to_string(), "FENCED_LEADER_EPOCH (74)");
        assert_eq!(ErrorCode(999).to_string(), "error code (999)");
    }

    #[test]
    fn names_and_retriability_are_those_of_another_client() {
        let plain = |name: &str| name.replace('_', "").to_lowercase();
        for number in (-1..=133).filter(|number| *number != 0) {
            let code = ErrorCode(number);
            let theirs = ResponseError::try_from_code(number).unwrap();
            assert_eq!(plain(code.name()), plain(&format!("{theirs:?}")));
            // Kafka 4.3's ConcurrentTransactionsException is a RetriableException
            let concurrent = code == ErrorCode::CONCURRENT_TRANSACTIONS;
            assert_eq!(
                code.is_retriable(),
                theirs.is_retriable() || concurrent,
                "{code}"
            );
        }
    }

    #[test]
    fn a_code_that_is_tried_again_is_retriable_but_for_known_ones() {
        let surprising = [
            ErrorCode::BROKER_NOT_AVAILABLE,
            ErrorCode::REBOOTSTRAP_REQUIRED,
        ];
        for code in (-1..=133).map(ErrorCode) {
            let retried = code.is_passing_for_leader()
                || matches!(
                    code.meaning(),
                    Meaning::Moved | Meaning::Unknown | Meaning::Later
                );
            assert!(
                !retried || code.is_retriable() || surprising.contains(&code),
                "{code}"
            );
        }
    }

    #[test]
    fn one_code_means_different_things_in_different_contexts() {
        let appended = ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND;
        assert!(appended.is_passing_for_leader());
        assert!(!appended.is_passing_for_coordinator());
        for code in [7, 8, 13].map(ErrorCode) {
            assert!(code.means_leader_change() && code.is_passing_for_coordinator());
        }
        assert_eq!(ErrorCode::REQUEST_TIMED_OUT.meaning(), Meaning::Later);
        assert_eq!(ErrorCode::CORRUPT_MESSAGE.meaning(), Meaning::Failing);
        assert!(!ErrorCode::CORRUPT_MESSAGE.is_passing_for_leader());
    }
}
