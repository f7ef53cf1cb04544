//! Why a partition cannot go on.

use thiserror::Error as ThisError;

use crate::batch::BatchError;
use crate::error::{Error, Kind, place};

/// What stops a partition; other partitions go on.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum RelayError {
    /// The bytes of a batch are not what they should be.
    #[error("{topic}-{partition}: {error}")]
    Batch {
        /// Source topic.
        topic: String,
        /// Source partition.
        partition: i32,
        /// What is wrong, and with which batch.
        error: BatchError,
    },

    /// A record that the loop guard refuses, or records that are not accounted for.
    #[error(transparent)]
    Record(#[from] Error),

    /// One record alone is more than the target topic takes.
    #[error("{at}: the record needs a batch of {bytes} bytes, {}", taken(*limit))]
    RecordTooLarge {
        /// topic-partition@offset.
        at: String,
        /// Its offset.
        offset: i64,
        /// Size of a batch with nothing but this record.
        bytes: usize,
        /// What the topic takes; `None` where the broker has refused the batch without saying.
        limit: Option<usize>,
    },
}

fn taken(limit: Option<usize>) -> String {
    match limit {
        Some(limit) => format!("the target topic takes {limit}"),
        None => "the target topic refuses it as too large".to_owned(),
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

    /// What the error means for the caller.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Batch { error, .. } => error.kind(),
            Self::Record(error) => error.kind(),
            Self::RecordTooLarge { .. } => Kind::Topic,
        }
    }

    /// The source topic.
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

    /// What to do about it, as an imperative.
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
