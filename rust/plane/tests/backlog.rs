//! The memory of a lane whose target accepts nothing.
//!
//! Source and target are scripted threads.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

#[path = "../../kafka/tests/support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use eomirror_batch::{BatchWriter, Codec, Stamp};
use eomirror_core::HeaderRef;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Target, TopicPolicy};
use eomirror_kafka::{Clock as _, ProducerSettings, Properties, SystemClock, TopicPartition};
use eomirror_plane::lane::{History, Lane, Route, Settings, Start};
use kafka_protocol::messages::api_versions_response::FinalizedFeatureKey;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, FindCoordinatorResponse, InitProducerIdResponse,
    ProduceRequest, ProduceResponse, ProducerId,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use support::{Asked, framed};
use uuid::Uuid;

const TOPIC: Uuid = Uuid::from_bytes([7; 16]);
const MIB: usize = 1024 * 1024;
/// The producer whose transaction in the source was aborted.
const ABORTED: i64 = 5;
/// Number of the source's answers, of two batches each.
const ANSWERS: i64 = 60;

/// A cluster of one broker.
#[derive(Default)]
struct Cluster {
    /// Number of Fetch requests answered with records.
    answers: AtomicUsize,
    /// It acknowledges Produce requests.
    takes: AtomicBool,
}

impl Cluster {
    fn start(self: &Arc<Self>) -> Properties {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cluster = Arc::clone(self);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let cluster = Arc::clone(&cluster);
                thread::spawn(move || {
                    while let Some(asked) = support::next(&mut stream) {
                        if stream.write_all(&cluster.answer(asked, port)).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Properties::parse([("bootstrap.servers", format!("127.0.0.1:{port}"))]).unwrap()
    }

    fn answer(&self, asked: Asked, port: u16) -> Bytes {
        let Asked {
            key,
            version,
            correlation,
            mut body,
        } = asked;
        match key {
            0 => {
                while !self.takes.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
                let request = ProduceRequest::decode(&mut body, version).unwrap();
                assert_eq!(request.topic_data[0].topic_id, TOPIC);
                // offsets do not matter here
                let partition = PartitionProduceResponse::default();
                let topic = TopicProduceResponse::default()
                    .with_topic_id(TOPIC)
                    .with_partition_responses(vec![partition]);
                let answer = ProduceResponse::default().with_responses(vec![topic]);
                framed(correlation, true, &answer, version)
            }
            1 => {
                let request = FetchRequest::decode(&mut body, version).unwrap();
                let topic = request.topics.first();
                let offset = topic.map_or(i64::MAX, |topic| topic.partitions[0].fetch_offset);
                if offset >= 2 * ANSWERS {
                    thread::sleep(Duration::from_secs(60));
                }
                self.answers.fetch_add(1, Ordering::Relaxed);
                framed(correlation, true, &fetched(offset), version)
            }
            3 => {
                let metadata = support::metadata(port, TOPIC, &[0]);
                framed(correlation, true, &metadata, version)
            }
            10 => {
                let coordinator = Coordinator::default()
                    .with_node_id(BrokerId(1))
                    .with_host(StrBytes::from_static_str("127.0.0.1"))
                    .with_port(port.into());
                let found = FindCoordinatorResponse::default().with_coordinators(vec![coordinator]);
                framed(correlation, true, &found, version)
            }
            18 => {
                let feature = FinalizedFeatureKey::default()
                    .with_name(StrBytes::from_static_str("transaction.version"))
                    .with_max_version_level(2)
                    .with_min_version_level(2);
                let apis = [(0, 3, 13), (1, 4, 17), (3, 0, 13), (10, 0, 6)];
                let versions = support::versions(&[&apis[..], &[(18, 0, 4), (22, 0, 6)]].concat())
                    .with_finalized_features_epoch(1)
                    .with_finalized_features(vec![feature]);
                framed(correlation, false, &versions, version)
            }
            22 => {
                let given = InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(7))
                    .with_producer_epoch(3);
                framed(correlation, true, &given, version)
            }
            _ => panic!("no request should be {key}"),
        }
    }
}

/// Returns a mirrored record, and nearly a megabyte of dropped ones.
fn fetched(offset: i64) -> FetchResponse {
    let committed = batch(offset, &[1; 10], &Stamp::NONE);
    let stamp = Stamp {
        producer_id: ABORTED,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
    };
    let aborted = batch(offset + 1, &vec![2; MIB - 1000], &stamp);
    let transaction = AbortedTransaction::default()
        .with_producer_id(ProducerId(ABORTED))
        .with_first_offset(1);
    let partition = PartitionData::default()
        .with_high_watermark(2 * ANSWERS)
        .with_last_stable_offset(2 * ANSWERS)
        .with_aborted_transactions(Some(vec![transaction]))
        .with_records(Some([committed, aborted].concat().into()));
    let topic = FetchableTopicResponse::default()
        .with_topic_id(TOPIC)
        .with_partitions(vec![partition]);
    FetchResponse::default().with_responses(vec![topic])
}

fn batch(offset: i64, value: &[u8], stamp: &Stamp) -> Vec<u8> {
    let mut writer = BatchWriter::new(Codec::None);
    let headers = std::iter::empty::<HeaderRef<'_>>();
    writer.add(1, None, Some(value), headers).unwrap();
    let mut batch = Vec::new();
    writer.finish(stamp, &mut batch).unwrap();
    batch[..8].copy_from_slice(&offset.to_be_bytes());
    batch
}

/// Returns a lane with an open transaction that reads from offset 0, with limits of about a megabyte.
fn lane(source: Properties, target: Properties) -> Lane {
    let mut producer = ProducerSettings::new("id", &target);
    producer.budget = MIB;
    let mut settings = Settings::new(source, target, producer);
    settings.fetch_bytes = MIB as u64;
    let mut lane = Lane::new(settings, Arc::new(SystemClock)).unwrap();
    let guard = LoopGuard::new("S", "T", None, false).unwrap();
    lane.route(Route {
        policy: TopicPolicy::new("t", "t", guard, false, HashSet::new()).unwrap(),
        target: Target::default(),
        target_id: None,
    });
    let soon = SystemClock.now() + Duration::from_secs(20);
    lane.begin_open().unwrap();
    lane.open(soon).unwrap().unwrap();
    lane.start(&[Start {
        partition: TopicPartition::new("t", 0),
        offset: 0,
        leader_epoch: None,
        epoch_offset: None,
        topic_id: None,
        history: History::default(),
    }])
    .unwrap();
    assert!(lane.await_records(soon, None).unwrap());
    lane.begin(soon).unwrap().unwrap();
    lane
}

#[test]
fn a_stalled_target_bounds_the_memory_of_source_answers() {
    let (source, target) = (Arc::new(Cluster::default()), Arc::new(Cluster::default()));
    let mut lane = lane(source.start(), target.start());

    let pumped = lane
        .pump(SystemClock.now() + Duration::from_secs(3), u64::MAX)
        .unwrap();

    assert!(!pumped.drained && !pumped.full, "{pumped:?}");
    // a megabyte in flight, three in memory, and one being received
    let answers = source.answers.load(Ordering::Relaxed);
    assert!((3..=6).contains(&answers), "{answers} answers are held");

    target.takes.store(true, Ordering::Relaxed);
    let mut records = pumped.records;
    let until = SystemClock.now() + Duration::from_secs(60);
    while records < ANSWERS.unsigned_abs() {
        assert!(SystemClock.now() < until, "{records} records");
        let until = SystemClock.now() + Duration::from_secs(1);
        records += lane.pump(until, u64::MAX).unwrap().records;
    }
}
