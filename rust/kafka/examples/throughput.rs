//! Measures the speed of reading a topic raw: `cargo run --release --example throughput -- BOOTSTRAP TOPIC ROUNDS
//! [PROPERTY=VALUE]...`
//!
//! Reads all partitions from the first offset to the high watermark, ROUNDS times, parses each batch's header, and
//! writes `round seconds records bytes`. The caller measures CPU (`time`).

#![allow(clippy::print_stdout)] // it is what it is for

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use eomirror_kafka::{
    Assignment, Client, Clock as _, Fetcher, IsolationLevel, Limits, OffsetSpec, Outcome,
    Properties, SystemClock,
};

fn main() {
    if let Err(error) = measure() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [bootstrap, topic, rounds, rest @ ..] = &arguments[..] else {
        return Err("usage: throughput BOOTSTRAP TOPIC ROUNDS [PROPERTY=VALUE]...".into());
    };
    let mut pairs = vec![("bootstrap.servers", bootstrap.as_str())];
    for pair in rest {
        pairs.push(
            pair.split_once('=')
                .ok_or("properties are PROPERTY=VALUE")?,
        );
    }
    let clock = SystemClock;
    let deadline = clock.now() + Duration::from_secs(120);
    let properties = Properties::parse(pairs)?;
    let limits = Limits::from_properties(&properties);
    let mut client = Client::connect(properties, Arc::new(clock), deadline)?;
    let facts = client.metadata(&[topic], deadline)?.topic(topic).cloned();
    let facts = facts.ok_or("the topic is not known")?;
    let partitions: Vec<(&str, i32)> = facts
        .partitions
        .keys()
        .map(|index| (topic.as_str(), *index))
        .collect();
    let level = IsolationLevel::ReadUncommitted;
    let ends: BTreeMap<i32, i64> = client
        .list_offsets(level, OffsetSpec::Latest, &partitions, deadline)?
        .into_iter()
        .map(|listed| (listed.partition, listed.offset))
        .collect();
    let starts = client.list_offsets(level, OffsetSpec::Earliest, &partitions, deadline)?;
    let mut fetcher = Fetcher::new(client, level, limits);
    for round in 0..rounds.parse::<u32>()? {
        let begun = clock.now();
        let (mut records, mut bytes, mut answers) = (0_i64, 0, 0);
        let mut open = ends.clone();
        fetcher.assign(&[]);
        let assignments: Vec<_> = starts
            .iter()
            .map(|start| Assignment::new(topic, start.partition, start.offset))
            .collect();
        fetcher.assign(&assignments);
        while !open.is_empty() {
            let polled = fetcher.poll(deadline)?;
            for fetched in &polled {
                let Outcome::Records(data) = &fetched.outcome else {
                    return Err(format!("{}: {:?}", fetched.partition, fetched.outcome).into());
                };
                let mut next = fetched.offset;
                let mut rest = &data.records[..];
                while let Some(header) = rest.first_chunk::<61>() {
                    let field = |at: usize| {
                        header[at..at + 4]
                            .iter()
                            .fold(0, |value, byte| (value << 8) | i64::from(*byte))
                    };
                    let Some(after) = rest.get(12 + usize::try_from(field(8))?..) else {
                        break;
                    };
                    next = (field(0) << 32 | field(4)) + field(23) + 1;
                    records += field(57);
                    rest = after;
                }
                answers += 1;
                bytes += data.records.len();
                if next >= ends[&fetched.partition.partition] {
                    open.remove(&fetched.partition.partition);
                }
                fetcher.advance(&fetched.partition, next, -1);
            }
            // the broker prepares the next answer while this one would be processed
            fetcher.step()?;
        }
        let seconds = (clock.now() - begun).as_secs_f64();
        println!(
            "{round} {seconds:.3} s, {records} records, {bytes} bytes, {answers} partition answers"
        );
    }
    Ok(())
}
