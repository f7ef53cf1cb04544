//! The only place that releases the interpreter while Rust works.

use pyo3::marker::Ungil;
use pyo3::prelude::*;

/// Runs `work` without the interpreter's lock, so that other Python threads and librdkafka's callbacks into Python
/// continue. `work` must not touch Python objects; borrowed bytes of immutable objects that the caller holds are
/// allowed.
pub(crate) fn without_interpreter<T: Ungil>(py: Python<'_>, work: impl FnOnce() -> T + Ungil) -> T {
    py.detach(work)
}
