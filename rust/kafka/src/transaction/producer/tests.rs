use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::api_versions_response::FinalizedFeatureKey;
use kafka_protocol::messages::describe_transactions_response::TransactionState;
use kafka_protocol::messages::find_coordinator_response::Coordinator as FoundCoordinator;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    AddPartitionsToTxnResponse, ApiVersionsResponse, DescribeTransactionsResponse,
    FindCoordinatorResponse, MetadataRequest, ProduceResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable as _, StrBytes};

use super::{Answer, Error, TRANSACTION_VERSION, TransactionalProducer};
use crate::client::Client;
use crate::clock::{Clock as _, SystemClock};
use crate::error_code::ErrorCode;
use crate::network::{Peer, RequestId};
use crate::properties::Properties;
use crate::protocol::api_versions::SupportedApis;
use crate::protocol::oracle;
use crate::support::{self, Asked, framed};
use crate::topic::TopicId;
use crate::topic::TopicPartition;
use crate::transaction::ProducerSettings;
use crate::transaction_state::marker_wait::Step;
use crate::transaction_state::{Ask, Identity, Protocol, SourceRange};
use crate::two_brokers::{Later, Two, until};

const OLD: TopicId = TopicId([1; 16]);
const NEW: TopicId = TopicId([2; 16]);

/// A producer with an open transaction and no broker.
fn open() -> TransactionalProducer {
    open_at("127.0.0.1:1")
}

fn open_at(server: &str) -> TransactionalProducer {
    let properties = Properties::parse([("bootstrap.servers", server)]).unwrap();
    open_with(Client::unconnected(properties, Arc::new(SystemClock)).unwrap())
}

fn open_with(mut client: Client) -> TransactionalProducer {
    let settings = ProducerSettings::new("id", client.network().properties());
    let mut producer = TransactionalProducer::new(client, settings);
    let identity = Identity {
        producer_id: 7,
        epoch: 0,
    };
    let coordinator = producer.coordinator.state();
    coordinator.initialized(ErrorCode::NONE, identity, Instant::now());
    coordinator.begin().unwrap();
    producer
}

/// Queues a batch.
fn push(producer: &mut TransactionalProducer) {
    let range = SourceRange {
        partition: 0,
        first: 0,
        last: 0,
    };
    let batch = crate::protocol::produce::FramedBatch {
        head: [0; 61],
        body: bytes::Bytes::new(),
    };
    let at = TopicPartition::new("t", 0);
    producer.produces.sequences().push(&at, batch, 61, 1, range);
}

/// Sends a batch to a topic with this id, which is answered with this code.
fn written(producer: &mut TransactionalProducer, number: u64, id: TopicId, code: i16) {
    push(producer);
    let now = Instant::now();
    let sent = producer
        .produces
        .sequences()
        .plan(1, |_| Some(1), now)
        .unwrap();
    let partition = PartitionProduceResponse::default()
        .with_error_code(code)
        .with_base_offset(5);
    let topic = TopicProduceResponse::default()
        .with_name(TopicName(StrBytes::default()))
        .with_topic_id(uuid::Uuid::from_bytes(id.0))
        .with_partition_responses(vec![partition]);
    let answer = ProduceResponse::default().with_responses(vec![topic]);
    producer.produces.expect(
        RequestId::numbered(number),
        sent.ticket,
        vec![(id, "t".to_owned())],
    );
    let answer = Answer {
        id: RequestId::numbered(number),
        peer: Peer::Broker(1),
        body: Ok((13, oracle::write(&answer, 13))),
    };
    producer.take(answer, now).unwrap();
}

#[test]
fn written_topics_are_kept_until_the_next_transaction() {
    let mut producer = open();
    written(&mut producer, 1, NEW, 0);
    written(&mut producer, 2, OLD, 0);
    let ids: Vec<TopicId> = producer.written().keys().copied().collect();
    assert_eq!(ids, [OLD, NEW]);
    producer.forget();
    assert!(producer.written().is_empty());
}

#[test]
fn trouble_is_the_targets_last_error() {
    let mut producer = open();
    written(&mut producer, 1, NEW, 19);
    let trouble = producer.trouble();
    assert_eq!(trouble.as_deref(), Some("t-0: NOT_ENOUGH_REPLICAS (19)"));
    producer.forget();
    assert_eq!(producer.trouble(), None);
    let found = FoundCoordinator::default().with_error_code(15);
    let answer = FindCoordinatorResponse::default().with_coordinators(vec![found]);
    let id = RequestId::numbered(2);
    let peer = Peer::Broker(1);
    producer.coordinator.expect(id, Ask::Find, peer);
    let answer = Answer {
        id,
        peer,
        body: Ok((6, oracle::write(&answer, 6))),
    };
    producer.take(answer, Instant::now()).unwrap();
    let trouble = producer.trouble().unwrap();
    assert!(
        trouble.ends_with("COORDINATOR_NOT_AVAILABLE (15)"),
        "{trouble}"
    );
}

#[test]
fn what_is_about_the_producer_names_no_partition() {
    for (code, names) in [(29, true), (10, true), (31, false), (53, false)] {
        let mut producer = open();
        written(&mut producer, 1, NEW, code);
        let Some(Error::MustAbort { what, batch, .. }) = producer.refused else {
            panic!("{code}: {:?}", producer.refused);
        };
        assert_eq!(batch.is_some(), names, "{code}");
        assert_eq!(what.contains("t-0"), names, "{code}: {what}");
    }
}

#[test]
fn a_topic_that_refused_has_taken_nothing() {
    let mut producer = open();
    written(&mut producer, 1, NEW, 100);
    assert!(producer.written().is_empty());
}

/// A producer that has asked whether the markers of its last transaction are written.
fn wondering(now: Instant) -> TransactionalProducer {
    let mut producer = open();
    producer
        .coordinator
        .markers()
        .ended(now.checked_sub(Duration::from_millis(10)).unwrap());
    producer.coordinator.expect_markers(RequestId::numbered(9));
    producer.coordinator.markers().asked();
    producer
}

/// Returns whether the markers of the last transaction let the next one write.
fn may_go(producer: &mut TransactionalProducer, now: Instant) -> bool {
    let TransactionalProducer {
        coordinator,
        client,
        ..
    } = producer;
    coordinator.await_markers(client, now).is_none()
}

/// Answers with this code and state.
fn described(producer: &mut TransactionalProducer, code: i16, state: &'static str, now: Instant) {
    let state = TransactionState::default()
        .with_error_code(code)
        .with_transaction_state(StrBytes::from_static_str(state));
    let answer = DescribeTransactionsResponse::default().with_transaction_states(vec![state]);
    let answer = Answer {
        id: RequestId::numbered(9),
        peer: Peer::Broker(1),
        body: Ok((0, oracle::write(&answer, 0))),
    };
    producer.take(answer, now).unwrap();
}

#[test]
fn the_first_records_wait_for_the_last_transactions_markers() {
    let now = Instant::now();
    let mut producer = wondering(now);
    assert!(!may_go(&mut producer, now));
    described(&mut producer, 0, "PrepareCommit", now);
    assert!(matches!(producer.coordinator.markers().wants(now), Step::Wait(at) if at > now));
    producer.coordinator.expect_markers(RequestId::numbered(9));
    described(&mut producer, 0, "CompleteCommit", now);
    assert!(may_go(&mut producer, now));
}

#[test]
fn without_an_answer_about_markers_records_do_not_wait() {
    let now = Instant::now();
    for (code, asked_again) in [(16, true), (14, true), (53, false)] {
        let mut producer = wondering(now);
        described(&mut producer, code, "", now);
        assert!(may_go(&mut producer, now), "{code}");
        producer.coordinator.markers().ended(now);
        let waits = producer.coordinator.markers().wants(now) != Step::Go;
        assert_eq!(waits, asked_again, "{code}");
    }
    // no coordinator is known
    let mut producer = open();
    producer
        .coordinator
        .markers()
        .ended(now.checked_sub(Duration::from_millis(10)).unwrap());
    assert!(may_go(&mut producer, now));
}

/// A broker that coordinates and leads. Returns its address, and the keys of its requests. It answers no Produce.
fn broker() -> (String, Receiver<i16>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, keys) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || coordinates(stream, address.port(), &sender));
        }
    });
    (address.to_string(), keys)
}

fn coordinates(mut stream: TcpStream, port: u16, sender: &Sender<i16>) -> Option<()> {
    loop {
        let Asked {
            key,
            version,
            correlation,
            ..
        } = support::next(&mut stream)?;
        sender.send(key).ok()?;
        let answer = match key {
            18 => {
                let apis = support::versions(&[(0, 0, 13), (3, 0, 13), (18, 0, 4), (65, 0, 0)]);
                framed(correlation, false, &apis, version)
            }
            3 => {
                let metadata = support::metadata(port, uuid::Uuid::from_bytes(NEW.0), &[0]);
                framed(correlation, true, &metadata, version)
            }
            65 => {
                let state = TransactionState::default()
                    .with_transaction_state(StrBytes::from_static_str("CompleteCommit"));
                let described =
                    DescribeTransactionsResponse::default().with_transaction_states(vec![state]);
                framed(correlation, true, &described, version)
            }
            _ => continue,
        };
        stream.write_all(&answer).ok()?;
    }
}

/// A producer with an open transaction after another one, and a connected broker.
fn behind_another() -> (TransactionalProducer, Receiver<i16>) {
    let (server, keys) = broker();
    let mut producer = open_at(&server);
    let until = Instant::now() + Duration::from_secs(20);
    producer.client().metadata(&["t"], until).unwrap();
    producer
        .coordinator
        .state()
        .found(ErrorCode::NONE, 1, Instant::now());
    // its connection has carried the end of the first one
    while !producer.network().is_ready(Peer::Broker(1), Instant::now()) {
        let now = Instant::now();
        assert!(now < until, "no connection");
        producer.network().open(Peer::Broker(1), now);
        producer.step().unwrap();
        let soon = now + Duration::from_millis(20);
        crate::network::wait(&mut [producer.network()], &SystemClock, soon);
    }
    producer.coordinator.markers().ended(Instant::now());
    (producer, keys)
}

/// Steps until `over`, for at most a bounded time.
fn step_until(
    producer: &mut TransactionalProducer,
    mut over: impl FnMut(&mut TransactionalProducer) -> bool,
) {
    let clock = producer.client.clock();
    until(|| {
        if over(producer) {
            return true;
        }
        producer.step().unwrap();
        let soon = clock.now() + Duration::from_millis(20);
        let soon = producer.wakes_at().map_or(soon, |at| at.min(soon));
        crate::network::wait(&mut [producer.network()], &*clock, soon);
        false
    });
}

/// Steps until the coordinator has reported the markers. Starts again if a slow machine made the wait expire.
fn step_until_told(producer: &mut TransactionalProducer, keys: &Receiver<i16>) {
    let mut asked = false;
    step_until(producer, |producer| {
        asked |= keys.try_iter().any(|key| key == 65);
        if !asked && producer.may_write() {
            producer.coordinator.markers().ended(Instant::now());
        }
        asked && producer.may_write()
    });
}

#[test]
fn markers_are_asked_for_also_while_nothing_waits_for_them() {
    let (mut producer, keys) = behind_another();
    assert!(producer.is_settled());
    step_until_told(&mut producer, &keys);
    producer.step().unwrap();
    assert!(!producer.coordinator.expects_markers());
}

#[test]
fn what_is_held_waits_while_the_markers_are_asked_for() {
    let (mut producer, keys) = behind_another();
    push(&mut producer);
    producer.hold(true);
    step_until_told(&mut producer, &keys);
    producer.step().unwrap();
    assert!(!producer.produces.has_in_flight());
    producer.hold(false);
    step_until(&mut producer, |producer| producer.produces.has_in_flight());
}

/// Counts Metadata requests, and closes the connection after the first answer.
fn hangs_up_once(mut stream: TcpStream, port: u16, asked: &AtomicUsize) {
    while let Some(request) = support::next(&mut stream) {
        let Asked {
            key,
            version,
            correlation,
            mut body,
        } = request;
        let answer = if key == 18 {
            let apis = support::versions(&[(3, 0, 13), (18, 0, 4)]);
            framed(correlation, false, &apis, version)
        } else {
            let request = MetadataRequest::decode(&mut body, version).unwrap();
            assert_eq!(request.topics.unwrap().len(), 1);
            let metadata = support::metadata(port, uuid::Uuid::from_bytes(NEW.0), &[0]);
            framed(correlation, true, &metadata, version)
        };
        if stream.write_all(&answer).is_err()
            || (key == 3 && asked.fetch_add(1, Ordering::SeqCst) == 0)
        {
            return;
        }
    }
}

#[test]
fn a_lost_connection_refreshes_metadata_at_once_and_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counted = Arc::clone(&counted);
            thread::spawn(move || hangs_up_once(stream, address.port(), &counted));
        }
    });
    let mut producer = open_at(&address.to_string());
    let until = Instant::now() + Duration::from_secs(20);
    producer.client().metadata(&["t"], until).unwrap();
    while asked.load(Ordering::SeqCst) < 3 {
        let now = Instant::now();
        assert!(now < until, "asked {asked:?} times");
        producer.step().unwrap();
        let soon = now + Duration::from_millis(20);
        crate::network::wait(&mut [producer.network()], &SystemClock, soon);
    }
}

#[test]
fn batches_of_a_frozen_broker_go_to_the_new_leader() {
    const PRODUCE: i16 = 0;
    let (two, clock) = (Two::start(), Later::default());
    let mut client = two.client(&clock);
    let end = clock.now() + Duration::from_secs(20);
    client.metadata(&["t"], end).unwrap();
    let mut producer = open_with(client);
    push(&mut producer);
    let mut go_on = |what| step_until(&mut producer, |_| two.was_asked(what));
    go_on((1, PRODUCE));
    two.stop_the_first(false);
    clock.forward(6);
    go_on((2, PRODUCE));
}

#[test]
fn a_frozen_broker_is_not_asked_for_the_coordinator_again() {
    const FIND_COORDINATOR: i16 = 10;
    let (two, clock) = (Two::start(), Later::default());
    let mut client = two.client(&clock);
    let end = clock.now() + Duration::from_secs(20);
    client.metadata(&["t"], end).unwrap();
    let settings = ProducerSettings::new("id", client.network().properties());
    let mut producer = TransactionalProducer::new(client, settings);
    // neither answers, and only the first asked one owes an answer
    let mut next = || {
        let mut asked = None;
        step_until(&mut producer, |_| {
            asked = two.who_was_asked(FIND_COORDINATOR);
            asked.is_some()
        });
        asked
    };
    let first = next();
    clock.forward(6);
    assert_ne!(next(), first);
}

#[test]
fn the_protocol_of_a_transaction_is_that_of_its_begin() {
    let mut producer = open();
    let told = |epoch, level| SupportedApis {
        features: [(TRANSACTION_VERSION.to_owned(), level)].into(),
        features_epoch: epoch,
        ..SupportedApis::default()
    };
    for (epoch, level, protocol) in [(4, 1, Protocol::V1), (5, 2, Protocol::V2)] {
        let (body, peer) = (oracle_features(epoch, level), Peer::Broker(1));
        producer.features.0 = Some(RequestId::numbered(9));
        let answer = Answer {
            id: RequestId::numbered(9),
            peer,
            body: Ok((4, body)),
        };
        let before = producer.coordinator.state().protocol();
        producer.take(answer, Instant::now()).unwrap();
        assert_eq!(
            producer.coordinator.state().protocol(),
            before,
            "it is open"
        );
        // one that has not heard of it yet
        producer.client.network().learn(&told(3, 2));

        // empty: it ends without a request
        assert!(producer.coordinator.commit().unwrap().is_some());
        producer.begin(Instant::now()).unwrap();

        assert_eq!(producer.coordinator.state().protocol(), protocol);
        push(&mut producer);
        let waits = usize::from(protocol == Protocol::V1);
        assert_eq!(producer.produces.unadded().len(), waits);
    }
}

#[test]
fn a_producer_that_is_fenced_while_it_adds_partitions_says_so_at_once() {
    let mut producer = open();
    push(&mut producer);
    let id = RequestId::numbered(9);
    let identity = producer.identity().unwrap();
    let coordinator = &mut producer.coordinator;
    coordinator.expect(id, Ask::Add { identity }, Peer::Broker(1));
    let partition = AddPartitionsToTxnPartitionResult::default()
        .with_partition_error_code(ErrorCode::PRODUCER_FENCED.0);
    let topic = AddPartitionsToTxnTopicResult::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_results_by_partition(vec![partition]);
    let answer =
        AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(vec![topic]);
    let body = Ok((3, oracle::write(&answer, 3)));
    let peer = Peer::Broker(1);

    producer
        .take(Answer { id, peer, body }, Instant::now())
        .unwrap();

    // another step would wait for the batch as long as the transaction may last
    let told = producer.step();
    assert!(matches!(told, Err(Error::Fenced { .. })), "{told:?}");
    let soon = Instant::now() + Duration::from_secs(60);
    let told = producer.commit(soon);
    assert!(matches!(told, Err(Error::Fenced { .. })), "{told:?}");
    let told = producer.abort(soon);
    assert!(matches!(told, Err(Error::Fenced { .. })), "{told:?}");
}

/// The answer of a broker that is asked for the cluster's features.
fn oracle_features(epoch: i64, level: i16) -> bytes::Bytes {
    let feature = FinalizedFeatureKey::default()
        .with_name(StrBytes::from_static_str(TRANSACTION_VERSION))
        .with_max_version_level(level);
    let answer = ApiVersionsResponse::default()
        .with_finalized_features_epoch(epoch)
        .with_finalized_features(vec![feature]);
    oracle::write(&answer, 4)
}
