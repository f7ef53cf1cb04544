//! Detects holes between the batches of a log, and identifies batches.
//!
//! A broker assigns consecutive offsets to all batches that it appends: data, aborted data and markers. So in a log
//! that was never compacted, each batch begins at the end of the previous one. A jump means that a part of the log is
//! lost, for example a segment file. In a compacted log a jump has no meaning.

use std::ops::Range;

use super::view::Batch;

/// Identifies a batch among all batches that could have the same offset.
///
/// A broker does not change a batch after it has appended it, and all replicas hold the same bytes. Only the log
/// cleaner rewrites batches, in a compacted topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Base offset of the batch.
    pub base_offset: i64,
    /// Checksum of the batch.
    pub crc: u32,
    /// Largest timestamp of the batch, in ms since the epoch.
    pub max_timestamp: i64,
}

impl Mark {
    /// Returns the mark of a batch.
    #[must_use]
    pub fn of(batch: &Batch<'_>) -> Self {
        Self {
            base_offset: batch.base_offset(),
            crc: batch.crc(),
            max_timestamp: batch.max_timestamp(),
        }
    }
}

/// Tracks the offsets of a log's batches, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuity {
    next: i64,
    missing: u64,
    compacted: bool,
}

impl Continuity {
    /// Starts at an offset; ignores batches that end before it.
    #[must_use]
    pub const fn new(start: i64) -> Self {
        Self {
            next: start,
            missing: 0,
            compacted: false,
        }
    }

    /// Takes the next batch and returns the offsets between the previous batch and this one, if any.
    pub fn look(&mut self, batch: &Batch<'_>) -> Option<Range<i64>> {
        self.compacted |= is_compacted(batch);
        let jump = (batch.base_offset() > self.next).then(|| self.next..batch.base_offset());
        if let Some(jump) = &jump {
            self.missing = self.missing.saturating_add(jump.end.abs_diff(jump.start));
        }
        self.next = self.next.max(batch.next_offset());
        jump
    }

    /// Returns the number of offsets that no batch had.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns true if a batch shows that the log cleaner has rewritten a part of the log.
    #[must_use]
    pub const fn is_compacted(&self) -> bool {
        self.compacted
    }
}

/// Returns true if a batch has lost records. Only the log cleaner writes such batches: a broker appends none with gaps.
#[must_use]
pub fn is_compacted(batch: &Batch<'_>) -> bool {
    i64::from(batch.record_count()) <= i64::from(batch.last_offset_delta())
}

#[cfg(test)]
mod tests {
    use super::{Continuity, Mark};
    use crate::Batch;

    /// Returns a batch with these offsets.
    fn batch(offsets: std::ops::Range<i64>) -> Vec<u8> {
        let count = i32::try_from(offsets.end - offsets.start).unwrap();
        let mut bytes = vec![0; 61];
        bytes[..8].copy_from_slice(&offsets.start.to_be_bytes());
        bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
        bytes[16] = 2;
        bytes[17..21].copy_from_slice(&7_u32.to_be_bytes());
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[35..43].copy_from_slice(&1_000_i64.to_be_bytes());
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        bytes
    }

    #[test]
    fn batches_that_follow_each_other_have_no_hole() {
        let mut log = Continuity::new(3);
        for offsets in [0..5, 5..6, 6..20] {
            assert_eq!(log.look(&Batch::parse(&batch(offsets)).unwrap()), None);
        }
        assert_eq!((log.missing(), log.is_compacted()), (0, false));
    }

    #[test]
    fn a_jump_is_named_with_its_range() {
        let mut log = Continuity::new(10);
        assert_eq!(
            log.look(&Batch::parse(&batch(12..15)).unwrap()),
            Some(10..12)
        );
        assert_eq!(log.look(&Batch::parse(&batch(15..16)).unwrap()), None);
        assert_eq!(
            log.look(&Batch::parse(&batch(116..117)).unwrap()),
            Some(16..116)
        );
        assert_eq!(log.missing(), 102);
    }

    #[test]
    fn a_batch_that_lost_records_shows_compaction() {
        let mut bytes = batch(0..5);
        bytes[57..61].copy_from_slice(&2_i32.to_be_bytes());
        let mut log = Continuity::new(0);
        assert_eq!(log.look(&Batch::parse(&bytes).unwrap()), None);
        assert!(log.is_compacted());
    }

    #[test]
    fn a_mark_is_offset_checksum_and_timestamp() {
        let expected = Mark {
            base_offset: 4,
            crc: 7,
            max_timestamp: 1_000,
        };
        assert_eq!(Mark::of(&Batch::parse(&batch(4..5)).unwrap()), expected);
    }
}
