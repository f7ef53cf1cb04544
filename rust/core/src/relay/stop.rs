//! Where a partition cannot go on, within the module.

use super::error::RelayError;
use super::topic_policy::{Place, TopicPolicy};
use crate::batch::{Batch, BatchError};
use crate::error::Error;

/// Where a partition cannot go on, and why.
pub(super) struct Stop {
    pub(super) before: Before,
    /// None when there is only no room for more: what is left is fetched again.
    pub(super) error: Option<RelayError>,
}

/// What stands before the place of a [`Stop`] is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// The batch with this number in the answer, from 0.
    Batch(usize),
    /// The record with this offset.
    Record(i64),
}

/// The partition that is being relayed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source<'w> {
    pub(super) policy: &'w TopicPolicy,
    pub(super) partition: i32,
}

impl Source<'_> {
    /// Who wrote the records of a batch of it, and where they stand.
    pub(super) fn place(self, batch: &Batch<'_>) -> Place {
        Place {
            partition: self.partition,
            producer_id: batch.producer_id(),
        }
    }

    /// The batch with number `index` is malformed.
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

    /// The record at `offset`, or one behind it, cannot be written.
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

    /// The record at `offset` alone needs a batch of `size` bytes.
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

/// The guard refuses the record at `offset`.
pub(super) fn refused(offset: i64, error: Error) -> Stop {
    Stop {
        before: Before::Record(offset),
        error: Some(error.into()),
    }
}

/// There is no room for what begins here.
pub(super) const fn full(before: Before) -> Stop {
    Stop {
        before,
        error: None,
    }
}
