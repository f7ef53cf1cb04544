//! Limits of a target topic, and thresholds for merging.

use eomirror_batch::{Codec, TimestampType};

/// Limits of a target topic, and thresholds for merging.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The topic's `max.message.bytes`: maximum size of a batch as it is sent, header included.
    pub max_batch_bytes: usize,
    /// The topic's `message.timestamp.type`.
    pub timestamps: TimestampType,
    /// Batches are merged up to this size, uncompressed. A batch that must be re-encoded may be larger.
    pub merge_bytes: usize,
    /// An uncompressed batch smaller than this is merged.
    pub small_bytes: usize,
    /// A compressed batch smaller than this is merged. Compression costs more than a copy, so the threshold is lower
    /// before merging costs less than a request.
    pub small_compressed_bytes: usize,
    /// Maximum number of runs of source offsets per call, at least one.
    pub most_runs: usize,
    /// The topic's number of partitions, at least one, if records are placed by key ([`crate::placement`]); `None` if
    /// they keep the number of their source partition.
    pub partitions: Option<i32>,
}

impl Default for Target {
    /// Returns Kafka's default limits.
    fn default() -> Self {
        Self {
            max_batch_bytes: 1_048_588,
            timestamps: TimestampType::CreateTime,
            merge_bytes: 1024 * 1024,
            small_bytes: 32 * 1024,
            small_compressed_bytes: 4 * 1024,
            most_runs: 50_000,
            partitions: None,
        }
    }
}

/// Maximum number of bytes that are compressed at once.
const MOST_TO_COMPRESS: usize = 16 * 1024 * 1024;

/// Maximum number of runs per call where records are placed by key. Neighbours go to different partitions, so nearly
/// every record is a run of its own. They are kept until the batches are sent, and are in no offset map.
const MOST_PLACED_RUNS: usize = 500_000;

impl Target {
    /// Returns the target with records placed by key in this many partitions.
    #[must_use]
    pub fn placed(self, partitions: i32) -> Self {
        Self {
            most_runs: MOST_PLACED_RUNS,
            partitions: Some(partitions.max(1)),
            ..self
        }
    }

    pub(super) fn is_small(&self, codec: Codec, bytes: usize) -> bool {
        match codec {
            Codec::None => bytes < self.small_bytes,
            _ => bytes < self.small_compressed_bytes,
        }
    }

    /// Returns the uncompressed size from which no other batch is merged in.
    pub(super) fn merge_until(&self) -> usize {
        self.merge_bytes.min(self.max_batch_bytes)
    }

    /// Returns the maximum uncompressed size of a batch.
    pub(super) fn most_plain(&self, codec: Codec) -> usize {
        match codec {
            Codec::None => self.max_batch_bytes,
            _ => MOST_TO_COMPRESS,
        }
    }
}
