//! Writes one transaction: `cargo run --example produce -- TRANSACTIONAL_ID TOPIC VALUE... < PROPERTIES`
//!
//! Properties are lines `name=value`, such as `bootstrap.servers=localhost:9092`. Writes the values in one batch to
//! partition 0 of the topic, commits, and prints the offset of the first one. Another
//! run with the same id fences this one.

#![allow(clippy::print_stdout)] // it is what it is for

mod given;

use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use eomirror_batch::{BatchWriter, Codec, Stamp};
use eomirror_kafka::{ProducerSettings, SourceRange, TopicPartition, TransactionalProducer};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [id, topic, values @ ..] = &arguments[..] else {
        return Err("usage: produce TRANSACTIONAL_ID TOPIC VALUE... < PROPERTIES".into());
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut client, _) = given::connect(deadline)?;
    let settings = ProducerSettings::new(id, client.network().properties());
    let mut producer = TransactionalProducer::open(client, settings, deadline)?;

    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let mut writer = BatchWriter::new(Codec::Lz4);
    for value in values {
        let headers = [].iter().copied();
        writer.add(i64::try_from(now)?, None, Some(value.as_bytes()), headers)?;
    }
    let mut batch = Vec::new();
    // the producer writes its id, epoch and sequence into the header
    writer.finish(&Stamp::NONE, &mut batch)?;

    producer.begin(deadline)?;
    let target = TopicPartition::new(topic, 0);
    // returned with the acknowledgement: which of the caller's records the batch holds
    let source = SourceRange {
        partition: 0,
        first: 0,
        last: i64::try_from(values.len())? - 1,
    };
    producer.send(&target, &batch.into(), source)?;
    for acknowledged in producer.commit(deadline)? {
        let offset = acknowledged.base_offset.unwrap_or(-1);
        println!("{} {offset}", acknowledged.target);
    }
    Ok(())
}
