//! Histories without a defect give no finding, in whatever order the partitions are read.

// a test that cannot continue should panic
#![allow(clippy::unwrap_used)]

mod audit_world;

use audit_world::{Cluster, DATA, Lane, POSITIONS, Protocol};
use proptest::prelude::*;

/// One event of a history.
#[derive(Debug, Clone)]
enum Step {
    /// A transaction: per source partition of the lane, offsets skipped, and the sizes of batches.
    Mirror(usize, Vec<(i64, Vec<i64>)>, End),
    /// An advance without records.
    Advance(usize, i64),
    /// Another producer writes to a shared topic, in a transaction or not.
    Foreign(i32, i64, bool),
    /// The lane is restarted.
    Restart(usize),
    /// A new layout; partitions may change their lane.
    Generation(bool),
}

/// End of a transaction.
#[derive(Debug, Clone, Copy)]
enum End {
    Commit,
    /// Speculative positions were wrong and are written again.
    CommitCorrected,
    /// More records followed the acknowledged ones: positions were written after every batch.
    CommitRounds,
    /// Killed before or after positions were written, or after all of them.
    Killed(bool),
    Aborted,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        6 => Just(End::Commit),
        2 => Just(End::CommitCorrected),
        2 => Just(End::CommitRounds),
        1 => any::<bool>().prop_map(End::Killed),
        1 => Just(End::Aborted),
    ];
    let parts = proptest::collection::vec((0_i64..3, proptest::collection::vec(1_i64..5, 0..3)), 2);
    prop_oneof![
        8 => (0_usize..2, parts, end).prop_map(|(lane, parts, end)| Step::Mirror(lane, parts, end)),
        1 => (0_usize..2, 1_i64..5).prop_map(|(lane, offsets)| Step::Advance(lane, offsets)),
        2 => (0..4, 1_i64..4, any::<bool>()).prop_map(|(partition, count, tx)| Step::Foreign(partition, count, tx)),
        1 => (0_usize..2).prop_map(Step::Restart),
        1 => any::<bool>().prop_map(Step::Generation),
    ]
}

/// The content of a history.
struct History {
    cluster: Cluster,
    transactions: u64,
    records: u64,
    foreign: u64,
}

fn play(protocol: Protocol, steps: &[Step]) -> History {
    let mut cluster = Cluster::default();
    let mut lanes = vec![
        Lane::start(&mut cluster, 0, protocol, &[0, 1]),
        Lane::start(&mut cluster, 1, protocol, &[2, 3]),
    ];
    let (mut transactions, mut records, mut foreign) = (0, 0, 0);
    for step in steps {
        match step {
            Step::Mirror(lane, parts, end) => {
                let lane = &mut lanes[*lane];
                let mut written = 0;
                for (partition, (skipped, batches)) in lane.partitions().into_iter().zip(parts) {
                    for count in batches {
                        lane.write(&mut cluster, partition, *skipped, *count);
                        written += count.unsigned_abs();
                        if matches!(end, End::CommitRounds) {
                            lane.clone().describe(&mut cluster);
                        }
                        if *skipped == 2 {
                            // another producer's record between two batches of one transaction
                            cluster.append(DATA, partition, (-1, -1), &[(None, b"x".to_vec())]);
                            foreign += 1;
                        }
                    }
                }
                if written == 0 {
                    continue;
                }
                match end {
                    End::Killed(false) => lane.restart(&mut cluster),
                    End::Killed(true) => {
                        lane.describe(&mut cluster);
                        lane.restart(&mut cluster);
                    }
                    End::Aborted => {
                        lane.describe(&mut cluster);
                        lane.decide(&mut cluster, false);
                        lane.restart(&mut cluster);
                    }
                    End::Commit | End::CommitCorrected | End::CommitRounds => {
                        if matches!(end, End::CommitCorrected) {
                            let mut before = lane.clone();
                            before.describe_as(&mut cluster, |_, draft, ranges| {
                                draft.target_offset = draft.target_offset.map(|offset| offset - 1);
                                for range in ranges {
                                    range.target += 1;
                                }
                            });
                        }
                        lane.describe(&mut cluster);
                        lane.decide(&mut cluster, true);
                        transactions += 1;
                        records += written;
                    }
                }
            }
            Step::Advance(lane, offsets) => {
                let lane = &mut lanes[*lane];
                let partition = lane.partitions()[0];
                lane.skip(partition, *offsets);
                lane.describe(&mut cluster);
                lane.decide(&mut cluster, true);
            }
            Step::Foreign(partition, count, transactional) => {
                let producer = if *transactional { (7, 0) } else { (-1, -1) };
                let values: Vec<_> = (0..*count).map(|_| (None, b"x".to_vec())).collect();
                cluster.append(DATA, *partition, producer, &values);
                if *transactional {
                    cluster.end(7, 0, true);
                }
                foreign += count.unsigned_abs();
            }
            Step::Restart(lane) => lanes[*lane].restart(&mut cluster),
            Step::Generation(swap) => Lane::next_generation(&mut cluster, &mut lanes, *swap),
        }
    }
    History {
        cluster,
        transactions,
        records,
        foreign,
    }
}

fn protocols() -> impl Strategy<Value = Protocol> {
    prop_oneof![Just(Protocol::V1), Just(Protocol::V2)]
}

proptest! {
    // a case is a history of dozens of transactions
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_history_of_whole_transactions_is_clean(
        protocol in protocols(),
        steps in proptest::collection::vec(step(), 0..40),
        turns in proptest::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let history = play(protocol, &steps);
        let mut turn = turns.iter().cycle();
        let report = history.cluster.audit(true, |left| turn.next().unwrap().index(left));
        prop_assert_eq!(&report.findings, &vec![]);
        prop_assert!(report.is_clean());
        prop_assert_eq!(report.transactions, history.transactions);
        prop_assert_eq!(report.records, history.records);
        prop_assert_eq!(report.foreign_records, history.foreign);
        prop_assert_eq!(report.unproven.records + report.unproven.positions + report.unproven.under_way, 0);
        prop_assert!(report.since.is_empty());
    }

    /// Compaction of the state topics removes evidence, but never causes a fault.
    #[test]
    fn a_compacted_history_is_clean(
        protocol in protocols(),
        steps in proptest::collection::vec(step(), 1..40),
        turns in proptest::collection::vec(any::<prop::sample::Index>(), 64),
        kept in 0_usize..12,
    ) {
        let mut history = play(protocol, &steps);
        for partition in 0..2 {
            let end = history.cluster.next(POSITIONS, partition);
            let before = end - i64::try_from(kept).unwrap();
            history.cluster.compact(POSITIONS, partition, before);
        }
        let mut turn = turns.iter().cycle();
        let report = history.cluster.audit(true, |left| turn.next().unwrap().index(left));
        let findings: Vec<_> = report.findings.iter().collect();
        prop_assert!(findings.is_empty(), "{:?}", findings);
    }

    /// A cut through a running link shows open transactions, and no faults.
    #[test]
    fn a_history_that_goes_on_is_clean(
        protocol in protocols(),
        steps in proptest::collection::vec(step(), 1..40),
        turns in proptest::collection::vec(any::<prop::sample::Index>(), 64),
    ) {
        let mut history = play(protocol, &steps);
        // a transaction whose marker has reached the positions and not yet its data
        let mut lane = Lane::start(&mut history.cluster, 5, protocol, &[9]);
        lane.write(&mut history.cluster, 9, 0, 3);
        lane.describe(&mut history.cluster);
        let (id, epoch) = lane.producer;
        history.cluster.end_in(POSITIONS, 5, id, epoch, true);
        let mut turn = turns.iter().cycle();
        let report = history.cluster.audit(false, |left| turn.next().unwrap().index(left));
        prop_assert_eq!(&report.findings, &vec![]);
        prop_assert!(report.unproven.under_way > 0);
        prop_assert!(!history.cluster.audited().is_clean());
    }
}

/// A long history of two lanes, with foreign transactions on their topic.
fn long(protocol: Protocol, transactions: i64) -> Cluster {
    let mut cluster = Cluster::default();
    let mut lanes = vec![
        Lane::start(&mut cluster, 0, protocol, &[0, 1]),
        Lane::start(&mut cluster, 1, protocol, &[2, 3]),
    ];
    for number in 0..transactions {
        for lane in &mut lanes {
            for partition in lane.partitions() {
                lane.write(&mut cluster, partition, 0, 1 + number % 3);
            }
            lane.describe(&mut cluster);
            lane.decide(&mut cluster, true);
        }
        if number % 10 == 0 {
            cluster.append(DATA, 3, (7, 0), &[(None, b"x".to_vec())]);
            cluster.end(7, 0, true);
        }
    }
    cluster
}

#[test]
fn what_is_remembered_does_not_grow_with_the_history() {
    for protocol in [Protocol::V1, Protocol::V2] {
        let most = |transactions| {
            let (report, most) = long(protocol, transactions).audit_in_turn(&[100, 101], 8);
            assert!(report.is_clean(), "{:?}", report.findings);
            assert_eq!(report.transactions, 2 * transactions.unsigned_abs());
            // foreign segments are kept until it is certain that no position names their producer
            most - usize::try_from(transactions / 10).unwrap()
        };
        let (short, long) = (most(200), most(2000));
        assert!(short > 0 && long <= short + 8, "{short}, then {long}");
    }
}

#[test]
fn a_compacted_history_is_not_remembered_either() {
    let mut cluster = long(Protocol::V1, 1000);
    for partition in 0..2 {
        let end = cluster.next(POSITIONS, partition);
        cluster.compact(POSITIONS, partition, end - 60);
    }
    let (report, most) = cluster.audit_in_turn(&[100, 101], 8);
    assert!(report.is_clean(), "{:?}", report.findings);
    assert!(report.unproven.records > 5000, "{report:?}");
    assert!(report.transactions >= 30, "{report:?}");
    assert_eq!(report.since.len(), 4);
    // chunks that wait for removed positions, and the foreign records; the link's own records are not among them
    assert!(most < 4 * 1000 + 200, "{most}");
}
