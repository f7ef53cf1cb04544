//! Splits a batch that is too large into two.

use super::outgoing::{Content, Outgoing, SourceRun, divide};
use eomirror_batch::{Batch, BatchError, BatchWriter, Limits, Memory, Record, Records};

/// Limits for batches that the relay compressed: they were within limits before.
pub(super) const OURS: Limits = Limits {
    bytes: usize::MAX,
    ratio: usize::MAX,
    unchecked: usize::MAX,
};

/// Splits the batch in `bytes`, for `partition` of the target and with the source offsets in `runs`, into two of similar
/// size before compression; `None` for a single record.
pub(super) fn in_two(
    bytes: &[u8],
    (partition, runs): (i32, &[SourceRun]),
    memory: &mut Memory,
    limits: Limits,
) -> Result<Option<[Outgoing; 2]>, BatchError> {
    let batch = Batch::parse(bytes)?;
    let last = i64::from(batch.record_count()) - 1;
    if last < 1 {
        return Ok(None);
    }
    let records = Records::of(&batch, memory, limits)?;
    let mut whole = 0;
    for record in records.clone() {
        whole += weight(&record?);
    }
    let mut writer = BatchWriter::new(batch.codec());
    let mut records = records;
    let (mut count, mut weighed) = (0, 0);
    // at least one record on either side
    while count < last && (count == 0 || weighed < whole / 2) {
        let Some(record) = records.next().transpose()? else {
            break;
        };
        weighed += weight(&record);
        writer.copy_within(usize::MAX, &record, None)?;
        count += 1;
    }
    let (before, after) = divide(runs, count);
    let first = finish(&mut writer, partition, before)?;
    for record in records {
        writer.copy_within(usize::MAX, &record?, None)?;
    }
    let second = finish(&mut writer, partition, after)?;
    Ok(Some([first, second]))
}

fn finish(
    writer: &mut BatchWriter,
    partition: i32,
    runs: Vec<SourceRun>,
) -> Result<Outgoing, BatchError> {
    let max_timestamp = writer.max_timestamp();
    let bytes = writer.take()?;
    let content = Content::Written(bytes);
    Ok(Outgoing::new(partition, content, runs, max_timestamp))
}

/// Returns the approximate size of a record before compression.
pub(super) fn weight(record: &Record<'_>) -> usize {
    let length = |field: Option<&[u8]>| field.map_or(1, <[u8]>::len);
    let headers: usize = record
        .headers
        .clone()
        .map(|header| 2 + header.key.len() + length(header.value))
        .sum();
    8 + length(record.key) + length(record.value) + headers
}
