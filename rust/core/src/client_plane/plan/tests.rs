//! Tests plan and ledger together, because they share the accounts.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::{Decision, Policy, plan};
use crate::client_plane::route::Routes;
use crate::header::{self, NAME, Provenance, Reading};
use crate::offset_map::{Range, decode};
use crate::types::{AckRun, AckedPartition, Written};
use crate::{Acks, Error, HeaderRef, Ledger, RecordRef, loop_guard::LoopGuard};

fn policy(routes: &[(&str, &str)], header: bool, guard: bool) -> Policy {
    let routes = Routes::new(
        routes
            .iter()
            .map(|(source, target)| ((*source).to_owned(), (*target).to_owned())),
    );
    let origins = guard.then(|| HashSet::from(["S".to_owned()]));
    let guard = LoopGuard::new("S", "T", origins, guard).unwrap();
    Policy::new(routes.unwrap(), guard, header)
}

fn record(topic: &str, partition: i32, offset: i64) -> RecordRef<'_> {
    RecordRef {
        topic,
        partition,
        offset,
        leader_epoch: 4,
        timestamp: 1_700_000_000_000 + offset,
        key: None,
        value: Some(b"value"),
        headers: &[],
        written: Written::Unknown,
    }
}

/// Topic, partition, and runs of (first offset, count).
type Acked<'a> = (&'a str, i32, &'a [(i64, i64)]);

fn acks(partitions: &[Acked<'_>]) -> Acks {
    Acks {
        failed: 0,
        partitions: partitions
            .iter()
            .map(|(topic, partition, runs)| AckedPartition {
                topic: (*topic).to_owned(),
                partition: *partition,
                runs: runs
                    .iter()
                    .map(|(first, count)| AckRun {
                        first: *first,
                        count: *count,
                    })
                    .collect(),
            })
            .collect(),
    }
}

fn ranges(chunk: &[u8]) -> Vec<(i64, i64, i64)> {
    let map = decode(chunk).unwrap().map;
    map.ranges()
        .iter()
        .map(|range| (range.source, range.target, range.count))
        .collect()
}

#[test]
fn what_was_fetched_is_what_was_acknowledged() {
    let policy = policy(&[("t", "east.t")], false, false);
    let mut ledger = Ledger::default();
    let batch: Vec<_> = [0, 1, 2, 5, 6]
        .into_iter()
        .map(|offset| record("t", 3, offset))
        .collect();
    let planned = plan(&policy, &batch, &mut ledger).unwrap();
    assert_eq!((planned.kept, planned.bytes), (5, 25));
    let accounts = ledger
        .settle(
            policy.routes(),
            &acks(&[
                ("east.t", 3, &[(100, 4), (110, 1)]),
                ("eomirror.l.positions", 0, &[(9, 1)]),
            ]),
        )
        .unwrap();
    let account = &accounts[0];
    assert_eq!(accounts.len(), 1);
    assert_eq!((account.fetched, account.acked, account.bytes), (5, 5, 25));
    assert_eq!(
        (account.first_source_offset, account.last_source_offset),
        (0, 6)
    );
    assert_eq!(
        (account.first_target_offset, account.last_target_offset),
        (100, 110)
    );
    assert_eq!(
        (account.leader_epoch, account.timestamp),
        (4, 1_700_000_000_006)
    );
    assert_eq!(
        ranges(&account.offset_map),
        [(0, 100, 3), (5, 103, 1), (6, 110, 1)]
    );
    assert_eq!(account.digest.len(), 16);
    assert!(!ledger.is_empty(), "settling does not close the books");
}

#[test]
fn a_missing_acknowledgement_names_the_partition_and_the_counts() {
    let policy = policy(&[("t", "t")], false, false);
    let mut ledger = Ledger::default();
    let batch = [record("t", 1, 7), record("t", 1, 8)];
    plan(&policy, &batch, &mut ledger).unwrap();
    for acked in [acks(&[]), acks(&[("t", 1, &[(0, 1)])])] {
        let message = ledger
            .settle(policy.routes(), &acked)
            .unwrap_err()
            .to_string();
        assert!(
            message.starts_with("t-1: fetched 2, acknowledged "),
            "{message}"
        );
    }
}

#[test]
fn an_unplanned_acknowledgement_is_refused() {
    let policy = policy(&[("t", "t")], false, false);
    let mut ledger = Ledger::default();
    plan(&policy, &[record("t", 1, 7)], &mut ledger).unwrap();
    for (acked, surplus) in [
        (acks(&[("t", 1, &[(0, 3)])]), 2),
        (acks(&[("t", 1, &[(0, 1)]), ("t", 0, &[(5, 1)])]), 1),
    ] {
        let error = ledger.settle(policy.routes(), &acked).unwrap_err();
        assert!(matches!(error, Error::UnplannedAcks { surplus: found, .. } if found == surplus));
    }
}

#[test]
fn a_failed_delivery_is_refused_even_when_the_counts_match() {
    let policy = policy(&[("t", "t")], false, false);
    let mut ledger = Ledger::default();
    plan(&policy, &[record("t", 1, 7)], &mut ledger).unwrap();
    let mut acked = acks(&[("t", 1, &[(0, 1)])]);
    acked.failed = 1;
    assert_eq!(
        ledger.settle(policy.routes(), &acked),
        Err(Error::FailedAcks { failed: 1 })
    );
}

#[test]
fn acknowledged_offsets_must_grow() {
    let policy = policy(&[("t", "t")], false, false);
    let mut ledger = Ledger::default();
    plan(
        &policy,
        &[record("t", 0, 1), record("t", 0, 2)],
        &mut ledger,
    )
    .unwrap();
    for runs in [
        [(5, 1), (4, 1)],
        [(5, 1), (5, 1)],
        [(5, 1), (7, 0)],
        [(-1, 1), (0, 1)],
    ] {
        let error = ledger
            .settle(policy.routes(), &acks(&[("t", 0, &runs)]))
            .unwrap_err();
        assert!(matches!(error, Error::AcksOutOfOrder { .. }), "{runs:?}");
    }
}

#[test]
fn a_refused_record_leaves_the_books_as_they_were() {
    let policy = policy(&[("t", "t")], false, false);
    let mut ledger = Ledger::default();
    let zero = RecordRef {
        timestamp: 0,
        ..record("t", 0, 5)
    };
    let batch = [record("t", 0, 4), zero];
    assert_eq!(
        plan(&policy, &batch, &mut ledger),
        Err(Error::TimestampZero { at: "t-0@5".into() })
    );
    assert!(ledger.is_empty());
    let batch = [record("t", 0, 4), record("u", 0, 0)];
    assert_eq!(
        plan(&policy, &batch, &mut ledger),
        Err(Error::NoRoute { at: "u-0@0".into() })
    );
    assert!(ledger.is_empty());
}

#[test]
fn offsets_that_go_back_are_refused_within_and_between_batches() {
    let policy = policy(&[("t", "t"), ("u", "u")], false, false);
    let mut ledger = Ledger::default();
    let batch = [record("t", 0, 4), record("u", 0, 1), record("t", 0, 4)];
    assert!(matches!(
        plan(&policy, &batch, &mut ledger),
        Err(Error::OffsetWentBack { last: 4, .. })
    ));
    plan(&policy, &batch[..2], &mut ledger).unwrap();
    assert!(matches!(
        plan(&policy, &batch[2..], &mut ledger),
        Err(Error::OffsetWentBack { last: 4, .. })
    ));
    ledger.clear();
    plan(&policy, &batch[2..], &mut ledger).unwrap();
}

#[test]
fn a_partition_of_which_everything_was_dropped_has_an_account() {
    let policy = policy(&[("t", "t")], false, true);
    let bytes = Provenance {
        origin: "T".into(),
        hops: vec!["T".into()],
    }
    .encode("t", None, Some(b"value"), None);
    let headers = [HeaderRef {
        key: NAME.as_bytes(),
        value: Some(&bytes),
    }];
    let batch = [RecordRef {
        headers: &headers,
        ..record("t", 0, 9)
    }];
    let mut ledger = Ledger::default();
    plan(&policy, &batch, &mut ledger).unwrap();
    let account = &ledger.settle(policy.routes(), &acks(&[])).unwrap()[0];
    assert_eq!(account.dropped, BTreeMap::from([("hop", 1)]));
    assert_eq!(
        (account.first_source_offset, account.last_source_offset),
        (9, 9)
    );
    assert_eq!(
        (account.first_target_offset, account.last_target_offset),
        (-1, -1)
    );
    assert_eq!(
        (account.acked, account.bytes, account.timestamp),
        (0, 0, -1)
    );
    assert_eq!(
        (account.offset_map.as_slice(), account.digest.as_str()),
        (&[][..], "")
    );
}

#[test]
fn a_written_header_is_one_that_the_next_link_reads() {
    let policy = policy(&[("t", "east.t")], true, false);
    let planned = plan(&policy, &[record("t", 0, 9)], &mut Ledger::default()).unwrap();
    let Decision::Keep {
        header: Some(bytes),
        ..
    } = &planned.decisions[0]
    else {
        panic!("{planned:?}");
    };
    assert_eq!(
        header::read(bytes, "east.t", None, Some(b"value")),
        Reading::Ours(
            Provenance {
                origin: "S".into(),
                hops: vec!["S".into()]
            },
            None
        )
    );
}

#[test]
fn a_record_that_an_application_emits_again_is_kept_and_counted() {
    // the link from T writes as producer 5 on S, where the record is read
    let back = policy(&[("t", "t")], true, true);
    let there = Policy::new(
        Routes::new([("t".to_owned(), "t".to_owned())]).unwrap(),
        LoopGuard::new("T", "S", None, true).unwrap(),
        true,
    )
    .written_by(5);
    let first = record("t", 0, 9);
    let planned = plan(&there, &[first], &mut Ledger::default()).unwrap();
    let Decision::Keep {
        header: Some(bytes),
        ..
    } = &planned.decisions[0]
    else {
        panic!("{planned:?}");
    };
    let headers = [HeaderRef {
        key: NAME.as_bytes(),
        value: Some(bytes),
    }];
    let found = |offset, written| RecordRef {
        headers: &headers,
        written,
        ..record("t", 0, offset)
    };
    let mut ledger = Ledger::default();
    let batch = [
        found(20, Written::By(5)),
        found(21, Written::At(first.timestamp)),
        found(22, Written::By(6)),
        found(23, Written::At(first.timestamp + 1)),
    ];
    plan(&back, &batch, &mut ledger).unwrap();
    let accounts = ledger
        .settle(back.routes(), &acks(&[("t", 0, &[(0, 2)])]))
        .unwrap();
    assert_eq!(accounts[0].dropped, BTreeMap::from([("hop", 2)]));
    assert_eq!((accounts[0].acked, accounts[0].copied_headers), (2, 2));
}

proptest! {
    /// Two source topics share a target topic. However their batches interleave, and wherever foreign records are on
    /// the target, every source offset maps to the offset it was written at.
    #[test]
    fn interleaved_sources_are_told_apart(
        steps in proptest::collection::vec((any::<bool>(), 0_i32..2, 1_i64..4, 0_i64..3), 1..80),
        batch_size in 1_usize..10,
    ) {
        let policy = policy(&[("a", "x"), ("b", "x")], false, false);
        let mut next = BTreeMap::<(&str, i32), i64>::new();
        let mut log_end = [0_i64; 2];
        let mut records = Vec::new();
        let mut truth = BTreeMap::<(&str, i32), Vec<(i64, i64)>>::new();
        let mut acked: [Vec<(i64, i64)>; 2] = Default::default();
        for (first, partition, source_gap, target_gap) in steps {
            let topic = if first { "a" } else { "b" };
            let offset = next.entry((topic, partition)).or_default();
            *offset += source_gap;
            let slot = usize::try_from(partition).unwrap();
            log_end[slot] += target_gap;
            records.push(record(topic, partition, *offset));
            truth.entry((topic, partition)).or_default().push((*offset, log_end[slot]));
            match acked[slot].last_mut() {
                Some((start, count)) if *start + *count == log_end[slot] => *count += 1,
                _ => acked[slot].push((log_end[slot], 1)),
            }
            log_end[slot] += 1;
        }
        let mut ledger = Ledger::default();
        for batch in records.chunks(batch_size) {
            plan(&policy, batch, &mut ledger).unwrap();
        }
        let acked = acks(&[("x", 0, &acked[0]), ("x", 1, &acked[1])]);
        let accounts = ledger.settle(policy.routes(), &acked).unwrap();
        prop_assert_eq!(accounts.len(), truth.len());
        for account in accounts {
            let map = decode(&account.offset_map).unwrap().map;
            let expected = &truth[&(account.source_topic.as_str(), account.source_partition)];
            let found: Vec<(i64, i64)> = map
                .ranges()
                .iter()
                .flat_map(|Range { source, target, count }| {
                    (0..*count).map(move |step| (source + step, target + step))
                })
                .collect();
            prop_assert_eq!(&found, expected);
            prop_assert_eq!(account.acked, expected.len() as u64);
        }
    }
}

#[test]
fn records_placed_by_key_are_accounted_in_every_target_partition() {
    let routes = Routes::new([("t".to_owned(), "all".to_owned())])
        .unwrap()
        .keyed("all", 3)
        .unwrap();
    let guard = LoopGuard::new("S", "T", None, false).unwrap();
    let policy = Policy::new(routes, guard, false);
    let mut ledger = Ledger::default();
    let of = |partition, offset, key| RecordRef {
        key,
        ..record("t", partition, offset)
    };
    // murmur2: of 3 partitions, "b" goes to 2 and "a" to 1
    let batch = [
        of(4, 10, Some(&b"b"[..])),
        of(4, 11, Some(b"a")),
        of(5, 70, Some(b"b")),
        of(4, 13, Some(b"b")),
        of(4, 14, Some(b"b")),
        of(5, 71, None),
    ];
    let planned = plan(&policy, &batch, &mut ledger).unwrap();
    let partitions: Vec<_> = planned
        .decisions
        .iter()
        .map(|decision| match decision {
            Decision::Keep { partition, .. } => *partition,
            Decision::Drop(_) => None,
        })
        .collect();
    assert_eq!(
        partitions,
        [Some(2), Some(1), Some(2), Some(2), Some(2), Some(2)]
    );
    let mut counts: Vec<_> = ledger.planned(policy.routes()).collect();
    counts.sort_unstable();
    assert_eq!(counts, [("all", 1, 1), ("all", 2, 5)]);
    let acked = [
        ("all", 1, &[(500, 1)][..]),
        ("all", 2, &[(900, 3), (905, 2)]),
    ];
    let accounts = ledger.settle(policy.routes(), &acks(&acked)).unwrap();
    assert_eq!(accounts[0].placed, [(1, 500, 500), (2, 900, 905)]);
    assert_eq!(accounts[1].placed, [(2, 901, 906)]);
    assert_eq!(
        (accounts[0].target_partition, accounts[0].last_target_offset),
        (2, 905)
    );
    assert!(accounts[0].offset_map.is_empty());
    let short = [("all", 1, &[(500, 1)][..]), ("all", 2, &[(900, 4)])];
    assert!(matches!(
        ledger.settle(policy.routes(), &acks(&short)),
        Err(Error::Unaccounted { partition: 5, .. })
    ));
}
