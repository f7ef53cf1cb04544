//! Decoders of broker data, exposed for fuzzing only.

use std::time::Instant;

use bytes::Bytes;

use crate::error::Error;
use crate::handshake::{Handshake, Next};
use crate::properties::{Mechanism, Sasl};
use crate::protocol::{fetch::FetchRequest, metadata::MetadataRequest, read};
use crate::secret::Secret;

/// Returns whether the bytes are the body of a Fetch answer.
#[must_use]
pub fn fetch_answer(version: i16, body: &[u8]) -> bool {
    read::<FetchRequest>(version.clamp(12, 17), Bytes::copy_from_slice(body)).is_ok()
}

/// Returns whether the bytes are the body of a Metadata answer.
#[must_use]
pub fn metadata_answer(version: i16, body: &[u8]) -> bool {
    read::<MetadataRequest>(version.clamp(10, 13), Bytes::copy_from_slice(body)).is_ok()
}

/// Returns whether frames, each with a length of four bytes, complete a handshake with OAUTHBEARER (or SCRAM). Stops at
/// the first malformed frame, as a connection does.
#[must_use]
pub fn handshake(bearer: bool, mut frames: &[u8]) -> bool {
    let sasl = Sasl {
        mechanism: if bearer {
            Mechanism::OauthBearer
        } else {
            Mechanism::ScramSha256
        },
        username: "user".to_owned(),
        password: Secret::new("pencil".to_owned()),
    };
    let now = deadline();
    let (mut handshake, _) = Handshake::begin(
        "broker:1".to_owned(),
        "probe".to_owned(),
        Some(sasl),
        "rOprNGfwEbeRWgbNEkqO".to_owned(),
        now,
    );
    while let Some((size, rest)) = frames.split_first_chunk::<4>() {
        let size = usize::try_from(u32::from_be_bytes(*size)).unwrap_or(usize::MAX);
        let (frame, rest) = rest.split_at(size.min(rest.len()));
        frames = rest;
        match handshake.answer(Bytes::copy_from_slice(frame)) {
            Ok(Next::Send(_)) => {}
            Ok(Next::Ready(_)) => return true,
            Err(error) => {
                assert!(is_told(&error));
                return false;
            }
        }
    }
    false
}

/// Returns whether an error has a message and a fix.
fn is_told(error: &Error) -> bool {
    !error.to_string().is_empty() && !error.fix().is_empty()
}

#[allow(clippy::disallowed_methods)] // a handshake that never waits has no use for it
fn deadline() -> Instant {
    Instant::now()
}
