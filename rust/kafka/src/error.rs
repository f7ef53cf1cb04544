//! Errors of this crate, each with its kind and a fix.

use std::fmt;
use std::time::Duration;

use crate::error_code::{ErrorCode, Meaning};
use thiserror::Error as ThisError;

use crate::topic::TopicPartition;

/// The meaning of an [`Error`] for the caller, for adapters that do not list variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The client does not support the configuration; librdkafka may.
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

/// A property that the client does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedProperty {
    /// Name of the property.
    pub property: String,
    /// The reason, for messages.
    pub reason: String,
}

impl fmt::Display for UnsupportedProperty {
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
    #[error("native client cannot honour {}", joined(unsupported))]
    Unhonoured {
        /// The properties, with reasons.
        unsupported: Vec<UnsupportedProperty>,
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
        batch: Option<(TopicPartition, crate::transaction_state::SourceRange)>,
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
            Self::Unhonoured { .. } => Kind::Unhonoured,
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
            Self::Unhonoured { .. } => "remove these properties, or use another client",
            Self::BadProperty { .. } => "correct the property",
            Self::BadFile { .. } => "restore the file of that property, and retry",
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
            Self::Unsupported { .. } => "use Kafka 2.8 or newer",
            Self::Malformed { .. } => {
                "check that this is a Kafka listener of the configured security.protocol"
            }
            Self::TooLarge { .. } => "raise receive.message.max.bytes, or lower fetch.max.bytes",
            Self::Refused { code, .. } => match code.meaning() {
                Meaning::Refused => "grant the right to this user",
                _ => "check the broker's log",
            },
            Self::Fenced { .. } => {
                "stop one of the two producers with this transactional id, then open the other again"
            }
            Self::MustAbort { code, .. } => match code.meaning() {
                Meaning::Refused => "grant the right to this user, abort, and retry",
                _ => "abort, and resume from the last committed position",
            },
            Self::NotCommitted { .. } => {
                "resume from the last committed position; raise the transaction timeout if it happens again"
            }
            Self::Unsendable { .. } => "re-encode the batch",
            Self::InvalidState { .. } => "report it as a bug of this client",
            Self::TimedOut { .. } => "check that the brokers run and can be reached",
        }
    }
}

fn joined(unsupported: &[UnsupportedProperty]) -> String {
    let lines: Vec<String> = unsupported.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

fn versions(range: Option<(i16, i16)>) -> String {
    range.map_or_else(
        || "in no version".to_owned(),
        |(low, high)| format!("in versions {low} to {high}"),
    )
}

#[cfg(test)]
mod tests {
    use super::{Error, Kind};

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
