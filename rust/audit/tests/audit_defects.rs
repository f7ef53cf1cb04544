//! Each planted defect is reported under its name.

// a test that cannot continue should panic
#![allow(clippy::unwrap_used)]

mod audit_world;

use audit_world::{
    Cluster, DATA, Draft, Lane, MAP, POSITIONS, Protocol, faults, home, position_key,
};
use eomirror_audit::{Fault, Report};
use eomirror_core::offset_map::{OffsetMap, Range};

const BOTH: [Protocol; 2] = [Protocol::V1, Protocol::V2];

/// Returns a cluster with sound history before and after a defect.
fn with_defect(protocol: Protocol, defect: impl FnOnce(&mut Cluster, &mut Lane)) -> Report {
    let mut cluster = Cluster::default();
    let mut lane = Lane::start(&mut cluster, 0, protocol, &[0, 1]);
    lane.mirror(&mut cluster, 0, 3);
    lane.mirror(&mut cluster, 1, 2);
    assert!(cluster.audited().is_clean());
    defect(&mut cluster, &mut lane);
    lane.mirror(&mut cluster, 0, 4);
    let forward = cluster.audited();
    // the names do not depend on which partition is read first
    let backward = cluster.audit(true, |left| left - 1);
    let mut turn = 0;
    let mixed = cluster.audit(true, |left| {
        turn += 7;
        turn % left
    });
    assert_eq!(faults(&forward), faults(&backward));
    assert_eq!(faults(&forward), faults(&mixed));
    forward
}

#[track_caller]
fn finds(report: &Report, expected: &[Fault]) {
    assert_eq!(faults(report), expected, "{:#?}", report.findings);
}

/// Plants a defect in the position of partition 0, in an otherwise sound transaction of two records.
fn with_position(protocol: Protocol, change: impl Fn(&mut Draft, &mut Vec<Range>)) -> Report {
    with_defect(protocol, |cluster, lane| {
        lane.write(cluster, 0, 0, 2);
        lane.describe_as(cluster, |_, draft, ranges| change(draft, ranges));
        lane.decide(cluster, true);
    })
}

#[test]
fn records_without_a_position_are_uncovered() {
    for protocol in BOTH {
        let report = with_defect(protocol, |cluster, lane| {
            cluster.append(DATA, 0, lane.producer, &[(None, b"x".to_vec())]);
            lane.skip(1, 1);
            lane.describe(cluster);
            lane.decide(cluster, true);
        });
        finds(&report, &[Fault::UncoveredData]);
        assert_eq!(report.findings[0].place.offset, 4);
    }
}

#[test]
fn records_of_another_epoch_of_our_producer_are_no_foreign_ones() {
    let report = with_defect(Protocol::V1, |cluster, lane| {
        let (id, epoch) = lane.producer;
        cluster.append(DATA, 0, (id, epoch + 1), &[(None, b"x".to_vec())]);
        cluster.end(id, epoch + 1, true);
        lane.producer.1 += 1;
        lane.restart(cluster);
    });
    finds(&report, &[Fault::UncoveredData]);
    assert_eq!(report.foreign_records, 0);
}

#[test]
fn a_position_whose_records_do_not_exist_is_found() {
    for protocol in BOTH {
        let report = with_defect(protocol, |cluster, lane| {
            let target = cluster.next(DATA, 0) + 100;
            lane.skip(0, 5);
            lane.describe_as(cluster, |_, draft, ranges| {
                draft.records = 2;
                draft.total += 2;
                draft.target_offset = Some(target + 1);
                ranges.push(Range {
                    source: draft.offset - 2,
                    target,
                    count: 2,
                });
            });
            lane.decide(cluster, true);
        });
        // the next position continues from a sum that never existed
        finds(&report, &[Fault::BrokenChain, Fault::PositionWithoutData]);
    }
}

#[test]
fn a_position_that_names_foreign_records_is_found() {
    for protocol in BOTH {
        let report = with_defect(protocol, |cluster, lane| {
            let target = cluster.append(DATA, 0, (7, 0), &[(None, b"x".to_vec())]);
            cluster.end(7, 0, true);
            lane.skip(0, 1);
            lane.describe_as(cluster, |_, draft, ranges| {
                draft.records = 1;
                draft.target_offset = Some(target);
                ranges.push(Range {
                    source: draft.offset - 1,
                    target,
                    count: 1,
                });
            });
            lane.decide(cluster, true);
        });
        finds(&report, &[Fault::BrokenChain, Fault::PositionWithoutData]);
        assert_eq!(report.foreign_records, 1);
    }
}

#[test]
fn a_wrong_link_breaks_the_chain() {
    for protocol in BOTH {
        let report = with_position(protocol, |draft, _| {
            draft.prev = draft.prev.map(|prev| prev - 1);
        });
        finds(&report, &[Fault::BrokenChain]);
        assert!(report.findings[0].detail.contains("names 2"));
        let report = with_position(protocol, |draft, _| draft.prev = None);
        finds(&report, &[Fault::BrokenChain]);
    }
}

#[test]
fn identities_never_go_back() {
    for change in [
        (|draft: &mut Draft, _: &mut Vec<Range>| draft.leader_epoch = 2) as fn(&mut Draft, &mut _),
        |draft, _| draft.total += 1,
        |draft, _| draft.generation = 0,
    ] {
        finds(&with_position(Protocol::V1, change), &[Fault::BrokenChain]);
    }
    let report = with_position(Protocol::V1, |draft, _| draft.topic_id = "other");
    // the chunk's key has the id that the link began with
    finds(&report, &[Fault::BrokenChain, Fault::MapMismatch]);
}

#[test]
fn a_position_that_names_the_wrong_last_record_is_found() {
    for protocol in BOTH {
        let report = with_position(protocol, |draft, _| {
            draft.target_offset = draft.target_offset.map(|offset| offset - 1);
        });
        finds(&report, &[Fault::WrongTargetOffset]);
        let report = with_position(protocol, |draft, _| {
            draft.target_offset = draft.target_offset.map(|offset| offset + 1000);
        });
        finds(&report, &[Fault::WrongTargetOffset]);
    }
}

#[test]
fn a_map_that_is_beside_the_records_is_found() {
    for protocol in BOTH {
        let report = with_position(protocol, |_, ranges| ranges[0].target += 1);
        assert!(
            faults(&report).contains(&Fault::MapMismatch),
            "{:?}",
            report.findings
        );
        let report = with_position(protocol, |_, ranges| ranges[0].count = 1);
        assert!(
            faults(&report).contains(&Fault::MapMismatch),
            "{:?}",
            report.findings
        );
        let report = with_position(protocol, |_, ranges| ranges[0].source += 50);
        assert!(
            faults(&report).contains(&Fault::MapMismatch),
            "{:?}",
            report.findings
        );
        let report = with_position(protocol, |_, ranges| ranges.clear());
        finds(&report, &[Fault::MapMismatch]);
    }
}

#[test]
fn an_open_transaction_is_found_at_rest() {
    for protocol in BOTH {
        let mut cluster = Cluster::default();
        let mut lane = Lane::start(&mut cluster, 0, protocol, &[0]);
        lane.mirror(&mut cluster, 0, 3);
        lane.write(&mut cluster, 0, 0, 2);
        finds(&cluster.audited(), &[Fault::OpenTransaction]);
        lane.describe(&mut cluster);
        let report = cluster.audited();
        finds(&report, &[Fault::OpenTransaction]);
        // data, positions and map
        assert_eq!(report.counts[&Fault::OpenTransaction], 3);
        assert!(cluster.audit(false, |_| 0).is_clean());
    }
}

#[test]
fn a_strangers_open_transaction_is_found() {
    let report = with_defect(Protocol::V1, |cluster, _| {
        cluster.append(DATA, 1, (7, 0), &[(None, b"x".to_vec())]);
    });
    finds(&report, &[Fault::OpenTransaction]);
}

#[test]
fn a_late_commit_of_half_a_transaction_is_torn() {
    // the previous transaction's commit arrives late: records written before it are committed, the rest is aborted
    let report = with_defect(Protocol::V1, |cluster, lane| {
        lane.write(cluster, 0, 0, 2);
        let (id, epoch) = lane.producer;
        cluster.end_in(DATA, 0, id, epoch, true);
        lane.describe(cluster);
        lane.restart(cluster);
    });
    finds(&report, &[Fault::TornTransaction]);
}

#[test]
fn a_transaction_that_two_markers_end_in_one_partition_is_torn() {
    let report = with_defect(Protocol::V1, |cluster, lane| {
        lane.write(cluster, 0, 0, 2);
        let (id, epoch) = lane.producer;
        cluster.end_in(DATA, 0, id, epoch, true);
        lane.write(cluster, 0, 0, 2);
        lane.describe(cluster);
        lane.decide(cluster, true);
    });
    finds(&report, &[Fault::TornTransaction]);
}

#[test]
fn positions_of_one_transaction_under_two_markers_are_torn() {
    let report = with_defect(Protocol::V1, |cluster, lane| {
        lane.write(cluster, 0, 0, 1);
        lane.write(cluster, 1, 0, 1);
        let mut before = lane.clone();
        before.describe_as(cluster, |partition, draft, ranges| {
            if partition == 1 {
                // not written yet: a chunk without ranges, a position that is written again below
                ranges.clear();
                draft.txn -= 1;
            }
        });
        let (id, epoch) = lane.producer;
        cluster.end_in(POSITIONS, 0, id, epoch, true);
        lane.describe(cluster);
        lane.decide(cluster, true);
    });
    assert!(
        faults(&report).contains(&Fault::TornTransaction),
        "{:?}",
        report.findings
    );
}

#[test]
fn what_is_committed_beside_what_is_aborted_is_torn() {
    for protocol in BOTH {
        for aborted in [0, 1, 2] {
            let report = with_defect(protocol, |cluster, lane| {
                lane.write(cluster, 0, 0, 2);
                lane.describe(cluster);
                let (id, epoch) = lane.producer;
                let (topic, partition) =
                    [(DATA, 0), (POSITIONS, 0), (MAP, home("orders", 0))][aborted];
                let after = epoch + i16::from(protocol == Protocol::V2);
                cluster.end_in(topic, partition, id, after, false);
                lane.decide(cluster, true);
            });
            assert!(
                faults(&report).contains(&Fault::TornTransaction),
                "{:?}",
                report.findings
            );
            assert!(
                !faults(&report).contains(&Fault::UncoveredData),
                "{:?}",
                report.findings
            );
        }
    }
}

#[test]
fn a_position_in_a_foreign_transaction_is_torn() {
    let report = with_position(Protocol::V1, |draft, _| draft.producer = (7, 0));
    assert!(
        faults(&report).contains(&Fault::TornTransaction),
        "{:?}",
        report.findings
    );
}

#[test]
fn a_marker_that_never_reached_the_data_joins_two_transactions() {
    let report = with_defect(Protocol::V1, |cluster, lane| {
        lane.write(cluster, 0, 0, 2);
        lane.describe(cluster);
        let (id, epoch) = lane.producer;
        cluster.end_in(POSITIONS, 0, id, epoch, true);
        cluster.end_in(MAP, home("orders", 0), id, epoch, true);
        // without its marker on the data partition the lane continues
        let mut data_open = lane.clone();
        data_open.decide(&mut Cluster::default(), true);
        *lane = data_open;
    });
    finds(&report, &[Fault::TornTransaction]);
}

#[test]
fn a_record_that_cannot_be_read_is_named() {
    let report = with_defect(Protocol::V1, |cluster, lane| {
        let bad = (Some(position_key(0)), b"{}".to_vec());
        cluster.append(POSITIONS, 0, lane.producer, &[bad]);
        cluster.append(MAP, 0, lane.producer, &[(None, b"x".to_vec())]);
        cluster.end(lane.producer.0, lane.producer.1, true);
    });
    finds(&report, &[Fault::Unreadable]);
    assert_eq!(report.counts[&Fault::Unreadable], 2);
}

#[test]
fn a_recreated_target_is_not_compared_with_old_positions() {
    let mut cluster = Cluster::default();
    let mut lane = Lane::start(&mut cluster, 0, Protocol::V1, &[0]);
    lane.mirror(&mut cluster, 0, 3);
    // the position's records are elsewhere: with the topic's id this is not a fault
    lane.skip(0, 2);
    lane.describe_as(&mut cluster, |_, draft, ranges| {
        draft.records = 2;
        draft.total += 2;
        draft.target_offset = Some(101);
        ranges.push(Range {
            source: draft.offset - 2,
            target: 100,
            count: 2,
        });
    });
    lane.decide(&mut cluster, true);
    finds(&cluster.audited(), &[Fault::PositionWithoutData]);
    cluster.topic_id = "later";
    let report = cluster.audited();
    assert!(!faults(&report).contains(&Fault::PositionWithoutData));
    assert_eq!((report.transactions, report.unproven.positions), (0, 2));
}

/// A control transaction with a chunk of partition 2, whose records another replicator wrote.
fn with_adoption(positioned: bool) -> Report {
    with_defect(Protocol::V2, |cluster, _| {
        let control = (91, 0);
        if positioned {
            let draft = Draft {
                offset: 50,
                prev: None,
                target_offset: Some(40),
                records: 0,
                total: 0,
                topic_id: "S",
                leader_epoch: 0,
                txn: 0,
                producer: control,
                generation: 1,
                lane: 0,
                epoch: 0,
            };
            cluster.append(POSITIONS, 0, control, &[draft.record(2)]);
        }
        let range = Range {
            source: 30,
            target: 21,
            count: 20,
        };
        let value = OffsetMap::from_ranges(&[range])
            .unwrap()
            .encode(DATA, 2)
            .unwrap();
        let key = br#"{"topic":"orders","partition":2,"topic_id":"S","first":30}"#.to_vec();
        cluster.append(MAP, home("orders", 2), control, &[(Some(key), value)]);
        cluster.end(control.0, control.1, true);
    })
}

#[test]
fn the_chunk_of_an_adopted_position_maps_foreign_records() {
    finds(&with_adoption(true), &[]);
    finds(&with_adoption(false), &[Fault::MapMismatch]);
}
