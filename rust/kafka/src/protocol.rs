//! The requests that we speak, one file each: what is asked, what is answered, and in which versions.
//!
//! Schemas: `clients/src/main/resources/common/message/*.json` of Apache Kafka 4.3. The tests hold each of them against
//! an independent implementation.

pub(crate) mod api_versions;
pub(crate) mod describe_producers;
pub(crate) mod describe_transactions;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod list_transactions;
pub(crate) mod metadata;
pub(crate) mod produce;
pub(crate) mod sasl;
pub(crate) mod transaction;

use std::collections::BTreeMap;

use crate::wire::{DecodeError, Reader, Writer};

/// The API key of `ApiVersions`.
const API_VERSIONS: i16 = 18;

/// A kind of request, and how it is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Api {
    /// The API key on the wire.
    pub(crate) key: i16,
    /// Kafka's name.
    pub(crate) name: &'static str,
    /// The lowest and highest version that we speak.
    pub(crate) versions: (i16, i16),
    /// The first version with compact types and tagged fields (KIP-482), in the request.
    pub(crate) flexible: i16,
}

/// A request, and how its answer is read.
pub(crate) trait Request {
    /// What it is.
    const API: Api;

    /// What comes back.
    type Answer;

    /// The highest version that can carry this very request.
    fn highest(&self) -> i16 {
        Self::API.versions.1
    }

    /// The body of a request, after its header.
    fn write(&self, version: i16, out: &mut Writer);

    /// The body of an answer, after its header.
    fn read(version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError>;

    /// How long a broker may hold the answer back because there is no news, in milliseconds.
    fn held_ms(&self) -> i32 {
        0
    }

    /// For how long the broker wants to be left alone (KIP-219), in milliseconds; 0 for not at all.
    fn throttle_ms(answer: &Self::Answer) -> i32;
}

/// Writes a whole frame: length, request header, body. In pieces, so that records are not copied.
pub(crate) fn frame<R: Request>(
    request: &R,
    version: i16,
    correlation: i32,
    client_id: &str,
) -> Vec<bytes::Bytes> {
    let mut out = Writer::default();
    out.int16(R::API.key);
    out.int16(version);
    out.int32(correlation);
    // the client id is a classic string in both header versions, so that a broker can read it before all else
    out.string(client_id);
    if version >= R::API.flexible {
        out.no_tags();
    }
    request.write(version, &mut out);
    out.into_frame()
}

/// Whether an answer's header has tagged fields. `ApiVersions` never has: a client must be able to read it before it
/// knows what the broker speaks (KIP-511).
pub(crate) const fn has_tagged_header(api: Api, version: i16) -> bool {
    version >= api.flexible && api.key != API_VERSIONS
}

/// Reads the body of an answer, and checks that it ends where it should.
pub(crate) fn read<R: Request>(version: i16, body: bytes::Bytes) -> Result<R::Answer, DecodeError> {
    let mut reader = Reader::new(body);
    let answer = R::read(version, &mut reader)?;
    reader.finish()?;
    Ok(answer)
}

/// Which records a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Everything up to the high watermark: open and aborted transactions too. For audits.
    ReadUncommitted,
    /// Up to the last stable offset; aborted transactions are listed, and the reader must leave them out.
    ReadCommitted,
}

impl IsolationLevel {
    pub(crate) const fn wire(self) -> i8 {
        match self {
            Self::ReadUncommitted => 0,
            Self::ReadCommitted => 1,
        }
    }
}

/// The partitions of each topic, as requests name them.
pub(crate) fn by_topic(partitions: &[(&str, i32)]) -> Vec<(String, Vec<i32>)> {
    let mut topics: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        topics.entry(topic).or_default().push(*partition);
    }
    topics
        .into_iter()
        .map(|(topic, partitions)| (topic.to_owned(), partitions))
        .collect()
}

#[cfg(test)]
pub(crate) mod oracle {
    //! The independent implementation of the protocol that ours is held against.

    use bytes::{Bytes, BytesMut};
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::Request;
    use crate::wire::Writer;

    /// What the oracle reads from the body that we write.
    pub(crate) fn read<T: Decodable>(request: &impl Request, version: i16) -> T {
        let mut out = Writer::default();
        request.write(version, &mut out);
        let mut body = out.into_bytes();
        let read = T::decode(&mut body, version).unwrap();
        assert!(body.is_empty(), "{} bytes are left over", body.len());
        read
    }

    /// The body that the oracle writes.
    pub(crate) fn write(answer: &impl Encodable, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        answer.encode(&mut body, version).unwrap();
        body.freeze()
    }

    /// Cuts and flips must give an error or another answer, never a panic.
    pub(crate) fn survives_damage<R: Request>(version: i16, body: &Bytes) {
        for end in 0..body.len() {
            assert!(
                super::read::<R>(version, body.slice(..end)).is_err(),
                "cut at {end}"
            );
        }
        for at in 0..body.len() {
            for value in [0x00, 0x7f, 0x80, 0xff] {
                let mut damaged = body.to_vec();
                damaged[at] = value;
                let _ = super::read::<R>(version, damaged.into());
            }
        }
    }
}
