//! Frames of a scripted broker, encoded by the independent implementation of the protocol. Tests of the crates include
//! this file, too.

use std::io::Read as _;
use std::net::TcpStream;

use bytes::{BufMut as _, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, BrokerId, MetadataResponse, RequestHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, Encodable, StrBytes};
use uuid::Uuid;

/// The common parts of a request.
pub(crate) struct Asked {
    pub(crate) key: i16,
    pub(crate) version: i16,
    pub(crate) correlation: i32,
    pub(crate) body: Bytes,
}

/// Returns the next request; None when the connection has ended.
pub(crate) fn next(stream: &mut TcpStream) -> Option<Asked> {
    let mut size = [0; 4];
    stream.read_exact(&mut size).ok()?;
    let mut request = vec![0; usize::try_from(u32::from_be_bytes(size)).ok()?];
    stream.read_exact(&mut request).ok()?;
    let mut body = Bytes::from(request);
    let key = i16::from_be_bytes([body[0], body[1]]);
    let version = i16::from_be_bytes([body[2], body[3]]);
    // SaslHandshake is older than flexible headers
    let header = RequestHeader::decode(&mut body, if key == 17 { 1 } else { 2 }).unwrap();
    Some(Asked {
        key,
        version,
        correlation: header.correlation_id,
        body,
    })
}

/// Returns a whole answer; `tagged` says whether its header has tagged fields.
pub(crate) fn framed(correlation: i32, tagged: bool, body: &impl Encodable, version: i16) -> Bytes {
    let mut answer = BytesMut::new();
    answer.put_i32(correlation);
    if tagged {
        answer.put_u8(0);
    }
    body.encode(&mut answer, version).unwrap();
    let mut frame = BytesMut::new();
    frame.put_u32(u32::try_from(answer.len()).unwrap());
    frame.put(answer);
    frame.freeze()
}

/// Returns an answer to `ApiVersions`: key, lowest and highest version of each request.
pub(crate) fn versions(apis: &[(i16, i16, i16)]) -> ApiVersionsResponse {
    let apis = apis.iter().map(|(key, low, high)| {
        ApiVersion::default()
            .with_api_key(*key)
            .with_min_version(*low)
            .with_max_version(*high)
    });
    ApiVersionsResponse::default().with_api_keys(apis.collect())
}

/// Returns metadata of a cluster of one broker, number 1 on this port, which leads these partitions of topic `t` in
/// epoch 3.
pub(crate) fn metadata(port: u16, topic_id: Uuid, partitions: &[i32]) -> MetadataResponse {
    let partitions = partitions.iter().map(|index| {
        MetadataResponsePartition::default()
            .with_partition_index(*index)
            .with_leader_id(BrokerId(1))
            .with_leader_epoch(3)
    });
    let topic = MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str("t"))))
        .with_topic_id(topic_id)
        .with_partitions(partitions.collect());
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(1))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port.into());
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_topics(vec![topic])
}
