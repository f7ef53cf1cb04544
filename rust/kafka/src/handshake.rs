//! The handshake of a new connection: versions, then authentication.
//!
//! ```text
//! ApiVersions 4 --UNSUPPORTED_VERSION--> ApiVersions at the broker's best, once
//!      |
//!      +-- no SASL --> ready
//!      +-- SaslHandshake --> SaslAuthenticate (PLAIN, OAUTHBEARER: 1 message, SCRAM: 2) --> ready
//! ```
//!
//! Pure: frames in, frames out; the caller passes the nonce.

use std::time::{Duration, Instant};

use crate::error_code::ErrorCode;
use bytes::Bytes;

use crate::error::Error;
use crate::in_flight::InFlight;
use crate::properties::{Mechanism, Sasl};
use crate::protocol::api_versions::{ApiVersions, SupportedApis};
use crate::protocol::sasl::{Authenticated, SaslAuthenticate, SaslHandshake};
use crate::protocol::{self, Api, Request};
use crate::scram::{Hash, Proof, Scram};
use crate::wire::DecodeError;

/// The result of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Greeted {
    /// API versions and features of the broker.
    pub(crate) supported: SupportedApis,
    /// Validity of the credentials (KIP-368); None for the life of the connection.
    pub(crate) lifetime: Option<Duration>,
}

/// The next step of the caller.
#[derive(Debug)]
pub(crate) enum Next {
    /// Send this, and return with the answer.
    Send(Bytes),
    /// The handshake is done.
    Ready(Greeted),
}

enum Stage {
    Versions {
        again: bool,
    },
    Mechanism,
    Plain,
    /// The reason that the token was rejected, once the broker has sent it.
    Bearer(Option<String>),
    ScramFirst(Scram),
    ScramLast(Proof),
}

/// The handshake of one connection.
pub(crate) struct Handshake {
    peer: String,
    sasl: Option<Sasl>,
    nonce: String,
    deadline: Instant,
    in_flight: InFlight<()>,
    stage: Stage,
    supported: SupportedApis,
}

impl Handshake {
    /// Returns the handshake and its first frame. `nonce` must be fresh; SCRAM uses it.
    pub(crate) fn begin(
        peer: String,
        client_id: String,
        sasl: Option<Sasl>,
        nonce: String,
        deadline: Instant,
    ) -> (Self, Bytes) {
        let mut in_flight = InFlight::new(client_id);
        let first = in_flight.ask((), &ApiVersions, ApiVersions::API.versions.1, deadline);
        let first = whole(&first);
        let handshake = Self {
            peer,
            sasl,
            nonce,
            deadline,
            in_flight,
            stage: Stage::Versions { again: false },
            supported: SupportedApis::default(),
        };
        (handshake, first)
    }

    /// Takes an answer and returns the next step.
    pub(crate) fn answer(&mut self, frame: Bytes) -> Result<Next, Error> {
        let (pending, body) = self
            .in_flight
            .answer(frame)
            .map_err(|error| self.malformed("answer", error))?;
        // a placeholder until the arm has decided: an error ends the connection
        match std::mem::replace(&mut self.stage, Stage::Mechanism) {
            Stage::Versions { again } => self.versions(pending.version, again, body),
            Stage::Mechanism => self.mechanism(pending.version, body),
            Stage::Plain => {
                let answer = self.authenticated(pending.version, body)?;
                Ok(self.ready(answer.lifetime_ms))
            }
            Stage::Bearer(refused) => self.bearer(refused, pending.version, body),
            Stage::ScramFirst(scram) => {
                let challenge = self.authenticated(pending.version, body)?;
                let (proof, last) = scram
                    .prove(&challenge.message)
                    .map_err(|reason| self.unproven(&reason))?;
                self.stage = Stage::ScramLast(proof);
                self.authenticate(last.into_bytes())
            }
            Stage::ScramLast(proof) => {
                let last = self.authenticated(pending.version, body)?;
                proof
                    .check(&last.message)
                    .map_err(|reason| self.unproven(reason))?;
                Ok(self.ready(last.lifetime_ms))
            }
        }
    }

    fn versions(&mut self, version: i16, again: bool, body: Bytes) -> Result<Next, Error> {
        // a broker that does not know the version answers in the oldest format, with the versions that it knows
        let refused = body.starts_with(&ErrorCode::UNSUPPORTED_VERSION.0.to_be_bytes());
        let read_as = if refused { 0 } else { version };
        let supported = protocol::read::<ApiVersions>(read_as, body)
            .map_err(|error| self.malformed("ApiVersions answer", error))?;
        if refused && !again {
            let best = supported
                .common(ApiVersions::API, ApiVersions::API.versions.1)
                .unwrap_or(0);
            // this client does not encode versions 1 and 2
            let best = if best < 3 { 0 } else { best };
            self.stage = Stage::Versions { again: true };
            let frame = self.in_flight.ask((), &ApiVersions, best, self.deadline);
            return Ok(Next::Send(whole(&frame)));
        }
        if !supported.error.is_none() {
            return Err(Error::Refused {
                what: format!("{}: ApiVersions", self.peer),
                code: supported.error,
            });
        }
        self.supported = supported;
        let Some(sasl) = &self.sasl else {
            return Ok(self.ready(0));
        };
        let request = SaslHandshake {
            mechanism: sasl.mechanism.name(),
        };
        self.stage = Stage::Mechanism;
        self.ask(&request)
    }

    fn mechanism(&mut self, version: i16, body: Bytes) -> Result<Next, Error> {
        let answer = protocol::read::<SaslHandshake>(version, body)
            .map_err(|error| self.malformed("SaslHandshake answer", error))?;
        let Some(sasl) = self.sasl.clone() else {
            return Err(self.unproven("it was not asked for"));
        };
        if !answer.error.is_none() {
            let offered = answer.offered.join(", ");
            return Err(self.unproven(&format!("{}; the broker offers: {offered}", answer.error)));
        }
        let hash = match sasl.mechanism {
            Mechanism::Plain => {
                self.stage = Stage::Plain;
                let message = format!("\0{}\0{}", sasl.username, sasl.password.reveal());
                return self.authenticate(message.into_bytes());
            }
            Mechanism::OauthBearer => {
                self.stage = Stage::Bearer(None);
                return self.authenticate(sasl.password.reveal().as_bytes().to_vec());
            }
            Mechanism::ScramSha256 => Hash::Sha256,
            Mechanism::ScramSha512 => Hash::Sha512,
        };
        let nonce = std::mem::take(&mut self.nonce);
        if nonce.is_empty() {
            // with a known nonce, an old exchange could be replayed
            return Err(self.unproven("this machine gives no random numbers"));
        }
        let (scram, first) = Scram::begin(hash, &sasl.username, sasl.password, nonce);
        self.stage = Stage::ScramFirst(scram);
        self.authenticate(first.into_bytes())
    }

    /// Handles an OAUTHBEARER answer: empty for an accepted token. A rejection has the reason, which the client must
    /// confirm before the broker ends the exchange (RFC 7628, section 3.2.3).
    fn bearer(
        &mut self,
        refused: Option<String>,
        version: i16,
        body: Bytes,
    ) -> Result<Next, Error> {
        let answer =
            self.authenticated(version, body)
                .map_err(|error| match (error, &refused) {
                    (Error::Authentication { reason, .. }, Some(status)) => {
                        self.unproven(&format!("{reason}: {status}"))
                    }
                    (error, _) => error,
                })?;
        if let Some(status) = refused {
            return Err(self.unproven(&status));
        }
        if answer.message.is_empty() {
            return Ok(self.ready(answer.lifetime_ms));
        }
        let status = String::from_utf8_lossy(&answer.message).into_owned();
        self.stage = Stage::Bearer(Some(status));
        self.authenticate(vec![1])
    }

    fn authenticate(&mut self, message: Vec<u8>) -> Result<Next, Error> {
        self.ask(&SaslAuthenticate {
            message: message.into(),
        })
    }

    fn authenticated(&self, version: i16, body: Bytes) -> Result<Authenticated, Error> {
        let answer = protocol::read::<SaslAuthenticate>(version, body)
            .map_err(|error| self.malformed("SaslAuthenticate answer", error))?;
        if answer.error.is_none() {
            return Ok(answer);
        }
        let code = answer.error;
        Err(self.unproven(
            &answer
                .reason
                .map_or_else(|| code.to_string(), |reason| format!("{code}: {reason}")),
        ))
    }

    fn ask<R: Request>(&mut self, request: &R) -> Result<Next, Error> {
        let version = choose(&self.peer, &self.supported, R::API, request.highest())?;
        let frame = self.in_flight.ask((), request, version, self.deadline);
        Ok(Next::Send(whole(&frame)))
    }

    fn ready(&mut self, lifetime_ms: i64) -> Next {
        let lifetime = u64::try_from(lifetime_ms)
            .ok()
            .filter(|millis| *millis > 0)
            .map(Duration::from_millis);
        Next::Ready(Greeted {
            supported: std::mem::take(&mut self.supported),
            lifetime,
        })
    }

    fn malformed(&self, what: &'static str, broken: DecodeError) -> Error {
        Error::Malformed {
            peer: self.peer.clone(),
            what,
            reason: broken.reason,
        }
    }

    fn unproven(&self, reason: &str) -> Error {
        Error::Authentication {
            peer: self.peer.clone(),
            mechanism: self
                .sasl
                .as_ref()
                .map_or("SASL", |sasl| sasl.mechanism.name()),
            reason: reason.to_owned(),
        }
    }
}

/// Joins a frame; the requests of a handshake are small.
fn whole(frame: &[Bytes]) -> Bytes {
    frame.concat().into()
}

/// Returns the version for a request to a broker, or the side that lacks it.
pub(crate) fn choose(
    peer: &str,
    supported: &SupportedApis,
    api: Api,
    highest: i16,
) -> Result<i16, Error> {
    supported
        .common(api, highest)
        .ok_or_else(|| Error::Unsupported {
            peer: peer.to_owned(),
            api: api.name,
            ours: (api.versions.0, highest),
            theirs: supported.apis.get(&api.key).copied(),
        })
}

#[cfg(test)]
mod tests;
