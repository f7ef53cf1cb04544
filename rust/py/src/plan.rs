//! `Plan`.

use pyo3::prelude::*;
use pyo3::types::PyList;

/// Decisions about one consumed batch.
#[pyclass(frozen, get_all, module = "eomirror._core")]
pub(crate) struct Plan {
    pub(crate) records: Py<PyList>,
    pub(crate) ends: Py<PyList>,
    pub(crate) error_at: Option<usize>,
    pub(crate) fetched: usize,
    pub(crate) kept: usize,
    pub(crate) dropped: usize,
    pub(crate) bytes: u64,
}
