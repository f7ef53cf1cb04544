//! Values that all decisions share.

use std::fmt;

use crate::error::place;

/// One header of a record, borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderRef<'a> {
    /// The key's bytes; UTF-8 by convention, not by the wire format.
    pub key: &'a [u8],
    /// The value; null is not the same as empty.
    pub value: Option<&'a [u8]>,
}

/// What a reader is told about who wrote a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The producer id of the record's batch, -1 for a producer that has none.
    By(i64),
    /// The timestamp that the producer gave the record, in ms; of a client that does not tell producer ids.
    At(i64),
    /// Neither.
    Unknown,
}

/// One consumed record, borrowed from whoever fetched it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef<'a> {
    /// Source topic.
    pub topic: &'a str,
    /// Source partition.
    pub partition: i32,
    /// Source offset.
    pub offset: i64,
    /// Leader epoch of the record's batch, -1 when the client does not tell.
    pub leader_epoch: i32,
    /// Milliseconds since the epoch, -1 for "not available".
    pub timestamp: i64,
    /// The key; null is not the same as empty.
    pub key: Option<&'a [u8]>,
    /// The value; null (a tombstone) is not the same as empty.
    pub value: Option<&'a [u8]>,
    /// Headers in their order, duplicates included. The wire knows no null list, only an empty one.
    pub headers: &'a [HeaderRef<'a>],
    /// Who wrote it, as far as the reader is told.
    pub written: Written,
}

impl RecordRef<'_> {
    /// Where the record is, for an error.
    #[must_use]
    pub fn place(&self) -> String {
        place(self.topic, self.partition, self.offset)
    }

    /// Size of key, value and headers in bytes, as they were read.
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

/// Why a record was left out on purpose. The names are part of position records: add, never rename.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// The record's hops contain the target: it has been there.
    Hop,
    /// The link does not forward records of this origin.
    Origin,
    /// The target refuses the record for what it is, and the link's policy says to go on without it.
    DeadLetter,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Hop, Self::Origin, Self::DeadLetter];

    /// The reason's name in position records and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hop => "hop",
            Self::Origin => "origin",
            Self::DeadLetter => "dead-letter",
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
    /// How many, at least 1.
    pub count: i64,
}

/// What one target partition acknowledged, in delivery order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AckedPartition {
    /// Target topic.
    pub topic: String,
    /// Target partition.
    pub partition: i32,
    /// Runs of offsets in delivery order.
    pub runs: Vec<AckRun>,
}

/// What the target acknowledged since somebody last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Acks {
    /// Deliveries that failed, or that carried no offset.
    pub failed: u64,
    /// One entry per target partition.
    pub partitions: Vec<AckedPartition>,
}
