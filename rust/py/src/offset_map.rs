//! `decode_offset_map` and `encode_offset_map`.

use eomirror_core::offset_map::{OffsetMap, Range, decode};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::raise;

/// Source offset, target offset, count.
pub(crate) type Triple = (i64, i64, i64);

#[pyfunction]
pub(crate) fn decode_offset_map(
    py: Python<'_>,
    value: &[u8],
) -> PyResult<(String, i32, Vec<Triple>)> {
    let chunk = decode(value).map_err(|error| raise(py, &error))?;
    let ranges = triples(&chunk.map);
    Ok((chunk.topic, chunk.partition, ranges))
}

/// Returns the ranges of a map.
pub(crate) fn triples(map: &OffsetMap) -> Vec<Triple> {
    let ranges = map.ranges().iter();
    ranges
        .map(|range| (range.source, range.target, range.count))
        .collect()
}

#[pyfunction]
// the binding owns its arguments
#[allow(clippy::needless_pass_by_value)]
pub(crate) fn encode_offset_map<'py>(
    py: Python<'py>,
    topic: &str,
    partition: i32,
    ranges: Vec<Triple>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ranges: Vec<Range> = ranges
        .into_iter()
        .map(|(source, target, count)| Range {
            source,
            target,
            count,
        })
        .collect();
    OffsetMap::from_ranges(&ranges)
        .and_then(|map| map.encode(topic, partition))
        .map(|bytes| PyBytes::new(py, &bytes))
        .map_err(|error| raise(py, &error))
}
