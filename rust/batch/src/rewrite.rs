//! Passes a batch on: the same body under another producer's header.
//!
//! Of the 61 header bytes only these change:
//!
//! * base offset (0: the target's broker assigns offsets) and leader epoch (-1);
//! * the transactional bit, the delete horizon bit, and the timestamp type (brokers reject or ignore append time);
//! * producer id, producer epoch and base sequence;
//! * the checksum, which is updated from the source's ([`checksum`]).
//!
//! The codec stays. The delete horizon belongs to the source's compaction and would mark the target's tombstones for
//! removal. Without its bit the base timestamp is again the base of the timestamp deltas (KIP-534).

use super::bytes::{HEADER_SIZE, at, bit, put};
use super::checksum;
use super::error::{BatchError, Obstacle};
use super::view::{Batch, TimestampType};

/// Producer of a batch, and the batch's place in the producer's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Producer id from `InitProducerId`; -1 for a producer that is not idempotent.
    pub producer_id: i64,
    /// Producer epoch from `InitProducerId` or `EndTxn`; -1 for a producer that is not idempotent.
    pub producer_epoch: i16,
    /// Sequence number of the first record; -1 for a producer that is not idempotent.
    pub base_sequence: i32,
    /// True if the batch belongs to the producer's open transaction.
    pub transactional: bool,
}

impl Stamp {
    /// The stamp of a producer that is not idempotent.
    pub const NONE: Self = Self {
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        transactional: false,
    };

    /// Returns the stamp of the same producer's next batch, after one of `records` records. Sequence number 2^31 - 1 is
    /// followed by 0 (KIP-98).
    #[must_use]
    pub fn after(self, records: i32) -> Self {
        if self.base_sequence < 0 {
            return self;
        }
        // the mask keeps the value below 2^31, so the conversion cannot fail
        let sum = i64::from(self.base_sequence) + i64::from(records.max(0));
        let wrapped = sum & i64::from(i32::MAX);
        Self {
            base_sequence: i32::try_from(wrapped).unwrap_or(0),
            ..self
        }
    }

    pub(super) fn put(&self, head: &mut [u8; HEADER_SIZE]) {
        put(head, at::BASE_OFFSET, 0_i64.to_be_bytes());
        put(head, at::LEADER_EPOCH, (-1_i32).to_be_bytes());
        put(head, at::PRODUCER_ID, self.producer_id.to_be_bytes());
        put(head, at::PRODUCER_EPOCH, self.producer_epoch.to_be_bytes());
        put(head, at::BASE_SEQUENCE, self.base_sequence.to_be_bytes());
    }
}

/// Returns the header under which `stamp`'s producer may produce the batch's body. The body need not be copied: send
/// these bytes, then [`Batch::body`]. If the batch's checksum is wrong, so is the new one.
pub fn rewritten_header(batch: &Batch<'_>, stamp: &Stamp) -> Result<[u8; HEADER_SIZE], BatchError> {
    let mut head = passing_header(batch, TimestampType::CreateTime)?;
    stamp_header(&mut head, stamp);
    Ok(head)
}

/// Returns the header for a target topic with `timestamps`, before its producer and sequence are known: see
/// [`stamp_header`].
pub fn passing_header(
    batch: &Batch<'_>,
    timestamps: TimestampType,
) -> Result<[u8; HEADER_SIZE], BatchError> {
    if let Some(obstacle) = batch.obstacle_for(timestamps) {
        return Err(cannot_pass(batch, obstacle));
    }
    let mut head = *batch.header();
    let attributes =
        batch.attributes() & !(bit::TRANSACTIONAL | bit::DELETE_HORIZON | bit::LOG_APPEND_TIME);
    put(&mut head, at::ATTRIBUTES, attributes.to_be_bytes());
    Stamp::NONE.put(&mut head);
    checksum::carry(batch.header(), &mut head);
    Ok(head)
}

/// Writes producer, sequence and checksum into the header of a batch whose checksum is correct. A header may be stamped
/// again, for another producer or a later sequence number.
pub fn stamp_header(head: &mut [u8; HEADER_SIZE], stamp: &Stamp) {
    let before = *head;
    let mut attributes =
        i16::from_be_bytes([head[at::ATTRIBUTES], head[at::ATTRIBUTES + 1]]) & !bit::TRANSACTIONAL;
    if stamp.transactional {
        attributes |= bit::TRANSACTIONAL;
    }
    put(head, at::ATTRIBUTES, attributes.to_be_bytes());
    stamp.put(head);
    checksum::carry(&before, head);
}

/// Rewrites the header in place. `bytes` hold exactly one batch, and are unchanged on an error.
pub fn rewrite(bytes: &mut [u8], stamp: &Stamp) -> Result<(), BatchError> {
    let head = rewritten_header(&Batch::parse(bytes)?, stamp)?;
    bytes[..HEADER_SIZE].copy_from_slice(&head);
    Ok(())
}

fn cannot_pass(batch: &Batch<'_>, obstacle: Obstacle) -> BatchError {
    BatchError::CannotPass {
        offset: batch.base_offset(),
        obstacle,
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn the_sequence_after_the_highest_is_zero() {
        let stamp = Stamp {
            base_sequence: i32::MAX - 1,
            producer_id: 7,
            producer_epoch: 0,
            transactional: true,
        };
        assert_eq!(stamp.after(1).base_sequence, i32::MAX);
        assert_eq!(stamp.after(2).base_sequence, 0);
        assert_eq!(stamp.after(5).base_sequence, 3);
        assert_eq!(stamp.after(i32::MAX).base_sequence, i32::MAX - 2);
        assert_eq!(Stamp::NONE.after(9), Stamp::NONE);
    }
}
