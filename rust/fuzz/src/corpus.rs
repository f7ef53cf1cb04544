//! Inputs that mutations start from.

use eomirror_batch::{BatchWriter, Batches, Codec, Stamp};
use eomirror_core::HeaderRef;
use eomirror_core::header::{NAME, Provenance, Writer};
use eomirror_core::offset_map::{OffsetMap, Range};

/// Segments of a real broker; see their README.
const SEGMENTS: [&[u8]; 12] = [
    include_bytes!("../../core/tests/golden/librdkafka-none.log"),
    include_bytes!("../../core/tests/golden/librdkafka-gzip.log"),
    include_bytes!("../../core/tests/golden/librdkafka-snappy.log"),
    include_bytes!("../../core/tests/golden/librdkafka-lz4.log"),
    include_bytes!("../../core/tests/golden/librdkafka-zstd.log"),
    include_bytes!("../../core/tests/golden/broker-gzip.log"),
    include_bytes!("../../core/tests/golden/broker-snappy.log"),
    include_bytes!("../../core/tests/golden/broker-lz4.log"),
    include_bytes!("../../core/tests/golden/broker-zstd.log"),
    include_bytes!("../../core/tests/golden/append-time.log"),
    include_bytes!("../../core/tests/golden/transactions.log"),
    include_bytes!("../../core/tests/golden/compacted.log"),
];
pub(crate) const TOPIC: &str = "orders";

/// Whole segments, their first batches, and batches of records with provenance headers.
pub(crate) fn logs() -> Vec<Vec<u8>> {
    let mut logs: Vec<Vec<u8>> = SEGMENTS.iter().map(|segment| segment.to_vec()).collect();
    logs.extend(batches());
    logs
}

/// Single batches.
pub(crate) fn batches() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for segment in SEGMENTS {
        let first = Batches::new(segment).flatten().take(3);
        all.extend(first.map(|batch| batch.bytes().to_vec()));
    }
    for codec in Codec::ALL {
        all.extend(marked(codec));
    }
    all
}

/// Returns a batch of records from other clusters.
fn marked(codec: Codec) -> Option<Vec<u8>> {
    let mut writer = BatchWriter::new(codec);
    for origin in ["source", "target", "third"] {
        let value = provenance(origin, Some(7));
        let headers = [
            HeaderRef {
                key: b"other",
                value: None,
            },
            HeaderRef {
                key: NAME.as_bytes(),
                value: Some(&value),
            },
        ];
        let added = writer.add(1000, Some(b"key"), Some(b"value"), headers.into_iter());
        added.ok()?;
    }
    let mut out = Vec::new();
    writer.finish(&Stamp::NONE, &mut out).ok()?;
    Some(out)
}

/// Returns the header of a record that a producer wrote to the source.
fn provenance(origin: &str, producer_id: Option<i64>) -> Vec<u8> {
    let provenance = Provenance {
        origin: origin.to_owned(),
        hops: vec![origin.to_owned(), "fourth".to_owned()],
    };
    let mark = producer_id
        .and_then(|id| Writer::new("source", id))
        .map(|writer| writer.mark(0, 1000));
    provenance.encode(TOPIC, Some(b"key"), Some(b"value"), mark.as_ref())
}

/// Values of provenance headers, for key `key` and value `value`.
pub(crate) fn headers() -> Vec<Vec<u8>> {
    ["source", "target", "a cluster with quite a long name"]
        .iter()
        .flat_map(|origin| [None, Some(7), Some(i64::MAX)].map(|id| provenance(origin, id)))
        .collect()
}

/// Chunks of the offset map.
pub(crate) fn offset_maps() -> Vec<Vec<u8>> {
    let range = |source, target, count| Range {
        source,
        target,
        count,
    };
    let ranges = [
        vec![range(0, 0, 1)],
        vec![range(5, 900, 1000), range(1007, 1901, 3)],
        (0..50).map(|n| range(n * 300, n * 200, 199)).collect(),
        vec![range(1 << 60, 1 << 61, 1 << 59)],
    ];
    let encode = |ranges: &Vec<Range>| OffsetMap::from_ranges(ranges).ok()?.encode(TOPIC, 3).ok();
    ranges.iter().filter_map(encode).collect()
}
