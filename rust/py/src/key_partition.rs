//! `key_partition`.

use eomirror_core::placement::place;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (key, partitions))]
pub(crate) fn key_partition(key: &[u8], partitions: i32) -> PyResult<i32> {
    if partitions < 1 {
        return Err(PyValueError::new_err(format!(
            "{partitions} is not a number of partitions"
        )));
    }
    Ok(place(Some(key), 0, partitions))
}
