//! Records of the lane itself: positions, the offset map, and what else describes the data beside it.

use std::collections::BTreeMap;

use bytes::Bytes;
use eomirror_core::HeaderRef;
use eomirror_core::batch::{BatchWriter, Codec};
use eomirror_core::transaction::SourceRange;

use eomirror_kafka::{Error, TopicPartition, TransactionalProducer};

/// The number in a [`SourceRange`] that stands for no source partition.
pub(super) const STATE_RECORDS: u32 = u32::MAX;

/// No batch of ours is larger, unless one record is; topics take 1 MiB unless somebody made that less.
const MOST_BYTES: usize = 512 * 1024;

/// A record that goes into the data's transaction; without a value it takes the key's record away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateRecord {
    /// Where it goes.
    pub target: TopicPartition,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Option<Vec<u8>>,
}

/// Hands records of ours to the producer, in their order for each partition, with a timestamp in ms.
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
                // a first record always fits
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
fn unsendable(target: &TopicPartition, error: eomirror_core::batch::BatchError) -> Error {
    Error::Unsendable {
        target: target.clone(),
        reason: error.to_string(),
    }
}
