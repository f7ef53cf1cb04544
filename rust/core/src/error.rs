//! Everything that this crate refuses, and what to do about it.

use thiserror::Error as ThisError;

/// What an [`Error`] means for the caller, so that an adapter can map it without listing variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An argument is wrong: a programming or configuration error, nothing was read yet.
    Argument,
    /// One topic cannot go on as it is; other topics can.
    Topic,
    /// A record that librdkafka cannot write unchanged.
    Unrepresentable,
    /// The open transaction must be aborted.
    Transaction,
    /// Bytes from one of our own topics are unusable.
    State,
}

/// A refusal. Messages are lower case and name what and where; [`Error::fix`] says what to do.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// A topic or group pattern does not compile or is too large.
    #[error("pattern {pattern:?} is refused: {reason}")]
    BadPattern {
        /// The pattern as it was written.
        pattern: String,
        /// What the regular expression compiler says, on one line.
        reason: String,
    },

    /// A cluster id or topic name does not fit its limits.
    #[error("{what} {value:?} is refused: {reason}")]
    BadName {
        /// Which name.
        what: &'static str,
        /// The name, shortened.
        value: String,
        /// Why.
        reason: &'static str,
    },

    /// A record arrived from a topic that the policy does not route.
    #[error("{at}: this source topic has no route")]
    NoRoute {
        /// topic-partition@offset.
        at: String,
    },

    /// librdkafka takes timestamp 0 as "now".
    #[error(
        "{at}: the record's timestamp is 0, which librdkafka would replace with the present time"
    )]
    TimestampZero {
        /// topic-partition@offset.
        at: String,
    },

    /// A record carries a provenance header of a version that this release does not know.
    #[error("{at}: the provenance header has version {version}, this release knows {known}")]
    UnknownHeaderVersion {
        /// topic-partition@offset.
        at: String,
        /// The version that was found.
        version: u8,
        /// The newest version that this release reads.
        known: u8,
    },

    /// A record has travelled through more clusters than a header may hold.
    #[error("{at}: the record has passed {hops} clusters, more than a provenance header may name")]
    TooManyHops {
        /// topic-partition@offset.
        at: String,
        /// How many clusters.
        hops: usize,
    },

    /// A field of a record is longer than Kafka's own formats can carry, or an offset is negative.
    #[error("{at}: {reason}")]
    BadRecord {
        /// topic-partition@offset.
        at: String,
        /// What is wrong.
        reason: &'static str,
    },

    /// The source offsets of one open transaction did not grow.
    #[error("{at}: fetched after offset {last} in the same transaction; offsets must grow")]
    OffsetWentBack {
        /// topic-partition@offset.
        at: String,
        /// The last offset before it.
        last: i64,
    },

    /// Rule 7: what was fetched is not what was acknowledged plus what was dropped on purpose.
    #[error("{topic}-{partition}: fetched {fetched}, acknowledged {acked}, dropped {dropped}: {} not accounted for",
        fetched.abs_diff(acked.saturating_add(*dropped)))]
    Unaccounted {
        /// Source topic.
        topic: String,
        /// Source partition.
        partition: i32,
        /// Records that were fetched.
        fetched: u64,
        /// Records that the target acknowledged.
        acked: u64,
        /// Records that were dropped on purpose.
        dropped: u64,
    },

    /// The target acknowledged data that no plan asked for.
    #[error("{topic}-{partition} on the target: {surplus} acknowledged records were not planned")]
    UnplannedAcks {
        /// Target topic.
        topic: String,
        /// Target partition.
        partition: i32,
        /// How many.
        surplus: u64,
    },

    /// Acknowledged target offsets of a partition did not grow.
    #[error("{topic}-{partition} on the target: acknowledged offset {offset} comes after {last}")]
    AcksOutOfOrder {
        /// Target topic.
        topic: String,
        /// Target partition.
        partition: i32,
        /// The offending offset.
        offset: i64,
        /// The last offset before it.
        last: i64,
    },

    /// Some deliveries failed, or were acknowledged without an offset.
    #[error("{failed} records were refused by the target or acknowledged without an offset")]
    FailedAcks {
        /// How many.
        failed: u64,
    },

    /// The bytes are not an offset map chunk.
    #[error("offset map: {reason}")]
    BadOffsetMap {
        /// What is wrong, and where.
        reason: String,
    },

    /// The chunk has a version that this release does not know.
    #[error("offset map: the chunk has version {version}, this release knows {known}")]
    UnknownOffsetMapVersion {
        /// The version that was found.
        version: u8,
        /// The newest version that this release reads.
        known: u8,
    },
}

impl Error {
    /// What the error means for the caller.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::BadPattern { .. } | Self::BadName { .. } => Kind::Argument,
            Self::NoRoute { .. }
            | Self::UnknownHeaderVersion { .. }
            | Self::TooManyHops { .. }
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

    /// The source topic that the error is about, if it is about one record.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::NoRoute { at }
            | Self::TimestampZero { at }
            | Self::UnknownHeaderVersion { at, .. }
            | Self::TooManyHops { at, .. }
            | Self::BadRecord { at, .. }
            | Self::OffsetWentBack { at, .. } => at
                .rsplit_once('@')
                .and_then(|(partition, _)| partition.rsplit_once('-'))
                .map(|(topic, _)| topic),
            _ => None,
        }
    }

    /// What to do about it, as an imperative.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::BadPattern { .. } => {
                "write a regular expression without look-around and back-references"
            }
            Self::BadName { .. } => "check the name where it was configured or read",
            Self::NoRoute { .. } => "restart the lane so that its routes match its partitions",
            Self::TimestampZero { .. } => {
                "exclude the topic, or let the application set a timestamp; the client plane cannot write 0"
            }
            Self::UnknownHeaderVersion { .. } => {
                "run this link with the newest release of eomirror that writes to the source"
            }
            Self::TooManyHops { .. } => "look for a cycle in the links and set `forward`",
            Self::BadRecord { .. } => {
                "read the record with another client; if it is well there, report this"
            }
            Self::OffsetWentBack { .. }
            | Self::Unaccounted { .. }
            | Self::UnplannedAcks { .. }
            | Self::AcksOutOfOrder { .. }
            | Self::FailedAcks { .. } => {
                "abort the transaction and rebuild the lane from its committed positions"
            }
            Self::BadOffsetMap { .. } => {
                "find out who wrote the record; only eomirror may write to this topic"
            }
            Self::UnknownOffsetMapVersion { .. } => {
                "run the release of eomirror that wrote it, or a newer one"
            }
        }
    }
}

/// A place in a source log as people write it.
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
