//! librdkafka's property names, as far as they make sense here, in types.
//!
//! One section of the configuration serves both planes. A property that this plane cannot honour is refused by name,
//! so that the caller can take librdkafka and say why; one that cannot matter to it is listed with the reason.

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

/// What a connection and a reader need to know.
#[derive(Debug, Clone)]
pub struct Properties {
    pub(crate) bootstrap: Vec<(String, u16)>,
    pub(crate) tls: Option<Tls>,
    pub(crate) sasl: Option<Sasl>,
    /// Where OAUTHBEARER has its tokens from.
    pub(crate) tokens: Option<Tokens>,
    pub(crate) client_id: String,
    /// Where this client is; empty when nobody said.
    pub(crate) rack: String,
    pub(crate) request_timeout: Duration,
    pub(crate) setup_timeout: Duration,
    pub(crate) reconnect_backoff: Duration,
    pub(crate) reconnect_backoff_max: Duration,
    pub(crate) metadata_refresh: Duration,
    /// While a leader is not known, or what is known is of no use.
    pub(crate) metadata_backoff: BackoffLimits,
    pub(crate) largest_answer: usize,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) keepalive: bool,
    pub(crate) family: Family,
    pub(crate) fetch: FetchSizes,
    ignored: Vec<(String, &'static str)>,
}

/// How much a Fetch asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FetchSizes {
    pub(crate) wait: Duration,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
    pub(crate) partition_bytes: i32,
    pub(crate) error_backoff: Duration,
}

/// Which addresses of a host name are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Any,
    V4,
    V6,
}

/// Material for TLS: text, or where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pem {
    Inline(Secret),
    File(PathBuf),
}

/// Whose certificates are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trust {
    /// What the system trusts.
    System,
    /// These authorities only.
    Authorities(Pem),
}

/// How far the broker's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The chain, and that the certificate is for this host.
    Full,
    /// The chain only (`ssl.endpoint.identification.algorithm: none`).
    Chain,
    /// Nothing (`enable.ssl.certificate.verification: false`).
    Nothing,
}

/// TLS as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) trust: Trust,
    /// Certificate chain and private key of the client.
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) verification: Verification,
}

/// A SASL mechanism that this plane speaks.
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

/// Credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sasl {
    pub(crate) mechanism: Mechanism,
    pub(crate) username: String,
    /// For OAUTHBEARER the whole first message of a handshake, which is made of a new token for each.
    pub(crate) password: Secret,
}

impl Properties {
    /// Takes librdkafka's properties, as a cluster's section and its `consumer` part hold them.
    ///
    /// Everything that is refused is refused at once: [`Error::Unhonoured`] lists all of it. A value that no client
    /// could take is [`Error::BadProperty`], which comes first.
    pub fn parse<I, K, V>(pairs: I) -> Result<Self, Error>
    where
        I: IntoIterator<Item = (K, V)>,
        K: Into<String>,
        V: Into<String>,
    {
        Self::parse_with(pairs, None)
    }

    /// The same, with a source of tokens for `sasl.mechanism: OAUTHBEARER`. Without one, only unsecured tokens can be
    /// had (`enable.sasl.oauthbearer.unsecure.jwt`).
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
        if !given.refusals.is_empty() {
            return Err(Error::Unhonoured {
                refusals: given.refusals,
            });
        }
        given.build(tls, sasl)
    }

    /// Properties that were given and change nothing here, with the reason.
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
