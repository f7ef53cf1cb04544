//! Which batches of a Fetch answer a `read_committed` reader may see.
//!
//! With isolation level `read_committed` the broker sends everything below the last stable offset and, beside it, a
//! list of aborted transactions: producer id and the first offset of the transaction on this partition. The reader
//! removes what they wrote (KIP-98). One state for each producer:
//!
//! ```text
//!            batch ends at or beyond the first offset of a listed transaction
//! quiet ------------------------------------------------------------------------> aborting
//!   ^                                                                                |
//!   +---- ABORT marker of this producer <--------------------------------------------+
//!
//! quiet:     its batches are data        aborting:  its transactional batches are aborted
//! ```
//!
//! The list belongs to one answer: it names every aborted transaction that reaches into the answer, also those that
//! began before. A filter must therefore not outlive its answer.

use std::collections::HashSet;

use super::control::{Control, Marker};
use super::error::BatchError;
use super::view::Batch;

/// An entry of a Fetch answer's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Who wrote it.
    pub producer_id: i64,
    /// Offset of its first batch on this partition.
    pub first_offset: i64,
}

/// What to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Committed, or written outside of a transaction. It may hold no records.
    Data,
    /// Part of an aborted transaction, whole.
    Aborted,
    /// The broker's own; `None` where compaction has removed the marker and kept the batch.
    Control(Option<Control>),
}

/// A verdict, and where to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// What to do with the batch.
    pub verdict: Verdict,
    /// The position when this batch is done, whatever the verdict: behind its last offset, which compaction leaves
    /// as it was when it removes records, the last one included.
    pub next_offset: i64,
}

/// Judges the batches of one partition in one Fetch answer, in their order.
#[derive(Debug, Clone)]
pub struct AbortedFilter {
    /// By falling first offset: the next one is at the end.
    listed: Vec<AbortedTransaction>,
    aborting: HashSet<i64>,
    next_offset: i64,
}

impl AbortedFilter {
    /// With the answer's list, in any order; an empty one for a `read_uncommitted` fetch.
    #[must_use]
    pub fn new(mut aborted: Vec<AbortedTransaction>) -> Self {
        aborted.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.first_offset));
        Self {
            listed: aborted,
            aborting: HashSet::new(),
            next_offset: 0,
        }
    }

    /// Judges the next batch. On an error the filter is as it was before.
    pub fn judge(&mut self, batch: &Batch<'_>) -> Result<Judged, BatchError> {
        if batch.base_offset() < self.next_offset {
            return Err(BatchError::OffsetWentBack {
                offset: batch.base_offset(),
                last: self.next_offset - 1,
            });
        }
        let control = if batch.is_control() {
            Some(Control::of(batch)?)
        } else {
            None
        };
        while let Some(entry) = self.listed.last() {
            if entry.first_offset > batch.last_offset() {
                break;
            }
            self.aborting.insert(entry.producer_id);
            self.listed.pop();
        }
        let verdict = match control {
            Some(control) => {
                if let Some(Control {
                    marker: Marker::Abort { .. },
                    ..
                }) = control
                {
                    self.aborting.remove(&batch.producer_id());
                }
                Verdict::Control(control)
            }
            None if batch.is_transactional() && self.aborting.contains(&batch.producer_id()) => {
                Verdict::Aborted
            }
            None => Verdict::Data,
        };
        self.next_offset = batch.next_offset();
        Ok(Judged {
            verdict,
            next_offset: self.next_offset,
        })
    }
}
