//! Follows one partition of a topic: `cargo run --example follow -- TOPIC OFFSET [LEADER_EPOCH] < PROPERTIES`
//!
//! Properties are lines `name=value`. Reads partition 0 of the topic from an offset on, with the leader epoch of the
//! record before it, until the partition stops or a minute has passed. Writes a line `records BASE LAST SOURCE` for
//! each batch, where SOURCE is the broker that it was read from, and `stopped REASON`.

#![allow(clippy::print_stdout)] // it is what it is for

mod given;

use std::error::Error;
use std::time::Duration;

use eomirror_batch::Batches;
use eomirror_kafka::{Assignment, Clock as _, Fetcher, IsolationLevel, Outcome, SystemClock};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (topic, offset, leader_epoch) = match &arguments[..] {
        [topic, offset] => (topic, offset.parse()?, None),
        [topic, offset, epoch] => (topic, offset.parse()?, Some(epoch.parse()?)),
        _ => return Err("usage: follow TOPIC OFFSET [LEADER_EPOCH] < PROPERTIES".into()),
    };
    let clock = SystemClock;
    let deadline = clock.now() + Duration::from_secs(60);
    let (client, limits) = given::connect(deadline)?;
    let mut fetcher = Fetcher::new(client, IsolationLevel::ReadCommitted, limits);
    fetcher.assign(&[Assignment {
        leader_epoch,
        ..Assignment::new(topic.as_str(), 0, offset)
    }]);
    while clock.now() < deadline {
        for fetched in fetcher.poll(deadline)? {
            let records = match &fetched.outcome {
                Outcome::Records(records) => &records.records,
                Outcome::Stopped(stop) => {
                    println!("stopped {stop}");
                    return Ok(());
                }
            };
            let source = fetcher.source(&fetched.partition).unwrap_or(-1);
            let mut next = None;
            for batch in Batches::new(records) {
                let batch = batch.map_err(|error| format!("{error:?}"))?;
                let end = batch.next_offset();
                println!("records {} {} {source}", batch.base_offset(), end - 1);
                next = Some((end, batch.leader_epoch()));
            }
            if let Some((end, epoch)) = next {
                fetcher.advance(&fetched.partition, end, epoch);
            }
        }
    }
    Ok(())
}
