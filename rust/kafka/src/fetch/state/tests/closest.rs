//! Reading from the closest replica (KIP-392).

use std::time::Duration;

use super::super::super::Stop;
use super::{Reader, at, cluster, error, reading, said, stop_of};
use crate::protocol::fetch::{AnsweredPartition, EpochEnd};

const LEASE: Duration = Duration::from_secs(60);

fn near() -> Reader {
    let mut reader = reading(&[0]);
    reader.state.place("here", LEASE);
    reader
}

/// Answers as the leader, broker 1: broker 2 is closer.
fn redirect(reader: &mut Reader) {
    let request = reader.plan(1).unwrap();
    assert_eq!(&*request.rack, "here");
    let redirected = AnsweredPartition {
        closer: Some(2),
        ..said(0, b"")
    };
    assert!(reader.answer(1, vec![redirected]).is_empty());
}

#[test]
fn the_replica_that_the_leader_names_is_asked_at_once() {
    let mut reader = near();
    redirect(&mut reader);
    assert!(reader.plan(1).is_none());
    assert_eq!(reader.state.source(&at(0), reader.now), Some(2));
    let request = reader.plan(2).unwrap();
    let asked = request.topics[0].partitions[0];
    assert_eq!((asked.leader_epoch, asked.offset), (7, 10));
    assert_eq!(reader.answer(2, vec![said(0, b"x")]).len(), 1);
}

#[test]
fn the_leader_is_asked_again_when_its_word_is_old() {
    let mut reader = near();
    redirect(&mut reader);
    reader.now += LEASE;
    assert_eq!(reader.asked(1), [(0, 10)]);
}

#[test]
fn a_new_leader_has_its_own_mind() {
    let mut reader = near();
    redirect(&mut reader);
    let mut moved = cluster();
    moved.topics[0].partitions[0].leader_epoch = 8;
    assert!(reader.learn(moved).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}

#[test]
fn nothing_that_a_replica_complains_of_stops_a_partition() {
    let diverging = AnsweredPartition {
        diverging: Some(EpochEnd {
            epoch: 5,
            end_offset: 8,
        }),
        ..said(0, b"")
    };
    for complaint in [
        error(0, 1),
        error(0, 29),
        error(0, 78),
        error(0, 6),
        diverging,
    ] {
        let mut reader = near();
        redirect(&mut reader);
        reader.asked(2);
        assert!(reader.answer(2, vec![complaint.clone()]).is_empty());
        let request = reader.plan(1).unwrap();
        assert_eq!(&*request.rack, "", "the leader must not send us back");
        if complaint.error.0 == 1 {
            let fetched = reader.answer(1, vec![complaint]);
            assert_eq!(
                stop_of(&fetched),
                &Stop::OutOfRange { log: None },
                "the leader is believed"
            );
        } else {
            reader.answer(1, vec![said(0, b"")]);
            reader.now += super::LIMITS.patience;
            assert_eq!(&*reader.plan(1).unwrap().rack, "here");
        }
    }
}

#[test]
fn a_replica_that_cannot_be_reached_gives_way_to_the_leader() {
    let mut reader = near();
    redirect(&mut reader);
    reader.asked(2);
    reader.state.failed(2, "lost", reader.now);
    assert!(reader.learn(cluster()).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);

    let mut reader = near();
    redirect(&mut reader);
    reader
        .state
        .unreachable(2, "refused", &reader.metadata, reader.now);
    assert_eq!(reader.asked(1), [(0, 10)]);

    let mut reader = near();
    redirect(&mut reader);
    let mut alone = cluster();
    alone.brokers.truncate(1);
    assert!(reader.learn(alone).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}

#[test]
fn an_unknown_replica_is_not_waited_for() {
    let mut reader = near();
    reader.asked(1);
    let redirected = AnsweredPartition {
        closer: Some(7),
        ..said(0, b"")
    };
    assert!(reader.answer(1, vec![redirected]).is_empty());
    let request = reader.plan(1).unwrap();
    assert_eq!((&*request.rack, request.topics.len()), ("", 1));
}

#[test]
fn a_slow_replica_is_waited_for_an_unresponsive_one_is_not() {
    let mut reader = near();
    redirect(&mut reader);
    assert_eq!(reader.asked(2), [(0, 10)]);
    reader.now += Duration::from_secs(20);
    // a long answer over a slow connection
    assert!(reader.learn(cluster()).is_empty());
    assert!(reader.asked(1).is_empty());
    reader.silent.push(2);
    assert!(reader.learn(cluster()).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}
