//! One source partition of a lane: how far it is read, and how far that is committed. Pure.

use std::ops::Range;
use std::sync::Arc;

use eomirror_core::batch::Mark;
use eomirror_core::relay::{Holes, Relayed};

use super::route::Route;
use eomirror_kafka::{TopicId, TopicPartition};

/// Where to begin to fetch a source partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The source partition.
    pub partition: TopicPartition,
    /// First offset that is mirrored.
    pub offset: i64,
    /// Leader epoch of the record before it, so that a log that diverges is noticed (KIP-320).
    pub leader_epoch: Option<i32>,
    /// Where `leader_epoch` is known, if that is before `offset`: fetching begins there.
    pub epoch_offset: Option<i64>,
    /// The topic that is meant (rule 5).
    pub topic_id: Option<TopicId>,
    /// What is known of the log before `offset`.
    pub history: History,
}

/// What is known of a source partition's log before the position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// The batch before the position. It is compared where `holes` is not [`Holes::Count`]: the log cleaner may have
    /// written it anew.
    pub mark: Option<Mark>,
    /// What to do about a hole (rule 6); [`Holes::Count`] for a log that is or was compacted, or may be.
    pub holes: Holes,
    /// Offsets that were passed over so far, and that no batch had.
    pub missing: u64,
}

/// The next offset to fetch of a partition, past markers, aborted ranges and dropped records (rule 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The source partition.
    pub partition: TopicPartition,
    /// The offset.
    pub offset: i64,
    /// Leader epoch of the last batch before it; None when not known.
    pub leader_epoch: Option<i32>,
    /// The last batch before it; None when not known.
    pub mark: Option<Mark>,
    /// Offsets that were passed over so far, and that no batch had.
    pub missing: u64,
    /// Whether a batch has shown that the log was compacted.
    pub compacted: bool,
    /// Holes since the committed position, where they are named.
    pub holes: Vec<Range<i64>>,
}

/// A source partition.
#[derive(Debug)]
pub(super) struct SourcePartition {
    pub(super) partition: TopicPartition,
    pub(super) target: TopicPartition,
    pub(super) route: Arc<Route>,
    /// The topic that is meant, where it was named by id.
    pub(super) topic_id: Option<TopicId>,
    /// First offset that is mirrored; what is fetched before it was only fetched for its epoch.
    pub(super) from: i64,
    /// Next offset as committed.
    pub(super) committed: i64,
    /// Next offset as far as everything before it is booked.
    pub(super) reached: i64,
    /// Leader epoch of the last batch before `reached`.
    pub(super) epoch: Option<i32>,
    /// Last stable offset as the last answer said it.
    pub(super) stable: Option<i64>,
    /// What is known of the log before `reached`.
    pub(super) history: History,
    /// Whether a batch has shown that the log was compacted.
    pub(super) compacted: bool,
    /// Holes that are not committed.
    pub(super) holes: Vec<Range<i64>>,
}

impl SourcePartition {
    pub(super) fn new(start: &Start, route: Arc<Route>) -> Self {
        let target = TopicPartition::new(route.treatment.target_topic(), start.partition.partition);
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

    /// From which batch on the log is compared behind a lost connection; None where that would prove nothing.
    pub(super) fn compare_from(&self) -> Option<i64> {
        let known = self.history.holes != Holes::Count;
        self.history
            .mark
            .filter(|_| known)
            .map(|mark| mark.base_offset)
    }

    /// Remembers what was seen of the log up to where it is read now.
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

    /// Everything before `next` is booked, or holds nothing to mirror.
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

    /// Whether its next offset moved since the last commit.
    pub(super) const fn moved(&self) -> bool {
        self.reached > self.committed
    }

    /// Whether the source is known to have more.
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
