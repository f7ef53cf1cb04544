//! librdkafka's properties, parsed into types.
//!
//! One configuration serves this client and librdkafka. A property that this client does not support is refused by
//! name, so that the caller can use librdkafka and report the reason. A property without an effect here is listed with
//! a reason.

mod parse;
mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::BackoffLimits;
use crate::error::Error;
use crate::oauth::{TokenSource, Tokens};
use crate::secret::Secret;

use parse::Given;

pub use support::{Disposition, disposition};

/// Settings of connections, readers and producers.
#[derive(Debug, Clone)]
pub struct Properties {
    pub(crate) bootstrap: Vec<(String, u16)>,
    pub(crate) tls: Option<Tls>,
    pub(crate) sasl: Option<Sasl>,
    /// Source of OAUTHBEARER tokens.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) client_id: String,
    /// Location of the client (`client.rack`); empty for none.
    pub(crate) rack: String,
    pub(crate) request_timeout: Duration,
    pub(crate) setup_timeout: Duration,
    pub(crate) reconnect_backoff: Duration,
    pub(crate) reconnect_backoff_max: Duration,
    pub(crate) metadata_refresh: Duration,
    /// Backoff of metadata refreshes.
    pub(crate) metadata_backoff: BackoffLimits,
    pub(crate) largest_answer: usize,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) keepalive: bool,
    pub(crate) family: Family,
    pub(crate) fetch: FetchSizes,
    ignored: Vec<(String, &'static str)>,
}

/// Sizes of Fetch requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchSizes {
    pub(crate) wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
    pub(crate) partition_bytes: i32,
    pub(crate) error_backoff: Duration,
}

/// Address families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

/// TLS material: text, or the path of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    Inline(Secret),
    File(PathBuf),
}

/// Trusted certificate authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The system's authorities.
    System,
    /// Only these authorities.
    Authorities(Pem),
}

/// Extent of certificate verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The chain, and the host name.
    Full,
    /// The chain only (`ssl.endpoint.identification.algorithm: none`).
    Chain,
    /// Nothing (`enable.ssl.certificate.verification: false`).
    Nothing,
}

/// TLS settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) trust: Trust,
    /// Certificate chain and private key of the client.
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) verification: Verification,
}

/// A supported SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
    OauthBearer,
}

impl Mechanism {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OauthBearer => "OAUTHBEARER",
        }
    }
}

/// SASL credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sasl {
    pub(crate) mechanism: Mechanism,
    pub(crate) username: String,
    /// For OAUTHBEARER, the whole first message of a handshake, with a new token each time.
    pub(crate) password: Secret,
}

impl Properties {
    /// Parses librdkafka's properties, as a cluster's section and its `consumer` part hold them.
    ///
    /// Returns [`Error::Unhonoured`] with all unsupported properties. [`Error::BadProperty`], for a value that is
    /// invalid for every client, takes precedence.
    pub fn parse<I, K, V>(pairs: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        Self::parse_with(pairs, None)
    }

    /// Parses properties with a token source for `sasl.mechanism: OAUTHBEARER`. Without one, only unsecured tokens are
    /// available (`enable.sasl.oauthbearer.unsecure.jwt`).
    pub fn parse_with<I, K, V>(
        pairs: I,
        tokens: Option<Arc<dyn TokenSource>>,
    ) -> Result<Self, Error>
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        let mut given = Given::new(tokens.map(Tokens));
        for (name, value) in pairs {
            given.take(name.into(), value.into());
        }
        let tls_wanted;
        let sasl_wanted;
        match given.word("security.protocol", "plaintext").as_str() {
            "plaintext" => (tls_wanted, sasl_wanted) = (false, false),
            "ssl" => (tls_wanted, sasl_wanted) = (true, false),
            "sasl_plaintext" => (tls_wanted, sasl_wanted) = (false, true),
            "sasl_ssl" => (tls_wanted, sasl_wanted) = (true, true),
            _ => {
                return Err(bad(
                    "security.protocol",
                    "use plaintext, ssl, sasl_plaintext or sasl_ssl",
                ));
            }
        }
        let tls = if tls_wanted { Some(given.tls()?) } else { None };
        let sasl = if sasl_wanted { given.sasl()? } else { None };
        if !given.unsupported.is_empty() {
            return Err(Error::Unhonoured {
                unsupported: given.unsupported,
            });
        }
        given.build(tls, sasl)
    }

    /// Returns the given properties that have no effect here, with reasons.
    #[must_use]
    pub fn ignored(&self) -> &[(String, &'static str)] {
        &self.ignored
    }
}

fn bad(property: &str, reason: impl Into<String>) -> Error {
    Error::BadProperty {
        property: property.to_owned(),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests;
