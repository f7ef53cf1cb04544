//! Ending hanging transactions with a client that may be killed at any moment (docs/adr/0012).
//!
//! The coordinator is a scripted thread.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

mod support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use eomirror_kafka::transaction_state::Identity;
use eomirror_kafka::{Client, Clock as _, Error, HangingTransactions, Properties, SystemClock};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    AddPartitionsToTxnResponse, BrokerId, EndTxnRequest, EndTxnResponse, FindCoordinatorResponse,
    InitProducerIdResponse, ProducerId, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};
use support::{Asked, framed};
use uuid::Uuid;

const ADD: i16 = 24;
const END: i16 = 26;
const CONCURRENT_TRANSACTIONS: i16 = 51;
const INVALID_TXN_STATE: i16 = 48;
const AUTHORIZATION_FAILED: i16 = 29;

/// The coordinator's answers to a pair of requests; None closes the connection instead.
type Said = (Option<i16>, Option<i16>);

/// A coordinator that answers `AddPartitionsToTxn` only once the end of the transaction is requested, too. Repeats the
/// last line of its script; reports the requests.
fn coordinator(script: &'static [Said]) -> (u16, Receiver<i16>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, seen) = channel();
    let turn = Arc::new(Mutex::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sender, turn) = (sender.clone(), Arc::clone(&turn));
            thread::spawn(move || serve(stream, port, script, &turn, &sender));
        }
    });
    (port, seen)
}

fn serve(
    mut stream: TcpStream,
    port: u16,
    script: &[Said],
    turn: &Mutex<usize>,
    sender: &Sender<i16>,
) -> Option<()> {
    let mut added = None;
    loop {
        let Asked {
            key,
            version,
            correlation,
            mut body,
        } = support::next(&mut stream)?;
        let answer = match key {
            18 => framed(correlation, false, &versions(), version),
            3 => {
                let answer = support::metadata(port, Uuid::from_bytes([7; 16]), &[0, 1]);
                framed(correlation, true, &answer, version)
            }
            10 => framed(correlation, true, &found(port), version),
            22 => {
                let given = InitProducerIdResponse::default()
                    .with_producer_id(ProducerId(7))
                    .with_producer_epoch(3);
                framed(correlation, true, &given, version)
            }
            ADD => {
                sender.send(key).ok()?;
                added = Some((correlation, version));
                continue;
            }
            _ => {
                let end = EndTxnRequest::decode(&mut body, version).unwrap();
                assert!(key == END && end.committed, "{key}: {end:?}");
                sender.send(key).ok()?;
                let mut turn = turn.lock().unwrap();
                let (first, second) = script[(*turn).min(script.len() - 1)];
                *turn += 1;
                drop(turn);
                if let Some((correlation, version)) = added.take() {
                    stream
                        .write_all(&framed(correlation, true, &partitions(first?), version))
                        .ok()?;
                }
                let ended = EndTxnResponse::default().with_error_code(second?);
                framed(correlation, true, &ended, version)
            }
        };
        stream.write_all(&answer).ok()?;
    }
}

fn versions() -> kafka_protocol::messages::ApiVersionsResponse {
    support::versions(&[
        (3, 0, 13),
        (10, 0, 6),
        (18, 0, 4),
        (22, 0, 6),
        (ADD, 0, 5),
        (END, 0, 5),
    ])
}

fn found(port: u16) -> FindCoordinatorResponse {
    let coordinator = Coordinator::default()
        .with_key(StrBytes::from_static_str("lane"))
        .with_node_id(BrokerId(1))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port.into());
    FindCoordinatorResponse::default().with_coordinators(vec![coordinator])
}

fn partitions(code: i16) -> AddPartitionsToTxnResponse {
    let partitions = [0, 1].map(|index| {
        AddPartitionsToTxnPartitionResult::default()
            .with_partition_index(index)
            .with_partition_error_code(code)
    });
    let topic = AddPartitionsToTxnTopicResult::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_results_by_partition(partitions.to_vec());
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(vec![topic])
}

/// Ends a hanging transaction in two partitions, and returns the requests that took.
fn end(script: &'static [Said]) -> (Result<Identity, Error>, Vec<i16>) {
    let (port, seen) = coordinator(script);
    let server = format!("127.0.0.1:{port}");
    let pairs = [
        ("bootstrap.servers", server.as_str()),
        ("reconnect.backoff.ms", "1"),
    ];
    let properties = Properties::parse(pairs).unwrap();
    let client = Client::unconnected(properties, Arc::new(SystemClock)).unwrap();
    let mut client = HangingTransactions::new(client);
    let ended = client.end(
        "lane",
        Duration::from_secs(15),
        &[("t", 0), ("t", 1)],
        true,
        (-1, -1),
        soon(),
    );
    (ended, seen.try_iter().collect())
}

fn soon() -> Instant {
    SystemClock.now() + Duration::from_secs(20)
}

fn is_ours(ended: &Result<Identity, Error>) -> bool {
    ended
        == &Ok(Identity {
            producer_id: 7,
            epoch: 3,
        })
}

/// EO-8: a client killed between the two leaves a transaction that is aborted later, and with it the committed records.
#[test]
fn the_end_is_sent_before_the_beginning_is_answered() {
    let (ended, seen) = end(&[(Some(0), Some(0))]);
    assert!(is_ours(&ended), "{ended:?}");
    assert_eq!(seen, [ADD, END]);
}

#[test]
fn both_are_asked_again_while_partitions_cannot_be_added() {
    let (ended, seen) = end(&[
        (Some(CONCURRENT_TRANSACTIONS), Some(INVALID_TXN_STATE)),
        (None, None),
        (Some(0), Some(0)),
    ]);
    assert!(is_ours(&ended), "{ended:?}");
    assert_eq!(seen, [ADD, END, ADD, END, ADD, END]);
}

/// A second start after an end whose answer was lost would open another transaction.
#[test]
fn only_the_end_is_asked_again_once_partitions_were_added() {
    let (ended, seen) = end(&[
        (Some(0), None),
        (None, Some(CONCURRENT_TRANSACTIONS)),
        (None, Some(0)),
    ]);
    assert!(is_ours(&ended), "{ended:?}");
    assert_eq!(seen, [ADD, END, END, END]);
}

#[test]
fn partitions_that_may_not_be_added_are_what_is_refused() {
    let (ended, seen) = end(&[(Some(AUTHORIZATION_FAILED), Some(INVALID_TXN_STATE))]);
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("AddPartitionsToTxn of lane"), "{error}");
    assert_eq!(seen, [ADD, END]);
}
