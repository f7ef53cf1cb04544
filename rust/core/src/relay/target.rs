//! What a target topic takes, and what is worth merging for it.

use crate::batch::{Codec, TimestampType};

/// Limits of a target topic, and sizes for merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The topic's `max.message.bytes`: most bytes of a batch as it is sent, header included.
    pub max_batch_bytes: usize,
    /// The topic's `message.timestamp.type`.
    pub timestamps: TimestampType,
    /// Batches are merged until this many bytes, not compressed. One that is re-encoded anyway may become larger.
    pub merge_bytes: usize,
    /// A batch without compression is merged below this size.
    pub small_bytes: usize,
    /// A compressed batch is merged below this size. Compressing again costs more than a copy, so it has to be smaller
    /// before that costs less than a request.
    pub small_compressed_bytes: usize,
    /// One answer gives at most so many runs of source offsets, and at least one.
    pub most_runs: usize,
}

impl Default for Target {
    /// A topic with Kafka's own defaults.
    fn default() -> Self {
        Self {
            max_batch_bytes: 1_048_588,
            timestamps: TimestampType::CreateTime,
            merge_bytes: 1024 * 1024,
            small_bytes: 32 * 1024,
            small_compressed_bytes: 4 * 1024,
            most_runs: 50_000,
        }
    }
}

/// Records are compressed at most this many bytes at a time.
const MOST_TO_COMPRESS: usize = 16 * 1024 * 1024;

impl Target {
    pub(super) fn is_small(&self, codec: Codec, bytes: usize) -> bool {
        match codec {
            Codec::None => bytes < self.small_bytes,
            _ => bytes < self.small_compressed_bytes,
        }
    }

    /// No other batch is begun in one that has reached this size, not compressed.
    pub(super) fn merge_until(&self) -> usize {
        self.merge_bytes.min(self.max_batch_bytes)
    }

    /// No record goes into a batch that would then be larger than this, not compressed.
    pub(super) fn most_plain(&self, codec: Codec) -> usize {
        match codec {
            Codec::None => self.max_batch_bytes,
            _ => MOST_TO_COMPRESS,
        }
    }
}
