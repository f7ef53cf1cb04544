//! Requests to the transaction coordinator: finding it, taking the transactional id, adding partitions (protocol V1),
//! ending transactions, and asking for their markers.

use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;
use crate::transaction_state::marker_wait::Step;
use crate::transaction_state::producer_state::InvalidState;
use crate::transaction_state::{Ask, Event, Identity, MarkerWait, ProducerState, Protocol};
use bytes::Bytes;

use super::ProducerSettings;
use super::metadata_refresh::MetadataRefresh;
use super::wake_up::WakeUp;
use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, Peer, RequestId, State};
use crate::protocol::describe_transactions::DescribeTransaction;
use crate::protocol::transaction::{
    AddPartitions, EndTxn, EndTxnV1, FindCoordinator, GivenIdentity, InitProducerId,
};
use crate::topic::TopicPartition;

/// Pause before the coordinator is looked up again after a failed connection.
const COORDINATOR_PAUSE: Duration = Duration::from_millis(50);

/// An in-flight request to the coordinator, or about it.
struct Question {
    id: RequestId,
    ask: Ask,
    peer: Peer,
}

/// An answer of the coordinator.
pub(super) struct Answered {
    /// The error code in it. None for one that only located the coordinator.
    pub(super) code: Option<ErrorCode>,
    /// The change of the producer's state.
    pub(super) event: Option<Event>,
    /// Partitions that are now in the transaction.
    pub(super) added: Vec<TopicPartition>,
    /// The partition that the coordinator refuses to add.
    pub(super) refused: Option<TopicPartition>,
}

/// Carries out what [`ProducerState`] and [`MarkerWait`] decide.
pub(super) struct CoordinatorRequests {
    transactional_id: String,
    transaction_timeout: Duration,
    state: ProducerState,
    /// Partitions to add to the open transaction.
    adding: Vec<TopicPartition>,
    question: Option<Question>,
    markers: MarkerWait,
    /// The in-flight request for the state of the markers.
    markers_question: Option<RequestId>,
}

impl CoordinatorRequests {
    pub(super) fn new(settings: &ProducerSettings) -> Self {
        Self {
            transactional_id: settings.transactional_id.clone(),
            transaction_timeout: settings.transaction_timeout,
            state: ProducerState::new(settings.protocol),
            adding: Vec::new(),
            question: None,
            markers: MarkerWait::new(),
            markers_question: None,
        }
    }

    /// Writes into the open transaction of another process.
    pub(super) const fn join(&mut self, identity: Identity) {
        self.state = ProducerState::joined(identity);
    }

    /// Begins a transaction of a protocol; no request is needed.
    pub(super) fn begin(&mut self, protocol: Protocol) -> Result<(), Error> {
        self.state.change_protocol(protocol);
        self.state.begin().map(|_| ()).map_err(invalid_state)
    }

    /// Begins to commit. Returns how that ended if the transaction was empty.
    pub(super) fn commit(&mut self) -> Result<Option<Event>, Error> {
        self.state.commit().map_err(invalid_state)
    }

    /// Begins to abort.
    pub(super) fn abort(&mut self) -> Result<(), Error> {
        self.state.abort().map_err(invalid_state)
    }

    /// Notes that the transaction cannot be committed.
    pub(super) fn require_abort(&mut self) {
        self.state.require_abort();
    }

    /// Notes that records were sent in the transaction.
    pub(super) fn wrote(&mut self) {
        self.state.wrote();
    }

    /// Sets the partitions that batches wait for, in protocol V1.
    pub(super) fn add(&mut self, partitions: Vec<TopicPartition>) {
        self.state.add(!partitions.is_empty());
        self.adding = partitions;
    }

    /// Returns the identity of the open transaction.
    pub(super) fn writer(&self) -> Option<Identity> {
        self.state.writer()
    }

    /// Returns the identity of the next transaction, if one can begin.
    pub(super) fn ready_identity(&self) -> Option<Identity> {
        self.state.ready_identity()
    }

    /// Returns the producer id of the next batch, if known; see [`ProducerState::producer_id`].
    pub(super) const fn producer_id(&self) -> Option<i64> {
        self.state.producer_id()
    }

    pub(super) const fn in_transaction(&self) -> bool {
        self.state.in_transaction()
    }

    pub(super) const fn is_ending(&self) -> bool {
        self.state.is_ending()
    }

    pub(super) const fn is_committing(&self) -> bool {
        self.state.is_committing()
    }

    /// Returns whether the first records of a transaction may be sent, and until when they wait otherwise.
    pub(super) fn marker_step(&mut self, now: Instant) -> Step {
        self.markers.wants(now)
    }

    /// Sends the next request to the coordinator, if one is due.
    pub(super) fn step(
        &mut self,
        client: &mut Client,
        refresh: &mut MetadataRefresh,
        wake: &mut WakeUp,
        now: Instant,
    ) -> Result<(), Error> {
        let network = client.network();
        let unresponsive = |question: &mut Question| {
            question.ask == Ask::Find && network.is_unresponsive(question.peer, now)
        };
        if self.question.take_if(unresponsive).is_some() {
            // any broker can locate the coordinator
            self.state.lost(now);
        }
        let Some(ask) = self.state.wants(now) else {
            wake.add(self.state.paused_until());
            return Ok(());
        };
        let peer = match (ask, self.state.broker()) {
            (Ask::Find, _) | (_, None) => match client.any_ready(now)? {
                Ok(peer) => peer,
                Err(again) => {
                    wake.add(Some(again));
                    return Ok(());
                }
            },
            (_, Some(broker)) => {
                let peer = Peer::Broker(broker);
                match client.network().open(peer, now) {
                    State::Ready => peer,
                    State::Opening => return Ok(()),
                    // throttled
                    State::Resting { until, last: None } if client.network().is_known(peer) => {
                        wake.add(Some(until));
                        return Ok(());
                    }
                    State::Resting { last, .. } => {
                        // the broker has gone, or the metadata does not name it yet
                        self.state.lost(now);
                        refresh.doubt();
                        wake.add(Some(now + COORDINATOR_PAUSE));
                        return last.map_or(Ok(()), Err).or_else(Error::unless_final);
                    }
                }
            }
        };
        let transactional_id = self.transactional_id.clone();
        let network = client.network();
        let id = match ask {
            Ask::Find => {
                let request = FindCoordinator { transactional_id };
                network.ask(peer, &request, now, Duration::ZERO)
            }
            Ask::Init { previous } => {
                let request = InitProducerId {
                    transactional_id,
                    timeout_ms: i32::try_from(self.transaction_timeout.as_millis())
                        .unwrap_or(i32::MAX),
                    previous: previous
                        .map_or((-1, -1), |identity| (identity.producer_id, identity.epoch)),
                };
                network.ask(peer, &request, now, Duration::ZERO)
            }
            Ask::Add { identity } => {
                let mut topics: Vec<(String, Vec<i32>)> = Vec::new();
                for at in &self.adding {
                    match topics.last_mut().filter(|(topic, _)| *topic == at.topic) {
                        Some((_, partitions)) => partitions.push(at.partition),
                        None => topics.push((at.topic.clone(), vec![at.partition])),
                    }
                }
                let request = AddPartitions {
                    transactional_id,
                    producer_id: identity.producer_id,
                    epoch: identity.epoch,
                    topics,
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
                match self.state.protocol() {
                    Protocol::V1 => network.ask(peer, &EndTxnV1(request), now, Duration::ZERO),
                    Protocol::V2 => network.ask(peer, &request, now, Duration::ZERO),
                }
            }
        };
        self.state.asked();
        self.question = Some(Question { id, ask, peer });
        Ok(())
    }

    /// Returns until when the first records of a transaction wait for the markers of the last one; None when they may
    /// be sent.
    ///
    /// The coordinator is asked as soon as a transaction has ended, also when no records wait, so that later records
    /// lose no time.
    pub(super) fn await_markers(&mut self, client: &mut Client, now: Instant) -> Option<Instant> {
        match self.markers.wants(now) {
            Step::Go => return None,
            Step::Wait(until) | Step::Asked(until) => return Some(until),
            Step::Ask => {}
        }
        let peer = self.state.broker().map(Peer::Broker);
        let ready = |peer: &Peer| matches!(client.network().open(*peer, now), State::Ready);
        let Some(peer) = peer.filter(ready) else {
            self.markers.written();
            return None;
        };
        let request = DescribeTransaction {
            transactional_id: self.transactional_id.clone(),
        };
        let id = client.network().ask(peer, &request, now, Duration::ZERO);
        self.markers_question = Some(id);
        self.markers.asked();
        self.await_markers(client, now)
    }

    /// Takes an answer of the coordinator. None for an answer about markers, and for one that no request waits for.
    pub(super) fn take(
        &mut self,
        client: &mut Client,
        answer: Answer,
        now: Instant,
    ) -> Option<Result<Answered, Error>> {
        if self
            .markers_question
            .take_if(|id| *id == answer.id)
            .is_some()
        {
            self.take_described(client, answer, now);
            return None;
        }
        let question = self.question.take_if(|question| question.id == answer.id)?;
        let taken = self.take_answer(client, answer, question.ask, now);
        if taken.is_err() {
            self.state.lost(now);
        }
        Some(taken)
    }

    fn take_answer(
        &mut self,
        client: &mut Client,
        answer: Answer,
        ask: Ask,
        now: Instant,
    ) -> Result<Answered, Error> {
        let Answer { peer, body, .. } = answer;
        let (version, body) = body?;
        let (mut added, mut refused) = (Vec::new(), None);
        let (code, event) = match ask {
            Ask::Find => {
                let found = client.read::<FindCoordinator>(peer, version, body)?;
                let event = self.state.found(found.error, found.broker, now);
                // a located coordinator need not answer, so the last error stays
                (Some(found.error).filter(|code| !code.is_none()), event)
            }
            Ask::Init { .. } => {
                let given = client.read::<InitProducerId>(peer, version, body)?;
                let next = identity(given);
                let event = self.state.initialized(given.error, next, now);
                (Some(given.error), event)
            }
            Ask::Add { .. } => {
                let answer = client.read::<AddPartitions>(peer, version, body)?;
                let mut error = ErrorCode::NONE;
                for (topic, partition, code) in answer {
                    let at = TopicPartition::new(topic, partition);
                    if code.is_none() {
                        added.push(at);
                    } else if error.is_none() || error == ErrorCode::OPERATION_NOT_ATTEMPTED {
                        // one partition is refused, and the others are not attempted because of it
                        error = code;
                        refused = Some(at);
                    }
                }
                (Some(error), self.state.added(error, now))
            }
            Ask::End {
                identity: before, ..
            } if self.state.protocol() == Protocol::V1 => {
                let error = client.read::<EndTxnV1>(peer, version, body)?;
                // the request for the next identity waits for the markers
                (Some(error), self.state.ended(error, before, now))
            }
            Ask::End { .. } => {
                let given = client.read::<EndTxn>(peer, version, body)?;
                let event = self.state.ended(given.error, identity(given), now);
                if let Some(Event::Committed | Event::Aborted) = event {
                    self.markers.ended(now);
                    // an answer that is still in flight is about the transaction before
                    self.markers_question = None;
                }
                (Some(given.error), event)
            }
        };
        if event == Some(Event::Initialized) {
            // the coordinator answers once all markers are written
            self.markers.written();
        }
        Ok(Answered {
            code,
            event,
            added,
            refused,
        })
    }

    /// Takes an answer about the markers of the last transaction. An error is no reason to wait.
    fn take_described(&mut self, client: &mut Client, answer: Answer, now: Instant) {
        let Answer { peer, body, .. } = answer;
        let read =
            |(version, body): (i16, Bytes)| client.read::<DescribeTransaction>(peer, version, body);
        match body.and_then(read) {
            Ok(described) if described.error.is_none() => {
                self.markers.told(described.is_ending, now);
            }
            // the right to write includes the right to describe, but an authorizer may disagree
            Ok(described)
                if described.error == ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED =>
            {
                self.markers.silence();
            }
            Err(Error::Unsupported { .. }) => self.markers.silence(),
            Ok(_) | Err(_) => self.markers.written(),
        }
    }
}

const fn identity(given: GivenIdentity) -> Identity {
    Identity {
        producer_id: given.producer_id,
        epoch: given.epoch,
    }
}

fn invalid_state(error: InvalidState) -> Error {
    Error::InvalidState {
        call: error.call,
        state: error.state,
    }
}

#[cfg(test)]
impl CoordinatorRequests {
    pub(super) fn state(&mut self) -> &mut ProducerState {
        &mut self.state
    }

    pub(super) fn markers(&mut self) -> &mut MarkerWait {
        &mut self.markers
    }

    /// Makes it wait for the answer to a request.
    pub(super) fn expect(&mut self, id: RequestId, ask: Ask, peer: Peer) {
        self.question = Some(Question { id, ask, peer });
    }

    /// Makes it wait for an answer about markers.
    pub(super) fn expect_markers(&mut self, id: RequestId) {
        self.markers_question = Some(id);
    }

    pub(super) fn expects_markers(&self) -> bool {
        self.markers_question.is_some()
    }
}
