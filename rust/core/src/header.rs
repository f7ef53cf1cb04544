//! The provenance header `eomirror.hops`: where a record was first written and which clusters it has passed.
//!
//! # Layout
//!
//! ```text
//! magic    2 bytes   "EM"
//! version  1 byte    1
//! check    4 bytes   crc32c of key and value, big endian
//! origin   text      cluster id the record was first written to
//! topic    text      the topic that this header was written to, on the cluster that holds it now
//! hops     count, then that many texts: every cluster it has passed, the origin first
//! ```
//!
//! A text is a varint length and UTF-8. Magic, version and check keep their places in every later version, so that
//! an older release can tell "a header of a newer eomirror that belongs to this record" (refuse: to guess would be
//! a loop or a loss) from "an application copied a header, or invented one" (the record is local).

use crate::error::Error;
use crate::varint::{Reader, put, put_text};

/// Name of the header.
pub const NAME: &str = "eomirror.hops";
/// The version that this release writes, and the only one that it reads.
pub const VERSION: u8 = 1;
/// Longest cluster id in bytes; Kafka's own have 22.
pub const MAX_CLUSTER_ID: usize = 255;
/// Longest topic name; Kafka's own limit.
pub const MAX_TOPIC: usize = 249;
/// Most clusters that a header may name.
pub const MAX_HOPS: usize = 64;

const MAGIC: [u8; 2] = *b"EM";
const PREFIX: usize = 7;

/// A record's provenance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Cluster id that the record was first written to.
    pub origin: String,
    /// Clusters that the record has passed, the origin first.
    pub hops: Vec<String>,
}

/// What a header's bytes say about the record that carries them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The header belongs to this record.
    Ours(Provenance),
    /// The header is none of ours, or belongs to another record or topic: the record is local.
    Foreign,
    /// The header belongs to this record and is of a version that we do not know.
    UnknownVersion(u8),
}

/// crc32c of key and value; null, empty, and bytes that move from key to value all differ.
#[must_use]
pub fn check(key: Option<&[u8]>, value: Option<&[u8]>) -> u32 {
    let crc = crc32c::crc32c_append(0, &frame(key));
    let crc = crc32c::crc32c_append(crc, key.unwrap_or_default());
    let crc = crc32c::crc32c_append(crc, &frame(value));
    crc32c::crc32c_append(crc, value.unwrap_or_default())
}

fn frame(field: Option<&[u8]>) -> [u8; 9] {
    let mut frame = [0; 9];
    if let Some(bytes) = field {
        frame[0] = 1;
        frame[1..].copy_from_slice(&(bytes.len() as u64).to_be_bytes());
    }
    frame
}

impl Provenance {
    /// The header's bytes for a record with this `key` and `value` that is about to be written to `topic`.
    ///
    /// The fields must be within the limits of this module; [`crate::loop_guard`] and [`crate::Policy`] see to it.
    #[must_use]
    pub fn encode(&self, topic: &str, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + topic.len());
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&check(key, value).to_be_bytes());
        put_text(&mut out, &self.origin);
        put_text(&mut out, topic);
        put(&mut out, self.hops.len() as u64);
        for hop in &self.hops {
            put_text(&mut out, hop);
        }
        out
    }
}

/// Reads the header of a record that was found in `topic`. Never fails: what is not readable is not ours.
#[must_use]
pub fn read(bytes: &[u8], topic: &str, key: Option<&[u8]>, value: Option<&[u8]>) -> Reading {
    let Some((prefix, body)) = bytes.split_at_checked(PREFIX) else {
        return Reading::Foreign;
    };
    if prefix[..2] != MAGIC || prefix[3..] != check(key, value).to_be_bytes() {
        return Reading::Foreign;
    }
    if prefix[2] != VERSION {
        return Reading::UnknownVersion(prefix[2]);
    }
    match body_v1(body) {
        Some((provenance, written_to)) if written_to == topic => Reading::Ours(provenance),
        _ => Reading::Foreign,
    }
}

fn body_v1(bytes: &[u8]) -> Option<(Provenance, &str)> {
    let mut reader = Reader::new(bytes);
    let origin = reader.text(MAX_CLUSTER_ID)?;
    let topic = reader.text(MAX_TOPIC)?;
    let count = usize::try_from(reader.number()?).ok()?;
    if count > MAX_HOPS || origin.is_empty() {
        return None;
    }
    let mut hops = Vec::with_capacity(count);
    for _ in 0..count {
        hops.push(reader.text(MAX_CLUSTER_ID)?.to_owned());
    }
    let provenance = Provenance {
        origin: origin.to_owned(),
        hops,
    };
    (reader.remaining() == 0).then_some((provenance, topic))
}

/// Checks a cluster id that is to stand in headers.
pub fn check_cluster_id(what: &'static str, id: &str) -> Result<(), Error> {
    let reason = if id.is_empty() {
        "it is empty"
    } else if id.len() > MAX_CLUSTER_ID {
        "it is longer than 255 bytes"
    } else {
        return Ok(());
    };
    Err(Error::BadName {
        what,
        value: id.chars().take(40).collect(),
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::{Provenance, Reading, check, read};
    use proptest::prelude::*;

    fn provenance() -> Provenance {
        Provenance {
            origin: "a".into(),
            hops: vec!["a".into(), "b".into()],
        }
    }

    #[test]
    fn null_empty_and_shifted_fields_have_different_checks() {
        let fields: [Option<&[u8]>; 4] = [None, Some(b""), Some(b"a"), Some(b"\0")];
        let mut seen = std::collections::HashSet::new();
        for key in fields {
            for value in fields {
                assert!(seen.insert(check(key, value)), "{key:?} {value:?}");
            }
        }
    }

    #[test]
    fn a_copied_header_is_foreign() {
        let bytes = provenance().encode("t", Some(b"k"), Some(b"v"));
        assert_eq!(
            read(&bytes, "t", Some(b"k"), Some(b"v")),
            Reading::Ours(provenance())
        );
        assert_eq!(
            read(&bytes, "u", Some(b"k"), Some(b"v")),
            Reading::Foreign,
            "another topic"
        );
        assert_eq!(
            read(&bytes, "t", Some(b"k"), Some(b"w")),
            Reading::Foreign,
            "another value"
        );
        assert_eq!(
            read(&bytes, "t", None, Some(b"v")),
            Reading::Foreign,
            "another key"
        );
    }

    #[test]
    fn a_newer_version_is_unknown_only_where_it_belongs_to_the_record() {
        let mut bytes = provenance().encode("t", None, Some(b"v"));
        bytes[2] = 2;
        assert_eq!(
            read(&bytes, "t", None, Some(b"v")),
            Reading::UnknownVersion(2)
        );
        assert_eq!(read(&bytes, "t", None, Some(b"w")), Reading::Foreign);
    }

    proptest! {
        #[test]
        fn a_header_survives_a_round_trip(
            origin in "[a-zA-Z0-9_-]{1,22}",
            hops in proptest::collection::vec("\\PC{0,30}", 0..8),
            topic in "[a-zA-Z0-9._-]{1,249}",
            key in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
            value in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        ) {
            let provenance = Provenance { origin, hops };
            let bytes = provenance.encode(&topic, key.as_deref(), value.as_deref());
            let reading = read(&bytes, &topic, key.as_deref(), value.as_deref());
            prop_assert_eq!(reading, Reading::Ours(provenance));
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut framed = b"EM\x01".to_vec();
            framed.extend_from_slice(&check(None, None).to_be_bytes());
            framed.extend_from_slice(&bytes);
            let _ = read(&bytes, "t", None, None);
            let _ = read(&framed, "t", None, None);
        }

        #[test]
        fn a_cut_header_is_foreign(cut in 0_usize..16) {
            let bytes = provenance().encode("t", None, None);
            let end = cut.min(bytes.len() - 1);
            prop_assert_eq!(read(&bytes[..end], "t", None, None), Reading::Foreign);
        }
    }
}
