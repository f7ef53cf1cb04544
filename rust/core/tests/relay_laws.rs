//! Laws of the relay: the target holds the records that a `read_committed` consumer of the source would see, however
//! they are split, merged and compressed.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;
mod produced;
mod relay_log;

use batch_forge::{Forge, Plain, records};
use eomirror_batch::Codec;
use eomirror_core::DropReason;
use eomirror_core::relay::{Accounting, Fetched, Outgoing, Relay, RelayError, Relayed, Target};
use produced::compress;
use proptest::prelude::*;
use relay_log::rules::{Rules, rules};
use relay_log::{
    LARGE, LIMITS, TOPIC, arrive, assert_equal, copied_headers, expected, is_passed, logs,
    one_batch, relay, targets,
};

/// Checks one call: the arrived records, the accounting, the position.
fn check(log: &relay_log::Log, offsets: std::ops::Range<i64>, rules: &Rules, target: &Target) {
    let (mut relayed, fetched) = relay(log, offsets.clone(), rules, target);
    let end = match &relayed.stopped {
        None => offsets.end,
        Some(RelayError::RecordTooLarge {
            offset,
            bytes,
            limit,
            ..
        }) => {
            assert_eq!(*limit, Some(target.max_batch_bytes));
            assert!(*bytes > target.max_batch_bytes);
            assert_eq!(relayed.next_position, *offset);
            *offset
        }
        Some(error) => panic!("{error}"),
    };
    let position = offsets.start.max(end.min(log.end));
    assert_eq!(relayed.next_position, position);
    let (wanted, dropped) = expected(log, offsets.start..end, rules, target);
    for reason in DropReason::ALL {
        let count = dropped.get(&reason).copied().unwrap_or(0);
        assert_eq!(relayed.accounting.dropped(reason), count, "{reason}");
    }
    let fetched_records = log.visible(offsets.start..end).count() as u64;
    assert_eq!(relayed.accounting.fetched, fetched_records);
    assert_eq!(relayed.accounting.sent, wanted.len() as u64);
    let copied = copied_headers(log, offsets.start..end, rules);
    assert_eq!(relayed.accounting.copied_headers, copied);
    let times = relayed.batches.iter().map(Outgoing::max_timestamp);
    assert_eq!(relayed.max_timestamp, times.max().unwrap_or(-1));
    let arrived = arrive(&mut relayed.batches, &fetched, target, |at| log.codec(at));
    assert_equal(arrived, &wanted);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn what_arrives_is_what_a_consumer_of_the_source_sees(
        log in logs(9, 7),
        rules in rules(),
        target in targets(),
        start: prop::sample::Index,
        end: prop::sample::Index,
    ) {
        let first = log.batches[0].1.start;
        let offsets = usize::try_from(log.end - first).unwrap() + 2;
        let start = first + i64::try_from(start.index(offsets)).unwrap();
        let end = first + i64::try_from(end.index(3 * offsets)).unwrap();
        let end = if end > log.end { i64::MAX } else { end };
        check(&log, start..end, &rules, &target);
    }

    /// However a response is split, the next one from the position continues at its end.
    #[test]
    fn a_cut_answer_is_taken_up_where_it_ended(
        log in logs(6, 5), rules in rules(), target in targets(), cut: prop::sample::Index,
    ) {
        let target = Target { max_batch_bytes: 1 << 20, ..target };
        let start = log.batches[0].1.start;
        let (bytes, aborted) = log.answer(start);
        let cut = cut.index(bytes.len() + 1);
        let fetched = Fetched { records: &bytes[..cut], aborted: &aborted, offsets: start..i64::MAX };
        let mut relay_once = Relay::new(LIMITS);
        relay_once.write_as(rules.writer);
        let mut first = relay_once.relay(&rules.policy(), 0, &target, &fetched);
        prop_assert_eq!(first.stopped.as_ref(), None);
        let whole: usize = log.batches.iter()
            .take_while(|(_, offsets)| offsets.end <= first.next_position)
            .map(|(bytes, _)| bytes.len())
            .sum();
        prop_assert_eq!(first.partial.map_or(0, |partial| partial.have), cut - whole);
        let mut arrived = arrive(&mut first.batches, &bytes, &target, |at| log.codec(at));
        let (mut second, bytes) = relay(&log, first.next_position..i64::MAX, &rules, &target);
        arrived.extend(arrive(&mut second.batches, &bytes, &target, |at| log.codec(at)));
        let (wanted, dropped) = expected(&log, start..i64::MAX, &rules, &target);
        assert_equal(arrived, &wanted);
        let mut accounting = first.accounting;
        accounting.add(&second.accounting);
        prop_assert_eq!(accounting.dropped_in_all(), dropped.values().sum::<u64>());
        prop_assert_eq!(accounting.settle(TOPIC, 0, wanted.len() as u64), Ok(()));
        prop_assert!(accounting.settle(TOPIC, 0, wanted.len() as u64 + 1).is_err());
    }

    /// However few runs of offsets a call may return, each returns some, and the next one continues after them.
    #[test]
    fn an_answer_of_many_runs_is_taken_in_parts(
        log in logs(6, 6), rules in rules(), target in targets(), most_runs in 1_usize..5,
    ) {
        let target = Target { max_batch_bytes: 1 << 20, most_runs, ..target };
        let start = log.batches[0].1.start;
        let (wanted, dropped) = expected(&log, start..i64::MAX, &rules, &target);
        let (mut arrived, mut accounting, mut position) = (Vec::new(), Accounting::default(), start);
        while position < log.end {
            let (mut part, bytes) = relay(&log, position..i64::MAX, &rules, &target);
            prop_assert_eq!(part.stopped, None);
            prop_assert!(part.next_position > position);
            let runs: usize = part.batches.iter().map(|batch| batch.runs().len()).sum();
            prop_assert!(runs <= most_runs, "{} runs", runs);
            prop_assert!(runs == most_runs || part.next_position == log.end, "it might have gone on");
            position = part.next_position;
            arrived.extend(arrive(&mut part.batches, &bytes, &target, |at| log.codec(at)));
            accounting.add(&part.accounting);
        }
        assert_equal(arrived, &wanted);
        prop_assert_eq!(accounting.dropped_in_all(), dropped.values().sum::<u64>());
        prop_assert_eq!(accounting.settle(TOPIC, 0, wanted.len() as u64), Ok(()));
    }

    /// A batch that was rejected as too large is split until the oversized record is found.
    #[test]
    fn halving_keeps_every_record_and_ends_at_one(log in logs(5, 12), target in targets()) {
        let target = Target { max_batch_bytes: 1 << 20, ..target };
        let start = log.batches[0].1.start;
        let (relayed, fetched) = relay(&log, start..i64::MAX, &Rules::NONE, &target);
        let policy = Rules::NONE.policy();
        let mut relay = Relay::new(LIMITS);
        let mut single = Vec::new();
        let mut waiting: Vec<Outgoing> = relayed.batches.into_iter().rev().collect();
        while let Some(batch) = waiting.pop() {
            match relay.halve(&policy, 3, &batch, &fetched) {
                Ok([first, second]) => {
                    prop_assert_eq!(first.count() + second.count(), batch.count());
                    waiting.extend([second, first]);
                }
                Err(error) => {
                    prop_assert_eq!(batch.count(), 1);
                    let named = format!("{TOPIC}-3@{}: ", batch.first_offset());
                    prop_assert!(error.to_string().starts_with(&named), "{}", error);
                    single.push(batch);
                }
            }
        }
        // a passed batch of append times keeps its bytes, and halves are written with the visible timestamps
        let (wanted, _) = expected(&log, start..i64::MAX, &Rules::NONE, &target);
        let arrived = arrive(&mut single, &fetched, &target, |at| log.codec(at));
        prop_assert_eq!(arrived.len(), wanted.len());
        assert_equal(arrived, &wanted);
    }

    #[test]
    fn a_batch_passed_and_one_written_hold_the_same_records(
        records in records(30), codec in proptest::sample::select(Codec::ALL.to_vec()),
    ) {
        let mut forge = Forge::new(5000, &moved(&records, 5000));
        forge.attributes |= codec as i16;
        forge.body = compress(codec, &forge.body);
        let bytes = forge.bytes();
        let passed = one_batch(&bytes, 5000..i64::MAX);
        prop_assert!(is_passed(&passed.batches[0]));
        // from the offset before, so that it lies within; to the last offset, so that it does not
        let cut = one_batch(&bytes, 5000..5000 + i64::try_from(records.len()).unwrap() - 1);
        prop_assert!(cut.batches.iter().all(|batch| !is_passed(batch)));
        let read = |mut relayed: Relayed| arrive(&mut relayed.batches, &bytes, &LARGE, |_| codec);
        let (mut passed, cut) = (read(passed), read(cut));
        passed.pop();
        prop_assert_eq!(passed, cut);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_position_may_be_any_offset(log in logs(5, 5), rules in rules(), target in targets()) {
        let first = log.batches[0].1.start;
        for start in first..=log.end + 1 {
            check(&log, start..i64::MAX, &rules, &target);
        }
    }
}

fn moved(records: &[Plain], base: i64) -> Vec<Plain> {
    let mut records = records.to_vec();
    for record in &mut records {
        record.offset += base;
    }
    records
}
