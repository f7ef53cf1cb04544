//! Relays a log segment into another one, to be checked with other readers.
//!
//! ```text
//! cargo run --example relay_segment -- SOURCE.log TARGET.log pass|merge|split|header
//! ```
//!
//! The target has offsets from 0 without gaps, as a broker would assign them. A `.txnindex` beside the segment is used
//! if present. Prints the source and target offset of every record.

#![allow(clippy::print_stdout)] // printing is its purpose

use std::collections::HashSet;
use std::error::Error;
use std::fs;
use std::path::Path;

use eomirror_batch::{AbortedTransaction, Limits, Stamp};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Fetched, Relay, Target, TopicPolicy};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target, mode] = &arguments[..] else {
        return Err("usage: relay_segment SOURCE.log TARGET.log pass|merge|split|header".into());
    };
    let small = if mode == "merge" { usize::MAX } else { 0 };
    let limits = Target {
        small_bytes: small,
        small_compressed_bytes: small,
        max_batch_bytes: if mode == "split" { 1200 } else { 1_048_588 },
        ..Target::default()
    };
    let guard = LoopGuard::new("source", "target", None, false)?;
    let policy = TopicPolicy::new("topic", "topic", guard, mode == "header", HashSet::new())?;
    let segment = fs::read(source)?;
    let index = fs::read(Path::new(source).with_extension("txnindex")).unwrap_or_default();
    let fetched = Fetched {
        records: &segment,
        aborted: &aborted(&index),
        offsets: 0..i64::MAX,
    };
    let relayed = Relay::new(Limits::default()).relay(&policy, 0, &limits, &fetched);
    if let Some(error) = relayed.stopped {
        return Err(error.into());
    }
    let (mut out, mut offset, mut stamp) = (
        Vec::new(),
        0_i64,
        Stamp {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            transactional: false,
        },
    );
    for mut batch in relayed.batches {
        batch.stamp(&segment, &stamp)?;
        stamp = stamp.after(batch.count());
        let start = out.len();
        for part in batch.parts(&segment)? {
            out.extend_from_slice(part);
        }
        // fields that a broker fills in; the checksum covers neither
        out[start..start + 8].copy_from_slice(&offset.to_be_bytes());
        out[start + 12..start + 16].copy_from_slice(&0_i32.to_be_bytes());
        for run in batch.runs() {
            for source in run.first..run.first + run.count {
                println!("{source} {offset}");
                offset += 1;
            }
        }
    }
    fs::write(target, out)?;
    Ok(())
}

/// Returns the entries of a broker's index: version i16, producer id, first, last and last stable offset.
fn aborted(index: &[u8]) -> Vec<AbortedTransaction> {
    let number = |entry: &[u8], at: usize| {
        let bytes = entry
            .get(at..at + 8)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(-1, i64::from_be_bytes)
    };
    index
        .chunks_exact(34)
        .map(|entry| AbortedTransaction {
            producer_id: number(entry, 2),
            first_offset: number(entry, 10),
        })
        .collect()
}
