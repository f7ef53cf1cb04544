//! The state of all fetched partitions: decides what to fetch next, and interprets answers. Pure: facts and time in,
//! requests and outcomes out. [`super::request`] chooses the partitions of a request.
//!
//! A partition is in one of four states:
//!
//! ```text
//!            plan()                    records
//!   idle ------------> asked --------------------------> held
//!    ^                  |  |                              |
//!    |  nothing, moved, |  | out of range, truncated,     |
//!    |  lost, later     |  | replaced, gone, refused      |
//!    +------------------+  +--------> stopped             |
//!    +--------------------- advance() --------------------+
//! ```
//!
//! * Only `advance()` moves a position. Until then the partition is held: a slow reader delays its own partitions only.
//! * An answer counts only for the request that the partition waits for (its ticket). A move of the position in between
//!   voids the answer, so that no offset is read twice or skipped.
//! * One request per broker is in flight. The partitions that waited longest for records come first, because a broker
//!   fills an answer in the order of the request; within a session it keeps that order itself (KIP-227).
//! * A broker is asked for at most its share of the budget. Held records may take another share, so that the next
//!   records arrive while these are processed. Beyond that the broker is asked for less. It is not asked at all when not
//!   even one partition would fit, or when so little is held that the reader will soon advance.
//! * Only the leader can stop a partition. A closer replica (KIP-392) may be behind, so its errors are verified with the
//!   leader.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_core::fetch_session::Heard;

use eomirror_core::ErrorCode;

use super::broker_session::BrokerSession;
use super::partition::{PartitionState, Phase};
use super::response::Response;
use super::{Assignment, FetchedPartition, Limits, Outcome, StalledPartition};
use crate::metadata::Metadata;
use crate::protocol::IsolationLevel;
use crate::protocol::fetch::FetchAnswer;
use crate::topic::TopicPartition;

/// Location of the reader.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) rack: Arc<str>,
    /// Time for which a leader's choice of the closest replica is valid.
    lease: Duration,
}

/// The state of all fetched partitions.
#[derive(Debug)]
pub(crate) struct FetchState {
    pub(super) isolation: IsolationLevel,
    pub(super) limits: Limits,
    pub(super) place: Place,
    pub(super) sessions: bool,
    pub(super) partitions: BTreeMap<TopicPartition, PartitionState>,
    pub(super) broker_sessions: BTreeMap<i32, BrokerSession>,
    pub(super) turn: u64,
    pub(super) stale: bool,
    /// Number of times that a healthy partition met an error.
    news: u64,
    /// Brokers whose next request asks for an immediate answer.
    pub(super) hurried: BTreeSet<i32>,
    /// Topics went by name at least once: an old broker compares no ids.
    by_name: bool,
    /// Revision of the metadata that the leaders were taken from.
    pub(super) revision: Option<u64>,
}

impl FetchState {
    pub(crate) fn new(isolation: IsolationLevel, limits: Limits) -> Self {
        Self {
            isolation,
            limits,
            place: Place::default(),
            sessions: true,
            partitions: BTreeMap::new(),
            broker_sessions: BTreeMap::new(),
            turn: 0,
            stale: false,
            news: 0,
            hurried: BTreeSet::new(),
            by_name: false,
            revision: None,
        }
    }

    /// Sets the location of the reader, so that leaders can name a closer replica; `lease` is the time for which that
    /// is valid.
    pub(crate) fn place(&mut self, rack: &str, lease: Duration) {
        self.place = Place {
            rack: rack.into(),
            lease,
        };
    }

    /// Sets whether fetch sessions are used.
    pub(crate) fn keep_sessions(&mut self, keep: bool) {
        self.sessions = keep;
    }

    /// Replaces the fetched partitions. One that continues from the same offset is not disturbed.
    pub(crate) fn assign(&mut self, assignments: &[Assignment]) {
        let mut before = std::mem::take(&mut self.partitions);
        self.revision = None;
        for assignment in assignments {
            let same = before
                .remove(&assignment.partition)
                .filter(|tracked| tracked.serves(assignment));
            let tracked = same.unwrap_or_else(|| {
                // its leader may have been looked up long ago
                self.stale = true;
                self.turn += 1;
                PartitionState::new(assignment, self.turn)
            });
            self.partitions
                .insert(assignment.partition.clone(), tracked);
        }
    }

    /// Moves a position; false when the partition is not fetched.
    pub(crate) fn advance(
        &mut self,
        partition: &TopicPartition,
        offset: i64,
        leader_epoch: i32,
    ) -> bool {
        let Some(tracked) = self
            .partitions
            .get_mut(partition)
            .filter(|tracked| tracked.phase != Phase::Stopped)
        else {
            return false;
        };
        if matches!(tracked.phase, Phase::Asked(_)) && tracked.offset == offset {
            return true;
        }
        tracked.offset = offset;
        tracked.last_epoch = leader_epoch;
        tracked.phase = Phase::Idle;
        true
    }

    /// Sets the base offset of the batch before the position; None for no comparison.
    pub(crate) fn compare_from(&mut self, partition: &TopicPartition, base: Option<i64>) {
        if let Some(tracked) = self.partitions.get_mut(partition) {
            tracked.compare_from = base;
        }
    }

    /// Returns the position of a partition.
    pub(crate) fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.partitions.get(partition).map(|tracked| tracked.offset)
    }

    /// Returns the leader epoch of the record before the position, -1 when unknown.
    pub(crate) fn last_epoch(&self, partition: &TopicPartition) -> i32 {
        self.partitions
            .get(partition)
            .map_or(-1, |tracked| tracked.last_epoch)
    }

    /// Returns the broker that a partition is read from, if known.
    pub(crate) fn source(&self, partition: &TopicPartition, now: Instant) -> Option<i32> {
        self.partitions.get(partition)?.source(now)
    }

    /// Returns the bytes of held records.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held().values().sum()
    }

    /// Returns the bytes of held records by broker.
    pub(super) fn held(&self) -> BTreeMap<i32, u64> {
        let mut held = BTreeMap::new();
        for tracked in self.partitions.values() {
            if let Phase::Held { broker, bytes } = tracked.phase {
                *held.entry(broker).or_default() += bytes;
            }
        }
        held
    }

    /// Returns all fetched topics.
    pub(crate) fn topics(&self) -> Vec<String> {
        let active = self
            .partitions
            .iter()
            .filter(|(_, tracked)| tracked.phase != Phase::Stopped);
        active
            .map(|(partition, _)| &partition.topic)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .cloned()
            .collect()
    }

    /// Takes leaders from the metadata if it has changed. With thousands of partitions, a lookup for every answer would
    /// be too expensive.
    pub(super) fn follow(&mut self, metadata: &Metadata) {
        let revision = Some(metadata.revision());
        if self.revision != revision {
            self.revision = revision;
            for (partition, tracked) in &mut self.partitions {
                tracked.follow(partition, metadata);
            }
        }
    }

    /// Returns whether metadata has to be refreshed before all partitions can be read.
    pub(crate) fn wants_metadata(&mut self, metadata: &Metadata) -> bool {
        self.follow(metadata);
        self.partitions
            .values()
            .filter(|tracked| tracked.phase != Phase::Stopped)
            .any(|tracked| self.stale || !tracked.agreed)
    }

    /// Returns the time at which the next idle partition can be retried.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let idle = self
            .partitions
            .values()
            .filter(|tracked| tracked.phase == Phase::Idle);
        idle.filter_map(|tracked| tracked.retry_at)
            .filter(|at| *at > now)
            .min()
    }

    /// Returns whether all topics went by id.
    pub(crate) const fn goes_by_id(&self) -> bool {
        !self.by_name
    }

    /// Takes a broker's answer. New leaders in it go into the metadata.
    pub(crate) fn answered(
        &mut self,
        broker: i32,
        answer: FetchAnswer,
        metadata: &mut Metadata,
        now: Instant,
    ) -> Vec<FetchedPartition> {
        let Some(broker_session) = self.broker_sessions.get_mut(&broker) else {
            return Vec::new();
        };
        let Some(ticket) = broker_session.ticket.take() else {
            return Vec::new();
        };
        broker_session.hurried = false;
        let heard = broker_session
            .session
            .answered(answer.error, answer.session_id);
        let throttled = answer.throttle_ms > 0 && answer.topics.is_empty();
        let mut said = Response::new(answer);
        self.by_name |= said.is_by_name();
        let mut fetched = Vec::new();
        for (partition, tracked) in &mut self.partitions {
            let Some(asked) = tracked.asked_by(ticket) else {
                continue;
            };
            tracked.phase = Phase::Idle;
            let before = tracked.is_well();
            let topic_id = tracked.topic_id.unwrap_or_default();
            let Some(answered) = said.take(topic_id, partition) else {
                match heard {
                    Heard::News => tracked.get_well(),
                    Heard::SessionOver => {}
                    // a throttling broker returns no partitions (KIP-219)
                    Heard::Everything if throttled => {}
                    Heard::Everything => {
                        let reason = "the broker's answer lacks it".to_owned();
                        tracked.delay(reason, now, self.limits.retry);
                    }
                    Heard::Refused => {
                        let reason = said.error.to_string();
                        tracked.delay(reason, now, self.limits.retry);
                    }
                }
                continue;
            };
            if let Some(leader) = answered.leader {
                metadata.learn(&partition.topic, topic_id, partition.partition, leader);
            }
            let leader = metadata.leader(&partition.topic, partition.partition);
            let moved = leader.map(|(_, epoch)| epoch) != Some(asked.leader_epoch);
            let closer = answered.closer.filter(|closer| *closer != broker);
            let offset = tracked.offset;
            let outcome = if let (ErrorCode::NONE, Some(closer), true) =
                (answered.error, closer, answered.records.is_empty())
            {
                let known = metadata.brokers().contains_key(&closer);
                let lease = known.then(|| now + self.place.lease);
                tracked.read_from(closer, lease, now, &self.limits);
                None
            } else {
                let (outcome, stale) = tracked.take(answered, asked, moved, now, &self.limits);
                self.stale |= stale;
                self.news += u64::from(before && !tracked.is_well());
                outcome
            };
            if let Some(outcome) = outcome {
                if matches!(tracked.phase, Phase::Held { .. }) {
                    self.turn += 1;
                    tracked.served = self.turn;
                }
                fetched.push(FetchedPartition {
                    partition: partition.clone(),
                    topic_id,
                    offset,
                    compares: asked.compares,
                    outcome,
                });
            }
        }
        fetched
    }

    /// Notes that a broker did not answer: its partitions may have new leaders.
    pub(crate) fn failed(&mut self, broker: i32, reason: &str, now: Instant) {
        let Some(broker_session) = self.broker_sessions.get_mut(&broker) else {
            return;
        };
        let Some(ticket) = broker_session.ticket.take() else {
            return;
        };
        broker_session.session.lost();
        broker_session.hurried = false;
        self.stale = true;
        for tracked in self.partitions.values_mut() {
            if tracked.asked_by(ticket).is_some() {
                tracked.phase = Phase::Idle;
                self.news += u64::from(tracked.is_well());
                // the network decides when the broker can be asked again
                tracked.delay(reason.to_owned(), now, Duration::ZERO);
                tracked.avoid(broker, now, &self.limits);
            }
        }
    }

    /// Notes that a broker cannot be reached, which the reader sees, and which makes the metadata stale.
    pub(crate) fn unreachable(
        &mut self,
        broker: i32,
        reason: &str,
        metadata: &Metadata,
        now: Instant,
    ) {
        self.follow(metadata);
        self.stale = true;
        for tracked in self.partitions.values_mut() {
            if tracked.phase == Phase::Idle && tracked.source(now) == Some(broker) {
                self.news += u64::from(tracked.is_well());
                tracked.delay(reason.to_owned(), now, Duration::ZERO);
                tracked.avoid(broker, now, &self.limits);
            }
        }
    }

    /// Compares all partitions with fresh metadata, and stops waiting for `silent` brokers.
    pub(crate) fn compare(
        &mut self,
        metadata: &Metadata,
        silent: &[i32],
        now: Instant,
    ) -> Vec<FetchedPartition> {
        self.stale = false;
        self.revision = None;
        let mut fetched = Vec::new();
        for (partition, tracked) in &mut self.partitions {
            if tracked.phase == Phase::Stopped {
                continue;
            }
            let before = tracked.is_well();
            let leader = metadata.leader(&partition.topic, partition.partition);
            tracked.give_up_on(silent, leader, now, &self.limits);
            if let Some(stop) = tracked.compare(partition, metadata, now, &self.limits) {
                tracked.phase = Phase::Stopped;
                fetched.push(FetchedPartition {
                    partition: partition.clone(),
                    topic_id: tracked.topic_id.unwrap_or_default(),
                    offset: tracked.offset,
                    compares: false,
                    outcome: Outcome::Stopped(stop),
                });
            } else if leader.is_none() {
                self.stale = true;
            }
            self.news += u64::from(before && !tracked.is_well());
        }
        fetched
    }

    /// Notes that the metadata is out of date.
    pub(crate) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// Returns whether a healthy partition has met an error since the last call: then metadata is requested without the
    /// backoff that others have reached.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.news, 0) > 0
    }

    /// Returns whether all partitions can be read, as far as known.
    pub(crate) fn is_well(&self) -> bool {
        let active = |tracked: &&PartitionState| tracked.phase != Phase::Stopped;
        !self.stale
            && self
                .partitions
                .values()
                .filter(active)
                .all(PartitionState::is_well)
    }

    /// Returns the partitions that cannot be read at the moment.
    pub(crate) fn stalled(&self, now: Instant) -> Vec<StalledPartition> {
        let active = self
            .partitions
            .iter()
            .filter(|(_, tracked)| tracked.phase != Phase::Stopped);
        active
            .filter_map(|(partition, tracked)| {
                let (since, reason) = tracked
                    .trouble
                    .clone()
                    .or_else(|| tracked.unanswered(now, &self.limits))?;
                Some(StalledPartition {
                    partition: partition.clone(),
                    since,
                    reason,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
