//! One source partition of a lane: its position and its committed position. Pure.

use std::ops::Range;
use std::sync::Arc;

use eomirror_batch::Mark;
use eomirror_core::relay::{Holes, Relayed};

use super::route::Route;
use eomirror_kafka::{TopicId, TopicPartition};

/// The start of a source partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The source partition.
    pub partition: TopicPartition,
    /// First offset to mirror.
    pub offset: i64,
    /// Leader epoch of the record before it, for detecting a diverging log (KIP-320).
    pub leader_epoch: Option<i32>,
    /// The offset for which `leader_epoch` is known, if that is before `offset`: fetching begins there.
    pub epoch_offset: Option<i64>,
    /// The intended topic (rule 5).
    pub topic_id: Option<TopicId>,
    /// The known part of the log before `offset`.
    pub history: History,
}

/// The known part of a source partition's log before the position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The batch before the position. It is compared unless `holes` is [`Holes::Count`]: the log cleaner may have
    /// rewritten it.
    pub mark: Option<Mark>,
    /// Treatment of holes (rule 6); [`Holes::Count`] for a log that is, was or may be compacted.
    pub holes: Holes,
    /// Number of skipped offsets that were in no batch.
    pub missing: u64,
}

/// The next offset to fetch of a partition, past markers, aborted ranges and dropped records (rule 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The source partition.
    pub partition: TopicPartition,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the last batch before it; None when unknown.
    pub leader_epoch: Option<i32>,
    /// The last batch before it; None when unknown.
    pub mark: Option<Mark>,
    /// Number of skipped offsets that were in no batch.
    pub missing: u64,
    /// A batch has shown that the log was compacted.
    pub compacted: bool,
    /// Holes since the committed position, if they are reported.
    pub holes: Vec<Range<i64>>,
}

/// A source partition.
#[derive(Debug)]
pub(super) struct SourcePartition {
    pub(super) partition: TopicPartition,
    pub(super) target: TopicPartition,
    pub(super) route: Arc<Route>,
    /// The intended topic, if it was given by id.
    pub(super) topic_id: Option<TopicId>,
    /// First offset to mirror; earlier ones are fetched for their epoch only.
    pub(super) from: i64,
    /// Committed next offset.
    pub(super) committed: i64,
    /// Next offset: all records before it are accounted for.
    pub(super) reached: i64,
    /// Leader epoch of the last batch before `reached`.
    pub(super) epoch: Option<i32>,
    /// Last stable offset of the latest answer.
    pub(super) stable: Option<i64>,
    /// The known part of the log before `reached`.
    pub(super) history: History,
    /// A batch has shown that the log was compacted.
    pub(super) compacted: bool,
    /// Holes that are not committed.
    pub(super) holes: Vec<Range<i64>>,
}

impl SourcePartition {
    pub(super) fn new(start: &Start, route: Arc<Route>) -> Self {
        let target = TopicPartition::new(route.policy.target_topic(), start.partition.partition);
        Self {
            partition: start.partition.clone(),
            target,
            route,
            topic_id: start.topic_id,
            from: start.offset,
            committed: start.offset,
            reached: start.offset,
            epoch: start.leader_epoch,
            stable: None,
            history: start.history.clone(),
            compacted: false,
            holes: Vec::new(),
        }
    }

    /// Returns true if its records are placed by key: then the number of `target` is not theirs.
    pub(super) fn places_by_key(&self) -> bool {
        self.route.target.partitions.is_some()
    }

    /// Returns the batch with which the comparison after a lost connection begins; None when it would prove nothing.
    pub(super) fn compare_from(&self) -> Option<i64> {
        let known = self.history.holes != Holes::Count;
        self.history
            .mark
            .filter(|_| known)
            .map(|mark| mark.base_offset)
    }

    /// Remembers the relayed part of the log.
    pub(super) fn saw(&mut self, relayed: &Relayed) {
        if relayed.mark.is_some() && relayed.looked_to == self.reached {
            self.history.mark = relayed.mark;
        }
        self.history.missing = self.history.missing.saturating_add(relayed.missing);
        if self.history.holes == Holes::Name {
            self.holes.extend_from_slice(&relayed.holes);
        }
        if relayed.compacted {
            self.compacted = true;
            self.holes.clear();
            self.history.holes = Holes::Count;
        }
    }

    /// Moves the next offset: all records before `next` are accounted for, or are not mirrored.
    pub(super) fn reach(&mut self, next: i64, epoch: i32) {
        self.reached = self.reached.max(next);
        if epoch >= 0 {
            self.epoch = Some(epoch);
        }
    }

    /// Notes a committed position, and forgets the holes before it.
    pub(super) fn commit(&mut self, offset: i64) {
        let committed = self.committed.max(offset);
        self.committed = committed;
        self.holes.retain(|hole| hole.start >= committed);
    }

    /// Returns whether its next offset moved since the last commit.
    pub(super) const fn moved(&self) -> bool {
        self.reached > self.committed
    }

    /// Returns whether the source is known to have more records.
    pub(super) fn is_behind(&self) -> bool {
        self.stable.is_some_and(|stable| stable > self.reached)
    }

    pub(super) fn advance(&self) -> Advance {
        Advance {
            partition: self.partition.clone(),
            offset: self.reached,
            leader_epoch: self.epoch,
            mark: self.history.mark,
            missing: self.history.missing,
            compacted: self.compacted,
            holes: self.holes.clone(),
        }
    }
}
