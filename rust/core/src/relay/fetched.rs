//! The input of the relay.

use std::ops::Range;

use crate::batch::AbortedTransaction;

/// What a Fetch answer holds of one partition.
#[derive(Debug, Clone)]
pub struct Fetched<'a> {
    /// Whole batches, and perhaps a part of another at the end.
    pub records: &'a [u8],
    /// The answer's aborted transactions.
    pub aborted: &'a [AbortedTransaction],
    /// From the position, which may lie within a batch, to an end that is not reached; `i64::MAX` for no end.
    pub offsets: Range<i64>,
}

/// What to do where batches do not follow each other ([`crate::batch::Continuity`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holes {
    /// Count the offsets: compaction makes holes.
    #[default]
    Count,
    /// Name the holes and go on behind them.
    Name,
    /// Stop before a hole and name it.
    Stop,
}
