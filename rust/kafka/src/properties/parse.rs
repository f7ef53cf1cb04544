//! Parses property values.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{
    Disposition, Family, FetchSizes, Mechanism, Pem, Properties, Sasl, Tls, Trust, Verification,
    bad, disposition,
};
use crate::backoff::BackoffLimits;
use crate::clock::SystemClock;
use crate::error::{Error, UnsupportedProperty};
use crate::oauth::{Tokens, UnsecuredTokens};
use crate::secret::Secret;

/// The given values, by their canonical names.
#[derive(Default)]
pub(super) struct Given {
    values: BTreeMap<&'static str, String>,
    pub(super) unsupported: Vec<UnsupportedProperty>,
    ignored: Vec<(String, &'static str)>,
    tokens: Option<Tokens>,
}

impl Given {
    pub(super) fn new(tokens: Option<Tokens>) -> Self {
        Self {
            tokens,
            ..Self::default()
        }
    }

    pub(super) fn take(&mut self, name: String, value: String) {
        match disposition(&name) {
            Disposition::Honoured { name } => {
                self.values.insert(name, value);
            }
            Disposition::Ignored { reason } => self.ignored.push((name, reason)),
            Disposition::Refused { reason } => self.refuse(&name, reason),
        }
    }

    fn refuse(&mut self, property: &str, reason: impl Into<String>) {
        self.unsupported.push(UnsupportedProperty {
            property: property.to_owned(),
            reason: reason.into(),
        });
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.values
            .get(name)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    }

    pub(super) fn word(&self, name: &str, default: &str) -> String {
        self.text(name).unwrap_or(default).to_ascii_lowercase()
    }

    fn flag(&self, name: &str, default: bool) -> Result<bool, Error> {
        match self
            .word(name, if default { "true" } else { "false" })
            .as_str()
        {
            "true" | "t" | "1" => Ok(true),
            "false" | "f" | "0" => Ok(false),
            _ => Err(bad(name, "use true or false")),
        }
    }

    fn number(&self, name: &str, default: i32, low: i32, high: i32) -> Result<i32, Error> {
        let Some(text) = self.text(name) else {
            return Ok(default);
        };
        text.parse()
            .ok()
            .filter(|number| (low..=high).contains(number))
            .ok_or_else(|| bad(name, format!("use a whole number from {low} to {high}")))
    }

    fn millis(&self, name: &str, default: i32, low: i32, high: i32) -> Result<Duration, Error> {
        let number = self.number(name, default, low, high)?;
        Ok(Duration::from_millis(u64::try_from(number).unwrap_or(0)))
    }

    /// Returns the size of a socket buffer; None for the system's default.
    fn buffer(&self, name: &str) -> Result<Option<usize>, Error> {
        let size = self.number(name, 0, 0, 100_000_000)?;
        Ok(usize::try_from(size).ok().filter(|size| *size > 0))
    }

    fn pem(&self, inline: &str, file: &str) -> Option<Pem> {
        self.text(inline)
            .map(|text| Pem::Inline(Secret::new(text.to_owned())))
            .or_else(|| self.text(file).map(|path| Pem::File(path.into())))
    }

    pub(super) fn tls(&mut self) -> Result<Tls, Error> {
        let verify = self.flag("enable.ssl.certificate.verification", true)?;
        let verification = match self
            .word("ssl.endpoint.identification.algorithm", "https")
            .as_str()
        {
            _ if !verify => Verification::Nothing,
            "https" => Verification::Full,
            "none" => Verification::Chain,
            _ => {
                return Err(bad(
                    "ssl.endpoint.identification.algorithm",
                    "use https or none",
                ));
            }
        };
        let trust = match self.pem("ssl.ca.pem", "ssl.ca.location") {
            Some(Pem::File(path)) if path.as_os_str() == "probe" => Trust::System,
            Some(pem) => Trust::Authorities(pem),
            None => Trust::System,
        };
        let certificate = self.pem("ssl.certificate.pem", "ssl.certificate.location");
        let key = self.pem("ssl.key.pem", "ssl.key.location");
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(bad(
                    "ssl.key.location",
                    "a certificate needs its private key",
                ));
            }
            (None, Some(_)) => {
                return Err(bad(
                    "ssl.certificate.location",
                    "a private key needs its certificate",
                ));
            }
        };
        Ok(Tls {
            trust,
            identity,
            verification,
        })
    }

    /// Returns the credentials; None when the mechanism was refused.
    pub(super) fn sasl(&mut self) -> Result<Option<Sasl>, Error> {
        let mechanism = match self.word("sasl.mechanism", "gssapi").as_str() {
            "plain" => Mechanism::Plain,
            "scram-sha-256" => Mechanism::ScramSha256,
            "scram-sha-512" => Mechanism::ScramSha512,
            "oauthbearer" => return self.bearer(),
            other => {
                let reason = match other {
                    "gssapi" => {
                        "Kerberos (librdkafka's default) needs system libraries that only librdkafka has"
                    }
                    _ => "it speaks PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER",
                };
                self.refuse("sasl.mechanism", reason);
                return Ok(None);
            }
        };
        let username = self.text("sasl.username").unwrap_or_default().to_owned();
        if username.is_empty() {
            return Err(bad(
                "sasl.username",
                format!("{} needs it", mechanism.name()),
            ));
        }
        // not trimmed: blanks may be part of it
        let password = self
            .values
            .get("sasl.password")
            .cloned()
            .unwrap_or_default();
        if password.is_empty() {
            return Err(bad(
                "sasl.password",
                format!("{} needs it", mechanism.name()),
            ));
        }
        Ok(Some(Sasl {
            mechanism,
            username,
            password: Secret::new(password),
        }))
    }

    /// Determines the token source. Returns None when none is supported.
    fn bearer(&mut self) -> Result<Option<Sasl>, Error> {
        if self.tokens.is_none() {
            if self.word("sasl.oauthbearer.method", "default") == "oidc" {
                let reason = "it has no HTTPS client to ask for tokens";
                self.refuse("sasl.oauthbearer.method", reason);
                return Ok(None);
            }
            if !self.flag("enable.sasl.oauthbearer.unsecure.jwt", false)? {
                self.refuse("sasl.mechanism", "it has no token source");
                return Ok(None);
            }
            let text = self.text("sasl.oauthbearer.config").unwrap_or_default();
            let unsecured = UnsecuredTokens::parse(text, Arc::new(SystemClock))
                .map_err(|reason| bad("sasl.oauthbearer.config", reason))?;
            self.tokens = Some(Tokens(Arc::new(unsecured)));
        }
        Ok(Some(Sasl {
            mechanism: Mechanism::OauthBearer,
            username: String::new(),
            password: Secret::new(String::new()),
        }))
    }

    /// Returns the backoff of metadata refreshes, as in librdkafka.
    fn metadata_backoff(&self) -> Result<BackoffLimits, Error> {
        let retry = self.millis("retry.backoff.ms", 100, 1, 300_000)?;
        let fast = self.millis("topic.metadata.refresh.fast.interval.ms", 100, 1, 60_000)?;
        let told = self.text("topic.metadata.refresh.fast.interval.ms");
        Ok(BackoffLimits {
            first: told.map_or(retry, |_| fast),
            longest: self.millis("retry.backoff.max.ms", 1000, 1, 300_000)?,
        })
    }

    pub(super) fn build(self, tls: Option<Tls>, sasl: Option<Sasl>) -> Result<Properties, Error> {
        let max_bytes = self.number("fetch.max.bytes", 52_428_800, 0, 2_147_483_135)?;
        let largest_answer =
            self.number("receive.message.max.bytes", 100_000_000, 1000, i32::MAX)?;
        if largest_answer < max_bytes.saturating_add(512) {
            return Err(bad(
                "receive.message.max.bytes",
                "it must be at least fetch.max.bytes + 512",
            ));
        }
        let family = match self.word("broker.address.family", "any").as_str() {
            "any" => Family::Any,
            "v4" => Family::V4,
            "v6" => Family::V6,
            _ => return Err(bad("broker.address.family", "use any, v4 or v6")),
        };
        let client_id = self.text("client.id").unwrap_or(crate::NAME).to_owned();
        if client_id.len() > 1000 {
            return Err(bad("client.id", "use at most 1000 characters"));
        }
        Ok(Properties {
            bootstrap: bootstrap(self.text("bootstrap.servers").unwrap_or_default())?,
            tls,
            sasl,
            tokens: self.tokens.clone(),
            client_id,
            rack: self.text("client.rack").unwrap_or_default().to_owned(),
            request_timeout: self.millis("socket.timeout.ms", 60_000, 10, 300_000)?,
            setup_timeout: self.millis(
                "socket.connection.setup.timeout.ms",
                30_000,
                1000,
                i32::MAX,
            )?,
            reconnect_backoff: self.millis("reconnect.backoff.ms", 100, 0, 3_600_000)?,
            reconnect_backoff_max: self.millis("reconnect.backoff.max.ms", 10_000, 0, 3_600_000)?,
            metadata_refresh: self.millis(
                "topic.metadata.refresh.interval.ms",
                300_000,
                10,
                3_600_000,
            )?,
            metadata_backoff: self.metadata_backoff()?,
            largest_answer: usize::try_from(largest_answer).unwrap_or(0),
            send_buffer: self.buffer("socket.send.buffer.bytes")?,
            receive_buffer: self.buffer("socket.receive.buffer.bytes")?,
            keepalive: self.flag("socket.keepalive.enable", false)?,
            family,
            fetch: FetchSizes {
                wait: self.millis("fetch.wait.max.ms", 500, 0, 300_000)?,
                min_bytes: self.number("fetch.min.bytes", 1, 1, 100_000_000)?,
                max_bytes,
                partition_bytes: self.number(
                    "fetch.message.max.bytes",
                    1_048_576,
                    1,
                    1_000_000_000,
                )?,
                error_backoff: self.millis("fetch.error.backoff.ms", 500, 0, 300_000)?,
            },
            ignored: self.ignored,
        })
    }
}

/// Parses host:port pairs, separated by commas. A protocol prefix (`SASL_SSL://`) is ignored, as in librdkafka.
fn bootstrap(text: &str) -> Result<Vec<(String, u16)>, Error> {
    let refuse = |entry: &str| bad("bootstrap.servers", format!("{entry:?} is no host:port"));
    let mut servers = Vec::new();
    for entry in text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let address = entry
            .split_once("://")
            .map_or(entry, |(_, address)| address);
        let (host, port) = match address.rsplit_once(':') {
            // an IPv6 address without a port ends in a colon and digits too, so it must be in brackets
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => (host, port),
            Some(_) => return Err(refuse(entry)),
            None => (address, "9092"),
        };
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() => servers.push((host.to_owned(), port)),
            _ => return Err(refuse(entry)),
        }
    }
    if servers.is_empty() {
        return Err(bad("bootstrap.servers", "it names no broker"));
    }
    Ok(servers)
}
