//! The source's side of a lane: what is fetched, and what of it has to be sent.

use std::sync::Arc;
use std::time::Instant;

use eomirror_core::batch::{AbortedTransaction, Batches, Mark};
use eomirror_core::relay::{Fetched, Holes, Relayed};

use super::failure::Failure;
use super::mover::{Answer, Lane, Ready, misuse};
use super::route::Route;
use super::source::{Advance, Source, Start};
use super::state_records::OURS;
use eomirror_kafka::{Assignment, FetchedPartition, FetchedRecords, Outcome, TopicPartition};

impl Lane {
    /// Says where records of a source topic go, from the next answer on.
    pub fn route(&mut self, route: Route) {
        let topic = route.treatment.source_topic().to_owned();
        let route = Arc::new(route);
        for source in &mut self.sources {
            if source.partition.topic == topic {
                source.route = Arc::clone(&route);
            }
        }
        self.routes.insert(topic, route);
    }

    /// Begins to fetch partitions of routed topics, besides those that are fetched already.
    pub fn start(&mut self, starts: &[Start]) -> Result<(), Failure> {
        // One that has stopped, which nobody was told yet, begins anew with this: it has to stop again for the same
        // reason.  So it keeps what it was told by, its topic's id (rule 5) and the epoch of its last record (KIP-320).
        let mut assignments: Vec<Assignment> = self
            .numbers
            .iter()
            .filter(|(at, _)| starts.iter().all(|start| start.partition != **at))
            .filter_map(|(at, number)| {
                let source = &self.sources[*number as usize];
                Some(Assignment {
                    partition: at.clone(),
                    offset: self.fetcher.position(at)?,
                    leader_epoch: source.epoch,
                    topic_id: source.topic_id,
                    compare_from: source.compare_from(),
                })
            })
            .collect();
        for start in starts {
            let Some(route) = self.routes.get(&start.partition.topic) else {
                return Err(misuse("start of a topic without a route"));
            };
            let source = Source::new(start, Arc::clone(route));
            let compare_from = source.compare_from();
            let number = u32::try_from(self.sources.len()).unwrap_or(OURS);
            if let Some(old) = self.numbers.insert(start.partition.clone(), number) {
                self.moved.remove(&old);
                self.behind.remove(&old);
            }
            self.sources.push(source);
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

    /// Forgets everything fetched and every partition; [`Lane::start`] gives the new beginning.
    pub fn restart(&mut self) {
        self.fetcher.assign(&[]);
        self.sources.clear();
        self.numbers.clear();
        self.moved.clear();
        self.behind.clear();
        self.at_hand.clear();
        self.ready = None;
        self.blocked = None;
        self.books.clear();
        self.settled.clear();
    }

    /// Waits for something to mirror. Needs no transaction; positions move past what holds nothing.
    pub fn await_records(&mut self, until: Instant) -> Result<bool, Failure> {
        self.stale = true;
        loop {
            self.step()?;
            let looks = self.fetcher.has_fetched() || !self.at_hand.is_empty();
            self.prepare()?;
            if self.ready.is_some() || self.blocked.is_some() {
                return Ok(true);
            }
            if looks {
                // markers and aborted records: their partitions have to be asked for again before the wait
                self.step()?;
            }
            if self.clock.now() >= until {
                return Ok(false);
            }
            if !self.fetcher.has_fetched() {
                self.rest(until)?;
            }
            self.stale = false;
        }
    }

    /// Whether something to mirror has come since the last [`Lane::pump`], all of it of partitions that the open
    /// transaction holds already: their leaders do not have to ask the coordinator about them again. Waits for nothing.
    ///
    /// What is acknowledged waits for this, and a partition that has stopped is told when that is committed. So nothing is
    /// looked into that does not go along.
    pub fn has_more(&mut self) -> Result<bool, Failure> {
        self.step()?;
        if self.ready.is_none() {
            if self.at_hand.is_empty() && !self.take_fetched()? {
                return Ok(false);
            }
            if !self.at_hand.iter().all(|fetched| self.goes_along(fetched)) {
                return Ok(false);
            }
            self.prepare()?;
        }
        // an answer of which all is dropped moves a position, and nobody waits for that
        Ok(self.ready.as_ref().is_some_and(|ready| {
            !ready.relayed.batches.is_empty() && self.books.contains_key(&ready.answer.number)
        }))
    }

    /// Whether an answer holds what a transaction that is acknowledged takes.
    fn goes_along(&self, fetched: &FetchedPartition) -> bool {
        let number = self.numbers.get(&fetched.partition);
        matches!(fetched.outcome, Outcome::Records(_))
            && number.is_none_or(|number| self.books.contains_key(number))
    }

    /// Takes what was fetched; false when nothing was.
    fn take_fetched(&mut self) -> Result<bool, Failure> {
        if !self.fetcher.has_fetched() {
            return Ok(false);
        }
        let now = self.clock.now();
        match self.fetcher.poll(now) {
            Ok(fetched) => {
                self.at_hand.extend(fetched);
                Ok(true)
            }
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Partitions whose next offset moved since the last commit.
    #[must_use]
    pub fn advances(&self) -> Vec<Advance> {
        let moved = self.moved.iter();
        moved
            .map(|number| self.sources[*number as usize].advance())
            .collect()
    }

    /// Last stable offsets as the last answers said them.
    #[must_use]
    pub fn log_ends(&self) -> Vec<(&TopicPartition, i64)> {
        let sources = self
            .numbers
            .values()
            .map(|number| &self.sources[*number as usize]);
        sources
            .filter_map(|source| Some((&source.partition, source.stable?)))
            .collect()
    }

    /// Looks at what was fetched until something of it has to be sent.
    pub(super) fn prepare(&mut self) -> Result<(), Failure> {
        while self.ready.is_none() && self.blocked.is_none() {
            if self.at_hand.is_empty() {
                self.take_fetched()?;
            }
            let Some(fetched) = self.at_hand.pop_front() else {
                return Ok(());
            };
            let Some(number) = self.numbers.get(&fetched.partition).copied() else {
                continue;
            };
            match fetched.outcome {
                Outcome::Stopped(stop) => {
                    let position = self.sources[number as usize].committed;
                    return Err(Failure::stopped(&fetched.partition, position, &stop));
                }
                Outcome::Records(records) => {
                    // One that stopped with records at hand, and began anew when partitions were added, is fetched
                    // again from where they begin: the position is past the second answer then (rule 4).
                    if self.fetcher.position(&fetched.partition) == Some(fetched.offset) {
                        self.look(number, fetched.offset, fetched.compares, records);
                    }
                }
            }
        }
        Ok(())
    }

    /// Decides about one answer.
    fn look(&mut self, number: u32, offset: i64, compares: bool, records: FetchedRecords) {
        let source = &mut self.sources[number as usize];
        source.stable = Some(records.last_stable_offset);
        if records.records.is_empty() {
            self.compare(number);
            return;
        }
        if let Some((expected, found)) = source.history.mark.zip(begins_with(&records.records)) {
            // where the batch is gone there is nothing to compare: retention has come meanwhile
            if compares && found != expected && found.base_offset <= expected.base_offset {
                self.blocked = Some(Failure::rewritten(&source.partition, &expected, &found));
                return;
            }
        }
        let aborted: Vec<AbortedTransaction> = records
            .aborted
            .iter()
            .flatten()
            .map(|one| AbortedTransaction {
                producer_id: one.producer_id,
                first_offset: one.first_offset,
            })
            .collect();
        let began = source.from.max(offset);
        self.consider(Answer {
            number,
            offset,
            began,
            compares,
            bytes: records.records,
            aborted,
        });
    }

    /// Decides what of an answer has to be sent.
    pub(super) fn consider(&mut self, answer: Answer) {
        let producer_id = self.producer_id();
        let (number, began) = (answer.number, answer.began);
        let source = &mut self.sources[number as usize];
        let fetched = Fetched {
            records: &answer.bytes,
            aborted: &answer.aborted,
            offsets: began..i64::MAX,
        };
        let route = &source.route;
        self.relay.write_as(producer_id);
        let relayed = self.relay.relay_with_holes(
            &route.treatment,
            source.partition.partition,
            &route.target,
            &fetched,
            source.history.holes,
        );
        if answer.compares && relayed.looked_to < source.reached && relayed.stopped.is_none() {
            // nothing but what was mirrored before
            let (partition, epoch) = (source.partition.clone(), source.epoch.unwrap_or(-1));
            self.fetcher.advance(&partition, answer.offset, epoch);
            self.compare(number);
            return;
        }
        if relayed.books.fetched > 0 {
            self.ready = Some(Ready {
                answer,
                relayed,
                producer_id,
            });
            return;
        }
        // it stays where it is: what comes before the trouble has to be committed first
        if let Some(error) = relayed
            .stopped
            .as_ref()
            .filter(|_| relayed.next_position <= began)
        {
            let target = source.route.treatment.target_topic();
            self.blocked = Some(Failure::relayed(&source.partition, target, error));
            return;
        }
        if let Some(hole) = relayed
            .holes
            .first()
            .filter(|hole| source.history.holes == Holes::Stop && hole.start <= began)
        {
            self.blocked = Some(Failure::hole(&source.partition, hole));
            return;
        }
        self.reach(number, &relayed);
    }

    /// Moves a position past what was looked at, and has the next records fetched.
    pub(super) fn reach(&mut self, number: u32, relayed: &Relayed) {
        let source = &mut self.sources[number as usize];
        source.reach(relayed.next_position, relayed.leader_epoch);
        source.saw(relayed);
        let compare_from = source.compare_from();
        let mut next = source.reached;
        if relayed.looked_to < source.from {
            // The answer ended before the first offset that is mirrored. The epoch is that of its last batch, and at a
            // later offset it would say that the log was truncated where it has only had another leader (KIP-320).
            let asked = self.fetcher.position(&source.partition).unwrap_or(next);
            next = asked.max(relayed.looked_to);
        }
        self.fetcher
            .advance(&source.partition, next, source.epoch.unwrap_or(-1));
        self.fetcher.compare_from(&source.partition, compare_from);
        if source.moved() {
            self.moved.insert(number);
        }
        self.compare(number);
    }

    fn compare(&mut self, number: u32) {
        if self.sources[number as usize].is_behind() {
            self.behind.insert(number);
        } else {
            self.behind.remove(&number);
        }
    }
}

/// The mark of the batch that records begin with; None where none is whole.
fn begins_with(records: &[u8]) -> Option<Mark> {
    let first = Batches::new(records).next()?;
    first.ok().map(|batch| Mark::of(&batch))
}

#[cfg(test)]
mod tests;
