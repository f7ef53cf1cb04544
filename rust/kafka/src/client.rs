//! Blocking calls to a cluster: metadata, offsets, and any other request. The base of [`crate::Fetcher`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error_code::{ErrorCode, Meaning};
use bytes::Bytes;

use crate::clock::Clock;
use crate::error::{Error, Kind};
use crate::metadata::Metadata;
use crate::network::{Answer, Network, Peer, RequestId, State, wait};
use crate::properties::Properties;
use crate::protocol::list_offsets::{AskedOffset, ListOffsetsRequest};
use crate::protocol::metadata::{ClusterMetadata, MetadataRequest};
use crate::protocol::{self, IsolationLevel, Request};
use crate::topic::TopicPartition;

/// Time that one peer may take to connect before the next one is tried in parallel.
const STAGGER: Duration = Duration::from_secs(1);

/// Time that one broker may take to connect, and to answer, before the responsible broker is looked up again.
const REACH: Duration = Duration::from_secs(3);
const ANSWER: Duration = Duration::from_secs(12);

/// Pause before a broker is asked the same again.
const RETRY: Duration = Duration::from_millis(100);

/// The answer to the first of two requests, and the result of the second.
type Both<A, B> = (
    <A as Request>::Answer,
    Result<<B as Request>::Answer, Error>,
);

/// An offset to look up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetSpec {
    /// The first offset that can be read.
    Earliest,
    /// The end of what can be read: the high watermark, or the last stable offset for
    /// [`IsolationLevel::ReadCommitted`].
    Latest,
    /// The first offset whose timestamp is at least this many milliseconds since the epoch.
    At(i64),
}

impl OffsetSpec {
    pub(crate) const fn timestamp(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            Self::At(millis) => millis,
        }
    }
}

/// An offset of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedOffset {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// The offset; -1 when no record has that timestamp.
    pub offset: i64,
    /// Leader epoch of the record there, -1 when unknown.
    pub leader_epoch: i32,
}

/// Connections to one cluster, with blocking calls.
pub struct Client {
    network: Network,
    metadata: Metadata,
    clock: Arc<dyn Clock>,
    /// Answers to requests of other callers.
    inbox: VecDeque<Answer>,
    last_opened: Option<Instant>,
    /// The peer that [`Client::any_ready`] returned last.
    last_named: Option<Peer>,
}

impl Client {
    /// Connects, and verifies the connection by a Metadata request.
    pub fn connect(
        properties: Properties,
        clock: Arc<dyn Clock>,
        deadline: Instant,
    ) -> Result<Self, Error> {
        let mut client = Self::unconnected(properties, clock)?;
        client.metadata(&[], deadline)?;
        Ok(client)
    }

    /// Returns a client that connects with its first request.
    pub fn unconnected(properties: Properties, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        Ok(Self {
            network: Network::new(properties)?,
            metadata: Metadata::default(),
            clock,
            inbox: VecDeque::new(),
            last_opened: None,
            last_named: None,
        })
    }

    /// Returns what is known of the cluster, without asking it.
    #[must_use]
    pub fn cached_metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Returns the finalized level of a cluster feature such as `transaction.version`; 0 when it is not finalized.
    pub fn feature(&mut self, name: &str, deadline: Instant) -> Result<i16, Error> {
        if self.network.feature(name).is_none() {
            // connects
            self.metadata(&[], deadline)?;
        }
        Ok(self.network.feature(name).unwrap_or(0))
    }

    /// Waits until a broker is connected. False when `until` came first.
    pub fn is_connected(&mut self, until: Instant) -> Result<bool, Error> {
        loop {
            let now = self.clock.now();
            self.receive(now);
            let Err(again) = self.any_ready(now)? else {
                return Ok(true);
            };
            if now >= until {
                return Ok(false);
            }
            self.pause(again.min(until));
        }
    }

    /// Requests metadata of topics, and merges it into the known metadata. A topic that does not exist is no error.
    pub fn metadata(&mut self, topics: &[&str], deadline: Instant) -> Result<&Metadata, Error> {
        const WHAT: &str = "asking for metadata";
        let request = MetadataRequest {
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
        };
        let started = self.clock.now();
        loop {
            let answer = self.call_any(&request, WHAT, deadline)?;
            match self.take_metadata(answer) {
                Ok(()) => return Ok(&self.metadata),
                Err(error) if error.is_final() => return Err(error),
                Err(error) => self.rest_before(WHAT, started, deadline, &error.to_string())?,
            }
        }
    }

    /// Returns the first or the end offsets of partitions, from their leaders. Retries leader changes until the
    /// deadline.
    pub fn list_offsets(
        &mut self,
        isolation: IsolationLevel,
        spec: OffsetSpec,
        partitions: &[(&str, i32)],
        deadline: Instant,
    ) -> Result<Vec<ListedOffset>, Error> {
        let ask = |metadata: &Metadata, partitions: &[(&str, i32)]| {
            let mut topics: BTreeMap<&str, Vec<AskedOffset>> = BTreeMap::new();
            for (topic, partition) in partitions {
                let leader = metadata.leader(topic, *partition);
                topics.entry(topic).or_default().push(AskedOffset {
                    partition: *partition,
                    leader_epoch: leader.map_or(-1, |(_, epoch)| epoch),
                    timestamp: spec.timestamp(),
                });
            }
            ListOffsetsRequest {
                isolation,
                topics: topics
                    .into_iter()
                    .map(|(topic, asked)| (topic.to_owned(), asked))
                    .collect(),
                timeout_ms: 10_000,
            }
        };
        let listed = self.of_leaders(partitions, deadline, ask, |answer| {
            let said = answer.into_iter().map(|one| {
                let told = (one.offset, one.leader_epoch);
                (one.topic, one.partition, one.error, told)
            });
            said.collect()
        })?;
        Ok(listed
            .into_iter()
            .map(|(at, (offset, leader_epoch))| ListedOffset {
                topic: at.topic,
                partition: at.partition,
                offset,
                leader_epoch,
            })
            .collect())
    }

    /// Sends a request to the leader of each partition, with retries until the deadline. `read` returns topic,
    /// partition, error code and result for each partition of an answer.
    pub(crate) fn of_leaders<R: Request, T>(
        &mut self,
        partitions: &[(&str, i32)],
        deadline: Instant,
        ask: impl Fn(&Metadata, &[(&str, i32)]) -> R,
        read: impl Fn(R::Answer) -> Vec<(String, i32, ErrorCode, T)>,
    ) -> Result<Vec<(TopicPartition, T)>, Error> {
        let what = R::API.name;
        let started = self.clock.now();
        let mut missing: Vec<(&str, i32)> = partitions.to_vec();
        let mut found = Vec::with_capacity(partitions.len());
        let mut trouble: Option<String> = None;
        while !missing.is_empty() {
            let mut topics: Vec<&str> = missing.iter().map(|(topic, _)| *topic).collect();
            topics.sort_unstable();
            topics.dedup();
            // known leaders are tried without a lookup, which saves a round trip
            let known = |(topic, partition): &(&str, i32)| {
                let leader = self.cached_metadata().leader(topic, *partition);
                leader.is_some()
            };
            if trouble.take().is_some() || !missing.iter().all(known) {
                self.metadata(&topics, deadline)?;
            }
            let mut led: BTreeMap<i32, Vec<(&str, i32)>> = BTreeMap::new();
            for (topic, partition) in &missing {
                match self.cached_metadata().leader(topic, *partition) {
                    Some((leader, _)) => led.entry(leader).or_default().push((topic, *partition)),
                    None => {
                        trouble = Some(self.cached_metadata().why_leaderless(topic, *partition));
                    }
                }
            }
            for (leader, mut asked) in led {
                let request = ask(self.cached_metadata(), &asked);
                let peer = Peer::Broker(leader);
                let answer = match self.call_for_now(peer, &request, what, deadline) {
                    Ok(answer) => answer,
                    Err(error) if error.is_final() => return Err(error),
                    Err(error) => {
                        trouble = Some(error.to_string());
                        continue;
                    }
                };
                for (topic, partition, code, said) in read(answer) {
                    let Some(at) = asked.iter().position(|it| *it == (&*topic, partition)) else {
                        // not requested, or reported twice
                        continue;
                    };
                    asked.swap_remove(at);
                    let about = format!("{what} of {topic}-{partition}");
                    match code.meaning() {
                        Meaning::Fine => {
                            missing.retain(|asked| *asked != (topic.as_str(), partition));
                            found.push((TopicPartition::new(topic, partition), said));
                        }
                        Meaning::Moved | Meaning::Unknown | Meaning::Later | Meaning::Failing => {
                            trouble = Some(format!("{about}: {code}"));
                        }
                        _ => return Err(Error::Refused { what: about, code }),
                    }
                }
                if let Some((topic, partition)) = asked.first() {
                    let silent = format!("broker {leader} did not answer for {topic}-{partition}");
                    trouble = Some(silent);
                }
            }
            if !missing.is_empty() {
                let last = trouble.as_deref().unwrap_or_default();
                self.rest_before(what, started, deadline, last)?;
            }
        }
        Ok(found)
    }

    /// Waits before a retry; returns the last error when the deadline has passed.
    pub(crate) fn rest_before(
        &mut self,
        what: &'static str,
        started: Instant,
        deadline: Instant,
        trouble: &str,
    ) -> Result<(), Error> {
        let now = self.clock.now();
        if now + RETRY >= deadline {
            return Err(Error::TimedOut {
                what,
                waited: now - started,
                last: trouble.to_owned(),
            });
        }
        self.pause(now + RETRY);
        Ok(())
    }

    /// Sends a request to one reachable broker after the other until one answers.
    pub(crate) fn call_any<R: Request>(
        &mut self,
        request: &R,
        what: &'static str,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        let started = self.clock.now();
        loop {
            let now = self.clock.now();
            self.receive(now);
            let until = match self.any_ready(now)? {
                Ok(peer) => match self.call_for_now(peer, request, what, deadline) {
                    Err(error) if !error.is_final() && self.clock.now() < deadline => continue,
                    result => return result,
                },
                Err(until) => until,
            };
            if now >= deadline {
                return Err(self.timed_out(what, started));
            }
            self.pause(until.min(deadline));
        }
    }

    /// Sends a request to one broker and waits for its answer.
    pub(crate) fn call<R: Request>(
        &mut self,
        peer: Peer,
        request: &R,
        what: &'static str,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        let started = self.clock.now();
        let now = self.ready(peer, what, deadline)?;
        let asked = self.network.ask(peer, request, now, Duration::ZERO);
        self.answer::<R>(peer, asked, what, started, deadline)
    }

    /// Like [`Client::call`], for a broker that may have lost its role: it leaves time to ask another one.
    pub(crate) fn call_for_now<R: Request>(
        &mut self,
        peer: Peer,
        request: &R,
        what: &'static str,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        let started = self.clock.now();
        let now = self.ready(peer, what, deadline.min(started + REACH))?;
        self.call(peer, request, what, deadline.min(now + ANSWER))
    }

    /// Sends two requests to one broker without waiting for the first answer. A broker processes a connection's
    /// requests in order, so the second finds the first one done or refused, also when this client is killed meanwhile.
    pub(crate) fn call_both<A: Request, B: Request>(
        &mut self,
        peer: Peer,
        first: &A,
        second: &B,
        what: &'static str,
        deadline: Instant,
    ) -> Result<Both<A, B>, Error> {
        let started = self.clock.now();
        let now = self.ready(peer, what, deadline)?;
        let asked = self.network.ask(peer, first, now, Duration::ZERO);
        let behind = self.network.ask(peer, second, now, Duration::ZERO);
        let answer = self.answer::<A>(peer, asked, what, started, deadline);
        let next = self.answer::<B>(peer, behind, what, started, deadline);
        Ok((answer?, next))
    }

    /// Waits until a broker is connected. Returns the time of that.
    fn ready(
        &mut self,
        peer: Peer,
        what: &'static str,
        deadline: Instant,
    ) -> Result<Instant, Error> {
        let started = self.clock.now();
        loop {
            let now = self.clock.now();
            // first, so that a connection that is ready by now is used
            self.receive(now);
            let until = match self.network.open(peer, now) {
                State::Ready => return Ok(now),
                State::Opening => deadline,
                State::Resting {
                    last: Some(error), ..
                } if error.is_final() => return Err(error),
                State::Resting { until: rested, .. } => rested.min(deadline),
            };
            if now >= deadline {
                return Err(self.timed_out(what, started));
            }
            self.pause(until);
        }
    }

    /// Waits for the answer to a request.
    fn answer<R: Request>(
        &mut self,
        peer: Peer,
        asked: RequestId,
        what: &'static str,
        started: Instant,
        deadline: Instant,
    ) -> Result<R::Answer, Error> {
        loop {
            let now = self.clock.now();
            self.receive(now);
            if let Some(answer) = self.claim(asked) {
                return answer
                    .body
                    .and_then(|(version, body)| self.read::<R>(peer, version, body));
            }
            if now >= deadline {
                return Err(self.timed_out(what, started));
            }
            self.pause(deadline);
        }
    }

    /// Returns the next one of the connected peers, without opening a connection.
    pub(crate) fn next_connected(&mut self, now: Instant) -> Option<Peer> {
        let ready = |peer: &Peer| {
            self.network.is_ready(*peer, now) && !self.network.is_unresponsive(*peer, now)
        };
        let peers = self.network.peers().into_iter().filter(ready);
        let peer = in_turn(peers, self.last_named)?;
        self.last_named = Some(peer);
        Some(peer)
    }

    /// Returns a peer that can be asked at once, or else the time to look again. Opens connections one by one.
    ///
    /// Connected peers are returned in turn: a broker that is cut off from its controller keeps answering with old
    /// metadata, and must not be the only source. An unresponsive peer is skipped.
    #[allow(clippy::type_complexity)] // the inner Result is no failure, only "not yet"
    pub(crate) fn any_ready(&mut self, now: Instant) -> Result<Result<Peer, Instant>, Error> {
        if let Some(peer) = self.next_connected(now) {
            return Ok(Ok(peer));
        }
        let peers = self.network.peers();
        let mut again = now + STAGGER;
        let mut hopeless: Option<Error> = None;
        let mut hope = false;
        let mut silent = false;
        let patient = self
            .last_opened
            .is_some_and(|opened| now < opened + STAGGER);
        for peer in peers {
            if self.network.is_ready(peer, now) {
                // its overdue answer closes its connection in the end, or shows that it works again
                silent = true;
                continue;
            }
            let fresh = !self.network.is_opening(peer);
            if fresh && patient && self.network.any_opening() {
                continue;
            }
            match self.network.open(peer, now) {
                State::Ready => return Ok(Ok(peer)),
                State::Opening => {
                    hopeless = None;
                    if fresh {
                        self.last_opened = Some(now);
                        return Ok(Err(again));
                    }
                }
                State::Resting { until, last } => {
                    again = again.min(until);
                    hope |= !last.as_ref().is_some_and(Error::is_final);
                    hopeless = last.filter(Error::is_final).or(hopeless);
                }
            }
        }
        match hopeless {
            // a peer that answers nonsense may be no broker at all, and those that are only down may come back
            Some(error) if hope && error.kind() == Kind::Protocol => Ok(Err(again)),
            Some(error) if !silent && !self.network.any_opening() => Err(error),
            _ => Ok(Err(again)),
        }
    }

    /// The connections, for [`crate::wait`] on several clusters at once.
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Returns the last error of any connection, for messages.
    #[must_use]
    pub fn last_trouble(&self) -> Option<&Error> {
        self.network.last_trouble()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    pub(crate) fn cached_metadata_mut(&mut self) -> &mut Metadata {
        &mut self.metadata
    }

    /// Decodes an answer. A malformed one closes its connection; a throttled broker gets its pause.
    pub(crate) fn read<R: Request>(
        &mut self,
        peer: Peer,
        version: i16,
        body: Bytes,
    ) -> Result<R::Answer, Error> {
        match protocol::read_throttled::<R>(version, body) {
            Ok((answer, throttle_ms)) => {
                if let Ok(millis @ 1..) = u64::try_from(throttle_ms) {
                    let now = self.clock.now();
                    self.network
                        .throttle(peer, Duration::from_millis(millis), now);
                }
                Ok(answer)
            }
            Err(broken) => {
                let error = Error::Malformed {
                    peer: self.network.name(peer),
                    what: R::API.name,
                    reason: broken.reason,
                };
                let now = self.clock.now();
                self.network.fail(peer, error.clone(), now);
                Err(error)
            }
        }
    }

    pub(crate) fn take_metadata(&mut self, metadata: ClusterMetadata) -> Result<(), Error> {
        let code = metadata.error;
        if !code.is_none() {
            let error = Error::Refused {
                what: "Metadata".to_owned(),
                code,
            };
            if code == ErrorCode::REBOOTSTRAP_REQUIRED {
                // the known brokers are not the cluster any more, and would repeat this
                self.metadata.forget_brokers();
                self.network.begin_anew(&error, self.clock.now());
            }
            return Err(error);
        }
        if metadata.brokers.is_empty() {
            // the broker is starting: it knows no topics either, and none of that is a fact
            return Err(Error::Unreachable {
                peer: "the cluster".to_owned(),
                reason: "the broker knows of no broker yet".to_owned(),
            });
        }
        self.metadata.apply(metadata, self.clock.now());
        self.network.set_brokers(self.metadata.brokers());
        Ok(())
    }

    /// Moves arrived answers into the inbox.
    pub(crate) fn receive(&mut self, now: Instant) {
        let answers = self.network.service(now);
        self.inbox.extend(answers);
    }

    /// Takes the oldest answer in the inbox.
    pub(crate) fn next_answer(&mut self) -> Option<Answer> {
        self.inbox.pop_front()
    }

    fn claim(&mut self, id: RequestId) -> Option<Answer> {
        let at = self.inbox.iter().position(|answer| answer.id == id)?;
        self.inbox.swap_remove_back(at)
    }

    pub(crate) fn pause(&mut self, until: Instant) {
        wait(&mut [&mut self.network], &*self.clock, until);
    }

    fn timed_out(&self, what: &'static str, started: Instant) -> Error {
        Error::TimedOut {
            what,
            waited: self.clock.now() - started,
            last: self
                .network
                .last_trouble()
                .map_or_else(|| "no answer".to_owned(), ToString::to_string),
        }
    }
}

/// Returns the peer behind `last`, or the first one. `ready` is sorted.
fn in_turn(mut ready: impl Iterator<Item = Peer>, last: Option<Peer>) -> Option<Peer> {
    let first = ready.next()?;
    let behind = |peer: &Peer| last.is_none_or(|last| *peer > last);
    Some(first)
        .filter(behind)
        .or_else(|| ready.find(behind))
        .or(Some(first))
}

#[cfg(test)]
mod tests {
    use super::{Peer, in_turn};

    #[test]
    fn peers_that_are_ready_are_named_in_turn() {
        let one_after = |last| in_turn([2, 5, 7].map(Peer::Broker).into_iter(), last);
        let mut last = None;
        for expected in [2, 5, 7, 2, 5] {
            last = one_after(last);
            assert_eq!(last, Some(Peer::Broker(expected)));
        }
        // the last one is not ready any more
        assert_eq!(one_after(Some(Peer::Broker(6))), Some(Peer::Broker(7)));
        assert_eq!(one_after(Some(Peer::Bootstrap(0))), Some(Peer::Broker(2)));
        assert_eq!(in_turn(std::iter::empty(), last), None);
    }
}
