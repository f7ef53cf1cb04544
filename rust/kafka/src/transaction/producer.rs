//! Carries out what the state machines of [`eomirror_core::transaction`] decide: sends requests, takes answers.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use eomirror_core::batch::{self, Batch, Stamp};
use eomirror_core::relay::{Content, Outgoing};
use eomirror_core::transaction::producer_state::Misplaced;
use eomirror_core::transaction::{
    Coordinator, Event, Identity, Markers, Sequences, SourceRange, Ticket,
};

use super::exchange::Question;
use super::metadata_refresh::Leaders;
use super::{Acknowledgement, ProducerSettings};
use crate::client::Client;
use crate::error::{Error, ErrorCode};
use crate::network::{Network, RequestId};
use crate::protocol::produce::{FramedBatch, HEADER};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// The level of `transaction.version` with which a transaction's end gives a new identity.
pub const TRANSACTIONS_V2: i16 = 2;

/// Writes batches to one cluster in transactions.
///
/// ```text
/// let mut producer = TransactionalProducer::open(client, settings, deadline)?;
/// loop {
///     producer.begin(deadline)?;
///     while producer.room() > 0 {
///         producer.send(&target, batch, source)?;
///         book(producer.pump(now)?);
///     }
///     book(producer.commit(deadline)?);
/// }
/// ```
///
/// An error of [`Kind::Abortable`](crate::Kind::Abortable) wants [`TransactionalProducer::abort`] and the same records
/// again. After [`Kind::Superseded`](crate::Kind::Superseded) and all others that are final, a new producer has to be
/// opened and the last committed position read. [`Error::TimedOut`] changes nothing: the same call goes on.
pub struct TransactionalProducer {
    pub(super) client: Client,
    pub(super) settings: ProducerSettings,
    pub(super) coordinator: Coordinator,
    pub(super) sequences: Sequences<TopicPartition, FramedBatch>,
    pub(super) markers: Markers,
    /// The question whether they are written, while it is not answered.
    pub(super) markers_asked: Option<RequestId>,
    /// What was sent waits; see [`TransactionalProducer::hold`].
    pub(super) held: bool,
    /// What the coordinator was asked, and has not answered.
    pub(super) asked: Option<Question>,
    pub(super) produces: BTreeMap<RequestId, Produced>,
    pub(super) leaders: Leaders,
    pub(super) acknowledged: Vec<Acknowledgement>,
    /// What the target's last answer says against going on, where that passes.
    pub(super) hindrance: Option<String>,
    /// The first refusal in the open transaction; told by every call until it is aborted.
    pub(super) refused: Option<Error>,
    /// Why the producer can do nothing any more.
    pub(super) over: Option<Error>,
    /// Ids and names of the topics that took something of the open transaction.
    pub(super) written: BTreeMap<TopicId, String>,
    /// Whether batches ever went by the name of their topic: an old broker compares no ids.
    pub(super) by_name: bool,
    /// How the last transaction ended, until the caller of commit or abort has seen it.
    pub(super) ended: Option<Event>,
    pub(super) wake_at: Option<Instant>,
}

/// A Produce that is not answered yet.
pub(super) struct Produced {
    pub(super) ticket: Ticket,
    /// Names of the topics that go by id in the answer.
    pub(super) names: Vec<(TopicId, String)>,
}

impl TransactionalProducer {
    /// Takes over the transactional id: whoever had it is fenced, and what it left open is aborted.
    ///
    /// [`Error::OldTransactions`] when the cluster's `transaction.version` is below 2.
    pub fn open(
        mut client: Client,
        settings: ProducerSettings,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let level = client.feature("transaction.version", deadline)?;
        if level < TRANSACTIONS_V2 {
            return Err(Error::OldTransactions { level });
        }
        let mut producer = Self::new(client, settings);
        producer.until_ready(deadline)?;
        Ok(producer)
    }

    /// The same without waiting, for a cluster whose `transaction.version` is known to be 2 or higher:
    /// [`TransactionalProducer::until_ready`] takes over the transactional id.
    #[must_use]
    pub fn new(mut client: Client, settings: ProducerSettings) -> Self {
        let leaders = Leaders::new(client.network().properties());
        Self {
            sequences: Sequences::new(settings.request_bytes),
            client,
            settings,
            coordinator: Coordinator::new(),
            markers: Markers::new(),
            markers_asked: None,
            held: false,
            asked: None,
            produces: BTreeMap::new(),
            leaders,
            acknowledged: Vec::new(),
            hindrance: None,
            refused: None,
            over: None,
            written: BTreeMap::new(),
            by_name: false,
            ended: None,
            wake_at: None,
        }
    }

    /// Begins a transaction. Waits only when the identity of the last one was lost.
    pub fn begin(&mut self, deadline: Instant) -> Result<(), Error> {
        if !self.coordinator.in_transaction() {
            self.until_ready(deadline)?;
        }
        self.coordinator.begin().map_err(misplaced)?;
        self.forget();
        Ok(())
    }

    /// Whether partitions were found to have new leaders since this producer was made. Kafka 4.3 leaves the markers of a
    /// transaction out where a partition has no leader, and nobody would hear of it (docs/adr/0012).
    #[must_use]
    pub fn leaders_moved(&self) -> bool {
        self.client.directory().moves() > 0
    }

    /// What the next batch for a partition must carry. A batch that is written anew can carry it from the start.
    pub fn stamp(&self, target: &TopicPartition) -> Result<Stamp, Error> {
        let Some(Identity { producer_id, epoch }) = self.coordinator.writer() else {
            return Err(self.closed("send"));
        };
        Ok(Stamp {
            producer_id,
            producer_epoch: epoch,
            base_sequence: self.sequences.next_sequence(target),
            transactional: true,
        })
    }

    /// Takes a whole batch, for one partition, behind all that it has got before. The records are not copied; of the
    /// header, what names the producer is rewritten, and the batch's own checksum carried on: a broker refuses a batch
    /// whose checksum was wrong.
    ///
    /// Takes it also when there is no [`TransactionalProducer::room`]. Sends nothing by itself.
    pub fn send(
        &mut self,
        target: &TopicPartition,
        batch: &Bytes,
        source: SourceRange,
    ) -> Result<(), Error> {
        let stamp = self.stamp(target)?;
        let unsendable = |reason: String| Error::Unsendable {
            target: target.clone(),
            reason,
        };
        let parsed = Batch::parse(batch).map_err(|error| unsendable(error.to_string()))?;
        let head = if carries(&parsed, &stamp) {
            *parsed.header()
        } else {
            batch::rewritten_header(&parsed, &stamp)
                .map_err(|error| unsendable(error.to_string()))?
        };
        let records = parsed.record_count();
        let framed = FramedBatch {
            head,
            body: batch.slice(HEADER..),
        };
        self.sequences
            .push(target, framed, batch.len(), records, source);
        Ok(())
    }

    /// Takes a batch that [`eomirror_core::relay`] made of `fetched`, behind all that its partition has got before. As
    /// [`TransactionalProducer::send`] otherwise.
    pub fn send_relayed(
        &mut self,
        target: &TopicPartition,
        mut batch: Outgoing,
        fetched: &Bytes,
        source: SourceRange,
    ) -> Result<(), Error> {
        let stamp = self.stamp(target)?;
        let (records, size) = (batch.count(), batch.size());
        batch
            .stamp(fetched, &stamp)
            .map_err(|error| Error::Unsendable {
                target: target.clone(),
                reason: error.to_string(),
            })?;
        let framed = match batch.into_content() {
            Content::Passed { head, body } => FramedBatch {
                head,
                body: fetched.slice(body),
            },
            Content::Written(bytes) => {
                let bytes = Bytes::from(bytes);
                // stamping has shown that there is a whole header
                let head = bytes.first_chunk().copied().unwrap_or([0; HEADER]);
                FramedBatch {
                    head,
                    body: bytes.slice(HEADER.min(bytes.len())..),
                }
            }
        };
        self.sequences.push(target, framed, size, records, source);
        Ok(())
    }

    /// Whether all batches that were answered went by the id of their topic.
    #[must_use]
    pub const fn goes_by_id(&self) -> bool {
        !self.by_name
    }

    /// Ids and names of the topics that took something of the open transaction, as far as it went by id.
    #[must_use]
    pub const fn written(&self) -> &BTreeMap<TopicId, String> {
        &self.written
    }

    /// Whether a transaction is open or being ended.
    #[must_use]
    pub const fn in_transaction(&self) -> bool {
        self.coordinator.in_transaction()
    }

    /// What was acknowledged and not given out yet.
    pub fn take_acknowledged(&mut self) -> Vec<Acknowledgement> {
        std::mem::take(&mut self.acknowledged)
    }

    /// What keeps batches from being acknowledged, for messages.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let directory = self.client.directory();
        let leaderless = self.leaderless();
        let why = |at: &TopicPartition| directory.why_leaderless(&at.topic, at.partition);
        // where nobody has told of the topic, it is more that nobody could be asked
        let told = leaderless.filter(|at| directory.tells_of(&at.topic));
        let said = self.hindrance.clone().or_else(|| told.map(why));
        said.or_else(|| self.client.last_trouble().map(ToString::to_string))
            .or_else(|| leaderless.map(why))
    }

    /// Bytes of the budget that are left.
    #[must_use]
    pub fn room(&self) -> usize {
        self.settings.budget.saturating_sub(self.sequences.held())
    }

    /// Whether everything that was sent is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.sequences.is_settled()
    }

    /// The producer id that the next batch has, as far as known; see [`Coordinator::producer_id`].
    #[must_use]
    pub const fn producer_id(&self) -> Option<i64> {
        self.coordinator.producer_id()
    }

    /// The identity of the open transaction: producer id and epoch.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.coordinator.writer()
    }

    /// Whether a commit was asked for and has no outcome yet: only [`TransactionalProducer::commit`] makes sense.
    #[must_use]
    pub const fn is_committing(&self) -> bool {
        self.coordinator.is_committing()
    }

    /// Sends, waits until something is acknowledged or until `deadline`, and gives what is acknowledged.
    pub fn pump(&mut self, deadline: Instant) -> Result<Vec<Acknowledgement>, Error> {
        loop {
            self.step()?;
            let nothing_to_wait_for = self.sequences.is_settled();
            if !self.acknowledged.is_empty() || nothing_to_wait_for || self.passed(deadline) {
                return Ok(std::mem::take(&mut self.acknowledged));
            }
            self.rest(deadline);
        }
    }

    /// Waits until all is acknowledged, commits, and gives what was not given out before.
    ///
    /// [`Error::TimedOut`] leaves the outcome open; this call again finds it out, and nothing else can be done before.
    pub fn commit(&mut self, deadline: Instant) -> Result<Vec<Acknowledgement>, Error> {
        const WHAT: &str = "committing a transaction";
        let started = self.client.clock().now();
        loop {
            self.step()?;
            if self.coordinator.is_ending() || self.sequences.is_settled() {
                break;
            }
            if self.passed(deadline) {
                return Err(self.timed_out(WHAT, started));
            }
            self.rest(deadline);
        }
        if self.ended.is_none() {
            self.ended = self.coordinator.commit().map_err(misplaced)?;
        }
        match self.until_ended(WHAT, started, deadline)? {
            Event::Committed => Ok(std::mem::take(&mut self.acknowledged)),
            Event::NotCommitted(code) => {
                self.forget();
                Err(Error::NotCommitted {
                    code: ErrorCode(code),
                })
            }
            event => Err(self.told(event)),
        }
    }

    /// Aborts; nothing that was sent since [`TransactionalProducer::begin`] will be visible, whatever is still on its
    /// way. Does nothing when no transaction is open.
    pub fn abort(&mut self, deadline: Instant) -> Result<(), Error> {
        const WHAT: &str = "aborting a transaction";
        let started = self.client.clock().now();
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        if !self.coordinator.in_transaction() {
            self.forget();
            return Ok(());
        }
        self.coordinator.abort().map_err(misplaced)?;
        self.forget();
        match self.until_ended(WHAT, started, deadline)? {
            Event::Aborted => Ok(()),
            event => Err(self.told(event)),
        }
    }

    /// Does what can be done without waiting. What is acknowledged stays for [`TransactionalProducer::pump`].
    pub fn step(&mut self) -> Result<(), Error> {
        let now = self.client.clock().now();
        self.client.receive(now);
        // what is sent may fail at once, which is an answer too
        loop {
            let answers = self.client.take_inbox();
            if answers.is_empty() {
                break;
            }
            for answer in answers {
                self.take(answer, now)?;
            }
        }
        self.wake_at = None;
        self.ask_coordinator(now)?;
        if self.follow_markers(now) && !self.held {
            self.ask_leaders(now)?;
        }
        self.ask_metadata(now)?;
        match self.over.as_ref().or(self.refused.as_ref()) {
            Some(error) if !self.is_ending() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// When [`TransactionalProducer::step`] should be called again even if nothing arrives.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.wake_at
    }

    /// The client, for calls in between. They do not disturb what is on its way.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The connections, for [`crate::wait`] on several clusters at once.
    pub fn network(&mut self) -> &mut Network {
        self.client.network()
    }

    /// Waits until a transaction can begin, and gives the identity that it will have.
    pub fn until_ready(&mut self, deadline: Instant) -> Result<Identity, Error> {
        const WHAT: &str = "initializing a transactional producer";
        let started = self.client.clock().now();
        loop {
            self.step()?;
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            if let Some(identity) = self.coordinator.ready_identity() {
                return Ok(identity);
            }
            if self.passed(deadline) {
                return Err(self.timed_out(WHAT, started));
            }
            self.rest(deadline);
        }
    }

    fn until_ended(
        &mut self,
        what: &'static str,
        started: Instant,
        deadline: Instant,
    ) -> Result<Event, Error> {
        loop {
            if let Some(event) = self.ended.take() {
                return Ok(event);
            }
            self.step()?;
            if self.ended.is_some() {
                continue;
            }
            if self.passed(deadline) {
                return Err(self.timed_out(what, started));
            }
            self.rest(deadline);
        }
    }

    /// A partition with batches whose leader is not known.
    pub(super) fn leaderless(&self) -> Option<&TopicPartition> {
        let directory = self.client.directory();
        let mut unsettled = self.sequences.unsettled();
        unsettled.find(|at| directory.leader(&at.topic, at.partition).is_none())
    }

    /// Drops everything that belongs to the transaction that was.
    pub(super) fn forget(&mut self) {
        self.sequences.restart();
        self.acknowledged.clear();
        self.written.clear();
        self.refused = None;
        self.hindrance = None;
        self.ended = None;
    }

    const fn is_ending(&self) -> bool {
        self.ended.is_some() || (self.coordinator.in_transaction() && self.coordinator.is_ending())
    }

    fn closed(&self, call: &'static str) -> Error {
        let told = self.over.as_ref().or(self.refused.as_ref());
        told.cloned().unwrap_or(Error::Misplaced {
            call,
            state: "no transaction is open",
        })
    }

    fn passed(&self, deadline: Instant) -> bool {
        self.client.clock().now() >= deadline
    }

    fn rest(&mut self, deadline: Instant) {
        let until = self.wake_at.map_or(deadline, |at| at.min(deadline));
        self.client.pause(until);
    }

    pub(super) fn wake(&mut self, at: Option<Instant>) {
        self.wake_at = match (self.wake_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn timed_out(&self, what: &'static str, started: Instant) -> Error {
        let waited = self.client.clock().now() - started;
        let last = self.trouble().unwrap_or_else(|| "no answer".to_owned());
        Error::TimedOut { what, waited, last }
    }
}

/// Whether a batch says already what the stamp says.
fn carries(batch: &Batch<'_>, stamp: &Stamp) -> bool {
    batch.obstacle().is_none()
        && batch.delete_horizon().is_none()
        && batch.producer_id() == stamp.producer_id
        && batch.producer_epoch() == stamp.producer_epoch
        && batch.base_sequence() == stamp.base_sequence
        && batch.is_transactional() == stamp.transactional
        && batch.base_offset() == 0
}

fn misplaced(error: Misplaced) -> Error {
    Error::Misplaced {
        call: error.call,
        state: error.state,
    }
}
