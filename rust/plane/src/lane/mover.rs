//! The lane itself: its producer, and the pump. The source's side is [`super::intake`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_core::relay::{Relay, Relayed};
use eomirror_core::transaction::{Identity, SourceRange};

use super::account::{Account, Book};
use super::failure::{Failure, FailureKind};
use super::ours::{self, OurRecord};
use super::route::Route;
use super::source::Source;
use super::{Pumped, Settings};
use crate::client::Client;
use crate::clock::Clock;
use crate::error::Error;
use crate::fetch::{FetchedPartition, Fetcher, Limits, TopicPartition};
use crate::network::{Throttled, wait};
use crate::protocol::IsolationLevel;
use crate::transaction::{Acknowledgement, TRANSACTIONS_V2, TransactionalProducer};

/// How long to wait for the first record of an empty [`Lane::pump`]: its multiple is the cost of a caught-up commit.
const IDLE: Duration = Duration::from_millis(5);

/// Up to so many bytes wait for the state records, and go in one request with them.
const LINGER: u64 = 64 * 1024;

/// A commit writes one control batch of one record to each partition of the transaction.
const MARKER: i64 = 1;

/// One answer of a partition, ready to be sent.
pub(super) struct Ready {
    pub(super) number: u32,
    pub(super) began: i64,
    pub(super) bytes: Bytes,
    pub(super) relayed: Relayed,
}

/// The producer on its way up.
pub(super) enum Target {
    None,
    /// Connecting, to see which transactions the cluster has.
    Connecting(Box<Client>),
    Open(Box<TransactionalProducer>),
}

/// Moves one lane's records; see the module.
pub struct Lane {
    pub(super) settings: Settings,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) fetcher: Fetcher,
    pub(super) target: Target,
    pub(super) relay: Relay,
    pub(super) routes: BTreeMap<String, Arc<Route>>,
    /// By number; a number is never used again.
    pub(super) sources: Vec<Source>,
    pub(super) numbers: BTreeMap<TopicPartition, u32>,
    /// Sources whose next offset moved since the last commit.
    pub(super) moved: BTreeSet<u32>,
    /// Sources that are known to have more than was taken.
    pub(super) behind: BTreeSet<u32>,
    pub(super) at_hand: VecDeque<FetchedPartition>,
    /// The next answer that holds something to mirror.
    pub(super) ready: Option<Ready>,
    /// Why the next answer cannot be sent; told inside a transaction.
    pub(super) blocked: Option<Failure>,
    pub(super) books: BTreeMap<u32, Book>,
    /// Next offsets as they were told with the settled accounts.
    pub(super) settled: BTreeMap<u32, i64>,
    /// Target partitions: the offset that our next record gets, once the settled transaction is committed.
    written: BTreeMap<TopicPartition, i64>,
    /// Likewise, of what is committed by this producer.
    next_target: BTreeMap<TopicPartition, i64>,
    /// Bytes that went into the open transaction.
    pub(super) used: u64,
    /// What is at hand came some time ago, and there may be more by now.
    pub(super) stale: bool,
    /// What is in the open transaction waits for the state records.
    lingering: bool,
    /// How the target held producers back that are gone.
    throttled_before: Throttled,
}

impl Lane {
    /// A lane that has no producer and fetches nothing yet. Reads certificates, connects nowhere.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let client = Client::unconnected(settings.source.clone(), Arc::clone(&clock))
            .map_err(Failure::from)?;
        let mut limits = Limits::from_properties(&settings.source);
        limits.budget = limits.budget.min(settings.fetch_bytes);
        let most = i32::try_from(settings.fetch_bytes).unwrap_or(i32::MAX);
        limits.answer_bytes = limits.answer_bytes.min(most);
        // a lane takes all that it is given, sooner or later
        limits.patience_bytes = LINGER;
        Ok(Self {
            fetcher: Fetcher::new(client, IsolationLevel::ReadCommitted, limits),
            relay: Relay::new(settings.records),
            settings,
            clock,
            target: Target::None,
            routes: BTreeMap::new(),
            sources: Vec::new(),
            numbers: BTreeMap::new(),
            moved: BTreeSet::new(),
            behind: BTreeSet::new(),
            at_hand: VecDeque::new(),
            ready: None,
            blocked: None,
            books: BTreeMap::new(),
            settled: BTreeMap::new(),
            written: BTreeMap::new(),
            next_target: BTreeMap::new(),
            used: 0,
            stale: false,
            lingering: false,
            throttled_before: Throttled::default(),
        })
    }

    // -- the producer ----------------------------------------------------------------------------

    /// Lets go of the producer, if there is one; [`Lane::open`] makes another.
    pub fn begin_open(&mut self) -> Result<(), Failure> {
        self.books.clear();
        self.settled.clear();
        self.next_target.clear();
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
        self.lingering = false;
        Ok(self.producer()?.identity())
    }

    /// Sends records of ours in the open transaction, with a timestamp in ms.
    pub fn write(&mut self, records: &[OurRecord], timestamp: i64) -> Result<(), Failure> {
        let sent = ours::send(self.producer()?, records, timestamp);
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
        let committed = self.producer()?.commit(until);
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
            if !source.moved() {
                self.moved.remove(&number);
            }
        }
        self.books.clear();
        Ok(true)
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
        let Target::Open(producer) = &mut self.target else {
            return Ok(true);
        };
        match producer.abort(until) {
            Ok(()) => Ok(true),
            Err(Error::TimedOut { .. }) => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Sends what is at hand in the open transaction, until it holds `most` bytes, until `until`, or until nothing is
    /// left.
    pub fn pump(&mut self, until: Instant, most: u64) -> Result<Pumped, Failure> {
        let mut pumped = Pumped::default();
        let idle = (self.clock.now() + IDLE).min(until);
        let mut stale = std::mem::take(&mut self.stale);
        loop {
            self.step()?;
            while self.used < most && self.producer()?.room() > 0 {
                self.prepare()?;
                if let Some(failure) = self.blocked.take() {
                    return Err(failure);
                }
                let Some(ready) = self.ready.take() else {
                    break;
                };
                self.send(ready, &mut pumped)?;
            }
            self.lingering = self.used <= LINGER;
            if stale && self.lingering && pumped.records > 0 {
                stale = false;
                self.fetcher.hurry();
            }
            self.step()?;
            let now = self.clock.now();
            let left = self.ready.is_some() || !self.at_hand.is_empty();
            let caught_up = !left && self.behind.is_empty() && !self.fetcher.has_fetched();
            pumped.drained = caught_up && (!self.fetcher.is_hurrying() || now >= idle);
            pumped.full = self.used >= most;
            if pumped.full || now >= until {
                return Ok(pumped);
            }
            let patience = if caught_up { idle } else { until };
            if pumped.drained && (pumped.records > 0 || now >= idle) {
                return Ok(pumped);
            }
            if !self.fetcher.has_fetched() || self.producer()?.room() == 0 {
                self.rest(patience)?;
            }
        }
    }

    // -- inside ----------------------------------------------------------------------------------

    /// Does what can be done without waiting, on both sides.
    pub(super) fn step(&mut self) -> Result<(), Failure> {
        if let Err(error) = self.fetcher.step() {
            return Err(self.failure(&error));
        }
        if self.lingering {
            return Ok(());
        }
        let Target::Open(producer) = &mut self.target else {
            return Ok(());
        };
        let stepped = producer.step();
        let acknowledged = producer.take_acknowledged();
        self.book(acknowledged);
        stepped.map_err(|error| self.failure(&error))
    }

    /// Waits until either side can go on, or until `until`.
    pub(super) fn rest(&mut self, until: Instant) -> Result<(), Failure> {
        let clock = Arc::clone(&self.clock);
        let source_wakes = self.fetcher.wakes_at();
        match &mut self.target {
            Target::Open(producer) => {
                let wakes = [source_wakes, producer.wakes_at()];
                let until = wakes.into_iter().flatten().fold(until, Instant::min);
                wait(
                    &mut [self.fetcher.network(), producer.network()],
                    &*clock,
                    until,
                );
                Ok(())
            }
            _ => Err(misuse("a wait")),
        }
    }

    fn book(&mut self, acknowledged: Vec<Acknowledgement>) {
        for one in acknowledged {
            if let Some(book) = self.books.get_mut(&one.source.partition) {
                book.acknowledged(one.source.first, one.base_offset);
            }
        }
    }

    /// Sends an answer of a partition, all of it.
    fn send(&mut self, mut ready: Ready, pumped: &mut Pumped) -> Result<(), Failure> {
        let source = &self.sources[ready.number as usize];
        let book = self
            .books
            .entry(ready.number)
            .or_insert_with(|| Book::new(ready.began));
        let Target::Open(producer) = &mut self.target else {
            return Err(misuse("pump"));
        };
        for batch in std::mem::take(&mut ready.relayed.batches) {
            let (count, size) = (batch.count(), batch.size());
            let range = SourceRange {
                partition: ready.number,
                first: batch.first_offset(),
                last: batch.last_offset(),
            };
            book.sent(batch.runs(), size);
            let sent = producer.send_relayed(&source.target, batch, &ready.bytes, range);
            if let Err(error) = sent {
                return Err(self.failure(&error));
            }
            pumped.records += u64::from(count.unsigned_abs());
            pumped.bytes += size as u64;
            self.used += size as u64;
        }
        let relayed = &ready.relayed;
        book.fetched(&relayed.books, relayed.next_position, relayed.max_timestamp);
        self.reach(ready.number, relayed);
        Ok(())
    }

    fn producer(&mut self) -> Result<&mut TransactionalProducer, Failure> {
        match &mut self.target {
            Target::Open(producer) => Ok(producer),
            _ => Err(misuse("a call before open()")),
        }
    }

    pub(super) fn failure(&self, error: &Error) -> Failure {
        Failure::of_plane(error, |number| {
            let source = self.sources.get(usize::try_from(number).ok()?)?;
            Some(source.partition.clone())
        })
    }
}

pub(super) fn misuse(call: &str) -> Failure {
    Failure::misused(&format!("{call} does not fit: the lane is not open"))
}

/// Whether somebody is connected, and the cluster has transactions of protocol V2.
fn connected(client: &mut Client, until: Instant) -> Result<bool, Error> {
    loop {
        let now = client.clock().now();
        client.receive(now);
        let Err(again) = client.any_ready(now)? else {
            let level = client.network().feature("transaction.version").unwrap_or(0);
            if level < TRANSACTIONS_V2 {
                return Err(Error::OldTransactions { level });
            }
            return Ok(true);
        };
        if now >= until {
            return Ok(false);
        }
        client.pause(again.min(until));
    }
}
