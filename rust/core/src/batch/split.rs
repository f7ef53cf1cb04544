//! The batches of a Fetch answer.

use super::bytes::HEADER_SIZE;
use super::error::BatchError;
use super::view::Batch;

/// Bytes of a batch that the answer had no room for. Normal at the end of an answer: fetch from that batch on.
///
/// When it is all that an answer holds, the batch is larger than the answer may be; a broker sends a first batch
/// whole however large it is (KIP-74), so that cannot happen with a limit above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes that are there.
    pub have: usize,
    /// Bytes that the batch needs; no more than a header's when too little is there to tell.
    pub need: usize,
}

/// Iterates over the batches of one partition's record set; ends after the first error.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    rest: &'a [u8],
    partial: Option<Partial>,
}

impl<'a> Batches<'a> {
    /// Over `records`, the bytes of one partition in a Fetch answer.
    #[must_use]
    pub fn new(records: &'a [u8]) -> Self {
        Self {
            rest: records,
            partial: None,
        }
    }

    /// What was left at the end, once the iteration has ended.
    #[must_use]
    pub fn partial(&self) -> Option<Partial> {
        self.partial
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match Batch::first(self.rest) {
            Ok(batch) => {
                self.rest = &self.rest[batch.bytes().len()..];
                Some(Ok(batch))
            }
            Err(BatchError::Truncated { have, need }) => {
                self.rest = &[];
                self.partial = Some(Partial {
                    have,
                    need: need.max(HEADER_SIZE),
                });
                None
            }
            Err(error) => {
                self.rest = &[];
                Some(Err(error))
            }
        }
    }
}

impl std::iter::FusedIterator for Batches<'_> {}
