//! `Policy`.

use std::collections::{BTreeMap, HashSet};

use eomirror_core::client_plane::route::Routes;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::origin::Origin;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::raise;
use crate::transform::Transform;

/// Policy of a link for records.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct Policy {
    pub(crate) rules: eomirror_core::Policy,
    /// One string object per target topic, by index of the route, shared by all records of the topic.
    pub(crate) targets: Vec<Py<PyString>>,
    /// Writer of the header with the place on the source, by index of the route; empty if none is added.
    pub(crate) origins: Vec<Origin>,
}

#[pymethods]
impl Policy {
    #[new]
    #[pyo3(signature = (routes, *, source_cluster_id, target_cluster_id, header=false, guard=false, origins=None, origin=None, producer_id=None, keyed=None, transform=None))]
    // the binding owns its arguments, and they are keywords in Python
    #[allow(clippy::needless_pass_by_value, clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        routes: &Bound<'_, pyo3::types::PyMapping>,
        source_cluster_id: &str,
        target_cluster_id: &str,
        header: bool,
        guard: bool,
        origins: Option<Vec<String>>,
        origin: Option<&str>,
        producer_id: Option<i64>,
        keyed: Option<BTreeMap<String, i32>>,
        transform: Option<&Transform>,
    ) -> PyResult<Self> {
        let mut pairs = BTreeMap::new();
        for item in routes.items()? {
            let (source, target): (String, String) = item.extract()?;
            pairs.insert(source, target);
        }
        let sources = pairs.keys();
        let written = origin.map(|alias| sources.map(|topic| Origin::new(alias, topic)).collect());
        let mut routes = Routes::new(pairs).map_err(|error| raise(py, &error))?;
        for (target, count) in keyed.unwrap_or_default() {
            routes = routes
                .keyed(&target, count)
                .map_err(|error| raise(py, &error))?;
        }
        let origins = origins.map(HashSet::from_iter);
        let guard = LoopGuard::new(source_cluster_id, target_cluster_id, origins, guard)
            .map_err(|error| raise(py, &error))?;
        let targets = routes
            .targets()
            .iter()
            .map(|topic| PyString::new(py, topic).unbind())
            .collect();
        let mut policy = eomirror_core::Policy::new(routes, guard, header);
        if let Some(transform) = transform {
            policy = policy.transformed_by(&transform.rules);
        }
        Ok(Self {
            rules: match producer_id {
                Some(id) => policy.written_by(id),
                None => policy,
            },
            targets,
            origins: written.unwrap_or_default(),
        })
    }
}
