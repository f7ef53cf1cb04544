//! OAUTHBEARER (RFC 7628, KIP-255): token sources, and the messages that carry a token.
//!
//! A [`TokenSource`] is called when a connection is opened, and again after four fifths of a token's lifetime, as in
//! librdkafka. The broker limits the time of an authenticated connection (KIP-368); it is replaced before that, with a
//! newer token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::clock::Clock;
use crate::secret::Secret;

/// A token and its lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The token, as in an `Authorization: Bearer` header.
    pub value: Secret,
    /// Time until it expires; None when unknown, and then each connection requests a new one.
    pub lifetime: Option<Duration>,
    /// SASL extensions (KIP-342), such as `logicalCluster`.
    pub extensions: Vec<(String, String)>,
}

/// A source of tokens.
pub trait TokenSource: Send + Sync {
    /// Returns a valid token. May take a while; the error must not contain a secret.
    fn token(&self) -> Result<Token, String>;
}

/// A token source as a property.
#[derive(Clone)]
pub(crate) struct Tokens(pub(crate) Arc<dyn TokenSource>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

/// Returns the client's first message (RFC 7628, section 3.1). The answer to an accepted token is empty.
pub(crate) fn first_message(token: &Token) -> Result<Secret, &'static str> {
    let value = token.value.reveal();
    let visible = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if !visible(value) {
        return Err("a token has no blanks and no control characters");
    }
    let mut message = format!("n,,\x01auth=Bearer {value}");
    for (name, value) in &token.extensions {
        let named = name.bytes().all(|byte| byte.is_ascii_alphabetic());
        if name.is_empty() || !named || name == "auth" {
            return Err("an extension's name has letters only, and is not auth");
        }
        let text = value.bytes();
        if !text
            .into_iter()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n'))
        {
            return Err("an extension's value is plain text");
        }
        message.extend(["\x01", name, "=", value]);
    }
    message.push_str("\x01\x01");
    Ok(Secret::new(message))
}

/// Unsigned tokens (RFC 7515, appendix A.5) for test brokers: `sasl.oauthbearer.config` with
/// `enable.sasl.oauthbearer.unsecure.jwt`.
pub(crate) struct UnsecuredTokens {
    principal_claim: String,
    principal: String,
    scope_claim: String,
    scope: Vec<String>,
    life: Duration,
    extensions: Vec<(String, String)>,
    clock: Arc<dyn Clock>,
}

impl UnsecuredTokens {
    /// Parses librdkafka's syntax: `principal=NAME`, and optionally `principalClaimName`, `scopeClaimName`, `scope`
    /// (names separated by commas), `lifeSeconds` and `extension_NAME`, separated by blanks.
    pub(crate) fn parse(text: &str, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let mut tokens = Self {
            principal_claim: "sub".to_owned(),
            principal: String::new(),
            scope_claim: "scope".to_owned(),
            scope: Vec::new(),
            life: Duration::from_secs(3600),
            extensions: Vec::new(),
            clock,
        };
        for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is no name=value"))?;
            let plain = value
                .chars()
                .all(|each| each != '"' && each != '\\' && !each.is_control());
            if value.is_empty() || !plain {
                return Err(format!(
                    "{name} needs a value without quotes and backslashes"
                ));
            }
            match name {
                "principalClaimName" => value.clone_into(&mut tokens.principal_claim),
                "principal" => value.clone_into(&mut tokens.principal),
                "scopeClaimName" => value.clone_into(&mut tokens.scope_claim),
                "scope" => tokens.scope = value.split(',').map(str::to_owned).collect(),
                "lifeSeconds" => {
                    let seconds = value.parse().ok().filter(|seconds| *seconds > 0);
                    let seconds = seconds.ok_or("lifeSeconds is a whole number above 0")?;
                    tokens.life = Duration::from_secs(seconds);
                }
                _ => match name.strip_prefix("extension_") {
                    Some(extension) => {
                        let pair = (extension.to_owned(), value.to_owned());
                        tokens.extensions.push(pair);
                    }
                    None => return Err(format!("it has no {name}")),
                },
            }
        }
        if tokens.principal.is_empty() {
            return Err("it needs principal=NAME".to_owned());
        }
        Ok(tokens)
    }
}

impl TokenSource for UnsecuredTokens {
    fn token(&self) -> Result<Token, String> {
        let now = self.clock.unix_time();
        let ends = now.saturating_add(self.life);
        let mut claims = format!(
            r#"{{"{}":"{}","iat":{}.{:03},"exp":{}.{:03}"#,
            self.principal_claim,
            self.principal,
            now.as_secs(),
            now.subsec_millis(),
            ends.as_secs(),
            ends.subsec_millis(),
        );
        if !self.scope.is_empty() {
            let scope = self.scope.join("\",\"");
            claims.extend([",\"", &self.scope_claim, "\":[\"", &scope, "\"]"]);
        }
        claims.push('}');
        let [header, claims] =
            [r#"{"alg":"none"}"#, &claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        Ok(Token {
            value: Secret::new(format!("{header}.{claims}.")),
            lifetime: Some(self.life),
            extensions: self.extensions.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::{Token, TokenSource as _, UnsecuredTokens, first_message};
    use crate::clock::Clock;
    use crate::secret::Secret;

    struct Fixed;

    impl Clock for Fixed {
        fn now(&self) -> Instant {
            Instant::now()
        }

        fn unix_time(&self) -> Duration {
            Duration::from_millis(1_700_000_000_250)
        }
    }

    fn parse(text: &str) -> Result<UnsecuredTokens, String> {
        UnsecuredTokens::parse(text, Arc::new(Fixed))
    }

    fn token(value: &str, extensions: &[(&str, &str)]) -> Token {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Token {
            value: Secret::new(value.to_owned()),
            lifetime: None,
            extensions: extensions.iter().map(owned).collect(),
        }
    }

    #[test]
    fn the_first_message_is_what_the_rfc_shows() {
        let message = first_message(&token("vF9dft4qmT", &[("port", "143"), ("host", "a b")]));
        assert_eq!(
            message.unwrap().reveal(),
            "n,,\x01auth=Bearer vF9dft4qmT\x01port=143\x01host=a b\x01\x01"
        );
        for wrong in [
            token("", &[]),
            token("a b", &[]),
            token("a\x01auth=b", &[]),
            token("a", &[("auth", "b")]),
            token("a", &[("k1", "b")]),
            token("a", &[("k", "b\x01")]),
        ] {
            assert!(first_message(&wrong).is_err());
        }
    }

    #[test]
    fn an_unsecured_token_says_who_when_and_what_for() {
        let text = "principal=alice scope=read,write lifeSeconds=60 extension_traceId=7";
        let token = parse(text).unwrap().token().unwrap();
        let parts: Vec<&str> = token.value.reveal().split('.').collect();
        let [header, claims, ""] = parts[..] else {
            panic!("three parts, the last one empty");
        };
        let decoded = |part| String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
        assert_eq!(decoded(header), r#"{"alg":"none"}"#);
        assert_eq!(
            decoded(claims),
            r#"{"sub":"alice","iat":1700000000.250,"exp":1700000060.250,"scope":["read","write"]}"#
        );
        assert_eq!(token.lifetime, Some(Duration::from_secs(60)));
        assert_eq!(token.extensions, [("traceId".to_owned(), "7".to_owned())]);
    }

    #[test]
    fn wrong_settings_are_named() {
        for (text, reason) in [
            ("", "it needs principal=NAME"),
            ("principal", "\"principal\" is no name=value"),
            ("principal=a\"b", "principal needs a value without quotes"),
            ("principal=a lifeSeconds=0", "lifeSeconds is a whole number"),
            ("principal=a role=b", "it has no role"),
        ] {
            let error = parse(text).err().unwrap();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
