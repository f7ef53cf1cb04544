//! Carries out what the state machines of [`eomirror_core::transaction`] decide: sends requests, takes answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_core::batch::{self, Batch, Stamp};
use eomirror_core::transaction::coordinator::Misplaced;
use eomirror_core::transaction::{
    Ask, Coordinator, Event, Identity, Outgoing, Refused, Sequences, SourceRange, Ticket,
};

use super::leaders::Leaders;
use super::{Acknowledgement, ProducerSettings};
use crate::client::Client;
use crate::directory::Directory;
use crate::error::{Error, ErrorCode};
use crate::fetch::TopicPartition;
use crate::network::{Answer, Network, Peer, RequestId, State};
use crate::protocol::produce::{FramedBatch, HEADER, ProduceRequest, WrittenTopic};
use crate::protocol::transaction::{EndTxn, FindCoordinator, GivenIdentity, InitProducerId};
use crate::protocol::{Request, TopicId};

/// The level of `transaction.version` with which a transaction's end gives a new identity.
const TRANSACTIONS_V2: i16 = 2;

/// How long to wait before looking again for a coordinator that cannot be connected to.
const COORDINATOR_PAUSE: Duration = Duration::from_millis(50);

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
    client: Client,
    settings: ProducerSettings,
    coordinator: Coordinator,
    sequences: Sequences<TopicPartition, FramedBatch>,
    /// What the coordinator was asked, and has not answered.
    asked: Option<(RequestId, Ask)>,
    produces: BTreeMap<RequestId, Produced>,
    leaders: Leaders,
    acknowledged: Vec<Acknowledgement>,
    /// The first refusal in the open transaction; told by every call until it is aborted.
    refused: Option<Error>,
    /// Why the producer can do nothing any more.
    over: Option<Error>,
    /// How the last transaction ended, until the caller of commit or abort has seen it.
    ended: Option<Event>,
    wake_at: Option<Instant>,
}

struct Produced {
    broker: i32,
    ticket: Ticket,
    /// Names of the topics that go by id in the answer.
    names: Vec<(TopicId, String)>,
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
        let mut producer = Self {
            sequences: Sequences::new(settings.request_bytes),
            client,
            settings,
            coordinator: Coordinator::new(),
            asked: None,
            produces: BTreeMap::new(),
            leaders: Leaders::default(),
            acknowledged: Vec::new(),
            refused: None,
            over: None,
            ended: None,
            wake_at: None,
        };
        producer.until_ready(deadline)?;
        Ok(producer)
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

    /// What the next batch for a partition must carry. A batch that is written anew can carry it from the start, and
    /// then its checksum is computed once.
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
    /// header, what names the producer is rewritten. The batch's own checksum is the caller's to check before.
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
        self.ask_leaders(now)?;
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

    fn until_ready(&mut self, deadline: Instant) -> Result<(), Error> {
        const WHAT: &str = "initializing a transactional producer";
        let started = self.client.clock().now();
        loop {
            self.step()?;
            if let Some(error) = &self.over {
                return Err(error.clone());
            }
            if self.coordinator.is_ready() {
                return Ok(());
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

    fn take(&mut self, answer: Answer, now: Instant) -> Result<(), Error> {
        let answer = match self.leaders.take(&mut self.client, answer) {
            Ok(taken) => return passing(taken),
            Err(answer) => answer,
        };
        if let Some(produced) = self.produces.remove(&answer.id) {
            return self.take_produced(answer, &produced, now);
        }
        match self.asked.take_if(|(id, _)| *id == answer.id) {
            Some((_, ask)) => self.take_coordinated(answer, ask, now),
            None => Ok(()),
        }
    }

    fn take_coordinated(&mut self, answer: Answer, ask: Ask, now: Instant) -> Result<(), Error> {
        let Answer { peer, body, .. } = answer;
        let client = &mut self.client;
        let event = match ask {
            Ask::Find => read::<FindCoordinator>(client, peer, body)
                .map(|found| self.coordinator.found(found.error, found.broker, now)),
            Ask::Init { .. } => read::<InitProducerId>(client, peer, body).map(|given| {
                self.coordinator
                    .initialized(given.error, identity(given), now)
            }),
            Ask::End { .. } => read::<EndTxn>(client, peer, body)
                .map(|given| self.coordinator.ended(given.error, identity(given), now)),
        };
        match event {
            Ok(event) => {
                if let Some(event) = event {
                    self.happened(event);
                }
                Ok(())
            }
            Err(error) => {
                self.coordinator.lost(now);
                self.leaders.doubt();
                passing(Err(error))
            }
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Initialized => {}
            Event::Fenced(code) => {
                self.over = Some(Error::Fenced {
                    transactional_id: self.settings.transactional_id.clone(),
                    code: ErrorCode(code),
                });
                self.ended = Some(event);
            }
            Event::Refused(code) => {
                let whose = &self.settings.transactional_id;
                self.over = Some(Error::Refused {
                    what: format!("transactional.id {whose}"),
                    code: ErrorCode(code),
                });
                self.ended = Some(event);
            }
            Event::MustAbort(code) => {
                self.refused = Some(Error::MustAbort {
                    what: "the commit".to_owned(),
                    batch: None,
                    code: ErrorCode(code),
                });
                self.ended = Some(event);
            }
            Event::Committed | Event::Aborted | Event::NotCommitted(_) => self.ended = Some(event),
        }
    }

    fn take_produced(
        &mut self,
        answer: Answer,
        produced: &Produced,
        now: Instant,
    ) -> Result<(), Error> {
        let Answer { peer, body, .. } = answer;
        let answer = match read::<ProduceRequest>(&mut self.client, peer, body) {
            Ok(answer) => answer,
            Err(error) => {
                self.sequences.lost(produced.ticket, now);
                self.leaders.doubt();
                return passing(Err(error));
            }
        };
        if let Ok(millis @ 1..) = u64::try_from(answer.throttle_ms) {
            let until = now + Duration::from_millis(millis);
            self.client
                .network()
                .rest(Peer::Broker(produced.broker), until);
        }
        let mut reasons = BTreeMap::new();
        let mut results = Vec::with_capacity(answer.partitions.len());
        for written in answer.partitions {
            let named = produced
                .names
                .iter()
                .find(|(id, _)| !id.is_none() && *id == written.id);
            let topic = named.map_or(written.topic, |(_, name)| name.clone());
            if let Some(leader) = written.leader {
                self.client
                    .directory_mut()
                    .learn(&topic, written.index, leader);
            }
            let target = TopicPartition::new(topic, written.index);
            if let Some(reason) = written.reason {
                reasons.insert(target.clone(), reason);
            }
            results.push((target, written.error, written.base_offset));
        }
        let answered = self.sequences.answered(produced.ticket, results, now);
        self.acknowledged.extend(answered.acknowledged);
        if answered.stale {
            self.leaders.doubt();
        }
        if let Some(refused) = answered.refused {
            self.refuse(refused, &reasons);
        }
        Ok(())
    }

    fn refuse(
        &mut self,
        refused: Refused<TopicPartition>,
        reasons: &BTreeMap<TopicPartition, String>,
    ) {
        let SourceRange { first, last, .. } = refused.source;
        let reason = reasons
            .get(&refused.target)
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        let what = format!(
            "{} does not take source offsets {first} to {last}{reason}",
            refused.target
        );
        self.coordinator.doom();
        self.refused.get_or_insert(Error::MustAbort {
            what,
            batch: Some((refused.target, refused.source)),
            code: ErrorCode(refused.code),
        });
    }

    fn ask_coordinator(&mut self, now: Instant) -> Result<(), Error> {
        let Some(ask) = self.coordinator.wants(now) else {
            self.wake(self.coordinator.paused_until());
            return Ok(());
        };
        let peer = match (ask, self.coordinator.broker()) {
            (Ask::Find, _) | (_, None) => match self.client.any_ready(now)? {
                Ok(peer) => peer,
                Err(again) => {
                    self.wake(Some(again));
                    return Ok(());
                }
            },
            (_, Some(broker)) => {
                let peer = Peer::Broker(broker);
                match self.client.network().open(peer, now) {
                    State::Ready => peer,
                    State::Opening => return Ok(()),
                    State::Resting { last, .. } => {
                        // it may be gone, or metadata does not name it yet
                        self.coordinator.lost(now);
                        self.leaders.doubt();
                        self.wake(Some(now + COORDINATOR_PAUSE));
                        return passing(last.map_or(Ok(()), Err));
                    }
                }
            }
        };
        let transactional_id = self.settings.transactional_id.clone();
        let network = self.client.network();
        let id = match ask {
            Ask::Find => {
                let request = FindCoordinator { transactional_id };
                network.ask(peer, &request, now, Duration::ZERO)
            }
            Ask::Init { previous } => {
                let request = InitProducerId {
                    transactional_id,
                    timeout_ms: millis(self.settings.transaction_timeout),
                    previous: previous
                        .map_or((-1, -1), |identity| (identity.producer_id, identity.epoch)),
                };
                network.ask(peer, &request, now, Duration::ZERO)
            }
            Ask::End { identity, commit } => {
                let request = EndTxn {
                    transactional_id,
                    producer_id: identity.producer_id,
                    epoch: identity.epoch,
                    commit,
                };
                network.ask(peer, &request, now, Duration::ZERO)
            }
        };
        self.coordinator.asked();
        self.asked = Some((id, ask));
        Ok(())
    }

    fn ask_leaders(&mut self, now: Instant) -> Result<(), Error> {
        if self.coordinator.writer().is_none() {
            return Ok(());
        }
        let leads = |directory: &Directory, at: &TopicPartition| {
            directory
                .leader(&at.topic, at.partition)
                .map(|(leader, _)| leader)
        };
        let directory = self.client.directory();
        let brokers = self.sequences.brokers(|at| leads(directory, at), now);
        for broker in brokers {
            match self.client.network().open(Peer::Broker(broker), now) {
                State::Ready => loop {
                    let directory = self.client.directory();
                    let planned = self.sequences.plan(broker, |at| leads(directory, at), now);
                    let Some(outgoing) = planned else { break };
                    self.coordinator.wrote();
                    self.produce(broker, outgoing, now);
                },
                State::Opening => {}
                State::Resting { until, last } => {
                    self.wake(Some(until));
                    self.leaders.doubt();
                    passing(last.map_or(Ok(()), Err))?;
                }
            }
        }
        self.wake(self.sequences.next_retry(now));
        Ok(())
    }

    fn produce(
        &mut self,
        broker: i32,
        outgoing: Outgoing<TopicPartition, FramedBatch>,
        now: Instant,
    ) {
        let mut topics: Vec<WrittenTopic> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (target, batch) in outgoing.batches {
            let place = if let Some(place) = places.get(&target.topic) {
                *place
            } else {
                let facts = self.client.directory().topic(&target.topic);
                topics.push(WrittenTopic {
                    id: facts.map_or(TopicId::NONE, |facts| facts.id),
                    name: target.topic.clone(),
                    partitions: Vec::new(),
                });
                places.insert(target.topic, topics.len() - 1);
                topics.len() - 1
            };
            topics[place].partitions.push((target.partition, batch));
        }
        let request = ProduceRequest {
            transactional_id: self.settings.transactional_id.clone(),
            timeout_ms: millis(self.settings.request_timeout),
            topics,
        };
        let peer = Peer::Broker(broker);
        let patience = self.settings.request_timeout;
        let id = self.client.network().ask(peer, &request, now, patience);
        let names = request
            .topics
            .into_iter()
            .map(|topic| (topic.id, topic.name));
        let produced = Produced {
            broker,
            ticket: outgoing.ticket,
            names: names.collect(),
        };
        self.produces.insert(id, produced);
    }

    fn ask_metadata(&mut self, now: Instant) -> Result<(), Error> {
        let lacking = self.leaderless().is_some();
        if !self.leaders.wants(lacking) {
            return Ok(());
        }
        let topics = self.sequences.unsettled().map(|at| at.topic.clone());
        let topics: BTreeSet<String> = topics.collect();
        let again = self.leaders.ask(&mut self.client, topics, now)?;
        self.wake(again);
        Ok(())
    }

    /// A partition with batches whose leader is not known.
    fn leaderless(&self) -> Option<&TopicPartition> {
        let directory = self.client.directory();
        let mut unsettled = self.sequences.unsettled();
        unsettled.find(|at| directory.leader(&at.topic, at.partition).is_none())
    }

    /// Drops everything that belongs to the transaction that was.
    fn forget(&mut self) {
        self.sequences.restart();
        self.acknowledged.clear();
        self.refused = None;
        self.ended = None;
    }

    const fn is_ending(&self) -> bool {
        self.ended.is_some() || (self.coordinator.in_transaction() && self.coordinator.is_ending())
    }

    fn told(&self, event: Event) -> Error {
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

    fn wake(&mut self, at: Option<Instant>) {
        self.wake_at = match (self.wake_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    fn timed_out(&mut self, what: &'static str, started: Instant) -> Error {
        let waited = self.client.clock().now() - started;
        let trouble = self
            .client
            .network()
            .last_trouble()
            .map(ToString::to_string);
        let last = match (self.leaderless(), trouble) {
            (Some(at), None) => format!("no leader is known for {at}"),
            (_, trouble) => trouble.unwrap_or_else(|| "no answer".to_owned()),
        };
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

fn read<R: Request>(
    client: &mut Client,
    peer: Peer,
    body: Result<(i16, Bytes), Error>,
) -> Result<R::Answer, Error> {
    body.and_then(|(version, body)| client.read::<R>(peer, version, body))
}

/// Keeps the errors that only a person can mend; the others are tried again.
fn passing(result: Result<(), Error>) -> Result<(), Error> {
    result.or_else(|error| if error.is_final() { Err(error) } else { Ok(()) })
}

const fn identity(given: GivenIdentity) -> Identity {
    Identity {
        producer_id: given.producer_id,
        epoch: given.epoch,
    }
}

fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn misplaced(error: Misplaced) -> Error {
    Error::Misplaced {
        call: error.call,
        state: error.state,
    }
}
