//! Sends batches to partition leaders, in order and each exactly once, whatever is lost (KIP-98).
//!
//! # Checks of the broker
//!
//! Each batch has the sequence number of its first record, counted per partition from 0 at the start of a transaction;
//! 2^31 - 1 is followed by 0. A broker accepts a batch only if it follows the previous one. It remembers the last five
//! batches of a producer and partition, and acknowledges a repeated one with its original offset. So a batch may be
//! sent again while at most five are unacknowledged, provided that the batches after it wait.
//!
//! # Consequences
//!
//! * At most [`WINDOW`] requests are in flight per broker, with one batch of a partition each. All in-flight batches of
//!   a partition are at one broker: after a leader change the old leader responds (or is lost) first.
//! * No batch is sent that is [`WINDOW`] or more batches after the oldest unacknowledged one, even if those between
//!   them are acknowledged. A leader that returns 7 or 20 may have accepted a batch and the following ones, and must
//!   still remember it when it is sent again.
//! * After a retriable error, no batch of the partition is sent until all in-flight batches have a response. Then the
//!   failed ones are sent again, with the same bytes and in the same order, to the current leader.
//! * Batches after a failed one get error 45. Without an earlier failure, 45 means that the log differs from the
//!   producer's view: abort. 46 means that the batch is in the log already: success.
//! * Every other error is final. Batches after a rejected one cannot be written, so the transaction must be aborted. 47
//!   or 90 from a leader does not prove that the producer is fenced; the coordinator's response to the abort does.
//!
//! # States of a batch
//!
//! ```text
//! state     event                                   next
//! -------   -------------------------------------   -----------------------------------------------
//! waiting   its turn, no failed batch before it     in flight
//! in flight 0, 46                                   removed, acknowledged
//! in flight retriable error, lost                   failed
//! in flight 45, an earlier one of it failed         failed
//! in flight 45 alone, any other error               rejected: the transaction must be aborted
//! failed    no batch of the partition in flight     waiting, after a backoff
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;

/// Maximum number of in-flight requests per broker: brokers remember five batches per producer and partition.
pub const WINDOW: usize = 5;

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Source offsets of a batch's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SourceRange {
    /// The caller's number of the source partition.
    pub partition: u32,
    /// Offset of the first record.
    pub first: i64,
    /// Offset of the last record.
    pub last: i64,
}

/// A batch in the target's log, which becomes visible when the transaction is committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged<K> {
    /// Target partition.
    pub target: K,
    /// Source offsets of the records.
    pub source: SourceRange,
    /// Number of records. Their target offsets are consecutive; the source offsets are, too, if the range has as many.
    pub records: i32,
    /// Target offset of the first record; `None` if the broker no longer knows it (46).
    pub base_offset: Option<i64>,
}

/// A batch that the broker rejected for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused<K> {
    /// Target partition.
    pub target: K,
    /// Source offsets of the records.
    pub source: SourceRange,
    /// Error code of the broker.
    pub code: ErrorCode,
}

/// Result of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<K> {
    /// Batches that are now in the log.
    pub acknowledged: Vec<Acknowledged<K>>,
    /// The first rejected batch.
    pub refused: Option<Refused<K>>,
    /// True if the partition may have another leader.
    pub stale: bool,
}

/// Identifies a request until its response arrives or is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A request to send: one batch per partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing<K, B> {
    /// Identifies the request's response.
    pub ticket: Ticket,
    /// Partitions and their pushed batches.
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
    /// Number of the batch in its partition.
    ordinal: usize,
    payload: B,
    size: usize,
    records: i32,
    source: SourceRange,
    state: State,
}

#[derive(Debug)]
struct Queue<B> {
    next_sequence: i32,
    next_ordinal: usize,
    entries: VecDeque<Entry<B>>,
    /// Turn at which the partition was last served.
    served: u64,
    pause: Duration,
    not_before: Option<Instant>,
}

impl<B> Default for Queue<B> {
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

/// A batch that may be sent now.
#[derive(Debug)]
struct Turn {
    /// Request in which the previous batch is in flight.
    behind: Option<Ticket>,
}

#[derive(Debug)]
struct Flight<K> {
    broker: i32,
    /// Empty after the request's transaction has ended.
    partitions: Vec<K>,
}

/// State machine of in-flight batches; see the module. `K` is a partition, `B` a batch that is cheap to clone.
#[derive(Debug)]
pub struct InFlight<K, B> {
    queues: BTreeMap<K, Queue<B>>,
    /// Partitions with unacknowledged batches.
    busy: BTreeSet<K>,
    flights: BTreeMap<Ticket, Flight<K>>,
    turn: u64,
    held: usize,
    request_bytes: usize,
}

impl<K: Ord + Clone, B: Clone> InFlight<K, B> {
    /// Returns a state without batches. `request_bytes` limits a request, except for its first batch.
    #[must_use]
    pub const fn new(request_bytes: usize) -> Self {
        Self {
            queues: BTreeMap::new(),
            busy: BTreeSet::new(),
            flights: BTreeMap::new(),
            turn: 0,
            held: 0,
            request_bytes,
        }
    }

    /// Discards all batches and restarts every sequence at 0, for a new identity. In-flight requests still count
    /// towards the window until they end; their responses are ignored.
    pub fn restart(&mut self) {
        self.queues.clear();
        self.busy.clear();
        self.held = 0;
        for flight in self.flights.values_mut() {
            flight.partitions.clear();
        }
    }

    /// Returns the sequence number of the next batch pushed for a partition.
    #[must_use]
    pub fn next_sequence(&self, partition: &K) -> i32 {
        self.queues
            .get(partition)
            .map_or(0, |queue| queue.next_sequence)
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
        if !self.queues.contains_key(partition) {
            self.queues.insert(partition.clone(), Queue::default());
        }
        let Some(queue) = self.queues.get_mut(partition) else {
            return;
        };
        queue.next_sequence = after(queue.next_sequence, records);
        queue.entries.push_back(Entry {
            ordinal: queue.next_ordinal,
            payload,
            size,
            records,
            source,
            state: State::Waiting,
        });
        queue.next_ordinal += 1;
        self.held += size;
        if !self.busy.contains(partition) {
            self.busy.insert(partition.clone());
        }
    }

    /// Returns the number of bytes in unacknowledged batches.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Returns true if every pushed batch is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.busy.is_empty()
    }

    /// Returns the partitions with unacknowledged batches.
    pub fn unsettled(&self) -> impl Iterator<Item = &K> {
        self.busy.iter()
    }

    /// Returns the source offsets of a partition's first unacknowledged batch.
    #[must_use]
    pub fn first_source(&self, partition: &K) -> Option<SourceRange> {
        Some(self.queues.get(partition)?.entries.front()?.source)
    }

    /// Returns the brokers that can take a request now. `leader` returns the leader of a partition.
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

    /// Returns the earliest time at which a partition in backoff may be sent again.
    #[must_use]
    pub fn next_retry(&self, now: Instant) -> Option<Instant> {
        self.busy
            .iter()
            .filter_map(|partition| self.queues.get(partition)?.not_before)
            .filter(|at| *at > now)
            .min()
    }

    /// Returns the next request for a broker; `None` if nothing is ready or its window is full.
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
            .filter_map(|partition| Some((self.queues.get(partition)?.served, partition)))
            .collect();
        // partitions served longest ago come first, so a full request starves none
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
            let Some(queue) = self.queues.get_mut(&partition) else {
                continue;
            };
            let waiting = queue
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
            queue.served = self.turn;
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

    /// Takes a response: an error code and a base offset per partition. A partition that is absent counts as lost.
    pub fn answered(
        &mut self,
        ticket: Ticket,
        answers: impl IntoIterator<Item = (K, ErrorCode, i64)>,
        now: Instant,
    ) -> Answered<K> {
        let mut said: BTreeMap<K, (ErrorCode, i64)> = answers
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

    /// Records that a request or its response was lost. The broker may have executed it, or may still do so.
    pub fn lost(&mut self, ticket: Ticket, now: Instant) {
        self.answered(ticket, [], now);
    }

    fn settle(
        &mut self,
        partition: &K,
        ticket: Ticket,
        said: Option<(ErrorCode, i64)>,
        now: Instant,
        answered: &mut Answered<K>,
    ) {
        let Some(queue) = self.queues.get_mut(partition) else {
            return;
        };
        let Some(at) = queue
            .entries
            .iter()
            .position(|entry| entry.state == State::Flying(ticket))
        else {
            return;
        };
        let behind_failure = queue
            .entries
            .iter()
            .take(at)
            .any(|entry| entry.state == State::Failed);
        // after a failed batch, a leader refuses the following ones because of it alone
        let is_follow_up =
            |error| behind_failure && error == ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
        match said {
            Some((ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER, offset)) => {
                if let Some(entry) = queue.entries.remove(at) {
                    self.held -= entry.size;
                    answered.acknowledged.push(Acknowledged {
                        target: partition.clone(),
                        source: entry.source,
                        records: entry.records,
                        base_offset: (offset >= 0).then_some(offset),
                    });
                }
                queue.pause = FIRST_PAUSE;
            }
            Some((error, _)) if !(error.is_passing_for_leader() || is_follow_up(error)) => {
                answered.refused.get_or_insert(Refused {
                    target: partition.clone(),
                    source: queue.entries[at].source,
                    code: error,
                });
                queue.entries[at].state = State::Failed;
            }
            passing => {
                answered.stale |= passing.is_none_or(|(error, _)| error.means_leader_change());
                queue.entries[at].state = State::Failed;
            }
        }
        queue.land(now);
        if queue.entries.is_empty() {
            self.busy.remove(partition);
        }
    }

    fn outstanding(&self, broker: i32) -> usize {
        self.flights
            .values()
            .filter(|flight| flight.broker == broker)
            .count()
    }

    /// Returns the broker to which the partition's next batch may be sent now.
    fn target(
        &self,
        partition: &K,
        leader: &impl Fn(&K) -> Option<i32>,
        now: Instant,
    ) -> Option<i32> {
        let queue = self.queues.get(partition)?;
        let turn = queue.turn(now)?;
        let broker = leader(partition)?;
        let elsewhere = turn
            .behind
            .and_then(|ticket| self.flights.get(&ticket))
            .is_some_and(|flight| flight.broker != broker);
        (!elsewhere).then_some(broker)
    }
}

impl<B> Queue<B> {
    /// Returns the next batch's turn; `None` if nothing can be sent now.
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

    /// Returns failed batches to waiting once no batch of the partition is in flight.
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

/// Returns the sequence number after `records` records; 2^31 - 1 is followed by 0.
fn after(sequence: i32, records: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(records.max(0));
    i32::try_from(sum & i64::from(i32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
