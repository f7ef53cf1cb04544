//! Position at which a pass stops.

use super::error::RelayError;
use super::topic_policy::{Place, TopicPolicy};
use crate::error::Error;
use eomirror_batch::{Batch, BatchError};

/// Position at which a pass stops, and the error.
pub(super) struct Stop {
    pub(super) before: Before,
    /// `None` if the output is full: the rest is fetched again.
    pub(super) error: Option<RelayError>,
}

/// Place of a [`Stop`]; everything before it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Number of the batch in the response, from 0.
    Batch(usize),
    /// Offset of the record.
    Record(i64),
}

/// Partition that is being relayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'w> {
    pub(super) policy: &'w TopicPolicy,
    pub(super) partition: i32,
}

impl Source<'_> {
    /// Returns the writer and partition of a batch's records, which keep their partition.
    pub(super) fn place(self, batch: &Batch<'_>) -> Place {
        Place {
            partition: self.partition,
            target: self.partition,
            producer_id: batch.producer_id(),
        }
    }

    /// Returns a stop before malformed batch `index`.
    pub(super) fn malformed(self, index: usize, error: BatchError) -> Stop {
        Stop {
            before: Before::Batch(index),
            error: Some(RelayError::batch(
                self.policy.source_topic(),
                self.partition,
                error,
            )),
        }
    }

    /// Returns a stop before the record at `offset`: it or a later one cannot be written.
    pub(super) fn unwritable(self, offset: i64, error: BatchError) -> Stop {
        Stop {
            before: Before::Record(offset),
            error: Some(RelayError::batch(
                self.policy.source_topic(),
                self.partition,
                error,
            )),
        }
    }

    /// Returns a stop before the record at `offset`, which alone needs a batch of `size` bytes.
    pub(super) fn too_large(self, offset: i64, size: usize, limit: usize) -> Stop {
        let topic = self.policy.source_topic();
        Stop {
            before: Before::Record(offset),
            error: Some(RelayError::too_large(
                topic,
                self.partition,
                offset,
                size,
                Some(limit),
            )),
        }
    }
}

/// Returns a stop before the record at `offset`, which the guard rejects.
pub(super) fn refused(offset: i64, error: Error) -> Stop {
    Stop {
        before: Before::Record(offset),
        error: Some(error.into()),
    }
}

/// Returns a stop because the output is full.
pub(super) const fn full(before: Before) -> Stop {
    Stop {
        before,
        error: None,
    }
}
