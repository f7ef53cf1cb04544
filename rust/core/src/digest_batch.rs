//! Content digest of a batch's records.

use std::ops::Range;

use eomirror_batch::{Batch, BatchError, Limits, Memory, Records};

use crate::digest::Digest;
use crate::types::{HeaderRef, RecordRef, Written};

/// Adds the batch's records with offsets in `offsets` to `digest`, and returns their number.
///
/// On an error the digest holds the records before the malformed one and must be discarded. `scratch` is working memory
/// that callers keep, like `memory`. Records are not allocated; headers take one list per batch.
pub fn digest_batch(
    batch: &Batch<'_>,
    offsets: Range<i64>,
    digest: &mut Digest,
    memory: &mut Memory,
    scratch: &mut Vec<u8>,
    limits: Limits,
) -> Result<u64, BatchError> {
    let mut headers: Vec<HeaderRef<'_>> = Vec::new();
    let mut count = 0;
    for record in Records::of(batch, memory, limits)? {
        let record = record?;
        if !offsets.contains(&record.offset) {
            continue;
        }
        headers.clear();
        headers.extend(record.headers.clone());
        // the digest does not cover a record's position
        digest.add(
            &RecordRef::of(
                &record,
                ("", 0),
                batch.leader_epoch(),
                &headers,
                Written::Unknown,
            ),
            scratch,
        );
        count += 1;
    }
    Ok(count)
}
