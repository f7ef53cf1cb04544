//! One source partition of a lane: how far it is read, and how far that is committed. Pure.

use std::sync::Arc;

use super::route::Route;
use crate::fetch::TopicPartition;
use crate::protocol::TopicId;

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
}

/// A source partition.
#[derive(Debug)]
pub(super) struct Source {
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
}

impl Source {
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
        }
    }

    /// Everything before `next` is booked, or holds nothing to mirror.
    pub(super) fn reach(&mut self, next: i64, epoch: i32) {
        self.reached = self.reached.max(next);
        if epoch >= 0 {
            self.epoch = Some(epoch);
        }
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
        }
    }
}
