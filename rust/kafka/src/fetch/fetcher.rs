//! Carries out the decisions of [`super::state`]: sends requests, takes answers, refreshes metadata.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::log_bounds::Bounds;
use super::state::FetchState;
use super::{Assignment, FetchedPartition, Limits, Outcome, StalledPartition, Stop};
use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::Error;
use crate::network::{Answer, Network, Peer, RequestId, State, UNRESPONSIVE_RECHECK};
use crate::protocol::IsolationLevel;
use crate::protocol::fetch::FetchRequest;
use crate::protocol::metadata::MetadataRequest;
use crate::topic::TopicPartition;

/// Fetches partitions of one cluster.
///
/// ```text
/// let mut fetcher = Fetcher::new(client, IsolationLevel::ReadUncommitted, limits);
/// fetcher.assign(&[Assignment::new("orders", 0, 0)]);
/// loop {
///     for fetched in fetcher.poll(deadline)? {
///         // process the batches, then move the position:
///         fetcher.advance(&fetched.partition, next_offset, last_leader_epoch);
///     }
///     fetcher.step()?; // optional: brokers send the next records meanwhile
/// }
/// ```
pub struct Fetcher {
    client: Client,
    state: FetchState,
    bounds: Bounds,
    limits: Limits,
    /// Broker of each in-flight Fetch.
    fetches: BTreeMap<RequestId, i32>,
    metadata: Option<(RequestId, Peer)>,
    metadata_backoff: Backoff,
    metadata_due: Option<Instant>,
    metadata_asked: Option<Instant>,
    fetched: Vec<FetchedPartition>,
    /// An error that an operator has to resolve. Reported once, then retried.
    failure: Option<Error>,
    wake_at: Option<Instant>,
    /// The process that made it: a forked child shares the connections and must not use them.
    process: u32,
}

impl Fetcher {
    /// Returns a fetcher without partitions.
    #[must_use]
    pub fn new(mut client: Client, isolation: IsolationLevel, limits: Limits) -> Self {
        let mut state = FetchState::new(isolation, limits);
        let properties = client.network().properties();
        // as in Java's client: the leader is asked again with every metadata refresh
        state.place(&properties.rack, properties.metadata_refresh);
        let metadata_backoff = Backoff::new(properties.metadata_backoff);
        Self {
            process: std::process::id(),
            client,
            state,
            bounds: Bounds::default(),
            limits,
            fetches: BTreeMap::new(),
            metadata: None,
            metadata_backoff,
            metadata_due: None,
            metadata_asked: None,
            fetched: Vec::new(),
            failure: None,
            wake_at: None,
        }
    }

    /// Replaces the fetched partitions. One that continues from the same offset is not disturbed; a stopped one
    /// restarts.
    pub fn assign(&mut self, assignments: &[Assignment]) {
        self.state.assign(assignments);
        self.bounds.clear();
        let state = &self.state;
        // stopped partitions were assigned anew, or are not wanted any more
        self.fetched.retain(|fetched| {
            matches!(fetched.outcome, Outcome::Records(_))
                && state.position(&fetched.partition) == Some(fetched.offset)
        });
        // a new partition must not wait for the backoff of another one
        let properties = self.client.network().properties();
        self.metadata_backoff = Backoff::new(properties.metadata_backoff);
    }

    /// Moves a position: the next fetch of the partition begins at `offset`. `leader_epoch` is the partition leader
    /// epoch of the last batch before it, -1 when there is none. The position may move back, or past unfetched records.
    /// False when the partition is not assigned, or stopped.
    pub fn advance(&mut self, partition: &TopicPartition, offset: i64, leader_epoch: i32) -> bool {
        let advanced = self.state.advance(partition, offset, leader_epoch);
        if advanced {
            // records of the old position that were not handed out yet
            self.fetched
                .retain(|fetched| fetched.partition != *partition);
        }
        advanced
    }

    /// Sets the base offset of the batch before the position, which the reader compares after a lost connection. None
    /// for no comparison.
    pub fn compare_from(&mut self, partition: &TopicPartition, base: Option<i64>) {
        self.state.compare_from(partition, base);
    }

    /// Returns the next offset to fetch.
    #[must_use]
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.state.position(partition)
    }

    /// Returns the broker that a partition is read from: its leader, or a replica closer to `client.rack` (KIP-392).
    /// None while that is unknown.
    #[must_use]
    pub fn source(&self, partition: &TopicPartition) -> Option<i32> {
        self.state.source(partition, self.client.clock().now())
    }

    /// Returns the bytes of handed-out records whose partitions were not advanced yet; see [`Limits::budget`].
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.state.held_bytes()
    }

    /// Sets whether fetch sessions (KIP-227) are used, in which requests and answers carry changes only. They are by
    /// default; results are the same.
    pub fn keep_sessions(&mut self, keep: bool) {
        self.state.keep_sessions(keep);
    }

    /// Returns the limits of requests.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Sets limits for later requests.
    pub fn limit(&mut self, limits: Limits) {
        self.limits = limits;
        self.state.limits = limits;
    }

    /// Closes the fetch sessions without waiting. Also done on drop.
    pub fn close(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let now = self.client.clock().now();
        for broker in self.state.asked_brokers() {
            let network = self.client.network();
            if network.is_ready(Peer::Broker(broker), now) {
                if let Some(request) = self.state.close(broker) {
                    network.ask(Peer::Broker(broker), &request, now, Duration::ZERO);
                }
            }
        }
    }

    /// Returns the partitions that cannot be read at the moment, with reasons.
    #[must_use]
    pub fn stalled(&self) -> Vec<StalledPartition> {
        self.state.stalled(self.client.clock().now())
    }

    /// Returns the client for other calls. They do not disturb fetching.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The connections, for [`crate::wait`] on several clusters at once.
    pub fn network(&mut self) -> &mut Network {
        self.client.network()
    }

    /// Waits until something was fetched, or until `deadline`, and returns it.
    ///
    /// A partition is fetched again only after [`Fetcher::advance`]. Errors are those that an operator has to resolve.
    /// Brokers that are down, leader elections and topics that appear late are waited for ([`Fetcher::stalled`]).
    pub fn poll(&mut self, deadline: Instant) -> Result<Vec<FetchedPartition>, Error> {
        let clock = self.client.clock();
        loop {
            self.step()?;
            if !self.fetched.is_empty() {
                return Ok(std::mem::take(&mut self.fetched));
            }
            if clock.now() >= deadline {
                return Ok(Vec::new());
            }
            let until = self.wake_at.map_or(deadline, |at| at.min(deadline));
            self.client.pause(until);
        }
    }

    /// Does all non-blocking work: takes answers, sends requests. Records stay for [`Fetcher::poll`].
    pub fn step(&mut self) -> Result<(), Error> {
        let now = self.client.clock().now();
        self.client.receive(now);
        // a request may fail while it is sent, which is an answer too
        while let Some(answer) = self.client.next_answer() {
            self.take(answer, now);
        }
        self.wake_at = None;
        self.ask_metadata(now);
        self.ask_records(now);
        match self.failure.take() {
            Some(error) if self.fetched.is_empty() => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the next requests ask for immediate answers, even empty ones: for a reader that was away and needs to know
    /// whether more records exist. [`Fetcher::step`] sends them.
    pub fn hurry(&mut self) {
        let now = self.client.clock().now();
        self.state.hurry(self.client.cached_metadata(), now);
    }

    /// Returns whether a hurried broker has not answered yet. An unreachable broker may take long.
    #[must_use]
    pub fn is_hurrying(&self) -> bool {
        self.state.is_hurrying()
    }

    /// Returns whether all topics were fetched by id, so that no answer can be from a topic recreated under the same
    /// name.
    #[must_use]
    pub const fn goes_by_id(&self) -> bool {
        self.state.goes_by_id()
    }

    /// Returns whether records or stops wait for [`Fetcher::poll`].
    #[must_use]
    pub fn has_fetched(&self) -> bool {
        !self.fetched.is_empty()
    }

    /// Returns the time at which [`Fetcher::step`] must be called even if nothing arrives.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Instant> {
        self.wake_at
    }

    fn take(&mut self, answer: Answer, now: Instant) {
        if self.metadata.take_if(|(id, _)| *id == answer.id).is_some() {
            let taken = answer
                .body
                .and_then(|(version, body)| {
                    self.client
                        .read::<MetadataRequest>(answer.peer, version, body)
                })
                .and_then(|metadata| self.client.take_metadata(metadata));
            match taken {
                Ok(()) => {
                    let silent = self.client.network().unresponsive_brokers(now);
                    let fetched = self
                        .state
                        .compare(self.client.cached_metadata(), &silent, now);
                    self.fetched.extend(fetched);
                    if self.state.is_well() {
                        self.metadata_backoff.begin_anew();
                    }
                }
                Err(error) => {
                    self.state.doubt();
                    self.fail(error);
                }
            }
            return;
        }
        let answer = match self.bounds.take(answer, &mut self.client) {
            Ok(bounded) => {
                self.fetched.extend(bounded);
                return;
            }
            Err(answer) => answer,
        };
        let Some(broker) = self.fetches.remove(&answer.id) else {
            return;
        };
        let read = answer.body.and_then(|(version, body)| {
            self.client.read::<FetchRequest>(answer.peer, version, body)
        });
        match read {
            Ok(answer) => {
                let fetched =
                    self.state
                        .answered(broker, answer, self.client.cached_metadata_mut(), now);
                for one in fetched {
                    if one.outcome == Outcome::Stopped(Stop::OutOfRange { log: None }) {
                        let last_epoch = self.state.last_epoch(&one.partition);
                        self.bounds
                            .ask(one, last_epoch, broker, &mut self.client, now);
                    } else {
                        self.fetched.push(one);
                    }
                }
            }
            Err(error) => {
                self.state.failed(broker, &error.to_string(), now);
                self.fail(error);
            }
        }
    }

    fn ask_metadata(&mut self, now: Instant) {
        let network = self.client.network();
        // another broker may know
        let unanswered = self
            .metadata
            .take_if(|(_, peer)| network.is_unresponsive(*peer, now));
        if unanswered.is_some() {
            self.metadata_due = Some(now);
        }
        // the controller needs time to notice, too, so this is repeated
        if network.has_unresponsive_broker(now) {
            let again = self
                .metadata_asked
                .map_or(now, |at| at + UNRESPONSIVE_RECHECK);
            self.metadata_due = Some(self.metadata_due.map_or(again, |due| due.min(again)));
        }
        let unresponsive_at = network.unresponsive_at(now);
        self.wake(unresponsive_at);
        if self.metadata.is_some() {
            return;
        }
        let due = self.metadata_due.is_none_or(|due| due <= now);
        if !self.state.wants_metadata(self.client.cached_metadata()) && !due {
            self.wake(self.metadata_due);
            return;
        }
        if self.state.take_news() {
            self.metadata_backoff.begin_anew();
        }
        if let Some(at) = self.metadata_backoff.until().filter(|at| *at > now) {
            self.wake(Some(at));
            return;
        }
        let topics = self.state.topics();
        if topics.is_empty() {
            return;
        }
        match self.client.any_ready(now) {
            Ok(Ok(peer)) => {
                let request = MetadataRequest { topics };
                let network = self.client.network();
                let id = network.ask(peer, &request, now, Duration::ZERO);
                self.metadata = Some((id, peer));
                self.metadata_asked = Some(now);
                self.metadata_backoff.asked(network.spread(), now);
                self.metadata_due = Some(now + self.client.network().properties().metadata_refresh);
            }
            Ok(Err(again)) => self.wake(Some(again)),
            Err(error) => self.fail(error),
        }
    }

    fn ask_records(&mut self, now: Instant) {
        for broker in self.state.brokers(self.client.cached_metadata(), now) {
            match self.client.network().open(Peer::Broker(broker), now) {
                State::Ready => {
                    let connection = self.client.network().connection(Peer::Broker(broker));
                    let metadata = self.client.cached_metadata();
                    if let Some(request) = self.state.plan(broker, connection, metadata, now) {
                        let network = self.client.network();
                        let id = network.ask(Peer::Broker(broker), &request, now, self.limits.wait);
                        self.fetches.insert(id, broker);
                    }
                }
                State::Opening => {}
                State::Resting { until, last } => {
                    self.wake(Some(until));
                    // a known broker without an error is only throttling us
                    let known = self.client.network().is_known(Peer::Broker(broker));
                    let reason = match &last {
                        Some(error) => error.to_string(),
                        None if known => continue,
                        None => format!("the address of its leader, broker {broker}, is not known"),
                    };
                    let metadata = self.client.cached_metadata();
                    self.state.unreachable(broker, &reason, metadata, now);
                    if let Some(error) = last {
                        self.fail(error);
                    }
                }
            }
        }
        self.wake(self.state.next_retry(now));
    }

    fn fail(&mut self, error: Error) {
        if error.is_final() {
            self.failure = Some(error);
        }
    }

    fn wake(&mut self, at: Option<Instant>) {
        self.wake_at = match (self.wake_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
}

impl Drop for Fetcher {
    fn drop(&mut self) {
        self.close();
    }
}
