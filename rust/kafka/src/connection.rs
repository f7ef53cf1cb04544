//! A connection to one broker: connect, handshake, then requests and answers. Never blocks.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustls::ClientConfig;

use crate::error::Error;
use crate::frame::{FrameError, FrameReader, Held, Outbox};
use crate::handshake::{self, Greeted, Handshake, Next};
use crate::in_flight::{InFlight, Pending};
use crate::metadata::Endpoint;
use crate::properties::{Properties, Sasl};
use crate::protocol::Request;
use crate::protocol::api_versions::SupportedApis;
use crate::socket::{self, Stream};

/// An answer that is not decoded yet.
pub(crate) struct Arrived<Id> {
    pub(crate) pending: Pending<Id>,
    pub(crate) body: Bytes,
}

/// Credentials for one handshake.
pub(crate) struct Login {
    pub(crate) sasl: Option<Sasl>,
    /// Fresh random text for SCRAM.
    pub(crate) nonce: String,
}

enum Stage {
    Opening,
    Greeting(Box<Handshake>),
    Ready,
}

/// A connection to one address of a broker.
pub(crate) struct Connection<Id> {
    peer: String,
    host: String,
    properties: Arc<Properties>,
    tls: Option<Arc<ClientConfig>>,
    /// Addresses that are left to try.
    addresses: VecDeque<SocketAddr>,
    stream: Stream,
    stage: Stage,
    sasl: Option<Sasl>,
    nonce: String,
    setup_deadline: Instant,
    outbox: Outbox,
    frames: FrameReader,
    in_flight: InFlight<Id>,
    supported: SupportedApis,
    /// Time before the credentials expire: then it takes no new requests, and closes when all are answered.
    retires: Option<Instant>,
    /// poll(2) reported an event that is not handled yet.
    woken: bool,
    /// Start of the wait for an answer; arriving bytes reset it.
    owes_since: Instant,
}

impl<Id: Copy> Connection<Id> {
    /// Starts to connect. `turn` selects the address of the host that is tried first, so that each attempt uses another
    /// one. `held` counts the frames that arrive.
    pub(crate) fn open(
        endpoint: &Endpoint,
        turn: usize,
        properties: &Arc<Properties>,
        tls: Option<&Arc<ClientConfig>>,
        login: Login,
        held: &Held,
        now: Instant,
    ) -> Result<Self, Error> {
        let Endpoint { host, port } = endpoint;
        let peer = format!("{host}:{port}");
        let unreachable = |error: io::Error| Error::Unreachable {
            peer: peer.clone(),
            reason: error.to_string(),
        };
        let found = socket::resolve(host, *port, properties.family).map_err(unreachable)?;
        let mut addresses = socket::in_turn(found, turn);
        let stream = open_any(&mut addresses, host, properties, tls).map_err(unreachable)?;
        Ok(Self {
            peer,
            host: host.clone(),
            properties: Arc::clone(properties),
            tls: tls.cloned(),
            addresses,
            stream,
            stage: Stage::Opening,
            sasl: login.sasl,
            nonce: login.nonce,
            setup_deadline: now + properties.setup_timeout,
            outbox: Outbox::default(),
            frames: FrameReader::new(properties.largest_answer, held.clone()),
            in_flight: InFlight::new(properties.client_id.clone()),
            supported: SupportedApis::default(),
            retires: None,
            woken: false,
            owes_since: now,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// Returns whether poll(2) should wait for input.
    pub(crate) fn wants_read(&self) -> bool {
        !matches!(self.stage, Stage::Opening)
    }

    /// Returns whether poll(2) should wait for output.
    pub(crate) fn wants_write(&self) -> bool {
        matches!(self.stage, Stage::Opening) || !self.outbox.is_empty() || self.stream.wants_write()
    }

    /// Notes an event of poll(2).
    pub(crate) fn wake(&mut self) {
        self.woken = true;
    }

    /// Returns whether requests can be sent.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        matches!(self.stage, Stage::Ready) && self.retires.is_none_or(|retires| now < retires)
    }

    /// Returns whether it is still connecting or in the handshake.
    pub(crate) fn is_opening(&self) -> bool {
        !matches!(self.stage, Stage::Ready)
    }

    /// Returns whether the credentials expire soon and no request is in flight.
    pub(crate) fn is_retired(&self, now: Instant) -> bool {
        self.in_flight.is_empty() && self.retires.is_some_and(|retires| now >= retires)
    }

    /// Returns whether requests are in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns the start of the wait for an answer or for the end of the handshake. It is in the future while the
    /// broker may hold an answer back.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        let owes = self.is_busy() || self.is_opening();
        owes.then(|| self.owes_since + self.in_flight.held())
    }

    /// Returns whether it was opened recently and never used.
    pub(crate) fn is_new(&self, now: Instant) -> bool {
        self.in_flight.is_unused() && now < self.setup_deadline
    }

    /// Returns the next deadline.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Ready => self.in_flight.deadline(),
            _ => Some(self.setup_deadline),
        }
    }

    /// Returns the API versions and features of the broker; empty before the handshake is done.
    pub(crate) fn supported(&self) -> &SupportedApis {
        &self.supported
    }

    /// Sends a request and returns its size. Without an answer by `deadline` the connection fails.
    pub(crate) fn ask<R: Request>(
        &mut self,
        id: Id,
        request: &R,
        now: Instant,
        deadline: Instant,
    ) -> Result<u64, Error> {
        let version = handshake::choose(&self.peer, &self.supported, R::API, request.highest())?;
        if !self.is_busy() {
            self.owes_since = now;
        }
        let mut size = 0;
        for piece in self.in_flight.ask(id, request, version, deadline) {
            size += piece.len();
            self.outbox.push(piece);
        }
        self.flush()?;
        Ok(u64::try_from(size).unwrap_or(0))
    }

    /// Drops all in-flight requests and returns their ids.
    pub(crate) fn abandon(&mut self) -> Vec<Id> {
        self.in_flight.abandon().map(|pending| pending.id).collect()
    }

    /// Does all non-blocking work, and adds answers to `arrived`. An error ends the connection.
    pub(crate) fn service(
        &mut self,
        now: Instant,
        arrived: &mut Vec<Arrived<Id>>,
    ) -> Result<(), Error> {
        if std::mem::take(&mut self.woken) {
            if matches!(self.stage, Stage::Opening) {
                self.opened()?;
            }
            self.flush()?;
            if self.wants_read() {
                let before = (self.frames.partial(), arrived.len());
                self.receive(now, arrived)?;
                if before != (self.frames.partial(), arrived.len()) {
                    self.owes_since = now;
                }
                // TLS and the handshake may have to respond to what was read
                self.flush()?;
            }
        }
        if self.deadline().is_some_and(|deadline| now >= deadline) {
            return Err(self.lost("no answer in time".to_owned()));
        }
        Ok(())
    }

    /// Handles the result of connecting: begins the handshake, or tries the next address.
    fn opened(&mut self) -> Result<(), Error> {
        let failed = match self.stream.tcp().take_error() {
            Ok(None) => {
                // poll(2) may wake up without cause, and a socket without a peer is not connected yet
                if self.stream.tcp().peer_addr().is_err() {
                    return Ok(());
                }
                let (handshake, first) = Handshake::begin(
                    self.peer.clone(),
                    self.properties.client_id.clone(),
                    self.sasl.take(),
                    std::mem::take(&mut self.nonce),
                    self.setup_deadline,
                );
                self.stage = Stage::Greeting(Box::new(handshake));
                self.outbox.push(first);
                return Ok(());
            }
            Ok(Some(error)) | Err(error) => error,
        };
        self.stream = open_any(
            &mut self.addresses,
            &self.host,
            &self.properties,
            self.tls.as_ref(),
        )
        .map_err(
            // the last address's error says more than that no address is left
            |_| Error::Unreachable {
                peer: self.peer.clone(),
                reason: failed.to_string(),
            },
        )?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        if matches!(self.stage, Stage::Opening) {
            return Ok(());
        }
        match &mut self.stream {
            Stream::Plain(tcp) => self.outbox.flush(tcp),
            Stream::Tls(tls) => self.outbox.flush(&mut **tls),
        }
        .map_err(|error| self.failed(&error))
    }

    fn receive(&mut self, now: Instant, arrived: &mut Vec<Arrived<Id>>) -> Result<(), Error> {
        loop {
            match self.frames.read(&mut self.stream) {
                Ok(Some(frame)) => self.take(frame, now, arrived)?,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    fn take(
        &mut self,
        frame: Bytes,
        now: Instant,
        arrived: &mut Vec<Arrived<Id>>,
    ) -> Result<(), Error> {
        if let Stage::Greeting(handshake) = &mut self.stage {
            match handshake.answer(frame)? {
                Next::Send(frame) => {
                    self.outbox.push(frame);
                    self.flush()?;
                }
                Next::Ready(Greeted {
                    supported,
                    lifetime,
                }) => {
                    self.supported = supported;
                    self.retires = lifetime.map(|lifetime| now + retirement(lifetime));
                    self.stage = Stage::Ready;
                }
            }
            return Ok(());
        }
        let (pending, body) = self
            .in_flight
            .answer(frame)
            .map_err(|broken| Error::Malformed {
                peer: self.peer.clone(),
                what: "answer",
                reason: broken.reason,
            })?;
        arrived.push(Arrived { pending, body });
        Ok(())
    }

    fn broken(&self, error: FrameError) -> Error {
        match error {
            FrameError::Closed { within } => {
                let reason = if within {
                    "the broker closed it within an answer"
                } else {
                    "the broker closed it"
                };
                self.lost(reason.to_owned())
            }
            // the first bytes of a TLS alert, read as a length
            FrameError::TooLarge { size } if size >> 16 == 0x1503 => Error::Tls {
                peer: self.peer.clone(),
                reason: "the listener speaks TLS, security.protocol does not".to_owned(),
            },
            FrameError::TooLarge { size } => Error::TooLarge {
                peer: self.peer.clone(),
                size,
                limit: self.properties.largest_answer,
            },
            FrameError::Io(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &io::Error) -> Error {
        let in_tls = error.kind() == ErrorKind::InvalidData;
        // later it is the connection that is damaged, and not the agreement
        if in_tls && !matches!(self.stage, Stage::Ready) {
            return Error::Tls {
                peer: self.peer.clone(),
                reason: error.to_string(),
            };
        }
        self.lost(error.to_string())
    }

    fn lost(&self, reason: String) -> Error {
        let during = match self.stage {
            Stage::Opening => "while connecting",
            Stage::Greeting(_) => "in the handshake",
            Stage::Ready if self.is_busy() => "before it answered",
            Stage::Ready => "while it was idle",
        };
        Error::Lost {
            peer: self.peer.clone(),
            during,
            reason,
        }
    }
}

/// Returns the time after which a connection retires: well before its credentials expire, so that no request is
/// refused.
fn retirement(lifetime: Duration) -> Duration {
    lifetime.mul_f64(0.85)
}

fn open_any(
    addresses: &mut VecDeque<SocketAddr>,
    host: &str,
    properties: &Properties,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Stream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "no address is left");
    while let Some(address) = addresses.pop_front() {
        match Stream::open(address, host, properties, tls) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
