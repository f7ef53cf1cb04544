//! Measures the cost of relaying batches: `cargo run --release --example relay -- SOURCE TARGET TOPIC TARGET_TOPIC
//! [COMMIT_MS]`
//!
//! Fetches all partitions of TOPIC from the first offset to the last stable one, and sends whole batches to the same
//! partitions of `TARGET_TOPIC` in transactions of `COMMIT_MS` (200). Writes records, bytes, commits, seconds, CPU
//! seconds of the process and CPU microseconds per record. SOURCE and TARGET are bootstrap servers. Aborted and control
//! batches are left out; a batch that cannot be sent as it is ends the run.

#![allow(clippy::print_stdout)] // it is what it is for
#![allow(clippy::cast_precision_loss)] // figures for people

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_core::batch::{AbortedFilter, Batches, Verdict};
use eomirror_kafka::{
    Assignment, Client, Clock as _, FetchedPartition, Fetcher, IsolationLevel, Limits, OffsetSpec,
    Outcome, ProducerSettings, Properties, SourceRange, SystemClock, TopicPartition,
    TransactionalProducer, wait,
};

type Failure = Box<dyn Error>;

fn main() {
    if let Err(error) = relay() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

/// Totals of a run.
#[derive(Default)]
struct Tally {
    records: i64,
    bytes: usize,
    batches: u32,
    commits: u32,
    /// Durations of the commits.
    pauses: Vec<Duration>,
}

fn relay() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (source, target, topic, target_topic, millis) = match &arguments[..] {
        [source, target, topic, name] => (source, target, topic, name, 200),
        [source, target, topic, name, millis] => (source, target, topic, name, millis.parse()?),
        _ => return Err("usage: relay SOURCE TARGET TOPIC TARGET_TOPIC [COMMIT_MS]".into()),
    };
    let clock = SystemClock;
    let deadline = clock.now() + Duration::from_secs(300);
    let (mut fetcher, mut open) = reader(source, topic, deadline)?;
    let properties = Properties::parse([("bootstrap.servers", target)])?;
    let settings = ProducerSettings::new(format!("relay-{target_topic}"), &properties);
    let client = Client::connect(properties, Arc::new(clock), deadline)?;
    let mut producer = TransactionalProducer::open(client, settings, deadline)?;

    let mut tally = Tally::default();
    let (begun, cpu) = (clock.now(), cpu_seconds()?);
    producer.begin(deadline)?;
    let mut commit_at = begun + Duration::from_millis(millis);
    loop {
        fetcher.step()?;
        if producer.room() > 0 && fetcher.has_fetched() {
            for fetched in fetcher.poll(clock.now())? {
                let (next, epoch) = pass(&fetched, target_topic, &mut producer, &mut tally)?;
                if next >= open.get(&fetched.partition).copied().unwrap_or(0) {
                    open.remove(&fetched.partition);
                }
                fetcher.advance(&fetched.partition, next, epoch);
            }
            fetcher.step()?;
        }
        producer.pump(clock.now())?;
        if open.is_empty() || clock.now() >= commit_at {
            let from = clock.now();
            producer.commit(deadline)?;
            tally.commits += 1;
            tally.pauses.push(clock.now() - from);
            if open.is_empty() {
                break;
            }
            producer.begin(deadline)?;
            commit_at = clock.now() + Duration::from_millis(millis);
        }
        let wakes = [fetcher.wakes_at(), producer.wakes_at()];
        let until = wakes.into_iter().flatten().fold(commit_at, Instant::min);
        if producer.room() == 0 || !fetcher.has_fetched() {
            wait(&mut [fetcher.network(), producer.network()], &clock, until);
        }
    }
    let seconds = (clock.now() - begun).as_secs_f64();
    let cpu = cpu_seconds()? - cpu;
    tally.pauses.sort_unstable();
    let median = tally.pauses[tally.pauses.len() / 2];
    println!(
        "{} records {} bytes {} batches {} commits (median {} ms) {seconds:.3} s {:.0} records/s {cpu:.3} CPU s {:.4} us/record",
        tally.records,
        tally.bytes,
        tally.batches,
        tally.commits,
        median.as_millis(),
        tally.records as f64 / seconds,
        cpu * 1e6 / tally.records as f64,
    );
    Ok(())
}

/// Returns a fetcher on all partitions, and their end offsets.
fn reader(
    servers: &str,
    topic: &str,
    deadline: Instant,
) -> Result<(Fetcher, BTreeMap<TopicPartition, i64>), Failure> {
    let level = IsolationLevel::ReadCommitted;
    let properties = Properties::parse([("bootstrap.servers", servers)])?;
    let limits = Limits::from_properties(&properties);
    let mut client = Client::connect(properties, Arc::new(SystemClock), deadline)?;
    let facts = client.metadata(&[topic], deadline)?.topic(topic).cloned();
    let facts = facts.ok_or("the topic is not known")?;
    let partitions: Vec<(&str, i32)> = facts
        .partitions
        .keys()
        .map(|index| (topic, *index))
        .collect();
    let ends = client.list_offsets(level, OffsetSpec::Latest, &partitions, deadline)?;
    let starts = client.list_offsets(level, OffsetSpec::Earliest, &partitions, deadline)?;
    let mut open = BTreeMap::new();
    for (start, end) in starts.iter().zip(&ends) {
        if start.offset < end.offset {
            open.insert(TopicPartition::new(topic, end.partition), end.offset);
        }
    }
    let assignments: Vec<Assignment> = starts
        .iter()
        .map(|start| Assignment::new(topic, start.partition, start.offset))
        .collect();
    let mut fetcher = Fetcher::new(client, level, limits);
    fetcher.assign(&assignments);
    Ok((fetcher, open))
}

/// Sends a fetched answer; returns the next position and its leader epoch.
fn pass(
    fetched: &FetchedPartition,
    target_topic: &str,
    producer: &mut TransactionalProducer,
    tally: &mut Tally,
) -> Result<(i64, i32), Failure> {
    let Outcome::Records(records) = &fetched.outcome else {
        return Err(format!("{}: {:?}", fetched.partition, fetched.outcome).into());
    };
    let mut filter = AbortedFilter::new(records.aborted.clone().unwrap_or_default());
    let partition = fetched.partition.partition;
    let target = TopicPartition::new(target_topic, partition);
    let all: &Bytes = &records.records;
    let (mut next, mut epoch, mut at) = (fetched.offset, -1, 0);
    for batch in Batches::new(all) {
        let batch = batch?;
        batch.check_crc()?;
        let bytes = all.slice(at..at + batch.bytes().len());
        at += bytes.len();
        let judged = filter.judge(&batch)?;
        if judged.verdict == Verdict::Data && batch.record_count() > 0 {
            let source = SourceRange {
                partition: u32::try_from(partition)?,
                first: batch.base_offset(),
                last: batch.last_offset(),
            };
            producer.send(&target, &bytes, source)?;
            tally.records += i64::from(batch.record_count());
            tally.bytes += bytes.len();
            tally.batches += 1;
        }
        next = judged.next_offset;
        epoch = batch.leader_epoch();
    }
    Ok((next, epoch))
}

/// Returns the CPU time of this process's only thread, from the scheduler's account.
fn cpu_seconds() -> Result<f64, Failure> {
    let account = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: f64 = account
        .split_whitespace()
        .next()
        .ok_or("no account")?
        .parse()?;
    Ok(nanoseconds / 1e9)
}
