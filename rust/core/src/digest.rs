//! A chained content digest per partition: two partitions with equal digests hold equal records in equal order.
//!
//! The digest after record n is `xxh3_64(digest after n-1 as 8 bytes, canonical bytes of record n)`, starting from 0.
//! The canonical bytes are self-delimiting (lengths before bytes, a marker for null), so no two different sequences of
//! records have the same input. An independent check needs only an xxh3 library:
//!
//! ```text
//! digest    8 bytes, big endian
//! timestamp 8 bytes, big endian
//! key       field
//! value     field
//! headers   4 bytes count, then per header: key field, value field
//! field     0xff for null, or 0x00, 8 bytes length, the bytes
//! ```
//!
//! The provenance header is excluded, because it differs between source and target. So are offset, partition and
//! timestamp type, which a mirror may change.

use xxhash_rust::xxh3::xxh3_64;

use crate::header;
use crate::types::RecordRef;

/// A larger scratch buffer is freed after use, so one huge record does not stay in memory.
const KEEP: usize = 64 * 1024;

/// Digest of the records added so far, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u64);

impl Digest {
    /// Adds a record. `scratch` is working memory that callers keep between calls.
    pub fn add(&mut self, record: &RecordRef<'_>, scratch: &mut Vec<u8>) {
        scratch.clear();
        scratch.extend_from_slice(&self.0.to_be_bytes());
        scratch.extend_from_slice(&record.timestamp.to_be_bytes());
        put_field(scratch, record.key);
        put_field(scratch, record.value);
        let ours = |key: &[u8]| key == header::NAME.as_bytes();
        let count = record
            .headers
            .iter()
            .filter(|header| !ours(header.key))
            .count();
        scratch.extend_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
        for header in record.headers.iter().filter(|header| !ours(header.key)) {
            put_field(scratch, Some(header.key));
            put_field(scratch, header.value);
        }
        self.0 = xxh3_64(scratch);
        if scratch.capacity() > KEEP {
            *scratch = Vec::new();
        }
    }

    /// Adds the digest of other records without regard to their order: equal sums are digests of equal sets of records.
    #[must_use]
    pub const fn sum(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Parses a digest of 16 hexadecimal digits; `None` for other text.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        let number = u64::from_str_radix(hex, 16).ok()?;
        (hex.len() == 16).then_some(Self(number))
    }

    /// Returns the digest as a number.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Returns the digest as 16 hexadecimal digits.
    #[must_use]
    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => out.push(0xff),
        Some(bytes) => {
            out.push(0);
            out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;
    use crate::header::NAME;
    use crate::types::{HeaderRef, RecordRef, Written};
    use proptest::prelude::*;

    fn digest(records: &[RecordRef<'_>]) -> String {
        let (mut digest, mut scratch) = (Digest::default(), Vec::new());
        for record in records {
            digest.add(record, &mut scratch);
        }
        digest.hex()
    }

    fn record<'a>(
        key: Option<&'a [u8]>,
        value: Option<&'a [u8]>,
        headers: &'a [HeaderRef<'a>],
    ) -> RecordRef<'a> {
        RecordRef {
            topic: "t",
            partition: 0,
            offset: 0,
            leader_epoch: 0,
            timestamp: 1_700_000_000_000,
            key,
            value,
            headers,
            written: Written::Unknown,
        }
    }

    fn header<'a>(key: &'a str, value: Option<&'a [u8]>) -> HeaderRef<'a> {
        HeaderRef {
            key: key.as_bytes(),
            value,
        }
    }

    #[test]
    fn every_difference_in_content_shows() {
        let variants = [
            digest(&[record(None, None, &[])]),
            digest(&[record(Some(b""), None, &[])]),
            digest(&[record(None, Some(b""), &[])]),
            digest(&[record(Some(b"ab"), Some(b"c"), &[])]),
            digest(&[record(Some(b"a"), Some(b"bc"), &[])]),
            digest(&[record(None, None, &[header("h", None)])]),
            digest(&[record(None, None, &[header("h", Some(b""))])]),
            digest(&[record(
                None,
                None,
                &[header("h", Some(b"1")), header("h", Some(b"2"))],
            )]),
            digest(&[record(
                None,
                None,
                &[header("h", Some(b"2")), header("h", Some(b"1"))],
            )]),
            digest(&[record(None, None, &[]), record(None, None, &[])]),
            digest(&[RecordRef {
                timestamp: -1,
                ..record(None, None, &[])
            }]),
        ];
        let distinct: std::collections::HashSet<_> = variants.iter().collect();
        assert_eq!(distinct.len(), variants.len());
    }

    #[test]
    fn what_a_mirror_may_change_does_not_show() {
        let plain = record(Some(b"k"), Some(b"v"), &[]);
        let moved = RecordRef {
            topic: "east.t",
            partition: 3,
            offset: 99,
            leader_epoch: 5,
            ..plain
        };
        let headers = [header(NAME, Some(b"whatever"))];
        let marked = RecordRef {
            headers: &headers,
            ..plain
        };
        assert_eq!(digest(&[plain]), digest(&[moved]));
        assert_eq!(digest(&[plain]), digest(&[marked]));
    }

    #[test]
    fn the_value_of_a_known_record_never_changes() {
        let headers = [header("h", None)];
        assert_eq!(digest(&[]), "0000000000000000");
        assert_eq!(
            digest(&[record(Some(b"k"), Some(b"v"), &headers)]),
            KNOWN,
            "position records hold this"
        );
    }

    const KNOWN: &str = "d5561d2f10c77208";

    proptest! {
        #[test]
        fn order_matters(
            values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..8), 2..8),
            first: prop::sample::Index,
            second: prop::sample::Index,
        ) {
            let mut swapped = values.clone();
            swapped.swap(first.index(values.len()), second.index(values.len()));
            let of = |values: &[Vec<u8>]| {
                digest(&values.iter().map(|value| record(None, Some(value), &[])).collect::<Vec<_>>())
            };
            prop_assert_eq!(of(&values) == of(&swapped), values == swapped);
        }
    }
}
