//! What the producer asks, and what it makes of the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_core::transaction::marker_wait::Step;
use eomirror_core::transaction::{Ask, Event, Identity, Outgoing, Refused, SourceRange};

use super::producer::{Produced, TransactionalProducer};
use crate::client::Client;
use crate::error::{Error, ErrorCode};
use crate::metadata::Directory;
use crate::network::{Answer, Peer, RequestId, State};
use crate::protocol::Request;
use crate::protocol::describe_transactions::DescribeTransaction;
use crate::protocol::produce::{FramedBatch, ProduceRequest, WrittenTopic};
use crate::protocol::transaction::{EndTxn, FindCoordinator, GivenIdentity, InitProducerId};
use crate::topic::TopicId;
use crate::topic::TopicPartition;

/// How long to wait before looking again for a coordinator that cannot be connected to.
const COORDINATOR_PAUSE: Duration = Duration::from_millis(50);

/// `DUPLICATE_SEQUENCE_NUMBER`: the batch is there already.
const DUPLICATE: i16 = 46;

/// `TRANSACTIONAL_ID_AUTHORIZATION_FAILED`: whoever may write with an id may describe it, but who knows.
const ID_NOT_ALLOWED: i16 = 53;

/// A question to the coordinator, or about it, that is not answered yet.
pub(super) struct Question {
    id: RequestId,
    ask: Ask,
    peer: Peer,
}

impl TransactionalProducer {
    pub(super) fn take(&mut self, answer: Answer, now: Instant) -> Result<(), Error> {
        let answer = match self.leaders.take(&mut self.client, answer) {
            Ok(taken) => return passing(taken),
            Err(answer) => answer,
        };
        if let Some(produced) = self.produces.remove(&answer.id) {
            return self.take_produced(answer, &produced, now);
        }
        if self.markers_asked.take_if(|id| *id == answer.id).is_some() {
            self.take_described(answer, now);
            return Ok(());
        }
        match self.asked.take_if(|asked| asked.id == answer.id) {
            Some(Question { ask, .. }) => self.take_coordinated(answer, ask, now),
            None => Ok(()),
        }
    }

    /// Whether the markers of the last transaction are written. Whatever is wrong with the answer is no reason to wait.
    fn take_described(&mut self, answer: Answer, now: Instant) {
        let Answer { peer, body, .. } = answer;
        match read::<DescribeTransaction>(&mut self.client, peer, body) {
            Ok(described) if described.error == 0 => self.markers.told(described.is_ending, now),
            Ok(described) if described.error == ID_NOT_ALLOWED => self.markers.silence(),
            Err(Error::Unsupported { .. }) => self.markers.silence(),
            Ok(_) | Err(_) => self.markers.written(),
        }
    }

    /// Has what was sent wait, or go with the next [`TransactionalProducer::step`].
    pub const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Whether the first records of a transaction may go.
    pub fn may_write(&mut self) -> bool {
        self.markers.wants(self.client.clock().now()) == Step::Go
    }

    /// Until when the first records of a transaction wait in any case, where they do.
    pub fn waits_until(&mut self) -> Option<Instant> {
        match self.markers.wants(self.client.clock().now()) {
            Step::Wait(until) => Some(until),
            Step::Go | Step::Asked(_) | Step::Ask => None,
        }
    }

    /// Whether the first records of a transaction may go; else what has to happen before is under way. It is found out
    /// as soon as the transaction before is ended, also while nothing waits for it: who comes then loses no time by it.
    pub(super) fn follow_markers(&mut self, now: Instant) -> bool {
        match self.markers.wants(now) {
            Step::Go => return true,
            Step::Wait(until) | Step::Asked(until) => {
                self.wake(Some(until));
                return false;
            }
            Step::Ask => {}
        }
        let peer = self.coordinator.broker().map(Peer::Broker);
        let ready = |peer: &Peer| matches!(self.client.network().open(*peer, now), State::Ready);
        let Some(peer) = peer.filter(ready) else {
            self.markers.written();
            return true;
        };
        let request = DescribeTransaction {
            transactional_id: self.settings.transactional_id.clone(),
        };
        let id = self
            .client
            .network()
            .ask(peer, &request, now, Duration::ZERO);
        self.markers_asked = Some(id);
        self.markers.asked();
        self.follow_markers(now)
    }

    fn take_coordinated(&mut self, answer: Answer, ask: Ask, now: Instant) -> Result<(), Error> {
        let Answer { peer, body, .. } = answer;
        let client = &mut self.client;
        let event = match ask {
            Ask::Find => read::<FindCoordinator>(client, peer, body).map(|found| {
                let event = self.coordinator.found(found.error, found.broker, now);
                // that somebody is found does not say that he answers
                let code = Some(found.error).filter(|code| *code != 0);
                (code, event)
            }),
            Ask::Init { .. } => read::<InitProducerId>(client, peer, body).map(|given| {
                let next = identity(given);
                let event = self.coordinator.initialized(given.error, next, now);
                (Some(given.error), event)
            }),
            Ask::End { .. } => read::<EndTxn>(client, peer, body).map(|given| {
                let event = self.coordinator.ended(given.error, identity(given), now);
                if let Some(Event::Committed | Event::Aborted) = event {
                    self.markers.ended(now);
                    // an answer that is still on its way speaks of the transaction before
                    self.markers_asked = None;
                }
                (Some(given.error), event)
            }),
        };
        match event {
            Ok((code, event)) => {
                if let Some(code) = code.map(ErrorCode) {
                    let said = || format!("the coordinator says {code}");
                    self.hindrance = (!code.is_none()).then(said);
                }
                if let Some(event) = event {
                    self.happened(event);
                }
                Ok(())
            }
            Err(error) => {
                self.hindrance = None;
                self.coordinator.lost(now);
                self.leaders.doubt();
                passing(Err(error))
            }
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Initialized => {
                // it is answered when all markers are there
                self.markers.written();
                self.leaders.begin_anew();
            }
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
            Event::Committed | Event::Aborted | Event::NotCommitted(_) => {
                self.leaders.begin_anew();
                self.ended = Some(event);
            }
        }
    }

    pub(super) fn told(&self, event: Event) -> Error {
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

    fn take_produced(
        &mut self,
        answer: Answer,
        produced: &Produced,
        now: Instant,
    ) -> Result<(), Error> {
        let Answer { peer, body, .. } = answer;
        self.hindrance = None;
        let answer = match read::<ProduceRequest>(&mut self.client, peer, body) {
            Ok(answer) => answer,
            Err(error) => {
                self.sequences.lost(produced.ticket, now);
                self.leaders.doubt();
                return passing(Err(error));
            }
        };
        let mut reasons = BTreeMap::new();
        let mut results = Vec::with_capacity(answer.partitions.len());
        for written in answer.partitions {
            self.by_name |= written.id.is_none();
            let named = produced
                .names
                .iter()
                .find(|(id, _)| !id.is_none() && *id == written.id);
            let topic = named.map_or(written.topic, |(_, name)| name.clone());
            if let Some(leader) = written.leader {
                self.client
                    .directory_mut()
                    .learn(&topic, written.id, written.index, leader);
            }
            if !written.id.is_none() && matches!(written.error, 0 | DUPLICATE) {
                self.written
                    .entry(written.id)
                    .or_insert_with(|| topic.clone());
            }
            let target = TopicPartition::new(topic, written.index);
            if !matches!(written.error, 0 | DUPLICATE) {
                self.hindrance = Some(format!("{target}: {}", ErrorCode(written.error)));
            }
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
        let code = ErrorCode(refused.code);
        let reason = reasons
            .get(&refused.target)
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        // said of every partition of the request: the first of them has nothing to do with it
        let (what, batch) = if code.concerns_everything() {
            let whose = &self.settings.transactional_id;
            (format!("writing as transactional.id {whose}{reason}"), None)
        } else {
            let what = format!(
                "{} does not take source offsets {first} to {last}{reason}",
                refused.target
            );
            (what, Some((refused.target, refused.source)))
        };
        self.coordinator.doom();
        self.refused
            .get_or_insert(Error::MustAbort { what, batch, code });
    }

    pub(super) fn ask_coordinator(&mut self, now: Instant) -> Result<(), Error> {
        let network = self.client.network();
        let silent =
            |asked: &mut Question| asked.ask == Ask::Find && network.is_silent(asked.peer, now);
        if self.asked.take_if(silent).is_some() {
            // anybody knows who coordinates
            self.coordinator.lost(now);
        }
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
                    // it is there, and wants to be left alone for a while
                    State::Resting { until, last: None }
                        if self.client.network().is_known(peer) =>
                    {
                        self.wake(Some(until));
                        return Ok(());
                    }
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
        self.asked = Some(Question { id, ask, peer });
        Ok(())
    }

    pub(super) fn ask_leaders(&mut self, now: Instant) -> Result<(), Error> {
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
                    if last.is_some() || !self.client.network().is_known(Peer::Broker(broker)) {
                        self.leaders.doubt();
                    }
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
            ticket: outgoing.ticket,
            names: names.collect(),
        };
        self.produces.insert(id, produced);
    }

    pub(super) fn ask_metadata(&mut self, now: Instant) -> Result<(), Error> {
        let network = self.client.network();
        self.leaders.lost(network.lost());
        self.leaders.missed(network, now);
        let silence_at = network.silence_at(now);
        self.wake(silence_at);
        let lacking = self.leaderless().is_some();
        if !self.leaders.wants(lacking, now) {
            self.wake(self.leaders.recheck());
            return Ok(());
        }
        // of the others, because what was written there before may have been left open
        let known = self.client.directory().topics().cloned();
        let waiting = self.sequences.unsettled().map(|at| at.topic.clone());
        let topics: BTreeSet<String> = known.chain(waiting).collect();
        let again = self.leaders.ask(&mut self.client, topics, now)?;
        self.wake(again);
        Ok(())
    }
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

#[cfg(test)]
mod tests;
