//! `PartitionAccount`.

use std::collections::BTreeMap;

use eomirror_core::offset_map::OffsetMap;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::offset_map::{Triple, triples};

/// Account of one source partition in one transaction.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PartitionAccount {
    #[pyo3(get)]
    source_topic: String,
    #[pyo3(get)]
    source_partition: i32,
    #[pyo3(get)]
    fetched: u64,
    #[pyo3(get)]
    acked: u64,
    #[pyo3(get)]
    bytes: u64,
    #[pyo3(get)]
    dropped: BTreeMap<&'static str, u64>,
    #[pyo3(get)]
    copied_headers: u64,
    #[pyo3(get)]
    first_source_offset: i64,
    #[pyo3(get)]
    last_source_offset: i64,
    #[pyo3(get)]
    leader_epoch: i32,
    #[pyo3(get)]
    timestamp: i64,
    #[pyo3(get)]
    target_topic: String,
    #[pyo3(get)]
    target_partition: i32,
    #[pyo3(get)]
    first_target_offset: i64,
    #[pyo3(get)]
    last_target_offset: i64,
    #[pyo3(get)]
    offset_map: Py<PyBytes>,
    #[pyo3(get)]
    digest: String,
    #[pyo3(get)]
    tail: Option<(i64, String, String)>,
    #[pyo3(get)]
    jumps: Vec<(i64, i64)>,
    map: OffsetMap,
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
            copied_headers: account.copied_headers,
            first_source_offset: account.first_source_offset,
            last_source_offset: account.last_source_offset,
            leader_epoch: account.leader_epoch,
            timestamp: account.timestamp,
            target_topic: account.target_topic,
            target_partition: account.target_partition,
            first_target_offset: account.first_target_offset,
            last_target_offset: account.last_target_offset,
            offset_map: PyBytes::new(py, &account.offset_map).unbind(),
            map: account.map,
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
    /// Created on demand: of a transaction's two accounts, the speculative one is never asked for it.
    #[getter]
    fn ranges(&self) -> Vec<Triple> {
        triples(&self.map)
    }

    fn __repr__(&self) -> String {
        format!(
            "<PartitionAccount {}-{}: fetched {}, acked {}, dropped {:?}>",
            self.source_topic, self.source_partition, self.fetched, self.acked, self.dropped
        )
    }
}
