//! The source side of a lane: fetches partitions, relays the answers, and tracks positions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use eomirror_batch::{AbortedTransaction, Batches, Mark};
use eomirror_core::relay::{Fetched, Holes, Relay, Relayed};
use eomirror_kafka::{
    Assignment, Client, Clock, Error, FetchedPartition, FetchedRecords, Fetcher, IsolationLevel,
    Limits, Network, Outcome, StalledPartition, TopicPartition,
};

use super::Settings;
use super::failure::Failure;
use super::route::Route;
use super::source_partition::{Advance, SourcePartition, Start};
use super::state_records::STATE_RECORDS;

/// A relayed answer of one partition, ready to be sent.
pub(super) struct Ready {
    pub(super) answer: Answer,
    pub(super) relayed: Relayed,
    /// The producer id in its provenance headers.
    producer_id: Option<i64>,
}

impl Ready {
    /// Returns the number of its source partition.
    pub(super) const fn number(&self) -> u32 {
        self.answer.number
    }

    pub(super) fn has_batches(&self) -> bool {
        !self.relayed.batches.is_empty()
    }
}

/// A fetched answer of one partition.
pub(super) struct Answer {
    number: u32,
    /// The position that it was fetched for.
    offset: i64,
    /// First offset that is mirrored.
    pub(super) began: i64,
    /// It begins with the batch before the position, for comparison with the mirrored one.
    compares: bool,
    pub(super) bytes: Bytes,
    aborted: Vec<AbortedTransaction>,
}

/// Fetches the lane's source partitions.
pub(super) struct LaneSource {
    fetcher: Fetcher,
    relay: Relay,
    routes: BTreeMap<String, Arc<Route>>,
    /// By number; a number is never used again.
    partitions: Vec<SourcePartition>,
    numbers: BTreeMap<TopicPartition, u32>,
    /// Partitions whose next offset moved since the last commit.
    moved: BTreeSet<u32>,
    /// Partitions that are known to have more records.
    behind: BTreeSet<u32>,
    fetched: VecDeque<FetchedPartition>,
    /// The next answer with records to send. It may wait while a transaction ends and while partitions are added; its
    /// partition is fetched further only once it is sent.
    ready: Option<Ready>,
    /// The failure of the next answer; reported when the open transaction holds nothing.
    blocked: Option<Failure>,
}

impl LaneSource {
    /// Returns a source that fetches nothing yet. It leaves a broker alone while the lane holds up to `patience_bytes`
    /// of its records.
    pub(super) fn new(
        settings: &Settings,
        patience_bytes: u64,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, Failure> {
        let client = Client::unconnected(settings.source.clone(), clock)?;
        let mut limits = Limits::from_properties(&settings.source);
        limits.budget = limits.budget.min(settings.fetch_bytes);
        let most = i32::try_from(settings.fetch_bytes).unwrap_or(i32::MAX);
        limits.answer_bytes = limits.answer_bytes.min(most);
        // a lane takes all records of an answer, sooner or later
        limits.patience_bytes = patience_bytes;
        Ok(Self {
            fetcher: Fetcher::new(client, IsolationLevel::ReadCommitted, limits),
            relay: Relay::new(settings.records),
            routes: BTreeMap::new(),
            partitions: Vec::new(),
            numbers: BTreeMap::new(),
            moved: BTreeSet::new(),
            behind: BTreeSet::new(),
            fetched: VecDeque::new(),
            ready: None,
            blocked: None,
        })
    }

    /// Sets the target of a source topic's records, from the next answer on.
    pub(super) fn route(&mut self, route: Route) {
        let topic = route.policy.source_topic().to_owned();
        let route = Arc::new(route);
        for partition in &mut self.partitions {
            if partition.partition.topic == topic {
                partition.route = Arc::clone(&route);
            }
        }
        self.routes.insert(topic, route);
    }

    /// Adds partitions of routed topics to the fetched ones.
    pub(super) fn start(&mut self, starts: &[Start]) -> Result<(), Failure> {
        let mut assignments = self.assignments();
        assignments.retain(|one| starts.iter().all(|start| start.partition != one.partition));
        for start in starts {
            let Some(route) = self.routes.get(&start.partition.topic) else {
                return Err(Failure::bug("start of a topic without a route"));
            };
            let partition = SourcePartition::new(start, Arc::clone(route));
            let compare_from = partition.compare_from();
            let number = u32::try_from(self.partitions.len()).unwrap_or(STATE_RECORDS);
            if let Some(old) = self.numbers.insert(start.partition.clone(), number) {
                self.moved.remove(&old);
                self.behind.remove(&old);
            }
            self.partitions.push(partition);
            assignments.push(Assignment {
                partition: start.partition.clone(),
                offset: start.epoch_offset.unwrap_or(start.offset),
                leader_epoch: start.leader_epoch,
                topic_id: start.topic_id,
                compare_from,
            });
        }
        self.fetcher.assign(&assignments);
        Ok(())
    }

    /// Drops partitions with everything that was fetched of them. The others are not disturbed.
    pub(super) fn stop(&mut self, partitions: &[TopicPartition]) {
        for partition in partitions {
            let Some(number) = self.numbers.remove(partition) else {
                continue;
            };
            self.moved.remove(&number);
            self.behind.remove(&number);
            self.ready.take_if(|ready| ready.number() == number);
        }
        let numbers = &self.numbers;
        self.fetched
            .retain(|fetched| numbers.contains_key(&fetched.partition));
        let assignments = self.assignments();
        self.fetcher.assign(&assignments);
    }

    /// Drops all partitions and everything that was fetched.
    pub(super) fn clear(&mut self) {
        self.fetcher.assign(&[]);
        self.partitions.clear();
        self.numbers.clear();
        self.moved.clear();
        self.behind.clear();
        self.fetched.clear();
        self.ready = None;
        self.blocked = None;
    }

    /// Does all non-blocking work.
    pub(super) fn step(&mut self) -> Result<(), Failure> {
        let stepped = self.fetcher.step();
        stepped.map_err(|error| self.failure(&error))
    }

    /// Takes new answers from the fetcher, unless some are still waiting. False when there are none.
    pub(super) fn receive(&mut self, now: Instant) -> Result<bool, Failure> {
        if !self.fetched.is_empty() {
            return Ok(true);
        }
        if !self.fetcher.has_fetched() {
            return Ok(false);
        }
        match self.fetcher.poll(now) {
            Ok(fetched) => {
                self.fetched.extend(fetched);
                Ok(true)
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Returns whether all answers hold records, and only of partitions that `is_held` names.
    pub(super) fn holds_records_only_of(&self, is_held: impl Fn(u32) -> bool) -> bool {
        self.fetched.iter().all(|fetched| {
            let number = self.numbers.get(&fetched.partition);
            matches!(fetched.outcome, Outcome::Records(_))
                && number.is_none_or(|number| is_held(*number))
        })
    }

    /// Relays answers until one has records to send. `producer_id` goes into the provenance headers.
    pub(super) fn prepare(
        &mut self,
        producer_id: Option<i64>,
        now: Instant,
    ) -> Result<(), Failure> {
        while self.ready.is_none() && self.blocked.is_none() {
            self.receive(now)?;
            let Some(fetched) = self.fetched.pop_front() else {
                return Ok(());
            };
            let Some(number) = self.numbers.get(&fetched.partition).copied() else {
                continue;
            };
            match fetched.outcome {
                Outcome::Stopped(stop) => {
                    let position = self.partitions[number as usize].committed;
                    return Err(Failure::stopped(&fetched.partition, position, &stop));
                }
                Outcome::Records(records) => {
                    // A partition that stopped with answers waiting, and restarted when partitions were added, is
                    // fetched again from their first offset: the position is past the second answer then (rule 4).
                    if self.fetcher.position(&fetched.partition) == Some(fetched.offset) {
                        let (offset, compares) = (fetched.offset, fetched.compares);
                        self.examine(number, offset, compares, records, producer_id);
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) const fn has_ready(&self) -> bool {
        self.ready.is_some()
    }

    pub(super) const fn ready(&self) -> Option<&Ready> {
        self.ready.as_ref()
    }

    /// Takes the next answer with records to send, with headers that name this producer id.
    ///
    /// The end of a transaction may change the producer id. Headers that name the old one would make the records look
    /// like copies that an application made, so the answer is relayed again. None when it has nothing to send then.
    pub(super) fn take_ready(&mut self, producer_id: Option<i64>) -> Option<Ready> {
        let ready = self.ready.take()?;
        let route = &self.partitions[ready.number() as usize].route;
        if route.policy.writes_header() && ready.producer_id != producer_id {
            self.relay(ready.answer, producer_id);
            return self.ready.take();
        }
        Some(ready)
    }

    /// Moves the position of its partition past an answer that was sent.
    pub(super) fn sent(&mut self, ready: &Ready) {
        self.reach(ready.number(), &ready.relayed);
    }

    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    pub(super) const fn take_blocked(&mut self) -> Option<Failure> {
        self.blocked.take()
    }

    /// Returns whether fetched answers wait to be relayed.
    pub(super) fn has_answers(&self) -> bool {
        self.fetcher.has_fetched() || !self.fetched.is_empty()
    }

    /// Returns whether everything that the source is known to have is sent.
    pub(super) fn is_caught_up(&self) -> bool {
        self.ready.is_none() && !self.has_answers() && self.behind.is_empty()
    }

    /// Returns the next offsets that moved since the last commit, by number.
    pub(super) fn moved(&self) -> impl Iterator<Item = (u32, i64)> {
        let reached = |number: &u32| (*number, self.partitions[*number as usize].reached);
        self.moved.iter().map(reached)
    }

    /// Notes committed positions.
    pub(super) fn committed(&mut self, positions: BTreeMap<u32, i64>) {
        for (number, offset) in positions {
            let partition = &mut self.partitions[number as usize];
            partition.commit(offset);
            if !partition.moved() {
                self.moved.remove(&number);
            }
        }
    }

    /// Returns the partitions whose next offset moved since the last commit.
    pub(super) fn advances(&self) -> Vec<Advance> {
        let moved = self.moved.iter();
        moved
            .map(|number| self.partitions[*number as usize].advance())
            .collect()
    }

    /// Returns the last stable offsets of the latest answers.
    pub(super) fn log_ends(&self) -> Vec<(&TopicPartition, i64)> {
        let partitions = self
            .numbers
            .values()
            .map(|number| &self.partitions[*number as usize]);
        partitions
            .filter_map(|partition| Some((&partition.partition, partition.stable?)))
            .collect()
    }

    pub(super) fn partition(&self, number: u32) -> &SourcePartition {
        &self.partitions[number as usize]
    }

    /// Converts an error of the client; a refused batch is named by its source partition.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        Failure::of_client(error, |number| {
            let partition = self.partitions.get(usize::try_from(number).ok()?)?;
            Some(partition.partition.clone())
        })
    }

    pub(super) fn has_fetched(&self) -> bool {
        self.fetcher.has_fetched()
    }

    /// Returns the target topics of these partitions.
    pub(super) fn targets(&self, starts: &[Start]) -> BTreeSet<String> {
        let routes = starts
            .iter()
            .filter_map(|start| self.routes.get(&start.partition.topic));
        routes
            .map(|route| route.policy.target_topic().to_owned())
            .collect()
    }

    /// Returns the copies of source partitions of routed topics.
    pub(super) fn copies(&self, partitions: &[TopicPartition]) -> Vec<TopicPartition> {
        let routed = partitions.iter().filter_map(|at| {
            let route = self.routes.get(&at.topic)?;
            Some(TopicPartition::new(
                route.policy.target_topic(),
                at.partition,
            ))
        });
        routed.collect()
    }

    /// Asks brokers for what they have now, without their usual wait.
    pub(super) fn hurry(&mut self) {
        self.fetcher.hurry();
    }

    pub(super) fn is_hurrying(&self) -> bool {
        self.fetcher.is_hurrying()
    }

    /// Returns whether all answers named their topics by id.
    pub(super) fn goes_by_id(&self) -> bool {
        self.fetcher.goes_by_id()
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.fetcher.held_bytes()
    }

    pub(super) fn wakes_at(&self) -> Option<Instant> {
        self.fetcher.wakes_at()
    }

    pub(super) fn stalled(&self) -> Vec<StalledPartition> {
        self.fetcher.stalled()
    }

    pub(super) fn network(&mut self) -> &mut Network {
        self.fetcher.network()
    }

    /// Adds answers as the fetcher does.
    #[cfg(test)]
    pub(super) fn hand(&mut self, fetched: impl IntoIterator<Item = FetchedPartition>) {
        self.fetched.extend(fetched);
    }

    /// Returns the fetched partitions as they go on.
    ///
    /// A partition may have stopped without having been reported yet. A new assignment restarts it, and it must stop
    /// again for the same reason: so it keeps its topic id (rule 5) and the epoch of its last record (KIP-320).
    fn assignments(&self) -> Vec<Assignment> {
        let fetched = self.numbers.iter();
        fetched
            .filter_map(|(at, number)| {
                let partition = &self.partitions[*number as usize];
                Some(Assignment {
                    partition: at.clone(),
                    offset: self.fetcher.position(at)?,
                    leader_epoch: partition.epoch,
                    topic_id: partition.topic_id,
                    compare_from: partition.compare_from(),
                })
            })
            .collect()
    }

    /// Examines one answer: compares its first batch, then relays it.
    fn examine(
        &mut self,
        number: u32,
        offset: i64,
        compares: bool,
        records: FetchedRecords,
        producer_id: Option<i64>,
    ) {
        let partition = &mut self.partitions[number as usize];
        partition.stable = Some(records.last_stable_offset);
        if records.records.is_empty() {
            self.note_lag(number);
            return;
        }
        if let Some((expected, found)) = partition.history.mark.zip(first_mark(&records.records)) {
            // a later base offset: retention has deleted the batch, and there is nothing to compare
            if compares && found != expected && found.base_offset <= expected.base_offset {
                let failure = Failure::rewritten(&partition.partition, &expected, &found);
                self.blocked = Some(failure);
                return;
            }
        }
        let began = partition.from.max(offset);
        let answer = Answer {
            number,
            offset,
            began,
            compares,
            bytes: records.records,
            aborted: records.aborted.unwrap_or_default(),
        };
        self.relay(answer, producer_id);
    }

    /// Decides which records of an answer are sent.
    fn relay(&mut self, answer: Answer, producer_id: Option<i64>) {
        let (number, began) = (answer.number, answer.began);
        let partition = &mut self.partitions[number as usize];
        let fetched = Fetched {
            records: &answer.bytes,
            aborted: &answer.aborted,
            offsets: began..i64::MAX,
        };
        let route = &partition.route;
        self.relay.write_as(producer_id);
        let relayed = self.relay.relay_with_holes(
            &route.policy,
            partition.partition.partition,
            &route.target,
            &fetched,
            partition.history.holes,
        );
        if answer.compares && relayed.looked_to < partition.reached && relayed.stopped.is_none() {
            // only the batch that was mirrored before
            let (at, epoch) = (partition.partition.clone(), partition.epoch.unwrap_or(-1));
            self.fetcher.advance(&at, answer.offset, epoch);
            self.note_lag(number);
            return;
        }
        if relayed.accounting.fetched > 0 {
            self.ready = Some(Ready {
                answer,
                relayed,
                producer_id,
            });
            return;
        }
        // the position stays: records before the failure have to be committed first
        if let Some(error) = relayed
            .stopped
            .as_ref()
            .filter(|_| relayed.next_position <= began)
        {
            let target = partition.route.policy.target_topic();
            self.blocked = Some(Failure::relayed(&partition.partition, target, error));
            return;
        }
        if let Some(hole) = relayed
            .holes
            .first()
            .filter(|hole| partition.history.holes == Holes::Stop && hole.start <= began)
        {
            self.blocked = Some(Failure::hole(&partition.partition, hole));
            return;
        }
        self.reach(number, &relayed);
    }

    /// Moves a position past a relayed answer, so that the next records are fetched.
    fn reach(&mut self, number: u32, relayed: &Relayed) {
        let partition = &mut self.partitions[number as usize];
        partition.reach(relayed.next_position, relayed.leader_epoch);
        partition.saw(relayed);
        let compare_from = partition.compare_from();
        let mut next = partition.reached;
        if relayed.looked_to < partition.from {
            // The answer ended before the first mirrored offset. The epoch is that of its last batch: at a later offset
            // it would report a truncated log where only the leader has changed (KIP-320).
            let asked = self.fetcher.position(&partition.partition).unwrap_or(next);
            next = asked.max(relayed.looked_to);
        }
        self.fetcher
            .advance(&partition.partition, next, partition.epoch.unwrap_or(-1));
        self.fetcher
            .compare_from(&partition.partition, compare_from);
        if partition.moved() {
            self.moved.insert(number);
        }
        self.note_lag(number);
    }

    fn note_lag(&mut self, number: u32) {
        if self.partitions[number as usize].is_behind() {
            self.behind.insert(number);
        } else {
            self.behind.remove(&number);
        }
    }
}

/// Returns the mark of the first batch; None when it is not whole.
fn first_mark(records: &[u8]) -> Option<Mark> {
    let first = Batches::new(records).next()?;
    first.ok().map(|batch| Mark::of(&batch))
}
