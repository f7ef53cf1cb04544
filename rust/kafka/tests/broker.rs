//! Tests on a real broker: `KAFKA_TEST_BOOTSTRAP=host:port KAFKA_TEST_TOPIC=name cargo test -p eomirror-kafka --test
//! broker`, where the topic has three partitions.
//!
//! Without the variables the tests report that and pass. `tests/interop/test_native_fetch.py` starts the brokers,
//! writes the records and compares them.

#![allow(clippy::unwrap_used)] // a helper of a test may fail as the test itself does

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_kafka::{
    Assignment, Client, Clock as _, ErrorCode, Fetcher, IsolationLevel, Limits, OffsetSpec,
    Outcome, Properties, Stop, SystemClock,
};

/// Returns a client, unless no broker is given.
fn client() -> Option<(Client, Limits)> {
    let Ok(servers) = std::env::var("KAFKA_TEST_BOOTSTRAP") else {
        eprintln!("skipped: KAFKA_TEST_BOOTSTRAP names no broker");
        return None;
    };
    let properties = Properties::parse([("bootstrap.servers", servers)]).unwrap();
    let limits = Limits {
        patience: Duration::from_millis(500),
        ..Limits::from_properties(&properties)
    };
    Some((
        Client::connect(properties, Arc::new(SystemClock), soon()).unwrap(),
        limits,
    ))
}

/// Returns a topic without records, unless none is given.
fn topic() -> Option<String> {
    let named = std::env::var("KAFKA_TEST_TOPIC").ok();
    if named.is_none() {
        eprintln!("skipped: KAFKA_TEST_TOPIC names no topic");
    }
    named
}

fn soon() -> Instant {
    SystemClock.now() + Duration::from_secs(20)
}

#[test]
fn a_cluster_says_who_it_is() {
    let Some((client, _)) = client() else { return };
    assert!(!client.cached_metadata().cluster_id().unwrap().is_empty());
    assert!(!client.cached_metadata().brokers().is_empty());
}

#[test]
fn a_topic_that_does_not_exist_is_a_fact_and_is_not_created() {
    let Some((mut client, limits)) = client() else {
        return;
    };
    for _ in 0..2 {
        let directory = client.metadata(&["no-such-topic"], soon()).unwrap();
        let facts = directory.topic("no-such-topic").unwrap();
        assert_eq!(facts.error, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadUncommitted, limits);
    fetcher.assign(&[Assignment::new("no-such-topic", 0, 0)]);
    let polled = fetcher.poll(soon()).unwrap();
    assert!(
        matches!(polled[0].outcome, Outcome::Stopped(Stop::Gone)),
        "{polled:?}"
    );
}

#[test]
fn offsets_of_a_missing_topic_time_out_with_the_reason() {
    let Some((mut client, _)) = client() else {
        return;
    };
    let deadline = SystemClock.now() + Duration::from_millis(400);
    let asked = [("no-such-topic", 0)];
    let error = client
        .list_offsets(
            IsolationLevel::ReadCommitted,
            OffsetSpec::Latest,
            &asked,
            deadline,
        )
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no leader is known for no-such-topic-0"),
        "{error}"
    );
}

/// A broker that is told to add and to forget a partition in one request does both in this order, and never returns it.
#[test]
fn a_partition_that_is_assigned_anew_beside_others_is_spoken_of() {
    let Some(((client, limits), topic)) = client().zip(topic()) else {
        return;
    };
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadCommitted, limits);
    let all = [0, 1, 2].map(|partition| Assignment::new(topic.as_str(), partition, 0));
    fetcher.assign(&all);
    let mut supported = BTreeSet::new();
    while supported.len() < 3 {
        let polled = fetcher.poll(soon()).unwrap();
        assert!(!polled.is_empty(), "only {supported:?} is supported of");
        supported.extend(polled.into_iter().map(|one| one.partition.partition));
    }

    fetcher.assign(&all[1..]);
    fetcher.assign(&all);

    let polled = fetcher.poll(soon()).unwrap();
    let supported: Vec<i32> = polled.iter().map(|one| one.partition.partition).collect();
    assert!(supported.contains(&0), "{polled:?}");
}

/// A source restored from an older state has older epochs only. Its leader only reports that the offset is out of
/// range, although the log has been written beyond it.
#[test]
fn a_log_without_the_positions_epoch_is_another_log() {
    let Some(((client, limits), topic)) = client().zip(topic()) else {
        return;
    };
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadCommitted, limits);
    let before = Assignment::new(topic, 0, 0);
    fetcher.assign(&[Assignment {
        leader_epoch: Some(1000),
        ..before
    }]);
    let polled = fetcher.poll(soon()).unwrap();
    assert!(
        matches!(
            polled[0].outcome,
            Outcome::Stopped(Stop::Truncated {
                epoch: 0,
                end_offset: 0
            })
        ),
        "{polled:?}"
    );
}
