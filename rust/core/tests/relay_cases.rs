//! Cases of the relay: passed, merged and re-encoded batches, and errors that stop a partition.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;
mod produced;
mod relay_log;

use std::collections::HashSet;

use batch_forge::{Forge, LOG_APPEND_TIME, Plain, plain};
use eomirror_batch::{BatchError, Codec, Limits, Stamp, TimestampType};
use eomirror_core::header::NAME;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::origin;
use eomirror_core::relay::{
    Accounting, Content, Fetched, Outgoing, Relay, RelayError, Relayed, SourceRun, Target,
    TopicPolicy,
};
use eomirror_core::{DropReason, Error};
use produced::compress;
use relay_log::rules::Rules;
use relay_log::{LARGE, LIMITS, OPPOSITE, TARGET_TOPIC, TOPIC, arrive, is_passed, one_batch, run};

/// Returns `count` batches of two records each, of `size` bytes.
fn batches(count: i64, size: usize) -> Vec<u8> {
    let value = vec![7; size];
    (0..count)
        .flat_map(|index| {
            let records = [
                plain(2 * index, 10 + index, &value),
                plain(2 * index + 1, 5, b""),
            ];
            Forge::new(2 * index, &records).bytes()
        })
        .collect()
}

fn shape(relayed: &Relayed) -> Vec<(bool, i64, i64)> {
    let shape = |batch: &Outgoing| (is_passed(batch), batch.first_offset(), batch.last_offset());
    relayed.batches.iter().map(shape).collect()
}

#[test]
fn a_large_batch_is_passed_where_it_lies() {
    let bytes = batches(2, 1000);
    let mut relayed = one_batch(&bytes, 0..i64::MAX);
    assert_eq!(shape(&relayed), [(true, 0, 1), (true, 2, 3)]);
    let batch = &mut relayed.batches[1];
    batch.stamp(&bytes, &Stamp::NONE).unwrap();
    let [head, body] = batch.parts(&bytes).unwrap();
    assert_eq!(head.len(), 61);
    assert!(std::ptr::eq(
        body,
        &raw const bytes[bytes.len() - body.len()..]
    ));
}

#[test]
fn small_batches_are_merged_and_a_large_one_is_passed() {
    let (small, large) = (batches(5, 10), batches(1, 1000));
    let each = small.len() / 5;
    let mut bytes = small[..2 * each].to_vec();
    let mut middle = large;
    middle[..8].copy_from_slice(&4_i64.to_be_bytes());
    bytes.extend(middle);
    for index in 3..5_i64 {
        let at = usize::try_from(index).unwrap() * each;
        bytes.extend(&small[at..at + each]);
    }
    let target = Target {
        merge_bytes: 1 << 20,
        small_bytes: 500,
        ..LARGE
    };
    let relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    assert_eq!(
        shape(&relayed),
        [(false, 0, 3), (true, 4, 5), (false, 6, 9)]
    );
    assert_eq!(
        relayed.batches[2].runs(),
        [SourceRun { first: 6, count: 4 }]
    );
}

#[test]
fn a_small_batch_alone_is_passed() {
    let target = Target {
        merge_bytes: 1 << 20,
        small_bytes: 500,
        ..LARGE
    };
    let relayed = run(&batches(1, 10), 0..i64::MAX, &Rules::NONE, &target);
    assert_eq!(shape(&relayed), [(true, 0, 1)]);
}

#[test]
fn merged_batches_end_at_their_size_and_never_exceed_the_limit() {
    let bytes = batches(100, 100);
    for (merge_bytes, max_batch_bytes, most) in [(1000, 1 << 20, 1000 + 250), (1 << 20, 700, 700)] {
        let target = Target {
            merge_bytes,
            max_batch_bytes,
            small_bytes: 500,
            ..LARGE
        };
        let relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
        assert!(relayed.batches.iter().all(|batch| batch.size() <= most));
        assert!(relayed.batches.len() > 5 && relayed.batches.len() < 40);
        assert_eq!(relayed.accounting.sent, 200);
    }
}

/// Returns the batches of records with these keys, as a source partition with this number places them.
fn divided(partition: i32, count: i32, fetched: &[u8]) -> Relayed {
    let fetched = Fetched {
        records: fetched,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    let target = Target::default().placed(count);
    Relay::new(LIMITS).relay(&Rules::NONE.policy(), partition, &target, &fetched)
}

fn partitions(relayed: &Relayed) -> Vec<(i32, Vec<SourceRun>)> {
    let batches = relayed.batches.iter();
    batches
        .map(|batch| (batch.partition(), batch.runs().to_vec()))
        .collect()
}

#[test]
fn records_without_a_key_go_by_their_source_partition() {
    let mut records = [plain(0, 1, b"x"), plain(1, 1, b"y"), plain(2, 1, b"z")];
    for record in &mut records {
        record.key = None;
    }
    // an empty key is a key
    records[1].key = Some(Vec::new());
    let relayed = divided(7, 4, &Forge::new(0, &records).bytes());
    let run = |first| SourceRun { first, count: 1 };
    assert_eq!(
        partitions(&relayed),
        [
            (275_646_681 % 4, vec![run(1)]),
            (7 % 4, vec![run(0), run(2)])
        ]
    );
}

#[test]
fn batches_of_several_codecs_become_one_for_each_target_partition() {
    let mut bytes = Vec::new();
    for (base, codec) in [(0, Codec::Lz4), (2, Codec::None), (4, Codec::Zstd)] {
        let mut records = [plain(base, 1, b"x"), plain(base + 1, 1, b"y")];
        records[0].key = Some(b"a".to_vec());
        records[1].key = Some(b"b".to_vec());
        let mut forge = Forge::new(base, &records);
        forge.attributes |= codec as i16;
        forge.body = compress(codec, &forge.body);
        bytes.extend(forge.bytes());
    }
    let mut relayed = divided(0, 3, &bytes);
    let places: Vec<i32> = relayed.batches.iter().map(Outgoing::partition).collect();
    assert_eq!(places, [1, 2]);
    for batch in &mut relayed.batches {
        batch.stamp(&bytes, &Stamp::NONE).unwrap();
        let written = batch.parts(&bytes).unwrap().concat();
        let view = eomirror_batch::Batch::parse(&written).unwrap();
        assert_eq!((view.codec(), view.record_count()), (Codec::Lz4, 3));
    }
}

/// Only its own codec makes such a record small enough for the target.
#[test]
fn a_record_that_is_large_without_compression_keeps_its_codec() {
    // sixteen letters at random: entropy coding halves them, and LZ4 has none
    let letters: Vec<u8> = noise(1, 15_000)
        .iter()
        .map(|byte| b'a' + byte % 16)
        .collect();
    for other in [Codec::None, Codec::Lz4] {
        let small = plain(0, 1, b"x");
        let large = plain(1, 1, &letters);
        let behind = plain(2, 1, b"y");
        let mut bytes = Vec::new();
        for (record, codec) in [(small, other), (large, Codec::Zstd), (behind, other)] {
            let mut forge = Forge::new(record.offset, &[record]);
            forge.attributes |= codec as i16;
            forge.body = compress(codec, &forge.body);
            bytes.extend(forge.bytes());
        }
        let fetched = Fetched {
            records: &bytes,
            aborted: &[],
            offsets: 0..i64::MAX,
        };
        let target = Target {
            max_batch_bytes: 10_000,
            ..Target::default().placed(1)
        };
        let relayed = Relay::new(LIMITS).relay(&Rules::NONE.policy(), 0, &target, &fetched);
        assert_eq!(relayed.stopped, None, "{other:?}");
        assert_eq!(relayed.accounting.sent, 3);
    }
}

#[test]
fn a_full_batch_of_one_target_partition_ends_no_other() {
    let mut records: Vec<Plain> = (0..30).map(|offset| plain(offset, 1, &[7; 100])).collect();
    for record in &mut records {
        // murmur2: of 3 partitions, "b" is in 2 and "a" in 1
        let key = if record.offset % 10 == 0 { b"a" } else { b"b" };
        record.key = Some(key.to_vec());
    }
    let bytes = Forge::new(0, &records).bytes();
    let fetched = Fetched {
        records: &bytes,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    let target = Target {
        merge_bytes: 1000,
        ..Target::default().placed(3)
    };
    let relayed = Relay::new(LIMITS).relay(&Rules::NONE.policy(), 0, &target, &fetched);
    let shape: Vec<(i32, i32)> = relayed
        .batches
        .iter()
        .map(|batch| (batch.partition(), batch.count()))
        .collect();
    assert_eq!(shape, [(2, 9), (2, 9), (1, 3), (2, 9)]);
}

/// Returns text that hardly compresses, a different one for each number.
fn noise(number: u64, size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ number;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()
    };
    std::iter::repeat_with(next).flatten().take(size).collect()
}

#[test]
fn a_compressed_batch_beyond_the_limit_is_split_in_order() {
    for codec in &Codec::ALL[1..] {
        let records: Vec<_> = (0..40)
            .map(|offset| plain(offset, 1, &noise(offset.unsigned_abs(), 100)))
            .collect();
        let mut forge = Forge::new(0, &records);
        forge.attributes |= *codec as i16;
        forge.body = compress(*codec, &forge.body);
        let bytes = forge.bytes();
        let target = Target {
            max_batch_bytes: 1000,
            ..LARGE
        };
        let mut relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
        assert_eq!(relayed.stopped, None, "{codec:?}");
        // about equal parts: none of them is small
        let sizes: Vec<_> = relayed.batches.iter().map(Outgoing::size).collect();
        assert!(
            sizes.iter().all(|size| (300..=1000).contains(size)),
            "{sizes:?}"
        );
        let arrived = arrive(&mut relayed.batches, &bytes, &target, |_| *codec);
        assert_eq!(
            arrived,
            (0..)
                .zip(renumbered(&relayed, &records))
                .collect::<Vec<_>>()
        );
    }
}

/// Returns the records with their offsets in their batches.
fn renumbered(relayed: &Relayed, records: &[Plain]) -> Vec<Plain> {
    let places = relayed
        .batches
        .iter()
        .flat_map(|batch| 0..i64::from(batch.count()));
    let renumber = |(offset, record): (i64, &Plain)| Plain {
        offset,
        ..record.clone()
    };
    places.zip(records).map(renumber).collect()
}

#[test]
fn neighbours_with_different_codecs_are_not_merged() {
    let batch = |codec: Codec, offset: i64| {
        let mut forge = Forge::new(offset, &[plain(offset, 1, b"v")]);
        forge.attributes |= codec as i16;
        forge.body = compress(codec, &forge.body);
        forge.bytes()
    };
    let codec = |offset: i64| Codec::ALL[usize::try_from(offset / 2 % 5).unwrap()];
    let bytes: Vec<u8> = (0..20)
        .flat_map(|offset| batch(codec(offset), offset))
        .collect();
    let target = Target {
        merge_bytes: 1 << 20,
        small_bytes: 1 << 20,
        small_compressed_bytes: 1 << 20,
        ..LARGE
    };
    let mut relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    assert_eq!(relayed.batches.len(), 10);
    arrive(&mut relayed.batches, &bytes, &target, codec);
}

#[test]
fn a_target_with_append_times_gets_such_batches_unchanged() {
    let mut forge = Forge::new(0, &[plain(0, 5, b"v")]);
    forge.attributes |= LOG_APPEND_TIME;
    forge.max_timestamp = 99;
    let bytes = forge.bytes();
    let target = Target {
        timestamps: TimestampType::LogAppendTime,
        ..LARGE
    };
    let mut passed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    assert!(is_passed(&passed.batches[0]));
    // the bit is cleared: a broker rejects it
    arrive(&mut passed.batches, &bytes, &target, |_| Codec::None);
    let mut written = one_batch(&bytes, 0..i64::MAX);
    assert!(!is_passed(&written.batches[0]));
    let arrived = arrive(&mut written.batches, &bytes, &LARGE, |_| Codec::None);
    assert_eq!(arrived[0].1.timestamp, 99);
}

#[test]
fn a_malformed_batch_stops_its_partition_after_what_precedes_it() {
    let bytes = batches(3, 50);
    let each = bytes.len() / 3;
    for damaged in 0..3 {
        let mut broken = bytes.clone();
        broken[damaged * each + 70] ^= 1;
        let relayed = run(&broken, 0..i64::MAX, &Rules::NONE, &LARGE);
        let offset = i64::try_from(2 * damaged).unwrap();
        let Some(error @ RelayError::Batch { .. }) = &relayed.stopped else {
            panic!("{:?}", relayed.stopped);
        };
        assert!(error.to_string().contains("checksum"), "{error}");
        assert_eq!(error.topic(), Some(TOPIC));
        assert_eq!(relayed.next_position, offset);
        assert_eq!(relayed.accounting.sent, u64::try_from(offset).unwrap());
        assert_eq!(relayed.partial, None);
    }
}

/// With merging, records of the malformed batch and of earlier ones share a batch when the error is detected.
#[test]
fn nothing_of_a_batch_with_a_malformed_record_is_sent() {
    let mut bytes = batches(2, 50);
    let mut third = Forge::new(4, &[plain(4, 1, b"well"), plain(5, 1, b"cut")]);
    third.body.pop();
    bytes.extend(third.bytes());
    let target = Target {
        merge_bytes: 1 << 20,
        small_bytes: 1 << 20,
        ..LARGE
    };
    let relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    assert!(matches!(
        relayed.stopped,
        Some(RelayError::Batch {
            error: BatchError::BadRecord { index: 1, .. },
            ..
        })
    ));
    assert_eq!(shape(&relayed), [(false, 0, 3)]);
    assert_eq!((relayed.next_position, relayed.accounting.fetched), (4, 4));
}

#[test]
fn batches_of_the_old_format_are_refused_by_name() {
    let mut bytes = batches(1, 50);
    let whole = bytes.len();
    bytes.extend(batches(1, 50));
    for magic in [0, 1] {
        bytes[whole + 16] = magic;
        bytes[whole + 7] = 2;
        let relayed = one_batch(&bytes, 0..i64::MAX);
        assert_eq!(
            relayed.stopped,
            Some(RelayError::Batch {
                topic: TOPIC.to_owned(),
                partition: 0,
                error: BatchError::OldMagic { offset: 2, magic },
            })
        );
        assert_eq!(relayed.next_position, 2);
    }
}

#[test]
fn a_batch_that_would_take_too_much_memory_is_refused_by_name() {
    for codec in &Codec::ALL[1..] {
        let mut forge = Forge::new(7, &[plain(7, 1, &vec![0; 300_000])]);
        forge.attributes |= *codec as i16;
        forge.body = compress(*codec, &forge.body);
        let bytes = forge.bytes();
        let fetched = Fetched {
            records: &bytes,
            aborted: &[],
            offsets: 7..i64::MAX,
        };
        for limits in [
            Limits {
                bytes: 100_000,
                ..LIMITS
            },
            Limits {
                ratio: 2,
                unchecked: 1000,
                ..LIMITS
            },
        ] {
            let rules = Rules {
                header: true,
                ..Rules::NONE
            };
            let relayed = Relay::new(limits).relay(&rules.policy(), 0, &LARGE, &fetched);
            assert!(
                matches!(
                    relayed.stopped,
                    Some(RelayError::Batch {
                        error: BatchError::TooLarge { offset: 7, .. },
                        ..
                    })
                ),
                "{codec:?} {:?}",
                relayed.stopped
            );
            assert_eq!(relayed.next_position, 7);
        }
    }
}

#[test]
fn large_records_that_are_all_the_same_are_no_attack() {
    let document = noise(1, 1_000).repeat(100);
    let records: Vec<_> = (0..200).map(|at| plain(at, at, &document)).collect();
    let mut forge = Forge::new(0, &records);
    forge.attributes |= Codec::Zstd as i16;
    forge.body = compress(Codec::Zstd, &forge.body);
    assert!(forge.body.len() * 1024 < 200 * document.len());
    let (bytes, mut relay) = (forge.bytes(), Relay::new(Limits::default()));
    // from within, so that it cannot be passed unchanged
    let fetched = Fetched {
        records: &bytes,
        aborted: &[],
        offsets: 1..i64::MAX,
    };
    let relayed = relay.relay(&Rules::NONE.policy(), 0, &LARGE, &fetched);
    assert_eq!((relayed.stopped, relayed.accounting.sent), (None, 199));
}

#[test]
fn a_header_of_a_newer_release_stops_the_partition_before_it() {
    let mut record = plain(1, 1, b"v");
    let mut value = b"EM\x09".to_vec();
    value.extend(eomirror_core::header::check(None, Some(b"v")).to_be_bytes());
    record.headers = vec![(NAME.into(), Some(value))];
    let bytes = Forge::new(0, &[plain(0, 1, b"v"), record, plain(2, 1, b"v")]).bytes();
    let rules = Rules {
        enforced: true,
        ..Rules::NONE
    };
    let relayed = run(&bytes, 0..i64::MAX, &rules, &LARGE);
    assert_eq!(
        relayed.stopped,
        Some(RelayError::Record(Error::UnknownHeaderVersion {
            at: format!("{TOPIC}-0@1"),
            version: 9,
            known: 1,
        }))
    );
    assert_eq!(shape(&relayed), [(false, 0, 0)]);
    assert_eq!(relayed.next_position, 1);
}

#[test]
fn a_record_that_is_too_large_is_named_with_what_it_needs() {
    let records = [plain(0, 1, b"v"), plain(1, 1, &[7; 500]), plain(2, 1, b"v")];
    let bytes = Forge::new(0, &records).bytes();
    let target = Target {
        max_batch_bytes: 300,
        ..LARGE
    };
    let relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    let needed = Forge::new(1, &records[1..2]).bytes().len();
    let error = relayed.stopped.clone().unwrap();
    assert_eq!(
        error.to_string(),
        format!(
            "{TOPIC}-0@1: the record needs a batch of {needed} bytes, the target topic accepts 300"
        )
    );
    assert_eq!(error.topic(), Some(TOPIC));
    assert_eq!(shape(&relayed), [(false, 0, 0)]);
    assert_eq!(relayed.next_position, 1);
}

#[test]
fn a_batch_from_the_target_is_dropped_whole_and_unread() {
    let mut forge = Forge::new(0, &[plain(0, 1, b"a"), plain(1, 1, b"b")]);
    forge.producer_id = OPPOSITE;
    // the records are unreadable
    forge.body = vec![0xff; 20];
    let bytes = forge.bytes();
    let rules = Rules {
        opposite: true,
        ..Rules::NONE
    };
    let relayed = run(&bytes, 0..i64::MAX, &rules, &LARGE);
    assert_eq!(relayed.stopped, None);
    assert_eq!(
        (relayed.accounting.fetched, relayed.accounting.sent),
        (2, 0)
    );
    assert_eq!(relayed.accounting.dropped(DropReason::Hop), 2);
    assert_eq!(relayed.next_position, 2);
}

#[test]
fn timestamps_too_far_apart_are_not_merged_into_one_batch() {
    let mut bytes = Forge::new(0, &[plain(0, i64::MIN, b"a")]).bytes();
    bytes.extend(Forge::new(1, &[plain(1, i64::MAX, b"b")]).bytes());
    let target = Target {
        merge_bytes: 1 << 20,
        small_bytes: 1 << 20,
        ..LARGE
    };
    let mut relayed = run(&bytes, 0..i64::MAX, &Rules::NONE, &target);
    assert_eq!(shape(&relayed), [(false, 0, 0), (false, 1, 1)]);
    let arrived = arrive(&mut relayed.batches, &bytes, &target, |_| Codec::None);
    assert_eq!(arrived[0].1.timestamp, i64::MIN);
    assert_eq!(arrived[1].1.timestamp, i64::MAX);
}

#[test]
fn an_answer_with_nothing_in_it_moves_nothing() {
    let relayed = one_batch(&[], 40..i64::MAX);
    assert_eq!(relayed.next_position, 40);
    assert_eq!(
        (relayed.accounting, relayed.leader_epoch),
        (Accounting::default(), -1)
    );
    assert_eq!(relayed.looked_to, -1);
    assert_eq!((relayed.stopped, relayed.max_timestamp), (None, -1));
}

#[test]
fn an_answer_that_ends_before_the_position_says_where_it_ended() {
    let bytes = batches(2, 50);
    for (from, next) in [(30, 30), (4, 4), (1, 4)] {
        let relayed = one_batch(&bytes, from..i64::MAX);
        assert_eq!((relayed.next_position, relayed.looked_to), (next, 4));
    }
}

#[test]
fn bytes_that_a_batch_was_not_made_of_are_refused() {
    let bytes = batches(1, 50);
    let mut relayed = one_batch(&bytes, 0..i64::MAX);
    let mut batch = relayed.batches.remove(0);
    assert!(batch.stamp(&bytes[..70], &Stamp::NONE).is_err());
    assert!(batch.parts(&[]).is_err());
    let policy = Rules::NONE.policy();
    let halved = Relay::new(LIMITS).halve(&policy, 0, &batch, &bytes[..70]);
    assert!(halved.is_err());
}

#[test]
fn a_cluster_that_forwards_only_others_drops_what_is_local() {
    let origins = Some(HashSet::from(["third".to_owned()]));
    let guard = LoopGuard::new("source", "target", origins, true).unwrap();
    let policy = TopicPolicy::new(TOPIC, TARGET_TOPIC, guard, true, HashSet::new()).unwrap();
    let bytes = batches(2, 50);
    let fetched = Fetched {
        records: &bytes,
        aborted: &[],
        offsets: 1..i64::MAX,
    };
    let relayed = Relay::new(LIMITS).relay(&policy, 0, &LARGE, &fetched);
    assert_eq!(relayed.accounting.dropped(DropReason::Origin), 3);
    assert_eq!((relayed.accounting.fetched, relayed.batches.len()), (3, 0));
}

#[test]
fn buffers_of_batches_that_are_done_with_serve_again() {
    let bytes = batches(3, 50);
    let rules = Rules {
        header: true,
        ..Rules::NONE
    };
    let (policy, mut relay) = (rules.policy(), Relay::new(LIMITS));
    let fetched = Fetched {
        records: &bytes,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    let place = |batch: &Outgoing| match batch.content() {
        Content::Written(bytes) => bytes.as_ptr(),
        Content::Passed { .. } => panic!("it is written"),
    };
    let mut first = relay.relay(&policy, 0, &LARGE, &fetched);
    let used = place(&first.batches[0]);
    relay.give_back(first.batches.remove(0));
    let mut places = Vec::new();
    for _ in 0..3 {
        let again = relay.relay(&policy, 0, &LARGE, &fetched);
        places.extend(again.batches.iter().map(place));
        for batch in again.batches {
            relay.give_back(batch);
        }
    }
    assert!(places.contains(&used));
}

/// The place of each record on the source, as the last header; one that the source's record has is replaced.
#[test]
fn the_place_on_the_source_is_added_to_every_record() {
    for header in [false, true] {
        let rules = Rules {
            header,
            ..Rules::NONE
        };
        let policy = rules.policy().with_origin("east");
        let mut earlier = plain(1, 5, b"b");
        earlier.headers = vec![
            (origin::NAME.as_bytes().to_vec(), Some(b"copied".to_vec())),
            (b"x".to_vec(), None),
        ];
        let bytes = Forge::new(0, &[plain(0, 10, b"a"), earlier]).bytes();
        let fetched = Fetched {
            records: &bytes,
            aborted: &[],
            offsets: 0..i64::MAX,
        };
        let mut relayed = Relay::new(LIMITS).relay(&policy, 3, &LARGE, &fetched);
        assert_eq!(shape(&relayed), [(false, 0, 1)]);
        let arrived = arrive(&mut relayed.batches, &bytes, &LARGE, |_| Codec::None);
        assert_eq!(arrived.len(), 2);
        for (offset, record) in arrived {
            let place = format!("east/{TOPIC}/3/{offset}").into_bytes();
            let names: Vec<_> = record
                .headers
                .iter()
                .map(|(name, _)| name.as_slice())
                .collect();
            assert_eq!(record.headers.last().unwrap().1.as_ref(), Some(&place));
            let origins = names
                .iter()
                .filter(|name| **name == origin::NAME.as_bytes());
            assert_eq!(origins.count(), 1);
            assert_eq!(names.contains(&NAME.as_bytes()), header);
            assert_eq!(names.contains(&b"x".as_slice()), offset == 1);
        }
    }
}
