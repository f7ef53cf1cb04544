//! Segments that a real broker wrote, relayed, against what librdkafka read from them. See golden/README.md.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;
mod produced;

use std::collections::HashSet;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use batch_forge::Plain;
use eomirror_batch::{AbortedTransaction, Codec, Limits, Stamp, TimestampType};
use eomirror_core::header::{NAME, Provenance, Reading, read};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Content, Fetched, Relay, Relayed, Target, TopicPolicy};
use produced::decode;

const SEGMENTS: [&str; 12] = [
    "librdkafka-none",
    "librdkafka-gzip",
    "librdkafka-snappy",
    "librdkafka-lz4",
    "librdkafka-zstd",
    "broker-gzip",
    "broker-snappy",
    "broker-lz4",
    "broker-zstd",
    "append-time",
    "transactions",
    "compacted",
];
const STAMP: Stamp = Stamp {
    producer_id: 5,
    producer_epoch: 1,
    base_sequence: 0,
    transactional: true,
};

fn file(name: &str) -> Option<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    fs::read(folder.join(name)).ok()
}

/// Entries of the broker's index: version i16, producer id, first, last and last stable offset.
fn aborted(name: &str) -> Vec<AbortedTransaction> {
    let index = file(&format!("{name}.txnindex")).unwrap_or_default();
    let number =
        |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().unwrap());
    index
        .chunks(34)
        .map(|entry| AbortedTransaction {
            producer_id: number(entry, 2),
            first_offset: number(entry, 10),
        })
        .collect()
}

fn policy(header: bool) -> TopicPolicy {
    let guard = LoopGuard::new("source", "target", None, header).unwrap();
    TopicPolicy::new("t", "x.t", guard, header, HashSet::new()).unwrap()
}

fn relay(name: &str, segment: &[u8], header: bool, target: &Target) -> Relayed {
    let fetched = Fetched {
        records: segment,
        aborted: &aborted(name),
        offsets: 0..i64::MAX,
    };
    let relayed = Relay::new(Limits::default()).relay(&policy(header), 0, target, &fetched);
    assert_eq!(relayed.stopped, None, "{name}");
    assert_eq!(relayed.partial, None, "{name}");
    relayed
}

fn arrived(relayed: &mut Relayed, segment: &[u8]) -> Vec<Plain> {
    let mut records = Vec::new();
    for batch in &mut relayed.batches {
        batch.stamp(segment, &STAMP).unwrap();
        let decoded = decode(&batch.parts(segment).unwrap().concat());
        let offsets = batch
            .runs()
            .iter()
            .flat_map(|run| run.first..run.first + run.count);
        for (offset, record) in offsets.zip(decoded.records) {
            records.push(Plain { offset, ..record });
        }
    }
    records
}

fn shown(field: Option<&[u8]>) -> String {
    let Some(bytes) = field else {
        return "null".to_owned();
    };
    let mut text = "x".to_owned();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}

fn lines(records: &[Plain]) -> String {
    let mut text = String::new();
    for record in records {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(key, value)| format!("{}={}", shown(Some(key)), shown(value.as_deref())))
            .collect();
        let headers = if headers.is_empty() {
            "none".to_owned()
        } else {
            headers.join(",")
        };
        let (key, value) = (shown(record.key.as_deref()), shown(record.value.as_deref()));
        writeln!(
            text,
            "{} {} {key} {value} {headers}",
            record.offset, record.timestamp
        )
        .unwrap();
    }
    text
}

fn expected(name: &str) -> String {
    String::from_utf8(file(&format!("{name}.records")).unwrap()).unwrap()
}

fn compare(name: &str, text: &str) {
    let wanted = expected(name);
    if name == "compacted" {
        // the consumer read later segments as well
        assert!(!text.is_empty() && wanted.starts_with(text), "{name}");
    } else {
        assert_eq!(text, wanted, "{name}");
    }
}

const PASS: Target = Target {
    max_batch_bytes: 1 << 20,
    timestamps: TimestampType::CreateTime,
    merge_bytes: 0,
    small_bytes: 0,
    small_compressed_bytes: 0,
    most_runs: usize::MAX,
    partitions: None,
};
const MERGE: Target = Target {
    merge_bytes: 1 << 20,
    small_bytes: 1 << 20,
    small_compressed_bytes: 1 << 20,
    ..PASS
};
const SPLIT: Target = Target {
    max_batch_bytes: 1200,
    ..PASS
};

#[test]
fn every_segment_arrives_as_librdkafka_read_it() {
    for name in SEGMENTS {
        let segment = file(&format!("{name}.log")).unwrap();
        for target in [PASS, MERGE, SPLIT, Target::default()] {
            let mut relayed = relay(name, &segment, false, &target);
            let records = arrived(&mut relayed, &segment);
            compare(name, &lines(&records));
            assert_eq!(relayed.accounting.sent, records.len() as u64);
            assert_eq!(relayed.accounting.fetched, records.len() as u64);
        }
    }
}

#[test]
fn every_record_gets_one_header_more_and_nothing_else_changes() {
    for name in SEGMENTS {
        let segment = file(&format!("{name}.log")).unwrap();
        let mut relayed = relay(name, &segment, true, &Target::default());
        let mut records = arrived(&mut relayed, &segment);
        for record in &mut records {
            let (key, value) = record.headers.pop().unwrap();
            assert_eq!(key, NAME.as_bytes());
            let (of, value) = (record.value.as_deref(), value.unwrap());
            assert_eq!(
                read(&value, "x.t", record.key.as_deref(), of),
                Reading::Ours(
                    Provenance {
                        origin: "source".into(),
                        hops: vec!["source".into()]
                    },
                    None
                )
            );
        }
        compare(name, &lines(&records));
    }
}

#[test]
fn batches_of_real_writers_are_passed_and_their_codec_is_kept() {
    for name in &SEGMENTS[..9] {
        let segment = file(&format!("{name}.log")).unwrap();
        let relayed = relay(name, &segment, false, &PASS);
        for batch in &relayed.batches {
            assert!(matches!(batch.content(), Content::Passed { .. }), "{name}");
        }
        let mut split = relay(name, &segment, false, &SPLIT);
        arrived(&mut split, &segment);
        let codec = name.split_once('-').unwrap().1;
        let codecs: HashSet<Codec> = split
            .batches
            .iter()
            .map(|batch| decode(&batch.parts(&segment).unwrap().concat()).codec)
            .collect();
        assert!(codecs.iter().any(|found| found.name() == codec), "{name}");
    }
}

#[test]
fn what_is_no_data_is_counted_and_left_out() {
    let segment = file("transactions.log").unwrap();
    let transactions = relay("transactions", &segment, false, &PASS);
    assert_eq!(transactions.skipped.control, 8);
    assert!(transactions.skipped.aborted >= 4);
    let segment = file("compacted.log").unwrap();
    let compacted = relay("compacted", &segment, false, &PASS);
    assert!(compacted.skipped.empty > 0);
    let written = |batch: &&_| {
        !matches!(
            eomirror_core::relay::Outgoing::content(batch),
            Content::Passed { .. }
        )
    };
    assert!(compacted.batches.iter().filter(written).count() > 0, "gaps");
}
