//! Iterates over the records of a batch, borrowed.

use super::codec::Codec;
use super::compression::{Limits, Memory};
use super::cursor::Cursor;
use super::error::BatchError;
use super::view::{Batch, TimestampType};

/// A borrowed header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRef<'a> {
    /// Bytes of the key; UTF-8 by convention, not by the wire format.
    pub key: &'a [u8],
    /// Value; null differs from empty.
    pub value: Option<&'a [u8]>,
}

/// A record of a batch.
#[derive(Debug, Clone)]
pub struct Record<'a> {
    /// Offset in the log.
    pub offset: i64,
    /// Timestamp that consumers see, in ms since the epoch: the record's own or the batch's append time; -1 if not
    /// available.
    pub timestamp: i64,
    /// Key; null differs from empty.
    pub key: Option<&'a [u8]>,
    /// Value; null (a tombstone) differs from empty.
    pub value: Option<&'a [u8]>,
    /// Headers in their order, duplicates included.
    pub headers: Headers<'a>,
    /// Encoded fields, which a writer copies if it changes neither key, value nor headers.
    pub(super) raw: Raw<'a>,
}

/// The encoded bytes of a record after its timestamp and offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    /// Key and value with their lengths.
    pub(super) fields: &'a [u8],
    /// Headers without their count.
    pub(super) headers: &'a [u8],
    pub(super) header_count: i32,
}

/// Headers of one record. Reading the record validated them, so iteration cannot fail.
#[derive(Debug, Clone)]
pub struct Headers<'a> {
    rest: Cursor<'a>,
    left: usize,
}

impl<'a> Iterator for Headers<'a> {
    type Item = HeaderRef<'a>;

    fn next(&mut self) -> Option<HeaderRef<'a>> {
        self.left = self.left.checked_sub(1)?;
        header(&mut self.rest)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Headers<'_> {}

fn header<'a>(cursor: &mut Cursor<'a>) -> Option<HeaderRef<'a>> {
    Some(HeaderRef {
        // the key of a header may be empty but not null
        key: cursor.field()??,
        value: cursor.field()?,
    })
}

/// Iterates over a batch's records; ends after the first error. If it ends without one, the number of records equals
/// the header's count, the offsets increase within the batch, and no byte is left over.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: Cursor<'a>,
    base_offset: i64,
    base_timestamp: i64,
    append_time: Option<i64>,
    last_offset_delta: i32,
    previous_delta: i32,
    count: i32,
    index: i32,
    ended: bool,
}

impl<'a> Records<'a> {
    /// Returns the records of `batch` in their order. Uncompressed ones are borrowed from the batch, others from
    /// `memory`.
    ///
    /// Control batches have records too; see [`super::Control`] for their meaning.
    pub fn of<'b: 'a>(
        batch: &Batch<'b>,
        memory: &'a mut Memory,
        limits: Limits,
    ) -> Result<Self, BatchError> {
        let plain = match batch.codec() {
            Codec::None => batch.body(),
            // no codec compresses zero bytes to zero bytes, but a batch without records may have an empty body
            _ if batch.record_count() == 0 && batch.body().is_empty() => batch.body(),
            codec => memory.decompress(codec, batch, limits)?,
        };
        Ok(Self::new(batch, plain))
    }

    fn new(batch: &Batch<'_>, plain: &'a [u8]) -> Self {
        let append_time = match batch.timestamp_type() {
            TimestampType::CreateTime => None,
            TimestampType::LogAppendTime => Some(batch.max_timestamp()),
        };
        Self {
            rest: Cursor::new(plain),
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            append_time,
            last_offset_delta: batch.last_offset_delta(),
            previous_delta: -1,
            count: batch.record_count(),
            index: 0,
            ended: false,
        }
    }

    fn record(&mut self) -> Result<Record<'a>, &'static str> {
        let length = self.rest.varint().ok_or("its length is malformed")?;
        let body = usize::try_from(length)
            .ok()
            .and_then(|length| self.rest.bytes(length))
            .ok_or("it ends outside the batch")?;
        let mut body = Cursor::new(body);
        // attributes: all bits are unused
        body.byte().ok_or("it is empty")?;
        let timestamp_delta = body.varlong().ok_or("its timestamp is malformed")?;
        let delta = body.varint().ok_or("its offset is malformed")?;
        if delta <= self.previous_delta {
            return Err("its offset does not increase");
        }
        if delta > self.last_offset_delta {
            return Err("its offset is beyond the end of the batch");
        }
        let timestamp = match self.append_time {
            Some(time) => time,
            None => self
                .base_timestamp
                .checked_add(timestamp_delta)
                .ok_or("its timestamp is beyond 64 bits")?,
        };
        let fields = body.rest();
        let key = body.field().ok_or("its key is malformed")?;
        let value = body.field().ok_or("its value is malformed")?;
        let fields = &fields[..fields.len() - body.remaining()];
        let (header_count, left) = body
            .varint()
            .and_then(|count| Some((count, usize::try_from(count).ok()?)))
            .ok_or("its header count is malformed")?;
        let raw = Raw {
            fields,
            headers: body.rest(),
            header_count,
        };
        let headers = Headers { rest: body, left };
        for _ in 0..left {
            header(&mut body).ok_or("a header is malformed")?;
        }
        if body.remaining() > 0 {
            return Err("bytes follow its headers");
        }
        self.previous_delta = delta;
        Ok(Record {
            offset: self.base_offset + i64::from(delta),
            timestamp,
            key,
            value,
            headers,
            raw,
        })
    }

    fn fail(&mut self, reason: &'static str) -> BatchError {
        self.ended = true;
        BatchError::BadRecord {
            offset: self.base_offset,
            index: self.index,
            reason,
        }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.index == self.count {
            self.ended = true;
            return (self.rest.remaining() > 0)
                .then(|| Err(self.fail("it is one more than the batch's record count")));
        }
        match self.record() {
            Ok(record) => {
                self.index += 1;
                Some(Ok(record))
            }
            Err(reason) => Some(Err(self.fail(reason))),
        }
    }
}

impl std::iter::FusedIterator for Records<'_> {}
