//! Laws of record batches, against an encoder that shares no code with the crate's own.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;

use batch_forge::{
    CONTROL, DELETE_HORIZON, Forge, LOG_APPEND_TIME, Plain, TRANSACTIONAL, crc32c, plain, read,
    read_with, records,
};
use eomirror_batch::{
    AbortedFilter, AbortedTransaction, Batch, BatchError, BatchWriter, Batches, Codec, Control,
    Limits, Marker, Memory, Obstacle, Stamp, TimestampType, Verdict, rewrite, rewritten_header,
};
use eomirror_core::digest::Digest;
use eomirror_core::digest_batch;
use eomirror_core::{RecordRef, Written};
use proptest::prelude::*;

fn codec() -> impl Strategy<Value = Codec> {
    proptest::sample::select(Codec::ALL.to_vec())
}

fn stamp() -> impl Strategy<Value = Stamp> {
    (0..i64::MAX, 0..i16::MAX, 0..i32::MAX, any::<bool>()).prop_map(
        |(producer_id, producer_epoch, base_sequence, transactional)| Stamp {
            producer_id,
            producer_epoch,
            base_sequence,
            transactional,
        },
    )
}

fn write(codec: Codec, stamp: &Stamp, records: &[Plain]) -> Vec<u8> {
    let mut writer = BatchWriter::new(codec);
    let mut out = Vec::new();
    for record in records {
        writer
            .add(
                record.timestamp,
                record.key.as_deref(),
                record.value.as_deref(),
                record.header_refs().into_iter(),
            )
            .unwrap();
    }
    writer.finish(stamp, &mut out).unwrap();
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(codec in codec(), stamp in stamp(), records in records(30)) {
        let bytes = write(codec, &stamp, &records);
        let batch = Batch::parse(&bytes).unwrap();
        batch.check_crc().unwrap();
        prop_assert_eq!(batch.codec(), codec);
        prop_assert_eq!(batch.timestamp_type(), TimestampType::CreateTime);
        prop_assert_eq!(batch.is_transactional(), stamp.transactional);
        prop_assert!(!batch.is_control());
        prop_assert_eq!(batch.producer_id(), stamp.producer_id);
        prop_assert_eq!(batch.producer_epoch(), stamp.producer_epoch);
        prop_assert_eq!(batch.base_sequence(), stamp.base_sequence);
        prop_assert_eq!((batch.base_offset(), batch.leader_epoch()), (0, -1));
        prop_assert_eq!(batch.next_offset(), i64::try_from(records.len()).unwrap());
        prop_assert_eq!(batch.max_timestamp(), records.iter().map(|r| r.timestamp).max().unwrap());
        prop_assert_eq!(batch.obstacle(), None);
        prop_assert_eq!(read(&batch).unwrap(), records);
    }

    #[test]
    fn the_writer_writes_the_bytes_of_another_encoder(stamp in stamp(), records in records(30)) {
        let mut forge = Forge::new(0, &records);
        forge.producer_id = stamp.producer_id;
        forge.producer_epoch = stamp.producer_epoch;
        forge.base_sequence = stamp.base_sequence;
        forge.attributes = if stamp.transactional { TRANSACTIONAL } else { 0 };
        prop_assert_eq!(write(Codec::None, &stamp, &records), forge.bytes());
    }

    #[test]
    fn gaps_far_offsets_and_append_times_are_resolved(
        records in records(12),
        base_offset in 0_i64..1 << 60,
        deltas in proptest::collection::btree_set(0..i32::MAX, 12),
        behind in 0_i32..1000,
        append_time in proptest::option::of(0_i64..1 << 42),
        horizon: bool,
    ) {
        let mut records = records;
        for (record, delta) in records.iter_mut().zip(&deltas) {
            record.offset = base_offset + i64::from(*delta);
        }
        let mut forge = Forge::new(base_offset, &records);
        // compaction may have removed the last record as well
        forge.last_offset_delta = forge.last_offset_delta.saturating_add(behind);
        if horizon {
            forge.attributes |= DELETE_HORIZON;
        }
        if let Some(time) = append_time {
            forge.attributes |= LOG_APPEND_TIME;
            forge.max_timestamp = time;
            for record in &mut records {
                record.timestamp = time;
            }
        }
        let bytes = forge.bytes();
        let batch = Batch::parse(&bytes).unwrap();
        batch.check_crc().unwrap();
        prop_assert_eq!(batch.next_offset(), base_offset + i64::from(forge.last_offset_delta) + 1);
        prop_assert_eq!(batch.delete_horizon(), horizon.then_some(forge.base_timestamp));
        prop_assert_eq!(read(&batch).unwrap(), records);
    }

    #[test]
    fn every_header_field_is_where_it_belongs(
        base_offset in 0_i64..1 << 60,
        leader_epoch: i32,
        bits in 0_i16..0x80,
        last_offset_delta in 0_i32..i32::MAX,
        base_timestamp: i64,
        max_timestamp: i64,
        producer_id: i64,
        producer_epoch: i16,
        base_sequence: i32,
    ) {
        // bits 0 to 2 are the codec, of which there are five
        let attributes = if bits & 7 > 4 { bits & !7 } else { bits };
        let forge = Forge {
            base_offset, leader_epoch, attributes, last_offset_delta, base_timestamp, max_timestamp,
            producer_id, producer_epoch, base_sequence, record_count: 0, body: Vec::new(),
        };
        let bytes = forge.bytes();
        let batch = Batch::parse(&bytes).unwrap();
        prop_assert_eq!(batch.base_offset(), base_offset);
        prop_assert_eq!(batch.leader_epoch(), leader_epoch);
        prop_assert_eq!(batch.attributes(), attributes);
        prop_assert_eq!(batch.is_transactional(), attributes & TRANSACTIONAL != 0);
        prop_assert_eq!(batch.is_control(), attributes & CONTROL != 0);
        prop_assert_eq!(batch.delete_horizon().is_some(), attributes & DELETE_HORIZON != 0);
        prop_assert_eq!(batch.timestamp_type() == TimestampType::LogAppendTime, attributes & LOG_APPEND_TIME != 0);
        prop_assert_eq!(batch.last_offset_delta(), last_offset_delta);
        prop_assert_eq!(batch.base_timestamp(), base_timestamp);
        prop_assert_eq!(batch.max_timestamp(), max_timestamp);
        prop_assert_eq!(batch.producer_id(), producer_id);
        prop_assert_eq!(batch.producer_epoch(), producer_epoch);
        prop_assert_eq!(batch.base_sequence(), base_sequence);
        prop_assert_eq!(batch.record_count(), 0);
        prop_assert_eq!(batch.crc(), crc32c(&bytes[21..]));
        // an empty batch is normal: compaction keeps the last one of a producer
        prop_assert_eq!(read(&batch).unwrap(), vec![]);
    }

    #[test]
    fn a_rewritten_batch_has_the_same_records_under_another_header(
        codec in codec(), from in stamp(), to in stamp(), records in records(20),
        base_offset in 0_i64..1 << 60, leader_epoch: i32, horizon: bool,
    ) {
        let mut source = write(codec, &from, &records);
        source[..8].copy_from_slice(&base_offset.to_be_bytes());
        source[12..16].copy_from_slice(&leader_epoch.to_be_bytes());
        if horizon {
            source[22] |= 0x40;
        }
        batch_forge::reseal(&mut source);
        let header = rewritten_header(&Batch::parse(&source).unwrap(), &to).unwrap();
        let mut target = source.clone();
        rewrite(&mut target, &to).unwrap();
        prop_assert_eq!(&target[..61], &header[..]);
        prop_assert_eq!(Batch::parse(&target).unwrap().crc(), crc32c(&target[21..]));
        // the batch that this producer would have written
        prop_assert_eq!(target, write(codec, &to, &records));
    }

    #[test]
    fn a_bit_flipped_after_the_producer_shows_under_any_header(
        codec in codec(), from in stamp(), to in stamp(), records in records(20), bit: prop::sample::Index,
    ) {
        let mut source = write(codec, &from, &records);
        let before = rewritten_header(&Batch::parse(&source).unwrap(), &to).unwrap();
        let bit = bit.index((source.len() - 61) * 8);
        source[61 + bit / 8] ^= 1 << (bit % 8);
        let after = rewritten_header(&Batch::parse(&source).unwrap(), &to).unwrap();
        prop_assert_eq!(before, after);
        rewrite(&mut source, &to).unwrap();
        prop_assert!(Batch::parse(&source).unwrap().check_crc().is_err());
    }

    #[test]
    fn a_cut_answer_gives_its_whole_batches_and_a_partial_one(
        parts in proptest::collection::vec(records(4), 1..4),
        codec in codec(),
        cut: prop::sample::Index,
    ) {
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| write(codec, &Stamp::NONE, part)).collect();
        let answer = parts.concat();
        let end = cut.index(answer.len() + 1);
        let mut batches = Batches::new(&answer[..end]);
        let (mut whole, mut start) = (0, 0);
        for batch in &mut batches {
            prop_assert_eq!(batch.unwrap().bytes(), &parts[whole][..]);
            start += parts[whole].len();
            whole += 1;
        }
        match batches.partial() {
            None => prop_assert_eq!(start, end),
            Some(partial) => {
                prop_assert_eq!(partial.have, end - start);
                prop_assert!(partial.have < parts[whole].len());
                let told = if partial.have < 17 { 61 } else { parts[whole].len() };
                prop_assert_eq!(partial.need, told);
            }
        }
    }

    #[test]
    fn the_digest_of_a_batch_is_that_of_its_records(
        codec in codec(), records in records(20), from in 0_i64..20,
    ) {
        let bytes = write(codec, &Stamp::NONE, &records);
        let (mut expected, mut scratch) = (Digest::default(), Vec::new());
        let kept: Vec<_> = records.iter().filter(|record| record.offset >= from).collect();
        for record in &kept {
            let headers = record.header_refs();
            expected.add(&RecordRef {
                topic: "t", partition: 3, offset: 99, leader_epoch: 5, timestamp: record.timestamp,
                key: record.key.as_deref(), value: record.value.as_deref(), headers: &headers,
                written: Written::Unknown,
            }, &mut scratch);
        }
        let mut digest = Digest::default();
        let count = digest_batch(
            &Batch::parse(&bytes).unwrap(), from..i64::MAX, &mut digest, &mut Memory::default(),
            &mut scratch, Limits::default(),
        ).unwrap();
        prop_assert_eq!(digest, expected);
        prop_assert_eq!(count, kept.len() as u64);
    }

    /// Plays the log of a few producers with known outcomes. The filter, which sees the batches from `from` on and a
    /// broker's list, must agree on each.
    #[test]
    fn the_filter_agrees_with_the_writer_of_the_log(
        steps in proptest::collection::vec((0_i64..4, 0_u8..5, 1_i64..4), 1..60),
        from in 0_usize..30,
    ) {
        let log = play(&steps);
        let from = from.min(log.len());
        let start = log.get(from).map_or(i64::MAX, |entry| entry.offset);
        let mut listed: Vec<_> = log
            .iter()
            .filter(|entry| entry.aborts_from.is_some() && entry.offset >= start)
            .map(|entry| AbortedTransaction {
                producer_id: entry.producer,
                first_offset: entry.aborts_from.unwrap(),
            })
            .collect();
        listed.reverse();
        let mut filter = AbortedFilter::new(listed);
        for entry in &log[from..] {
            let judged = filter.judge(&Batch::parse(&entry.bytes).unwrap()).unwrap();
            match entry.truth {
                Truth::Data => prop_assert_eq!(judged.verdict, Verdict::Data),
                Truth::Aborted => prop_assert_eq!(judged.verdict, Verdict::Aborted),
                Truth::Marker => prop_assert!(matches!(judged.verdict, Verdict::Control(Some(_)))),
            }
            prop_assert_eq!(judged.next_offset, entry.next);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Truth {
    Data,
    Aborted,
    Marker,
}

struct Entry {
    offset: i64,
    next: i64,
    producer: i64,
    bytes: Vec<u8>,
    truth: Truth,
    aborts_from: Option<i64>,
}

/// Producers 0 to 3; an action is: 0 to 2 write in a transaction, 3 end it, 4 write outside of one.
fn play(steps: &[(i64, u8, i64)]) -> Vec<Entry> {
    let mut log: Vec<Entry> = Vec::new();
    let mut open: [Vec<usize>; 4] = Default::default();
    let mut offset = 10;
    let ends = (0..4).map(|producer| (producer, 3, 1));
    for (producer, action, size) in steps.iter().copied().chain(ends) {
        let transaction = &mut open[usize::try_from(producer).unwrap()];
        let mut aborts_from = None;
        let (forge, truth) = if action == 3 {
            if transaction.is_empty() {
                continue;
            }
            let commit = size == 1;
            if !commit {
                aborts_from = Some(log[transaction[0]].offset);
                for index in transaction.iter() {
                    log[*index].truth = Truth::Aborted;
                }
            }
            transaction.clear();
            let forge = Forge::marker(offset, producer, i16::from(commit));
            (forge, Truth::Marker)
        } else {
            let records: Vec<_> = (offset..offset + size).map(|o| plain(o, 5, b"v")).collect();
            let mut forge = Forge::new(offset, &records);
            // a compacted batch keeps its offsets
            if size == 3 {
                (forge.body, forge.record_count) = (Vec::new(), 0);
            }
            forge.producer_id = producer;
            if action < 3 {
                forge.attributes = TRANSACTIONAL;
                transaction.push(log.len());
            } else if !transaction.is_empty() {
                // one producer does not mix the two
                continue;
            }
            (forge, Truth::Data)
        };
        let next = offset + i64::from(forge.last_offset_delta) + 1;
        log.push(Entry {
            offset,
            next,
            producer,
            bytes: forge.bytes(),
            truth,
            aborts_from,
        });
        offset = next;
    }
    log
}

#[test]
fn markers_tell_their_outcome_and_coordinator() {
    let control = |kind| {
        let bytes = Forge::marker(7, 42, kind).bytes();
        Control::of(&Batch::parse(&bytes).unwrap())
    };
    let told = |marker| {
        Ok(Some(Control {
            offset: 7,
            timestamp: 1000,
            producer_id: 42,
            producer_epoch: 1,
            marker,
        }))
    };
    let coordinator_epoch = 5;
    assert_eq!(control(0), told(Marker::Abort { coordinator_epoch }));
    assert_eq!(control(1), told(Marker::Commit { coordinator_epoch }));
    assert_eq!(control(2), told(Marker::Other { number: 2 }));
    assert!(matches!(control(-1), Err(BatchError::BadControl { .. })));
}

#[test]
fn a_control_batch_without_marker_is_refused_unless_empty() {
    let forge = |key: Option<&[u8]>, value: Option<&[u8]>| {
        let record = Plain {
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            ..plain(0, 0, b"")
        };
        Forge {
            attributes: CONTROL | TRANSACTIONAL,
            ..Forge::new(0, &[record])
        }
    };
    let refused = |forge: &Forge| {
        let bytes = forge.bytes();
        let batch = Batch::parse(&bytes).unwrap();
        let error = Control::of(&batch).unwrap_err();
        assert!(AbortedFilter::new(Vec::new()).judge(&batch).is_err());
        matches!(error, BatchError::BadControl { .. })
    };
    let (key, value) = ([0, 0, 0, 1], [0, 0, 0, 0, 0, 9]);
    assert!(refused(&forge(None, Some(&value))));
    assert!(refused(&forge(Some(&key[..3]), Some(&value))));
    assert!(refused(&forge(Some(&[0xff, 0, 0, 1]), Some(&value))));
    assert!(refused(&forge(Some(&key), None)));
    assert!(refused(&forge(Some(&key), Some(&value[..5]))));
    let mut two = forge(Some(&key), Some(&value));
    two.body.extend({
        let record = Plain {
            key: Some(key.to_vec()),
            ..plain(1, 0, b"")
        };
        Forge::new(0, &[record]).body
    });
    (two.record_count, two.last_offset_delta) = (2, 1);
    assert!(refused(&two));
    let mut compressed = forge(Some(&key), Some(&value));
    compressed.attributes |= 1;
    assert!(refused(&compressed));

    let mut empty = forge(Some(&key), Some(&value));
    (empty.body, empty.record_count) = (Vec::new(), 0);
    let bytes = empty.bytes();
    assert_eq!(Control::of(&Batch::parse(&bytes).unwrap()), Ok(None));
    let data = Forge::new(0, &[plain(0, 0, b"")]).bytes();
    assert!(Control::of(&Batch::parse(&data).unwrap()).is_err());
}

#[test]
fn a_batch_that_must_be_encoded_anew_is_not_rewritten() {
    let whole = Forge::new(0, &[plain(0, 5, b"a"), plain(1, 5, b"b")]);
    let gap = Forge::new(0, &[plain(0, 5, b"a"), plain(2, 5, b"b")]);
    let mut trailing_gap = whole.clone();
    trailing_gap.last_offset_delta = 2;
    let mut append_time = whole.clone();
    append_time.attributes = LOG_APPEND_TIME;
    let mut empty = whole.clone();
    (empty.body, empty.record_count) = (Vec::new(), 0);
    for (forge, obstacle) in [
        (gap, Obstacle::Gaps),
        (trailing_gap, Obstacle::Gaps),
        (append_time, Obstacle::LogAppendTime),
        (empty, Obstacle::Empty),
        (Forge::marker(0, 1, 1), Obstacle::Control),
    ] {
        let before = forge.bytes();
        let mut bytes = before.clone();
        let refused = rewrite(&mut bytes, &Stamp::NONE);
        assert_eq!(
            refused,
            Err(BatchError::CannotPass {
                offset: 0,
                obstacle
            })
        );
        assert_eq!(bytes, before);
    }
}

#[test]
fn an_aborted_transaction_covers_batches_from_its_first_offset() {
    let batch = |offset, producer_id, attributes| {
        let records = [plain(offset, 0, b"a"), plain(offset + 1, 0, b"b")];
        Forge {
            attributes,
            producer_id,
            ..Forge::new(offset, &records)
        }
        .bytes()
    };
    let aborted = AbortedTransaction {
        producer_id: 1,
        first_offset: 3,
    };
    let mut filter = AbortedFilter::new(vec![aborted]);
    let log = [
        (batch(0, 1, TRANSACTIONAL), Verdict::Data),
        // the transaction begins at the last offset of this batch
        (batch(2, 1, TRANSACTIONAL), Verdict::Aborted),
        (batch(4, 1, 0), Verdict::Data),
        (batch(6, 2, TRANSACTIONAL), Verdict::Data),
        (batch(8, 1, TRANSACTIONAL), Verdict::Aborted),
    ];
    for (bytes, verdict) in log {
        let judged = filter.judge(&Batch::parse(&bytes).unwrap()).unwrap();
        assert_eq!(judged.verdict, verdict);
    }
}

#[test]
fn batches_of_one_answer_must_grow() {
    let first = Forge::new(5, &[plain(5, 0, b""), plain(6, 0, b"")]).bytes();
    let overlapping = Forge::new(6, &[plain(6, 0, b"")]).bytes();
    let mut filter = AbortedFilter::new(Vec::new());
    filter.judge(&Batch::parse(&first).unwrap()).unwrap();
    assert_eq!(
        filter.judge(&Batch::parse(&overlapping).unwrap()),
        Err(BatchError::OffsetWentBack { offset: 6, last: 6 })
    );
}

#[test]
fn a_timestamp_beyond_64_bits_needs_log_append_times() {
    let mut forge = Forge::new(0, &[plain(0, 0, b""), plain(1, 10, b"")]);
    forge.base_timestamp = i64::MAX - 5;
    let bytes = forge.bytes();
    assert!(matches!(
        read(&Batch::parse(&bytes).unwrap()),
        Err(BatchError::BadRecord { index: 1, .. })
    ));
    forge.attributes = LOG_APPEND_TIME;
    let bytes = forge.bytes();
    assert!(read(&Batch::parse(&bytes).unwrap()).is_ok());
}

#[test]
fn a_writer_is_empty_after_each_batch_and_refuses_an_empty_one() {
    let mut writer = BatchWriter::new(Codec::Zstd);
    let mut out = b"before".to_vec();
    assert!(writer.finish(&Stamp::NONE, &mut out).is_err());
    assert_eq!(out, b"before");
    for value in [b"a", b"b"] {
        writer.add(9, None, Some(value), [].into_iter()).unwrap();
        assert_eq!(writer.count(), 1);
        writer.finish(&Stamp::NONE, &mut out).unwrap();
        assert_eq!((writer.count(), writer.size()), (0, 61));
    }
    let batches: Vec<_> = Batches::new(&out[6..]).map(Result::unwrap).collect();
    assert_eq!(read(&batches[1]).unwrap(), vec![plain(0, 9, b"b")]);
    assert_eq!(batches.len(), 2);

    writer.add(i64::MAX, None, None, [].into_iter()).unwrap();
    let too_far = writer.add(-2, None, None, [].into_iter());
    assert!(matches!(too_far, Err(BatchError::Unwritable { .. })));
    assert_eq!(writer.count(), 1);
}

#[test]
fn decompression_stops_at_the_limits_in_every_codec() {
    let zeros = [plain(0, 0, &vec![0; 3 << 20])];
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let bytes = write(codec, &Stamp::NONE, &zeros);
        let batch = Batch::parse(&bytes).unwrap();
        let under = |limits| read_with(&batch, &mut Memory::default(), limits);
        let free = Limits::default();
        assert_eq!(under(free).as_deref(), Ok(&zeros[..]), "{codec:?}");
        let small = Limits {
            bytes: 3 << 20,
            ..free
        };
        assert!(
            matches!(under(small), Err(BatchError::TooLarge { limit, .. }) if limit == 3 << 20),
            "{codec:?}"
        );
        let strict = Limits {
            ratio: 4,
            unchecked: 1 << 20,
            ..free
        };
        assert!(
            matches!(under(strict), Err(BatchError::TooLarge { .. })),
            "{codec:?}"
        );
        // the limit holds although the memory has room from another batch
        let mut memory = Memory::default();
        read_with(&batch, &mut memory, free).unwrap();
        assert!(
            matches!(
                read_with(&batch, &mut memory, small),
                Err(BatchError::TooLarge { .. })
            ),
            "{codec:?}"
        );
    }
}
