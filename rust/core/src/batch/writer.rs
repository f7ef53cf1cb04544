//! Records into a new batch.

use std::fmt;

use super::codec::{Codec, Compressor};
use super::cursor::{field_size, put, put_field, size};
use super::error::BatchError;
use super::rewrite::{self, Stamp};
use super::view::{HEADER_SIZE, LENGTH_BASE, MAGIC, at, bit};
use crate::types::HeaderRef;

/// A buffer above this size is given back after use; one huge batch must not stay in memory.
const KEEP: usize = 16 * 1024 * 1024;

/// Collects records and writes them as one batch, as often as wanted. Offsets are consecutive from 0, as a Produce
/// request must have them; timestamps are the producer's (`CreateTime`).
pub struct BatchWriter {
    codec: Codec,
    compressor: Compressor,
    body: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter")
            .field("codec", &self.codec)
            .field("count", &self.count)
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl BatchWriter {
    /// A writer without records.
    #[must_use]
    pub fn new(codec: Codec) -> Self {
        Self {
            codec,
            compressor: Compressor::default(),
            body: Vec::new(),
            count: 0,
            base_timestamp: -1,
            max_timestamp: -1,
        }
    }

    /// How many records have been added since the last batch.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Size in bytes that the batch would have without compression, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        HEADER_SIZE + self.body.len()
    }

    /// Adds a record; a refused one changes nothing. `headers` are counted and walked twice, so a slice's iterator or
    /// [`super::Headers`] serves.
    pub fn add<'h>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl ExactSizeIterator<Item = HeaderRef<'h>> + Clone,
    ) -> Result<(), BatchError> {
        let base = if self.count == 0 {
            timestamp
        } else {
            self.base_timestamp
        };
        let delta = timestamp
            .checked_sub(base)
            .ok_or_else(|| unwritable("timestamps lie too far apart"))?;
        let offset_delta = i64::from(self.count);
        let header_count = i32::try_from(headers.len())
            .map(i64::from)
            .map_err(|_| unwritable("a record has too many headers"))?;
        let length = (|| {
            // one byte of attributes
            let mut length = 1 + size(delta) + size(offset_delta) + size(header_count);
            length = length.checked_add(field_size(key)?)?;
            length = length.checked_add(field_size(value)?)?;
            for header in headers.clone() {
                length = length.checked_add(field_size(Some(header.key))?)?;
                length = length.checked_add(field_size(header.value)?)?;
            }
            i32::try_from(length).ok()
        })()
        .map(i64::from)
        .ok_or_else(|| unwritable("a record has more than 2 GiB"))?;
        let count = self
            .count
            .checked_add(1)
            .ok_or_else(|| unwritable("it has too many records"))?;

        put(&mut self.body, length);
        self.body.push(0);
        put(&mut self.body, delta);
        put(&mut self.body, offset_delta);
        put_field(&mut self.body, key);
        put_field(&mut self.body, value);
        put(&mut self.body, header_count);
        for header in headers {
            put_field(&mut self.body, Some(header.key));
            put_field(&mut self.body, header.value);
        }
        if self.count == 0 {
            self.base_timestamp = timestamp;
            self.max_timestamp = timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.count = count;
        Ok(())
    }

    /// Appends the batch to `out` and begins a new one. On an error `out` and the records stay as they were.
    pub fn finish(&mut self, stamp: &Stamp, out: &mut Vec<u8>) -> Result<(), BatchError> {
        if self.count == 0 {
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

    fn write(&mut self, stamp: &Stamp, out: &mut Vec<u8>) -> Result<(), BatchError> {
        let start = out.len();
        let body_at = start + HEADER_SIZE;
        out.resize(body_at, 0);
        self.compressor
            .compress(self.codec, &self.body, out)
            .map_err(|reason| unwritable(&reason))?;
        let length = i32::try_from(out.len() - start - LENGTH_BASE)
            .map_err(|_| unwritable("it has more than 2 GiB"))?;
        let mut attributes = self.codec.bits();
        if stamp.transactional {
            attributes |= bit::TRANSACTIONAL;
        }
        let mut head = [0; HEADER_SIZE];
        stamp.put(&mut head);
        rewrite::put(&mut head, at::LENGTH, length.to_be_bytes());
        rewrite::put(&mut head, at::MAGIC, [MAGIC]);
        rewrite::put(&mut head, at::ATTRIBUTES, attributes.to_be_bytes());
        rewrite::put(
            &mut head,
            at::LAST_OFFSET_DELTA,
            (self.count - 1).to_be_bytes(),
        );
        rewrite::put(
            &mut head,
            at::BASE_TIMESTAMP,
            self.base_timestamp.to_be_bytes(),
        );
        rewrite::put(
            &mut head,
            at::MAX_TIMESTAMP,
            self.max_timestamp.to_be_bytes(),
        );
        rewrite::put(&mut head, at::RECORD_COUNT, self.count.to_be_bytes());
        rewrite::seal(&mut head, &out[body_at..]);
        out[start..body_at].copy_from_slice(&head);
        Ok(())
    }

    /// Forgets the records.
    pub fn clear(&mut self) {
        self.body.clear();
        if self.body.capacity() > KEEP {
            self.body = Vec::new();
        }
        self.count = 0;
    }
}

fn unwritable(reason: &str) -> BatchError {
    BatchError::Unwritable {
        reason: reason.to_owned(),
    }
}
