//! `PatternSet`.

use pyo3::prelude::*;

use crate::error::raise;

/// Full-match patterns, include minus exclude.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PatternSet {
    patterns: eomirror_core::PatternSet,
}

#[pymethods]
impl PatternSet {
    #[new]
    // the binding owns its arguments
    #[allow(clippy::needless_pass_by_value)]
    fn new(py: Python<'_>, include: Vec<String>, exclude: Vec<String>) -> PyResult<Self> {
        eomirror_core::PatternSet::new(&include, &exclude)
            .map(|patterns| Self { patterns })
            .map_err(|error| raise(py, &error))
    }

    fn matches(&self, name: &str) -> bool {
        self.patterns.matches(name)
    }
}
