//! `last_hop`.

use eomirror_core::header::{self, Reading};
use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (header, topic, key, value))]
pub(crate) fn last_hop(
    header: &[u8],
    topic: &str,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Option<String> {
    match header::read(header, topic, key, value) {
        Reading::Ours(mut provenance, _) => provenance.hops.pop(),
        Reading::Foreign | Reading::UnknownVersion(_) => None,
    }
}
