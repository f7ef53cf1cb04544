use std::collections::HashSet;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use eomirror_batch::{Batch, BatchWriter, Codec, Memory, Records, Stamp};
use eomirror_core::HeaderRef;
use eomirror_core::header::{self, Mark, Reading, Writer};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Content, Holes, Relayed, Target as Limits, TopicPolicy};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use kafka_protocol::protocol::Decodable as _;

use super::{FailureKind, History, Lane, LaneTarget, Route, Settings, Start};
use crate::support::{self, Asked, framed};
use eomirror_kafka::{
    Client, FetchedPartition, FetchedRecords, Outcome, ProducerSettings, Properties, SystemClock,
    TopicId, TopicPartition, TransactionalProducer,
};

/// The current topic, and a former one.
const NEW: TopicId = TopicId([2; 16]);
const OLD: TopicId = TopicId([1; 16]);

/// A broker that leads all partitions of a topic with the id `NEW`. At offset 5 it has a batch without records, and
/// nothing after it. Returns its address, and the fetched offsets.
fn source() -> (String, Receiver<i64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, asked) = channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || serve(stream, address.port(), &sender));
        }
    });
    (address.to_string(), asked)
}

fn serve(mut stream: TcpStream, port: u16, sender: &Sender<i64>) -> Option<()> {
    loop {
        let Asked {
            key,
            version,
            correlation,
            mut body,
        } = support::next(&mut stream)?;
        let answer = match key {
            18 => {
                let versions = support::versions(&[(1, 0, 17), (3, 0, 13), (18, 0, 4)]);
                framed(correlation, false, &versions, version)
            }
            3 => {
                let metadata = support::metadata(port, uuid::Uuid::from_bytes(NEW.0), &[0, 1]);
                framed(correlation, true, &metadata, version)
            }
            _ => {
                let fetch = FetchRequest::decode(&mut body, version).unwrap();
                let asked = fetch
                    .topics
                    .first()
                    .map(|topic| topic.partitions[0].fetch_offset);
                sender.send(asked.unwrap_or(-1)).ok()?;
                if asked != Some(5) {
                    // it waits for records
                    thread::sleep(Duration::from_secs(60));
                }
                framed(correlation, true, &fetched(), version)
            }
        };
        stream.write_all(&answer).ok()?;
    }
}

fn fetched() -> FetchResponse {
    let partition = PartitionData::default()
        .with_high_watermark(10)
        .with_last_stable_offset(10)
        .with_records(Some(without_records(5)));
    let topic = FetchableTopicResponse::default()
        .with_topic_id(uuid::Uuid::from_bytes(NEW.0))
        .with_partitions(vec![partition]);
    FetchResponse::default().with_responses(vec![topic])
}

/// Returns a batch of five offsets, whose records were all compacted away.
fn without_records(first: i64) -> Bytes {
    let mut checked = BytesMut::new();
    checked.put_i16(0); // attributes
    checked.put_i32(4); // last offset delta
    checked.put_i64(-1);
    checked.put_i64(-1);
    checked.put_i64(-1); // producer id
    checked.put_i16(-1);
    checked.put_i32(-1);
    checked.put_i32(0); // records
    let mut batch = BytesMut::new();
    batch.put_i64(first);
    batch.put_i32(9 + i32::try_from(checked.len()).unwrap());
    batch.put_i32(0); // leader epoch
    batch.put_u8(2);
    batch.put_u32(crc32c(&checked));
    batch.put(checked);
    batch.freeze()
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

fn lane(source: &str) -> Lane {
    let parse = |server| Properties::parse([("bootstrap.servers", server)]).unwrap();
    // a port without a listener
    let (source, target) = (parse(source), parse("127.0.0.1:1"));
    let producer = ProducerSettings::new("id", &target);
    let settings = Settings::new(source, target.clone(), producer.clone());
    let mut lane = Lane::new(settings, Arc::new(SystemClock)).unwrap();
    let client = Client::unconnected(target, Arc::clone(&lane.clock)).unwrap();
    let producer = TransactionalProducer::new(client, producer);
    lane.target = LaneTarget::with(producer);
    let guard = LoopGuard::new("S", "T", None, false).unwrap();
    let policy = TopicPolicy::new("t", "t", guard, false, HashSet::new()).unwrap();
    lane.route(Route {
        policy,
        target: Limits::default(),
        target_id: None,
    });
    lane
}

fn start(partition: i32, topic_id: TopicId) -> Start {
    Start {
        partition: TopicPartition::new("t", partition),
        offset: 5,
        leader_epoch: Some(0),
        epoch_offset: None,
        topic_id: Some(topic_id),
        history: History::default(),
    }
}

#[test]
fn a_partition_is_fetched_again_before_the_wait() {
    let (source, asked) = source();
    let mut lane = lane(&source);
    lane.start(&[start(0, NEW)]).unwrap();

    // one wait that lasts much longer than all that happens in it, and that the target does not end
    lane.target.linger(true);
    let until = lane.clock.now() + Duration::from_secs(4);
    assert!(!lane.await_records(until, None).unwrap());

    assert_eq!(asked.try_iter().collect::<Vec<i64>>(), [5, 10]);
    assert_eq!(lane.advances()[0].offset, 10);
}

/// Returns a [`start`] whose epoch is known for offset 5, and whose records are mirrored from 20 on.
fn start_behind(partition: i32) -> Start {
    Start {
        offset: 20,
        epoch_offset: Some(5),
        ..start(partition, NEW)
    }
}

#[test]
fn an_epoch_is_compared_at_the_offset_of_its_batch() {
    let (source, asked) = source();
    let mut lane = lane(&source);
    lane.start(&[start_behind(0)]).unwrap();

    lane.target.linger(true);
    let until = lane.clock.now() + Duration::from_secs(4);
    assert!(!lane.await_records(until, None).unwrap());

    assert_eq!(asked.try_iter().collect::<Vec<i64>>(), [5, 10]);
    assert!(lane.advances().is_empty(), "nothing was mirrored");
}

/// Returns records from offset 5 on, as many as `without_records` has offsets.
fn fetched_records() -> FetchedPartition {
    fetched_records_of(0)
}

fn fetched_records_of(partition: i32) -> FetchedPartition {
    let mut writer = BatchWriter::new(Codec::None);
    for _ in 0..5 {
        let headers = std::iter::empty::<HeaderRef<'_>>();
        let added = writer.add_within(usize::MAX, 1, None, Some(b"v"), headers);
        assert!(added.unwrap());
    }
    let mut batch = Vec::new();
    writer.finish(&Stamp::NONE, &mut batch).unwrap();
    batch[..8].copy_from_slice(&5_i64.to_be_bytes());
    FetchedPartition {
        partition: TopicPartition::new("t", partition),
        topic_id: NEW,
        offset: 5,
        compares: false,
        outcome: Outcome::Records(FetchedRecords {
            high_watermark: 10,
            last_stable_offset: 10,
            log_start_offset: 0,
            leader_epoch: 0,
            aborted: None,
            records: batch.into(),
        }),
    }
}

/// EO-4: a position moves past records once, however often they were fetched.
#[test]
fn records_fetched_twice_from_a_position_are_mirrored_once() {
    let mut lane = lane("127.0.0.1:1");
    lane.start(&[start(0, NEW)]).unwrap();
    lane.source.hand([fetched_records(), fetched_records()]);

    lane.prepare().unwrap();
    let ready = lane.source.take_ready(None).unwrap();
    assert_eq!(ready.relayed.accounting.fetched, 5);
    lane.source.sent(&ready);

    lane.prepare().unwrap();
    assert!(!lane.source.has_ready());
    assert_eq!(lane.advances()[0].offset, 10);
}

/// EO-2: another lane mirrors it from here on. What was fetched of the others stays.
#[test]
fn a_dropped_partition_leaves_nothing_and_disturbs_no_other() {
    let mut lane = lane("127.0.0.1:1");
    lane.start(&[start(0, NEW), start(1, NEW)]).unwrap();
    let fetched = [0, 0, 1].map(fetched_records_of);
    lane.source.hand(fetched);
    lane.prepare().unwrap();
    assert_eq!(lane.source.ready().unwrap().number(), 0);

    let copies = [0, 1].map(|number| TopicPartition::new("t", number));
    let next = copies.iter().cloned().map(|copy| (copy, 5));
    lane.target.committed(next.collect());
    lane.stop(&[TopicPartition::new("t", 0), TopicPartition::new("t", 7)]);
    assert!(!lane.source.has_ready());
    // other lanes write to its copy from here on, so none of its offsets is foreseen
    assert_eq!(
        copies.map(|copy| lane.target.next_offset(&copy)),
        [None, Some(5)]
    );
    lane.prepare().unwrap();
    let ready = lane.source.take_ready(None).unwrap();
    assert_eq!(ready.number(), 1);
    lane.source.sent(&ready);
    lane.prepare().unwrap();
    assert!(!lane.source.has_ready());
    let advances = lane.advances();
    assert_eq!(advances.len(), 1);
    assert_eq!(advances[0].partition, TopicPartition::new("t", 1));

    // it may come back
    lane.start(&[start(0, NEW)]).unwrap();
    lane.source.hand([fetched_records_of(0)]);
    lane.prepare().unwrap();
    assert_eq!(lane.source.take_ready(None).unwrap().number(), 2);
}

/// Records may be relayed before their producer is known: a header that names another producer would make them look
/// like an application's copies, and they would loop.
#[test]
fn headers_name_the_producer_that_sends_them() {
    let mut lane = lane("127.0.0.1:1");
    let guard = LoopGuard::new("S", "T", None, true).unwrap();
    let policy = TopicPolicy::new("t", "t", guard, true, HashSet::new()).unwrap();
    lane.route(Route {
        policy,
        target: Limits::default(),
        target_id: None,
    });
    lane.start(&[start(0, NEW)]).unwrap();
    lane.source.hand([fetched_records()]);
    lane.prepare().unwrap();
    assert_eq!(marks(&lane.source.ready().unwrap().relayed), [None; 5]);

    let mark = Writer::new("T", 7).map(|writer| writer.mark(0, 1));
    let ready = lane.source.take_ready(Some(7)).unwrap();
    assert_eq!(marks(&ready.relayed), [mark; 5]);
    assert_eq!((ready.number(), ready.answer.began), (0, 5));
    assert_eq!(ready.relayed.accounting.sent, 5);
    assert!(!lane.source.has_ready());
}

/// Returns the marks in the written headers.
fn marks(relayed: &Relayed) -> Vec<Option<Mark>> {
    let mut marks = Vec::new();
    for batch in &relayed.batches {
        let Content::Written(bytes) = batch.content() else {
            panic!("it has headers");
        };
        let batch = Batch::parse(bytes).unwrap();
        let mut memory = Memory::default();
        for record in Records::of(&batch, &mut memory, eomirror_batch::Limits::default()).unwrap() {
            let record = record.unwrap();
            let header = record.headers.clone().next().unwrap();
            match header::read(header.value.unwrap(), "t", record.key, record.value) {
                Reading::Ours(_, mark) => marks.push(mark),
                reading => panic!("{reading:?}"),
            }
        }
    }
    marks
}

#[test]
fn a_transaction_takes_more_of_its_own_partitions_only() {
    for (came, more) in [
        (vec![], false),
        (vec![0], true),
        (vec![1], false),
        (vec![0, 1], false),
    ] {
        let mut lane = lane("127.0.0.1:1");
        lane.start(&[start(0, NEW), start(1, NEW)]).unwrap();
        lane.transaction.hold(0);
        lane.source
            .hand(came.iter().copied().map(fetched_records_of));
        assert_eq!(lane.has_more().unwrap(), more, "{came:?}");
    }
}

#[test]
fn what_holds_nothing_to_mirror_is_no_more_for_a_transaction() {
    let mut lane = lane("127.0.0.1:1");
    lane.start(&[start(0, NEW)]).unwrap();
    lane.transaction.hold(0);
    let mut fetched = fetched_records();
    let Outcome::Records(records) = &mut fetched.outcome else {
        unreachable!()
    };
    records.records = without_records(5);
    lane.source.hand([fetched]);
    assert!(!lane.has_more().unwrap());
    // the next transaction commits it
    assert_eq!(lane.advances()[0].offset, 10);
}

#[test]
fn a_transaction_is_full_when_a_partition_of_it_has_many_gaps() {
    let mut lane = lane("127.0.0.1:1");
    lane.start(&[start(0, NEW)]).unwrap();
    lane.source.hand([fetched_records()]);
    lane.transaction.crowd();

    let pumped = lane.pump(lane.clock.now(), u64::MAX).unwrap();

    assert!(pumped.full);
    assert_eq!(pumped.records, 0);
    assert!(lane.source.has_answers());
}

#[test]
fn an_unreported_stop_survives_a_new_partition() {
    let mut lane = lane(&source().0);
    lane.start(&[start(0, OLD)]).unwrap();
    let until = lane.clock.now() + Duration::from_secs(20);
    // as while a transaction is settled: answers are not examined yet
    while !lane.source.has_fetched() {
        assert!(lane.clock.now() < until, "the topic was not noticed");
        lane.step().unwrap();
        lane.wait(until).unwrap();
    }

    lane.start(&[start(1, NEW)]).unwrap();

    let patience = lane.clock.now() + Duration::from_secs(20);
    let failure = lane.await_records(patience, None).unwrap_err();
    assert_eq!(failure.kind, FailureKind::TopicGone, "{failure}");
    assert_eq!(failure.partition, Some(TopicPartition::new("t", 0)));
}

/// Returns a [`start`] from offset 10 on, where the batch before it had this checksum.
fn start_behind_batch(crc: u32, holes: Holes) -> Start {
    let mark = eomirror_batch::Mark {
        base_offset: 5,
        crc,
        max_timestamp: -1,
    };
    Start {
        offset: 10,
        history: History {
            mark: Some(mark),
            holes,
            missing: 0,
        },
        ..start(0, NEW)
    }
}

/// Returns the fetched offsets, and the failure of a lane that begins behind a batch with this checksum.
fn begun_behind_batch(crc: u32, holes: Holes) -> (Vec<i64>, Option<FailureKind>) {
    let (source, asked) = source();
    let mut lane = lane(&source);
    lane.start(&[start_behind_batch(crc, holes)]).unwrap();
    lane.target.linger(true);
    let until = lane.clock.now() + Duration::from_secs(2);
    lane.await_records(until, None).unwrap();
    let failure = lane.source.take_blocked().map(|failure| failure.kind);
    (asked.try_iter().collect(), failure)
}

/// EO-5: the batch before the position is read once more, and is the mirrored one.
#[test]
fn a_log_that_holds_the_last_batch_is_read_on() {
    let crc = u32::from_be_bytes(without_records(5)[17..21].try_into().unwrap());
    assert_eq!(begun_behind_batch(crc, Holes::Stop), (vec![5, 10], None));
}

/// EO-5: another batch has its place, although topic and epoch are the same.
#[test]
fn a_log_that_holds_another_batch_stops() {
    let stopped = (vec![5], Some(FailureKind::Rewritten));
    assert_eq!(begun_behind_batch(1, Holes::Stop), stopped);
}

/// A compacted log proves nothing, and is read from the position on.
#[test]
fn a_compacted_log_is_not_compared() {
    assert_eq!(begun_behind_batch(1, Holes::Count), (vec![10], None));
}

/// A lane that fetches nothing, and whose target has closed the connection.
fn left_by_its_target() -> Lane {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    let properties = Properties::parse([("bootstrap.servers", server)]).unwrap();
    let producer = ProducerSettings::new("id", &properties);
    let settings = Settings::new(properties.clone(), properties.clone(), producer.clone());
    let mut lane = Lane::new(settings, Arc::new(SystemClock)).unwrap();
    let client = Client::unconnected(properties, Arc::clone(&lane.clock)).unwrap();
    let mut producer = TransactionalProducer::new(client, producer);
    producer.step().unwrap();
    drop(listener.accept().unwrap());
    lane.target = LaneTarget::with(producer);
    lane
}

#[test]
fn a_closed_target_does_not_keep_a_lingering_lane_awake() {
    let mut lane = left_by_its_target();
    lane.target.linger(true);
    let until = lane.clock.now() + Duration::from_millis(100);
    let mut waits = 0;
    while lane.clock.now() < until {
        lane.wait(until).unwrap();
        lane.step().unwrap();
        waits += 1;
    }
    assert!(waits < 20, "it was woken {waits} times");
}
