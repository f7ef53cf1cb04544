//! Result of an audit.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Maximum number of findings kept with details; all are counted.
pub const KEPT_FINDINGS: usize = 1000;

/// A transactional producer, as record batches name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Producer {
    /// Producer id.
    pub id: i64,
    /// Producer epoch.
    pub epoch: i16,
}

impl fmt::Display for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "producer {} epoch {}", self.id, self.epoch)
    }
}

/// Name of a transaction in its positions.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionName {
    /// Run of the mirror; run ids sort by start time.
    pub run: Arc<str>,
    /// Lane number.
    pub lane: i64,
    /// Spark task of the lane in this run.
    pub epoch: i64,
    /// Attempt within the epoch.
    pub attempt: i64,
    /// Number of the transaction within the attempt, from 1; 0 for a position that was set outside of a lane's data.
    pub txn: i64,
    /// Producer of the transaction.
    pub producer: Producer,
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "run {} lane {} epoch {} attempt {} txn {}",
            self.run, self.lane, self.epoch, self.attempt, self.txn
        )
    }
}

/// Kind of defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// Committed records of this link's producer without a position of their own transaction: after a crash they would
    /// have been mirrored again, or they were.
    UncoveredData,
    /// Parts of one transaction were committed or aborted separately.
    TornTransaction,
    /// A position does not begin at the end of the previous one, or its identities or sums go back (O4).
    BrokenChain,
    /// A position's target offset is not that of its last record.
    WrongTargetOffset,
    /// A committed position covers records that its transaction does not hold.
    PositionWithoutData,
    /// A transaction that is neither committed nor aborted (O6).
    OpenTransaction,
    /// The offset map contradicts the position, or the actual offsets of the records.
    MapMismatch,
    /// A record of a state topic cannot be decoded.
    Unreadable,
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 8] = [
        Self::UncoveredData,
        Self::TornTransaction,
        Self::BrokenChain,
        Self::WrongTargetOffset,
        Self::PositionWithoutData,
        Self::OpenTransaction,
        Self::MapMismatch,
        Self::Unreadable,
    ];

    /// Returns the name shown to users.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::UncoveredData => "UncoveredData",
            Self::TornTransaction => "TornTransaction",
            Self::BrokenChain => "BrokenChain",
            Self::WrongTargetOffset => "WrongTargetOffset",
            Self::PositionWithoutData => "PositionWithoutData",
            Self::OpenTransaction => "OpenTransaction",
            Self::MapMismatch => "MapMismatch",
            Self::Unreadable => "Unreadable",
        }
    }
}

/// Topic, partition and offset of a record on the target cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Offset.
    pub offset: i64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}@{}", self.topic, self.partition, self.offset)
    }
}

/// A defect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Kind of defect.
    pub fault: Fault,
    /// Record that shows the defect: the first uncovered one, the position, or the chunk.
    pub place: Place,
    /// Producer of the transaction.
    pub producer: Producer,
    /// Name of the transaction, if a position is involved.
    pub transaction: Option<TransactionName>,
    /// Description.
    pub detail: String,
}

/// Items that were not judged, because the evidence is gone or not there yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unproven {
    /// Records whose positions compaction or retention may have removed.
    pub records: u64,
    /// Positions whose records or chunks compaction or retention may have removed.
    pub positions: u64,
    /// Transactions that were still open at the end, in a running link.
    pub under_way: u64,
}

/// A source partition whose older positions are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// Source topic.
    pub topic: Arc<str>,
    /// Source partition.
    pub partition: i32,
    /// First transaction whose every successor was audited.
    pub transaction: TransactionName,
    /// First audited source offset.
    pub offset: i64,
}

/// Result of an audit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of complete transactions with records: data, positions and offset map, each under one marker.
    pub transactions: u64,
    /// Number of records in complete transactions.
    pub records: u64,
    /// Number of committed positions, except those that a later record of the same transaction replaced.
    pub positions: u64,
    /// Positions without records.
    pub advances: u64,
    /// Positions set outside of a lane's data: first ones, adopted ones, and ones after a gap.
    pub set: u64,
    /// Number of committed claims of attempts.
    pub claims: u64,
    /// Number of aborted transactions of this link, counted once per partition.
    pub aborted: u64,
    /// Number of committed records on data partitions by producers that no position names, transactional or not.
    pub foreign_records: u64,
    /// Number of these producers that have a producer id.
    pub foreign_producers: u64,
    /// Items that were not judged.
    pub unproven: Unproven,
    /// Source partitions whose audit is incomplete before some offset.
    pub since: Vec<Since>,
    /// Data partitions that positions name but that were not read.
    pub unread: Vec<(Arc<str>, i32)>,
    /// Longest time between the markers of one transaction, in ms by the brokers' clocks.
    pub widest_spread: Option<(i64, TransactionName)>,
    /// Number of findings per kind; kinds without findings are absent.
    pub counts: BTreeMap<Fault, u64>,
    /// The first [`KEPT_FINDINGS`] findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Returns true if there is no finding.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn add(&mut self, finding: Finding) {
        *self.counts.entry(finding.fault).or_default() += 1;
        if self.findings.len() < KEPT_FINDINGS {
            self.findings.push(finding);
        }
    }
}
