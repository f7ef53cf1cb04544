//! Accounts for the records of a partition (rule 7).

use std::ops::Range;

use super::error::RelayError;
use super::outgoing::Outgoing;
use crate::error::Error;
use crate::transform::Edited;
use crate::types::{ByRule, DropReason, MOST_RULES, counted};
use eomirror_batch::{Mark, Partial};

/// Record counts of one source partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounting {
    /// Records that a `read_committed` consumer sees.
    pub fetched: u64,
    /// Fetched records in outgoing batches.
    pub sent: u64,
    /// Sent records that carry the provenance header of another record: an application copied it.
    pub copied_headers: u64,
    dropped: [u64; DropReason::ALL.len()],
    changed: ByRule,
}

impl Default for Accounting {
    /// Returns an account without records.
    fn default() -> Self {
        Self {
            fetched: 0,
            sent: 0,
            copied_headers: 0,
            dropped: [0; DropReason::ALL.len()],
            changed: [0; MOST_RULES],
        }
    }
}

impl Accounting {
    /// Returns the number of records dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }

    /// Returns the number of records dropped for any reason.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped
            .iter()
            .fold(0_u64, |sum, n| sum.saturating_add(*n))
    }

    /// Returns the number of sent records that each rule of the transform changed, by its name.
    pub fn changed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        counted(&self.changed)
    }

    /// Adds the counts of a later response.
    pub fn add(&mut self, later: &Self) {
        self.fetched = self.fetched.saturating_add(later.fetched);
        self.sent = self.sent.saturating_add(later.sent);
        self.copied_headers = self.copied_headers.saturating_add(later.copied_headers);
        for (sum, count) in self.dropped.iter_mut().zip(later.dropped) {
            *sum = sum.saturating_add(count);
        }
        for (sum, count) in self.changed.iter_mut().zip(later.changed) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Checks rule 7 before a commit: fetched records are acknowledged by the target or dropped intentionally.
    pub fn settle(&self, topic: &str, partition: i32, acked: u64) -> Result<(), Error> {
        if self.fetched == acked.saturating_add(self.dropped_in_all()) {
            return Ok(());
        }
        Err(Error::Unaccounted {
            topic: topic.to_owned(),
            partition,
            fetched: self.fetched,
            acked,
            dropped: self.dropped_in_all(),
        })
    }

    pub(super) fn drop(&mut self, reason: DropReason, count: u64) {
        self.dropped[reason.index()] += count;
    }

    pub(super) fn change(&mut self, edited: &Edited) {
        for rule in edited.rules() {
            self.changed[rule.index()] += 1;
        }
    }
}

/// Number of batches without records to mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Markers and other control batches.
    pub control: u64,
    /// Batches of aborted transactions.
    pub aborted: u64,
    /// Batches that compaction has emptied.
    pub empty: u64,
}

/// Result of relaying one partition's response: batches to send, and the next position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// Batches to send, in order.
    pub batches: Vec<Outgoing>,
    /// Counts of the response's records; they balance.
    pub accounting: Accounting,
    /// Batches without records to mirror.
    pub skipped: Skipped,
    /// The last processed batch of any kind; `None` if there was none.
    pub mark: Option<Mark>,
    /// Missing offsets, if holes are to be reported. With [`super::Holes::Stop`] there is at most one hole, and
    /// `next_position` is its start.
    pub holes: Vec<Range<i64>>,
    /// Number of missing offsets that were skipped.
    pub missing: u64,
    /// True if a batch shows that the log was compacted; holes are not reported then.
    pub compacted: bool,
    /// Next fetch position: after all processed batches, including markers, aborted batches and holes.
    pub next_position: i64,
    /// Offset after the last processed batch, -1 if there was none. It is below `next_position` only if the response
    /// ends before the requested position.
    pub looked_to: i64,
    /// Leader epoch of the last batch before `looked_to`, -1 if there was none.
    pub leader_epoch: i32,
    /// Largest timestamp of the records in `batches`, in ms since the epoch; -1 if there are none.
    pub max_timestamp: i64,
    /// An incomplete batch at the end of the response. If nothing precedes it, fetch with a larger limit.
    pub partial: Option<Partial>,
    /// Error that stops the partition at `next_position`. Everything before it is complete and may be sent.
    pub stopped: Option<RelayError>,
}
