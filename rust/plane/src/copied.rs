//! Finds records that a link has copied into a partition.

use std::ops::Range;
use std::time::Instant;

use eomirror_batch::{Limits, Memory, Records};
use eomirror_core::loop_guard::{Origin, provenance};
use eomirror_core::types::{HeaderRef, RecordRef, Written};
use eomirror_kafka::{Error, HangingTransactions};

/// Returns the ranges of offsets whose committed records a link has copied from the cluster `from`, and the offset up
/// to which the log was read. It judges as the loop guard of a lane does.
pub fn copied(
    client: &mut HangingTransactions,
    (topic, partition): (&str, i32),
    range: Range<i64>,
    from: &str,
    deadline: Instant,
) -> Result<(Vec<Range<i64>>, i64), Error> {
    let here = client.cluster_id(deadline)?;
    let mut found: Vec<Range<i64>> = Vec::new();
    let mut memory = Memory::default();
    let end = client.committed((topic, partition), range.clone(), deadline, |batch| {
        let mut headers: Vec<HeaderRef<'_>> = Vec::new();
        let records = Records::of(batch, &mut memory, Limits::default());
        for record in records.map_err(|_| unreadable())? {
            let record = record.map_err(|_| unreadable())?;
            let offset = record.offset;
            if !range.contains(&offset) {
                continue;
            }
            headers.clear();
            headers.extend(record.headers.clone());
            let written = Written::By(batch.producer_id());
            let place = (topic, partition);
            let record = RecordRef::of(&record, place, batch.leader_epoch(), &headers, written);
            let ours = match provenance(&record, &here) {
                Ok(Origin::Copied(provenance)) => {
                    provenance.hops.last().is_some_and(|hop| hop == from)
                }
                // a lane stops at an unknown version: here it is a record like any other
                Ok(Origin::Emitted | Origin::Local) | Err(_) => false,
            };
            match found.last_mut() {
                Some(last) if ours && last.end == offset => last.end = offset + 1,
                _ if ours => found.push(offset..offset + 1),
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok((found, end))
}

fn unreadable() -> Error {
    Error::Malformed {
        peer: "the target".to_owned(),
        what: "record batch",
        reason: "it cannot be read",
    }
}
