//! The target's side of a lane: its producer, and the transactions from their beginning to their end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_core::transaction::Identity;

use super::account::Account;
use super::failure::{Failure, FailureKind};
use super::mover::{Lane, misuse};
use super::source::Source;
use super::state_records::{self, OurRecord};
use eomirror_kafka::{Client, Delay, Error, TRANSACTIONS_V2, Throttled, TransactionalProducer};

/// A commit writes one control batch of one record to each partition of the transaction.
const MARKER: i64 = 1;

/// The producer on its way up.
pub(super) enum Target {
    None,
    /// Connecting, to see which transactions the cluster has.
    Connecting(Box<Client>),
    Open(Box<TransactionalProducer>),
}

impl Lane {
    /// Lets go of the producer, if there is one; [`Lane::open`] makes another.
    pub fn begin_open(&mut self) -> Result<(), Failure> {
        self.books.clear();
        self.settled.clear();
        self.next_target.clear();
        self.lingering = false;
        self.throttled_before = self.throttled_by_target();
        self.target = Target::None;
        let client = Client::unconnected(self.settings.target.clone(), Arc::clone(&self.clock))
            .map_err(Failure::from)?;
        self.target = Target::Connecting(Box::new(client));
        Ok(())
    }

    /// Takes the transactional id (`InitProducerId`): whoever had it is fenced. None when `until` came first.
    pub fn open(&mut self, until: Instant) -> Result<Option<Identity>, Failure> {
        if let Target::Connecting(client) = &mut self.target {
            match connected(client, until) {
                Ok(false) => return Ok(None),
                Ok(true) => {}
                Err(error) => return Err(self.failure(&error)),
            }
            let Target::Connecting(client) = std::mem::replace(&mut self.target, Target::None)
            else {
                return Err(misuse("open"));
            };
            let producer = TransactionalProducer::new(*client, self.settings.producer.clone());
            self.target = Target::Open(Box::new(producer));
        }
        let opened = self.producer()?.until_ready(until);
        match opened {
            Ok(identity) => Ok(Some(identity)),
            Err(Error::TimedOut { .. }) => Ok(None),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// How quotas of the source and of the target have held this lane back.
    pub fn throttled(&mut self) -> (Throttled, Throttled) {
        let source = self.fetcher.network().throttled();
        (source, self.throttled_by_target())
    }

    /// Partitions that cannot be read at the moment, and why.
    #[must_use]
    pub fn delays(&self) -> Vec<Delay> {
        self.fetcher.delays()
    }

    fn throttled_by_target(&mut self) -> Throttled {
        let network = match &mut self.target {
            Target::None => return self.throttled_before,
            Target::Connecting(client) => client.network(),
            Target::Open(producer) => producer.network(),
        };
        self.throttled_before.plus(network.throttled())
    }

    /// Begins a transaction; tells the identity that its records carry. None when `until` came first.
    pub fn begin(&mut self, until: Instant) -> Result<Option<Identity>, Failure> {
        let begun = self.producer()?.begin(until);
        match begun {
            Ok(()) => {}
            Err(Error::TimedOut { .. }) => return Ok(None),
            Err(error) => return Err(self.failure(&error)),
        }
        self.books.clear();
        self.settled.clear();
        self.written.clear();
        self.used = 0;
        self.crowded = false;
        self.lingering = false;
        Ok(self.producer()?.identity())
    }

    /// Sends records of ours in the open transaction, with a timestamp in ms.
    pub fn write(&mut self, records: &[OurRecord], timestamp: i64) -> Result<(), Failure> {
        let sent = state_records::send(self.producer()?, records, timestamp);
        sent.map_err(|error| self.failure(&error))?;
        self.lingering = false;
        self.step()
    }

    /// What [`Lane::settle`] will tell if nobody else writes to the target partitions; None when that cannot be told:
    /// before this producer has committed to all of them, or when two source partitions share one.
    #[must_use]
    pub fn foresee(&self) -> Option<Vec<Account>> {
        let mut seen = BTreeSet::new();
        let mut accounts = Vec::with_capacity(self.books.len());
        for (number, book) in &self.books {
            let Source {
                partition, target, ..
            } = &self.sources[*number as usize];
            if !seen.insert(target) {
                return None;
            }
            let next = *self.next_target.get(target)?;
            accounts.push(book.foresee(partition, target, next).ok()?);
        }
        Some(accounts)
    }

    /// Waits until every record is acknowledged, and balances the books (rule 7). None when `until` came first.
    pub fn settle(&mut self, until: Instant) -> Result<Option<Vec<Account>>, Failure> {
        self.lingering = false;
        loop {
            self.step()?;
            if self.producer()?.is_settled() {
                break;
            }
            if self.clock.now() >= until {
                return Ok(None);
            }
            self.rest(until)?;
        }
        self.check_targets()?;
        let mut accounts = Vec::with_capacity(self.books.len());
        for (number, book) in &self.books {
            let source = &self.sources[*number as usize];
            let account = book.settle(&source.partition, &source.target)?;
            if let Some((_, last)) = account.target_offsets {
                let next = self.written.entry(source.target.clone()).or_insert(0);
                *next = (*next).max(last.saturating_add(1 + MARKER));
            }
            accounts.push(account);
        }
        for number in &self.moved {
            let reached = self.sources[*number as usize].reached;
            self.settled.insert(*number, reached);
        }
        Ok(Some(accounts))
    }

    /// Commits. False when `until` came first: the same call goes on, and nothing else can be done before.
    pub fn commit(&mut self, until: Instant) -> Result<bool, Failure> {
        self.lingering = false;
        let producer = self.producer()?;
        producer.hold(false);
        let committed = producer.commit(until);
        match committed {
            Ok(_) => {}
            Err(Error::TimedOut { .. }) => return Ok(false),
            Err(error) => return Err(self.failure(&error)),
        }
        self.next_target.append(&mut self.written);
        // what was settled, and not what was reached by now: a claim commits no positions
        for (number, offset) in std::mem::take(&mut self.settled) {
            let source = &mut self.sources[number as usize];
            source.committed = source.committed.max(offset);
            let committed = source.committed;
            source.holes.retain(|hole| hole.start >= committed);
            if !source.moved() {
                self.moved.remove(&number);
            }
        }
        self.books.clear();
        Ok(true)
    }

    /// Whether partitions of the target were found to have new leaders since [`Lane::open`]: what was committed before may
    /// be open still in some of them.
    pub fn leaders_moved(&mut self) -> Result<bool, Failure> {
        Ok(self.producer()?.leaders_moved())
    }

    /// What to say of an answer that did not come in time.
    #[must_use]
    pub fn overdue(&self, waited: Duration) -> Failure {
        const RUNS: &str = "check that the target's brokers run and can be reached";
        let millis = waited.as_millis();
        let trouble = match &self.target {
            Target::None => None,
            Target::Connecting(client) => client.last_trouble().map(ToString::to_string),
            Target::Open(producer) => producer.trouble(),
        };
        let last = trouble.map_or_else(String::new, |trouble| format!("; last: {trouble}"));
        match &self.target {
            Target::Open(producer) if producer.is_committing() => Failure::new(
                FailureKind::OutcomeUnknown,
                format!("a commit was not answered within {millis} ms{last}"),
                "read the positions: they say whether it was carried out",
            ),
            Target::Open(producer) if producer.in_transaction() => Failure::new(
                FailureKind::Abortable,
                format!("records were not acknowledged within {millis} ms{last}"),
                RUNS,
            ),
            _ => Failure::new(
                FailureKind::Unreachable,
                format!("no transactional producer on the target within {millis} ms{last}"),
                RUNS,
            ),
        }
    }

    /// Aborts what is open. False when `until` came first.
    pub fn abort(&mut self, until: Instant) -> Result<bool, Failure> {
        self.books.clear();
        self.settled.clear();
        self.lingering = false;
        let Target::Open(producer) = &mut self.target else {
            return Ok(true);
        };
        match producer.abort(until) {
            Ok(()) => Ok(true),
            Err(Error::TimedOut { .. }) => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// The producer id that records are sent with, as far as known.
    pub(super) fn producer_id(&self) -> Option<i64> {
        match &self.target {
            Target::Open(producer) => producer.producer_id(),
            _ => None,
        }
    }

    pub(super) fn producer(&mut self) -> Result<&mut TransactionalProducer, Failure> {
        match &mut self.target {
            Target::Open(producer) => Ok(producer),
            _ => Err(misuse("a call before open()")),
        }
    }
}

/// Whether somebody is connected, and the cluster has transactions of protocol V2.
fn connected(client: &mut Client, until: Instant) -> Result<bool, Error> {
    if !client.is_connected(until)? {
        return Ok(false);
    }
    let level = client.network().feature("transaction.version").unwrap_or(0);
    if level < TRANSACTIONS_V2 {
        return Err(Error::OldTransactions { level });
    }
    Ok(true)
}
