//! `PartitionAccount`.

use std::collections::BTreeMap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::offset_map::{Triple, decode_offset_map};

/// Account of one source partition in one transaction.
#[pyclass(frozen, get_all, module = "eomirror._core")]
pub(crate) struct PartitionAccount {
    source_topic: String,
    source_partition: i32,
    fetched: u64,
    acked: u64,
    bytes: u64,
    dropped: BTreeMap<&'static str, u64>,
    changed: BTreeMap<&'static str, u64>,
    copied_headers: u64,
    first_source_offset: i64,
    last_source_offset: i64,
    leader_epoch: i32,
    timestamp: i64,
    target_topic: String,
    target_partition: i32,
    first_target_offset: i64,
    last_target_offset: i64,
    placed: Vec<(i32, i64, i64)>,
    offset_map: Py<PyBytes>,
    digest: String,
    tail: Option<(i64, String, String)>,
    jumps: Vec<(i64, i64)>,
}

impl PartitionAccount {
    pub(crate) fn new(py: Python<'_>, account: eomirror_core::PartitionAccount) -> Self {
        Self {
            source_topic: account.source_topic,
            source_partition: account.source_partition,
            fetched: account.fetched,
            acked: account.acked,
            bytes: account.bytes,
            dropped: account.dropped,
            changed: account.changed,
            copied_headers: account.copied_headers,
            first_source_offset: account.first_source_offset,
            last_source_offset: account.last_source_offset,
            leader_epoch: account.leader_epoch,
            timestamp: account.timestamp,
            target_topic: account.target_topic,
            target_partition: account.target_partition,
            first_target_offset: account.first_target_offset,
            last_target_offset: account.last_target_offset,
            placed: account.placed,
            offset_map: PyBytes::new(py, &account.offset_map).unbind(),
            digest: account.digest,
            tail: account
                .tail
                .map(|tail| (tail.offset, tail.before.hex(), tail.after.hex())),
            jumps: account.jumps,
        }
    }
}

#[pymethods]
impl PartitionAccount {
    #[getter]
    fn ranges(&self, py: Python<'_>) -> PyResult<Vec<Triple>> {
        let (_, _, ranges) = match self.offset_map.as_bytes(py) {
            [] => return Ok(Vec::new()),
            chunk => decode_offset_map(py, chunk)?,
        };
        Ok(ranges)
    }

    fn __repr__(&self) -> String {
        format!(
            "<PartitionAccount {}-{}: fetched {}, acked {}, dropped {:?}>",
            self.source_topic, self.source_partition, self.fetched, self.acked, self.dropped
        )
    }
}
