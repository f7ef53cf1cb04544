//! Whether the batches of a log follow each other without a hole, and what tells one batch from another.
//!
//! A broker gives consecutive offsets to all that it appends: data, aborted data and markers. So in a log that was never
//! compacted each batch begins where the one before it ends. A jump there means that part of the log is lost, for
//! example a segment file. In a compacted log a jump means nothing.

use std::ops::Range;

use super::view::Batch;

/// Tells a batch from every other that could stand at its offset.
///
/// A broker does not change a batch after it has appended it, and all replicas hold the same bytes. Only the log cleaner
/// writes a batch anew, in a compacted topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its base offset.
    pub base_offset: i64,
    /// Its checksum.
    pub crc: u32,
    /// Its largest timestamp, in ms.
    pub max_timestamp: i64,
}

impl Mark {
    /// The mark of a batch.
    #[must_use]
    pub fn of(batch: &Batch<'_>) -> Self {
        Self {
            base_offset: batch.base_offset(),
            crc: batch.crc(),
            max_timestamp: batch.max_timestamp(),
        }
    }
}

/// Follows the batches of a log in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Continuity {
    next: i64,
    missing: u64,
    compacted: bool,
}

impl Continuity {
    /// Begins at an offset; batches that end before it are passed over.
    #[must_use]
    pub const fn new(start: i64) -> Self {
        Self {
            next: start,
            missing: 0,
            compacted: false,
        }
    }

    /// Looks at the next batch; the offsets between it and the one before it, if there are any.
    pub fn look(&mut self, batch: &Batch<'_>) -> Option<Range<i64>> {
        self.compacted |= is_compacted(batch);
        let jump = (batch.base_offset() > self.next).then(|| self.next..batch.base_offset());
        if let Some(jump) = &jump {
            self.missing = self.missing.saturating_add(jump.end.abs_diff(jump.start));
        }
        self.next = self.next.max(batch.next_offset());
        jump
    }

    /// Offsets that no batch had.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.missing
    }

    /// Whether a batch shows that the log cleaner has worked on the log.
    #[must_use]
    pub const fn is_compacted(&self) -> bool {
        self.compacted
    }
}

/// Whether a batch has lost records, which happens to the log cleaner's batches only: a broker appends none with holes.
#[must_use]
pub fn is_compacted(batch: &Batch<'_>) -> bool {
    i64::from(batch.record_count()) <= i64::from(batch.last_offset_delta())
}

#[cfg(test)]
mod tests {
    use super::{Continuity, Mark};
    use crate::batch::Batch;

    /// A batch of these offsets.
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
