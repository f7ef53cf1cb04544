//! The supported requests, one file each: request, answer and versions.
//!
//! Schemas: `clients/src/main/resources/common/message/*.json` of Apache Kafka 4.3. The tests compare each of them with
//! an independent implementation.

pub(crate) mod api_versions;
pub(crate) mod client_quotas;
pub(crate) mod delete_topics;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_transactions;
pub(crate) mod fetch;
pub(crate) mod list_offsets;
pub(crate) mod list_transactions;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod produce;
pub(crate) mod rights;
pub(crate) mod sasl;
pub(crate) mod transaction;

use std::collections::BTreeMap;

use crate::topic::TopicId;
use crate::wire::{DecodeError, Reader, Writer};

/// The API key of `ApiVersions`.
const API_VERSIONS: i16 = 18;

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Api {
    /// The API key on the wire.
    pub(crate) key: i16,
    /// Kafka's name.
    pub(crate) name: &'static str,
    /// Lowest and highest supported version.
    pub(crate) versions: (i16, i16),
    /// The first request version with compact types and tagged fields (KIP-482).
    pub(crate) flexible: i16,
}

/// A request, and the decoder of its answer.
pub(crate) trait Request {
    const API: Api;

    type Answer;

    /// Returns the highest version that can encode this request.
    fn highest(&self) -> i16 {
        Self::API.versions.1
    }

    /// Writes the body of a request, after its header and up to its tagged fields.
    fn write(&self, version: i16, out: &mut Writer);

    /// Reads the body of an answer, after its header and up to its tagged fields.
    fn read(version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError>;

    /// Reads a tagged field of an answer's body.
    fn read_tagged(_: &mut Self::Answer, _tag: u32, _: &mut Reader) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Returns the time in ms that a broker may hold the answer back.
    fn held_ms(&self) -> i32 {
        0
    }
}

/// Encodes a whole frame: length, request header, body. The result has pieces, so that records are not copied.
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
    // the client id is a classic string in both header versions, so that a broker can read it first
    out.string(client_id);
    if version >= R::API.flexible {
        out.no_tags();
    }
    write_body(request, version, &mut out);
    out.into_frame()
}

fn write_body<R: Request>(request: &R, version: i16, out: &mut Writer) {
    request.write(version, out);
    if version >= R::API.flexible {
        out.no_tags();
    }
}

/// Returns whether an answer's header has tagged fields. That of `ApiVersions` never has: a client reads it before it
/// knows the broker's versions (KIP-511).
pub(crate) const fn has_tagged_header(api: Api, version: i16) -> bool {
    version >= api.flexible && api.key != API_VERSIONS
}

/// Reads the body of an answer, and checks that no bytes are left.
pub(crate) fn read<R: Request>(version: i16, body: bytes::Bytes) -> Result<R::Answer, DecodeError> {
    read_throttled::<R>(version, body).map(|(answer, _)| answer)
}

/// Reads the body of an answer, and the pause in ms that the broker requests (KIP-219).
pub(crate) fn read_throttled<R: Request>(
    version: i16,
    body: bytes::Bytes,
) -> Result<(R::Answer, i32), DecodeError> {
    let mut reader = Reader::new(body);
    let mut answer = R::read(version, &mut reader)?;
    if version >= R::API.flexible {
        reader.tags(|tag, field| R::read_tagged(&mut answer, tag, field))?;
    }
    let throttle_ms = reader.throttle_ms();
    reader.finish()?;
    Ok((answer, throttle_ms))
}

/// The last version of Fetch and Produce in which topics go by name (KIP-516).
const BY_NAME: i16 = 12;

fn write_topic(version: i16, name: &str, id: TopicId, out: &mut Writer) {
    if version <= BY_NAME {
        out.compact_string(name);
    } else {
        out.topic_id(id);
    }
}

fn read_topic(version: i16, from: &mut Reader) -> Result<(String, TopicId), DecodeError> {
    if version <= BY_NAME {
        Ok((from.compact_string()?, TopicId::NONE))
    } else {
        Ok((String::new(), from.topic_id()?))
    }
}

/// The records that a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Everything up to the high watermark, including open and aborted transactions. For audits.
    ReadUncommitted,
    /// Everything up to the last stable offset. Answers list aborted transactions, which the reader must skip.
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

/// Groups partitions by topic.
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
    //! The independent implementation of the protocol, as a reference.

    use bytes::{Bytes, BytesMut};
    use kafka_protocol::protocol::{Decodable, Encodable};

    use super::Request;
    use crate::wire::Writer;

    /// Returns what the reference decodes from our encoding.
    pub(crate) fn read<T: Decodable>(request: &impl Request, version: i16) -> T {
        let mut out = Writer::default();
        super::write_body(request, version, &mut out);
        let mut body = out.into_bytes();
        let read = T::decode(&mut body, version).unwrap();
        assert!(body.is_empty(), "{} bytes are left over", body.len());
        read
    }

    /// Returns the reference's encoding.
    pub(crate) fn write(answer: &impl Encodable, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        answer.encode(&mut body, version).unwrap();
        body.freeze()
    }

    /// Checks that truncated and flipped bytes give an error or another answer, and never a panic.
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
