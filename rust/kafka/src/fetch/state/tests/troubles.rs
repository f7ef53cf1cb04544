//! Leader elections, deleted topics, failing brokers.

use crate::error_code::ErrorCode;

use super::super::super::{Assignment, Outcome, Stop};
use super::{
    A, B, LIMITS, MILLI, Reader, at, cluster, error, reading, reading_with, said, stop_of,
};
use crate::network::UNRESPONSIVE_AFTER;
use std::time::Duration;

use crate::fetch::Limits;
use crate::protocol::fetch::{AnsweredPartition, EpochEnd, NewLeader};

#[test]
fn a_broker_that_does_not_lead_is_a_reason_to_ask_who_does() {
    for code in [5, 6, 74, 75, 3, 100, 103] {
        let mut reader = reading(&[0]);
        reader.asked(1);
        assert!(reader.answer(1, vec![error(0, code)]).is_empty());
        assert!(reader.wants_metadata(), "{code}");
        assert!(reader.asked(1).is_empty(), "{code}: not at once");
        assert_eq!(
            reader.state.next_retry(reader.now),
            Some(reader.now + LIMITS.retry)
        );
        assert_eq!(reader.stalled()[0].reason, ErrorCode(code).to_string());
        reader.now += LIMITS.retry;
        assert_eq!(reader.asked(1), [(0, 10)], "{code}");
        reader.answer(1, vec![said(0, b"x")]);
        assert!(reader.stalled().is_empty());
    }
}

#[test]
fn a_new_leader_that_the_old_one_names_is_asked_at_once() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    let moved = AnsweredPartition {
        leader: Some(NewLeader {
            broker: 2,
            epoch: 8,
        }),
        ..error(0, 6)
    };
    assert!(reader.answer(1, vec![moved]).is_empty());
    assert!(!reader.wants_metadata());
    let request = reader.plan(2).unwrap();
    assert_eq!(request.topics[0].partitions[0].leader_epoch, 8);
}

#[test]
fn passing_trouble_is_waited_for() {
    for code in [7, 78, 89] {
        let mut reader = reading(&[0]);
        reader.asked(1);
        assert!(reader.answer(1, vec![error(0, code)]).is_empty());
        assert!(
            !reader.wants_metadata() && reader.asked(1).is_empty(),
            "{code}"
        );
        reader.now += LIMITS.retry;
        assert_eq!(reader.asked(1), [(0, 10)], "{code}");
    }
}

#[test]
fn a_leader_that_cannot_read_is_retried_then_believed() {
    for code in [-1, 2] {
        let mut reader = reading(&[0, 2]);
        let fails = |reader: &mut Reader| {
            assert_eq!(reader.asked(1)[0], (0, 10), "{code}");
            let fetched = reader.answer(1, vec![error(0, code), said(2, b"")]);
            reader.now += LIMITS.retry;
            let (of_it, others): (Vec<_>, Vec<_>) =
                fetched.into_iter().partition(|one| one.partition == at(0));
            assert!(
                others
                    .iter()
                    .all(|one| matches!(one.outcome, Outcome::Records(_)))
            );
            of_it
        };
        let mut tries = 0;
        let started = reader.now;
        let stopped = loop {
            let fetched = fails(&mut reader);
            if !fetched.is_empty() {
                break fetched;
            }
            assert_eq!(reader.stalled()[0].reason, ErrorCode(code).to_string());
            assert!(!reader.wants_metadata());
            tries += 1;
        };
        let code = ErrorCode(code);
        assert_eq!(stop_of(&stopped), &Stop::Unreadable { code });
        assert!(tries > 10 && reader.now - started >= LIMITS.patience);
        assert_eq!(reader.asked(1), [(2, 10)], "the other one goes on");
    }
}

#[test]
fn a_new_leader_or_a_read_restarts_the_patience() {
    let mut reader = reading(&[0]);
    let mut elected = cluster();
    elected.topics[0].partitions[0].leader_epoch = 8;
    let almost = LIMITS.patience.checked_sub(MILLI).unwrap();
    let fails = |reader: &mut Reader| {
        assert_eq!(reader.asked(1), [(0, 10)]);
        reader.answer(1, vec![error(0, 2)])
    };
    assert!(fails(&mut reader).is_empty());
    reader.now += almost;
    assert!(reader.learn(elected).is_empty());
    assert!(fails(&mut reader).is_empty());
    reader.now += almost;
    reader.asked(1);
    assert_eq!(reader.answer(1, vec![said(0, b"")]).len(), 1);
    assert!(fails(&mut reader).is_empty());
    reader.now += LIMITS.patience;
    let code = ErrorCode(2);
    assert_eq!(stop_of(&fails(&mut reader)), &Stop::Unreadable { code });
}

#[test]
fn what_cannot_get_better_stops_the_partition_and_no_other() {
    let refused = |code| Stop::Refused {
        code: ErrorCode(code),
    };
    for (code, stop) in [
        (1, Stop::OutOfRange { log: None }),
        (29, refused(29)),
        (17, refused(17)),
        (109, refused(109)),
    ] {
        let mut reader = reading(&[0, 2]);
        reader.asked(1);
        let fetched = reader.answer(1, vec![error(0, code), said(2, b"")]);
        assert_eq!(stop_of(&fetched[..1]), &stop);
        reader.now += LIMITS.retry;
        assert_eq!(reader.asked(1), [(2, 10)]);
        assert!(
            !reader.state.advance(&at(0), 11, 7),
            "a stopped partition has to be assigned again"
        );
        reader.state.assign(&[Assignment::new("a", 0, 12)]);
        assert!(reader.learn(cluster()).is_empty());
        reader.answer(1, vec![]);
        assert_eq!(reader.asked(1), [(0, 12)]);
    }
}

#[test]
fn a_truncated_log_stops_the_partition_with_the_place() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    let diverging = AnsweredPartition {
        diverging: Some(EpochEnd {
            epoch: 5,
            end_offset: 8,
        }),
        ..said(0, b"")
    };
    let fetched = reader.answer(1, vec![diverging]);
    let expected = Stop::Truncated {
        epoch: 5,
        end_offset: 8,
    };
    assert_eq!(stop_of(&fetched), &expected);
}

#[test]
fn a_topic_that_was_created_anew_stops_its_partitions() {
    let mut replaced = cluster();
    replaced.topics[0].id = B;
    let mut reader = reading(&[0]);
    assert_eq!(
        stop_of(&reader.learn(replaced.clone())),
        &Stop::Replaced { found: B }
    );
    assert!(reader.asked(1).is_empty());

    let mut reader = reading(&[1]);
    let expected = Assignment {
        compare_from: None,
        topic_id: Some(A),
        ..Assignment::new("a", 0, 10)
    };
    reader.state.assign(&[expected]);
    assert_eq!(
        stop_of(&reader.learn(replaced)),
        &Stop::Replaced { found: B }
    );
}

#[test]
fn a_topic_of_another_id_is_not_read_even_without_a_comparison() {
    let mut replaced = cluster();
    replaced.topics[0].id = B;
    let mut reader = reading(&[0]);
    // another call has refreshed the metadata
    reader.metadata.apply(replaced, reader.now);
    assert!(reader.asked(1).is_empty());
    assert!(
        reader
            .state
            .brokers(&reader.metadata, reader.now)
            .is_empty()
    );
    assert!(reader.wants_metadata());
}

#[test]
fn a_topic_that_is_unknown_is_waited_for_and_then_gone() {
    let mut unknown = cluster();
    unknown.topics[0].error = ErrorCode(3);
    unknown.topics[0].partitions.clear();
    let mut reader = reading(&[0]);
    assert!(reader.learn(unknown.clone()).is_empty());
    assert!(reader.wants_metadata());
    reader.now += Duration::from_millis(4999);
    assert!(reader.learn(unknown.clone()).is_empty());
    reader.now += MILLI;
    assert_eq!(stop_of(&reader.learn(unknown)), &Stop::Gone);
    assert!(!reader.wants_metadata());
}

#[test]
fn a_topic_missing_from_metadata_is_reported_and_retried() {
    let mut silent = cluster();
    silent.topics.clear();
    let mut reader = reading(&[1]);
    reader.state.assign(&[Assignment::new("b", 0, 0)]);
    assert!(reader.learn(silent).is_empty());
    assert!(reader.wants_metadata());
    assert_eq!(reader.stalled()[0].reason, "metadata lacks its topic");
}

#[test]
fn a_missing_partition_is_waited_for_and_then_gone() {
    let mut reader = reading(&[0]);
    reader.state.assign(&[Assignment::new("a", 9, 0)]);
    assert!(reader.learn(cluster()).is_empty());
    assert_eq!(
        reader.stalled()[0].reason,
        "the topic has no such partition"
    );
    reader.now += LIMITS.patience;
    assert_eq!(stop_of(&reader.learn(cluster())), &Stop::Gone);
}

#[test]
fn a_failed_partition_gets_new_patience_when_it_is_missing() {
    let mut without_leader = cluster();
    without_leader.topics[0].partitions[0].leader = -1;
    let mut without_partition = cluster();
    without_partition.topics[0].partitions.remove(0);
    let mut reader = reading(&[0]);
    assert!(reader.learn(without_leader).is_empty());
    reader.now += LIMITS.patience;
    // a broker that has just started may not know of it yet
    assert!(reader.learn(without_partition.clone()).is_empty());
    reader.now += Duration::from_millis(4999);
    assert!(reader.learn(without_partition.clone()).is_empty());
    assert!(reader.learn(cluster()).is_empty());
    reader.now += MILLI;
    assert!(reader.learn(without_partition.clone()).is_empty());
    reader.now += LIMITS.patience;
    assert_eq!(stop_of(&reader.learn(without_partition)), &Stop::Gone);
}

#[test]
fn a_topic_that_may_not_be_seen_stops() {
    let mut forbidden = cluster();
    forbidden.topics[0].error = ErrorCode(29);
    forbidden.topics[0].partitions.clear();
    let mut reader = reading(&[0]);
    let expected = Stop::Refused {
        code: ErrorCode(29),
    };
    assert_eq!(stop_of(&reader.learn(forbidden)), &expected);
}

#[test]
fn a_partition_without_leader_is_asked_about_until_it_has_one() {
    let mut headless = cluster();
    headless.topics[0].partitions[0].leader = -1;
    headless.topics[0].partitions[0].leader_epoch = 8;
    let mut reader = reading(&[0]);
    assert!(reader.learn(headless).is_empty());
    assert!(reader.wants_metadata());
    assert_eq!(reader.stalled()[0].reason, "it has no leader");
    let mut elected = cluster();
    elected.topics[0].partitions[0].leader = 2;
    elected.topics[0].partitions[0].leader_epoch = 9;
    reader.now += LIMITS.retry;
    assert!(reader.learn(elected).is_empty());
    assert_eq!(reader.asked(2), [(0, 10)]);
}

#[test]
fn a_broker_that_is_lost_gives_its_partitions_back() {
    let mut reader = reading_with(
        &[0, 1],
        Limits {
            budget: 2000,
            ..LIMITS
        },
    );
    reader.asked(1);
    reader.asked(2);
    reader.state.failed(1, "the broker closed it", reader.now);
    assert!(reader.wants_metadata());
    assert_eq!(reader.stalled()[0].reason, "the broker closed it");
    assert_eq!(reader.asked(1), [(0, 10)]);
    assert_eq!(
        reader.answer(2, vec![said(1, b"x")]).len(),
        1,
        "the other broker goes on"
    );
}

#[test]
fn a_broker_that_stands_still_is_named_until_it_answers() {
    let mut reader = reading(&[0, 1]);
    let asked = reader.now;
    reader.asked(1);
    reader.now += LIMITS.wait + UNRESPONSIVE_AFTER;
    assert!(reader.stalled().is_empty(), "it may be on its way");
    reader.now += MILLI;
    let delays = reader.stalled();
    assert_eq!(delays.len(), 1, "broker 2 was asked nothing");
    assert_eq!(delays[0].partition.partition, 0);
    assert_eq!(delays[0].since, asked);
    assert_eq!(delays[0].reason, "broker 1 has not answered");
    reader.answer(1, vec![said(0, b"")]);
    assert!(reader.stalled().is_empty());
}

#[test]
fn what_goes_on_to_be_wrong_is_news_only_once() {
    let mut reader = reading(&[0, 1]);
    assert!(!reader.state.take_news() && reader.state.is_well());
    for expected in [true, false] {
        reader.asked(1);
        reader.answer(1, vec![error(0, 6)]);
        assert_eq!(reader.state.take_news(), expected);
        assert!(!reader.state.is_well());
        reader.now += LIMITS.retry;
    }
    for expected in [true, false] {
        let metadata = &reader.metadata;
        reader.state.unreachable(2, "refused", metadata, reader.now);
        assert_eq!(reader.state.take_news(), expected, "another partition");
    }
    let mut headless = cluster();
    headless.topics[0].partitions[0].leader = -1;
    headless.topics[0].partitions[0].leader_epoch = 8;
    assert!(reader.learn(headless).is_empty());
    assert!(!reader.state.take_news(), "it had trouble before");
    let mut elected = cluster();
    elected.topics[0].partitions[0].leader_epoch = 9;
    assert!(reader.learn(elected).is_empty());
    reader.now += LIMITS.retry;
    assert_eq!(reader.asked(1), [(0, 10)]);
    reader.answer(1, vec![said(0, b"")]);
    reader.asked(1);
    reader.answer(1, vec![error(0, 6)]);
    assert!(reader.state.take_news(), "all was well in between");
}

/// EO-5: over each new connection the log may be another one.
#[test]
fn each_connection_fetches_the_batch_before_the_position() {
    let mut reader = reading(&[0]);
    reader.state.compare_from(&at(0), Some(7));
    assert_eq!(reader.asked(1), [(0, 7)]);
    let fetched = reader.answer(1, vec![said(0, b"batch")]);
    assert_eq!((fetched[0].offset, fetched[0].compares), (10, true));

    reader.state.advance(&at(0), 12, 7);
    reader.state.compare_from(&at(0), Some(10));
    assert_eq!(reader.asked(1), [(0, 12)]);
    reader.state.failed(1, "it was lost", reader.now);
    reader.connection = 2;
    assert_eq!(reader.asked(1), [(0, 10)]);
    // nothing has arrived: it is still to be compared
    assert!(
        !reader
            .answer(1, vec![said(0, b"")])
            .iter()
            .any(|one| !one.compares)
    );
    assert_eq!(reader.asked(1), [(0, 10)]);
    let fetched = reader.answer(1, vec![said(0, b"batch")]);
    assert_eq!((fetched[0].offset, fetched[0].compares), (12, true));
    reader.state.advance(&at(0), 12, 7);
    assert_eq!(reader.asked(1), [(0, 12)]);
}

/// Retention has deleted the batch, and there is nothing left to compare.
#[test]
fn a_position_is_read_when_the_batch_before_it_is_gone() {
    let mut reader = reading(&[0]);
    reader.state.compare_from(&at(0), Some(7));
    assert_eq!(reader.asked(1), [(0, 7)]);
    assert!(reader.answer(1, vec![error(0, 1)]).is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}
