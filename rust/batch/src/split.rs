//! Splits the bytes of a Fetch response into batches.

use super::bytes::HEADER_SIZE;
use super::error::BatchError;
use super::view::Batch;

/// An incomplete batch at the end of a Fetch response, which is normal: the next fetch starts with it.
///
/// If the response holds nothing else, the batch is larger than the response may be. A broker sends the first batch of
/// a response whole, whatever its size (KIP-74), so this cannot happen with a limit above zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Number of bytes present.
    pub have: usize,
    /// Number of bytes that the batch needs; the size of a header if the length field is missing.
    pub need: usize,
}

/// Iterates over the batches of one partition's record set; ends after the first error.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    rest: &'a [u8],
    partial: Option<Partial>,
}

impl<'a> Batches<'a> {
    /// Returns an iterator over `records`, the bytes of one partition in a Fetch response.
    #[must_use]
    pub fn new(records: &'a [u8]) -> Self {
        Self {
            rest: records,
            partial: None,
        }
    }

    /// Returns the incomplete batch at the end, once the iteration has ended.
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
