//! One partition that is being read: its position, its phase, and what an answer means for it.

use std::time::{Duration, Instant};

use super::{Assignment, FetchedRecords, Limits, Outcome, Stop, TopicPartition};
use crate::directory::Directory;
use crate::error::{ErrorCode, Meaning};
use crate::protocol::TopicId;
use crate::protocol::fetch::AnsweredPartition;

/// Where a partition is in the drawing of [`super::state`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Asked { ticket: u64 },
    Held,
    Stopped,
}

/// A partition that is being read.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) offset: i64,
    /// Leader epoch of the last record before `offset`, -1 when it is not known.
    pub(super) last_epoch: i32,
    pub(super) topic_id: Option<TopicId>,
    pub(super) phase: Phase,
    /// When it was served last, in turns.
    pub(super) served: u64,
    pub(super) retry_at: Option<Instant>,
    pub(super) trouble: Option<(Instant, String)>,
    /// High watermark, last stable offset and log start that were handed out last.
    pub(super) marks: Option<(i64, i64, i64)>,
}

impl Tracked {
    /// A partition whose position is to be read from `assignment.offset` on.
    pub(super) fn new(assignment: &Assignment) -> Self {
        Self {
            offset: assignment.offset,
            last_epoch: assignment.leader_epoch.unwrap_or(-1),
            topic_id: assignment.topic_id,
            phase: Phase::Idle,
            served: 0,
            retry_at: None,
            trouble: None,
            marks: None,
        }
    }

    /// Whether it goes on undisturbed when it is assigned again.
    pub(super) fn serves(&self, assignment: &Assignment) -> bool {
        self.offset == assignment.offset
            && self.phase != Phase::Stopped
            && (assignment.topic_id.is_none() || assignment.topic_id == self.topic_id)
    }

    /// Whether the directory means the topic that is being read. Anybody may have asked for metadata in between.
    pub(super) fn agrees(&self, partition: &TopicPartition, directory: &Directory) -> bool {
        directory
            .topic(&partition.topic)
            .is_some_and(|facts| self.topic_id == Some(facts.id))
    }

    /// Whether an answer to this request is for it.
    pub(super) fn waits_for(&self, ticket: u64) -> bool {
        self.phase == (Phase::Asked { ticket })
    }

    pub(super) fn can_be_asked(&self, now: Instant) -> bool {
        self.phase == Phase::Idle && self.retry_at.is_none_or(|at| at <= now)
    }

    pub(super) fn delay(&mut self, reason: String, now: Instant, pause: Duration) {
        let since = self.trouble.take().map_or(now, |(since, _)| since);
        self.trouble = Some((since, reason));
        self.retry_at = Some(now + pause);
    }

    /// What an answer means for this partition, and whether metadata is out of date. `moved` says that the directory
    /// knows another leader, or a newer epoch, than was asked.
    pub(super) fn take(
        &mut self,
        answered: AnsweredPartition,
        leader_epoch: i32,
        moved: bool,
        now: Instant,
        limits: &Limits,
    ) -> (Option<Outcome>, bool) {
        let code = ErrorCode(answered.error);
        let stop = match code.meaning() {
            Meaning::Fine => match answered.diverging {
                None => return (self.records(answered, leader_epoch), false),
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
            Meaning::OutOfRange => Stop::OutOfRange,
            Meaning::Refused | Meaning::Final => Stop::Refused { code },
        };
        self.phase = Phase::Stopped;
        (Some(Outcome::Stopped(stop)), false)
    }

    fn records(&mut self, answered: AnsweredPartition, leader_epoch: i32) -> Option<Outcome> {
        self.trouble = None;
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
            self.phase = Phase::Held;
        }
        Some(Outcome::Records(FetchedRecords {
            high_watermark: answered.high_watermark,
            last_stable_offset: answered.last_stable_offset,
            log_start_offset: answered.log_start_offset,
            leader_epoch,
            aborted: answered.aborted,
            records: answered.records,
        }))
    }

    /// What metadata says against this partition.
    pub(super) fn compare(
        &mut self,
        partition: &TopicPartition,
        directory: &Directory,
        now: Instant,
        limits: &Limits,
    ) -> Option<Stop> {
        let facts = directory.topic(&partition.topic)?;
        match facts.error.meaning() {
            Meaning::Fine => {}
            Meaning::Unknown => {
                self.delay(facts.error.to_string(), now, limits.retry);
                return (now - facts.since >= limits.patience).then_some(Stop::Gone);
            }
            // a topic that is just being made has no leaders yet
            Meaning::Moved | Meaning::Later => {
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
                let since = self.trouble.as_ref().map_or(now, |(since, _)| *since);
                (now - since >= limits.patience).then_some(Stop::Gone)
            }
            Some(facts) => {
                if facts.leader.is_none() {
                    self.delay("it has no leader".to_owned(), now, limits.retry);
                }
                None
            }
        }
    }
}
