//! One fetched partition: its position, its phase, and the meaning of an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error_code::Meaning;

use super::{Assignment, FetchedRecords, Limits, Outcome, Stop};
use crate::metadata::Metadata;
use crate::network::UNRESPONSIVE_AFTER;
use crate::protocol::fetch::AnsweredPartition;
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// The states in the drawing of [`super::state`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Asked(Asked),
    /// The reader holds this many bytes of records from this broker.
    Held {
        broker: i32,
        bytes: u64,
    },
    Stopped,
}

/// The request that a partition waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) ticket: u64,
    pub(super) broker: i32,
    pub(super) at: Instant,
    /// The leader epoch known at the time of the request.
    pub(super) leader_epoch: i32,
    /// The request went to the leader, and not to a closer replica.
    pub(super) by_leader: bool,
    /// Number of the connection, and whether the request began with the batch before the position.
    pub(super) connection: u64,
    pub(super) compares: bool,
}

/// A fetched partition.
#[derive(Debug)]
pub(super) struct PartitionState {
    /// Its name in fetch sessions; never reused.
    pub(super) number: u64,
    pub(super) name: Arc<str>,
    pub(super) index: i32,
    pub(super) offset: i64,
    /// Leader epoch of the record before `offset`, -1 when unknown.
    pub(super) last_epoch: i32,
    /// Base offset of the batch before `offset`, if the reader compares it.
    pub(super) compare_from: Option<i64>,
    /// The connection of the last records: over another one, the log may be another.
    pub(super) connection: Option<u64>,
    pub(super) topic_id: Option<TopicId>,
    pub(super) phase: Phase,
    /// Turn of the last records.
    pub(super) served: u64,
    pub(super) retry_at: Option<Instant>,
    pub(super) trouble: Option<(Instant, String)>,
    /// Start of its leader's failure to read it.
    failing: Option<Instant>,
    /// Start of the time in which its topic lacks it.
    missing: Option<Instant>,
    /// High watermark, last stable offset and log start that were reported last.
    pub(super) marks: Option<(i64, i64, i64)>,
    /// The metadata describes the fetched topic. Other callers may have refreshed it.
    pub(super) agreed: bool,
    /// The leader and its epoch, while `agreed`.
    pub(super) leader: Option<(i32, i32)>,
    /// The closest replica according to the leader, and the end of that lease.
    closer: Option<(i32, Instant)>,
    /// Until then the leader does not learn our rack: a replica that it named could not serve.
    stay_until: Option<Instant>,
}

impl PartitionState {
    /// Returns a partition that is fetched from `assignment.offset` on.
    pub(super) fn new(assignment: &Assignment, number: u64) -> Self {
        Self {
            number,
            name: assignment.partition.topic.as_str().into(),
            index: assignment.partition.partition,
            offset: assignment.offset,
            last_epoch: assignment.leader_epoch.unwrap_or(-1),
            compare_from: assignment.compare_from,
            connection: None,
            topic_id: assignment.topic_id,
            phase: Phase::Idle,
            served: 0,
            retry_at: None,
            trouble: None,
            failing: None,
            missing: None,
            marks: None,
            agreed: false,
            leader: None,
            closer: None,
            stay_until: None,
        }
    }

    /// Returns whether it continues undisturbed under this assignment.
    pub(super) fn serves(&self, assignment: &Assignment) -> bool {
        self.offset == assignment.offset
            && self.phase != Phase::Stopped
            && (assignment.topic_id.is_none() || assignment.topic_id == self.topic_id)
    }

    /// Takes the leader from the metadata. A new leader may name another closest replica.
    pub(super) fn follow(&mut self, partition: &TopicPartition, metadata: &Metadata) {
        self.agreed = metadata
            .topic(&partition.topic)
            .is_some_and(|facts| self.topic_id == Some(facts.id));
        let leader = metadata
            .leader(&partition.topic, partition.partition)
            .filter(|_| self.agreed);
        let gone = self
            .closer
            .is_some_and(|(broker, _)| !metadata.brokers().contains_key(&broker));
        if gone || leader != self.leader {
            self.closer = None;
        }
        if leader != self.leader {
            // another replica may be able to read it
            self.failing = None;
        }
        self.leader = leader;
    }

    /// Returns the broker to fetch from: the leader, or the closest replica that it has named.
    pub(super) fn source(&self, now: Instant) -> Option<i32> {
        let (leader, _) = self.leader?;
        match self.closer {
            Some((broker, until)) if now < until => Some(broker),
            _ => Some(leader),
        }
    }

    /// Returns whether the leader may redirect us to another replica.
    pub(super) fn may_move(&self, now: Instant) -> bool {
        self.stay_until.is_none_or(|until| until <= now)
    }

    /// Notes the closest replica. Without a lease the metadata does not know it.
    pub(super) fn read_from(
        &mut self,
        broker: i32,
        lease: Option<Instant>,
        now: Instant,
        limits: &Limits,
    ) {
        self.trouble = None;
        match lease {
            Some(until) => self.closer = Some((broker, until)),
            None => self.stay_until = Some(now + limits.patience),
        }
    }

    /// Returns to the leader, and stays there for a while.
    fn stay(&mut self, now: Instant, limits: &Limits) {
        self.closer = None;
        self.stay_until = Some(now + limits.patience);
    }

    /// Notes that a broker cannot serve; a closer replica is replaced by the leader.
    pub(super) fn avoid(&mut self, broker: i32, now: Instant, limits: &Limits) {
        if self.closer.is_some_and(|(closer, _)| closer == broker) {
            self.stay(now, limits);
        }
    }

    /// Returns the request, if the partition waits for this one.
    pub(super) fn asked_by(&self, ticket: u64) -> Option<Asked> {
        match self.phase {
            Phase::Asked(asked) if asked.ticket == ticket => Some(asked),
            _ => None,
        }
    }

    /// Returns the offset to fetch over a connection, and whether it is that of the batch before the position.
    pub(super) fn from(&self, connection: u64) -> (i64, bool) {
        match self.compare_from {
            Some(base) if base < self.offset && self.connection != Some(connection) => (base, true),
            _ => (self.offset, false),
        }
    }

    pub(super) fn can_be_asked(&self, now: Instant) -> bool {
        self.phase == Phase::Idle && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Returns whether the partition can be read, as far as known.
    pub(super) const fn is_well(&self) -> bool {
        self.trouble.is_none()
    }

    /// Notes a successful read.
    pub(super) fn get_well(&mut self) {
        self.trouble = None;
        self.failing = None;
        self.missing = None;
    }

    pub(super) fn delay(&mut self, reason: String, now: Instant, pause: Duration) {
        let since = self.trouble.take().map_or(now, |(since, _)| since);
        self.trouble = Some((since, reason));
        self.retry_at = Some(now + pause);
    }

    /// Returns the start of the wait for an answer, if it is overdue.
    pub(super) fn unanswered(&self, now: Instant, limits: &Limits) -> Option<(Instant, String)> {
        let Phase::Asked(Asked { broker, at, .. }) = self.phase else {
            return None;
        };
        let overdue = now.saturating_duration_since(at) > limits.wait + UNRESPONSIVE_AFTER;
        overdue.then(|| (at, format!("broker {broker} has not answered")))
    }

    /// Stops waiting for an unresponsive broker if another one can be asked: the new leader, or the leader in place of
    /// a closer replica. A late answer is ignored.
    pub(super) fn give_up_on(
        &mut self,
        silent: &[i32],
        leader: Option<(i32, i32)>,
        now: Instant,
        limits: &Limits,
    ) {
        let Phase::Asked(Asked { broker, .. }) = self.phase else {
            return;
        };
        if silent.contains(&broker) && leader.is_some_and(|(leader, _)| leader != broker) {
            self.phase = Phase::Idle;
            self.avoid(broker, now, limits);
        }
    }

    /// Returns the meaning of an answer, and whether the metadata is out of date. `moved` says that the metadata knows
    /// another leader epoch than the request.
    pub(super) fn take(
        &mut self,
        answered: AnsweredPartition,
        asked: Asked,
        moved: bool,
        now: Instant,
        limits: &Limits,
    ) -> (Option<Outcome>, bool) {
        let code = answered.error;
        let meaning = code.meaning();
        let complains = meaning != Meaning::Fine || answered.diverging.is_some();
        if complains && !asked.by_leader {
            self.stay(now, limits);
            let reason = format!("the closest replica cannot serve it: {code}");
            self.delay(reason, now, Duration::ZERO);
            return (None, matches!(meaning, Meaning::Moved | Meaning::Unknown));
        }
        if meaning != Meaning::Failing {
            self.failing = None;
        }
        let stop = match meaning {
            Meaning::Fine => match answered.diverging {
                None => return (self.records(answered, asked), false),
                Some(end) => Stop::Truncated {
                    epoch: end.epoch,
                    end_offset: end.end_offset,
                },
            },
            // the new leader is known already: ask it at once
            Meaning::Moved if moved => {
                self.delay(code.to_string(), now, Duration::ZERO);
                return (None, false);
            }
            Meaning::Moved | Meaning::Unknown => {
                self.delay(code.to_string(), now, limits.retry);
                return (None, true);
            }
            Meaning::Later => {
                self.delay(code.to_string(), now, limits.retry);
                return (None, false);
            }
            Meaning::Failing => {
                let since = *self.failing.get_or_insert(now);
                if now.saturating_duration_since(since) < limits.patience {
                    self.delay(code.to_string(), now, limits.retry);
                    return (None, false);
                }
                Stop::Unreadable { code }
            }
            // the batch was deleted, and the position may still be in the log
            Meaning::OutOfRange if asked.compares => {
                self.compare_from = None;
                return (None, false);
            }
            Meaning::OutOfRange => Stop::OutOfRange { log: None },
            Meaning::Refused | Meaning::Final => Stop::Refused { code },
        };
        self.phase = Phase::Stopped;
        (Some(Outcome::Stopped(stop)), false)
    }

    fn records(&mut self, answered: AnsweredPartition, asked: Asked) -> Option<Outcome> {
        self.get_well();
        let marks = (
            answered.high_watermark,
            answered.last_stable_offset,
            answered.log_start_offset,
        );
        if answered.records.is_empty() && self.marks == Some(marks) {
            return None;
        }
        self.marks = Some(marks);
        if !answered.records.is_empty() {
            self.connection = Some(asked.connection);
            self.phase = Phase::Held {
                broker: asked.broker,
                bytes: u64::try_from(answered.records.len()).unwrap_or(u64::MAX),
            };
        }
        Some(Outcome::Records(FetchedRecords {
            high_watermark: answered.high_watermark,
            last_stable_offset: answered.last_stable_offset,
            log_start_offset: answered.log_start_offset,
            leader_epoch: asked.leader_epoch,
            aborted: answered.aborted,
            records: answered.records,
        }))
    }

    /// Returns the stop that fresh metadata implies, if any.
    pub(super) fn compare(
        &mut self,
        partition: &TopicPartition,
        metadata: &Metadata,
        now: Instant,
        limits: &Limits,
    ) -> Option<Stop> {
        let Some(facts) = metadata.topic(&partition.topic) else {
            let reason = "metadata lacks its topic".to_owned();
            self.delay(reason, now, limits.retry);
            return None;
        };
        match facts.error.meaning() {
            Meaning::Fine => {}
            Meaning::Unknown => {
                self.delay(facts.error.to_string(), now, limits.retry);
                return (now - facts.since >= limits.patience).then_some(Stop::Gone);
            }
            // a topic that is being created has no leaders yet
            Meaning::Moved | Meaning::Later | Meaning::Failing => {
                self.delay(facts.error.to_string(), now, limits.retry);
                return None;
            }
            _ => return Some(Stop::Refused { code: facts.error }),
        }
        match self.topic_id {
            Some(expected) if expected != facts.id => {
                return Some(Stop::Replaced { found: facts.id });
            }
            _ => self.topic_id = Some(facts.id),
        }
        match facts.partitions.get(&partition.partition) {
            None => {
                self.delay(
                    "the topic has no such partition".to_owned(),
                    now,
                    limits.retry,
                );
                let since = *self.missing.get_or_insert(now);
                (now - since >= limits.patience).then_some(Stop::Gone)
            }
            Some(facts) => {
                self.missing = None;
                if facts.leader.is_none() {
                    self.delay("it has no leader".to_owned(), now, limits.retry);
                }
                None
            }
        }
    }
}
