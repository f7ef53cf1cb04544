//! Batches to partition leaders: in order, each exactly once, whatever gets lost on the way (KIP-98).
//!
//! # What brokers check
//!
//! Each batch has the sequence number of its first record, counted per partition from 0 at the begin of a transaction;
//! 2^31 - 1 is followed by 0. A broker takes a batch only if it follows the one before. It remembers the last five
//! batches of a producer and partition: one of them again is answered as if it were new, with its offset. So a batch
//! may be sent again as long as no more than five are unanswered, and as long as those behind it wait.
//!
//! # What follows
//!
//! * At most [`WINDOW`] requests are outstanding per broker, with one batch of a partition each. All outstanding
//!   batches of a partition are with one broker: when the leader changes, the old one answers (or is lost) first.
//! * No batch is sent that is [`WINDOW`] or more batches behind the oldest one without an acknowledgement, however
//!   many in between are acknowledged: a leader that says 7 or 20 may have taken a batch and those behind it, and
//!   must still know it when it comes again.
//! * When a batch fails and may be sent again, nothing of its partition is sent until all outstanding batches are
//!   answered. Then the failed ones go again, the same bytes in the same order, to whoever leads then.
//! * 45 is what batches behind a failed one get: they follow it. 45 with nothing failed before it means that brokers
//!   and we do not agree on what is in the log: abort. 46 says that the batch is there already: success.
//! * Every other refusal is final. What is behind a refused batch cannot be written, so the transaction is over. That
//!   a broker says 47 or 90 here is no proof that we are fenced; the coordinator's answer to the abort is.
//!
//! # The table, for one batch
//!
//! ```text
//! state     event                                   next
//! -------   -------------------------------------   -----------------------------------------------
//! waiting   its turn, nothing failed before it      flying
//! flying    0, 46                                   gone, acknowledged
//! flying    passing error, lost                     failed
//! flying    45, an earlier one of it failed         failed
//! flying    45 alone, anything else                 refused: the transaction is over
//! failed    no batch of the partition flies         waiting, after a pause
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use super::code;
use super::error_class::{is_about_leaders, is_follow_up, is_passing};

/// Requests outstanding per broker, because brokers remember five batches per producer and partition.
pub const WINDOW: usize = 5;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Where the records of a batch come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceRange {
    /// The caller's number for the source partition.
    pub partition: u32,
    /// Offset of the first record.
    pub first: i64,
    /// Offset of the last record.
    pub last: i64,
}

/// A batch that is in the log of the target, to be visible when the transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged<K> {
    /// Target partition.
    pub target: K,
    /// Where the records come from.
    pub source: SourceRange,
    /// How many there are. They have consecutive target offsets; source offsets are consecutive too when there are as
    /// many of them.
    pub records: i32,
    /// Target offset of the first record; None when the broker has forgotten it (46).
    pub base_offset: Option<i64>,
}

/// A batch that will never be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<K> {
    /// Target partition.
    pub target: K,
    /// Where the records come from.
    pub source: SourceRange,
    /// The broker's error code.
    pub code: i16,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<K> {
    /// Batches that are in the log.
    pub acknowledged: Vec<Acknowledged<K>>,
    /// The first batch that was refused.
    pub refused: Option<Refused<K>>,
    /// Whether somebody else may lead.
    pub stale: bool,
}

/// Names a request until it was answered or lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request to make: one batch per partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing<K, B> {
    /// To be given back with the answer.
    pub ticket: Ticket,
    /// Partitions and what was pushed for them.
    pub batches: Vec<(K, B)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Flying(Ticket),
    Failed,
}

#[derive(Debug)]
struct Entry<B> {
    /// Which batch of the partition it is.
    ordinal: usize,
    payload: B,
    size: usize,
    records: i32,
    source: SourceRange,
    state: State,
}

#[derive(Debug)]
struct Lane<B> {
    next_sequence: i32,
    next_ordinal: usize,
    entries: VecDeque<Entry<B>>,
    /// When it was served last, in turns.
    served: u64,
    pause: Duration,
    not_before: Option<Instant>,
}

impl<B> Default for Lane<B> {
    fn default() -> Self {
        Self {
            next_sequence: 0,
            next_ordinal: 0,
            entries: VecDeque::new(),
            served: 0,
            pause: FIRST_PAUSE,
            not_before: None,
        }
    }
}

/// That a batch can be sent.
#[derive(Debug)]
struct Turn {
    /// The request in which the one before it is outstanding.
    behind: Option<Ticket>,
}

#[derive(Debug)]
struct Flight<K> {
    broker: i32,
    /// Empty when the transaction it belonged to is over.
    partitions: Vec<K>,
}

/// The state machine; see the module. `K` names a partition, `B` is a batch, cheap to clone.
#[derive(Debug)]
pub struct InFlight<K, B> {
    lanes: BTreeMap<K, Lane<B>>,
    /// Lanes with entries.
    busy: BTreeSet<K>,
    flights: BTreeMap<Ticket, Flight<K>>,
    turn: u64,
    held: usize,
    request_bytes: usize,
}

impl<K: Ord + Clone, B: Clone> InFlight<K, B> {
    /// Nothing to send. `request_bytes` bounds a request, beyond its first batch.
    #[must_use]
    pub const fn new(request_bytes: usize) -> Self {
        Self {
            lanes: BTreeMap::new(),
            busy: BTreeSet::new(),
            flights: BTreeMap::new(),
            turn: 0,
            held: 0,
            request_bytes,
        }
    }

    /// Forgets all batches and begins every sequence at 0, for a new identity. Requests that are outstanding count
    /// towards the window until they are answered, and mean nothing else any more.
    pub fn restart(&mut self) {
        self.lanes.clear();
        self.busy.clear();
        self.held = 0;
        for flight in self.flights.values_mut() {
            flight.partitions.clear();
        }
    }

    /// The sequence number of the next batch that is pushed for a partition.
    #[must_use]
    pub fn next_sequence(&self, partition: &K) -> i32 {
        self.lanes
            .get(partition)
            .map_or(0, |lane| lane.next_sequence)
    }

    /// Takes a batch that carries [`Self::next_sequence`].
    pub fn push(
        &mut self,
        partition: &K,
        payload: B,
        size: usize,
        records: i32,
        source: SourceRange,
    ) {
        if !self.lanes.contains_key(partition) {
            self.lanes.insert(partition.clone(), Lane::default());
        }
        let Some(lane) = self.lanes.get_mut(partition) else {
            return;
        };
        lane.next_sequence = after(lane.next_sequence, records);
        lane.entries.push_back(Entry {
            ordinal: lane.next_ordinal,
            payload,
            size,
            records,
            source,
            state: State::Waiting,
        });
        lane.next_ordinal += 1;
        self.held += size;
        if !self.busy.contains(partition) {
            self.busy.insert(partition.clone());
        }
    }

    /// Bytes of all batches that are not acknowledged.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Whether everything that was pushed is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.busy.is_empty()
    }

    /// Partitions with batches that are not acknowledged.
    pub fn unsettled(&self) -> impl Iterator<Item = &K> {
        self.busy.iter()
    }

    /// Brokers that could be given a request now. `leader` says who leads a partition.
    pub fn brokers(&self, leader: impl Fn(&K) -> Option<i32>, now: Instant) -> BTreeSet<i32> {
        let mut brokers = BTreeSet::new();
        for partition in &self.busy {
            if let Some(broker) = self.target(partition, &leader, now) {
                brokers.insert(broker);
            }
        }
        brokers.retain(|broker| self.outstanding(*broker) < WINDOW);
        brokers
    }

    /// When a partition may be sent again that rests now.
    #[must_use]
    pub fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.busy
            .iter()
            .filter_map(|partition| self.lanes.get(partition)?.not_before)
            .filter(|at| *at > now)
            .min()
    }

    /// The next request for a broker that is ready; None when there is nothing to send or its window is full.
    pub fn plan(
        &mut self,
        broker: i32,
        leader: impl Fn(&K) -> Option<i32>,
        now: Instant,
    ) -> Option<Outgoing<K, B>> {
        if self.outstanding(broker) >= WINDOW {
            return None;
        }
        let mut chosen: Vec<(u64, &K)> = self
            .busy
            .iter()
            .filter(|partition| self.target(partition, &leader, now) == Some(broker))
            .filter_map(|partition| Some((self.lanes.get(partition)?.served, partition)))
            .collect();
        // those that were served longest ago come first, so that a full request starves nobody
        chosen.sort_by_key(|(served, _)| *served);
        let partitions: Vec<K> = chosen
            .into_iter()
            .map(|(_, partition)| partition.clone())
            .collect();
        self.turn += 1;
        let ticket = Ticket(self.turn);
        let mut batches = Vec::with_capacity(partitions.len());
        let mut bytes = 0;
        for partition in partitions {
            let Some(lane) = self.lanes.get_mut(&partition) else {
                continue;
            };
            let waiting = lane
                .entries
                .iter_mut()
                .find(|entry| entry.state == State::Waiting);
            let Some(entry) = waiting else {
                continue;
            };
            if bytes > 0 && bytes + entry.size > self.request_bytes {
                continue;
            }
            bytes += entry.size;
            entry.state = State::Flying(ticket);
            lane.served = self.turn;
            batches.push((partition, entry.payload.clone()));
        }
        if batches.is_empty() {
            return None;
        }
        let partitions = batches
            .iter()
            .map(|(partition, _)| partition.clone())
            .collect();
        self.flights.insert(ticket, Flight { broker, partitions });
        Some(Outgoing { ticket, batches })
    }

    /// Takes an answer: for each partition an error code and the base offset. A partition of which it says nothing
    /// counts as lost.
    pub fn answered(
        &mut self,
        ticket: Ticket,
        answers: impl IntoIterator<Item = (K, i16, i64)>,
        now: Instant,
    ) -> Answered<K> {
        let mut said: BTreeMap<K, (i16, i64)> = answers
            .into_iter()
            .map(|(partition, error, offset)| (partition, (error, offset)))
            .collect();
        let mut answered = Answered {
            acknowledged: Vec::new(),
            refused: None,
            stale: false,
        };
        let Some(flight) = self.flights.remove(&ticket) else {
            return answered;
        };
        for partition in flight.partitions {
            let one = said.remove(&partition);
            self.settle(&partition, ticket, one, now, &mut answered);
        }
        answered
    }

    /// A request or its answer was lost: the broker may have carried it out, or may still do so.
    pub fn lost(&mut self, ticket: Ticket, now: Instant) {
        self.answered(ticket, [], now);
    }

    fn settle(
        &mut self,
        partition: &K,
        ticket: Ticket,
        said: Option<(i16, i64)>,
        now: Instant,
        answered: &mut Answered<K>,
    ) {
        let Some(lane) = self.lanes.get_mut(partition) else {
            return;
        };
        let Some(at) = lane
            .entries
            .iter()
            .position(|entry| entry.state == State::Flying(ticket))
        else {
            return;
        };
        let behind_failure = lane
            .entries
            .iter()
            .take(at)
            .any(|entry| entry.state == State::Failed);
        match said {
            Some((0 | code::DUPLICATE_SEQUENCE_NUMBER, offset)) => {
                if let Some(entry) = lane.entries.remove(at) {
                    self.held -= entry.size;
                    answered.acknowledged.push(Acknowledged {
                        target: partition.clone(),
                        source: entry.source,
                        records: entry.records,
                        base_offset: (offset >= 0).then_some(offset),
                    });
                }
                lane.pause = FIRST_PAUSE;
            }
            Some((error, _)) if !is_passing(error) && !is_follow_up(error, behind_failure) => {
                answered.refused.get_or_insert(Refused {
                    target: partition.clone(),
                    source: lane.entries[at].source,
                    code: error,
                });
                lane.entries[at].state = State::Failed;
            }
            passing => {
                answered.stale |= passing.is_none_or(|(error, _)| is_about_leaders(error));
                lane.entries[at].state = State::Failed;
            }
        }
        lane.land(now);
        if lane.entries.is_empty() {
            self.busy.remove(partition);
        }
    }

    fn outstanding(&self, broker: i32) -> usize {
        self.flights
            .values()
            .filter(|flight| flight.broker == broker)
            .count()
    }

    /// Which broker the next batch of a partition may go to now.
    fn target(
        &self,
        partition: &K,
        leader: &impl Fn(&K) -> Option<i32>,
        now: Instant,
    ) -> Option<i32> {
        let lane = self.lanes.get(partition)?;
        let turn = lane.turn(now)?;
        let broker = leader(partition)?;
        let elsewhere = turn
            .behind
            .and_then(|ticket| self.flights.get(&ticket))
            .is_some_and(|flight| flight.broker != broker);
        (!elsewhere).then_some(broker)
    }
}

impl<B> Lane<B> {
    /// The turn of the next batch; None when nothing can be sent now.
    fn turn(&self, now: Instant) -> Option<Turn> {
        if self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        let oldest = self.entries.front()?.ordinal;
        let mut behind = None;
        for entry in &self.entries {
            match entry.state {
                State::Waiting => {
                    return (entry.ordinal - oldest < WINDOW).then_some(Turn { behind });
                }
                State::Failed => return None,
                State::Flying(ticket) => behind = Some(ticket),
            }
        }
        None
    }

    /// Lets failed batches wait for their turn again when nothing of the partition is outstanding.
    fn land(&mut self, now: Instant) {
        let flies = |entry: &Entry<B>| matches!(entry.state, State::Flying(_));
        if self.entries.iter().any(flies) {
            return;
        }
        let mut failed = false;
        for entry in &mut self.entries {
            if entry.state == State::Failed {
                entry.state = State::Waiting;
                failed = true;
            }
        }
        if failed {
            self.not_before = Some(now + self.pause);
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// The sequence number `records` further; 2^31 - 1 is followed by 0.
fn after(sequence: i32, records: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(records.max(0));
    i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
