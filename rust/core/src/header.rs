//! The provenance header `eomirror.hops`: the cluster that a record was first written to, and all clusters it has
//! passed.
//!
//! # Layout
//!
//! ```text
//! magic    2 bytes   "EM"
//! version  1 byte    1
//! check    4 bytes   crc32c of key and value, big endian
//! origin   text      cluster id the record was first written to
//! topic    text      the topic that this header was written to, on the cluster that holds it now
//! hops     count, then that many texts: every cluster it has passed, the origin first; the mark of the writer, if
//!          there is one, precedes the last of them
//! ```
//!
//! A text is a varint length and UTF-8. Magic, version and check keep their places in every later version. So an older
//! release can tell a newer header that belongs to this record (reject: a guess would cause a loop or a loss) from a
//! header that an application copied or invented (the record is local).
//!
//! # The mark
//!
//! Key, value and topic do not distinguish a record from its copy: an application may read a mirrored record and emit
//! it again, with all headers, to the same topic (a retry, or a redrive of dead letters). The mark ties the header to
//! the batch that the mirror wrote:
//!
//! ```text
//! "@"      1 digit    no cluster id begins with it
//! cluster  6 digits   crc32c of the id of the cluster that the record was written to
//! place    6 digits   crc32c of partition and timestamp
//! producer 1 to 11    producer id of the batch, without leading zeros
//! ```
//!
//! A digit is one of 64 characters. The broker assigns a producer id to a single `transactional.id`, so a batch with
//! another producer id was written by another producer. A reader that does not know producer ids compares the place.
//!
//! A release that does not know marks treats the mark as an unknown cluster. When it writes its own header it keeps the
//! mark and appends its hop. So the mark precedes the last hop only in the header that the marked producer wrote.

use crate::error::Error;
use crate::types::{RecordRef, Written};
use crate::varint::{Reader, put, put_text};

/// Name of the header.
pub const NAME: &str = "eomirror.hops";
/// Version that this release writes, and the only one that it reads.
pub const VERSION: u8 = 1;
/// Maximum length of a cluster id in bytes; Kafka's own have 22.
pub const MAX_CLUSTER_ID: usize = 255;
/// Maximum length of a topic name; Kafka's own limit.
pub const MAX_TOPIC: usize = 249;
/// Maximum number of clusters in a header.
pub const MAX_HOPS: usize = 64;

const MAGIC: [u8; 2] = *b"EM";
const PREFIX: usize = 7;
/// Start of the check.
const CHECK: usize = 3;
/// First character of a mark; no cluster id begins with it.
const MARK: u8 = b'@';
/// Number of digits of a check.
const CHECK_DIGITS: usize = 6;
/// Digits of 6 bits each, as in base64 for URLs.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Provenance of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Cluster id that the record was first written to.
    pub origin: String,
    /// Clusters that the record has passed, in order from the origin.
    pub hops: Vec<String>,
}

/// The writer of a record according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    cluster: u32,
    place: u32,
    producer_id: i64,
}

/// The producer of a lane, which marks its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Writer {
    cluster: u32,
    producer_id: i64,
}

impl Writer {
    /// Returns the writer for a producer id on a cluster; `None` if the id is negative.
    #[must_use]
    pub fn new(cluster: &str, producer_id: i64) -> Option<Self> {
        (producer_id >= 0).then(|| Self {
            cluster: crc32c::crc32c(cluster.as_bytes()),
            producer_id,
        })
    }

    /// Returns the mark for a record of this partition with this timestamp.
    #[must_use]
    pub fn mark(&self, partition: i32, timestamp: i64) -> Mark {
        Mark {
            cluster: self.cluster,
            place: place_check(partition, timestamp),
            producer_id: self.producer_id,
        }
    }
}

impl Mark {
    /// Returns true if `record`, found on `cluster`, is certainly not the one that the mark was written for.
    ///
    /// A mark of another cluster proves nothing: the mirror that brought the record to this cluster also brought the
    /// header.
    #[must_use]
    pub fn is_of_another(&self, cluster: &str, record: &RecordRef<'_>) -> bool {
        self.cluster == crc32c::crc32c(cluster.as_bytes())
            && match record.written {
                Written::By(producer_id) => producer_id != self.producer_id,
                Written::At(timestamp) => place_check(record.partition, timestamp) != self.place,
                Written::Unknown => false,
            }
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 2 * CHECK_DIGITS + 11);
        out.push(MARK);
        out.extend_from_slice(&check_digits(self.cluster));
        out.extend_from_slice(&check_digits(self.place));
        let id = self.producer_id.unsigned_abs();
        let count = 1 + (id | 1).ilog2() / 6;
        out.extend((0..count).rev().map(|place| digit(id >> (6 * place))));
        out
    }

    fn decode(text: &str) -> Option<Self> {
        let (mark, digits) = text.as_bytes().split_first()?;
        let (cluster, digits) = digits.split_at_checked(CHECK_DIGITS)?;
        let (place, id) = digits.split_at_checked(CHECK_DIGITS)?;
        let check = |digits| u32::try_from(number(digits)?).ok();
        let found = Self {
            cluster: check(cluster)?,
            place: check(place)?,
            producer_id: i64::try_from(number(id)?).ok()?,
        };
        // every mark has a single text form
        (*mark == MARK && found.encode() == text.as_bytes()).then_some(found)
    }
}

fn place_check(partition: i32, timestamp: i64) -> u32 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&partition.to_be_bytes());
    bytes[4..].copy_from_slice(&timestamp.to_be_bytes());
    crc32c::crc32c(&bytes)
}

fn check_digits(check: u32) -> [u8; CHECK_DIGITS] {
    let check = u64::from(check);
    [30, 24, 18, 12, 6, 0].map(|shift| digit(check >> shift))
}

#[allow(clippy::cast_possible_truncation)] // 6 bits
const fn digit(bits: u64) -> u8 {
    DIGITS[(bits & 63) as usize]
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 11 {
        return None;
    }
    digits.iter().try_fold(0_u64, |sum, one| {
        let bits = DIGITS.iter().position(|digit| digit == one)?;
        sum.checked_mul(64)?.checked_add(bits as u64)
    })
}

/// Result of reading a provenance header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The header was written for this topic, key and value; the mark identifies the record.
    Ours(Provenance, Option<Mark>),
    /// The header is not a provenance header, or belongs to another record or topic: the record is local.
    Foreign,
    /// The header belongs to this record and has an unknown version.
    UnknownVersion(u8),
}

/// Returns the crc32c of key and value. Null, empty, and bytes moved from key to value all differ.
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
    /// Returns the header's bytes for a record with this `key` and `value` to be written to `topic`.
    ///
    /// The fields must be within the limits of this module; [`crate::loop_guard`] and [`crate::Policy`] ensure this.
    #[must_use]
    pub fn encode(
        &self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        mark: Option<&Mark>,
    ) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + topic.len());
        out.extend_from_slice(&MAGIC);
        out.push(VERSION);
        out.extend_from_slice(&check(key, value).to_be_bytes());
        put_text(&mut out, &self.origin);
        put_text(&mut out, topic);
        let mark = mark.filter(|_| !self.hops.is_empty());
        put(&mut out, self.hops.len() as u64 + u64::from(mark.is_some()));
        for (index, hop) in self.hops.iter().enumerate() {
            if let Some(mark) = mark.filter(|_| index + 1 == self.hops.len()) {
                let text = mark.encode();
                put(&mut out, text.len() as u64);
                out.extend_from_slice(&text);
            }
            put_text(&mut out, hop);
        }
        out
    }
}

/// Bytes of a header, as a template for records that differ only in key, value, partition and timestamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    bytes: Vec<u8>,
    place: Option<usize>,
}

impl Template {
    /// Returns the template for records with `provenance` that `writer` writes to `topic`.
    #[must_use]
    pub fn new(provenance: &Provenance, topic: &str, writer: Option<&Writer>) -> Self {
        let mark = writer.map(|writer| writer.mark(0, 0));
        let bytes = provenance.encode(topic, None, None, mark.as_ref());
        // only the last hop follows the mark
        let behind = provenance.hops.last().map_or(0, |hop| {
            let mut text = Vec::new();
            put_text(&mut text, hop);
            text.len()
        });
        let place = mark.filter(|_| behind > 0).map(|mark| {
            let id_digits = mark.encode().len() - 1 - 2 * CHECK_DIGITS;
            bytes.len() - behind - id_digits - CHECK_DIGITS
        });
        Self { bytes, place }
    }

    /// Writes the header of a record into `out`.
    pub fn write(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        partition: i32,
        timestamp: i64,
        out: &mut Vec<u8>,
    ) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = out.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(CHECK, &check(key, value).to_be_bytes());
        if let Some(at) = self.place {
            put(at, &check_digits(place_check(partition, timestamp)));
        }
    }
}

/// Reads the header of a record found in `topic`. Never fails: unreadable bytes are a foreign header.
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
        Some((provenance, mark, written_to)) if written_to == topic => {
            Reading::Ours(provenance, mark)
        }
        _ => Reading::Foreign,
    }
}

fn body_v1(bytes: &[u8]) -> Option<(Provenance, Option<Mark>, &str)> {
    let mut reader = Reader::new(bytes);
    let origin = reader.text(MAX_CLUSTER_ID)?;
    let topic = reader.text(MAX_TOPIC)?;
    let count = usize::try_from(reader.number()?).ok()?;
    if count > MAX_HOPS || origin.is_empty() {
        return None;
    }
    let mut hops = Vec::with_capacity(count);
    let mut mark = None;
    for index in 0..count {
        let text = reader.text(MAX_CLUSTER_ID)?;
        match Mark::decode(text) {
            Some(found) if index + 2 == count => mark = Some(found),
            // an older release has rewritten the header
            Some(_) => mark = None,
            None => hops.push(text.to_owned()),
        }
    }
    let provenance = Provenance {
        origin: origin.to_owned(),
        hops,
    };
    (reader.remaining() == 0).then_some((provenance, mark, topic))
}

/// Checks a cluster id for use in headers.
pub fn check_cluster_id(what: &'static str, id: &str) -> Result<(), Error> {
    let reason = if id.is_empty() {
        "it is empty"
    } else if id.len() > MAX_CLUSTER_ID {
        "it is longer than 255 bytes"
    } else if id.as_bytes().first() == Some(&MARK) {
        "it begins with @"
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
    use super::{Mark, Provenance, Reading, Template, Writer, check, read};
    use crate::types::{RecordRef, Written};
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
        let bytes = provenance().encode("t", Some(b"k"), Some(b"v"), None);
        assert_eq!(
            read(&bytes, "t", Some(b"k"), Some(b"v")),
            Reading::Ours(provenance(), None)
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

    /// The layout is stored in logs for years, and releases without marks read it as hops.
    #[test]
    fn a_marked_header_has_these_bytes() {
        let mark = Writer::new("MkU3OEVBNTcwNTJENDM2Qg", 4_711)
            .unwrap()
            .mark(3, 1_790_000_000_000);
        let bytes = provenance().encode("t", Some(b"k"), Some(b"v"), Some(&mark));
        let text = b"@Cf7iK7DOFG98BJn";
        let mut expected = provenance().encode("t", Some(b"k"), Some(b"v"), None);
        let hop = expected.split_off(expected.len() - 2);
        let count = expected.len() - 3;
        assert_eq!(expected[count], 2);
        expected[count] = 3;
        expected.push(u8::try_from(text.len()).unwrap());
        expected.extend_from_slice(text);
        expected.extend_from_slice(&hop);
        assert_eq!(bytes, expected, "{}", String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn what_only_resembles_a_mark_is_a_hop() {
        for text in [
            "@",
            "@AAAAAABBBBBB",
            "@AAAAAABBBBBB?",
            "@AAAAAABBBBBBAA",
            "@______AAAAAAB",
        ] {
            assert_eq!(Mark::decode(text), None, "{text}");
        }
        assert!(Mark::decode("@AAAAAABBBBBBA").is_some());
        assert!(super::check_cluster_id("cluster id", "@AAAAAABBBBBBA").is_err());
    }

    #[test]
    fn a_newer_version_is_unknown_only_if_it_belongs_to_the_record() {
        let mut bytes = provenance().encode("t", None, Some(b"v"), None);
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
            writer in proptest::option::of((".{1,20}", 0..=i64::MAX)),
            partition: i32,
            timestamp: i64,
        ) {
            let provenance = Provenance { origin, hops };
            let writer = writer.and_then(|(cluster, id)| Writer::new(&cluster, id));
            let mark = writer.map(|writer| writer.mark(partition, timestamp));
            let (key, value) = (key.as_deref(), value.as_deref());
            let bytes = provenance.encode(&topic, key, value, mark.as_ref());
            let mut filled = vec![1, 2, 3];
            Template::new(&provenance, &topic, writer.as_ref())
                .write(key, value, partition, timestamp, &mut filled);
            prop_assert_eq!(&filled, &bytes);
            let reading = read(&bytes, &topic, key, value);
            let mark = mark.filter(|_| !provenance.hops.is_empty());
            prop_assert_eq!(reading, Reading::Ours(provenance, mark));
        }

        /// Only the record that the mark was written for passes, as far as the reader knows its writer.
        #[test]
        fn a_mark_fits_the_record_that_it_was_written_for(
            id in 0..=i64::MAX, other in -1..=i64::MAX, partition: i32, timestamp: i64, later in 1_i64..1 << 40,
        ) {
            let mark = Writer::new("x", id).unwrap().mark(partition, timestamp);
            let is_of_another = |cluster: &str, written| mark.is_of_another(cluster, &RecordRef {
                topic: "t", partition, offset: 1, leader_epoch: 1, timestamp, key: None, value: None,
                headers: &[], written,
            });
            prop_assert!(!is_of_another("x", Written::By(id)));
            prop_assert!(!is_of_another("x", Written::At(timestamp)));
            prop_assert!(!is_of_another("x", Written::Unknown));
            prop_assert_eq!(is_of_another("x", Written::By(other)), other != id);
            prop_assert!(is_of_another("x", Written::At(timestamp.wrapping_add(later))));
            prop_assert!(!is_of_another("y", Written::By(other)));
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
            let bytes = provenance().encode("t", None, None, None);
            let end = cut.min(bytes.len() - 1);
            prop_assert_eq!(read(&bytes[..end], "t", None, None), Reading::Foreign);
        }
    }
}
