//! Writes transactions as commanded, line by line: `cargo run --example transact < COMMANDS`
//!
//! Properties come first, lines `name=value` up to an empty line. Then commands, each answered by one line on standard
//! output, `ok ...` or `error KIND message`:
//!
//! ```text
//! open TRANSACTIONAL_ID TRANSACTION_TIMEOUT_MS
//! begin
//! send TOPIC PARTITION RECORDS PREFIX    one batch of records PREFIX-0, PREFIX-1, ...; queues only
//! damage TOPIC PARTITION RECORDS PREFIX  the same, with a flipped bit in the last value
//! pump MS                                until every batch is acknowledged
//! commit MS
//! abort MS
//! identity                               producer id and epoch
//! ```
//!
//! `ok` of pump and commit is followed by `TOPIC-PARTITION:FIRST..LAST@OFFSET` for each acknowledged batch;
//! FIRST and LAST count the records that were sent to the partition.

#![allow(clippy::print_stdout)] // it is what it is for

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt::Write as _;
use std::io::{BufRead as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eomirror_batch::{BatchWriter, Codec, Stamp};
use eomirror_kafka::{
    Acknowledgement, Client, Clock as _, Error, ProducerSettings, Properties, SourceRange,
    SystemClock, TopicPartition, TransactionalProducer,
};

type Failure = Box<dyn StdError>;

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lock().lines();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for line in lines.by_ref() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once('=').ok_or("a property is name=value")?;
        pairs.push((name.to_owned(), value.to_owned()));
    }
    let properties = Properties::parse(pairs)?;
    let mut driver = Driver {
        properties,
        producer: None,
        sent: BTreeMap::new(),
    };
    let mut out = std::io::stdout().lock();
    for line in lines {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match driver.obey(&words) {
            Ok(told) => writeln!(out, "ok {told}")?,
            Err(error) => match error.downcast_ref::<Error>() {
                Some(error) => writeln!(out, "error {:?} {error}", error.kind())?,
                None => return Err(error),
            },
        }
        out.flush()?;
    }
    Ok(())
}

struct Driver {
    properties: Properties,
    producer: Option<TransactionalProducer>,
    sent: BTreeMap<TopicPartition, i64>,
}

impl Driver {
    fn obey(&mut self, words: &[&str]) -> Result<String, Failure> {
        if let ["open", id, timeout] = words {
            let deadline = within("30000")?;
            let client = Client::connect(self.properties.clone(), Arc::new(SystemClock), deadline)?;
            let settings = ProducerSettings {
                transaction_timeout: Duration::from_millis(timeout.parse()?),
                ..ProducerSettings::new(*id, &self.properties)
            };
            let producer = TransactionalProducer::open(client, settings, deadline)?;
            self.producer = Some(producer);
            return Ok(String::new());
        }
        let producer = self.producer.as_mut().ok_or("open it first")?;
        match words {
            ["begin"] => {
                producer.begin(within("30000")?)?;
                self.sent.clear();
                Ok(String::new())
            }
            [
                verb @ ("send" | "damage"),
                topic,
                partition,
                records,
                prefix,
            ] => {
                let target = TopicPartition::new(*topic, partition.parse()?);
                let count: i64 = records.parse()?;
                let first = *self.sent.get(&target).unwrap_or(&0);
                let mut batch = written(count, prefix)?;
                if *verb == "damage" {
                    // the byte behind the value is the number of headers
                    let place = batch.len() - 2;
                    batch[place] ^= 1;
                }
                let source = SourceRange {
                    partition: 0,
                    first,
                    last: first + count - 1,
                };
                producer.send(&target, &batch.into(), source)?;
                self.sent.insert(target, first + count);
                Ok(String::new())
            }
            ["pump", millis] => {
                let deadline = within(millis)?;
                let mut acknowledged = Vec::new();
                while !producer.is_settled() && SystemClock.now() < deadline {
                    acknowledged.extend(producer.pump(deadline)?);
                }
                if producer.is_settled() {
                    Ok(shown(&acknowledged))
                } else {
                    Ok(format!("unsettled{}", shown(&acknowledged)))
                }
            }
            ["commit", millis] => Ok(shown(&producer.commit(within(millis)?)?)),
            ["abort", millis] => {
                producer.abort(within(millis)?)?;
                Ok(String::new())
            }
            ["identity"] => {
                let identity = producer.identity().ok_or("no transaction is open")?;
                Ok(format!("{} {}", identity.producer_id, identity.epoch))
            }
            _ => Err(format!("what is {words:?}?").into()),
        }
    }
}

fn within(millis: &str) -> Result<Instant, Failure> {
    Ok(SystemClock.now() + Duration::from_millis(millis.parse()?))
}

fn written(count: i64, prefix: &str) -> Result<Vec<u8>, Failure> {
    let mut writer = BatchWriter::new(Codec::None);
    for number in 0..count {
        let value = format!("{prefix}-{number}");
        writer.add(
            1_700_000_000_000,
            None,
            Some(value.as_bytes()),
            [].iter().copied(),
        )?;
    }
    let mut batch = Vec::new();
    writer.finish(&Stamp::NONE, &mut batch)?;
    Ok(batch)
}

fn shown(acknowledged: &[Acknowledgement]) -> String {
    acknowledged.iter().fold(String::new(), |mut text, one| {
        let SourceRange { first, last, .. } = one.source;
        let offset = one.base_offset.unwrap_or(-1);
        let _ = write!(text, " {}:{first}..{last}@{offset}", one.target);
        text
    })
}
