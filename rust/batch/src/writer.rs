//! Writes records into a new batch.

use std::fmt;

use super::bytes::{self, HEADER_SIZE, LENGTH_BASE, MAGIC, at};
use super::checksum;
use super::codec::Codec;
use super::compression::Compressor;
use super::cursor::{field_size, put, put_field, size};
use super::error::BatchError;
use super::records::HeaderRef;
use super::records::Record;
use super::rewrite::{self, Stamp};

/// A larger buffer is freed after use, so one huge batch does not stay in memory.
const KEEP: usize = 16 * 1024 * 1024;
/// Larger batches are not kept for reuse, and at most [`SPARES`] are.
const KEEP_SPARE: usize = 2 * 1024 * 1024;
const SPARES: usize = 8;

/// Collects records and writes them as one batch, repeatedly. Offsets are consecutive from 0, as a Produce request
/// requires. Timestamps are the producer's (`CreateTime`).
pub struct BatchWriter {
    batch: OpenBatch,
    compressor: Compressor,
    spare: Vec<Vec<u8>>,
}

/// The records of a batch that is not finished. A writer that fills several batches in turn exchanges them, and
/// compresses all of them in the same context: see [`BatchWriter::exchange`].
pub struct OpenBatch {
    codec: Codec,
    /// Space for a header, then the records. A batch without compression is moved out of here, not copied.
    bytes: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl OpenBatch {
    /// Discards the records.
    pub fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        self.count = 0;
    }
}

impl Default for OpenBatch {
    fn default() -> Self {
        Self {
            codec: Codec::None,
            bytes: Vec::new(),
            count: 0,
            base_timestamp: -1,
            max_timestamp: -1,
        }
    }
}

impl fmt::Debug for OpenBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenBatch")
            .field("codec", &self.codec)
            .field("count", &self.count)
            .field("bytes", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

/// Sizes and deltas of a record to add, all of them representable.
struct Place {
    length: i64,
    timestamp_delta: i64,
    offset_delta: i64,
    count: i32,
    /// Size of the whole record, its length included.
    size: usize,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// Returns a writer without records.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self {
            batch: OpenBatch {
                codec,
                ..OpenBatch::default()
            },
            compressor: Compressor::default(),
            spare: Vec::new(),
        }
    }

    /// Exchanges the batch being written for another one.
    pub fn exchange(&mut self, batch: &mut OpenBatch) {
        std::mem::swap(&mut self.batch, batch);
    }

    /// Returns the codec of the batch.
    #[must_use]
    pub fn codec(&self) -> Codec {
        self.batch.codec
    }

    /// Returns the number of records added since the last batch.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.batch.count
    }

    /// Returns the size in bytes that the batch would have without compression, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        self.batch.bytes.len().max(HEADER_SIZE)
    }

    /// Returns the largest timestamp of the records since the last batch, -1 without records.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        if self.batch.count == 0 {
            -1
        } else {
            self.batch.max_timestamp
        }
    }

    /// Adds a record; an error changes nothing. `headers` are counted and iterated twice, so a slice's iterator or
    /// [`super::Headers`] is suitable.
    pub fn add<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = HeaderRef<'h>> + Clone,
    ) -> Result<(), BatchError> {
        self.add_within(usize::MAX, timestamp, key, value, headers)
            .map(|_| ())
    }

    /// Adds a record unless the uncompressed batch would exceed `most` bytes, header included. Returns true if it was
    /// added; a first record always is.
    pub fn add_within<'h>(
        &mut self,
        most: usize,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = HeaderRef<'h>> + Clone,
    ) -> Result<bool, BatchError> {
        let header_count = i32::try_from(headers.len())
            .map(i64::from)
            .map_err(|_| unwritable("a record has too many headers"))?;
        let content = (|| {
            let mut content = size(header_count).checked_add(field_size(key)?)?;
            content = content.checked_add(field_size(value)?)?;
            for header in headers.clone() {
                content = content.checked_add(field_size(Some(header.key))?)?;
                content = content.checked_add(field_size(header.value)?)?;
            }
            Some(content)
        })();
        let place = self.place(timestamp, content)?;
        if !self.has_room(&place, most) {
            return Ok(false);
        }
        self.begin(timestamp, &place, most);
        put_field(&mut self.batch.bytes, key);
        put_field(&mut self.batch.bytes, value);
        put(&mut self.batch.bytes, header_count);
        for header in headers {
            put_field(&mut self.batch.bytes, Some(header.key));
            put_field(&mut self.batch.bytes, header.value);
        }
        Ok(true)
    }

    /// Adds a record that was read, like [`BatchWriter::add_within`]. Key, value and headers are copied as encoded
    /// bytes, and `own` is appended as the last header.
    pub fn copy_within(
        &mut self,
        most: usize,
        record: &Record<'_>,
        own: Option<HeaderRef<'_>>,
    ) -> Result<bool, BatchError> {
        let raw = record.raw;
        let header_count = i64::from(raw.header_count) + i64::from(own.is_some());
        let content = (|| {
            let mut content = size(header_count).checked_add(raw.fields.len())?;
            content = content.checked_add(raw.headers.len())?;
            if let Some(header) = own {
                i32::try_from(header_count).ok()?;
                content = content.checked_add(field_size(Some(header.key))?)?;
                content = content.checked_add(field_size(header.value)?)?;
            }
            Some(content)
        })();
        let place = self.place(record.timestamp, content)?;
        if !self.has_room(&place, most) {
            return Ok(false);
        }
        self.begin(record.timestamp, &place, most);
        self.batch.bytes.extend_from_slice(raw.fields);
        put(&mut self.batch.bytes, header_count);
        self.batch.bytes.extend_from_slice(raw.headers);
        if let Some(header) = own {
            put_field(&mut self.batch.bytes, Some(header.key));
            put_field(&mut self.batch.bytes, header.value);
        }
        Ok(true)
    }

    /// Appends the batch to `out` and begins a new one. On an error `out` and the records are unchanged.
    pub fn finish(&mut self, stamp: &Stamp, out: &mut Vec<u8>) -> Result<(), BatchError> {
        if self.batch.count == 0 {
            return Err(unwritable("it has no records"));
        }
        let start = out.len();
        let written = self.write(stamp, out);
        if written.is_err() {
            out.truncate(start);
        } else {
            self.clear();
        }
        written
    }

    /// Returns the batch in its own buffer and begins a new one. It has no producer yet: see [`super::stamp_header`].
    /// On an error the records are unchanged.
    pub fn take(&mut self) -> Result<Vec<u8>, BatchError> {
        if self.batch.count == 0 {
            return Err(unwritable("it has no records"));
        }
        if self.batch.codec == Codec::None {
            let head = self.head(&self.batch.bytes)?;
            self.batch.bytes[..HEADER_SIZE].copy_from_slice(&head);
            let next = self.spare.pop().unwrap_or_default();
            let batch = std::mem::replace(&mut self.batch.bytes, next);
            self.clear();
            return Ok(batch);
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        batch.resize(HEADER_SIZE, 0);
        let head = self.compress(&mut batch).and_then(|()| self.head(&batch));
        match head {
            Ok(head) => {
                batch[..HEADER_SIZE].copy_from_slice(&head);
                self.clear();
                Ok(batch)
            }
            Err(error) => {
                self.give_back(batch);
                Err(error)
            }
        }
    }

    /// Takes the buffer of a finished batch for reuse.
    pub fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < SPARES && (1..=KEEP_SPARE).contains(&buffer.capacity()) {
            buffer.clear();
            self.spare.push(buffer);
        }
    }

    /// Discards the records.
    pub fn clear(&mut self) {
        self.batch.clear();
    }

    /// Discards the records and sets the codec of the next batch.
    pub fn restart(&mut self, codec: Codec) {
        self.clear();
        self.batch.codec = codec;
    }

    fn write(&mut self, stamp: &Stamp, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let start = out.len();
        let body_at = start + HEADER_SIZE;
        out.resize(body_at, 0);
        self.compress(out)?;
        let mut head = self.head(&out[start..])?;
        rewrite::stamp_header(&mut head, stamp);
        out[start..body_at].copy_from_slice(&head);
        Ok(())
    }

    fn compress(&mut self, out: &mut Vec<u8>) -> Result<(), BatchError> {
        self.compressor
            .compress(self.batch.codec, &self.batch.bytes[HEADER_SIZE..], out)
            .map_err(|reason| unwritable(&reason))
    }

    /// Returns the header of a batch whose records are in `bytes`, after space for the header.
    fn head(&self, bytes: &[u8]) -> Result<[u8; HEADER_SIZE], BatchError> {
        let length =
            i32::try_from(bytes.len() - LENGTH_BASE).map_err(|_| unwritable("it exceeds 2 GiB"))?;
        let last_delta = self.batch.count - 1;
        let mut head = [0; HEADER_SIZE];
        Stamp::NONE.put(&mut head);
        bytes::put(&mut head, at::LENGTH, length.to_be_bytes());
        bytes::put(&mut head, at::MAGIC, [MAGIC]);
        bytes::put(
            &mut head,
            at::ATTRIBUTES,
            self.batch.codec.bits().to_be_bytes(),
        );
        bytes::put(&mut head, at::LAST_OFFSET_DELTA, last_delta.to_be_bytes());
        bytes::put(
            &mut head,
            at::BASE_TIMESTAMP,
            self.batch.base_timestamp.to_be_bytes(),
        );
        bytes::put(
            &mut head,
            at::MAX_TIMESTAMP,
            self.batch.max_timestamp.to_be_bytes(),
        );
        bytes::put(&mut head, at::RECORD_COUNT, self.batch.count.to_be_bytes());
        checksum::seal(&mut head, &bytes[HEADER_SIZE..]);
        Ok(head)
    }

    /// Returns the encoded sizes of a record. `content` is the size of all fields after the offset delta; `None` if the
    /// format cannot represent it.
    fn place(&self, timestamp: i64, content: Option<usize>) -> Result<Place, BatchError> {
        let base = if self.batch.count == 0 {
            timestamp
        } else {
            self.batch.base_timestamp
        };
        let timestamp_delta = timestamp
            .checked_sub(base)
            .ok_or_else(|| unwritable("timestamps are too far apart"))?;
        let offset_delta = i64::from(self.batch.count);
        // one byte of attributes
        let deltas = 1 + size(timestamp_delta) + size(offset_delta);
        let length = content
            .and_then(|content| i32::try_from(content.checked_add(deltas)?).ok())
            .map(i64::from)
            .ok_or_else(|| unwritable("a record exceeds 2 GiB"))?;
        let count = self
            .batch
            .count
            .checked_add(1)
            .ok_or_else(|| unwritable("it has too many records"))?;
        Ok(Place {
            length,
            timestamp_delta,
            offset_delta,
            count,
            size: size(length) + deltas + content.unwrap_or(0),
        })
    }

    fn has_room(&self, place: &Place, most: usize) -> bool {
        self.batch.count == 0 || self.size().saturating_add(place.size) <= most
    }

    /// Doubles the capacity like a vector, but not beyond the batch's maximum size. A full batch would otherwise take
    /// twice its wire size in memory, once for every batch in flight.
    fn make_room(&mut self, size: usize, most: usize) {
        let (length, capacity) = (self.batch.bytes.len(), self.batch.bytes.capacity());
        if capacity - length < size {
            let wanted = capacity.saturating_mul(2).min(most).max(length + size);
            self.batch.bytes.reserve_exact(wanted - length);
        }
    }

    fn begin(&mut self, timestamp: i64, place: &Place, most: usize) {
        if self.batch.count == 0 {
            self.batch.bytes.clear();
            self.batch.bytes.resize(HEADER_SIZE, 0);
            self.batch.base_timestamp = timestamp;
            self.batch.max_timestamp = timestamp;
        }
        self.make_room(place.size, most);
        put(&mut self.batch.bytes, place.length);
        self.batch.bytes.push(0);
        put(&mut self.batch.bytes, place.timestamp_delta);
        put(&mut self.batch.bytes, place.offset_delta);
        self.batch.max_timestamp = self.batch.max_timestamp.max(timestamp);
        self.batch.count = place.count;
    }
}

fn unwritable(reason: &str) -> BatchError {
    BatchError::Unwritable {
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{BatchWriter, Codec};

    #[test]
    fn a_full_batch_holds_no_more_memory_than_it_may_have_bytes() {
        for most in [2_000, 100_000, 1_048_588] {
            let mut writer = BatchWriter::new(Codec::None);
            let value = [7; 100];
            while writer
                .add_within(most, 0, None, Some(&value), [].into_iter())
                .unwrap()
            {}
            let batch = writer.take().unwrap();
            assert!(batch.len() > most - 200);
            assert!(batch.capacity() <= most, "{}", batch.capacity());
        }
    }

    #[test]
    fn a_first_record_has_the_room_that_it_needs() {
        let mut writer = BatchWriter::new(Codec::None);
        let value = vec![7; 5_000];
        assert!(
            writer
                .add_within(100, 0, None, Some(&value), [].into_iter())
                .unwrap()
        );
        assert!(writer.take().unwrap().len() > 5_000);
    }
}
