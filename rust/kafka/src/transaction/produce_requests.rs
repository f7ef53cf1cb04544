//! Produce requests to the leaders of partitions, and what their answers say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;
use crate::transaction_state::{InFlight, Outgoing, Protocol, Refused, SourceRange, Ticket};
use bytes::Bytes;

use super::coordinator_requests::CoordinatorRequests;
use super::metadata_refresh::MetadataRefresh;
use super::wake_up::WakeUp;
use super::{Acknowledgement, ProducerSettings};
use crate::client::Client;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::network::{Answer, Peer, RequestId, State};
use crate::protocol::produce::{FramedBatch, ProduceRequest, ProduceV1, WrittenTopic};
use crate::topic::{TopicId, TopicPartition};

/// An in-flight Produce request.
struct InFlightRequest {
    ticket: Ticket,
    /// Ids of its topics, with their names: the answer has the ids only.
    names: Vec<(TopicId, String)>,
}

/// The meaning of an answer, besides its acknowledgements.
pub(super) struct Produced {
    /// The reason that batches have to be sent again.
    pub(super) hindrance: Option<String>,
    /// The leaders of its partitions have to be looked up again.
    pub(super) stale: bool,
    /// The error of a transaction that must be aborted.
    pub(super) refused: Option<Error>,
}

/// Carries out what [`InFlight`] decides.
pub(super) struct ProduceRequests {
    transactional_id: String,
    request_timeout: Duration,
    sequences: InFlight<TopicPartition, FramedBatch>,
    in_flight: BTreeMap<RequestId, InFlightRequest>,
    protocol: Protocol,
    /// Partitions of the open transaction that the coordinator has added to it; only in V1.
    added: BTreeSet<TopicPartition>,
    acknowledged: Vec<Acknowledgement>,
    /// Ids and names of the topics that accepted batches of the open transaction.
    written: BTreeMap<TopicId, String>,
    /// Batches of the open transaction went by topic name: an old broker compares no ids.
    by_name: bool,
}

impl ProduceRequests {
    pub(super) fn new(settings: &ProducerSettings) -> Self {
        Self {
            transactional_id: settings.transactional_id.clone(),
            request_timeout: settings.request_timeout,
            sequences: InFlight::new(settings.request_bytes),
            in_flight: BTreeMap::new(),
            protocol: settings.protocol,
            added: BTreeSet::new(),
            acknowledged: Vec::new(),
            written: BTreeMap::new(),
            by_name: false,
        }
    }

    /// Returns the sequence number of the next batch for a partition.
    pub(super) fn next_sequence(&self, target: &TopicPartition) -> i32 {
        self.sequences.next_sequence(target)
    }

    /// Queues a batch behind all others of its partition.
    pub(super) fn push(
        &mut self,
        target: &TopicPartition,
        batch: FramedBatch,
        size: usize,
        records: i32,
        source: SourceRange,
    ) {
        self.sequences.push(target, batch, size, records, source);
    }

    /// Returns the bytes of all batches that are not acknowledged.
    pub(super) fn held(&self) -> usize {
        self.sequences.held()
    }

    /// Returns whether every batch is acknowledged.
    pub(super) fn is_settled(&self) -> bool {
        self.sequences.is_settled()
    }

    pub(super) const fn goes_by_id(&self) -> bool {
        !self.by_name
    }

    pub(super) const fn written(&self) -> &BTreeMap<TopicId, String> {
        &self.written
    }

    pub(super) fn has_acknowledged(&self) -> bool {
        !self.acknowledged.is_empty()
    }

    pub(super) fn take_acknowledged(&mut self) -> Vec<Acknowledgement> {
        std::mem::take(&mut self.acknowledged)
    }

    /// Sets the protocol of the next transaction.
    pub(super) const fn change_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Drops the batches of the last transaction, and what is known of it.
    pub(super) fn clear(&mut self) {
        self.by_name = false;
        self.sequences.restart();
        self.acknowledged.clear();
        self.added.clear();
        self.written.clear();
    }

    /// Returns the partitions that batches wait for because the transaction does not have them.
    pub(super) fn unadded(&self) -> Vec<TopicPartition> {
        if self.protocol == Protocol::V2 {
            return Vec::new();
        }
        let waits = |at: &&TopicPartition| !self.added.contains(*at);
        self.sequences.unsettled().filter(waits).cloned().collect()
    }

    /// Notes that the transaction has these partitions.
    pub(super) fn added(&mut self, partitions: Vec<TopicPartition>) {
        self.added.extend(partitions);
    }

    /// Returns the topics that unacknowledged batches wait for.
    pub(super) fn topics(&self) -> impl Iterator<Item = String> {
        self.sequences.unsettled().map(|at| at.topic.clone())
    }

    /// Returns a partition with unacknowledged batches whose leader is not known.
    pub(super) fn leaderless(&self, metadata: &Metadata) -> Option<&TopicPartition> {
        let mut unsettled = self.sequences.unsettled();
        unsettled.find(|at| metadata.leader(&at.topic, at.partition).is_none())
    }

    /// Sends queued batches to the leaders that can take them.
    pub(super) fn step(
        &mut self,
        client: &mut Client,
        coordinator: &mut CoordinatorRequests,
        refresh: &mut MetadataRefresh,
        wake: &mut WakeUp,
        now: Instant,
    ) -> Result<(), Error> {
        if coordinator.writer().is_none() {
            return Ok(());
        }
        let metadata = client.cached_metadata();
        let added = (self.protocol == Protocol::V1).then_some(&self.added);
        let leads = |at: &TopicPartition| leader(metadata, added, at);
        let brokers = self.sequences.brokers(leads, now);
        for broker in brokers {
            match client.network().open(Peer::Broker(broker), now) {
                State::Ready => loop {
                    let metadata = client.cached_metadata();
                    let added = (self.protocol == Protocol::V1).then_some(&self.added);
                    let leads = |at: &TopicPartition| leader(metadata, added, at);
                    let planned = self.sequences.plan(broker, leads, now);
                    let Some(outgoing) = planned else { break };
                    coordinator.wrote();
                    self.send(client, broker, outgoing, now);
                },
                State::Opening => {}
                State::Resting { until, last } => {
                    wake.add(Some(until));
                    if last.is_some() || !client.network().is_known(Peer::Broker(broker)) {
                        refresh.doubt();
                    }
                    last.map_or(Ok(()), Err).or_else(Error::unless_final)?;
                }
            }
        }
        wake.add(self.sequences.next_retry(now));
        Ok(())
    }

    fn send(
        &mut self,
        client: &mut Client,
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
                let facts = client.cached_metadata().topic(&target.topic);
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
        let timeout = self.request_timeout;
        let request = ProduceRequest {
            transactional_id: Some(self.transactional_id.clone()),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            topics,
        };
        let (network, peer) = (client.network(), Peer::Broker(broker));
        let (id, request) = match self.protocol {
            Protocol::V1 => {
                let request = ProduceV1(request);
                (network.ask(peer, &request, now, timeout), request.0)
            }
            Protocol::V2 => (network.ask(peer, &request, now, timeout), request),
        };
        let names = request
            .topics
            .into_iter()
            .map(|topic| (topic.id, topic.name));
        let in_flight = InFlightRequest {
            ticket: outgoing.ticket,
            names: names.collect(),
        };
        self.in_flight.insert(id, in_flight);
    }

    /// Takes an answer to a Produce request; gives back any other answer.
    pub(super) fn take(
        &mut self,
        client: &mut Client,
        answer: Answer,
        now: Instant,
    ) -> Result<Result<Produced, Error>, Answer> {
        let Some(in_flight) = self.in_flight.remove(&answer.id) else {
            return Err(answer);
        };
        let Answer { peer, body, .. } = answer;
        let read =
            |(version, body): (i16, Bytes)| client.read::<ProduceRequest>(peer, version, body);
        let answer = match body.and_then(read) {
            Ok(answer) => answer,
            Err(error) => {
                self.sequences.lost(in_flight.ticket, now);
                return Ok(Err(error));
            }
        };
        let mut hindrance = None;
        let mut reasons = BTreeMap::new();
        let mut results = Vec::with_capacity(answer.len());
        for partition in answer {
            self.by_name |= partition.id.is_none();
            let named = in_flight
                .names
                .iter()
                .find(|(id, _)| !id.is_none() && *id == partition.id);
            let topic = named.map_or(partition.topic, |(_, name)| name.clone());
            if let Some(leader) = partition.leader {
                client
                    .cached_metadata_mut()
                    .learn(&topic, partition.id, partition.index, leader);
            }
            let accepted = matches!(
                partition.error,
                ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER
            );
            if accepted && !partition.id.is_none() {
                self.written
                    .entry(partition.id)
                    .or_insert_with(|| topic.clone());
            }
            let target = TopicPartition::new(topic, partition.index);
            if !accepted {
                hindrance = Some(format!("{target}: {}", partition.error));
            }
            if let Some(reason) = partition.reason {
                reasons.insert(target.clone(), reason);
            }
            results.push((target, partition.error, partition.base_offset));
        }
        let answered = self.sequences.answered(in_flight.ticket, results, now);
        self.acknowledged.extend(answered.acknowledged);
        let refused = answered
            .refused
            .map(|refused| self.must_abort(refused, &reasons));
        Ok(Ok(Produced {
            hindrance,
            stale: answered.stale,
            refused,
        }))
    }

    /// Returns the error for a partition that the coordinator refuses to add to the transaction.
    pub(super) fn not_added(&self, target: &TopicPartition, code: ErrorCode) -> Error {
        let source = self.sequences.first_source(target);
        let refused = source.map(|source| Refused {
            target: target.clone(),
            source,
            code,
        });
        match refused {
            Some(refused) => self.must_abort(refused, &BTreeMap::new()),
            None => Error::MustAbort {
                what: format!("adding {target} to the transaction"),
                batch: None,
                code,
            },
        }
    }

    fn must_abort(
        &self,
        refused: Refused<TopicPartition>,
        reasons: &BTreeMap<TopicPartition, String>,
    ) -> Error {
        let SourceRange { first, last, .. } = refused.source;
        let code = refused.code;
        let reason = reasons
            .get(&refused.target)
            .map_or_else(String::new, |reason| format!(" ({reason})"));
        // a leader repeats such an error for every partition of the request, so the first one says nothing
        let (what, batch) = if code.concerns_everything() {
            let whose = &self.transactional_id;
            (format!("writing as transactional.id {whose}{reason}"), None)
        } else {
            let what = format!(
                "{} refuses source offsets {first} to {last}{reason}",
                refused.target
            );
            (what, Some((refused.target, refused.source)))
        };
        Error::MustAbort { what, batch, code }
    }
}

/// Returns the leader of a partition; none while the transaction does not have the partition, if it must be added to it.
fn leader(
    metadata: &Metadata,
    added: Option<&BTreeSet<TopicPartition>>,
    at: &TopicPartition,
) -> Option<i32> {
    added
        .is_none_or(|added| added.contains(at))
        .then(|| metadata.leader(&at.topic, at.partition))
        .flatten()
        .map(|(leader, _)| leader)
}

#[cfg(test)]
impl ProduceRequests {
    pub(super) fn sequences(&mut self) -> &mut InFlight<TopicPartition, FramedBatch> {
        &mut self.sequences
    }

    /// Makes it wait for the answer to a request.
    pub(super) fn expect(&mut self, id: RequestId, ticket: Ticket, names: Vec<(TopicId, String)>) {
        self.in_flight.insert(id, InFlightRequest { ticket, names });
    }

    pub(super) fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }
}
