//! Types that all decisions share.

use std::fmt;

pub use eomirror_batch::HeaderRef;
use eomirror_batch::Record;

use crate::error::place;

/// Information about the writer of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Producer id of the record's batch, -1 for a producer without one.
    By(i64),
    /// Timestamp set by the producer, in ms, for a client that does not report producer ids.
    At(i64),
    /// Neither is known.
    Unknown,
}

/// A borrowed record that was consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Source topic.
    pub topic: &'a str,
    /// Source partition.
    pub partition: i32,
    /// Source offset.
    pub offset: i64,
    /// Leader epoch of the record's batch, -1 if the client does not report it.
    pub leader_epoch: i32,
    /// Timestamp in ms since the epoch, -1 if not available.
    pub timestamp: i64,
    /// Key; null differs from empty.
    pub key: Option<&'a [u8]>,
    /// Value; null (a tombstone) differs from empty.
    pub value: Option<&'a [u8]>,
    /// Headers in their order, duplicates included. The wire format has no null list, only an empty one.
    pub headers: &'a [HeaderRef<'a>],
    /// Writer of the record, if known.
    pub written: Written,
}

impl<'a> RecordRef<'a> {
    /// Returns a record of a batch in the form that the decisions of this crate take; `headers` are the collected
    /// [`Record::headers`].
    #[must_use]
    pub fn of<'r: 'a>(
        record: &Record<'r>,
        (topic, partition): (&'a str, i32),
        leader_epoch: i32,
        headers: &'a [HeaderRef<'r>],
        written: Written,
    ) -> Self {
        Self {
            topic,
            partition,
            offset: record.offset,
            leader_epoch,
            timestamp: record.timestamp,
            key: record.key,
            value: record.value,
            headers,
            written,
        }
    }
}

impl RecordRef<'_> {
    /// Returns topic, partition and offset for an error message.
    #[must_use]
    pub fn place(&self) -> String {
        place(self.topic, self.partition, self.offset)
    }

    /// Returns the size of key, value and headers in bytes, as they were read.
    #[must_use]
    pub fn size(&self) -> u64 {
        let mut size = length(self.key) + length(self.value);
        for header in self.headers {
            size += header.key.len() as u64 + length(header.value);
        }
        size
    }
}

fn length(bytes: Option<&[u8]>) -> u64 {
    bytes.map_or(0, |bytes| bytes.len() as u64)
}

/// Maximum number of rules of a transform.
pub const MOST_RULES: usize = 32;

/// Names of a transform's rules in position records and metrics: places in the configuration.
const RULES: [&str; MOST_RULES] = [
    "transform[0]",
    "transform[1]",
    "transform[2]",
    "transform[3]",
    "transform[4]",
    "transform[5]",
    "transform[6]",
    "transform[7]",
    "transform[8]",
    "transform[9]",
    "transform[10]",
    "transform[11]",
    "transform[12]",
    "transform[13]",
    "transform[14]",
    "transform[15]",
    "transform[16]",
    "transform[17]",
    "transform[18]",
    "transform[19]",
    "transform[20]",
    "transform[21]",
    "transform[22]",
    "transform[23]",
    "transform[24]",
    "transform[25]",
    "transform[26]",
    "transform[27]",
    "transform[28]",
    "transform[29]",
    "transform[30]",
    "transform[31]",
];

/// A rule of a transform, by its place in the configuration: less than [`MOST_RULES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleNumber(u8);

impl RuleNumber {
    /// Returns the rule with this index; `None` if there are not as many.
    #[must_use]
    pub fn new(index: usize) -> Option<Self> {
        let number = u8::try_from(index).ok()?;
        (index < MOST_RULES).then_some(Self(number))
    }

    /// Returns the index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the name in position records and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        RULES[self.index()]
    }
}

/// Number of records by rule.
pub type ByRule = [u64; MOST_RULES];

/// Returns name and count of the rules that have records.
pub fn counted(rules: &ByRule) -> impl Iterator<Item = (&'static str, u64)> {
    let named = RULES.into_iter().zip(*rules);
    named.filter(|(_, count)| *count > 0)
}

/// Reason to drop a record intentionally. The names are part of position records: add new ones, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The record's hops contain the target: the record has been there.
    Hop,
    /// The link does not forward records of this origin.
    Origin,
    /// The target rejects the record for its content, and the link's policy is to continue without it.
    DeadLetter,
    /// A rule of the link's transform cannot read the record, and the link's policy is to continue without it.
    Unreadable,
    /// A rule of the link's transform excludes the record.
    Rule(RuleNumber),
}

impl DropReason {
    /// All reasons, in the order of [`DropReason::index`].
    pub const ALL: [Self; 4 + MOST_RULES] = {
        let mut all = [Self::Hop; 4 + MOST_RULES];
        all[1] = Self::Origin;
        all[2] = Self::DeadLetter;
        all[3] = Self::Unreadable;
        let mut number = 0;
        while number < MOST_RULES {
            // less than 32
            #[allow(clippy::cast_possible_truncation)]
            let rule = RuleNumber(number as u8);
            all[4 + number] = Self::Rule(rule);
            number += 1;
        }
        all
    };

    /// Returns the place in [`DropReason::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Hop => 0,
            Self::Origin => 1,
            Self::DeadLetter => 2,
            Self::Unreadable => 3,
            Self::Rule(number) => 4 + number.index(),
        }
    }

    /// Returns the reason's name in position records and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hop => "hop",
            Self::Origin => "origin",
            Self::DeadLetter => "dead-letter",
            Self::Unreadable => "unreadable",
            Self::Rule(number) => number.name(),
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Consecutive offsets that a target partition acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckRun {
    /// First offset.
    pub first: i64,
    /// Number of offsets, at least 1.
    pub count: i64,
}

/// Acknowledgements of one target partition, in delivery order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckedPartition {
    /// Target topic.
    pub topic: String,
    /// Target partition.
    pub partition: i32,
    /// Runs of offsets in delivery order.
    pub runs: Vec<AckRun>,
}

/// Acknowledgements of the target since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acks {
    /// Number of deliveries that failed, or that carried no offset.
    pub failed: u64,
    /// One entry per target partition.
    pub partitions: Vec<AckedPartition>,
}
