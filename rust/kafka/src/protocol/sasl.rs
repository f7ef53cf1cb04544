//! `SaslHandshake` and `SaslAuthenticate` (KIP-43, KIP-152, KIP-368).

use bytes::Bytes;

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Names the mechanism.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SaslHandshake {
    pub(crate) mechanism: &'static str,
}

/// The answer to the mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mechanisms {
    pub(crate) error: ErrorCode,
    /// The mechanisms that the broker supports.
    pub(crate) offered: Vec<String>,
}

impl Request for SaslHandshake {
    const API: Api = Api {
        key: 17,
        name: "SaslHandshake",
        versions: (1, 1),
        flexible: i16::MAX,
    };

    type Answer = Mechanisms;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.string(self.mechanism);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Mechanisms, DecodeError> {
        Ok(Mechanisms {
            error: from.error_code()?,
            offered: from.array(2, Reader::string)?,
        })
    }
}

/// One message of the mechanism's exchange. Holds credentials, so it has no `Debug`.
pub(crate) struct SaslAuthenticate {
    pub(crate) message: Bytes,
}

/// The broker's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub(crate) error: ErrorCode,
    pub(crate) reason: Option<String>,
    pub(crate) message: Bytes,
    /// Time after which the broker closes the connection; 0 for never.
    pub(crate) lifetime_ms: i64,
}

impl Request for SaslAuthenticate {
    const API: Api = Api {
        key: 36,
        name: "SaslAuthenticate",
        versions: (0, 2),
        flexible: 2,
    };

    type Answer = Authenticated;

    fn write(&self, version: i16, out: &mut Writer) {
        if version >= 2 {
            out.compact_bytes(&self.message);
        } else {
            out.bytes(&self.message);
        }
    }

    fn read(version: i16, from: &mut Reader) -> Result<Authenticated, DecodeError> {
        let flexible = version >= 2;
        let error = from.error_code()?;
        let reason = if flexible {
            from.nullable_compact_string()?
        } else {
            from.nullable_string()?
        };
        let message = if flexible {
            from.nullable_compact_bytes()?.unwrap_or_default()
        } else {
            from.bytes()?
        };
        let lifetime_ms = if version >= 1 { from.int64()? } else { 0 };
        Ok(Authenticated {
            error,
            reason,
            message,
            lifetime_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use kafka_protocol::messages::{
        SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
        SaslHandshakeResponse,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read};
    use super::{SaslAuthenticate, SaslHandshake};

    #[test]
    fn the_handshake_is_what_kafka_expects() {
        let request: SaslHandshakeRequest = oracle::read(&SaslHandshake { mechanism: "PLAIN" }, 1);
        assert_eq!(request.mechanism.as_str(), "PLAIN");
        let answer = SaslHandshakeResponse::default()
            .with_error_code(33)
            .with_mechanisms(vec![StrBytes::from_static_str("GSSAPI")]);
        let body = oracle::write(&answer, 1);
        let read = read::<SaslHandshake>(1, body.clone()).unwrap();
        assert_eq!(
            (read.error.0, read.offered),
            (33, vec!["GSSAPI".to_owned()])
        );
        oracle::survives_damage::<SaslHandshake>(1, &body);
    }

    #[test]
    fn every_version_of_authenticate_is_what_kafka_expects() {
        for version in 0..=2 {
            let message = Bytes::from_static(b"n,,n=user,r=1");
            let request: SaslAuthenticateRequest = oracle::read(
                &SaslAuthenticate {
                    message: message.clone(),
                },
                version,
            );
            assert_eq!(request.auth_bytes, message);
            let answer = SaslAuthenticateResponse::default()
                .with_error_code(58)
                .with_error_message(Some(StrBytes::from_static_str("no")))
                .with_auth_bytes(message.clone())
                .with_session_lifetime_ms(if version > 0 { 9000 } else { 0 });
            let body = oracle::write(&answer, version);
            let read = read::<SaslAuthenticate>(version, body.clone()).unwrap();
            assert_eq!((read.error.0, read.reason.as_deref()), (58, Some("no")));
            assert_eq!(read.message, message);
            assert_eq!(read.lifetime_ms, if version > 0 { 9000 } else { 0 });
            oracle::survives_damage::<SaslAuthenticate>(version, &body);
        }
    }
}
