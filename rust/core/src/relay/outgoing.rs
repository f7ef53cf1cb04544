//! A batch that is ready to be produced, and its source offsets.

use std::ops::Range;

use crate::error::Error;
use crate::offset_map::{self, OffsetMap};
use eomirror_batch::{BatchError, HEADER_SIZE, Stamp, stamp_header};

/// A run of consecutive source offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRun {
    /// First offset.
    pub first: i64,
    /// Number of offsets, at least 1.
    pub count: i64,
}

/// Location of a batch's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A header in front of fetched bytes.
    Passed {
        /// Header, without a producer until it is stamped.
        head: [u8; HEADER_SIZE],
        /// Range of the body within the fetched bytes. The source's header precedes it.
        body: Range<usize>,
    },
    /// Bytes of a re-encoded batch, header included.
    Written(Vec<u8>),
}

/// A batch to produce. Its record n has the n-th offset of its runs, and gets the n-th offset after the base offset in
/// the target's acknowledgement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    partition: i32,
    content: Content,
    runs: Vec<SourceRun>,
    max_timestamp: i64,
}

impl Outgoing {
    /// Returns a batch for a target partition. `runs` are increasing, not empty, and have as many offsets as `content`
    /// has records.
    pub(super) fn new(
        partition: i32,
        content: Content,
        runs: Vec<SourceRun>,
        max_timestamp: i64,
    ) -> Self {
        Self {
            partition,
            content,
            runs,
            max_timestamp,
        }
    }

    /// Returns the target partition.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// Returns the location of the bytes.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the location of the bytes, for a sender that keeps nothing else of the batch.
    #[must_use]
    pub fn into_content(self) -> Content {
        self.content
    }

    /// Returns the source offsets of the records, in order.
    #[must_use]
    pub fn runs(&self) -> &[SourceRun] {
        &self.runs
    }

    /// Returns the number of records, by which the producer's sequence advances.
    #[must_use]
    pub fn count(&self) -> i32 {
        let count = self.runs.iter().map(|run| run.count).sum::<i64>();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Returns the source offset of the first record.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        self.runs.first().map_or(-1, |run| run.first)
    }

    /// Returns the source offset of the last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.runs
            .last()
            .map_or(-1, |run| run.first + (run.count - 1))
    }

    /// Returns the largest timestamp of the records as the source's consumers see it, in ms since the epoch.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Returns the size on the wire in bytes, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Passed { body, .. } => HEADER_SIZE + body.len(),
            Content::Written(bytes) => bytes.len(),
        }
    }

    /// Writes the producer, the sequence and the checksum into the header. A retry sends the same bytes and needs no
    /// new stamp. `fetched` are the bytes that the batch was made of; they are not read.
    pub fn stamp(&mut self, fetched: &[u8], stamp: &Stamp) -> Result<(), BatchError> {
        match &mut self.content {
            Content::Passed { head, body } => {
                part(fetched, body)?;
                stamp_header(head, stamp);
            }
            Content::Written(bytes) => {
                stamp_header(bytes.first_chunk_mut().ok_or_else(foreign)?, stamp);
            }
        }
        Ok(())
    }

    /// Returns the batch's bytes as parts to send in order.
    pub fn parts<'a>(&'a self, fetched: &'a [u8]) -> Result<[&'a [u8]; 2], BatchError> {
        match &self.content {
            Content::Passed { head, body } => Ok([head.as_slice(), part(fetched, body)?]),
            Content::Written(bytes) => Ok([bytes.as_slice(), &[]]),
        }
    }

    /// Adds the records' target offsets to `map`, once the target has acknowledged them from `base_offset` on.
    pub fn map(&self, base_offset: i64, map: &mut OffsetMap) -> Result<(), Error> {
        let mut target = base_offset;
        for run in &self.runs {
            map.push(offset_map::Range {
                source: run.first,
                target,
                count: run.count,
            })?;
            // the map has checked the sum
            target += run.count;
        }
        Ok(())
    }
}

fn part<'a>(fetched: &'a [u8], range: &Range<usize>) -> Result<&'a [u8], BatchError> {
    fetched.get(range.clone()).ok_or_else(foreign)
}

fn foreign() -> BatchError {
    BatchError::Unwritable {
        reason: "it was not made from these bytes".to_owned(),
    }
}

/// Appends an offset to the runs.
pub(super) fn extend(runs: &mut Vec<SourceRun>, offset: i64) {
    match runs.last_mut() {
        Some(run) if run.first + run.count == offset => run.count += 1,
        _ => runs.push(SourceRun {
            first: offset,
            count: 1,
        }),
    }
}

/// Splits `runs` after `count` offsets.
pub(super) fn divide(runs: &[SourceRun], count: i64) -> (Vec<SourceRun>, Vec<SourceRun>) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut left = count;
    for run in runs {
        let taken = run.count.min(left);
        if taken > 0 {
            before.push(SourceRun {
                first: run.first,
                count: taken,
            });
        }
        if taken < run.count {
            after.push(SourceRun {
                first: run.first + taken,
                count: run.count - taken,
            });
        }
        left -= taken;
    }
    (before, after)
}
