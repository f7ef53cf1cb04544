//! The transactional producer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::coordinator_requests::{Answered, CoordinatorRequests};
use super::metadata_refresh::MetadataRefresh;
use super::produce_requests::ProduceRequests;
use super::wake_up::WakeUp;
use super::{Acknowledgement, ProducerSettings};
use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, Network, RequestId};
use crate::protocol::api_versions::ApiVersions;
use crate::protocol::produce::{FramedBatch, HEADER};
use crate::topic::{TopicId, TopicPartition};
use crate::transaction_state::marker_wait::Step;
use crate::transaction_state::{Event, Identity, Protocol, SourceRange};
use bytes::Bytes;
use eomirror_batch::{Batch, BatchError, Stamp};

/// The feature that decides the protocol of transactions.
pub const TRANSACTION_VERSION: &str = "transaction.version";

/// Time after which the cluster's features are asked for again. Brokers serve the protocol before as well.
const FEATURES_VALID: Duration = Duration::from_secs(10);

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
/// After an error of [`Kind::Abortable`](crate::Kind::Abortable), call [`TransactionalProducer::abort`] and send the
/// records again. After [`Kind::Superseded`](crate::Kind::Superseded) and all other final errors, read the last committed
/// position and open a new producer. [`Error::TimedOut`] changes nothing: the same call resumes.
pub struct TransactionalProducer {
    client: Client,
    settings: ProducerSettings,
    coordinator: CoordinatorRequests,
    produces: ProduceRequests,
    refresh: MetadataRefresh,
    /// Topics whose leaders are learned before they are written to.
    watched: BTreeSet<String>,
    /// Batches wait; see [`TransactionalProducer::hold`].
    held: bool,
    /// The retriable error in the target's last answer.
    hindrance: Option<String>,
    /// The transaction is another process's: this producer never ends it.
    joined: bool,
    /// The first refusal in the open transaction. Every call returns it until the transaction is aborted.
    refused: Option<Error>,
    /// The error that ended the producer.
    over: Option<Error>,
    /// The end of the last transaction, until commit or abort has returned it.
    ended: Option<Event>,
    wake: WakeUp,
    /// The request for the cluster's features, if one is in flight, and the time of the next one.
    features: (Option<RequestId>, Instant),
}

impl TransactionalProducer {
    /// Takes the transactional id: its previous owner is fenced, and its open transaction aborted.
    ///
    /// The cluster's `transaction.version` decides the protocol, of each transaction anew.
    pub fn open(
        mut client: Client,
        mut settings: ProducerSettings,
        deadline: Instant,
    ) -> Result<Self, Error> {
        settings.protocol = Protocol::of(client.feature(TRANSACTION_VERSION, deadline)?);
        let mut producer = Self::new(client, settings);
        producer.until_ready(deadline)?;
        Ok(producer)
    }

    /// Returns a producer without waiting, for a cluster whose `transaction.version` is known to suit the protocol.
    /// [`TransactionalProducer::until_ready`] takes the transactional id.
    #[must_use]
    pub fn new(mut client: Client, settings: ProducerSettings) -> Self {
        let now = client.clock().now();
        Self {
            coordinator: CoordinatorRequests::new(&settings),
            produces: ProduceRequests::new(&settings),
            refresh: MetadataRefresh::new(client.network().properties()),
            watched: BTreeSet::new(),
            client,
            settings,
            held: false,
            joined: false,
            hindrance: None,
            refused: None,
            over: None,
            ended: None,
            wake: WakeUp::default(),
            features: (None, now + FEATURES_VALID),
        }
    }

    /// Returns a producer that writes into a transaction of protocol V2 which another process has begun and ends. Nothing
    /// is asked of the coordinator: leaders add the partitions.
    ///
    /// Sequences begin at 0, so no partition may have been written in this transaction before. A broker takes such a batch
    /// for a duplicate, and reports it as written.
    #[must_use]
    pub fn join(client: Client, settings: ProducerSettings, identity: Identity) -> Self {
        let mut producer = Self::new(
            client,
            ProducerSettings {
                protocol: Protocol::V2,
                ..settings
            },
        );
        producer.coordinator.join(identity);
        producer.joined = true;
        producer
    }

    /// Begins a transaction. Waits only when the identity of the last one was lost.
    pub fn begin(&mut self, deadline: Instant) -> Result<(), Error> {
        if !self.coordinator.in_transaction() {
            self.until_ready(deadline)?;
        }
        if let Some(level) = self.client.network().feature(TRANSACTION_VERSION) {
            self.settings.protocol = Protocol::of(level);
        }
        let protocol = self.settings.protocol;
        self.coordinator.begin(protocol)?;
        self.forget();
        self.produces.change_protocol(protocol);
        Ok(())
    }

    /// Returns whether a partition had a new leader since this producer was made. Kafka 4.3 leaves out the markers of a
    /// transaction when a partition has no leader, without an error.
    #[must_use]
    pub fn leaders_moved(&self) -> bool {
        self.client.cached_metadata().moves() > 0
    }

    /// Learns the leaders of a topic that is written to later, so that [`TransactionalProducer::leaders_moved`] covers the
    /// time until then.
    pub fn watch(&mut self, topic: &str) {
        if self.watched.insert(topic.to_owned()) {
            self.refresh.ask_anew();
        }
    }

    /// Returns the number of reasons, until now, for which leaders may be others than known: lost connections, and
    /// topics that are new to [`TransactionalProducer::watch`].
    pub fn leader_doubts(&mut self) -> u64 {
        let lost = self.client.network().lost();
        self.refresh.note_lost(lost);
        self.refresh.doubts()
    }

    /// Returns whether the leaders were asked for after so many of these reasons, and have been told.
    #[must_use]
    pub const fn knows_leaders(&self, doubts: u64) -> bool {
        self.refresh.is_answered(doubts)
    }

    /// Returns the fields that the next batch for a partition must carry. A new batch can be written with them.
    pub fn stamp(&self, target: &TopicPartition) -> Result<Stamp, Error> {
        let Some(Identity { producer_id, epoch }) = self.coordinator.writer() else {
            return Err(self.closed("send"));
        };
        Ok(Stamp {
            producer_id,
            producer_epoch: epoch,
            base_sequence: self.produces.next_sequence(target),
            transactional: true,
        })
    }

    /// Queues a whole batch behind all others of its partition. The records are not copied. The producer fields of the
    /// header are rewritten and the batch's own checksum is adjusted: a broker still refuses a batch whose checksum was
    /// wrong.
    ///
    /// Accepts it even without [`TransactionalProducer::room`]. [`TransactionalProducer::step`] sends it.
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
            eomirror_batch::rewritten_header(&parsed, &stamp)
                .map_err(|error| unsendable(error.to_string()))?
        };
        let records = parsed.record_count();
        let framed = FramedBatch {
            head,
            body: batch.slice(HEADER..),
        };
        self.produces
            .push(target, framed, batch.len(), records, source);
        Ok(())
    }

    /// Queues a batch of `records` records that `make` builds under the producer's stamp: its header, and the bytes after
    /// it. For a caller that re-encodes batches, or keeps header and body apart.
    pub fn send_stamped(
        &mut self,
        target: &TopicPartition,
        records: i32,
        source: SourceRange,
        make: impl FnOnce(&Stamp) -> Result<([u8; HEADER], Bytes), BatchError>,
    ) -> Result<(), Error> {
        let stamp = self.stamp(target)?;
        let (head, body) = make(&stamp).map_err(|error| Error::Unsendable {
            target: target.clone(),
            reason: error.to_string(),
        })?;
        let size = HEADER + body.len();
        let framed = FramedBatch { head, body };
        self.produces.push(target, framed, size, records, source);
        Ok(())
    }

    /// Returns whether all answered batches of the open transaction went by topic id.
    #[must_use]
    pub const fn goes_by_id(&self) -> bool {
        self.produces.goes_by_id()
    }

    /// Returns ids and names of the topics that accepted batches of the open transaction by id.
    #[must_use]
    pub const fn written(&self) -> &BTreeMap<TopicId, String> {
        self.produces.written()
    }

    /// Returns whether a transaction is open or being ended.
    #[must_use]
    pub const fn in_transaction(&self) -> bool {
        self.coordinator.in_transaction()
    }

    /// Takes the acknowledgements that were not returned yet.
    pub fn take_acknowledged(&mut self) -> Vec<Acknowledgement> {
        self.produces.take_acknowledged()
    }

    /// Returns the reason that batches are not acknowledged, for messages.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        let metadata = self.client.cached_metadata();
        let leaderless = self.produces.leaderless(metadata);
        let why = |at: &TopicPartition| metadata.why_leaderless(&at.topic, at.partition);
        // without any description of the topic, the connection error says more
        let told = leaderless.filter(|at| metadata.tells_of(&at.topic));
        let said = self.hindrance.clone().or_else(|| told.map(why));
        said.or_else(|| self.client.last_trouble().map(ToString::to_string))
            .or_else(|| leaderless.map(why))
    }

    /// Returns the bytes of the budget that are left.
    #[must_use]
    pub fn room(&self) -> usize {
        self.settings.budget.saturating_sub(self.produces.held())
    }

    /// Returns whether every batch is acknowledged.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.produces.is_settled()
    }

    /// Returns the producer id of the next batch, if known; see
    /// [`crate::transaction_state::ProducerState::producer_id`].
    #[must_use]
    pub const fn producer_id(&self) -> Option<i64> {
        self.coordinator.producer_id()
    }

    /// Returns producer id and epoch of the open transaction.
    #[must_use]
    pub fn identity(&self) -> Option<Identity> {
        self.coordinator.writer()
    }

    /// Returns the protocol of the open or last transaction.
    #[must_use]
    pub const fn protocol(&self) -> Protocol {
        self.settings.protocol
    }

    pub(super) fn transactional_id(&self) -> &str {
        &self.settings.transactional_id
    }

    /// Notes that the open transaction is not empty.
    pub(super) fn wrote(&mut self) {
        self.coordinator.wrote();
    }

    /// Returns whether a commit has no outcome yet: then only [`TransactionalProducer::commit`] is allowed.
    #[must_use]
    pub const fn is_committing(&self) -> bool {
        self.coordinator.is_committing()
    }

    /// Sends batches, and waits for an acknowledgement or until `deadline`. Returns the new acknowledgements.
    pub fn pump(&mut self, deadline: Instant) -> Result<Vec<Acknowledgement>, Error> {
        loop {
            self.step()?;
            let nothing_to_wait_for = self.produces.is_settled();
            if self.produces.has_acknowledged() || nothing_to_wait_for || self.passed(deadline) {
                return Ok(self.produces.take_acknowledged());
            }
            self.wait(deadline);
        }
    }

    /// Waits until every batch is acknowledged, and commits. Returns the remaining acknowledgements.
    ///
    /// [`Error::TimedOut`] leaves the outcome open. Then only this call is allowed, and it resolves the outcome.
    pub fn commit(&mut self, deadline: Instant) -> Result<Vec<Acknowledgement>, Error> {
        const WHAT: &str = "committing a transaction";
        self.may_end("commit")?;
        let started = self.client.clock().now();
        loop {
            self.step()?;
            if self.coordinator.is_ending() || self.produces.is_settled() {
                break;
            }
            if self.passed(deadline) {
                return Err(self.timed_out(WHAT, started));
            }
            self.wait(deadline);
        }
        if self.ended.is_none() {
            self.ended = self.coordinator.commit()?;
        }
        match self.until_ended(WHAT, started, deadline)? {
            Event::Committed => Ok(self.produces.take_acknowledged()),
            Event::NotCommitted(code) => {
                self.forget();
                Err(Error::NotCommitted { code })
            }
            event => Err(self.unexpected(event)),
        }
    }

    /// Aborts: no record since [`TransactionalProducer::begin`] becomes visible, even one that is still in flight. Does
    /// nothing when no transaction is open.
    pub fn abort(&mut self, deadline: Instant) -> Result<(), Error> {
        const WHAT: &str = "aborting a transaction";
        self.may_end("abort")?;
        let started = self.client.clock().now();
        if let Some(error) = &self.over {
            return Err(error.clone());
        }
        if !self.coordinator.in_transaction() {
            self.forget();
            return Ok(());
        }
        self.coordinator.abort()?;
        self.forget();
        match self.until_ended(WHAT, started, deadline)? {
            Event::Aborted => Ok(()),
            event => Err(self.unexpected(event)),
        }
    }

    /// Does all non-blocking work. Acknowledgements stay for [`TransactionalProducer::pump`].
    pub fn step(&mut self) -> Result<(), Error> {
        let now = self.client.clock().now();
        self.client.receive(now);
        // a request may fail while it is sent, which is an answer too
        while let Some(answer) = self.client.next_answer() {
            self.take(answer, now)?;
        }
        self.wake = WakeUp::default();
        let (client, refresh, wake) = (&mut self.client, &mut self.refresh, &mut self.wake);
        self.coordinator.add(self.produces.unadded());
        self.coordinator.step(client, refresh, wake, now)?;
        let markers = self.coordinator.await_markers(client, now);
        wake.add(markers);
        if markers.is_none() && !self.held {
            let coordinator = &mut self.coordinator;
            self.produces
                .step(client, coordinator, refresh, wake, now)?;
        }
        self.refresh_metadata(now)?;
        self.refresh_features(now);
        match self.over.as_ref().or(self.refused.as_ref()) {
            Some(error) if !self.is_ending() => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the time at which [`TransactionalProducer::step`] must be called even if nothing arrives.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.wake.at()
    }

    /// Returns the client for other calls. They do not disturb batches in flight.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Returns the connections, for [`crate::wait`] on several clusters at once.
    pub fn network(&mut self) -> &mut Network {
        self.client.network()
    }

    /// Waits until a transaction can begin, and returns its identity.
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
            self.wait(deadline);
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
            self.wait(deadline);
        }
    }

    /// Sets whether batches wait, or are sent by the next [`TransactionalProducer::step`].
    pub const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Returns whether the first records of a transaction may be sent.
    pub fn may_write(&mut self) -> bool {
        self.coordinator.marker_step(self.client.clock().now()) == Step::Go
    }

    /// Returns until when the first records of a transaction certainly wait for the markers of the last one.
    pub fn waits_until(&mut self) -> Option<Instant> {
        match self.coordinator.marker_step(self.client.clock().now()) {
            Step::Wait(until) => Some(until),
            Step::Go | Step::Asked(_) | Step::Ask => None,
        }
    }

    fn take(&mut self, answer: Answer, now: Instant) -> Result<(), Error> {
        if self.features.0.take_if(|id| *id == answer.id).is_some() {
            let Answer { peer, body, .. } = answer;
            let read = |(version, body)| self.client.read::<ApiVersions>(peer, version, body);
            if let Ok(supported) = body.and_then(read) {
                // an error leaves them as they are: the next answer, of another broker, tells them
                if supported.error.is_none() {
                    self.client.network().learn(&supported);
                }
            }
            return Ok(());
        }
        let answer = match self.refresh.take(&mut self.client, answer) {
            Ok(taken) => return taken.or_else(Error::unless_final),
            Err(answer) => answer,
        };
        let answer = match self.produces.take(&mut self.client, answer, now) {
            Ok(Ok(produced)) => {
                self.hindrance = produced.hindrance;
                if produced.stale {
                    self.refresh.doubt();
                }
                if let Some(error) = produced.refused {
                    self.coordinator.require_abort();
                    self.refused.get_or_insert(error);
                }
                return Ok(());
            }
            Ok(Err(error)) => {
                self.hindrance = None;
                self.refresh.doubt();
                return Err(error).or_else(Error::unless_final);
            }
            Err(answer) => answer,
        };
        match self.coordinator.take(&mut self.client, answer, now) {
            Some(Ok(answered)) => {
                self.answered(answered);
                Ok(())
            }
            Some(Err(error)) => {
                self.hindrance = None;
                self.refresh.doubt();
                Err(error).or_else(Error::unless_final)
            }
            None => Ok(()),
        }
    }

    fn answered(&mut self, answered: Answered) {
        let Answered {
            code,
            event,
            added,
            refused,
        } = answered;
        if let Some(code) = code {
            let error = || format!("the coordinator answered {code}");
            self.hindrance = (!code.is_none()).then(error);
        }
        self.produces.added(added);
        match (event, refused) {
            (Some(Event::MustAbort(code)), Some(partition)) => {
                let error = self.produces.not_added(&partition, code);
                self.refused.get_or_insert(error);
            }
            (Some(event), _) => self.happened(event),
            (None, _) => {}
        }
    }

    fn happened(&mut self, event: Event) {
        let id = &self.settings.transactional_id;
        match event {
            Event::Initialized => self.refresh.reset_backoff(),
            Event::Fenced(code) => {
                // not an end that a caller waits for: V1 hears of it in the middle of a transaction, too
                self.over = Some(Error::Fenced {
                    transactional_id: id.clone(),
                    code,
                });
            }
            Event::Refused(code) => {
                self.over = Some(Error::Refused {
                    what: format!("transactional.id {id}"),
                    code,
                });
            }
            Event::MustAbort(code) => {
                self.refused = Some(Error::MustAbort {
                    what: "the commit".to_owned(),
                    batch: None,
                    code,
                });
                self.ended = Some(event);
            }
            Event::Committed | Event::Aborted | Event::NotCommitted(_) => {
                self.refresh.reset_backoff();
                self.ended = Some(event);
            }
        }
    }

    /// Returns the error of a transaction that ended in another way than the caller asked for.
    fn unexpected(&self, event: Event) -> Error {
        self.over
            .clone()
            .or_else(|| self.refused.clone())
            .unwrap_or_else(|| Error::Malformed {
                peer: self.settings.transactional_id.clone(),
                what: "end of a transaction",
                reason: match event {
                    Event::Committed => "it is committed",
                    _ => "it fits no call",
                },
            })
    }

    fn refresh_metadata(&mut self, now: Instant) -> Result<(), Error> {
        let network = self.client.network();
        self.refresh.note_lost(network.lost());
        self.refresh.note_unresponsive(network, now);
        self.wake.add(network.unresponsive_at(now));
        let lacking = self
            .produces
            .leaderless(self.client.cached_metadata())
            .is_some();
        if !self.refresh.is_due(lacking, now) {
            self.wake.add(self.refresh.recheck());
            return Ok(());
        }
        // all topics that were ever written to: a committed transaction may still be open in one of them
        let known = self.client.cached_metadata().topics().cloned();
        let topics: BTreeSet<String> = known
            .chain(self.produces.topics())
            .chain(self.watched.iter().cloned())
            .collect();
        let again = self.refresh.ask(&mut self.client, topics, now)?;
        self.wake.add(again);
        Ok(())
    }

    /// Asks a connected broker for the cluster's features, now and then: a connection lives longer than they do.
    fn refresh_features(&mut self, now: Instant) {
        let (asked, at) = self.features;
        if asked.is_some() || now < at {
            return;
        }
        if let Some(peer) = self.client.next_connected(now) {
            let network = self.client.network();
            let id = network.ask(peer, &ApiVersions, now, Duration::ZERO);
            self.features = (Some(id), now + FEATURES_VALID);
        }
    }

    /// Drops everything that belongs to the last transaction.
    fn forget(&mut self) {
        self.produces.clear();
        self.refused = None;
        self.hindrance = None;
        self.ended = None;
    }

    const fn is_ending(&self) -> bool {
        self.ended.is_some() || (self.coordinator.in_transaction() && self.coordinator.is_ending())
    }

    fn may_end(&self, call: &'static str) -> Result<(), Error> {
        if self.joined {
            let state = "the transaction is another process's";
            return Err(Error::InvalidState { call, state });
        }
        Ok(())
    }

    fn closed(&self, call: &'static str) -> Error {
        let told = self.over.as_ref().or(self.refused.as_ref());
        told.cloned().unwrap_or(Error::InvalidState {
            call,
            state: "no transaction is open",
        })
    }

    fn passed(&self, deadline: Instant) -> bool {
        self.client.clock().now() >= deadline
    }

    fn wait(&mut self, deadline: Instant) {
        let until = self.wake.at().map_or(deadline, |at| at.min(deadline));
        self.client.pause(until);
    }

    fn timed_out(&self, what: &'static str, started: Instant) -> Error {
        let waited = self.client.clock().now() - started;
        let last = self.trouble().unwrap_or_else(|| "no answer".to_owned());
        Error::TimedOut { what, waited, last }
    }
}

/// Returns whether a batch already carries the fields of the stamp.
fn carries(batch: &Batch<'_>, stamp: &Stamp) -> bool {
    batch.obstacle().is_none()
        && batch.delete_horizon().is_none()
        && batch.producer_id() == stamp.producer_id
        && batch.producer_epoch() == stamp.producer_epoch
        && batch.base_sequence() == stamp.base_sequence
        && batch.is_transactional() == stamp.transactional
        && batch.base_offset() == 0
}

#[cfg(test)]
mod tests;
