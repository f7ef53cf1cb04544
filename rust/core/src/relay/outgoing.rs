//! A batch that is ready to be produced, and the source offsets that it holds.

use std::ops::Range;

use crate::batch::{BatchError, HEADER_SIZE, Stamp, stamp_header};
use crate::error::Error;
use crate::offset_map::{self, OffsetMap};

/// Consecutive source offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceRun {
    /// First offset.
    pub first: i64,
    /// How many, at least 1.
    pub count: i64,
}

/// Where a batch's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A header of its own in front of bytes that were fetched.
    Passed {
        /// The header, of nobody until it is stamped.
        head: [u8; HEADER_SIZE],
        /// The body's place in the fetched bytes. The source's header lies before it.
        body: Range<usize>,
    },
    /// Bytes of its own, header included.
    Written(Vec<u8>),
}

/// A batch to be produced. Its record n has the n-th offset of its runs, and will have the n-th offset from the one
/// that the target acknowledges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    content: Content,
    runs: Vec<SourceRun>,
    max_timestamp: i64,
}

impl Outgoing {
    /// `runs` grow and are not empty, and are as many offsets as `content` has records.
    pub(super) fn new(content: Content, runs: Vec<SourceRun>, max_timestamp: i64) -> Self {
        Self {
            content,
            runs,
            max_timestamp,
        }
    }

    /// Where its bytes are.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The bytes' place, for a sender that keeps nothing else of the batch.
    #[must_use]
    pub fn into_content(self) -> Content {
        self.content
    }

    /// Source offsets of its records, in order.
    #[must_use]
    pub fn runs(&self) -> &[SourceRun] {
        &self.runs
    }

    /// How many records it has: what the producer's sequence goes on by.
    #[must_use]
    pub fn count(&self) -> i32 {
        let count = self.runs.iter().map(|run| run.count).sum::<i64>();
        i32::try_from(count).unwrap_or(i32::MAX)
    }

    /// Source offset of its first record.
    #[must_use]
    pub fn first_offset(&self) -> i64 {
        self.runs.first().map_or(-1, |run| run.first)
    }

    /// Source offset of its last record.
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.runs
            .last()
            .map_or(-1, |run| run.first + (run.count - 1))
    }

    /// Largest timestamp of its records as the source's consumers see it, in ms since the epoch.
    #[must_use]
    pub fn max_timestamp(&self) -> i64 {
        self.max_timestamp
    }

    /// Bytes on the wire, header included.
    #[must_use]
    pub fn size(&self) -> usize {
        match &self.content {
            Content::Passed { body, .. } => HEADER_SIZE + body.len(),
            Content::Written(bytes) => bytes.len(),
        }
    }

    /// Writes into the header who sends the batch, and its checksum; a retry sends the same bytes and needs no other.
    /// `fetched` are the bytes that the batch was made of, and stay unread.
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

    /// The batch's bytes, to be sent one part after the other.
    pub fn parts<'a>(&'a self, fetched: &'a [u8]) -> Result<[&'a [u8]; 2], BatchError> {
        match &self.content {
            Content::Passed { head, body } => Ok([head.as_slice(), part(fetched, body)?]),
            Content::Written(bytes) => Ok([bytes.as_slice(), &[]]),
        }
    }

    /// Adds to `map` where its records are, when the target has acknowledged them from `base_offset` on.
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
        reason: "it was not made of these bytes".to_owned(),
    }
}

/// Adds an offset behind the last run.
pub(super) fn extend(runs: &mut Vec<SourceRun>, offset: i64) {
    match runs.last_mut() {
        Some(run) if run.first + run.count == offset => run.count += 1,
        _ => runs.push(SourceRun {
            first: offset,
            count: 1,
        }),
    }
}

/// The first `count` offsets of `runs`, and the others.
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
