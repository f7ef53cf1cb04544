//! A typed view of a batch through its header.

use super::bytes::{CRC_FROM, HEADER_SIZE, LENGTH_BASE, MAGIC, array, at, bit};
use super::codec::Codec;
use super::error::{BatchError, Obstacle};

/// Origin of the timestamps that consumers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimestampType {
    /// The producer; each record has its own timestamp.
    CreateTime,
    /// The broker; all records have the batch's largest timestamp.
    LogAppendTime,
}

/// A complete, borrowed batch. Its header is consistent; its checksum and records are not yet checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch<'a> {
    head: &'a [u8; HEADER_SIZE],
    bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// Parses `bytes` as exactly one batch.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let batch = Self::first(bytes)?;
        match bytes.len() - batch.bytes.len() {
            0 => Ok(batch),
            trailing => Err(BatchError::Trailing {
                offset: batch.base_offset(),
                bytes: trailing,
            }),
        }
    }

    /// Parses the batch at the start of `bytes`.
    pub(super) fn first(bytes: &'a [u8]) -> Result<Self, BatchError> {
        let have = bytes.len();
        let Some(start) = bytes.first_chunk::<{ at::CRC }>() else {
            return Err(BatchError::Truncated {
                have,
                need: HEADER_SIZE,
            });
        };
        let offset = i64::from_be_bytes(array(start, at::BASE_OFFSET));
        // checked first, because the fields that follow have another meaning in the old formats
        match start[at::MAGIC] {
            MAGIC => (),
            magic @ (0 | 1) => return Err(BatchError::OldMagic { offset, magic }),
            magic => return Err(BatchError::UnknownMagic { offset, magic }),
        }
        let length = i32::from_be_bytes(array(start, at::LENGTH));
        let size = usize::try_from(length)
            .ok()
            .and_then(|length| length.checked_add(LENGTH_BASE))
            .filter(|size| *size >= HEADER_SIZE)
            .ok_or(BatchError::BadField {
                offset,
                field: "its length",
                value: i64::from(length),
            })?;
        let whole = bytes
            .get(..size)
            .and_then(|bytes| Some((bytes, bytes.first_chunk()?)));
        let Some((bytes, head)) = whole else {
            return Err(BatchError::Truncated { have, need: size });
        };
        let batch = Self { head, bytes };
        batch.check_fields()?;
        Ok(batch)
    }

    fn check_fields(&self) -> Result<(), BatchError> {
        let offset = self.base_offset();
        let wrong = |field, value| {
            Err(BatchError::BadField {
                offset,
                field,
                value,
            })
        };
        let (delta, count) = (self.last_offset_delta(), self.record_count());
        if offset < 0 {
            return wrong("its base offset", offset);
        }
        if delta < 0 {
            return wrong("its last offset delta", i64::from(delta));
        }
        if offset
            .checked_add(i64::from(delta))
            .is_none_or(|last| last == i64::MAX)
        {
            return wrong(
                "its last offset delta, beyond all offsets,",
                i64::from(delta),
            );
        }
        if count < 0 {
            return wrong("its record count", i64::from(count));
        }
        // count <= delta + 1, without overflow
        if i64::from(count) > i64::from(delta) + 1 {
            return wrong(
                "its record count, more than it has offsets,",
                i64::from(count),
            );
        }
        let codec = self.attributes() & bit::CODEC;
        if Codec::from_bits(codec).is_none() {
            return Err(BatchError::UnknownCodec {
                offset,
                codec: u8::try_from(codec).unwrap_or(u8::MAX),
            });
        }
        Ok(())
    }

    /// Returns the bytes of the batch, header included.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the bytes of the header.
    #[must_use]
    pub fn header(&self) -> &'a [u8; HEADER_SIZE] {
        self.head
    }

    /// Returns the bytes of the records, compressed or not.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_SIZE..]
    }

    /// Returns the offset that deltas are relative to: that of the first record, unless compaction has removed it.
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        i64::from_be_bytes(array(self.head, at::BASE_OFFSET))
    }

    /// Returns the epoch of the leader that appended the batch, -1 before it is appended.
    #[must_use]
    pub fn leader_epoch(&self) -> i32 {
        i32::from_be_bytes(array(self.head, at::LEADER_EPOCH))
    }

    /// Returns the stored checksum.
    #[must_use]
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes(array(self.head, at::CRC))
    }

    /// Returns all attribute bits, including unused ones.
    #[must_use]
    pub fn attributes(&self) -> i16 {
        i16::from_be_bytes(array(self.head, at::ATTRIBUTES))
    }

    /// Returns the compression codec.
    #[must_use]
    pub fn codec(&self) -> Codec {
        // `first` rejects unknown numbers
        Codec::from_bits(self.attributes() & bit::CODEC).unwrap_or(Codec::None)
    }

    /// Returns the origin of the records' timestamps.
    #[must_use]
    pub fn timestamp_type(&self) -> TimestampType {
        if self.attributes() & bit::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Returns true if the batch belongs to a transaction; markers do, too.
    #[must_use]
    pub fn is_transactional(&self) -> bool {
        self.attributes() & bit::TRANSACTIONAL != 0
    }

    /// Returns true for a control batch, which holds a marker and no data.
    #[must_use]
    pub fn is_control(&self) -> bool {
        self.attributes() & bit::CONTROL != 0
    }

    /// Returns the time at which compaction may remove the batch's tombstones, in ms since the epoch, if compaction has
    /// set it.
    ///
    /// It is stored in place of the base timestamp. Compaction has rewritten the records' deltas relative to it, so
    /// their timestamps are computed as in other batches.
    #[must_use]
    pub fn delete_horizon(&self) -> Option<i64> {
        (self.attributes() & bit::DELETE_HORIZON != 0).then(|| self.base_timestamp())
    }

    /// Returns the distance of the batch's last offset from its first. Compaction does not change it.
    #[must_use]
    pub fn last_offset_delta(&self) -> i32 {
        i32::from_be_bytes(array(self.head, at::LAST_OFFSET_DELTA))
    }

    /// Returns the batch's last offset, even if compaction has removed the record there.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset() + i64::from(self.last_offset_delta())
    }

    /// Returns the offset after the batch, which is the next fetch position.
    #[must_use]
    pub fn next_offset(&self) -> i64 {
        self.last_offset() + 1
    }

    /// Returns the timestamp that deltas are relative to, in ms since the epoch; -1 if not available.
    #[must_use]
    pub fn base_timestamp(&self) -> i64 {
        i64::from_be_bytes(array(self.head, at::BASE_TIMESTAMP))
    }

    /// Returns the largest timestamp of the batch, or its append time.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        i64::from_be_bytes(array(self.head, at::MAX_TIMESTAMP))
    }

    /// Returns the idempotent producer's id, -1 for none.
    #[must_use]
    pub fn producer_id(&self) -> i64 {
        i64::from_be_bytes(array(self.head, at::PRODUCER_ID))
    }

    /// Returns the producer's epoch, -1 for none.
    #[must_use]
    pub fn producer_epoch(&self) -> i16 {
        i16::from_be_bytes(array(self.head, at::PRODUCER_EPOCH))
    }

    /// Returns the sequence number of the first record, -1 for none.
    #[must_use]
    pub fn base_sequence(&self) -> i32 {
        i32::from_be_bytes(array(self.head, at::BASE_SEQUENCE))
    }

    /// Returns the number of records; 0 in a batch that compaction has emptied and keeps for its offsets.
    #[must_use]
    pub fn record_count(&self) -> i32 {
        i32::from_be_bytes(array(self.head, at::RECORD_COUNT))
    }

    /// Compares the stored checksum with that of the bytes.
    pub fn check_crc(&self) -> Result<(), BatchError> {
        let (stored, computed) = (self.crc(), crc32c::crc32c(&self.bytes[CRC_FROM..]));
        if stored == computed {
            return Ok(());
        }
        Err(BatchError::WrongCrc {
            offset: self.base_offset(),
            stored,
            computed,
        })
    }

    /// Returns the reason that the body cannot be produced unchanged, if any. The caller's own reasons to re-encode (a
    /// start offset within the batch, a filter, another header) are not considered.
    #[must_use]
    pub fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle_for(TimestampType::CreateTime)
    }

    /// Returns the obstacle for a target topic with `timestamps`. A topic that sets append times replaces the records'
    /// timestamps in any case.
    #[must_use]
    pub fn obstacle_for(&self, timestamps: TimestampType) -> Option<Obstacle> {
        let count = i64::from(self.record_count());
        if self.is_control() {
            Some(Obstacle::Control)
        } else if count == 0 {
            Some(Obstacle::Empty)
        } else if count != i64::from(self.last_offset_delta()) + 1 {
            Some(Obstacle::Gaps)
        } else if self.timestamp_type() == TimestampType::LogAppendTime
            && timestamps == TimestampType::CreateTime
        {
            Some(Obstacle::LogAppendTime)
        } else {
            None
        }
    }
}
