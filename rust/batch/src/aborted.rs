//! Removes aborted transactions from a Fetch response, as a `read_committed` consumer does.
//!
//! With isolation level `read_committed` the broker sends all batches below the last stable offset, and a list of
//! aborted transactions: the producer id and the transaction's first offset on this partition. The consumer discards
//! the batches of these transactions (KIP-98). The filter keeps one state per producer:
//!
//! ```text
//!            batch ends at or after the first offset of a listed transaction
//! quiet ------------------------------------------------------------------------> aborting
//!   ^                                                                                |
//!   +---- ABORT marker of this producer <--------------------------------------------+
//!
//! quiet:     its batches are data        aborting:  its transactional batches are aborted
//! ```
//!
//! The list is valid for one response: it names every aborted transaction that overlaps the response, including earlier
//! ones that are still open at its start. A filter must therefore not outlive its response.

use std::collections::HashSet;

use super::control::{Control, Marker};
use super::error::BatchError;
use super::view::Batch;

/// An entry of the response's list of aborted transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The transaction's producer id.
    pub producer_id: i64,
    /// Offset of the transaction's first batch on this partition.
    pub first_offset: i64,
}

/// Classification of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Committed, or written outside of a transaction. The batch may hold no records.
    Data,
    /// The whole batch belongs to an aborted transaction.
    Aborted,
    /// A control batch; `None` if compaction has removed the marker and kept the batch.
    Control(Option<Control>),
}

/// A verdict and the next fetch position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// Classification of the batch.
    pub verdict: Verdict,
    /// The offset after the batch's last offset. Compaction does not change the last offset, even if it removes the
    /// last record.
    pub next_offset: i64,
}

/// Classifies the batches of one partition in one Fetch response, in order.
#[derive(Debug, Clone)]
pub struct AbortedFilter {
    /// Sorted by descending first offset, so the next entry is the last element.
    listed: Vec<AbortedTransaction>,
    aborting: HashSet<i64>,
    next_offset: i64,
}

impl AbortedFilter {
    /// Returns a filter for the response's list, in any order; the list is empty for a `read_uncommitted` fetch.
    #[must_use]
    pub fn new(mut aborted: Vec<AbortedTransaction>) -> Self {
        aborted.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.first_offset));
        Self {
            listed: aborted,
            aborting: HashSet::new(),
            next_offset: 0,
        }
    }

    /// Classifies the next batch. On an error the filter is unchanged.
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
