//! Fetching whole record batches from the leaders of partitions.

mod broker_session;
mod fetcher;
mod log_bounds;
mod partition;
mod response;
mod state;

use std::fmt;
use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;
use bytes::Bytes;
use eomirror_batch::AbortedTransaction;

use crate::properties::Properties;
use crate::topic::{TopicId, TopicPartition};

pub use fetcher::Fetcher;

/// A partition to fetch, and its first offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The partition.
    pub partition: TopicPartition,
    /// First offset to read; it may lie within a batch.
    pub offset: i64,
    /// Leader epoch of the record before `offset`, for detecting a truncated log (KIP-320). None when unknown: then
    /// truncation is not detected.
    pub leader_epoch: Option<i32>,
    /// The intended topic, for detecting a topic that was deleted and recreated. None accepts the first id that is
    /// seen.
    pub topic_id: Option<TopicId>,
    /// Base offset of the batch before `offset`, which the reader compares ([`FetchedPartition::compares`]). None when
    /// there is nothing to compare.
    pub compare_from: Option<i64>,
}

impl Assignment {
    /// Returns an assignment without epoch, topic id or comparison.
    pub fn new(topic: impl Into<String>, partition: i32, offset: i64) -> Self {
        Self {
            partition: TopicPartition::new(topic, partition),
            offset,
            leader_epoch: None,
            topic_id: None,
            compare_from: None,
        }
    }
}

/// Limits of Fetch requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest time that a broker holds a request back until `min_bytes` are available.
    pub wait: Duration,
    /// See `wait`.
    pub min_bytes: i32,
    /// Bytes in one answer. A broker exceeds it only by a first batch that is larger.
    pub answer_bytes: i32,
    /// Bytes of one partition in one answer, with the same exception.
    pub partition_bytes: i32,
    /// Bytes of the answers of all leaders together. Each leader gets an equal share, but at least `partition_bytes`.
    /// Records that are handed out and not yet advanced past may take as much again before leaders are asked for less.
    /// So memory is bounded by twice the budget, except for a single larger batch.
    pub budget: u64,
    /// While at most this many bytes of a broker are held, it is not asked again before the reader advances. A reader
    /// that keeps up then gets all partitions in one answer, and no partition waits for a request that was sent without
    /// it. 0 for a reader that may hold some partitions while it waits for others.
    pub patience_bytes: u64,
    /// Pause before a partition is fetched again after a temporary error.
    pub retry: Duration,
    /// Time that a topic may be unknown before it counts as deleted, because brokers learn of new topics late. Also the
    /// time that a leader may fail to read a partition before that is reported.
    pub patience: Duration,
}

impl Limits {
    /// Returns the limits of the properties (`fetch.*` with librdkafka's defaults), with one full answer as budget.
    #[must_use]
    pub fn from_properties(properties: &Properties) -> Self {
        let sizes = properties.fetch;
        Self {
            wait: sizes.wait,
            min_bytes: sizes.min_bytes,
            answer_bytes: sizes.max_bytes,
            partition_bytes: sizes.partition_bytes,
            budget: u64::try_from(sizes.max_bytes).unwrap_or(0),
            patience_bytes: 0,
            retry: sizes.error_backoff,
            patience: Duration::from_secs(5),
        }
    }
}

/// The result of fetching a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The partition.
    pub partition: TopicPartition,
    /// Id of its topic.
    pub topic_id: TopicId,
    /// The fetched offset. The position stays there until [`Fetcher::advance`].
    pub offset: i64,
    /// The records begin with the batch at [`Assignment::compare_from`], before `offset`. So does the first answer of
    /// each connection, because the log may have been replaced in between.
    pub compares: bool,
    /// Records, or the reason that there will be none.
    pub outcome: Outcome,
}

/// Records, or the reason that there will be none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker's answer.
    Records(FetchedRecords),
    /// The partition is not fetched before it is assigned again.
    Stopped(Stop),
}

/// A broker's answer for one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedRecords {
    /// The high watermark: end of the replicated log.
    pub high_watermark: i64,
    /// The last stable offset: no open transaction lies before it.
    pub last_stable_offset: i64,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// Leader epoch of the request.
    pub leader_epoch: i32,
    /// Aborted transactions, by first offset; None for read uncommitted.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Record batches as they lie in the log, including control batches. The first one may begin before `offset`, and
    /// the last one may be cut off. Empty when only the watermarks have changed. The bytes share the memory of the
    /// whole answer.
    pub records: Bytes,
}

/// The offsets of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// First offset that exists.
    pub start: i64,
    /// The high watermark: one past the last offset that can be read.
    pub end: i64,
}

/// The reason that a partition stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The position is not in the log.
    OutOfRange {
        /// The log as its leader described it afterwards; None when it did not.
        log: Option<LogBounds>,
    },
    /// The log was truncated: `epoch` ended at `end_offset`, before the position. Or it is another log that was
    /// restored from an older state and written further, and never had the epoch before the position.
    Truncated {
        /// The largest epoch that the leader has at or below ours.
        epoch: i32,
        /// End of that epoch.
        end_offset: i64,
    },
    /// The topic was deleted and recreated.
    Replaced {
        /// The id of the new topic.
        found: TopicId,
    },
    /// The topic, or this partition of it, does not exist.
    Gone,
    /// The leader has failed to read the log there for a while.
    Unreadable {
        /// The broker's code.
        code: ErrorCode,
    },
    /// A right is missing, or the broker cannot serve the request at all.
    Refused {
        /// The broker's code.
        code: ErrorCode,
    },
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { log: None } => write!(f, "the position is not within the log"),
            Self::OutOfRange {
                log: Some(LogBounds { start, end }),
            } => write!(
                f,
                "the position is not within the log, which has offsets [{start}, {end})"
            ),
            Self::Truncated { epoch, end_offset } => {
                write!(
                    f,
                    "the log was truncated: leader epoch {epoch} ended at offset {end_offset}"
                )
            }
            Self::Replaced { found } => write!(f, "the topic was recreated, its id is {found}"),
            Self::Gone => write!(f, "the partition does not exist"),
            Self::Unreadable { code } => write!(f, "its leader cannot read it: {code}"),
            Self::Refused { code } => write!(f, "the broker refuses the request: {code}"),
        }
    }
}

/// A partition that cannot be read at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledPartition {
    /// The partition.
    pub partition: TopicPartition,
    /// Start of the stall.
    pub since: Instant,
    /// The last error.
    pub reason: String,
}
