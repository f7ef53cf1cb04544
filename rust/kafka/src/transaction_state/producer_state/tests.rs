use std::time::{Duration, Instant};

use super::{Ask, ErrorCode, Event, Identity, ProducerState, Protocol};

const ME: Identity = Identity {
    producer_id: 7,
    epoch: 3,
};
const NEXT: Identity = Identity {
    producer_id: 7,
    epoch: 4,
};

/// Returns a producer with a known coordinator and an identity.
fn ready(now: Instant) -> ProducerState {
    ready_for(Protocol::V2, now)
}

fn ready_for(protocol: Protocol, now: Instant) -> ProducerState {
    let mut coordinator = ProducerState::new(protocol);
    assert_eq!(coordinator.wants(now), Some(Ask::Find));
    coordinator.asked();
    assert_eq!(coordinator.wants(now), None, "one question at a time");
    assert_eq!(coordinator.found(ErrorCode(0), 1, now), None);
    assert_eq!(coordinator.wants(now), Some(Ask::Init { previous: None }));
    coordinator.asked();
    assert_eq!(
        coordinator.initialized(ErrorCode(0), ME, now),
        Some(Event::Initialized)
    );
    coordinator
}

/// Returns a producer with a commit in progress.
fn committing(now: Instant) -> ProducerState {
    ending(Protocol::V2, true, now)
}

/// Returns a producer with a commit or an abort in progress.
fn ending(protocol: Protocol, commit: bool, now: Instant) -> ProducerState {
    let mut coordinator = ready_for(protocol, now);
    assert_eq!(coordinator.begin(), Ok(ME));
    coordinator.wrote();
    if commit {
        assert_eq!(coordinator.commit(), Ok(None));
    } else {
        assert_eq!(coordinator.abort(), Ok(()));
    }
    coordinator
}

fn end(commit: bool) -> Ask {
    Ask::End {
        identity: ME,
        commit,
    }
}

fn later(now: Instant) -> Instant {
    now + Duration::from_secs(1)
}

#[test]
fn a_commit_gives_the_next_identity() {
    let now = Instant::now();
    let mut coordinator = committing(now);
    assert_eq!(coordinator.wants(now), Some(end(true)));
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(0), NEXT, now),
        Some(Event::Committed)
    );
    assert_eq!(coordinator.begin(), Ok(NEXT));
}

#[test]
fn used_up_epochs_give_a_new_producer_id() {
    let now = Instant::now();
    let mut coordinator = committing(now);
    coordinator.asked();
    let fresh = Identity {
        producer_id: 900,
        epoch: 0,
    };
    assert_eq!(
        coordinator.ended(ErrorCode(0), fresh, now),
        Some(Event::Committed)
    );
    assert_eq!(coordinator.begin(), Ok(fresh));
}

#[test]
fn an_identity_that_is_not_the_next_one_ends_the_producer() {
    let now = Instant::now();
    for epoch in [ME.epoch, ME.epoch + 2] {
        let mut coordinator = committing(now);
        coordinator.asked();
        let wrong = Identity { epoch, ..ME };
        let event = coordinator.ended(ErrorCode(0), wrong, now);
        assert!(matches!(event, Some(Event::Refused(_))), "{event:?}");
        assert!(coordinator.begin().is_err());
    }
}

#[test]
fn a_lost_end_is_sent_again_unchanged_until_it_is_answered() {
    let mut now = Instant::now();
    let mut coordinator = committing(now);
    for _ in 0..3 {
        coordinator.asked();
        coordinator.lost(now);
        assert!(coordinator.abort().is_err(), "the outcome is not known");
        assert_eq!(coordinator.wants(now), None, "there is a pause");
        now = later(now);
        assert_eq!(
            coordinator.wants(now),
            Some(Ask::Find),
            "it may have moved with the connection"
        );
        coordinator.asked();
        coordinator.found(ErrorCode(0), 2, now);
        now = later(now);
        assert_eq!(coordinator.wants(now), Some(end(true)));
    }
    for error in [51, 14, 7, -1] {
        coordinator.asked();
        assert_eq!(coordinator.ended(ErrorCode(error), ME, now), None);
        now = later(now);
        assert_eq!(coordinator.wants(now), Some(end(true)), "after {error}");
    }
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(0), NEXT, now),
        Some(Event::Committed)
    );
}

#[test]
fn a_coordinator_that_fails_while_it_fences_says_so_to_the_same_request() {
    let now = Instant::now();
    for (protocol, error) in [(Protocol::V1, 47), (Protocol::V1, 90), (Protocol::V2, 90)] {
        for commit in [true, false] {
            let mut coordinator = ending(protocol, commit, now);
            coordinator.asked();
            assert_eq!(coordinator.ended(ErrorCode(-1), ME, now), None);
            assert_eq!(coordinator.wants(now), None, "there is a pause");
            let now = later(now);
            assert_eq!(coordinator.wants(now), Some(end(commit)));
            coordinator.asked();
            assert_eq!(
                coordinator.ended(ErrorCode(error), ME, now),
                Some(Event::Fenced(ErrorCode(error)))
            );
        }
    }
}

#[test]
fn a_coordinator_that_moved_is_looked_for() {
    let now = Instant::now();
    for error in [15, 16] {
        let mut coordinator = committing(now);
        coordinator.asked();
        assert_eq!(coordinator.ended(ErrorCode(error), ME, now), None);
        assert_eq!(coordinator.broker(), None);
        assert_eq!(coordinator.wants(later(now)), Some(Ask::Find));
    }
}

#[test]
fn a_busy_coordinator_is_asked_for_an_identity_again() {
    let now = Instant::now();
    // the coordinator loads its log, or still writes the markers of an earlier transaction
    for error in [14, 51] {
        let mut coordinator = ProducerState::new(Protocol::V2);
        assert_eq!(coordinator.wants(now), Some(Ask::Find));
        coordinator.asked();
        assert_eq!(coordinator.found(ErrorCode(0), 1, now), None);
        assert_eq!(coordinator.wants(now), Some(Ask::Init { previous: None }));
        coordinator.asked();
        assert_eq!(coordinator.initialized(ErrorCode(error), ME, now), None);
        assert_eq!(coordinator.wants(now), None, "not at once");
        assert_eq!(
            coordinator.wants(later(now)),
            Some(Ask::Init { previous: None })
        );
    }
}

#[test]
fn an_empty_abort_sends_a_request_and_an_empty_commit_does_not() {
    let now = Instant::now();
    let mut coordinator = ready(now);
    coordinator.begin().unwrap();
    assert_eq!(coordinator.commit(), Ok(Some(Event::Committed)));
    assert_eq!(coordinator.wants(now), None);
    assert_eq!(coordinator.begin(), Ok(ME), "nothing changed");
    coordinator.abort().unwrap();
    assert_eq!(coordinator.wants(now), Some(end(false)));
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(0), NEXT, now),
        Some(Event::Aborted)
    );
    assert_eq!(coordinator.begin(), Ok(NEXT));
}

#[test]
fn an_abortable_commit_leaves_only_the_abort() {
    let now = Instant::now();
    let mut coordinator = committing(now);
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(120), ME, now),
        Some(Event::MustAbort(ErrorCode(120)))
    );
    assert!(coordinator.commit().is_err());
    assert_eq!(coordinator.writer(), None);
    coordinator.abort().unwrap();
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(0), NEXT, now),
        Some(Event::Aborted)
    );
}

#[test]
fn a_timed_out_transaction_is_not_committed() {
    let now = Instant::now();
    let mut coordinator = committing(now);
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(48), ME, now),
        Some(Event::NotCommitted(ErrorCode(48)))
    );
    assert!(coordinator.begin().is_err());
    assert_eq!(
        coordinator.wants(now),
        Some(Ask::Init { previous: Some(ME) })
    );
    coordinator.asked();
    // a successor has the transactional id: the producer does not take it back
    assert_eq!(
        coordinator.initialized(ErrorCode(90), ME, now),
        Some(Event::Fenced(ErrorCode(90)))
    );
}

#[test]
fn a_doomed_transaction_cannot_be_committed() {
    let now = Instant::now();
    let mut coordinator = ready(now);
    coordinator.begin().unwrap();
    coordinator.wrote();
    coordinator.require_abort();
    assert!(coordinator.commit().is_err());
    assert!(coordinator.abort().is_ok());
}

#[test]
fn a_fenced_producer_asks_nothing_more() {
    let now = Instant::now();
    for error in [47, 90] {
        let mut coordinator = committing(now);
        coordinator.asked();
        assert_eq!(
            coordinator.ended(ErrorCode(error), ME, now),
            Some(Event::Fenced(ErrorCode(error)))
        );
        assert_eq!(coordinator.wants(later(now)), None);
        assert!(coordinator.begin().is_err());
    }
}

#[test]
fn what_is_not_known_to_pass_ends_the_producer() {
    let now = Instant::now();
    // missing authorization, a lost mapping, a request that the broker does not understand
    for error in [53, 49, 42] {
        let mut coordinator = committing(now);
        coordinator.asked();
        assert_eq!(
            coordinator.ended(ErrorCode(error), ME, now),
            Some(Event::Refused(ErrorCode(error)))
        );
        assert_eq!(coordinator.wants(later(now)), None);
    }
}

/// Returns a producer of protocol V1 with an open transaction.
fn open_v1(now: Instant) -> ProducerState {
    let mut coordinator = ready_for(Protocol::V1, now);
    assert_eq!(coordinator.begin(), Ok(ME));
    coordinator
}

#[test]
fn in_v1_each_end_is_followed_by_a_request_for_the_next_identity() {
    let now = Instant::now();
    for commit in [true, false] {
        let mut coordinator = ending(Protocol::V1, commit, now);
        coordinator.asked();
        let event = coordinator.ended(ErrorCode(0), ME, now);
        assert_eq!(
            event,
            Some(if commit {
                Event::Committed
            } else {
                Event::Aborted
            })
        );
        assert!(
            coordinator.begin().is_err(),
            "a late EndTxn would end the next transaction"
        );
        let asked = Ask::Init { previous: Some(ME) };
        assert_eq!(coordinator.wants(now), Some(asked));
        coordinator.asked();
        // the markers are being written
        assert_eq!(coordinator.initialized(ErrorCode(51), ME, now), None);
        let now = later(now);
        assert_eq!(coordinator.wants(now), Some(asked));
        coordinator.asked();
        let event = coordinator.initialized(ErrorCode(0), NEXT, now);
        assert_eq!(event, Some(Event::Initialized));
        assert_eq!(coordinator.begin(), Ok(NEXT));
    }
}

#[test]
fn in_v1_partitions_are_added_until_the_coordinator_has_them() {
    let mut now = Instant::now();
    let mut coordinator = open_v1(now);
    assert_eq!(coordinator.wants(now), None);
    coordinator.add(true);
    let add = Ask::Add { identity: ME };
    for error in [51, 3, 55, 14] {
        assert_eq!(coordinator.wants(now), Some(add), "before {error}");
        coordinator.asked();
        assert_eq!(coordinator.added(ErrorCode(error), now), None);
        assert_eq!(coordinator.wants(now), None, "there is a pause");
        now = later(now);
    }
    coordinator.asked();
    assert_eq!(coordinator.added(ErrorCode(16), now), None);
    assert_eq!(coordinator.wants(later(now)), Some(Ask::Find));
    coordinator.asked();
    coordinator.found(ErrorCode(0), 1, now);
    assert_eq!(coordinator.added(ErrorCode(0), now), None);
    coordinator.add(false);
    assert_eq!(coordinator.wants(now), None);
    coordinator.wrote();
    assert_eq!(coordinator.commit(), Ok(None));
    assert_eq!(coordinator.wants(now), Some(end(true)));
}

#[test]
fn in_v1_a_partition_that_is_refused_ends_the_transaction_and_a_fence_the_producer() {
    let now = Instant::now();
    let mut coordinator = open_v1(now);
    coordinator.add(true);
    coordinator.asked();
    let event = coordinator.added(ErrorCode(29), now);
    assert_eq!(event, Some(Event::MustAbort(ErrorCode(29))));
    assert_eq!(coordinator.abort(), Ok(()));
    // nothing was added: the coordinator knows of no transaction
    coordinator.asked();
    assert_eq!(
        coordinator.ended(ErrorCode(48), ME, now),
        Some(Event::Aborted)
    );
    assert_eq!(
        coordinator.wants(now),
        Some(Ask::Init { previous: Some(ME) })
    );

    for error in [47, 90] {
        let mut coordinator = open_v1(now);
        coordinator.add(true);
        coordinator.asked();
        let event = coordinator.added(ErrorCode(error), now);
        assert_eq!(event, Some(Event::Fenced(ErrorCode(error))));
    }
}

#[test]
fn in_v1_an_answer_about_partitions_of_a_transaction_that_is_being_aborted_changes_nothing() {
    let now = Instant::now();
    let mut coordinator = open_v1(now);
    coordinator.add(true);
    coordinator.asked();
    assert_eq!(coordinator.abort(), Ok(()));
    assert_eq!(coordinator.wants(now), None, "one question at a time");
    assert_eq!(coordinator.added(ErrorCode(29), now), None);
    assert_eq!(coordinator.wants(now), Some(end(false)));
}
