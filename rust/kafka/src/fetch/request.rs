//! Decides which broker is asked for which partitions: budget, order and wait. Pure. [`super::state`] interprets
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::broker_session::{self, SentPartition};
use super::partition::{Asked, PartitionState, Phase};
use super::state::FetchState;
use crate::metadata::Metadata;
use crate::protocol::fetch::{AskedPartition, FetchRequest};

/// Longest wait of a broker while the reader holds one of its partitions: once the reader advances, that partition must
/// not wait for new records of others.
const SHORT_WAIT: Duration = Duration::from_millis(20);

impl FetchState {
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
}
