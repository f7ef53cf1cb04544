//! The state of all fetched partitions: decides what to fetch next, and interprets answers. Pure: facts and time in,
//! requests and outcomes out.
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

use crate::fetch_session::Heard;

use crate::error_code::ErrorCode;

use super::broker_session::{self, BrokerSession, SentPartition};
use super::partition::{Asked, PartitionState, Phase};
use super::response::Response;
use super::{Assignment, FetchedPartition, Limits, Outcome, StalledPartition};
use crate::metadata::Metadata;
use crate::protocol::IsolationLevel;
use crate::protocol::fetch::{AskedPartition, FetchAnswer, FetchRequest};
use crate::topic::TopicPartition;

/// Longest wait of a broker while the reader holds one of its partitions: once the reader advances, that partition must
/// not wait for new records of others.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// Location of the reader.
#[derive(Debug, Default)]
struct Place {
    rack: Arc<str>,
    /// Time for which a leader's choice of the closest replica is valid.
    lease: Duration,
}

/// The state of all fetched partitions.
#[derive(Debug)]
pub(crate) struct FetchState {
    isolation: IsolationLevel,
    pub(super) limits: Limits,
    place: Place,
    sessions: bool,
    partitions: BTreeMap<TopicPartition, PartitionState>,
    broker_sessions: BTreeMap<i32, BrokerSession>,
    turn: u64,
    stale: bool,
    /// Number of times that a healthy partition met an error.
    news: u64,
    /// Brokers whose next request asks for an immediate answer.
    hurried: BTreeSet<i32>,
    /// Topics went by name at least once: an old broker compares no ids.
    by_name: bool,
    /// Revision of the metadata that the leaders were taken from.
    revision: Option<u64>,
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
    fn held(&self) -> BTreeMap<i32, u64> {
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

    /// Returns the brokers to ask, if they can be reached: those that serve an idle partition.
    pub(crate) fn brokers(&mut self, metadata: &Metadata, now: Instant) -> BTreeSet<i32> {
        self.follow(metadata);
        let (share, held) = (self.share(now), self.held());
        let serving: BTreeSet<i32> = self
            .partitions
            .values()
            .filter(|tracked| tracked.can_be_asked(now))
            .filter_map(|tracked| tracked.source(now))
            .collect();
        serving
            .into_iter()
            .filter(|broker| !self.is_asked(*broker) && self.room(*broker, share, &held).is_some())
            .collect()
    }

    fn is_asked(&self, broker: i32) -> bool {
        self.broker_sessions
            .get(&broker)
            .is_some_and(|broker_session| broker_session.ticket.is_some())
    }

    /// Returns the bytes that the answer of one broker may have, so that all answers stay within the budget. Each
    /// broker has a fixed share, and not the rest: a broker that waits for new records must not block others.
    fn share(&self, now: Instant) -> u64 {
        let serving: BTreeSet<i32> = self
            .partitions
            .values()
            .filter(|tracked| tracked.phase != Phase::Stopped)
            .filter_map(|tracked| tracked.source(now))
            .collect();
        let serving = u64::try_from(serving.len()).unwrap_or(u64::MAX).max(1);
        (self.limits.budget / serving).max(self.one_partition())
    }

    fn one_partition(&self) -> u64 {
        u64::try_from(self.limits.partition_bytes).unwrap_or(0)
    }

    /// Returns the bytes that the next answer of a broker may have; None when held records leave no room.
    fn room(&self, broker: i32, share: u64, held: &BTreeMap<i32, u64>) -> Option<i32> {
        let held = held.get(&broker).copied().unwrap_or(0);
        if (1..=self.limits.patience_bytes).contains(&held) {
            return None;
        }
        let room = share.saturating_mul(2).saturating_sub(held).min(share);
        (room >= self.one_partition()).then(|| {
            i32::try_from(room)
                .unwrap_or(i32::MAX)
                .min(self.limits.answer_bytes)
        })
    }

    /// Returns the request for a broker over the connection with this number; None when there is nothing to ask.
    pub(crate) fn plan(
        &mut self,
        broker: i32,
        connection: u64,
        metadata: &Metadata,
        now: Instant,
    ) -> Option<FetchRequest> {
        if self.is_asked(broker) {
            return None;
        }
        self.follow(metadata);
        let bytes = self.room(broker, self.share(now), &self.held())?;
        let mut held = false;
        let mut chosen: Vec<&mut PartitionState> = Vec::new();
        for tracked in self.partitions.values_mut() {
            if tracked.source(now) == Some(broker) {
                held |= matches!(tracked.phase, Phase::Held { .. });
                if tracked.can_be_asked(now) {
                    chosen.push(tracked);
                }
            }
        }
        if chosen.is_empty() {
            return None;
        }
        chosen.sort_by_key(|tracked| tracked.served);
        self.turn += 1;
        let ticket = self.turn;
        // one rack for the whole request: a partition that must be read from its leader keeps the others there for a
        // while
        let rack = if chosen.iter().all(|tracked| tracked.may_move(now)) {
            Arc::clone(&self.place.rack)
        } else {
            Arc::default()
        };
        let partition_bytes = self.limits.partition_bytes;
        let wanted: Vec<(u64, SentPartition)> = chosen
            .into_iter()
            .filter_map(|tracked| {
                let topic_id = tracked.topic_id?;
                let (leader, leader_epoch) = tracked.leader?;
                let (offset, compares) = tracked.from(connection);
                tracked.phase = Phase::Asked(Asked {
                    ticket,
                    broker,
                    at: now,
                    leader_epoch,
                    by_leader: leader == broker,
                    connection,
                    compares,
                });
                tracked.retry_at = None;
                let asked = AskedPartition {
                    index: tracked.index,
                    leader_epoch,
                    offset,
                    last_epoch: tracked.last_epoch,
                    max_bytes: partition_bytes,
                };
                let told = SentPartition {
                    name: Arc::clone(&tracked.name),
                    topic_id,
                    asked,
                };
                Some((tracked.number, told))
            })
            .collect();
        let broker_session = self.broker_sessions.entry(broker).or_default();
        broker_session.ticket = Some(ticket);
        broker_session.hurried = self.hurried.remove(&broker);
        // topics go by name there, and a request without topics could not show it
        let nameless = wanted.iter().any(|(_, told)| told.topic_id.is_none());
        let mut ask = if self.sessions && !nameless {
            broker_session.session.ask(wanted)
        } else {
            broker_session.session.ask_without(wanted)
        };
        if broker_session::forgets_what_it_names(&ask) {
            ask = broker_session.session.ask_anew();
        }
        let wait = if broker_session.hurried {
            Duration::ZERO
        } else if held {
            self.limits.wait.min(SHORT_WAIT)
        } else {
            self.limits.wait
        };
        let frame = FetchRequest {
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.limits.min_bytes,
            max_bytes: bytes,
            rack,
            ..self.nothing()
        };
        Some(broker_session::request(frame, &ask))
    }

    /// Makes the brokers that can be asked now answer at once, even with nothing.
    pub(crate) fn hurry(&mut self, metadata: &Metadata, now: Instant) {
        self.hurried = self.brokers(metadata, now);
    }

    /// Returns whether a hurried broker has not answered.
    pub(crate) fn is_hurrying(&self) -> bool {
        !self.hurried.is_empty()
            || self
                .broker_sessions
                .values()
                .any(|broker_session| broker_session.hurried)
    }

    /// Returns a request for nothing.
    fn nothing(&self) -> FetchRequest {
        FetchRequest {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 0,
            isolation: self.isolation,
            session_id: 0,
            session_epoch: -1,
            topics: Vec::new(),
            forgotten: Vec::new(),
            rack: Arc::default(),
        }
    }

    /// Returns the request that closes the session with a broker, if there is one.
    pub(crate) fn close(&mut self, broker: i32) -> Option<FetchRequest> {
        let ask = self.broker_sessions.get_mut(&broker)?.session.close()?;
        Some(broker_session::request(self.nothing(), &ask))
    }

    /// Returns all brokers that were ever asked.
    pub(crate) fn asked_brokers(&self) -> Vec<i32> {
        self.broker_sessions.keys().copied().collect()
    }

    /// Takes leaders from the metadata if it has changed. With thousands of partitions, a lookup for every answer would
    /// be too expensive.
    fn follow(&mut self, metadata: &Metadata) {
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
