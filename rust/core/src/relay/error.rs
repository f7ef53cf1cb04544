//! Errors that stop a partition.

use thiserror::Error as ThisError;

use eomirror_batch::BatchError;

use crate::batch_fault::BatchFault as _;
use crate::error::{Error, Kind, place};

/// An error that stops a partition; other partitions continue.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum RelayError {
    /// The bytes of a batch are malformed.
    #[error("{topic}-{partition}: {error}")]
    Batch {
        /// Source topic.
        topic: String,
        /// Source partition.
        partition: i32,
        /// The fault and the batch.
        error: BatchError,
    },

    /// The loop guard rejects a record, or records are not accounted for.
    #[error(transparent)]
    Record(#[from] Error),

    /// A single record exceeds the target topic's limit.
    #[error("{at}: the record needs a batch of {bytes} bytes, {}", taken(*limit))]
    RecordTooLarge {
        /// topic-partition@offset.
        at: String,
        /// Source offset of the record.
        offset: i64,
        /// Size in bytes of a batch with this record alone.
        bytes: usize,
        /// The topic's limit in bytes; `None` if the broker rejected the batch without stating it.
        limit: Option<usize>,
    },
}

fn taken(limit: Option<usize>) -> String {
    match limit {
        Some(limit) => format!("the target topic accepts {limit}"),
        None => "the target topic rejects it as too large".to_owned(),
    }
}

impl RelayError {
    pub(super) fn batch(topic: &str, partition: i32, error: BatchError) -> Self {
        Self::Batch {
            topic: topic.to_owned(),
            partition,
            error,
        }
    }

    pub(super) fn too_large(
        topic: &str,
        partition: i32,
        offset: i64,
        bytes: usize,
        limit: Option<usize>,
    ) -> Self {
        Self::RecordTooLarge {
            at: place(topic, partition, offset),
            offset,
            bytes,
            limit,
        }
    }

    /// Returns the category of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Batch { error, .. } => error.kind(),
            Self::Record(error) => error.kind(),
            Self::RecordTooLarge { .. } => Kind::Topic,
        }
    }

    /// Returns the source topic.
    #[must_use]
    pub fn topic(&self) -> Option<&str> {
        match self {
            Self::Batch { topic, .. } => Some(topic),
            Self::Record(error) => error.topic(),
            Self::RecordTooLarge { at, .. } => at
                .rsplit_once('@')
                .and_then(|(partition, _)| partition.rsplit_once('-'))
                .map(|(topic, _)| topic),
        }
    }

    /// Returns the action that resolves the error, as an imperative.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Batch { error, .. } => error.fix(),
            Self::Record(error) => error.fix(),
            Self::RecordTooLarge { .. } => {
                "raise max.message.bytes of the target topic to that size, or exclude the topic"
            }
        }
    }
}
