//! `PatternSet`: topic filters.

use pyo3::prelude::*;

use crate::error::to_python;

/// Full-match patterns: include minus exclude, in linear time.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PatternSet(eomirror_core::PatternSet);

#[pymethods]
impl PatternSet {
    #[new]
    #[allow(clippy::needless_pass_by_value)] // PyO3 hands over what it extracted
    fn new(py: Python<'_>, include: Vec<String>, exclude: Vec<String>) -> PyResult<Self> {
        eomirror_core::PatternSet::new(&include, &exclude)
            .map(Self)
            .map_err(|error| to_python(py, &error, None))
    }

    fn matches(&self, name: &str) -> bool {
        self.0.matches(name)
    }
}
