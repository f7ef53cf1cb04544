//! Reading whole record batches from the leaders of partitions.

mod broker_session;
mod fetcher;
mod log_bounds;
mod partition;
mod request;
mod response;
mod state;

use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::ErrorCode;
use crate::properties::Properties;
use crate::protocol::fetch::AbortedTransaction;
use crate::topic::{TopicId, TopicPartition};

pub use fetcher::Fetcher;

/// A partition to read, and where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Which partition.
    pub partition: TopicPartition,
    /// First offset to read; any value, also within a batch.
    pub offset: i64,
    /// Leader epoch of the last record before `offset`. With it a log that was truncated and written anew is noticed
    /// (KIP-320); None when it is not known, and then it is not.
    pub leader_epoch: Option<i32>,
    /// The topic that is meant. With it a topic that was deleted and created again is noticed; without it the first
    /// one that is seen is the one.
    pub topic_id: Option<TopicId>,
    /// Base offset of the batch before `offset`, for the reader to compare ([`FetchedPartition::compares`]); None where
    /// there is nothing to compare.
    pub compare_from: Option<i64>,
}

impl Assignment {
    /// A partition from an offset, of which nothing else is known.
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

/// How much is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a broker holds a request back until `min_bytes` are there.
    pub wait: Duration,
    /// See `wait`.
    pub min_bytes: i32,
    /// Bytes in one answer. A broker exceeds it by the first batch, if that alone is larger.
    pub answer_bytes: i32,
    /// Bytes of one partition in one answer, with the same exception.
    pub partition_bytes: i32,
    /// Bytes that the answers of all leaders together may have: each leader gets an equal share of it, but at least
    /// `partition_bytes`. Records that are handed out and not advanced past may have as much again, before leaders are
    /// asked for less; so twice the budget is the most, but for a single batch that is larger than it may be.
    pub budget: u64,
    /// A broker is not asked again before the reader has gone on, while what is held of it is not more than this: a
    /// reader that keeps up then gets all partitions in one answer, and none of them has to wait until a request that
    /// was made without it is answered. 0 for a reader that may hold some partitions and wait for others.
    pub patience_bytes: u64,
    /// Pause before a partition is asked for again that a broker could not serve.
    pub retry: Duration,
    /// How long a topic may be unknown to the cluster before it counts as gone, for brokers learn of new topics late; and
    /// how long a leader may fail to read a partition before that counts.
    pub patience: Duration,
}

impl Limits {
    /// What the properties say (`fetch.*`, librdkafka's defaults), and one full answer as budget.
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

/// What became of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// Its topic's identity.
    pub topic_id: TopicId,
    /// The offset that was asked for: the position, which stays there until [`Fetcher::advance`].
    pub offset: i64,
    /// Whether the records begin with the batch at [`Assignment::compare_from`], which is before `offset`: the first
    /// answer of a connection does, because the log may have been replaced while there was none.
    pub compares: bool,
    /// Records, or why there will be none.
    pub outcome: Outcome,
}

/// Records, or why there will be none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The broker's answer.
    Records(FetchedRecords),
    /// The partition is not read any more until it is assigned again.
    Stopped(Stop),
}

/// A broker's answer about a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedRecords {
    /// End of what is replicated: one past the last offset that anybody can read.
    pub high_watermark: i64,
    /// End of what is decided: no open transaction lies before it.
    pub last_stable_offset: i64,
    /// First offset of the log.
    pub log_start_offset: i64,
    /// Leader epoch under which the partition was read.
    pub leader_epoch: i32,
    /// Transactions to leave out, by first offset; None when the isolation level is read uncommitted.
    pub aborted: Option<Vec<AbortedTransaction>>,
    /// Record batches one after the other, as they lie in the log, control batches too. The first may begin before
    /// `offset` and has to be trimmed; the last may be cut off and has to be left. Empty when there is nothing new but
    /// the watermarks. Shares the memory of the whole answer, which goes when the last of its parts is dropped.
    pub records: Bytes,
}

/// Where a log begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// First offset that exists.
    pub start: i64,
    /// The high watermark: one past the last offset that anybody can read.
    pub end: i64,
}

/// Why a partition is not read any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The position is not within the log.
    OutOfRange {
        /// Where the log begins and ends, as its leader said afterwards; None where it did not say.
        log: Option<LogBounds>,
    },
    /// The log was truncated: in `epoch` it ended at `end_offset`, which is before the position; or it is another log,
    /// written on from an older state of this one, that has never had the epoch before the position.
    Truncated {
        /// The largest epoch that the leader has at or below ours.
        epoch: i32,
        /// Where that epoch ends.
        end_offset: i64,
    },
    /// The topic was deleted and created again.
    Replaced {
        /// The topic that is there now.
        found: TopicId,
    },
    /// The topic, or this partition of it, does not exist.
    Gone,
    /// For a while now its leader has said that it cannot read the log there.
    Unreadable {
        /// The broker's words.
        code: ErrorCode,
    },
    /// A right is missing, or the broker cannot serve this at all.
    Refused {
        /// The broker's words.
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
            Self::Replaced { found } => write!(f, "the topic was created anew, its id is {found}"),
            Self::Gone => write!(f, "the partition does not exist"),
            Self::Unreadable { code } => write!(f, "its leader cannot read it: {code}"),
            Self::Refused { code } => write!(f, "the broker refuses: {code}"),
        }
    }
}

/// A partition that cannot be read at the moment, though it may be soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StalledPartition {
    /// Which partition.
    pub partition: TopicPartition,
    /// Since when.
    pub since: Instant,
    /// What was said last.
    pub reason: String,
}
