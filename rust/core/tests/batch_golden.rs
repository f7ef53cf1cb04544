//! Segments that a real broker wrote, compared with what librdkafka read from it. See golden/README.md.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use eomirror_batch::{
    AbortedFilter, AbortedTransaction, Batch, BatchWriter, Batches, Codec, Control, Limits, Marker,
    Memory, Obstacle, Records, Stamp, TimestampType, Verdict, rewrite,
};
use eomirror_core::digest::Digest;
use eomirror_core::digest_batch;

fn file(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns all batches, complete and with a correct checksum.
fn batches(segment: &[u8]) -> Vec<Batch<'_>> {
    let mut batches = Batches::new(segment);
    let found: Vec<_> = batches.by_ref().map(Result::unwrap).collect();
    assert_eq!(batches.partial(), None);
    for batch in &found {
        batch.check_crc().unwrap();
    }
    found
}

/// Entries of the broker's index: version i16, producer id, first, last and last stable offset.
fn aborted(index: &[u8]) -> Vec<AbortedTransaction> {
    let number =
        |entry: &[u8], at: usize| i64::from_be_bytes(entry[at..at + 8].try_into().unwrap());
    assert_eq!(index.len() % 34, 0);
    index
        .chunks(34)
        .map(|entry| AbortedTransaction {
            producer_id: number(entry, 2),
            first_offset: number(entry, 10),
        })
        .collect()
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

fn lines(batch: &Batch<'_>) -> String {
    let mut text = String::new();
    let mut memory = Memory::default();
    for record in Records::of(batch, &mut memory, Limits::default()).unwrap() {
        let record = record.unwrap();
        let headers: Vec<_> = record
            .headers
            .map(|header| format!("{}={}", shown(Some(header.key)), shown(header.value)))
            .collect();
        let headers = if headers.is_empty() {
            "none".to_owned()
        } else {
            headers.join(",")
        };
        let (key, value) = (shown(record.key), shown(record.value));
        writeln!(
            text,
            "{} {} {key} {value} {headers}",
            record.offset, record.timestamp
        )
        .unwrap();
    }
    text
}

/// Returns the records that a `read_committed` reader sees, and the position at the end.
fn committed(batches: &[Batch<'_>], aborted: Vec<AbortedTransaction>) -> (String, i64) {
    let mut filter = AbortedFilter::new(aborted);
    let (mut text, mut next) = (String::new(), 0);
    for batch in batches {
        let judged = filter.judge(batch).unwrap();
        assert!(judged.next_offset > next, "positions grow");
        next = judged.next_offset;
        if judged.verdict == Verdict::Data {
            text += &lines(batch);
        }
    }
    (text, next)
}

fn expected(name: &str) -> String {
    String::from_utf8(file(&format!("{name}.records"))).unwrap()
}

const WRITERS: [(&str, Codec); 9] = [
    ("librdkafka-none", Codec::None),
    ("librdkafka-gzip", Codec::Gzip),
    ("librdkafka-snappy", Codec::Snappy),
    ("librdkafka-lz4", Codec::Lz4),
    ("librdkafka-zstd", Codec::Zstd),
    ("broker-gzip", Codec::Gzip),
    ("broker-snappy", Codec::Snappy),
    ("broker-lz4", Codec::Lz4),
    ("broker-zstd", Codec::Zstd),
];

#[test]
fn every_codec_of_both_clients_reads_as_librdkafka_reads_it() {
    for (name, codec) in WRITERS {
        let segment = file(&format!("{name}.log"));
        let batches = batches(&segment);
        let compressed = batches.iter().filter(|batch| batch.codec() == codec);
        assert!(compressed.count() > 0, "{name}");
        for batch in &batches {
            // librdkafka leaves a batch uncompressed if compression does not help
            assert!([codec, Codec::None].contains(&batch.codec()), "{name}");
            assert_eq!(batch.timestamp_type(), TimestampType::CreateTime);
            assert_eq!(batch.obstacle(), None);
        }
        let (text, next) = committed(&batches, Vec::new());
        assert_eq!(text, expected(name), "{name}");
        assert_eq!(next, i64::try_from(text.lines().count()).unwrap());
    }
}

#[test]
fn snappy_is_there_in_both_framings() {
    let xerial = |name: &str| {
        let segment = file(name);
        let batch = batches(&segment)[0];
        batch.body().starts_with(b"\x82SNAPPY\0")
    };
    assert!(!xerial("librdkafka-snappy.log"));
    assert!(xerial("broker-snappy.log"));
}

#[test]
fn equal_records_have_equal_digests_however_they_are_compressed() {
    let mut digests = WRITERS.map(|(name, _)| {
        let segment = file(&format!("{name}.log"));
        let (mut digest, mut scratch) = (Digest::default(), Vec::new());
        for batch in batches(&segment) {
            digest_batch(
                &batch,
                0..i64::MAX,
                &mut digest,
                &mut Memory::default(),
                &mut scratch,
                Limits::default(),
            )
            .unwrap();
        }
        digest.hex()
    });
    digests.sort_unstable();
    assert_eq!(digests.first(), digests.last());
}

#[test]
fn our_writer_reproduces_what_librdkafka_wrote() {
    for (name, codec) in WRITERS {
        let segment = file(&format!("{name}.log"));
        for batch in batches(&segment) {
            let mut memory = Memory::default();
            let mut writer = BatchWriter::new(codec);
            for record in Records::of(&batch, &mut memory, Limits::default()).unwrap() {
                let record = record.unwrap();
                let added = writer.add(record.timestamp, record.key, record.value, record.headers);
                added.unwrap();
            }
            let mut ours = Vec::new();
            writer.finish(&Stamp::NONE, &mut ours).unwrap();
            let mut passed = batch.bytes().to_vec();
            rewrite(&mut passed, &Stamp::NONE).unwrap();
            if codec == Codec::None {
                assert_eq!(ours, passed, "{name}");
            }
            let (ours, passed) = (Batch::parse(&ours).unwrap(), Batch::parse(&passed).unwrap());
            ours.check_crc().unwrap();
            passed.check_crc().unwrap();
            assert_eq!(lines(&ours), lines(&passed), "{name}");
            assert_eq!(ours.max_timestamp(), passed.max_timestamp(), "{name}");
        }
    }
}

#[test]
fn append_times_are_what_consumers_see() {
    let segment = file("append-time.log");
    let batches = batches(&segment);
    for batch in &batches {
        assert_eq!(batch.timestamp_type(), TimestampType::LogAppendTime);
        assert_eq!(batch.obstacle(), Some(Obstacle::LogAppendTime));
    }
    assert_eq!(committed(&batches, Vec::new()).0, expected("append-time"));
}

#[test]
fn aborted_transactions_are_left_out_and_markers_are_understood() {
    let (segment, index) = (file("transactions.log"), file("transactions.txnindex"));
    let (batches, aborted) = (batches(&segment), aborted(&index));
    assert_eq!(aborted.len(), 4);
    let (text, next) = committed(&batches, aborted.clone());
    assert_eq!(text, expected("transactions"));

    let controls: Vec<_> = batches
        .iter()
        .filter(|batch| batch.is_control())
        .map(|batch| Control::of(batch).unwrap().unwrap())
        .collect();
    let commits = controls.iter().filter(|control| {
        let Marker::Commit { coordinator_epoch } = control.marker else {
            return false;
        };
        coordinator_epoch >= 0
    });
    assert_eq!((commits.count(), controls.len()), (4, 8));
    assert_eq!(next, controls.last().unwrap().offset + 1);

    // from the middle of an aborted transaction, with the entries that a broker would send for it
    for start in 0..batches.len() {
        let from = batches[start].base_offset();
        let ends = |entry: &AbortedTransaction| {
            controls
                .iter()
                .find(|control| {
                    control.producer_id == entry.producer_id && control.offset > entry.first_offset
                })
                .unwrap()
                .offset
        };
        let listed: Vec<_> = aborted
            .iter()
            .copied()
            .filter(|e| ends(e) >= from)
            .collect();
        let (later, _) = committed(&batches[start..], listed);
        let wanted: Vec<&str> = text
            .lines()
            .filter(|line| line.split(' ').next().unwrap().parse::<i64>().unwrap() >= from)
            .collect();
        assert_eq!(later.lines().collect::<Vec<_>>(), wanted, "from {from}");
    }
}

#[test]
fn a_compacted_segment_has_holes_horizons_and_an_empty_batch() {
    let segment = file("compacted.log");
    let batches = batches(&segment);
    let has = |obstacle| batches.iter().any(|batch| batch.obstacle() == obstacle);
    assert!(has(Some(Obstacle::Gaps)), "a batch with holes");
    assert!(has(Some(Obstacle::Empty)), "a batch without records");
    let horizons = batches.iter().filter(|b| b.delete_horizon().is_some());
    assert!(horizons.count() > 0, "a batch with a delete horizon");

    // the consumer read later segments as well
    let (text, _) = committed(&batches, Vec::new());
    let all = expected("compacted");
    assert!(!text.is_empty() && all.starts_with(&text), "{text}\n{all}");
    let tombstone = batches
        .iter()
        .find(|b| b.delete_horizon().is_some())
        .unwrap();
    // the records' own times, not the horizon, which is later than their creation
    assert!(
        lines(tombstone).contains(" 17000000"),
        "{}",
        lines(tombstone)
    );
}
