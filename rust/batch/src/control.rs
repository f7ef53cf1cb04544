//! Transaction markers: the single record of a control batch (KIP-98).
//!
//! ```text
//! key    version i16, type i16 (0 abort, 1 commit)
//! value  version i16, coordinator epoch i32
//! ```
//!
//! Later versions of either may append fields.

use super::codec::Codec;
use super::compression::{Limits, Memory};
use super::cursor::Cursor;
use super::error::BatchError;
use super::records::{Record, Records};
use super::view::Batch;

/// Type of a transaction marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// Aborts the producer's transaction on this partition.
    Abort {
        /// Epoch of the coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// Commits the producer's transaction on this partition.
    Commit {
        /// Epoch of the coordinator that wrote the marker.
        coordinator_epoch: i32,
    },
    /// Another type, from the cluster's metadata log or a later Kafka version. It ends no transaction.
    Other {
        /// Number of the type.
        number: i16,
    },
}

/// A marker and the transaction that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// Offset of the marker.
    pub offset: i64,
    /// Time of the marker, in ms since the epoch.
    pub timestamp: i64,
    /// Producer id of the transaction.
    pub producer_id: i64,
    /// Producer epoch; under transaction protocol V2 already that of the next transaction.
    pub producer_epoch: i16,
    /// Commit or abort.
    pub marker: Marker,
}

impl Control {
    /// Returns the marker of a control batch; `None` if compaction has removed the marker and kept the batch.
    pub fn of(batch: &Batch<'_>) -> Result<Option<Self>, BatchError> {
        let wrong = |reason| {
            Err(BatchError::BadControl {
                offset: batch.base_offset(),
                reason,
            })
        };
        if !batch.is_control() {
            return wrong("its control bit is not set");
        }
        if batch.codec() != Codec::None {
            return wrong("it is compressed, but brokers never compress control batches");
        }
        let mut memory = Memory::default();
        let mut records = Records::of(batch, &mut memory, Limits::default())?;
        let Some(record) = records.next().transpose()? else {
            return Ok(None);
        };
        let Some(number) = record.key.and_then(numbers) else {
            return wrong("its key is not a version and a type");
        };
        // other types have values of their own, and any number of records
        if number > 1 {
            return Ok(Some(control(batch, &record, Marker::Other { number })));
        }
        if records.next().transpose()?.is_some() {
            return wrong("it holds more than one marker");
        }
        let Some(coordinator_epoch) = record.value.and_then(epoch) else {
            return wrong("its value is not a version and a coordinator epoch");
        };
        let marker = match number {
            0 => Marker::Abort { coordinator_epoch },
            1 => Marker::Commit { coordinator_epoch },
            _ => return wrong("its type is negative"),
        };
        Ok(Some(control(batch, &record, marker)))
    }
}

fn control(batch: &Batch<'_>, record: &Record<'_>, marker: Marker) -> Control {
    Control {
        offset: record.offset,
        timestamp: record.timestamp,
        producer_id: batch.producer_id(),
        producer_epoch: batch.producer_epoch(),
        marker,
    }
}

/// Returns the type, if the version is not negative.
fn numbers(key: &[u8]) -> Option<i16> {
    let mut cursor = Cursor::new(key);
    let version = i16::from_be_bytes(cursor.array()?);
    let number = i16::from_be_bytes(cursor.array()?);
    (version >= 0).then_some(number)
}

fn epoch(value: &[u8]) -> Option<i32> {
    let mut cursor = Cursor::new(value);
    let version = i16::from_be_bytes(cursor.array()?);
    let epoch = i32::from_be_bytes(cursor.array()?);
    (version >= 0).then_some(epoch)
}
