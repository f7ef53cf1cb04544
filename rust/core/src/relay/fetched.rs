//! Input of the relay.

use std::ops::Range;

use eomirror_batch::AbortedTransaction;

/// The records of one partition in a Fetch response.
#[derive(Debug, Clone)]
pub struct Fetched<'a> {
    /// Whole batches, possibly followed by an incomplete one.
    pub records: &'a [u8],
    /// The response's list of aborted transactions.
    pub aborted: &'a [AbortedTransaction],
    /// From the position, which may be within a batch, up to an exclusive end; `i64::MAX` for no end.
    pub offsets: Range<i64>,
}

/// Treatment of holes between batches ([`eomirror_batch::Continuity`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holes {
    /// Counts the missing offsets: compaction makes holes.
    #[default]
    Count,
    /// Reports the holes and continues after them.
    Name,
    /// Stops before a hole and reports it.
    Stop,
}
