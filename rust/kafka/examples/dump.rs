//! Reads a topic raw, and writes one line per batch: `cargo run --example dump -- TOPIC < PROPERTIES`
//!
//! Properties are lines `name=value` on standard input, because passwords do not belong on a command line. Each line of
//! output is `partition base_offset last_offset bytes producer_id producer_epoch flags sha256`, where flags are `t` for
//! transactional and `c` for control batches, and the sum is over the whole batch as it arrived. Reads from the first
//! offset to the high watermark of every partition, open and aborted transactions included. Ends with a line `#
//! partition high_watermark log_start_offset topic_id` per partition. `! partition reason` reports a stopped one.

#![allow(clippy::print_stdout)] // it is what it is for

mod given;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use eomirror_kafka::{
    Assignment, Client, Clock as _, Fetcher, IsolationLevel, Limits, OffsetSpec, Outcome,
    SystemClock,
};
use ring::digest::{SHA256, digest};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [topic] = &arguments[..] else {
        return Err("usage: dump TOPIC < PROPERTIES".into());
    };
    let deadline = SystemClock.now() + Duration::from_secs(30);
    let (client, limits) = given::connect(deadline)?;
    dump(client, limits, topic, deadline)
        .map_err(|error| format!("{error}\n  fix: {}", error.fix()).into())
}

fn dump(
    mut client: Client,
    limits: Limits,
    topic: &str,
    deadline: Instant,
) -> Result<(), eomirror_kafka::Error> {
    let clock = SystemClock;
    let facts = client.metadata(&[topic], deadline)?.topic(topic).cloned();
    let partitions: Vec<(&str, i32)> = facts
        .iter()
        .flat_map(|facts| facts.partitions.keys())
        .map(|index| (topic, *index))
        .collect();
    let level = IsolationLevel::ReadUncommitted;
    let ends: BTreeMap<i32, i64> = client
        .list_offsets(level, OffsetSpec::Latest, &partitions, deadline)?
        .into_iter()
        .map(|listed| (listed.partition, listed.offset))
        .collect();
    let starts = client.list_offsets(level, OffsetSpec::Earliest, &partitions, deadline)?;
    let mut fetcher = Fetcher::new(client, level, limits);
    let mut open: BTreeMap<i32, i64> = BTreeMap::new();
    let mut assignments = Vec::new();
    for start in &starts {
        if start.offset < ends[&start.partition] {
            open.insert(start.partition, ends[&start.partition]);
            assignments.push(Assignment::new(topic, start.partition, start.offset));
        }
    }
    fetcher.assign(&assignments);
    let mut out = std::io::stdout().lock();
    while !open.is_empty() && clock.now() < deadline {
        for fetched in fetcher.poll(deadline)? {
            let index = fetched.partition.partition;
            let records = match &fetched.outcome {
                Outcome::Records(records) => &records.records,
                Outcome::Stopped(stop) => {
                    let _ = writeln!(out, "! {} {stop}", fetched.partition);
                    open.remove(&index);
                    continue;
                }
            };
            let (mut next, mut epoch) = (fetched.offset, -1);
            for batch in Batches(records) {
                let _ = writeln!(out, "{index} {batch}");
                next = batch.last_offset() + 1;
                epoch = batch.int32(12);
            }
            if next >= ends[&index] {
                open.remove(&index);
            }
            fetcher.advance(&fetched.partition, next, epoch);
        }
    }
    for start in starts {
        let id = facts.as_ref().map(|facts| facts.id).unwrap_or_default();
        let _ = writeln!(
            out,
            "# {} {} {} {id}",
            start.partition, ends[&start.partition], start.offset
        );
    }
    Ok(())
}

/// Whole batches of a record set, by the fixed fields of their headers (record batch version 2).
struct Batches<'a>(&'a [u8]);

struct Batch<'a>(&'a [u8]);

impl<'a> Iterator for Batches<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let length = self
            .0
            .get(8..12)?
            .iter()
            .fold(0, |length, byte| (length << 8) | usize::from(*byte));
        let (batch, rest) = self.0.split_at_checked(12 + length)?;
        self.0 = rest;
        (batch.len() >= 61).then_some(Batch(batch))
    }
}

impl Batch<'_> {
    fn field(&self, at: usize, size: usize) -> i64 {
        let negative = self.0[at] & 0x80 != 0;
        self.0[at..at + size]
            .iter()
            .fold(if negative { -1 } else { 0 }, |value, byte| {
                (value << 8) | i64::from(*byte)
            })
    }

    fn int32(&self, at: usize) -> i32 {
        i32::try_from(self.field(at, 4)).unwrap_or(-1)
    }

    fn last_offset(&self) -> i64 {
        self.field(0, 8) + self.field(23, 4)
    }
}

impl std::fmt::Display for Batch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let attributes = self.field(21, 2);
        let flags = match attributes & 0x30 {
            0x30 => "tc",
            0x20 => "c",
            0x10 => "t",
            _ => "-",
        };
        write!(
            f,
            "{} {} {} {} {} {flags} {}",
            self.field(0, 8),
            self.last_offset(),
            self.0.len(),
            self.field(43, 8),
            self.field(51, 2),
            hex(digest(&SHA256, self.0).as_ref()),
        )
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
