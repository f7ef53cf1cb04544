//! The fetcher's reaction to brokers that throttle, become unresponsive, or die in the middle of an answer.
//!
//! The broker is a scripted thread, because a real one does these things at random. It uses the independent
//! implementation of the protocol that the unit tests use.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

mod support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_kafka::{
    Assignment, Client, Clock as _, Error, FetchedPartition, Fetcher, IsolationLevel, Limits,
    LogBounds, Outcome, Properties, Secret, Stop, SystemClock, Token, TokenSource,
};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::{
    ApiVersionsResponse, FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    SaslAuthenticateResponse, SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use support::{Asked, framed};
use uuid::Uuid;

/// The broker's reaction to a Fetch.
#[derive(Clone, Copy)]
enum Reply {
    /// Records, and a requested pause in ms.
    Records { throttle_ms: i32 },
    /// An error code for the partition.
    Code(i16),
    /// No answer, ever.
    Silence,
    /// Half an answer, then the end of the connection.
    Half,
    /// The answer to a request that was never sent.
    Stray,
}

/// A Fetch as the broker saw it.
struct Seen {
    at: Instant,
    version: i16,
    offset: i64,
    leader_epoch: i32,
    /// Number of its connection, in the order of opening.
    connection: usize,
}

struct Broker {
    port: u16,
    seen: Receiver<Seen>,
}

/// Properties of the broker.
#[derive(Clone, Copy)]
struct Nature {
    fetch_versions: (i16, i16),
    topic_id: Uuid,
    /// Validity of credentials.
    lifetime_ms: i64,
}

const MODERN: Nature = Nature {
    fetch_versions: (4, 17),
    topic_id: Uuid::from_bytes([7; 16]),
    lifetime_ms: 0,
};

impl Broker {
    /// A broker that follows `script` with every Fetch, and repeats its last line.
    fn start(nature: Nature, script: &'static [Reply]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, seen) = channel();
        let turn = Arc::new(Mutex::new(0));
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().flatten().enumerate() {
                let (sender, turn) = (sender.clone(), Arc::clone(&turn));
                let place = (connection, port);
                thread::spawn(move || serve(stream, place, nature, script, &turn, &sender));
            }
        });
        Self { port, seen }
    }

    fn seen(&self) -> Seen {
        self.seen.recv_timeout(Duration::from_secs(20)).unwrap()
    }
}

/// Ends with the connection, or with the test.
fn serve(
    mut stream: TcpStream,
    (connection, port): (usize, u16),
    nature: Nature,
    script: &[Reply],
    turn: &Mutex<usize>,
    sender: &Sender<Seen>,
) -> Option<()> {
    loop {
        let Asked {
            key,
            version,
            correlation,
            body: mut request,
        } = support::next(&mut stream)?;
        let answer = match key {
            18 => framed(correlation, false, &versions(nature), version),
            2 => framed(correlation, true, &listed(&mut request, version), version),
            3 => {
                let answer = support::metadata(port, nature.topic_id, &[0]);
                framed(correlation, true, &answer, version)
            }
            17 => framed(
                correlation,
                false,
                &SaslHandshakeResponse::default(),
                version,
            ),
            36 => {
                let answer = SaslAuthenticateResponse::default()
                    .with_session_lifetime_ms(nature.lifetime_ms);
                framed(correlation, true, &answer, version)
            }
            _ => {
                let fetch = FetchRequest::decode(&mut request, version).unwrap();
                let asked = &fetch.topics[0].partitions[0];
                let seen = Seen {
                    at: Instant::now(),
                    version,
                    offset: asked.fetch_offset,
                    leader_epoch: asked.current_leader_epoch,
                    connection,
                };
                sender.send(seen).ok()?;
                let mut turn = turn.lock().unwrap();
                let reply = script[(*turn).min(script.len() - 1)];
                *turn += 1;
                drop(turn);
                let (throttle_ms, code) = match reply {
                    Reply::Records { throttle_ms } => (throttle_ms, 0),
                    Reply::Code(code) => (0, code),
                    Reply::Stray => (0, 0),
                    Reply::Silence => continue,
                    Reply::Half => {
                        let whole =
                            framed(correlation, true, &fetched(nature, version, 0, 0), version);
                        stream.write_all(&whole[..whole.len() / 2]).ok()?;
                        return None;
                    }
                };
                let answer = fetched(nature, version, throttle_ms, code);
                let astray = i32::from(matches!(reply, Reply::Stray));
                framed(correlation + astray, true, &answer, version)
            }
        };
        stream.write_all(&answer).ok()?;
    }
}

fn versions(nature: Nature) -> ApiVersionsResponse {
    let (low, high) = nature.fetch_versions;
    support::versions(&[
        (1, low, high),
        (2, 6, 10),
        (3, 0, 13),
        (17, 0, 1),
        (18, 0, 4),
        (36, 0, 2),
    ])
}

/// Returns the bounds of the log.
fn listed(request: &mut Bytes, version: i16) -> ListOffsetsResponse {
    let asked = ListOffsetsRequest::decode(request, version).unwrap();
    let [topic] = &asked.topics[..] else {
        panic!("one topic was expected: {asked:?}");
    };
    let offset = match topic.partitions[0].timestamp {
        -2 => 40,
        _ => 90,
    };
    let partition = ListOffsetsPartitionResponse::default().with_offset(offset);
    let topic = ListOffsetsTopicResponse::default()
        .with_name(topic.name.clone())
        .with_partitions(vec![partition]);
    ListOffsetsResponse::default().with_topics(vec![topic])
}

fn fetched(nature: Nature, version: i16, throttle_ms: i32, code: i16) -> FetchResponse {
    let partition = PartitionData::default()
        .with_error_code(code)
        .with_high_watermark(1000)
        .with_records(Some(Bytes::from_static(b"a batch")));
    let mut topic = FetchableTopicResponse::default().with_partitions(vec![partition]);
    if version >= 13 {
        topic = topic.with_topic_id(nature.topic_id);
    } else {
        topic = topic.with_topic(TopicName(StrBytes::from_static_str("t")));
    }
    FetchResponse::default()
        .with_throttle_time_ms(throttle_ms)
        .with_responses(vec![topic])
}

/// Returns a fetcher of partition 0 from offset 5, with this `socket.timeout.ms`.
fn fetcher(port: u16, timeout_ms: &str) -> Fetcher {
    fetcher_with(port, timeout_ms, &[])
}

fn fetcher_with(port: u16, timeout_ms: &str, more: &[(&str, &str)]) -> Fetcher {
    let server = format!("127.0.0.1:{port}");
    let mut pairs = vec![
        ("bootstrap.servers", server.as_str()),
        ("socket.timeout.ms", timeout_ms),
        ("fetch.wait.max.ms", "50"),
        ("fetch.error.backoff.ms", "20"),
    ];
    pairs.extend(more);
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

fn one(polled: &[FetchedPartition]) -> &FetchedPartition {
    let [one] = polled else {
        panic!("one partition was expected: {polled:?}");
    };
    let Outcome::Records(records) = &one.outcome else {
        panic!("no records: {one:?}");
    };
    assert_eq!(&records.records[..], b"a batch");
    one
}

#[test]
fn a_broker_that_asks_to_be_left_alone_is_left_alone() {
    let broker = Broker::start(MODERN, &[Reply::Records { throttle_ms: 400 }]);
    let mut fetcher = fetcher(broker.port, "60000");
    let polled = fetcher.poll(soon()).unwrap();
    assert!(fetcher.advance(&one(&polled).partition, 6, 3));
    one(&fetcher.poll(soon()).unwrap());
    let (first, second) = (broker.seen(), broker.seen());
    assert_eq!((first.offset, second.offset), (5, 6));
    let pause = second.at - first.at;
    assert!(pause >= Duration::from_millis(400), "{pause:?}");
    let throttled = fetcher.network().throttled();
    assert_eq!(throttled.answers, 2);
    assert_eq!(throttled.time, Duration::from_millis(800));
}

#[test]
fn a_position_outside_of_the_log_stops_with_the_logs_bounds() {
    let broker = Broker::start(MODERN, &[Reply::Code(1)]);
    let mut fetcher = fetcher(broker.port, "60000");
    let polled = fetcher.poll(soon()).unwrap();
    let log = Some(LogBounds { start: 40, end: 90 });
    assert_eq!(
        polled[0].outcome,
        Outcome::Stopped(Stop::OutOfRange { log })
    );
}

#[test]
fn an_unresponsive_broker_is_asked_again_for_the_same() {
    let script = &[Reply::Silence, Reply::Records { throttle_ms: 0 }];
    let broker = Broker::start(MODERN, script);
    let mut fetcher = fetcher(broker.port, "200");
    assert_eq!(one(&fetcher.poll(soon()).unwrap()).offset, 5);
    assert_eq!((broker.seen().offset, broker.seen().offset), (5, 5));
}

#[test]
fn an_answer_that_is_cut_off_is_asked_for_again() {
    let script = &[Reply::Half, Reply::Half, Reply::Records { throttle_ms: 0 }];
    let broker = Broker::start(MODERN, script);
    let mut fetcher = fetcher(broker.port, "60000");
    assert_eq!(one(&fetcher.poll(soon()).unwrap()).offset, 5);
    assert_eq!(
        [
            broker.seen().offset,
            broker.seen().offset,
            broker.seen().offset
        ],
        [5; 3]
    );
    assert!(fetcher.stalled().is_empty());
}

#[test]
fn what_got_the_answer_to_another_request_is_asked_again() {
    let script = &[Reply::Stray, Reply::Records { throttle_ms: 0 }];
    let broker = Broker::start(MODERN, script);
    let mut fetcher = fetcher(broker.port, "60000");
    let until = soon();
    let polled = loop {
        match fetcher.poll(until) {
            Ok(polled) => break polled,
            // reported until the broker is asked again, because an operator has to repair such a broker
            Err(error) => assert!(
                error.to_string().ends_with("answers another request"),
                "{error}"
            ),
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(one(&polled).offset, 5);
    let (first, second) = (broker.seen(), broker.seen());
    assert!(second.connection > first.connection);
}

#[test]
fn a_leader_that_denies_leading_is_believed_for_a_while() {
    let script = &[
        Reply::Code(6),
        Reply::Code(75),
        Reply::Records { throttle_ms: 0 },
    ];
    let broker = Broker::start(MODERN, script);
    let mut fetcher = fetcher(broker.port, "60000");
    assert_eq!(one(&fetcher.poll(soon()).unwrap()).offset, 5);
    assert_eq!(broker.seen().leader_epoch, 3);
}

#[test]
fn why_nothing_comes_can_be_seen() {
    let broker = Broker::start(MODERN, &[Reply::Code(78)]);
    let mut fetcher = fetcher(broker.port, "60000");
    let deadline = SystemClock.now() + Duration::from_millis(300);
    assert!(fetcher.poll(deadline).unwrap().is_empty());
    assert!(SystemClock.now() >= deadline);
    let delays = fetcher.stalled();
    assert_eq!(delays[0].reason, "OFFSET_NOT_AVAILABLE (78)");
    assert!(delays[0].since < deadline);
    assert!(
        broker.seen().at < deadline && broker.seen().at < deadline,
        "it was asked again"
    );
}

#[test]
fn topics_go_by_name_where_they_have_no_id() {
    let nature = Nature {
        topic_id: Uuid::nil(),
        ..MODERN
    };
    let broker = Broker::start(nature, &[Reply::Records { throttle_ms: 0 }]);
    one(&fetcher(broker.port, "60000").poll(soon()).unwrap());
    assert_eq!(broker.seen().version, 12);
    let broker = Broker::start(MODERN, &[Reply::Records { throttle_ms: 0 }]);
    one(&fetcher(broker.port, "60000").poll(soon()).unwrap());
    assert_eq!(broker.seen().version, 17);
}

#[test]
fn a_broker_that_is_too_old_is_named() {
    let nature = Nature {
        fetch_versions: (0, 11),
        ..MODERN
    };
    let broker = Broker::start(nature, &[Reply::Silence]);
    let error = fetcher(broker.port, "60000").poll(soon()).unwrap_err();
    let expected = Error::Unsupported {
        peer: format!("127.0.0.1:{}", broker.port),
        api: "Fetch",
        ours: (12, 17),
        theirs: Some((0, 11)),
    };
    assert_eq!(error, expected);
}

#[test]
fn a_connection_is_replaced_before_its_credentials_expire() {
    let nature = Nature {
        lifetime_ms: 1000,
        ..MODERN
    };
    let broker = Broker::start(nature, &[Reply::Records { throttle_ms: 0 }]);
    let login = [
        ("security.protocol", "sasl_plaintext"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "user"),
        ("sasl.password", "pencil"),
    ];
    let mut fetcher = fetcher_with(broker.port, "60000", &login);
    let started = Instant::now();
    let mut seen: Vec<Seen> = Vec::new();
    while seen.len() < 2 || seen[seen.len() - 2].connection == seen[seen.len() - 1].connection {
        let polled = fetcher.poll(soon()).unwrap();
        let batch = one(&polled);
        fetcher.advance(&batch.partition, batch.offset + 1, 3);
        seen.push(broker.seen());
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "it was never replaced"
        );
        thread::sleep(Duration::from_millis(10));
    }
    let offsets: Vec<i64> = seen.iter().map(|seen| seen.offset).collect();
    let expected: Vec<i64> = (5..).take(offsets.len()).collect();
    assert_eq!(offsets, expected);
    assert!(
        fetcher.stalled().is_empty(),
        "this broker never closes a connection itself"
    );
}

/// Counts its calls, and fails the first one.
struct Tokens {
    asked: Mutex<u32>,
}

impl TokenSource for Tokens {
    fn token(&self) -> Result<Token, String> {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        if *asked == 1 {
            return Err("away".to_owned());
        }
        Ok(Token {
            value: Secret::new(format!("token-{asked}")),
            lifetime: Some(Duration::from_secs(1)),
            extensions: Vec::new(),
        })
    }
}

#[test]
fn a_token_serves_all_connections_until_it_is_old() {
    let nature = Nature {
        lifetime_ms: 1000,
        ..MODERN
    };
    let broker = Broker::start(nature, &[Reply::Records { throttle_ms: 0 }]);
    let pairs = [
        ("bootstrap.servers", format!("127.0.0.1:{}", broker.port)),
        ("security.protocol", "sasl_plaintext".to_owned()),
        ("sasl.mechanism", "OAUTHBEARER".to_owned()),
    ];
    let tokens = Arc::new(Tokens {
        asked: Mutex::new(0),
    });
    let source: Arc<dyn TokenSource> = tokens.clone();
    let properties = Properties::parse_with(pairs, Some(source)).unwrap();
    let limits = Limits::from_properties(&properties);
    let client = Client::connect(properties, Arc::new(SystemClock), soon()).unwrap();
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadUncommitted, limits);
    fetcher.assign(&[Assignment::new("t", 0, 5)]);
    let mut connections = Vec::new();
    while connections.len() < 3 {
        let polled = fetcher.poll(soon()).unwrap();
        let batch = one(&polled);
        fetcher.advance(&batch.partition, batch.offset + 1, 3);
        let connection = broker.seen().connection;
        if connections.last() != Some(&connection) {
            connections.push(connection);
        }
        thread::sleep(Duration::from_millis(10));
    }
    // one failed call, one at the start, and at least one renewal; on a slow machine one for each connection
    let asked = usize::try_from(*tokens.asked.lock().unwrap()).unwrap();
    assert!(asked >= 3 && asked <= connections[2] + 2, "{asked}");
}
