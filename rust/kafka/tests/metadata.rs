//! The fetcher's behaviour while leaders are unknown, and when the client has to return to its bootstrap servers.
//! Brokers are scripted threads.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

mod support;

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_kafka::{
    Assignment, Client, Clock as _, Fetcher, IsolationLevel, Limits, OffsetSpec, Outcome,
    Properties, SystemClock,
};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, ListOffsetsResponse, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use support::{Asked, framed};
use uuid::Uuid;

const TOPIC_ID: Uuid = Uuid::from_bytes([7; 16]);
const REBOOTSTRAP_REQUIRED: i16 = 129;
const NOT_LEADER: i16 = 6;

/// The broker's answers.
#[derive(Default)]
struct Script {
    metadata: Mutex<MetadataResponse>,
    /// Error code of each fetched partition.
    code: Mutex<i16>,
    /// Number of Metadata requests.
    asked: AtomicUsize,
}

impl Script {
    fn says(&self, metadata: MetadataResponse) {
        *self.metadata.lock().unwrap() = metadata;
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Starts a broker and returns its port.
fn broker() -> (u16, Arc<Script>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = Arc::new(Script::default());
    let played = Arc::clone(&script);
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let script = Arc::clone(&played);
            thread::spawn(move || {
                while let Some(asked) = support::next(&mut stream) {
                    if stream.write_all(&answer(&script, asked)).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, script)
}

fn answer(script: &Script, asked: Asked) -> Bytes {
    let Asked {
        key,
        version,
        correlation,
        mut body,
    } = asked;
    match key {
        18 => {
            let apis = support::versions(&[(1, 4, 17), (2, 6, 10), (3, 0, 13), (18, 0, 4)]);
            framed(correlation, false, &apis, version)
        }
        2 => {
            let partition = |index, code| {
                ListOffsetsPartitionResponse::default()
                    .with_partition_index(index)
                    .with_error_code(code)
                    .with_offset(90)
            };
            // of an unrequested partition, too
            let topic = ListOffsetsTopicResponse::default()
                .with_name(TopicName(StrBytes::from_static_str("t")))
                .with_partitions(vec![partition(0, 0), partition(7, 0), partition(8, 42)]);
            let answer = ListOffsetsResponse::default().with_topics(vec![topic]);
            framed(correlation, true, &answer, version)
        }
        3 => {
            script.asked.fetch_add(1, Ordering::SeqCst);
            let metadata = script.metadata.lock().unwrap().clone();
            framed(correlation, true, &metadata, version)
        }
        _ => {
            let fetch = FetchRequest::decode(&mut body, version).unwrap();
            let partition = PartitionData::default()
                .with_partition_index(fetch.topics[0].partitions[0].partition)
                .with_error_code(*script.code.lock().unwrap())
                .with_high_watermark(1000)
                .with_records(Some(Bytes::from_static(b"a batch")));
            let topic = FetchableTopicResponse::default()
                .with_topic_id(TOPIC_ID)
                .with_partitions(vec![partition]);
            let answer = FetchResponse::default().with_responses(vec![topic]);
            framed(correlation, true, &answer, version)
        }
    }
}

fn fetcher(port: u16) -> Fetcher {
    let server = format!("127.0.0.1:{port}");
    let pairs = [
        ("bootstrap.servers", server.as_str()),
        ("fetch.wait.max.ms", "50"),
        ("fetch.error.backoff.ms", "20"),
    ];
    let properties = Properties::parse(pairs).unwrap();
    let limits = Limits::from_properties(&properties);
    let client = Client::connect(properties, Arc::new(SystemClock), soon()).unwrap();
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadUncommitted, limits);
    fetcher.assign(&[Assignment::new("t", 0, 5)]);
    fetcher
}

fn soon() -> Instant {
    SystemClock.now() + Duration::from_secs(20)
}

fn gives_records(fetcher: &mut Fetcher) {
    let polled = fetcher.poll(soon()).unwrap();
    assert!(
        matches!(polled[0].outcome, Outcome::Records(_)),
        "{polled:?}"
    );
}

#[test]
fn who_leads_is_asked_for_less_and_less_often_while_no_broker_does() {
    let (port, script) = broker();
    let mut headless = support::metadata(port, TOPIC_ID, &[0]);
    headless.topics[0].partitions[0].leader_id = BrokerId(-1);
    script.says(headless);
    let mut fetcher = fetcher(port);
    let polled = fetcher
        .poll(SystemClock.now() + Duration::from_secs(3))
        .unwrap();
    assert!(polled.is_empty());
    // one of connect(), and pauses of 0.1, 0.2, 0.4, 0.8 and 1 s between the others, spread by a fifth
    let asked = script.asked();
    assert!((5..=9).contains(&asked), "{asked} times in 3 s");
    script.says(support::metadata(port, TOPIC_ID, &[0]));
    gives_records(&mut fetcher);
}

#[test]
fn where_the_leader_is_is_asked_again_when_no_broker_has_said_it() {
    let (port, script) = broker();
    let mut nowhere = support::metadata(port, TOPIC_ID, &[0]);
    nowhere.topics[0].partitions[0].leader_id = BrokerId(7);
    script.says(nowhere);
    let mut fetcher = fetcher(port);
    let polled = fetcher
        .poll(SystemClock.now() + Duration::from_millis(500))
        .unwrap();
    assert!(polled.is_empty());
    assert_eq!(
        fetcher.stalled()[0].reason,
        "the address of its leader, broker 7, is not known"
    );
    script.says(support::metadata(port, TOPIC_ID, &[0]));
    let polled = fetcher
        .poll(SystemClock.now() + Duration::from_secs(5))
        .unwrap();
    assert_eq!(polled.len(), 1, "it was not asked again");
}

#[test]
fn a_broker_that_knows_of_no_broker_yet_is_not_believed() {
    let (port, script) = broker();
    script.says(MetadataResponse::default());
    let told = Arc::clone(&script);
    thread::spawn(move || {
        while told.asked() < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        told.says(support::metadata(port, TOPIC_ID, &[0]));
    });
    let mut fetcher = fetcher(port);
    assert_eq!(fetcher.client().cached_metadata().brokers().len(), 1);
    gives_records(&mut fetcher);
    // the known metadata is not lost
    script.says(MetadataResponse::default());
    let error = fetcher
        .client()
        .metadata(&[], SystemClock.now() + Duration::from_millis(300))
        .unwrap_err();
    assert!(error.to_string().contains("knows of no broker"), "{error}");
    assert_eq!(
        fetcher.client().cached_metadata().leader("t", 0),
        Some((1, 3))
    );
}

#[test]
fn an_answer_about_what_was_not_asked_is_passed_over() {
    let (port, script) = broker();
    script.says(support::metadata(port, TOPIC_ID, &[0]));
    let mut fetcher = fetcher(port);
    let listed = fetcher.client().list_offsets(
        IsolationLevel::ReadCommitted,
        OffsetSpec::Latest,
        &[("t", 0)],
        soon(),
    );
    let partitions: Vec<i32> = listed.unwrap().iter().map(|one| one.partition).collect();
    assert_eq!(partitions, [0]);
}

#[test]
fn why_an_offset_is_not_told_is_named() {
    let (port, script) = broker();
    script.says(support::metadata(port, TOPIC_ID, &[0, 1]));
    let mut fetcher = fetcher(port);
    let mut why = |partition| {
        let listed = fetcher.client().list_offsets(
            IsolationLevel::ReadCommitted,
            OffsetSpec::Latest,
            &[("t", partition)],
            SystemClock.now() + Duration::from_millis(300),
        );
        listed.unwrap_err().to_string()
    };
    let error = why(1);
    assert!(
        error.ends_with("broker 1 did not answer for t-1"),
        "{error}"
    );
    let error = why(2);
    assert!(
        error.contains("t-2: the topic has no such partition"),
        "{error}"
    );
    let mut forbidden = support::metadata(port, Uuid::nil(), &[]);
    forbidden.topics[0].error_code = 29;
    script.says(forbidden);
    let error = why(1);
    assert!(error.contains("TOPIC_AUTHORIZATION_FAILED"), "{error}");
}

#[test]
fn a_rebootstrap_request_returns_to_the_bootstrap_servers() {
    let (front, door) = broker();
    let (old, leaving) = broker();
    let (new, staying) = broker();
    door.says(support::metadata(old, TOPIC_ID, &[0]));
    leaving.says(support::metadata(old, TOPIC_ID, &[0]));
    let mut fetcher = fetcher(front);
    gives_records(&mut fetcher);
    // the cluster has moved, and the former brokers say so
    let gone = MetadataResponse::default().with_error_code(REBOOTSTRAP_REQUIRED);
    leaving.says(gone.clone());
    *leaving.code.lock().unwrap() = NOT_LEADER;
    door.says(gone);
    fetcher.advance(&eomirror_kafka::TopicPartition::new("t", 0), 6, 3);
    let polled = fetcher
        .poll(SystemClock.now() + Duration::from_secs(3))
        .unwrap();
    assert!(polled.is_empty(), "{polled:?}");
    let asked = leaving.asked() + door.asked();
    assert!(asked <= 14, "{asked} times in 3 s");
    let before = leaving.asked();
    door.says(support::metadata(new, TOPIC_ID, &[0]));
    staying.says(support::metadata(new, TOPIC_ID, &[0]));
    gives_records(&mut fetcher);
    assert_eq!(leaving.asked(), before, "no request went back there");
}

#[test]
fn a_call_begins_anew_as_well() {
    let (front, door) = broker();
    door.says(MetadataResponse::default().with_error_code(REBOOTSTRAP_REQUIRED));
    let told = Arc::clone(&door);
    thread::spawn(move || {
        while told.asked() < 2 {
            thread::sleep(Duration::from_millis(5));
        }
        told.says(support::metadata(front, TOPIC_ID, &[0]));
    });
    gives_records(&mut fetcher(front));
}
