//! The target side of a lane: its producer, and the offsets that this producer has committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_kafka::Identity;
use eomirror_kafka::{
    Acknowledgement, Client, Clock, Error, ProducerSettings, Properties, Protocol,
    TRANSACTION_VERSION, Throttled, TopicPartition, TransactionalProducer,
};

use super::failure::{Failure, FailureKind};
use super::state_records::{self, StateRecord};

/// The producer, and the steps to get one.
#[derive(Default)]
enum Producer {
    #[default]
    None,
    /// Connecting, to read the cluster's `transaction.version`.
    Connecting(Box<Client>),
    Open(Box<TransactionalProducer>),
}

/// Writes the lane's transactions to the target cluster.
#[derive(Default)]
pub(super) struct LaneTarget {
    producer: Producer,
    /// Next offset of each target partition that this producer has committed to.
    next_offsets: BTreeMap<TopicPartition, i64>,
    /// Unsent records of the open transaction wait for the state records.
    lingers: bool,
    /// Throttling of earlier producers.
    throttled_before: Throttled,
}

impl LaneTarget {
    /// Returns a target with this producer.
    #[cfg(test)]
    pub(super) fn with(producer: TransactionalProducer) -> Self {
        Self {
            producer: Producer::Open(Box::new(producer)),
            ..Self::default()
        }
    }

    /// Replaces the producer by a connection for the next one.
    pub(super) fn reconnect(
        &mut self,
        properties: Properties,
        clock: Arc<dyn Clock>,
    ) -> Result<(), Error> {
        self.next_offsets.clear();
        self.lingers = false;
        self.throttled_before = self.throttled();
        self.producer = Producer::None;
        let client = Client::unconnected(properties, clock)?;
        self.producer = Producer::Connecting(Box::new(client));
        Ok(())
    }

    /// Takes the transactional id. None when `until` came first.
    pub(super) fn open(
        &mut self,
        settings: &ProducerSettings,
        until: Instant,
    ) -> Result<Option<Identity>, Error> {
        if let Producer::Connecting(client) = &mut self.producer {
            if !client.is_connected(until)? {
                return Ok(None);
            }
        }
        self.producer = match std::mem::take(&mut self.producer) {
            Producer::Connecting(mut client) => {
                let level = client.network().feature(TRANSACTION_VERSION).unwrap_or(0);
                let settings = ProducerSettings {
                    protocol: Protocol::of(level),
                    ..settings.clone()
                };
                Producer::Open(Box::new(TransactionalProducer::new(*client, settings)))
            }
            producer => producer,
        };
        unless_timed_out(self.producer("open")?.until_ready(until))
    }

    /// Begins a transaction and returns the identity of its records. None when `until` came first.
    pub(super) fn begin(&mut self, until: Instant) -> Result<Option<Identity>, Error> {
        let producer = self.producer("begin")?;
        if unless_timed_out(producer.begin(until))?.is_none() {
            return Ok(None);
        }
        let identity = producer.identity();
        self.lingers = false;
        Ok(identity)
    }

    /// Sends state records, and everything that waited for them.
    pub(super) fn write(&mut self, records: &[StateRecord], timestamp: i64) -> Result<(), Error> {
        state_records::send(self.producer("write")?, records, timestamp)?;
        self.lingers = false;
        Ok(())
    }

    /// Commits. False when `until` came first.
    pub(super) fn commit(&mut self, until: Instant) -> Result<bool, Error> {
        self.lingers = false;
        let producer = self.producer("commit")?;
        producer.hold(false);
        Ok(unless_timed_out(producer.commit(until))?.is_some())
    }

    /// Notes the next offsets of partitions that a committed transaction has written to.
    pub(super) fn committed(&mut self, mut next_offsets: BTreeMap<TopicPartition, i64>) {
        self.next_offsets.append(&mut next_offsets);
    }

    /// Forgets the next offset of a partition that other producers write from here on.
    pub(super) fn forget(&mut self, target: &TopicPartition) {
        self.next_offsets.remove(target);
    }

    /// Aborts the open transaction, if there is one. False when `until` came first.
    pub(super) fn abort(&mut self, until: Instant) -> Result<bool, Error> {
        self.lingers = false;
        match &mut self.producer {
            Producer::Open(producer) => Ok(unless_timed_out(producer.abort(until))?.is_some()),
            _ => Ok(true),
        }
    }

    /// Does all non-blocking work. Returns what is acknowledged, also with an error.
    pub(super) fn step(&mut self) -> (Vec<Acknowledgement>, Result<(), Error>) {
        let Producer::Open(producer) = &mut self.producer else {
            return (Vec::new(), Ok(()));
        };
        producer.hold(self.lingers);
        let stepped = producer.step();
        (producer.take_acknowledged(), stepped)
    }

    /// Sets whether unsent records wait for the state records.
    pub(super) const fn linger(&mut self, lingers: bool) {
        self.lingers = lingers;
    }

    pub(super) const fn lingers(&self) -> bool {
        self.lingers
    }

    /// Returns whether the leaders were told after all reasons for doubt that there were at the first of these calls.
    pub(super) fn leaders_known(&mut self, doubts: &mut Option<u64>) -> Result<bool, Error> {
        let producer = self.producer("leaders_known")?;
        let doubts = *doubts.get_or_insert_with(|| producer.leader_doubts());
        Ok(producer.knows_leaders(doubts))
    }

    /// Learns the leaders of a topic before it is written to.
    pub(super) fn watch(&mut self, topic: &str) {
        if let Producer::Open(producer) = &mut self.producer {
            producer.watch(topic);
        }
    }

    /// Returns whether the markers of the last transaction let the next one write.
    pub(super) fn may_write(&mut self) -> bool {
        match &mut self.producer {
            Producer::Open(producer) => producer.may_write(),
            _ => false,
        }
    }

    /// Returns the producer; before [`LaneTarget::open`] the call is a bug of the caller.
    pub(super) fn producer(
        &mut self,
        call: &'static str,
    ) -> Result<&mut TransactionalProducer, Error> {
        match &mut self.producer {
            Producer::Open(producer) => Ok(producer),
            _ => Err(Error::InvalidState {
                call,
                state: "the lane is not open",
            }),
        }
    }

    /// Returns the producer id of the next batch, if known.
    pub(super) fn producer_id(&self) -> Option<i64> {
        match &self.producer {
            Producer::Open(producer) => producer.producer_id(),
            _ => None,
        }
    }

    /// Returns the protocol of the last transaction; None without a producer.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        match &self.producer {
            Producer::Open(producer) => Some(producer.protocol()),
            _ => None,
        }
    }

    /// Returns whether all batches of this producer went by topic id.
    pub(super) fn goes_by_id(&self) -> bool {
        matches!(&self.producer, Producer::Open(producer) if producer.goes_by_id())
    }

    /// Returns the offset of our next record, if this producer has committed to the partition.
    pub(super) fn next_offset(&self, target: &TopicPartition) -> Option<i64> {
        self.next_offsets.get(target).copied()
    }

    pub(super) fn throttled(&mut self) -> Throttled {
        let network = match &mut self.producer {
            Producer::None => return self.throttled_before,
            Producer::Connecting(client) => client.network(),
            Producer::Open(producer) => producer.network(),
        };
        self.throttled_before.plus(network.throttled())
    }

    /// Returns the failure to report for a call that exceeded its deadline.
    pub(super) fn overdue(&self, waited: Duration) -> Failure {
        const RUNS: &str = "check that the target's brokers run and can be reached";
        let millis = waited.as_millis();
        let trouble = match &self.producer {
            Producer::None => None,
            Producer::Connecting(client) => client.last_trouble().map(ToString::to_string),
            Producer::Open(producer) => producer.trouble(),
        };
        let last = trouble.map_or_else(String::new, |trouble| format!("; last: {trouble}"));
        match &self.producer {
            Producer::Open(producer) if producer.is_committing() => Failure::new(
                FailureKind::OutcomeUnknown,
                format!("a commit was not answered within {millis} ms{last}"),
                "read the positions: they say whether it was carried out",
            ),
            Producer::Open(producer) if producer.in_transaction() => Failure::new(
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
}

/// Maps a passed deadline to None.
fn unless_timed_out<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Error::TimedOut { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
