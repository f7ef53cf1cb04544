//! Measures the offset map: bytes per transaction and partition, memory, and time of a lookup.
//!
//! ```text
//! cargo run --release -p eomirror-core --example offset_map_cost [RANGES] [RECORDS_PER_RANGE]
//! ```
//!
//! Each transaction writes a chunk of one range, as a lane does that passes one batch of a partition, followed by a
//! marker on both sides. Lookups are at random offsets.

// a program that prints figures and may end with a panic
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::hint::black_box;
use std::time::Instant;

use eomirror_core::offset_map::{Answer, OffsetMap, Range, decode};

const LOOKUPS: i64 = 1_000_000;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|text| text.parse::<i64>().unwrap());
    let ranges = arguments.next().unwrap_or(10_000_000);
    let records = arguments.next().unwrap_or(100);
    let mut map = OffsetMap::default();
    let (mut bytes, mut key_bytes) = (0, 0);
    let began = Instant::now();
    for number in 0..ranges {
        // a marker of the source's own transaction every tenth time, one of the link's every time
        let range = Range {
            source: number * records + number / 10,
            target: number * (records + 1),
            count: records,
        };
        let chunk = OffsetMap::from_ranges(&[range]).unwrap();
        let value = chunk.encode("east.orders", 3).unwrap();
        bytes += value.len();
        // the key as `records/offset_map.py` writes it
        key_bytes += format!(
            "{{\"topic\":\"orders\",\"partition\":3,\"topic_id\":\"{}\",\"first\":{}}}",
            "A".repeat(22),
            range.source
        )
        .len();
        map.take_in(&decode(&value).unwrap().map).unwrap();
    }
    let build = began.elapsed();
    let end = map.source_bounds().unwrap().1;
    let mut offset = 1_i64;
    let mut exact = 0;
    let began = Instant::now();
    for _ in 0..LOOKUPS {
        offset = (offset
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407))
        .rem_euclid(end);
        exact += i64::from(matches!(
            black_box(map.answer_to_target(black_box(offset), end)),
            Answer::Exact(_)
        ));
    }
    let lookup = began.elapsed();
    let each = ranges as f64;
    println!("ranges                        {ranges}");
    println!("value, bytes per transaction  {:.1}", bytes as f64 / each);
    println!(
        "key, bytes per transaction    {:.1}",
        key_bytes as f64 / each
    );
    println!(
        "memory, MB per million        {:.1}",
        size_of_val(map.ranges()) as f64 / each
    );
    println!(
        "encode, decode, take in, us   {:.3}",
        build.as_secs_f64() * 1e6 / each
    );
    println!(
        "lookup, us                    {:.3}",
        lookup.as_secs_f64() * 1e6 / LOOKUPS as f64
    );
    println!("exact answers, of a million   {exact}");
    let whole = map.encode("east.orders", 3).unwrap();
    println!(
        "merged, bytes per range       {:.1}",
        whole.len() as f64 / each
    );
}
