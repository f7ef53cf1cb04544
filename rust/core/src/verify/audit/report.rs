//! What an audit says in the end.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// How many findings are kept with their details; all are counted.
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

/// What the positions of one transaction call it.
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
    /// Number within the attempt, from 1; 0 for a position that was set outside of a lane's data.
    pub txn: i64,
    /// Its producer.
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

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// Committed records of this link's producer that no position of their own transaction covers: after a crash
    /// they would have been mirrored again, or they were.
    UncoveredData,
    /// Parts of one transaction were decided apart from each other.
    TornTransaction,
    /// A position does not begin where the one before it ends, or its identities or sums go back (O4).
    BrokenChain,
    /// A position's target offset is not that of the last record it covers.
    WrongTargetOffset,
    /// A committed position speaks of records that its transaction does not hold.
    PositionWithoutData,
    /// A transaction that is neither committed nor aborted (O6).
    OpenTransaction,
    /// The offset map disagrees with the position, or with where the records are.
    MapMismatch,
    /// A record of a state topic that cannot be read.
    Unreadable,
}

impl Fault {
    /// Every fault.
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

    /// Its name, as users read it.
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

/// A record of the target cluster.
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

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub fault: Fault,
    /// The record that shows it: the first uncovered one, the position, the chunk.
    pub place: Place,
    /// Whose transaction.
    pub producer: Producer,
    /// What its positions call the transaction, where a position is involved.
    pub transaction: Option<TransactionName>,
    /// In words.
    pub detail: String,
}

/// What was seen and not judged, because the evidence for or against it is gone or not there yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unproven {
    /// Records whose positions compaction or retention may have removed.
    pub records: u64,
    /// Positions whose records or chunks compaction or retention may have removed.
    pub positions: u64,
    /// Transactions that were still under way at the end, in a running link.
    pub under_way: u64,
}

/// A source partition whose older positions are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Since {
    /// Source topic.
    pub topic: Arc<str>,
    /// Source partition.
    pub partition: i32,
    /// The first transaction whose every successor was audited.
    pub transaction: TransactionName,
    /// Source offset from which on.
    pub offset: i64,
}

/// What an audit saw.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Transactions with records that are whole: data, positions and offset map, each under one marker.
    pub transactions: u64,
    /// Records that they cover.
    pub records: u64,
    /// Committed positions, without those that a later record of the same transaction replaced.
    pub positions: u64,
    /// Of these, advances without records.
    pub advances: u64,
    /// Of these, positions set outside of a lane's data: first ones, adopted ones, ones behind a gap.
    pub set: u64,
    /// Committed claims of attempts.
    pub claims: u64,
    /// Aborted transactions of this link, counted once per partition.
    pub aborted: u64,
    /// Committed records on data partitions by producers that no position names, transactional or not.
    pub foreign_records: u64,
    /// Producers of these with a producer id.
    pub foreign_producers: u64,
    /// Not judged.
    pub unproven: Unproven,
    /// Source partitions whose audit is not complete from their beginning.
    pub since: Vec<Since>,
    /// Data partitions that positions name and that were not read.
    pub unread: Vec<(Arc<str>, i32)>,
    /// Longest time between the markers of one transaction, ms by the brokers' clocks.
    pub widest_spread: Option<(i64, TransactionName)>,
    /// How many findings of each kind there are; kinds without any are left out.
    pub counts: BTreeMap<Fault, u64>,
    /// The first [`KEPT_FINDINGS`] of them.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
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
