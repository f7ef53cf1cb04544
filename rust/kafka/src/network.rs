//! All connections to one cluster.

mod peer;
mod stats;
mod unresponsive;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::rand::{SecureRandom as _, SystemRandom};
use rustls::ClientConfig;

use crate::connection::{Connection, Login};
use crate::error::Error;
use crate::features::Features;
use crate::frame::Held;
use crate::metadata::Endpoint;
use crate::oauth::{self, Token};
use crate::properties::{Properties, Sasl};
use crate::protocol::Request;
use crate::protocol::api_versions::SupportedApis;
use crate::tls;
use peer::PeerState;

pub use stats::{Throttled, Traffic};
pub(crate) use unresponsive::{UNRESPONSIVE_AFTER, UNRESPONSIVE_RECHECK};
pub use wait::{wait, wait_unless};

/// Shortest pause after a failure, whatever `reconnect.backoff.ms` says: if a name does not resolve or no token is
/// available, the next attempt would fail at once.
const SHORTEST_REST: Duration = Duration::from_millis(1);

/// A remote end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    /// A broker of the cluster's metadata.
    Broker(i32),
    /// An entry of `bootstrap.servers`; its broker id does not matter.
    Bootstrap(usize),
}

/// Identifies a request until its answer is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestId(u64);

#[cfg(test)]
impl RequestId {
    /// Returns an id for a test, which sends nothing.
    pub(crate) const fn numbered(number: u64) -> Self {
        Self(number)
    }
}

/// The result of a request: version and body of the answer, or an error.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) peer: Peer,
    pub(crate) body: Result<(i16, Bytes), Error>,
}

/// The availability of a peer.
#[derive(Debug)]
pub(crate) enum State {
    /// Requests can be sent.
    Ready,
    /// Connecting, or in the handshake.
    Opening,
    /// Unavailable until that time: the connection failed, or the broker throttles us.
    Resting { until: Instant, last: Option<Error> },
}

/// Connections to the brokers of one cluster, opened on demand and reopened with backoff.
pub struct Network {
    properties: Arc<Properties>,
    tls: Option<Arc<ClientConfig>>,
    random: SystemRandom,
    peers: BTreeMap<Peer, PeerState>,
    next: u64,
    answers: Vec<Answer>,
    held: Held,
    traffic: Traffic,
    throttled: Throttled,
    /// Number of opened connections.
    opened: u64,
    /// Number of connections that the other side ended.
    lost: u64,
    /// The last token, and the time until which it is used.
    token: Option<(Token, Instant)>,
    features: Features,
}

impl Network {
    /// Reads certificates; does not connect.
    pub(crate) fn new(properties: Properties) -> Result<Self, Error> {
        let tls = properties
            .tls
            .as_ref()
            .map(tls::client_config)
            .transpose()?;
        let peers = properties
            .bootstrap
            .iter()
            .enumerate()
            .map(|(index, (host, port))| {
                let endpoint = Endpoint {
                    host: host.clone(),
                    port: *port,
                };
                (Peer::Bootstrap(index), PeerState::to(endpoint))
            });
        Ok(Self {
            peers: peers.collect(),
            properties: Arc::new(properties),
            tls,
            random: SystemRandom::new(),
            next: 0,
            answers: Vec::new(),
            held: Held::default(),
            traffic: Traffic::default(),
            throttled: Throttled::default(),
            opened: 0,
            lost: 0,
            token: None,
            features: Features::default(),
        })
    }

    /// Returns the bytes sent and received.
    #[must_use]
    pub const fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// Returns the bytes of all answers of which any part is still in memory: a fetched batch keeps its whole answer.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.bytes()
    }

    /// Returns the throttling by quotas.
    #[must_use]
    pub const fn throttled(&self) -> Throttled {
        self.throttled
    }

    /// Returns the number of connections that were lost: another broker may have taken over.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns the number of the connection to a peer; each new one has another. 0 before the first.
    pub(crate) fn connection(&self, peer: Peer) -> u64 {
        self.peers.get(&peer).map_or(0, |state| state.number)
    }

    /// Returns the properties that it was made of.
    #[must_use]
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// Returns all peers, brokers of the metadata first.
    pub(crate) fn peers(&self) -> Vec<Peer> {
        self.peers.keys().copied().collect()
    }

    /// Returns host:port of a peer, for messages.
    pub(crate) fn name(&self, peer: Peer) -> String {
        self.peers.get(&peer).map_or_else(
            || format!("{peer:?}"),
            |state| format!("{}:{}", state.endpoint.host, state.endpoint.port),
        )
    }

    /// Sets the brokers' addresses. A broker that has gone or moved loses its connection.
    pub(crate) fn set_brokers(&mut self, brokers: &BTreeMap<i32, Endpoint>) {
        let stale: Vec<Peer> = self
            .peers
            .iter()
            .filter(|(peer, state)| match peer {
                Peer::Broker(id) => brokers.get(id) != Some(&state.endpoint),
                Peer::Bootstrap(_) => false,
            })
            .map(|(peer, _)| *peer)
            .collect();
        for peer in stale {
            if let Some(mut state) = self.peers.remove(&peer) {
                let error = Error::Lost {
                    peer: format!("{}:{}", state.endpoint.host, state.endpoint.port),
                    during: "before it answered",
                    reason: "the broker has another address now".to_owned(),
                };
                state.give_up(peer, &error, &mut self.answers);
            }
        }
        for (id, endpoint) in brokers {
            self.peers
                .entry(Peer::Broker(*id))
                .or_insert_with(|| PeerState::to(endpoint.clone()));
        }
    }

    /// Drops all brokers and closes the connections to bootstrap servers: their names are resolved anew. Peers that
    /// were connected pause, so that others are tried first.
    pub(crate) fn begin_anew(&mut self, why: &Error, now: Instant) {
        self.set_brokers(&BTreeMap::new());
        let connected =
            |(peer, state): (&Peer, &PeerState)| state.connection.is_some().then_some(*peer);
        let peers: Vec<Peer> = self.peers.iter().filter_map(connected).collect();
        for peer in peers {
            self.fail(peer, why.clone(), now);
        }
    }

    /// Returns whether the address of a peer is known.
    pub(crate) fn is_known(&self, peer: Peer) -> bool {
        self.peers.contains_key(&peer)
    }

    /// Returns whether a peer is connected, without opening a connection.
    pub(crate) fn is_ready(&self, peer: Peer, now: Instant) -> bool {
        self.peers
            .get(&peer)
            .is_some_and(|state| state.is_ready(now))
    }

    /// Returns the finalized level of a cluster feature (KIP-584) as brokers have reported it; 0 when it is not
    /// finalized. None before the first connection.
    #[must_use]
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.level(name)
    }

    /// Takes the features that a broker reports.
    pub(crate) fn learn(&mut self, supported: &SupportedApis) {
        self.features.learn(supported);
    }

    /// Returns whether a connection to a peer is being opened.
    pub(crate) fn is_opening(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|state| {
            state
                .connection
                .as_ref()
                .is_some_and(Connection::is_opening)
        })
    }

    /// Returns whether any connection is being opened.
    pub(crate) fn any_opening(&self) -> bool {
        self.peers.keys().any(|peer| self.is_opening(*peer))
    }

    /// Returns the availability of a peer, and opens a connection if it has none.
    pub(crate) fn open(&mut self, peer: Peer, now: Instant) -> State {
        let Some(state) = self.peers.get_mut(&peer) else {
            return State::Resting {
                until: now + self.properties.reconnect_backoff.max(SHORTEST_REST),
                last: None,
            };
        };
        if state
            .connection
            .as_ref()
            .is_some_and(|connection| connection.is_retired(now))
        {
            state.connection = None;
        }
        if let Some(until) = state.rest_until.filter(|until| *until > now) {
            return State::Resting {
                until,
                last: state.last.clone(),
            };
        }
        if state.is_ready(now) {
            return State::Ready;
        }
        if state.connection.is_none() {
            let (endpoint, turn) = (state.endpoint.clone(), state.turn);
            let opened = self.login(peer, now).and_then(|login| {
                let tls = self.tls.as_ref();
                Connection::open(
                    &endpoint,
                    turn,
                    &self.properties,
                    tls,
                    login,
                    &self.held,
                    now,
                )
            });
            match opened {
                Ok(connection) => {
                    self.opened += 1;
                    if let Some(state) = self.peers.get_mut(&peer) {
                        state.number = self.opened;
                        state.connection = Some(connection);
                    }
                }
                Err(error) => {
                    self.fail(peer, error, now);
                    return self.open(peer, now);
                }
            }
        }
        State::Opening
    }

    /// Returns the credentials for a new connection. Requests a token if one is needed, which may take a while.
    fn login(&mut self, peer: Peer, now: Instant) -> Result<Login, Error> {
        let mut login = Login {
            sasl: self.properties.sasl.clone(),
            nonce: self.nonce(),
        };
        let Some((Sasl { password, .. }, tokens)) =
            login.sasl.as_mut().zip(self.properties.tokens.as_ref())
        else {
            return Ok(login);
        };
        let known = self.token.take().filter(|(_, until)| now < *until);
        let (token, until) = if let Some(known) = known {
            known
        } else {
            // a token source may be down for a while, as a broker may
            let token = tokens.0.token().map_err(|reason| Error::Unreachable {
                peer: self.name(peer),
                reason: format!("no token: {reason}"),
            })?;
            // as librdkafka does
            let until = token
                .lifetime
                .and_then(|life| now.checked_add(life.mul_f64(0.8)))
                .unwrap_or(now);
            (token, until)
        };
        *password = oauth::first_message(&token).map_err(|reason| Error::Authentication {
            peer: self.name(peer),
            mechanism: "OAUTHBEARER",
            reason: reason.to_owned(),
        })?;
        self.token = Some((token, until));
        Ok(login)
    }

    /// Sends a request to a ready peer. In any case there will be one [`Answer`].
    pub(crate) fn ask<R: Request>(
        &mut self,
        peer: Peer,
        request: &R,
        now: Instant,
        patience: Duration,
    ) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let deadline = now + patience + self.properties.request_timeout;
        let connection = self
            .peers
            .get_mut(&peer)
            .and_then(|state| state.connection.as_mut());
        let asked = match connection {
            Some(connection) => connection.ask(id, request, now, deadline),
            None => Err(Error::Lost {
                peer: self.name(peer),
                during: "before the request",
                reason: "there is no connection".to_owned(),
            }),
        };
        match asked {
            Ok(size) => self.traffic.sent += size,
            // the connection is good, and the request cannot be encoded
            Err(error @ Error::Unsupported { .. }) => self.answers.push(Answer {
                id,
                peer,
                body: Err(error),
            }),
            Err(error) => {
                let before = self.answers.len();
                self.fail(peer, error.clone(), now);
                // a request that failed with its connection has an answer already
                if !self.answers[before..].iter().any(|answer| answer.id == id) {
                    self.answers.push(Answer {
                        id,
                        peer,
                        body: Err(error),
                    });
                }
            }
        }
        id
    }

    /// Pauses requests to a peer that throttles us (KIP-219). It has stopped reading from the connection, so requests
    /// would wait there and count against their deadlines.
    pub(crate) fn throttle(&mut self, peer: Peer, pause: Duration, now: Instant) {
        let until = now + pause;
        self.throttled.answers += 1;
        if let Some(state) = self.peers.get_mut(&peer) {
            let before = state.rest_until.map_or(now, |earlier| earlier.max(now));
            self.throttled.time += until.saturating_duration_since(before);
            state.rest_until = Some(before.max(until));
        }
    }

    /// Closes a connection after an error.
    pub(crate) fn fail(&mut self, peer: Peer, error: Error, now: Instant) {
        let spread = self.spread();
        let Some(state) = self.peers.get_mut(&peer) else {
            return;
        };
        if matches!(error, Error::Authentication { .. }) {
            // a broker may reject a token before it expires
            self.token = None;
        }
        match &state.connection {
            // an address may drop all packets, and another address of the host may not
            Some(opening) if opening.is_opening() => state.turn = state.turn.wrapping_add(1),
            Some(_) => self.lost += 1,
            None => {}
        }
        state.give_up(peer, &error, &mut self.answers);
        state.failures = state.failures.saturating_add(1);
        let doubled = self
            .properties
            .reconnect_backoff
            .saturating_mul(1 << (state.failures - 1).min(16));
        let pause = doubled
            .min(self.properties.reconnect_backoff_max)
            .mul_f64(spread);
        let until = now + pause.max(SHORTEST_REST);
        // a new connection must not circumvent a quota
        state.rest_until = Some(state.rest_until.map_or(until, |before| before.max(until)));
        state.last = Some(error);
    }

    /// Does all non-blocking work, and returns the answers that have arrived.
    pub(crate) fn service(&mut self, now: Instant) -> Vec<Answer> {
        let mut failed = Vec::new();
        for (peer, state) in &mut self.peers {
            let Some(connection) = &mut state.connection else {
                continue;
            };
            let mut arrived = Vec::new();
            let opening = connection.is_opening();
            let outcome = connection.service(now, &mut arrived);
            if opening && !connection.is_opening() {
                self.features.learn(connection.supported());
            }
            if !arrived.is_empty() {
                // only an answer proves that the broker works: one that fails after each handshake gets longer pauses
                state.failures = 0;
                state.last = None;
            }
            for answer in arrived {
                self.traffic.received += u64::try_from(answer.body.len()).unwrap_or(0);
                self.answers.push(Answer {
                    id: answer.pending.id,
                    peer: *peer,
                    body: Ok((answer.pending.version, answer.body)),
                });
            }
            match outcome {
                Ok(()) => {}
                // brokers close idle connections; one that closes directly after the handshake has to pause
                Err(Error::Lost { .. })
                    if !(connection.is_opening()
                        || connection.is_busy()
                        || connection.is_new(now)) =>
                {
                    state.connection = None;
                    self.lost += 1;
                }
                Err(error) => failed.push((*peer, error)),
            }
        }
        for (peer, error) in failed {
            self.fail(peer, error, now);
        }
        std::mem::take(&mut self.answers)
    }

    /// Returns the next deadline of any connection.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let connections = self
            .peers
            .values()
            .filter_map(|state| state.connection.as_ref());
        connections.filter_map(Connection::deadline).min()
    }

    /// Returns the last error of any connection, for messages.
    pub(crate) fn last_trouble(&self) -> Option<&Error> {
        self.peers.values().find_map(|state| state.last.as_ref())
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; 24];
        // the handshake refuses an empty nonce where it matters
        match self.random.fill(&mut bytes) {
            Ok(()) => STANDARD.encode(bytes),
            Err(_) => String::new(),
        }
    }

    /// Returns a factor of 0.8 to 1.2, so that clients that lost a broker together do not retry in step.
    pub(crate) fn spread(&self) -> f64 {
        let mut byte = [128];
        let _ = self.random.fill(&mut byte);
        0.8 + 0.4 * f64::from(byte[0]) / 255.0
    }
}

#[cfg(test)]
mod tests;
