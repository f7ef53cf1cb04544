//! Prints the committed records of a topic: `cargo run --example consume -- TOPIC < PROPERTIES`
//!
//! Properties are lines `name=value`, such as `bootstrap.servers=localhost:9092`. Reads every partition from its first
//! record to its last stable offset, without records of aborted transactions, and writes a line `PARTITION OFFSET KEY
//! VALUE` for each record.

#![allow(clippy::print_stdout)] // it is what it is for

mod given;

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use eomirror_batch::{self as batch, AbortedFilter, Batches, Memory, Records, Verdict};
use eomirror_kafka::{Assignment, Fetcher, IsolationLevel, OffsetSpec, Outcome};

fn main() -> Result<(), Box<dyn Error>> {
    let topic = std::env::args()
        .nth(1)
        .ok_or("usage: consume TOPIC < PROPERTIES")?;
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut client, limits) = given::connect(deadline)?;
    let level = IsolationLevel::ReadCommitted;
    let facts = client.metadata(&[&topic], deadline)?.topic(&topic).cloned();
    let numbers = facts.iter().flat_map(|facts| facts.partitions.keys());
    let partitions: Vec<(&str, i32)> = numbers.map(|number| (topic.as_str(), *number)).collect();
    let starts = client.list_offsets(level, OffsetSpec::Earliest, &partitions, deadline)?;
    let ends = client.list_offsets(level, OffsetSpec::Latest, &partitions, deadline)?;
    let mut left: BTreeMap<i32, i64> = ends.iter().map(|end| (end.partition, end.offset)).collect();
    left.retain(|partition, end| {
        starts
            .iter()
            .any(|start| start.partition == *partition && start.offset < *end)
    });
    let assignments: Vec<Assignment> = starts
        .iter()
        .filter(|start| left.contains_key(&start.partition))
        .map(|start| Assignment::new(topic.as_str(), start.partition, start.offset))
        .collect();
    let mut fetcher = Fetcher::new(client, level, limits);
    fetcher.assign(&assignments);
    let mut memory = Memory::default();
    while !left.is_empty() && Instant::now() < deadline {
        for fetched in fetcher.poll(deadline)? {
            let number = fetched.partition.partition;
            let answer = match fetched.outcome {
                Outcome::Records(answer) => answer,
                Outcome::Stopped(stop) => {
                    return Err(format!("{}: {stop}", fetched.partition).into());
                }
            };
            let mut filter = AbortedFilter::new(answer.aborted.unwrap_or_default());
            let (mut next, mut epoch) = (fetched.offset, -1);
            for batch in Batches::new(&answer.records) {
                let batch = batch?;
                batch.check_crc()?;
                let judged = filter.judge(&batch)?;
                if judged.verdict == Verdict::Data {
                    for record in Records::of(&batch, &mut memory, batch::Limits::default())? {
                        let record = record?;
                        // the first batch may begin before the offset that was asked for
                        if record.offset >= fetched.offset {
                            println!(
                                "{number} {} {} {}",
                                record.offset,
                                text(record.key),
                                text(record.value)
                            );
                        }
                    }
                }
                (next, epoch) = (judged.next_offset, batch.leader_epoch());
            }
            fetcher.advance(&fetched.partition, next, epoch);
            if left.get(&number).is_some_and(|end| next >= *end) {
                left.remove(&number);
            }
        }
    }
    Ok(())
}

fn text(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(
        || "null".to_owned(),
        |bytes| String::from_utf8_lossy(bytes).into_owned(),
    )
}
