//! A link with rules: the native plane writes what the rules make of each record, and so does the client plane.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;

use std::collections::HashSet;

use batch_forge::{Forge, Plain, plain};
use eomirror_batch::{Batch, Limits, Memory, Records};
use eomirror_core::client_plane::plan::{Decision, plan};
use eomirror_core::client_plane::route::Routes;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Content, Fetched, Relay, Relayed, Target, TopicPolicy};
use eomirror_core::transform::{
    Action, Condition, Mask, Path, Rule, Subject, Test, Transform, Unreadable, With,
};
use eomirror_core::types::RuleNumber;
use eomirror_core::{DropReason, Ledger, Policy, RecordRef, Written};
use proptest::prelude::*;

/// Returns rules that drop records with the key `drop`, and, if told, hide the field `a`.
fn rules(masks: bool) -> Transform {
    let drop = Action::Drop(Condition {
        subject: Subject::Key,
        test: Test::In(vec![b"drop".into()]),
    });
    let mask = Action::Mask(Mask {
        fields: vec![Path::parse("$.a").unwrap()],
        headers: Vec::new(),
        key: false,
        with: With::hash(b"secret"),
    });
    let actions = [Some(drop), masks.then_some(mask)];
    let rules = actions.into_iter().flatten();
    let rules = rules.map(|action| Rule {
        topics: None,
        action,
    });
    Transform::new(rules.collect(), Unreadable::Stop).unwrap()
}

fn relay(bytes: &[u8], transform: &Transform) -> Relayed {
    let guard = LoopGuard::new("S", "T", None, false).unwrap();
    let policy = TopicPolicy::new("t", "copy", guard, false, HashSet::new()).unwrap();
    let policy = policy.with_transform(transform.of_topic("t"));
    let fetched = Fetched {
        records: bytes,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    Relay::new(Limits::default()).relay(&policy, 0, &Target::default(), &fetched)
}

/// Source offset, key and value.
type Outcome = (i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Returns the outgoing records.
fn written(relayed: &Relayed, bytes: &[u8]) -> Vec<Outcome> {
    let mut found = Vec::new();
    for batch in &relayed.batches {
        let runs = batch.runs().iter();
        let offsets = runs.flat_map(|run| run.first..run.first + run.count);
        let whole = batch.parts(bytes).unwrap().concat();
        let mut memory = Memory::default();
        let batch = Batch::parse(&whole).unwrap();
        let records = Records::of(&batch, &mut memory, Limits::default()).unwrap();
        for (offset, record) in offsets.zip(records) {
            let record = record.unwrap();
            let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
            found.push((offset, owned(record.key), owned(record.value)));
        }
    }
    found
}

#[test]
fn a_batch_of_which_no_rule_changes_anything_is_passed_on() {
    let large = vec![b' '; 40_000];
    let batch = |first, key: &[u8]| {
        let mut record = plain(first, 5, &large);
        record.key = Some(key.to_vec());
        Forge::new(first, &[record]).bytes()
    };
    let bytes = [batch(0, b"keep"), batch(1, b"drop"), batch(2, b"keep")].concat();
    let relayed = relay(&bytes, &rules(false));
    let passed = |content: &Content| matches!(content, Content::Passed { .. });
    let shape: Vec<_> = relayed
        .batches
        .iter()
        .map(|batch| passed(batch.content()))
        .collect();
    assert_eq!(shape, [true, true]);
    let first = DropReason::Rule(RuleNumber::new(0).unwrap());
    assert_eq!(relayed.accounting.dropped(first), 1);
    assert_eq!((relayed.next_position, relayed.stopped), (3, None));
}

#[test]
fn a_response_of_which_all_records_are_dropped_moves_the_position() {
    let mut record = plain(7, 5, b"x");
    record.key = Some(b"drop".to_vec());
    let bytes = Forge::new(7, &[record]).bytes();
    let relayed = relay(&bytes, &rules(true));
    assert!(relayed.batches.is_empty());
    assert_eq!((relayed.accounting.fetched, relayed.next_position), (1, 8));
}

#[test]
fn an_unreadable_record_stops_behind_its_neighbours() {
    let records = [plain(0, 5, b"{}"), plain(1, 5, b"{"), plain(2, 5, b"{}")];
    let bytes = Forge::new(0, &records).bytes();
    let relayed = relay(&bytes, &rules(true));
    assert_eq!(relayed.next_position, 1);
    let error = relayed.stopped.unwrap();
    assert!(
        error
            .to_string()
            .starts_with("t-0@1: transform[1] cannot read"),
        "{error}"
    );
}

fn records() -> impl Strategy<Value = Vec<Plain>> {
    let value = prop_oneof![
        Just(None),
        "[a-z]{0,9}".prop_map(|text| Some(format!("{{\"a\":\"{text}\",\"b\": 1.0}}").into_bytes())),
    ];
    let key = prop_oneof![
        Just(None),
        Just(Some(b"drop".to_vec())),
        Just(Some(b"k".to_vec()))
    ];
    proptest::collection::vec((key, value), 1..30).prop_map(|parts| {
        let parts = parts.into_iter().zip(0..);
        parts
            .map(|((key, value), offset)| Plain {
                key,
                value,
                ..plain(offset, 5, b"")
            })
            .collect()
    })
}

proptest! {
    /// Both planes keep the same records, with the same bytes.
    #[test]
    fn both_planes_write_the_same(records in records(), masks: bool) {
        let transform = rules(masks);
        let bytes = Forge::new(0, &records).bytes();
        let relayed = relay(&bytes, &transform);
        prop_assert_eq!(&relayed.stopped, &None);
        let native = written(&relayed, &bytes);

        let routes = Routes::new([("t".to_owned(), "copy".to_owned())]).unwrap();
        let guard = LoopGuard::new("S", "T", None, false).unwrap();
        let policy = Policy::new(routes, guard, false).transformed_by(&transform);
        let refs: Vec<_> = records.iter().zip(0..).map(|(record, offset)| RecordRef {
            topic: "t", partition: 0, offset, leader_epoch: 0, timestamp: 5,
            key: record.key.as_deref(), value: record.value.as_deref(), headers: &[], written: Written::Unknown,
        }).collect();
        let planned = plan(&policy, &refs, &mut Ledger::default()).unwrap();
        let client: Vec<_> = refs.iter().zip(&planned.decisions).filter_map(|(record, decision)| {
            let Decision::Keep { edited, .. } = decision else { return None };
            let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
            Some((record.offset, owned(edited.key(record.key)), owned(edited.value(record.value))))
        }).collect();
        prop_assert_eq!(native, client);
        let dropped = records.iter().filter(|record| record.key.as_deref() == Some(b"drop")).count();
        prop_assert_eq!(relayed.accounting.dropped_in_all(), dropped as u64);
    }
}
