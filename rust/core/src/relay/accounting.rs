//! What became of the records of a partition: the accounting of rule 7.

use std::ops::Range;

use super::error::RelayError;
use super::outgoing::Outgoing;
use crate::batch::{Mark, Partial};
use crate::error::Error;
use crate::types::DropReason;

/// Counted records of one source partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounting {
    /// Records that a `read_committed` consumer sees.
    pub fetched: u64,
    /// Of them, records in outgoing batches.
    pub sent: u64,
    /// Of those, records that carry the provenance header of another record: an application copied it.
    pub copied_headers: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Accounting {
    /// Records that were dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Records that were dropped, for any reason.
    #[must_use]
    pub fn dropped_in_all(&self) -> u64 {
        self.dropped
            .iter()
            .fold(0_u64, |sum, n| sum.saturating_add(*n))
    }

    /// Adds the accounting of a later answer.
    pub fn add(&mut self, later: &Self) {
        self.fetched = self.fetched.saturating_add(later.fetched);
        self.sent = self.sent.saturating_add(later.sent);
        self.copied_headers = self.copied_headers.saturating_add(later.copied_headers);
        for (sum, count) in self.dropped.iter_mut().zip(later.dropped) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Rule 7, before a commit: what was fetched is what the target `acked` and what was dropped on purpose.
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
        self.dropped[reason as usize] += count;
    }
}

/// Batches that hold nothing to mirror.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Markers and other control batches.
    pub control: u64,
    /// Batches of aborted transactions.
    pub aborted: u64,
    /// Batches that compaction has emptied.
    pub empty: u64,
}

/// What is to be sent of one answer for one partition, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// In the order in which they must be produced.
    pub batches: Vec<Outgoing>,
    /// What became of the records; they balance.
    pub accounting: Accounting,
    /// Batches without anything to mirror.
    pub skipped: Skipped,
    /// The last batch that was looked at, whatever it holds; None when there was none.
    pub mark: Option<Mark>,
    /// Offsets that no batch has, where holes are to be named. With [`super::Holes::Stop`] there is at most one, and
    /// `next_position` is its start.
    pub holes: Vec<Range<i64>>,
    /// How many offsets were passed over that no batch has.
    pub missing: u64,
    /// Whether a batch shows that the log was compacted; its holes are not named then.
    pub compacted: bool,
    /// Where to fetch next: behind all that was looked at, markers, aborted batches and holes included.
    pub next_position: i64,
    /// Behind the last batch that was looked at, -1 when there was none. Before `next_position` only where the answer
    /// ends before the first offset that was wanted.
    pub looked_to: i64,
    /// Leader epoch of the last batch before `looked_to`, -1 when there was none.
    pub leader_epoch: i32,
    /// Largest timestamp of the records in `batches`, in ms since the epoch; -1 when there are none.
    pub max_timestamp: i64,
    /// A batch that the answer had no room for. When there was nothing before it, fetch with a larger limit.
    pub partial: Option<Partial>,
    /// Why the partition cannot go on at `next_position`. What stands before it is complete and may be sent.
    pub stopped: Option<RelayError>,
}
