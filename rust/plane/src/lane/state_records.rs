//! State records: positions, the offset map, and other records that describe the data beside them.

use std::collections::BTreeMap;

use bytes::Bytes;
use eomirror_batch::{BatchWriter, Codec};
use eomirror_core::HeaderRef;
use eomirror_kafka::SourceRange;

use eomirror_kafka::{Error, TopicPartition, TransactionalProducer};

/// The number in a [`SourceRange`] for no source partition.
pub(super) const STATE_RECORDS: u32 = u32::MAX;

/// Largest batch, except for a single larger record. Topics take 1 MiB by default.
const MOST_BYTES: usize = 512 * 1024;

/// A record for the data's transaction; without a value it is a tombstone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRecord {
    /// The target partition.
    pub target: TopicPartition,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// Hands state records to the producer, in order for each partition, with a timestamp in ms.
pub(super) fn send(
    producer: &mut TransactionalProducer,
    records: &[StateRecord],
    timestamp: i64,
) -> Result<(), Error> {
    let mut by_target: BTreeMap<&TopicPartition, Vec<&StateRecord>> = BTreeMap::new();
    for record in records {
        by_target.entry(&record.target).or_default().push(record);
    }
    for (target, records) in by_target {
        let mut writer = BatchWriter::new(Codec::None);
        for record in records {
            if !add(&mut writer, target, record, timestamp)? {
                flush(&mut writer, producer, target)?;
                // the first record of a batch always fits
                add(&mut writer, target, record, timestamp)?;
            }
        }
        flush(&mut writer, producer, target)?;
    }
    Ok(())
}

fn add(
    writer: &mut BatchWriter,
    target: &TopicPartition,
    record: &StateRecord,
    timestamp: i64,
) -> Result<bool, Error> {
    let headers = std::iter::empty::<HeaderRef<'_>>();
    writer
        .add_within(
            MOST_BYTES,
            timestamp,
            Some(&record.key),
            record.value.as_deref(),
            headers,
        )
        .map_err(|error| unsendable(target, error))
}

fn flush(
    writer: &mut BatchWriter,
    producer: &mut TransactionalProducer,
    target: &TopicPartition,
) -> Result<(), Error> {
    let count = i64::from(writer.count());
    if count == 0 {
        return Ok(());
    }
    let stamp = producer.stamp(target)?;
    let mut batch = Vec::new();
    writer
        .finish(&stamp, &mut batch)
        .map_err(|error| unsendable(target, error))?;
    let range = SourceRange {
        partition: STATE_RECORDS,
        first: 0,
        last: count - 1,
    };
    producer.send(target, &Bytes::from(batch), range)
}

#[allow(clippy::needless_pass_by_value)] // map_err hands it over
fn unsendable(target: &TopicPartition, error: eomirror_batch::BatchError) -> Error {
    Error::Unsendable {
        target: target.clone(),
        reason: error.to_string(),
    }
}
