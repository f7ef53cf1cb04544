//! Measures the cost of waiting for records: `cargo run --release --example idle -- TOPIC SECONDS [without] <
//! PROPERTIES`
//!
//! Reads all partitions of a topic from their ends, where no records arrive, with fetch sessions (KIP-227) or
//! `without`. Properties are lines `name=value`; `fetch.wait.max.ms` sets how often a leader answers. Writes one line
//! of JSON: bytes sent and received and microseconds of processor time per answer. The time is user and system time
//! after the first answers.

#![allow(clippy::print_stdout)] // it is what it is for

mod given;

use std::error::Error;
use std::time::{Duration, Instant};

use eomirror_kafka::{Assignment, Clock as _, Fetcher, IsolationLevel, OffsetSpec, SystemClock};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (topic, seconds, sessions) = match &arguments[..] {
        [topic, seconds] => (topic, seconds.parse()?, true),
        [topic, seconds, without] if without == "without" => (topic, seconds.parse()?, false),
        _ => return Err("usage: idle TOPIC SECONDS [without] < PROPERTIES".into()),
    };
    let deadline = SystemClock.now() + Duration::from_secs(30);
    let (mut client, limits) = given::connect(deadline)?;
    let facts = client.metadata(&[topic], deadline)?.topic(topic).cloned();
    let partitions: Vec<(&str, i32)> = facts
        .iter()
        .flat_map(|facts| facts.partitions.keys())
        .map(|index| (topic.as_str(), *index))
        .collect();
    let level = IsolationLevel::ReadCommitted;
    let ends = client.list_offsets(level, OffsetSpec::Latest, &partitions, deadline)?;
    let assignments: Vec<Assignment> = ends
        .iter()
        .map(|end| Assignment::new(topic.as_str(), end.partition, end.offset))
        .collect();
    let mut fetcher = Fetcher::new(client, level, limits);
    fetcher.keep_sessions(sessions);
    fetcher.assign(&assignments);
    // the first answers have all watermarks
    pass(&mut fetcher, limits.wait * 3)?;
    let before = (fetcher.network().traffic(), processor_time());
    let answers = pass(&mut fetcher, Duration::from_secs(seconds))?;
    let after = (fetcher.network().traffic(), processor_time());
    println!(
        r#"{{"partitions": {}, "sessions": {sessions}, "answers": {answers}, "sent": {}, "received": {}, "cpu_us": {}}}"#,
        assignments.len(),
        (after.0.sent - before.0.sent) / answers.max(1),
        (after.0.received - before.0.received) / answers.max(1),
        after.1.saturating_sub(before.1).as_micros() / u128::from(answers.max(1)),
    );
    Ok(())
}

/// Waits for a time, and counts answers by the bytes that arrive.
fn pass(fetcher: &mut Fetcher, time: Duration) -> Result<u64, eomirror_kafka::Error> {
    let until = Instant::now() + time;
    let mut answers = 0;
    let mut received = fetcher.network().traffic().received;
    while Instant::now() < until {
        fetcher.step()?;
        let now = fetcher.network().traffic().received;
        answers += u64::from(now > received);
        received = now;
        let wake = fetcher.wakes_at().map_or(until, |at| at.min(until));
        eomirror_kafka::wait(&mut [fetcher.network()], &SystemClock, wake);
    }
    Ok(answers)
}

/// Returns the CPU time of the only thread, in nanoseconds, from the scheduler of Linux.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|word| word.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
