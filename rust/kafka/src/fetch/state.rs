//! What to fetch next, and what an answer means. Pure: facts and time in, requests and outcomes out. What is asked of
//! which broker is in [`super::request`].
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
//! * A position moves by `advance()` alone. Until then the partition is held, so that a reader that falls behind holds
//!   back what it has not read, and nothing else.
//! * An answer counts only for the request that the partition waits for (its ticket). Whoever moves the position in
//!   the meantime makes the answer void, so that no offset is read twice or skipped.
//! * One request per broker is outstanding. The partitions whose records came longest ago come first, because a broker
//!   fills an answer in the order of the request; within a session it keeps that order itself (KIP-227).
//! * A broker is asked for no more than its share of the budget. What is held of it may have another share, so that the
//!   next records come while these are worked on; where it has more than that, the broker is asked for less, and not at
//!   all when not even one partition would fit, or when so little is held that the reader will be through at once.
//! * What stops a partition is believed of its leader only. A replica that is closer (KIP-392) may be behind, so
//!   whatever it complains of is asked of the leader again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_core::fetch_session::Heard;

use super::broker_session::BrokerSession;
use super::partition::{PartitionState, Phase};
use super::response::Response;
use super::{Assignment, FetchedPartition, Limits, Outcome, StalledPartition};
use crate::error::ErrorCode;
use crate::metadata::Metadata;
use crate::protocol::IsolationLevel;
use crate::protocol::fetch::FetchAnswer;
use crate::topic::TopicPartition;

/// Where the reader is.
#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) rack: Arc<str>,
    /// How long a leader's word on the closest replica counts.
    lease: Duration,
}

/// Partitions being read.
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
    /// How often something has gone wrong with a partition that all was well with before.
    news: u64,
    /// Brokers whose next request is to be answered at once.
    pub(super) hurried: BTreeSet<i32>,
    /// Whether topics ever went by name: an old broker compares no ids.
    by_name: bool,
    /// Of the metadata that the partitions' leaders were taken from.
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

    /// Says where the reader is, so that leaders can name a closer replica; `lease` is how long that counts.
    pub(crate) fn place(&mut self, rack: &str, lease: Duration) {
        self.place = Place {
            rack: rack.into(),
            lease,
        };
    }

    /// Whether to keep sessions with brokers.
    pub(crate) fn keep_sessions(&mut self, keep: bool) {
        self.sessions = keep;
    }

    /// Replaces the partitions to read. One that is read already, from the same offset, goes on undisturbed.
    pub(crate) fn assign(&mut self, assignments: &[Assignment]) {
        let mut before = std::mem::take(&mut self.partitions);
        self.revision = None;
        for assignment in assignments {
            let same = before
                .remove(&assignment.partition)
                .filter(|tracked| tracked.serves(assignment));
            let tracked = same.unwrap_or_else(|| {
                // its leader may be known from long ago
                self.stale = true;
                self.turn += 1;
                PartitionState::new(assignment, self.turn)
            });
            self.partitions
                .insert(assignment.partition.clone(), tracked);
        }
    }

    /// Moves a position; false when the partition is not being read.
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

    /// Says which batch is before the position, by its base offset; None where it is not to be compared.
    pub(crate) fn compare_from(&mut self, partition: &TopicPartition, base: Option<i64>) {
        if let Some(tracked) = self.partitions.get_mut(partition) {
            tracked.compare_from = base;
        }
    }

    /// The position of a partition.
    pub(crate) fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.partitions.get(partition).map(|tracked| tracked.offset)
    }

    /// Leader epoch of the last record before the position, -1 when it is not known.
    pub(crate) fn last_epoch(&self, partition: &TopicPartition) -> i32 {
        self.partitions
            .get(partition)
            .map_or(-1, |tracked| tracked.last_epoch)
    }

    /// Which broker a partition is read from, if one is known.
    pub(crate) fn source(&self, partition: &TopicPartition, now: Instant) -> Option<i32> {
        self.partitions.get(partition)?.source(now)
    }

    /// Bytes of records that are held.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held().values().sum()
    }

    /// Bytes of records that are held, by broker.
    pub(super) fn held(&self) -> BTreeMap<i32, u64> {
        let mut held = BTreeMap::new();
        for tracked in self.partitions.values() {
            if let Phase::Held { broker, bytes } = tracked.phase {
                *held.entry(broker).or_default() += bytes;
            }
        }
        held
    }

    /// All topics that are being read, for metadata.
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

    /// Takes leaders from the metadata, when it has changed: with thousands of partitions it is too much to look them
    /// up whenever something arrives.
    pub(super) fn follow(&mut self, metadata: &Metadata) {
        let revision = Some(metadata.revision());
        if self.revision != revision {
            self.revision = revision;
            for (partition, tracked) in &mut self.partitions {
                tracked.follow(partition, metadata);
            }
        }
    }

    /// Whether metadata has to be asked for before all partitions can be read.
    pub(crate) fn wants_metadata(&mut self, metadata: &Metadata) -> bool {
        self.follow(metadata);
        self.partitions
            .values()
            .filter(|tracked| tracked.phase != Phase::Stopped)
            .any(|tracked| self.stale || !tracked.agreed)
    }

    /// When an idle partition can be asked for again that cannot now.
    pub(crate) fn next_retry(&self, now: Instant) -> Option<Instant> {
        let idle = self
            .partitions
            .values()
            .filter(|tracked| tracked.phase == Phase::Idle);
        idle.filter_map(|tracked| tracked.retry_at)
            .filter(|at| *at > now)
            .min()
    }

    /// Whether all topics went by id so far.
    pub(crate) const fn goes_by_id(&self) -> bool {
        !self.by_name
    }

    /// Takes a broker's answer. What it says of new leaders goes into the metadata.
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
                    // a broker that throttles says nothing at all (KIP-219)
                    Heard::Everything if throttled => {}
                    Heard::Everything => {
                        let reason = "the broker says nothing of it".to_owned();
                        tracked.delay(reason, now, self.limits.retry);
                    }
                    Heard::Refused => {
                        let reason = ErrorCode(said.error).to_string();
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
            let outcome = if let (0, Some(closer), true) =
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

    /// A broker did not answer: its partitions may be led by somebody else now.
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

    /// A broker cannot be reached: for the reader to see, and a reason to ask who leads.
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

    /// Compares what is read with fresh metadata; `silent` brokers owe what they do not send.
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

    /// What is known of the cluster is out of date.
    pub(crate) const fn doubt(&mut self) {
        self.stale = true;
    }

    /// Whether something has gone wrong since the last call with a partition that all was well with before: then metadata
    /// is asked for without the pauses that others have come to.
    pub(crate) const fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.news, 0) > 0
    }

    /// Whether all partitions can be read, as far as known.
    pub(crate) fn is_well(&self) -> bool {
        let active = |tracked: &&PartitionState| tracked.phase != Phase::Stopped;
        !self.stale
            && self
                .partitions
                .values()
                .filter(active)
                .all(PartitionState::is_well)
    }

    /// Partitions that cannot be read at the moment.
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
