//! One lane of a mirror: moves records from partitions of the source into transactions on the target, on one thread
//! and one poll(2).
//!
//! ```text
//!   LaneSource                                       LaneTarget
//!   Fetch  ---->  fetched  ---->  Relay (pure)  ---->  Produce  ---->  acknowledged
//!     ^                                                                    |
//!     +--- the next Fetch is in flight meanwhile                           v
//!                                                  OpenTransaction: settle(), state records, EndTxn
//! ```
//!
//! # Guarantees
//!
//! * A partition's records enter the open transaction before its position moves. [`Lane::advances`] returns the
//!   position, past markers, aborted ranges and empty batches (rule 4).
//! * [`Lane::settle`] returns accounts only when every batch is acknowledged with its offset and every fetched record
//!   is either acknowledged or dropped on purpose (rule 7).
//! * Topics are identified by the ids in [`Start`] and [`Route`], on both sides (rule 5): records are fetched by topic
//!   id, and a transaction that reached another target topic is not settled.
//! * Unacknowledged data is bounded: [`ProducerSettings::budget`] on the way to the target, and about
//!   [`Settings::fetch_bytes`] twice (fetched, and in flight from the source). A partition is not fetched again before
//!   its records are taken. The memory behind it is bounded too: the lane stops sending while source answers hold more
//!   than the budget and three times `fetch_bytes`, because an in-flight batch keeps the whole answer that it came in.
//! * One transaction's part of the offset map is bounded: [`Lane::pump`] reports a full transaction when a partition
//!   has so many gaps that its map would outgrow one record. One answer may exceed the limit.
//! * Waiting calls return at their deadline and resume with the next call, so that the caller can handle signals.
//!   After a failure only [`Lane::restart`] with a new [`Lane::begin_open`], or [`Lane::abort`], is allowed.

mod account;
mod consumer;
mod failure;
mod route;
mod source_partition;
mod state_records;
mod target;
mod topic_ids;
mod transaction;

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_kafka::{
    Clock, ProducerSettings, Properties, StalledPartition, Throttled, TopicPartition, wait_unless,
};
use eomirror_kafka::{Identity, Protocol};

pub use account::Account;
pub use failure::{Failure, FailureKind, Gap, RefusedBatch};
pub use route::Route;
pub use source_partition::{Advance, History, Start};
pub use state_records::StateRecord;

use consumer::LaneSource;
use target::LaneTarget;
use transaction::OpenTransaction;

/// Time that [`Lane::pump`] waits for the first record when the lane has caught up.
const IDLE: Duration = Duration::from_millis(5);

/// Up to this many bytes wait for the state records, to share their Produce requests.
const LINGER: u64 = 64 * 1024;

/// Full answers that may be in memory, including the one being sent.
const ANSWERS_HELD: u64 = 3;

/// Settings of a lane.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Client properties for the source cluster.
    pub source: Properties,
    /// Client properties for the target cluster.
    pub target: Properties,
    /// Settings of the transactional producer.
    pub producer: ProducerSettings,
    /// Maximum bytes of all in-flight Fetch answers together.
    pub fetch_bytes: u64,
    /// Limits for decompressing a batch.
    pub records: eomirror_batch::Limits,
}

impl Settings {
    /// Returns settings with 16 MiB of in-flight answers.
    #[must_use]
    pub fn new(source: Properties, target: Properties, producer: ProducerSettings) -> Self {
        Self {
            source,
            target,
            producer,
            fetch_bytes: 16 * 1024 * 1024,
            records: eomirror_batch::Limits::default(),
        }
    }
}

/// Result of one call of [`Lane::pump`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Records that were sent in the open transaction.
    pub records: u64,
    /// Bytes of their batches on the wire.
    pub bytes: u64,
    /// Everything fetched is sent, and no partition is known to have more.
    pub drained: bool,
    /// The transaction holds as much as it may.
    pub full: bool,
}

/// Moves the records of one lane; see the module.
pub struct Lane {
    settings: Settings,
    clock: Arc<dyn Clock>,
    source: LaneSource,
    target: LaneTarget,
    transaction: OpenTransaction,
    /// The fetched answers are some time old, and the source may have more by now.
    stale: bool,
}

impl Lane {
    /// Returns a lane that has no producer and fetches nothing yet. Reads certificates and connects nowhere.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        Ok(Self {
            source: LaneSource::new(&settings, LINGER, Arc::clone(&clock))?,
            target: LaneTarget::default(),
            transaction: OpenTransaction::default(),
            settings,
            clock,
            stale: false,
        })
    }

    /// Sets the target of a source topic's records, from the next answer on.
    pub fn route(&mut self, route: Route) {
        self.source.route(route);
    }

    /// Adds partitions of routed topics to the fetched ones.
    pub fn start(&mut self, starts: &[Start]) -> Result<(), Failure> {
        self.source.start(starts)?;
        for topic in self.source.targets(starts) {
            self.target.watch(&topic);
        }
        Ok(())
    }

    /// Drops partitions with everything that was fetched of them, while no transaction is open. The others are not
    /// disturbed.
    pub fn stop(&mut self, partitions: &[TopicPartition]) {
        for copy in self.source.copies(partitions) {
            // once it returns, records of other lanes follow ours
            self.target.forget(&copy);
        }
        self.source.stop(partitions);
    }

    /// Drops all partitions and everything that was fetched. [`Lane::start`] begins anew.
    pub fn restart(&mut self) {
        self.source.clear();
        self.transaction.clear();
    }

    /// Drops the producer, if there is one; [`Lane::open`] makes another.
    pub fn begin_open(&mut self) -> Result<(), Failure> {
        self.transaction.clear();
        self.target
            .reconnect(self.settings.target.clone(), Arc::clone(&self.clock))?;
        Ok(())
    }

    /// Takes the transactional id (`InitProducerId`) and fences its previous owner. None when `until` came first.
    pub fn open(&mut self, until: Instant) -> Result<Option<Identity>, Failure> {
        let opened = self.target.open(&self.settings.producer, until);
        opened.map_err(|error| self.source.failure(&error))
    }

    /// Waits for something to mirror. Needs no transaction; positions move past markers and aborted records. Returns
    /// early, with false, when a signal came, or when `other` can be read.
    pub fn await_records(
        &mut self,
        until: Instant,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Failure> {
        self.stale = true;
        loop {
            self.step()?;
            let looks = self.source.has_answers();
            self.prepare()?;
            if self.source.has_ready() || self.source.is_blocked() {
                return Ok(true);
            }
            if looks {
                // only markers and aborted records: their partitions must be fetched again before the wait
                self.step()?;
            }
            if self.clock.now() >= until {
                return Ok(false);
            }
            if !self.source.has_fetched() && self.wait_unless(other, until)? {
                return Ok(false);
            }
            self.stale = false;
        }
    }

    /// Returns the partitions whose next offset moved since the last commit.
    #[must_use]
    pub fn advances(&self) -> Vec<Advance> {
        self.source.advances()
    }

    /// Returns the last stable offsets of the latest answers.
    #[must_use]
    pub fn log_ends(&self) -> Vec<(&TopicPartition, i64)> {
        self.source.log_ends()
    }

    /// Returns partitions that cannot be read at the moment, with the reason.
    #[must_use]
    pub fn stalled(&self) -> Vec<StalledPartition> {
        self.source.stalled()
    }

    /// Returns the transaction protocol of the last transaction; None without a producer.
    #[must_use]
    pub fn protocol(&self) -> Option<Protocol> {
        self.target.protocol()
    }

    /// Returns how quotas of the source and of the target have throttled this lane.
    pub fn throttled(&mut self) -> (Throttled, Throttled) {
        let source = self.source.network().throttled();
        (source, self.target.throttled())
    }

    /// Begins a transaction and returns the producer identity of its records. None when `until` came first.
    pub fn begin(&mut self, until: Instant) -> Result<Option<Identity>, Failure> {
        let begun = self.target.begin(until);
        let identity = begun.map_err(|error| self.source.failure(&error))?;
        if identity.is_some() {
            self.transaction.clear();
        }
        Ok(identity)
    }

    /// Sends fetched records in the open transaction until it holds `most` bytes, `until` comes, or none are left.
    pub fn pump(&mut self, until: Instant, most: u64) -> Result<Pumped, Failure> {
        let mut pumped = Pumped::default();
        let mut idle = (self.clock.now() + IDLE).min(until);
        let mut stale = std::mem::take(&mut self.stale);
        loop {
            self.step()?;
            if let Some(at) = self
                .waits_for_markers()?
                .filter(|_| self.clock.now() < until)
            {
                self.wait(at.min(until))?;
                idle = (self.clock.now() + IDLE).min(until);
                stale = true;
                continue;
            }
            while self.transaction.has_room(most) && self.has_room()? {
                self.prepare()?;
                // a failure waits while the transaction holds records: they are good, and are committed first
                if self.transaction.is_empty() {
                    if let Some(failure) = self.source.take_blocked() {
                        return Err(failure);
                    }
                }
                if !self.source.has_ready() {
                    break;
                }
                self.send(&mut pumped)?;
            }
            let lingers = self.transaction.bytes() <= LINGER && self.has_room()?;
            self.target.linger(lingers);
            if stale && lingers && pumped.records > 0 {
                stale = false;
                self.source.hurry();
            }
            self.step()?;
            let now = self.clock.now();
            let caught_up = self.source.is_caught_up();
            pumped.drained = caught_up && (!self.source.is_hurrying() || now >= idle);
            pumped.full = !self.transaction.has_room(most) || self.source.is_blocked();
            if pumped.full || now >= until {
                return Ok(pumped);
            }
            // records that wait for the coordinator take along what arrives meanwhile
            let may_go = !lingers || self.target.may_write();
            if pumped.drained && may_go && (pumped.records > 0 || now >= idle) {
                return Ok(pumped);
            }
            let patience = if caught_up && now < idle { idle } else { until };
            if !self.source.has_fetched() || !self.has_room()? {
                self.wait(patience)?;
            }
        }
    }

    /// Returns true when records have arrived since the last [`Lane::pump`], all of them from partitions that the open
    /// transaction already holds: their leaders need not verify these again with the coordinator. Never waits.
    ///
    /// Called while acknowledged data waits to be committed, so only partitions already in the transaction are
    /// examined; a stopped partition is reported after the commit.
    pub fn has_more(&mut self) -> Result<bool, Failure> {
        self.step()?;
        if !self.source.has_ready() {
            let now = self.clock.now();
            if !self.source.receive(now)? {
                return Ok(false);
            }
            let transaction = &self.transaction;
            if !self
                .source
                .holds_records_only_of(|number| transaction.holds(number))
            {
                return Ok(false);
            }
            self.prepare()?;
        }
        // an answer whose records are all dropped only moves a position, which can wait
        Ok(self
            .source
            .ready()
            .is_some_and(|ready| ready.has_batches() && self.transaction.holds(ready.number())))
    }

    /// Sends state records in the open transaction, with a timestamp in ms.
    pub fn write(&mut self, records: &[StateRecord], timestamp: i64) -> Result<(), Failure> {
        let sent = self.target.write(records, timestamp);
        sent.map_err(|error| self.source.failure(&error))?;
        self.step()
    }

    /// Returns the accounts that [`Lane::settle`] will return if no other producer writes to the target partitions.
    /// None when they cannot be predicted: before this producer has committed to all of them, when two source
    /// partitions share one, or where records are placed by key.
    #[must_use]
    pub fn speculative_accounts(&self) -> Option<Vec<Account>> {
        self.transaction
            .speculative_accounts(&self.source, |target| self.target.next_offset(target))
    }

    /// Source topics of the open transaction that are certainly the intended ones (rule 5): their records are fetched
    /// and written by topic id, and both ids were given. The caller need not compare the ids of these topics.
    #[must_use]
    pub fn pinned(&self) -> BTreeSet<&str> {
        topic_ids::pinned(&self.transaction, &self.source, &self.target)
    }

    /// Waits until every record is acknowledged, and balances the accounts (rule 7). None when `until` came first.
    ///
    /// Where a copy had a new leader since [`Lane::open`], the transaction must be aborted: the copy may have lost its end
    /// to it, and the position of this transaction would replace the one that tells so (rule 5).
    pub fn settle(&mut self, until: Instant) -> Result<Option<Vec<Account>>, Failure> {
        self.target.linger(false);
        let mut doubts = None;
        loop {
            self.step()?;
            if self.producer_is_settled("settle")? {
                let known = self.target.leaders_known(&mut doubts);
                if known.map_err(|error| self.source.failure(&error))? {
                    break;
                }
            }
            if self.clock.now() >= until {
                return Ok(None);
            }
            self.wait(until)?;
        }
        topic_ids::check_targets(&self.transaction, &self.source, &mut self.target)?;
        let accounts = self.transaction.settle(&self.source)?;
        // the caller finds a copy that was cut by these offsets, and names the first that is lost
        let is_cut = accounts
            .iter()
            .flat_map(Account::written)
            .any(|(target, first, _)| Some(first) < self.target.next_offset(&target));
        if self.leaders_moved()? && !is_cut {
            return Err(Failure::leaders_moved());
        }
        Ok(Some(accounts))
    }

    /// Commits. False when `until` came first: then only the same call is allowed, and it resumes the commit.
    pub fn commit(&mut self, until: Instant) -> Result<bool, Failure> {
        match self.target.commit(until) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => return Err(self.source.failure(&error)),
        }
        let committed = self.transaction.take_committed();
        self.target.committed(committed.next_offsets);
        self.source.committed(committed.positions);
        Ok(true)
    }

    /// Returns true when a target partition had a new leader since [`Lane::open`]: a transaction that was committed
    /// before may still be open there.
    pub fn leaders_moved(&mut self) -> Result<bool, Failure> {
        match self.target.producer("leaders_moved") {
            Ok(producer) => Ok(producer.leaders_moved()),
            Err(error) => Err(self.source.failure(&error)),
        }
    }

    /// Returns the failure to report for a call that exceeded its deadline.
    #[must_use]
    pub fn overdue(&self, waited: Duration) -> Failure {
        self.target.overdue(waited)
    }

    /// Aborts the open transaction. False when `until` came first.
    pub fn abort(&mut self, until: Instant) -> Result<bool, Failure> {
        self.transaction.clear();
        let aborted = self.target.abort(until);
        aborted.map_err(|error| self.source.failure(&error))
    }

    /// Returns whether more records may be sent to the target.
    ///
    /// A relayed batch keeps the whole answer that it came in, including dropped records and acknowledged batches. So
    /// the bytes of the in-flight batches are not enough to look at: where one record in a hundred is mirrored, or one
    /// partition in a hundred has no leader, the answers hold a hundred times as much. When nothing is in flight there
    /// is nothing to wait for.
    fn has_room(&mut self) -> Result<bool, Failure> {
        let held = self.source.network().held_bytes() as u64;
        let answers = self.settings.fetch_bytes.saturating_mul(ANSWERS_HELD);
        let most = answers.saturating_add(self.settings.producer.budget as u64);
        match self.target.producer("pump") {
            Ok(producer) => Ok(producer.room() > 0 && (held <= most || producer.is_settled())),
            Err(error) => Err(self.source.failure(&error)),
        }
    }

    /// Returns until when the open transaction cannot send, because the markers of the last one are being written. None
    /// when it can send, or when much is waiting already.
    ///
    /// The lane relays nothing before: records that arrive until then join the same batch. A partition with steady
    /// traffic otherwise gets one small batch, and one Produce request, per look.
    fn waits_for_markers(&mut self) -> Result<Option<Instant>, Failure> {
        let unsent = self.transaction.bytes() == 0 || self.target.lingers();
        let little = self.source.held_bytes() <= LINGER;
        match self.target.producer("pump") {
            Ok(producer) => Ok(producer.waits_until().filter(|_| unsent && little)),
            Err(error) => Err(self.source.failure(&error)),
        }
    }

    fn producer_is_settled(&mut self, call: &'static str) -> Result<bool, Failure> {
        match self.target.producer(call) {
            Ok(producer) => Ok(producer.is_settled()),
            Err(error) => Err(self.source.failure(&error)),
        }
    }

    /// Does all non-blocking work on both sides.
    fn step(&mut self) -> Result<(), Failure> {
        self.source.step()?;
        let (acknowledged, stepped) = self.target.step();
        self.transaction.acknowledged(acknowledged);
        stepped.map_err(|error| self.source.failure(&error))
    }

    /// Waits until either side can continue, or until `until`.
    fn wait(&mut self, until: Instant) -> Result<(), Failure> {
        self.wait_unless(None, until).map(|_| ())
    }

    /// Waits like [`Lane::wait`]. True when a signal came, or when `other` can be read.
    fn wait_unless(
        &mut self,
        other: Option<BorrowedFd<'_>>,
        until: Instant,
    ) -> Result<bool, Failure> {
        let producer = match self.target.producer("a wait") {
            Ok(producer) => producer,
            Err(error) => return Err(self.source.failure(&error)),
        };
        let until = self.source.wakes_at().map_or(until, |at| at.min(until));
        let until = producer.wakes_at().map_or(until, |at| at.min(until));
        let networks = &mut [self.source.network(), producer.network()];
        Ok(wait_unless(networks, other, &*self.clock, until))
    }

    /// Relays fetched answers until one has records to send.
    fn prepare(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        self.source.prepare(self.target.producer_id(), now)
    }

    /// Sends all of the next answer.
    fn send(&mut self, pumped: &mut Pumped) -> Result<(), Failure> {
        let Some(ready) = self.source.take_ready(self.target.producer_id()) else {
            return Ok(());
        };
        let producer = match self.target.producer("pump") {
            Ok(producer) => producer,
            Err(error) => return Err(self.source.failure(&error)),
        };
        let partition = self.source.partition(ready.number());
        let sent = self.transaction.send(ready, partition, producer, pumped);
        match sent {
            Ok(ready) => {
                self.source.sent(&ready);
                Ok(())
            }
            Err(error) => Err(self.source.failure(&error)),
        }
    }
}

#[cfg(test)]
mod tests;
