//! The reader's use of fetch sessions; the session itself is tested in the core.

use crate::error_code::ErrorCode;

use super::super::super::Assignment;
use super::{A, Reader, at, error, reading, said};
use crate::protocol::fetch::{AnsweredPartition, AnsweredTopic, FetchAnswer};
use crate::topic::TopicId;

fn answer(reader: &mut Reader, session_id: i32, partitions: Vec<AnsweredPartition>) -> usize {
    let answer = FetchAnswer {
        session_id,
        topics: vec![AnsweredTopic {
            id: A,
            partitions,
            ..AnsweredTopic::default()
        }],
        ..FetchAnswer::default()
    };
    let fetched = reader
        .state
        .answered(1, answer, &mut reader.metadata, reader.now);
    fetched.len()
}

/// Returns session id and epoch, and the named and forgotten partitions.
fn plan(reader: &mut Reader) -> (i32, i32, Vec<i32>, Vec<i32>) {
    let request = reader.plan(1).unwrap();
    let named = request.topics.iter().flat_map(|topic| &topic.partitions);
    let forgotten = request.forgotten.iter().flat_map(|topic| &topic.partitions);
    (
        request.session_id,
        request.session_epoch,
        named.map(|asked| asked.index).collect(),
        forgotten.copied().collect(),
    )
}

/// A reader of partitions 0 and 2 with session 9, after an answer without records.
fn in_session() -> Reader {
    let mut reader = reading(&[0, 2]);
    assert_eq!(plan(&mut reader), (0, 0, vec![0, 2], vec![]));
    answer(&mut reader, 9, vec![said(0, b""), said(2, b"")]);
    reader
}

#[test]
fn a_reader_that_has_caught_up_names_nothing() {
    let mut reader = in_session();
    for epoch in 1..4 {
        assert_eq!(plan(&mut reader), (9, epoch, vec![], vec![]));
        assert_eq!(answer(&mut reader, 9, vec![]), 0);
        assert!(reader.stalled().is_empty(), "silence is no trouble");
    }
}

#[test]
fn a_held_partition_leaves_the_session_until_it_advances() {
    let mut reader = in_session();
    plan(&mut reader);
    assert_eq!(answer(&mut reader, 9, vec![said(2, b"x")]), 1);
    assert_eq!(plan(&mut reader), (9, 2, vec![], vec![2]));
    answer(&mut reader, 9, vec![]);
    reader.state.advance(&at(2), 11, 7);
    assert_eq!(plan(&mut reader), (9, 3, vec![2], vec![]));
}

#[test]
fn a_partition_that_is_assigned_anew_is_told_in_a_new_session() {
    let mut reader = in_session();
    // a broker forgets last
    reader
        .state
        .assign(&[Assignment::new("a", 0, 10), Assignment::new("a", 2, 50)]);
    assert!(reader.learn(super::cluster()).is_empty());
    assert_eq!(plan(&mut reader), (9, 0, vec![0, 2], vec![]));
    answer(&mut reader, 10, vec![said(0, b""), said(2, b"")]);
    assert_eq!(plan(&mut reader), (10, 1, vec![], vec![]));
}

#[test]
fn a_new_partition_joins_the_existing_session() {
    let mut reader = reading(&[0]);
    assert_eq!(plan(&mut reader), (0, 0, vec![0], vec![]));
    answer(&mut reader, 9, vec![said(0, b"")]);
    reader
        .state
        .assign(&[0, 2].map(|index| Assignment::new("a", index, 10)));
    assert!(reader.learn(super::cluster()).is_empty());
    assert_eq!(plan(&mut reader), (9, 1, vec![2], vec![]));
}

#[test]
fn a_session_that_the_broker_lost_is_opened_again_at_once() {
    let mut reader = in_session();
    plan(&mut reader);
    let answer = FetchAnswer {
        error: ErrorCode(70),
        ..FetchAnswer::default()
    };
    let fetched = reader
        .state
        .answered(1, answer, &mut reader.metadata, reader.now);
    assert!(fetched.is_empty() && reader.stalled().is_empty());
    assert_eq!(plan(&mut reader), (0, 0, vec![0, 2], vec![]));
}

#[test]
fn a_connection_that_is_lost_ends_the_session() {
    let mut reader = in_session();
    plan(&mut reader);
    reader.state.failed(1, "lost", reader.now);
    assert!(reader.learn(super::cluster()).is_empty());
    assert_eq!(plan(&mut reader), (9, 0, vec![0, 2], vec![]));
}

#[test]
fn a_failed_partition_leaves_the_session_until_its_retry() {
    let mut reader = in_session();
    plan(&mut reader);
    answer(&mut reader, 9, vec![error(0, 78)]);
    assert_eq!(plan(&mut reader), (9, 2, vec![], vec![0]));
    answer(&mut reader, 9, vec![]);
    reader.now += super::LIMITS.retry;
    assert_eq!(plan(&mut reader), (9, 3, vec![0], vec![]));
    answer(&mut reader, 9, vec![]);
    assert!(reader.stalled().is_empty(), "no news is that it is well");
}

#[test]
fn a_broker_that_throttles_says_nothing_and_that_is_no_trouble() {
    let mut reader = reading(&[0]);
    reader.asked(1);
    let throttled = FetchAnswer {
        throttle_ms: 100,
        ..FetchAnswer::default()
    };
    reader
        .state
        .answered(1, throttled, &mut reader.metadata, reader.now);
    assert!(reader.stalled().is_empty());
    assert_eq!(reader.asked(1), [(0, 10)]);
}

#[test]
fn there_is_no_session_where_topics_have_no_id() {
    let mut nameless = super::cluster();
    nameless.topics[0].id = TopicId::NONE;
    let mut reader = reading(&[1]);
    reader.state.assign(&[Assignment::new("a", 0, 10)]);
    assert!(reader.learn(nameless).is_empty());
    assert_eq!(plan(&mut reader), (0, -1, vec![0], vec![]));
}

#[test]
fn sessions_can_be_left_out_and_are_closed_in_the_end() {
    let mut reader = in_session();
    reader.state.keep_sessions(false);
    assert_eq!(plan(&mut reader), (9, -1, vec![0, 2], vec![]));
    assert_eq!(answer(&mut reader, 0, vec![]), 0);
    assert!(reader.state.close(1).is_none());

    let mut reader = in_session();
    let close = reader.state.close(1).unwrap();
    assert_eq!((close.session_id, close.session_epoch), (9, -1));
    assert!(close.topics.is_empty());
    assert!(reader.state.close(2).is_none(), "broker 2 was never asked");
}
