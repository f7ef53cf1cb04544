//! Measures splitting, checking, reading and digesting 100-byte records, and writing and rewriting them.
//!
//! ```text
//! cargo run --release --example batch_rate
//! ```
//!
//! Prints the best of nine runs for each step, because disturbances only make a run longer.

#![allow(clippy::print_stdout)] // printing is its purpose

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use eomirror_core::batch::{
    BatchWriter, Batches, Codec, Limits, Memory, Records, Stamp, digest_batch, rewritten_header,
};
use eomirror_core::digest::Digest;

const BATCHES: usize = 20;
const PER_BATCH: usize = 2000;
const RUNS: usize = 9;

fn main() {
    println!(
        "{:<8} {:>14} {:>10} {:>10} {:>10} {:>14} {:>16}",
        "codec",
        "bytes/record",
        "crc ns",
        "+read ns",
        "+digest ns",
        "M records/s",
        "rewrite ns/batch"
    );
    for codec in Codec::ALL {
        let answer = answer(codec);
        let records = BATCHES * PER_BATCH;
        let mut memory = Memory::default();
        let mut scratch = Vec::new();
        let crc = best(|| {
            for batch in Batches::new(&answer).flatten() {
                black_box(batch.check_crc().is_ok());
            }
        });
        let read = best(|| {
            for batch in Batches::new(&answer).flatten() {
                black_box(batch.check_crc().is_ok());
                let records = Records::of(&batch, &mut memory, Limits::default());
                black_box(records.into_iter().flatten().flatten().count());
            }
        });
        let digest = best(|| {
            let mut digest = Digest::default();
            let mut count = 0;
            for batch in Batches::new(&answer).flatten() {
                black_box(batch.check_crc().is_ok());
                count += digest_batch(
                    &batch,
                    0..i64::MAX,
                    &mut digest,
                    &mut memory,
                    &mut scratch,
                    Limits::default(),
                )
                .unwrap_or(0);
            }
            assert_eq!(count, records as u64);
            black_box(digest);
        });
        let rewrite = best(|| {
            for batch in Batches::new(&answer).flatten() {
                black_box(rewritten_header(&batch, &Stamp::NONE).is_ok());
            }
        });
        #[allow(clippy::cast_precision_loss)] // small numbers, for people
        let per_record = |nanoseconds: u128| nanoseconds as f64 / records as f64;
        #[allow(clippy::cast_precision_loss)]
        let (size, batch) = (
            answer.len() as f64 / records as f64,
            rewrite as f64 / BATCHES as f64,
        );
        println!(
            "{:<8} {size:>14.1} {:>10.1} {:>10.1} {:>10.1} {:>14.2} {batch:>16.0}",
            codec.name(),
            per_record(crc),
            per_record(read),
            per_record(digest),
            1000.0 / per_record(digest),
        );
    }
}

/// Returns batches of records with a 16-byte key and a non-repetitive value of 84 bytes.
fn answer(codec: Codec) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut out = Vec::new();
    let mut writer = BatchWriter::new(codec);
    for number in 0..BATCHES * PER_BATCH {
        let key = format!("key-{number:012}");
        let mut value = String::new();
        while value.len() < 84 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let _ = write!(value, "{state:016x}");
        }
        let timestamp = 1_790_000_000_000 + i64::try_from(number / 100).unwrap_or(0);
        let added = writer.add(
            timestamp,
            Some(key.as_bytes()),
            Some(&value.as_bytes()[..84]),
            [].into_iter(),
        );
        assert!(added.is_ok());
        if (number + 1) % PER_BATCH == 0 {
            assert!(writer.finish(&Stamp::NONE, &mut out).is_ok());
        }
    }
    out
}

fn best(mut run: impl FnMut()) -> u128 {
    (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos()
        })
        .min()
        .unwrap_or(0)
}
