//! Errors of this crate, each with a fix.

use thiserror::Error as ThisError;

/// Category of an [`Error`], so that an adapter need not list variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An argument is invalid: a programming or configuration error, before anything was read.
    Argument,
    /// One topic cannot continue; other topics can.
    Topic,
    /// librdkafka cannot write the record unchanged.
    Unrepresentable,
    /// The open transaction must be aborted.
    Transaction,
    /// Bytes from one of eomirror's own topics are unusable.
    State,
}

/// An error. Messages are lower case and name the object and the place; [`Error::fix`] returns the action.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A topic or group pattern does not compile or is too large.
    #[error("pattern {pattern:?} is invalid: {reason}")]
    BadPattern {
        /// The configured pattern.
        pattern: String,
        /// Message of the regular expression compiler, on one line.
        reason: String,
    },

    /// A cluster id or topic name exceeds its limits.
    #[error("{what} {value:?} is invalid: {reason}")]
    BadName {
        /// Kind of name.
        what: &'static str,
        /// The name, truncated.
        value: String,
        /// Reason.
        reason: &'static str,
    },

    /// The policy has no route for a record's topic.
    #[error("{at}: this source topic has no route")]
    NoRoute {
        /// topic-partition@offset.
        at: String,
    },

    /// librdkafka interprets timestamp 0 as "now".
    #[error(
        "{at}: the record's timestamp is 0, which librdkafka would replace with the present time"
    )]
    TimestampZero {
        /// topic-partition@offset.
        at: String,
    },

    /// A provenance header has a version that this release does not support.
    #[error("{at}: the provenance header has version {version}, this release knows {known}")]
    UnknownHeaderVersion {
        /// topic-partition@offset.
        at: String,
        /// Version of the header.
        version: u8,
        /// Newest version that this release reads.
        known: u8,
    },

    /// A record has passed more clusters than a header may hold.
    #[error("{at}: the record has passed {hops} clusters, more than a provenance header may name")]
    TooManyHops {
        /// topic-partition@offset.
        at: String,
        /// Number of clusters.
        hops: usize,
    },

    /// A field of a record exceeds Kafka's formats, or an offset is negative.
    #[error("{at}: {reason}")]
    BadRecord {
        /// topic-partition@offset.
        at: String,
        /// The fault.
        reason: &'static str,
    },

    /// A rule of the link's transform looks at a JSON field, and the record's value is no JSON.
    #[error(
        "{at}: {rule} cannot read the record's value: it is no JSON, or nested deeper than 128 levels"
    )]
    Unreadable {
        /// topic-partition@offset.
        at: String,
        /// The rule.
        rule: &'static str,
    },

    /// The source offsets within a transaction did not increase.
    #[error("{at}: fetched after offset {last} in the same transaction; offsets must increase")]
    OffsetWentBack {
        /// topic-partition@offset.
        at: String,
        /// Previous offset.
        last: i64,
    },

    /// Violation of rule 7: the fetched records differ from the acknowledged plus the dropped ones.
    #[error("{topic}-{partition}: fetched {fetched}, acknowledged {acked}, dropped {dropped}: {} not accounted for",
        fetched.abs_diff(acked.saturating_add(*dropped)))]
    Unaccounted {
        /// Source topic.
        topic: String,
        /// Source partition.
        partition: i32,
        /// Number of fetched records.
        fetched: u64,
        /// Number of records that the target acknowledged.
        acked: u64,
        /// Number of intentionally dropped records.
        dropped: u64,
    },

    /// The target acknowledged records that were not planned.
    #[error("{topic}-{partition} on the target: {surplus} acknowledged records were not planned")]
    UnplannedAcks {
        /// Target topic.
        topic: String,
        /// Target partition.
        partition: i32,
        /// Number of records.
        surplus: u64,
    },

    /// Acknowledged target offsets of a partition did not increase.
    #[error("{topic}-{partition} on the target: acknowledged offset {offset} comes after {last}")]
    AcksOutOfOrder {
        /// Target topic.
        topic: String,
        /// Target partition.
        partition: i32,
        /// Offset of the acknowledgement.
        offset: i64,
        /// Previous offset.
        last: i64,
    },

    /// Deliveries failed, or were acknowledged without an offset.
    #[error("the target rejected {failed} records or acknowledged them without an offset")]
    FailedAcks {
        /// Number of deliveries.
        failed: u64,
    },

    /// The bytes are not an offset map chunk.
    #[error("offset map: {reason}")]
    BadOffsetMap {
        /// The fault and its place.
        reason: String,
    },

    /// An offset map chunk has a version that this release does not support.
    #[error("offset map: the chunk has version {version}, this release knows {known}")]
    UnknownOffsetMapVersion {
        /// Version of the chunk.
        version: u8,
        /// Newest version that this release reads.
        known: u8,
    },
}

impl Error {
    /// Returns the category of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::BadPattern { .. } | Self::BadName { .. } => Kind::Argument,
            Self::NoRoute { .. }
            | Self::UnknownHeaderVersion { .. }
            | Self::TooManyHops { .. }
            | Self::Unreadable { .. }
            | Self::BadRecord { .. } => Kind::Topic,
            Self::TimestampZero { .. } => Kind::Unrepresentable,
            Self::OffsetWentBack { .. }
            | Self::Unaccounted { .. }
            | Self::UnplannedAcks { .. }
            | Self::AcksOutOfOrder { .. }
            | Self::FailedAcks { .. } => Kind::Transaction,
            Self::BadOffsetMap { .. } | Self::UnknownOffsetMapVersion { .. } => Kind::State,
        }
    }

    /// Returns the source topic, if the error concerns one record.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::NoRoute { at }
            | Self::TimestampZero { at }
            | Self::UnknownHeaderVersion { at, .. }
            | Self::TooManyHops { at, .. }
            | Self::BadRecord { at, .. }
            | Self::Unreadable { at, .. }
            | Self::OffsetWentBack { at, .. } => at
                .rsplit_once('@')
                .and_then(|(partition, _)| partition.rsplit_once('-'))
                .map(|(topic, _)| topic),
            _ => None,
        }
    }

    /// Returns the action that resolves the error, as an imperative.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::BadPattern { .. } => {
                "write a regular expression without look-around and back-references"
            }
            Self::BadName { .. } => "check the name where it was configured or read",
            Self::NoRoute { .. } => "restart the lane, so that its routes match its partitions",
            Self::TimestampZero { .. } => {
                "exclude the topic, or let the application set a timestamp; the client plane cannot write 0"
            }
            Self::UnknownHeaderVersion { .. } => {
                "run this link with the newest release of eomirror that writes to the source"
            }
            Self::TooManyHops { .. } => "look for a cycle in the links and set `forward`",
            Self::BadRecord { .. } => {
                "read the record with another client; if it is intact, report a bug"
            }
            Self::Unreadable { .. } => {
                "let the rule leave the topic out (`topics`), or set `on_unreadable: drop` or `keep` on the link"
            }
            Self::OffsetWentBack { .. }
            | Self::Unaccounted { .. }
            | Self::UnplannedAcks { .. }
            | Self::AcksOutOfOrder { .. }
            | Self::FailedAcks { .. } => {
                "abort the transaction and rebuild the lane from its committed positions"
            }
            Self::BadOffsetMap { .. } => {
                "find the writer of the record; only eomirror may write to this topic"
            }
            Self::UnknownOffsetMapVersion { .. } => {
                "run the release of eomirror that wrote it, or a newer one"
            }
        }
    }
}

/// Formats a position in a source log as topic-partition@offset.
#[must_use]
pub fn place(topic: &str, partition: i32, offset: i64) -> String {
    format!("{topic}-{partition}@{offset}")
}

#[cfg(test)]
mod tests {
    use super::{Error, place};

    #[test]
    fn an_error_about_a_record_knows_its_topic() {
        let error = Error::TimestampZero {
            at: place("orders-eu", 3, 17),
        };

        assert_eq!(error.topic(), Some("orders-eu"));
    }
}
