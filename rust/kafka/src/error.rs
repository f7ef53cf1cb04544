//! Errors of this crate, each with its kind and a fix.

use std::fmt;
use std::time::Duration;

use thiserror::Error as ThisError;

use crate::topic::TopicPartition;

/// The meaning of an [`Error`] for the caller, for adapters that do not list variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The native plane does not support the configuration; librdkafka may.
    Unhonoured,
    /// The configuration is invalid for every client.
    Configuration,
    /// The credentials are unknown to a broker, or a right is missing. An operator has to act.
    Unauthorized,
    /// A broker did not answer, or the connection broke. A retry may succeed.
    Unreachable,
    /// The transaction must be aborted and can be repeated.
    Abortable,
    /// Another producer has the transactional id.
    Superseded,
    /// A call or an argument that is invalid here: a bug of the caller.
    Bug,
    /// The broker is incompatible, or violates the protocol.
    Protocol,
}

/// A property that the native plane does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the property.
    pub property: String,
    /// The reason, for messages.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.reason)
    }
}

/// An error of a connection, a request or a transaction. Messages are lower case and name the place; [`Error::fix`]
/// names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// Properties that only another client supports; all of them.
    #[error("native plane cannot honour {}", joined(refusals))]
    Unhonoured {
        /// The properties, with reasons.
        refusals: Vec<Refusal>,
    },

    /// A property's value is invalid for every client.
    #[error("property {property}: {reason}")]
    BadProperty {
        /// Name of the property.
        property: String,
        /// The problem; never contains the value of a secret.
        reason: String,
    },

    /// A file named by a property cannot be read or used at the moment; it may be being replaced.
    #[error("property {property}: {reason}")]
    BadFile {
        /// Name of the property.
        property: String,
        /// The problem; never contains the file's content.
        reason: String,
    },

    /// A broker cannot be connected to.
    #[error("{peer}: no connection: {reason}")]
    Unreachable {
        /// host:port.
        peer: String,
        /// The system's message.
        reason: String,
    },

    /// The connection ended, or the broker did not answer in time.
    #[error("{peer}: the connection was lost {during}: {reason}")]
    Lost {
        /// host:port.
        peer: String,
        /// The phase of the connection.
        during: &'static str,
        /// The system's message.
        reason: String,
    },

    /// The TLS handshake failed.
    #[error("{peer}: no secure connection: {reason}")]
    Tls {
        /// host:port.
        peer: String,
        /// The TLS library's message.
        reason: String,
    },

    /// The broker rejects the credentials, or failed to prove that it knows them.
    #[error("{peer}: {mechanism} authentication failed: {reason}")]
    Authentication {
        /// host:port.
        peer: String,
        /// SASL mechanism.
        mechanism: &'static str,
        /// The broker's message, or the flaw in its proof.
        reason: String,
    },

    /// The broker supports no version of a request that this client supports.
    #[error("{peer}: the broker has {api} {}, this release speaks it {}", versions(*theirs), versions(Some(*ours)))]
    Unsupported {
        /// host:port.
        peer: String,
        /// Name of the request.
        api: &'static str,
        /// Lowest and highest version of this client.
        ours: (i16, i16),
        /// The broker's; None when it lacks the request.
        theirs: Option<(i16, i16)>,
    },

    /// An answer violates the protocol.
    #[error("{peer}: malformed {what}: {reason}")]
    Malformed {
        /// host:port.
        peer: String,
        /// The kind of answer.
        what: &'static str,
        /// The violation.
        reason: &'static str,
    },

    /// A frame is larger than `receive.message.max.bytes`.
    #[error("{peer}: an answer of {size} bytes is larger than receive.message.max.bytes ({limit})")]
    TooLarge {
        /// host:port.
        peer: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: usize,
    },

    /// An answer has an error code.
    #[error("{what}: {code}")]
    Refused {
        /// Request and resource.
        what: String,
        /// The broker's code.
        code: ErrorCode,
    },

    /// The target's transactions use an older protocol.
    #[error(
        "native plane cannot write to a cluster with transaction.version {level}: it needs level 2 (KIP-890)"
    )]
    OldTransactions {
        /// The finalized level of the feature; 0 when the cluster does not know it.
        level: i16,
    },

    /// Another producer has this transactional id. The outcome of an in-flight commit is unknown.
    #[error("transactional.id {transactional_id} is used by another producer: {code}")]
    Fenced {
        /// The id.
        transactional_id: String,
        /// The coordinator's code.
        code: ErrorCode,
    },

    /// The open transaction was refused, by a partition's leader or by the coordinator.
    #[error("the transaction must be aborted: {what}: {code}")]
    MustAbort {
        /// The refused item, with the partition and the source offsets of a batch.
        what: String,
        /// Target partition and source range, if a batch was refused.
        batch: Option<(TopicPartition, eomirror_core::transaction::SourceRange)>,
        /// The broker's code.
        code: ErrorCode,
    },

    /// The coordinator has aborted the transaction, usually because `transaction.timeout.ms` had passed.
    #[error("the transaction was not committed: {code}")]
    NotCommitted {
        /// The coordinator's code.
        code: ErrorCode,
    },

    /// A batch that cannot be written as it is.
    #[error("a batch for {target} cannot be sent: {reason}")]
    Unsendable {
        /// Target partition.
        target: TopicPartition,
        /// The problem.
        reason: String,
    },

    /// A call that the current state does not allow.
    #[error("{call} is not possible: {state}")]
    InvalidState {
        /// The call.
        call: &'static str,
        /// The state.
        state: &'static str,
    },

    /// The deadline of an operation passed.
    #[error("{what} took longer than {} ms; last: {last}", waited.as_millis())]
    TimedOut {
        /// The operation.
        what: &'static str,
        /// Time since the operation began.
        waited: Duration,
        /// The last error.
        last: String,
    },
}

impl Error {
    /// Returns the meaning for the caller.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Unhonoured { .. } | Self::OldTransactions { .. } => Kind::Unhonoured,
            Self::MustAbort { .. } | Self::NotCommitted { .. } => Kind::Abortable,
            Self::Fenced { .. } => Kind::Superseded,
            Self::Unsendable { .. } | Self::InvalidState { .. } => Kind::Bug,
            Self::BadProperty { .. } => Kind::Configuration,
            Self::BadFile { .. }
            | Self::Unreachable { .. }
            | Self::Lost { .. }
            | Self::TimedOut { .. } => Kind::Unreachable,
            // a rejected certificate stays rejected
            Self::Tls { .. } | Self::Authentication { .. } => Kind::Unauthorized,
            Self::Unsupported { .. } | Self::Malformed { .. } | Self::TooLarge { .. } => {
                Kind::Protocol
            }
            Self::Refused { code, .. } => match code.meaning() {
                Meaning::Refused => Kind::Unauthorized,
                Meaning::Moved | Meaning::Unknown | Meaning::Later | Meaning::Failing => {
                    Kind::Unreachable
                }
                _ => Kind::Protocol,
            },
        }
    }

    /// Returns whether a retry cannot succeed before an operator acts.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self.kind(), Kind::Unreachable)
    }

    /// Returns an error that a retry cannot resolve, and drops any other: for `Result::or_else`.
    pub(crate) fn unless_final(self) -> Result<(), Self> {
        if self.is_final() { Err(self) } else { Ok(()) }
    }

    /// Returns the remedy, as an imperative.
    #[must_use]
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::Unhonoured { .. } => "use plane: client, or remove these properties",
            Self::BadProperty { .. } => "correct the property in the cluster's section",
            Self::BadFile { .. } => "restore the file of that property; a running mirror retries",
            Self::Unreachable { .. } => {
                "check bootstrap.servers, the broker's advertised.listeners, and the network"
            }
            Self::Lost { .. } => {
                "check the broker's log, and that security.protocol is the listener's"
            }
            Self::Tls { .. } => {
                "check ssl.ca.location, the host name in the broker's certificate, and that the port speaks TLS"
            }
            Self::Authentication { mechanism, .. } => match mechanism.as_bytes() {
                b"OAUTHBEARER" => {
                    "check the token source, and the broker's requirements for tokens"
                }
                _ => "check sasl.mechanism, sasl.username and sasl.password",
            },
            Self::Unsupported { .. } => {
                "use plane: client; the native plane needs Kafka 2.8 or newer"
            }
            Self::Malformed { .. } => {
                "check that this is a Kafka listener of the configured security.protocol"
            }
            Self::TooLarge { .. } => "raise receive.message.max.bytes, or lower fetch.max.bytes",
            Self::Refused { code, .. } => match code.meaning() {
                Meaning::Refused => "grant the right to this user",
                _ => "check the broker's log",
            },
            Self::OldTransactions { .. } => {
                "use plane: client, or raise the level with kafka-features.sh upgrade --feature transaction.version=2"
            }
            Self::Fenced { .. } => {
                "keep the other mirror of this link, or stop it and restart this one"
            }
            Self::MustAbort { code, .. } => match code.meaning() {
                Meaning::Refused => "grant the right to this user, abort, and retry",
                _ => "abort, and resume from the last committed position",
            },
            Self::NotCommitted { .. } => {
                "resume from the last committed position; raise transaction_timeout if it happens again"
            }
            Self::Unsendable { .. } => "re-encode the batch",
            Self::InvalidState { .. } => "this is a bug of eomirror; report it",
            Self::TimedOut { .. } => "check that the brokers run and can be reached",
        }
    }
}

fn joined(refusals: &[Refusal]) -> String {
    let lines: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn versions(range: Option<(i16, i16)>) -> String {
    range.map_or_else(
        || "in no version".to_owned(),
        |(low, high)| format!("in versions {low} to {high}"),
    )
}

/// The reaction to an error code.
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

/// An error code of the Kafka protocol (<https://kafka.apache.org/protocol#protocol_error_codes>).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub i16);

impl ErrorCode {
    /// No error.
    pub const NONE: Self = Self(0);
    /// The offset is not within the log.
    pub const OFFSET_OUT_OF_RANGE: Self = Self(1);
    /// The broker does not host this topic or partition.
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    /// The user lacks a right on the topic.
    pub const TOPIC_AUTHORIZATION_FAILED: Self = Self(29);
    /// The broker does not support the version.
    pub const UNSUPPORTED_VERSION: Self = Self(35);
    /// The broker does not host this topic id.
    pub const UNKNOWN_TOPIC_ID: Self = Self(100);
    /// The client must return to its bootstrap servers (KIP-1102).
    pub const REBOOTSTRAP_REQUIRED: Self = Self(129);

    /// Returns whether there is no error.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns Kafka's name of the code, for codes that a reader or a transaction meets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            -1 => "UNKNOWN_SERVER_ERROR",
            0 => "NONE",
            1 => "OFFSET_OUT_OF_RANGE",
            2 => "CORRUPT_MESSAGE",
            3 => "UNKNOWN_TOPIC_OR_PARTITION",
            5 => "LEADER_NOT_AVAILABLE",
            6 => "NOT_LEADER_OR_FOLLOWER",
            7 => "REQUEST_TIMED_OUT",
            8 => "BROKER_NOT_AVAILABLE",
            9 => "REPLICA_NOT_AVAILABLE",
            10 => "MESSAGE_TOO_LARGE",
            13 => "NETWORK_EXCEPTION",
            14 => "COORDINATOR_LOAD_IN_PROGRESS",
            15 => "COORDINATOR_NOT_AVAILABLE",
            16 => "NOT_COORDINATOR",
            17 => "INVALID_TOPIC_EXCEPTION",
            18 => "RECORD_LIST_TOO_LARGE",
            19 => "NOT_ENOUGH_REPLICAS",
            20 => "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
            29 => "TOPIC_AUTHORIZATION_FAILED",
            30 => "GROUP_AUTHORIZATION_FAILED",
            31 => "CLUSTER_AUTHORIZATION_FAILED",
            32 => "INVALID_TIMESTAMP",
            33 => "UNSUPPORTED_SASL_MECHANISM",
            34 => "ILLEGAL_SASL_STATE",
            35 => "UNSUPPORTED_VERSION",
            43 => "UNSUPPORTED_FOR_MESSAGE_FORMAT",
            45 => "OUT_OF_ORDER_SEQUENCE_NUMBER",
            46 => "DUPLICATE_SEQUENCE_NUMBER",
            47 => "INVALID_PRODUCER_EPOCH",
            48 => "INVALID_TXN_STATE",
            49 => "INVALID_PRODUCER_ID_MAPPING",
            50 => "INVALID_TRANSACTION_TIMEOUT",
            51 => "CONCURRENT_TRANSACTIONS",
            53 => "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            56 => "KAFKA_STORAGE_ERROR",
            59 => "UNKNOWN_PRODUCER_ID",
            58 => "SASL_AUTHENTICATION_FAILED",
            70 => "FETCH_SESSION_ID_NOT_FOUND",
            71 => "INVALID_FETCH_SESSION_EPOCH",
            74 => "FENCED_LEADER_EPOCH",
            75 => "UNKNOWN_LEADER_EPOCH",
            76 => "UNSUPPORTED_COMPRESSION_TYPE",
            78 => "OFFSET_NOT_AVAILABLE",
            87 => "INVALID_RECORD",
            89 => "THROTTLING_QUOTA_EXCEEDED",
            90 => "PRODUCER_FENCED",
            100 => "UNKNOWN_TOPIC_ID",
            103 => "INCONSISTENT_TOPIC_ID",
            106 => "FETCH_SESSION_TOPIC_ID_ERROR",
            109 => "OFFSET_MOVED_TO_TIERED_STORAGE",
            120 => "TRANSACTION_ABORTABLE",
            129 => "REBOOTSTRAP_REQUIRED",
            _ => "error code",
        }
    }

    /// Returns the reaction of a reader to the code.
    #[must_use]
    pub const fn meaning(self) -> Meaning {
        match self.0 {
            0 => Meaning::Fine,
            1 => Meaning::OutOfRange,
            7 | 78 | 89 => Meaning::Later,
            // the replica may read its log while it changes, and a retry succeeds
            -1 | 2 => Meaning::Failing,
            // 75: the broker's metadata is older than ours; it will catch up, or newer metadata will correct us
            5 | 6 | 8 | 9 | 13 | 56 | 74 | 75 | 103 | 106 | 129 => Meaning::Moved,
            3 | 100 => Meaning::Unknown,
            29..=31 | 53 | 58 => Meaning::Refused,
            _ => Meaning::Final,
        }
    }

    /// Returns whether the error is about the user's identity or cluster-wide rights, even when it is reported for a
    /// partition: a leader reports it for every partition of the request.
    #[must_use]
    pub const fn concerns_everything(self) -> bool {
        matches!(self.meaning(), Meaning::Refused) && self.0 != Self::TOPIC_AUTHORIZATION_FAILED.0
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
    use super::{Error, ErrorCode, Kind};

    #[test]
    fn an_error_code_is_shown_with_kafkas_name_and_number() {
        assert_eq!(ErrorCode(74).to_string(), "FENCED_LEADER_EPOCH (74)");
        assert_eq!(ErrorCode(999).to_string(), "error code (999)");
    }

    #[test]
    fn missing_versions_are_named_on_both_sides() {
        let error = Error::Unsupported {
            peer: "b:1".to_owned(),
            api: "Fetch",
            ours: (12, 17),
            theirs: Some((0, 11)),
        };
        assert_eq!(
            error.to_string(),
            "b:1: the broker has Fetch in versions 0 to 11, this release speaks it in versions 12 to 17"
        );
        assert!(error.is_final());
        assert_eq!(error.kind(), Kind::Protocol);
    }
}
