//! What to fetch next, and what an answer means. Pure: facts and time in, requests and outcomes out.
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
//! * One request per broker is outstanding. The partitions that were served longest ago come first, because a broker
//!   fills an answer in the order of the request.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::tracked::{Phase, Tracked};
use super::{Assignment, Delay, FetchedPartition, Limits, Outcome, TopicPartition};
use crate::directory::Directory;
use crate::error::ErrorCode;
use crate::protocol::fetch::{
    AnsweredPartition, AskedPartition, AskedTopic, FetchAnswer, FetchRequest,
};
use crate::protocol::{IsolationLevel, TopicId};

/// How long a broker may hold a request back while a partition of it is held by the reader: when the reader goes on,
/// the partition must not wait for new records of others.
const SHORT_WAIT: Duration = Duration::from_millis(20);

/// What was asked of a broker.
#[derive(Debug)]
struct Outstanding {
    ticket: u64,
    partitions: Vec<AskedOf>,
}

#[derive(Debug)]
struct AskedOf {
    partition: TopicPartition,
    topic_id: TopicId,
    offset: i64,
    leader_epoch: i32,
}

/// Partitions being read.
#[derive(Debug)]
pub(crate) struct FetchState {
    isolation: IsolationLevel,
    limits: Limits,
    partitions: BTreeMap<TopicPartition, Tracked>,
    outstanding: BTreeMap<i32, Outstanding>,
    turn: u64,
    stale: bool,
}

impl FetchState {
    pub(crate) const fn new(isolation: IsolationLevel, limits: Limits) -> Self {
        Self {
            isolation,
            limits,
            partitions: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            turn: 0,
            stale: false,
        }
    }

    /// Replaces the partitions to read. One that is read already, from the same offset, goes on undisturbed.
    pub(crate) fn assign(&mut self, assignments: &[Assignment]) {
        let mut before = std::mem::take(&mut self.partitions);
        for assignment in assignments {
            let same = before
                .remove(&assignment.partition)
                .filter(|tracked| tracked.serves(assignment));
            let tracked = same.unwrap_or_else(|| {
                // its leader may be known from long ago
                self.stale = true;
                Tracked::new(assignment)
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
        if matches!(tracked.phase, Phase::Asked { .. }) && tracked.offset == offset {
            return true;
        }
        tracked.offset = offset;
        tracked.last_epoch = leader_epoch;
        tracked.phase = Phase::Idle;
        true
    }

    /// The position of a partition.
    pub(crate) fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.partitions.get(partition).map(|tracked| tracked.offset)
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

    /// Whether metadata has to be asked for before all partitions can be read.
    pub(crate) fn wants_metadata(&self, directory: &Directory) -> bool {
        self.partitions
            .iter()
            .filter(|(_, tracked)| tracked.phase != Phase::Stopped)
            .any(|(partition, tracked)| self.stale || !tracked.agrees(partition, directory))
    }

    /// Which brokers could be asked now, if they can be reached: those that lead an idle partition.
    pub(crate) fn brokers(&self, directory: &Directory, now: Instant) -> BTreeSet<i32> {
        self.partitions
            .iter()
            .filter(|(_, tracked)| tracked.can_be_asked(now))
            .filter(|(partition, tracked)| tracked.agrees(partition, directory))
            .filter_map(|(at, _)| Some(directory.leader(&at.topic, at.partition)?.0))
            .filter(|broker| !self.outstanding.contains_key(broker))
            .collect()
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

    /// What one answer may have, so that the answers of all leaders together stay within the budget. A share for each,
    /// and not what others have left: one that waits for new records must not keep the rest from being read.
    fn share(&self, directory: &Directory) -> i32 {
        let leaders: BTreeSet<i32> = self
            .partitions
            .iter()
            .filter(|(_, tracked)| tracked.phase != Phase::Stopped)
            .filter_map(|(at, _)| Some(directory.leader(&at.topic, at.partition)?.0))
            .collect();
        let leaders = u64::try_from(leaders.len()).unwrap_or(u64::MAX).max(1);
        let share = i32::try_from(self.limits.budget / leaders).unwrap_or(i32::MAX);
        share
            .max(self.limits.partition_bytes)
            .min(self.limits.answer_bytes)
    }

    /// What to ask a broker that is ready. None when there is nothing to ask.
    pub(crate) fn plan(
        &mut self,
        broker: i32,
        directory: &Directory,
        now: Instant,
    ) -> Option<FetchRequest> {
        if self.outstanding.contains_key(&broker) {
            return None;
        }
        let bytes = self.share(directory);
        let leads = |partition: &TopicPartition| {
            directory
                .leader(&partition.topic, partition.partition)
                .filter(|(leader, _)| *leader == broker)
        };
        let mut chosen: Vec<(u64, AskedOf)> = self
            .partitions
            .iter()
            .filter(|(_, tracked)| tracked.can_be_asked(now))
            .filter(|(partition, tracked)| tracked.agrees(partition, directory))
            .filter_map(|(partition, tracked)| {
                let (_, leader_epoch) = leads(partition)?;
                let asked = AskedOf {
                    partition: partition.clone(),
                    topic_id: tracked.topic_id?,
                    offset: tracked.offset,
                    leader_epoch,
                };
                Some((tracked.served, asked))
            })
            .collect();
        if chosen.is_empty() {
            return None;
        }
        chosen.sort_by_key(|(served, _)| *served);
        self.turn += 1;
        let held = |(partition, tracked): (&TopicPartition, &Tracked)| {
            tracked.phase == Phase::Held && leads(partition).is_some()
        };
        let wait = if self.partitions.iter().any(held) {
            self.limits.wait.min(SHORT_WAIT)
        } else {
            self.limits.wait
        };
        let mut topics: Vec<AskedTopic> = Vec::new();
        let mut places: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, asked) in &chosen {
            let Some(tracked) = self.partitions.get_mut(&asked.partition) else {
                continue;
            };
            tracked.phase = Phase::Asked { ticket: self.turn };
            tracked.retry_at = None;
            let partition = AskedPartition {
                index: asked.partition.partition,
                leader_epoch: asked.leader_epoch,
                offset: asked.offset,
                last_epoch: tracked.last_epoch,
                max_bytes: self.limits.partition_bytes,
            };
            let place = *places.entry(&asked.partition.topic).or_insert_with(|| {
                topics.push(AskedTopic {
                    name: asked.partition.topic.clone(),
                    id: asked.topic_id,
                    partitions: Vec::new(),
                });
                topics.len() - 1
            });
            topics[place].partitions.push(partition);
        }
        self.outstanding.insert(
            broker,
            Outstanding {
                ticket: self.turn,
                partitions: chosen.into_iter().map(|(_, asked)| asked).collect(),
            },
        );
        Some(FetchRequest {
            max_wait_ms: i32::try_from(wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.limits.min_bytes,
            max_bytes: bytes,
            isolation: self.isolation,
            topics,
        })
    }

    /// Takes a broker's answer. What it says of new leaders goes into the directory.
    pub(crate) fn answered(
        &mut self,
        broker: i32,
        answer: FetchAnswer,
        directory: &mut Directory,
        now: Instant,
    ) -> Vec<FetchedPartition> {
        let Some(asked) = self.outstanding.remove(&broker) else {
            return Vec::new();
        };
        let mut said: BTreeMap<(TopicId, String, i32), AnsweredPartition> = BTreeMap::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                said.insert((topic.id, topic.name.clone(), partition.index), partition);
            }
        }
        let mut fetched = Vec::new();
        for one in asked.partitions {
            let Some(tracked) = self.partitions.get_mut(&one.partition) else {
                continue;
            };
            if !tracked.waits_for(asked.ticket) {
                continue;
            }
            tracked.phase = Phase::Idle;
            self.turn += 1;
            tracked.served = self.turn;
            let index = one.partition.partition;
            let answered = said
                .remove(&(one.topic_id, String::new(), index))
                .or_else(|| said.remove(&(TopicId::NONE, one.partition.topic.clone(), index)));
            let outcome = match answered {
                // an error of the whole answer, such as a session that does not exist
                None if answer.error != 0 => {
                    tracked.delay(ErrorCode(answer.error).to_string(), now, self.limits.retry);
                    None
                }
                None => {
                    tracked.delay(
                        "the broker says nothing of it".to_owned(),
                        now,
                        self.limits.retry,
                    );
                    None
                }
                Some(answered) => {
                    if let Some(leader) = answered.leader {
                        directory.learn(&one.partition.topic, index, leader);
                    }
                    let moved = directory.leader(&one.partition.topic, index)
                        != Some((broker, one.leader_epoch));
                    let (outcome, stale) =
                        tracked.take(answered, one.leader_epoch, moved, now, &self.limits);
                    self.stale |= stale;
                    outcome
                }
            };
            if let Some(outcome) = outcome {
                fetched.push(FetchedPartition {
                    partition: one.partition,
                    topic_id: one.topic_id,
                    offset: one.offset,
                    outcome,
                });
            }
        }
        fetched
    }

    /// A broker did not answer: its partitions may be led by somebody else now.
    pub(crate) fn failed(&mut self, broker: i32, reason: &str, now: Instant) {
        let Some(asked) = self.outstanding.remove(&broker) else {
            return;
        };
        self.stale = true;
        for one in asked.partitions {
            let Some(tracked) = self.partitions.get_mut(&one.partition) else {
                continue;
            };
            if tracked.waits_for(asked.ticket) {
                tracked.phase = Phase::Idle;
                // the network decides when the broker can be asked again
                tracked.delay(reason.to_owned(), now, Duration::ZERO);
            }
        }
    }

    /// A leader cannot be reached: for the reader to see, and a reason to ask who leads.
    pub(crate) fn unreachable(
        &mut self,
        broker: i32,
        reason: &str,
        directory: &Directory,
        now: Instant,
    ) {
        self.stale = true;
        for (partition, tracked) in &mut self.partitions {
            let leader = directory.leader(&partition.topic, partition.partition);
            if tracked.phase == Phase::Idle && leader.is_some_and(|(leader, _)| leader == broker) {
                tracked.delay(reason.to_owned(), now, Duration::ZERO);
            }
        }
    }

    /// Compares what is read with fresh metadata.
    pub(crate) fn compare(&mut self, directory: &Directory, now: Instant) -> Vec<FetchedPartition> {
        self.stale = false;
        let mut fetched = Vec::new();
        for (partition, tracked) in &mut self.partitions {
            if tracked.phase == Phase::Stopped {
                continue;
            }
            if let Some(stop) = tracked.compare(partition, directory, now, &self.limits) {
                tracked.phase = Phase::Stopped;
                fetched.push(FetchedPartition {
                    partition: partition.clone(),
                    topic_id: tracked.topic_id.unwrap_or_default(),
                    offset: tracked.offset,
                    outcome: Outcome::Stopped(stop),
                });
            } else if directory
                .leader(&partition.topic, partition.partition)
                .is_none()
            {
                self.stale = true;
            }
        }
        fetched
    }

    /// Partitions that cannot be read at the moment.
    pub(crate) fn delays(&self) -> Vec<Delay> {
        let active = self
            .partitions
            .iter()
            .filter(|(_, tracked)| tracked.phase != Phase::Stopped);
        active
            .filter_map(|(partition, tracked)| {
                let (since, reason) = tracked.trouble.clone()?;
                Some(Delay {
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
