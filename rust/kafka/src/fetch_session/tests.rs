use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{ErrorCode, FetchSession, Heard, SessionAsk};

type Session = FetchSession<u32, i64>;

fn opened(wanted: &[(u32, i64)]) -> Session {
    let mut session = Session::default();
    let first = session.ask(wanted.to_vec());
    assert_eq!((first.id, first.epoch), (0, 0));
    assert_eq!(first.named, wanted);
    assert_eq!(session.answered(ErrorCode(0), 77), Heard::Everything);
    session
}

fn shape(ask: &SessionAsk<u32, i64>) -> (i32, i32, usize, usize) {
    (ask.id, ask.epoch, ask.named.len(), ask.forgotten.len())
}

#[test]
fn after_the_first_request_only_changes_are_named() {
    let mut session = opened(&[(1, 10), (2, 20), (3, 30)]);
    let same = session.ask([(1, 10), (2, 20), (3, 30)]);
    assert_eq!(shape(&same), (77, 1, 0, 0));
    assert!(!same.is_full());
    assert_eq!(session.answered(ErrorCode(0), 77), Heard::News);
    let changed = session.ask([(4, 40), (2, 21), (3, 30)]);
    assert_eq!((changed.id, changed.epoch), (77, 2));
    assert_eq!(changed.named, [(4, 40), (2, 21)]);
    assert_eq!(changed.forgotten, [(1, 10)]);
    assert_eq!(session.answered(ErrorCode(0), 77), Heard::News);
    assert_eq!(shape(&session.ask([(4, 40), (2, 21)])), (77, 3, 0, 1));
}

#[test]
fn a_broker_without_room_is_asked_for_everything_each_time() {
    let mut session = Session::default();
    for _ in 0..3 {
        assert_eq!(shape(&session.ask([(1, 10)])), (0, 0, 1, 0));
        assert_eq!(session.answered(ErrorCode(0), 0), Heard::Everything);
    }
}

#[test]
fn a_session_that_the_broker_does_not_know_is_not_closed() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 10)]);
    assert_eq!(session.answered(ErrorCode(70), 0), Heard::SessionOver);
    assert_eq!(shape(&session.ask([(1, 10)])), (0, 0, 1, 0));
}

#[test]
fn the_request_for_a_new_session_closes_a_stale_one() {
    for error in [71, 106] {
        let mut session = opened(&[(1, 10)]);
        session.ask([(1, 10)]);
        assert_eq!(session.answered(ErrorCode(error), 0), Heard::SessionOver);
        assert_eq!(shape(&session.ask([(1, 10)])), (77, 0, 1, 0));
        assert_eq!(session.answered(ErrorCode(0), 78), Heard::Everything);
        assert_eq!(shape(&session.ask([(1, 10)])), (78, 1, 0, 0));
    }
}

#[test]
fn a_request_that_was_lost_ends_the_session() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 10)]);
    session.lost();
    assert_eq!(shape(&session.ask([(1, 10)])), (77, 0, 1, 0));
    session.lost();
    assert_eq!(shape(&session.ask([(1, 10)])), (77, 0, 1, 0));
}

#[test]
fn a_request_that_was_given_up_counts_as_lost() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 11)]);
    assert_eq!(shape(&session.ask([(1, 11)])), (77, 0, 1, 0));
}

#[test]
fn an_answer_of_another_session_ends_ours() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 10)]);
    assert_eq!(session.answered(ErrorCode(0), 5), Heard::News);
    assert_eq!(shape(&session.ask([(1, 10)])), (77, 0, 1, 0));
}

#[test]
fn errors_that_are_not_the_sessions_end_it_and_are_told_apart() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 10)]);
    assert_eq!(session.answered(ErrorCode(-1), 0), Heard::Refused);
    assert_eq!(shape(&session.ask([(1, 10)])), (77, 0, 1, 0));
    for error in [70, 71, 106] {
        // a broker that returns this for a first request would return it again
        let mut session = Session::default();
        session.ask([(1, 10)]);
        assert_eq!(session.answered(ErrorCode(error), 0), Heard::Refused);
    }
}

#[test]
fn a_request_without_session_closes_the_one_there_was() {
    let mut session = opened(&[(1, 10)]);
    let apart = session.ask_without([(1, 10)]);
    assert_eq!(shape(&apart), (77, -1, 1, 0));
    assert!(apart.is_full());
    assert_eq!(session.answered(ErrorCode(0), 0), Heard::Everything);
    assert_eq!(shape(&session.ask_without([(1, 10)])), (0, -1, 1, 0));
    assert_eq!(session.answered(ErrorCode(-1), 0), Heard::Refused);
    assert_eq!(shape(&session.ask([(1, 10)])), (0, 0, 1, 0));
}

#[test]
fn what_was_wanted_can_be_asked_for_in_a_new_session_instead() {
    let mut session = opened(&[(1, 10), (2, 20)]);
    assert_eq!(shape(&session.ask([(3, 10), (2, 20)])), (77, 1, 1, 1));
    let anew = session.ask_anew();
    assert_eq!(shape(&anew), (77, 0, 2, 0));
    assert_eq!(anew.named, [(2, 20), (3, 10)]);
    assert_eq!(session.answered(ErrorCode(0), 78), Heard::Everything);
    assert_eq!(shape(&session.ask([(3, 10), (2, 20)])), (78, 1, 0, 0));
}

#[test]
fn a_session_is_closed_if_there_is_one() {
    let mut session = opened(&[(1, 10)]);
    session.ask([(1, 11)]);
    let close = session.close();
    assert_eq!(close.as_ref().map(shape), Some((77, -1, 0, 0)));
    session.lost();
    assert!(
        session.close().is_some(),
        "it is unknown whether it was seen"
    );
    assert_eq!(session.answered(ErrorCode(0), 0), Heard::Everything);
    assert!(session.close().is_none() && Session::default().close().is_none());
}

#[test]
fn epochs_begin_again_at_one() {
    let mut session = opened(&[(1, 10)]);
    session.state = super::State::Open {
        id: 77,
        epoch: i32::MAX,
    };
    assert_eq!(session.ask([(1, 10)]).epoch, i32::MAX);
    assert_eq!(session.answered(ErrorCode(0), 77), Heard::News);
    assert_eq!(session.ask([(1, 10)]).epoch, 1);
}

/// A broker's side, as KIP-227 describes it.
#[derive(Default)]
struct Broker {
    sessions: BTreeMap<i32, (i32, BTreeMap<u32, i64>)>,
    last: i32,
}

impl Broker {
    /// Returns error and session id, and the partitions that the broker fetches.
    fn take(&mut self, ask: &SessionAsk<u32, i64>, room: bool) -> (i16, i32, BTreeMap<u32, i64>) {
        let all: BTreeMap<u32, i64> = ask.named.iter().copied().collect();
        if ask.epoch <= 0 {
            self.sessions.remove(&ask.id);
            if ask.epoch < 0 || !room {
                return (0, 0, all);
            }
            self.last += 1;
            self.sessions.insert(self.last, (1, all.clone()));
            return (0, self.last, all);
        }
        let Some((epoch, known)) = self.sessions.get_mut(&ask.id) else {
            return (70, 0, BTreeMap::new());
        };
        if *epoch != ask.epoch {
            return (71, 0, BTreeMap::new());
        }
        *epoch += 1;
        // Kafka's brokers process them in this order
        known.extend(all);
        for (key, _) in &ask.forgotten {
            assert!(known.remove(key).is_some(), "{key} was never known");
        }
        (0, ask.id, known.clone())
    }
}

proptest! {
    /// Requests and responses may be lost, sessions may be dropped, space may run out. Whenever a broker accepts a
    /// request, it fetches exactly the wanted partitions, and no old session remains.
    #[test]
    fn a_broker_looks_at_what_is_wanted(
        steps in proptest::collection::vec(
            (proptest::collection::btree_map(0_u32..6, 0_i64..4, 0..6), 0_u8..12),
            1..60,
        ),
    ) {
        let mut broker = Broker::default();
        let mut session = Session::default();
        for (wanted, fate) in steps {
            let ask = if fate == 0 {
                session.ask_without(wanted.clone())
            } else {
                session.ask(wanted.clone())
            };
            match fate {
                1 => broker.sessions.clear(),
                2 => {
                    session.lost();
                    continue;
                }
                _ => {}
            }
            let (error, id, looked) = broker.take(&ask, fate != 3);
            if fate == 4 {
                session.lost();
                if ask.is_full() {
                    // the client never learned this id, so it cannot close the session: the broker evicts it when it
                    // needs space
                    broker.sessions.remove(&broker.last);
                }
                continue;
            }
            let heard = session.answered(ErrorCode(error), id);
            match heard {
                Heard::Everything => prop_assert!(ask.is_full()),
                Heard::News => prop_assert!(!ask.is_full()),
                Heard::SessionOver => prop_assert!(!ask.is_full() && error != 0),
                Heard::Refused => prop_assert!(false, "{error}"),
            }
            if error == 0 {
                prop_assert_eq!(looked, wanted);
            }
            prop_assert!(broker.sessions.len() <= 1, "{:?}", broker.sessions);
        }
    }
}
