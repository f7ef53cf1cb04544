//! Measures the relay per record: passed, merged, and re-encoded with a provenance header.
//!
//! ```text
//! cargo run --release --example relay_speed
//! ```
//!
//! Every step checks the source's checksum and stamps the batches. Prints the best of nine runs for each step, because
//! disturbances only make a run longer.

#![allow(clippy::print_stdout)] // printing is its purpose

use std::collections::HashSet;
use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;

use eomirror_core::batch::{BatchWriter, Codec, Limits, Stamp};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Fetched, Relay, Target, TopicPolicy};

const RUNS: usize = 9;
/// Size of one response: librdkafka's default per partition.
const ANSWER: usize = 1024 * 1024;

fn main() {
    println!(
        "{:<8} {:>6} {:>13} {:<22} {:>10} {:>10} {:>12}",
        "codec", "bytes", "records/batch", "step", "ns/record", "GB/s", "batches out"
    );
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for size in [100, 1000] {
            for per_batch in [10, 100_000 / size] {
                for step in [Step::Pass, Step::Guard, Step::Merge, Step::Header] {
                    measure(codec, size, per_batch, step);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Step {
    /// Only batch headers are read.
    Pass,
    /// The loop guard reads and keeps every record.
    Guard,
    /// Every batch counts as small.
    Merge,
    /// Every record gets a provenance header.
    Header,
}

fn measure(codec: Codec, size: usize, per_batch: usize, step: Step) {
    let (answer, records) = answer(codec, size, per_batch);
    let small = if matches!(step, Step::Merge) {
        usize::MAX
    } else {
        0
    };
    let target = Target {
        small_bytes: small,
        small_compressed_bytes: small,
        ..Target::default()
    };
    let (name, enforced, header) = match step {
        Step::Pass => ("pass", false, false),
        Step::Guard => ("guard, then pass", true, false),
        Step::Merge => ("merge", false, false),
        Step::Header => ("write with header", true, true),
    };
    let cluster = "MkU3OEVBNTcwNTJENDM2Qg";
    let Ok(guard) = LoopGuard::new(cluster, "NkU3OEVBNTcwNTJENDM2Qw", None, enforced) else {
        return;
    };
    let Ok(policy) = TopicPolicy::new("orders", "orders", guard, header, HashSet::new()) else {
        return;
    };
    let mut relay = Relay::new(Limits::default());
    relay.write_as(Some(4_711));
    let mut sent = 0;
    let fetched = Fetched {
        records: &answer,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    let mut best = u128::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        let relayed = relay.relay(&policy, 0, &target, &fetched);
        assert_eq!(relayed.accounting.sent, records);
        sent = relayed.batches.len();
        for mut batch in relayed.batches {
            assert!(batch.stamp(&answer, &Stamp::NONE).is_ok());
            black_box(&batch);
            relay.give_back(batch);
        }
        best = best.min(start.elapsed().as_nanos());
    }
    #[allow(clippy::cast_precision_loss)] // small numbers, for people
    let (time, records, bytes) = (best as f64, records as f64, answer.len() as f64);
    println!(
        "{:<8} {size:>6} {per_batch:>13} {name:<22} {:>10.1} {:>10.2} {sent:>12}",
        codec.name(),
        time / records,
        bytes / time,
    );
}

/// Returns batches of records of `size` bytes whose text compresses about threefold, one MiB before compression.
fn answer(codec: Codec, size: usize, per_batch: usize) -> (Vec<u8>, u64) {
    let mut state = 88_172_645_463_325_252_u64;
    let mut out = Vec::new();
    let mut writer = BatchWriter::new(codec);
    let (mut offset, mut plain, mut records) = (0_i64, 0, 0);
    while plain < ANSWER {
        let start = out.len();
        for _ in 0..per_batch {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let mut value = format!("{{\"id\":\"{state:016x}\",\"status\":\"delivered\"");
            while value.len() < size - 16 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let _ = write!(value, ",\"field\":{}", state >> 44);
            }
            let key = format!("key-{records:012}");
            let value = &value.as_bytes()[..size - 16];
            let added = writer.add(
                1_790_000_000_000,
                Some(key.as_bytes()),
                Some(value),
                [].into_iter(),
            );
            assert!(added.is_ok());
            records += 1;
        }
        plain += writer.size();
        assert!(writer.finish(&Stamp::NONE, &mut out).is_ok());
        // as stored in a log; the checksum does not cover it
        out[start..start + 8].copy_from_slice(&offset.to_be_bytes());
        offset += i64::try_from(per_batch).unwrap_or(0);
    }
    (out, records)
}
