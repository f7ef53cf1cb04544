//! Client quotas (KIP-546) and the deletion of topics by their ids (KIP-516), which librdkafka has no requests for.

use std::collections::BTreeMap;

use eomirror_kafka::{QuotaChange, QuotaEntity};
use pyo3::prelude::*;

use crate::lane::topic_id;
use crate::rights::asked;

#[pyfunction]
#[pyo3(signature = (properties, tokens, seconds))]
pub(crate) fn describe_client_quotas(
    py: Python<'_>,
    properties: BTreeMap<String, String>,
    tokens: Option<Py<PyAny>>,
    seconds: f64,
) -> PyResult<Vec<(QuotaEntity, String, f64)>> {
    let found = asked(py, properties, tokens, seconds, |client, deadline| {
        client.client_quotas(deadline)
    })?;
    Ok(found
        .into_iter()
        .map(|each| (each.entity, each.key, each.value))
        .collect())
}

#[pyfunction]
#[pyo3(signature = (properties, tokens, changes, seconds))]
pub(crate) fn alter_client_quotas(
    py: Python<'_>,
    properties: BTreeMap<String, String>,
    tokens: Option<Py<PyAny>>,
    changes: Vec<(QuotaEntity, String, Option<f64>)>,
    seconds: f64,
) -> PyResult<Vec<(QuotaEntity, String)>> {
    let changes = changes
        .into_iter()
        .map(|(entity, key, value)| (entity, QuotaChange { key, value }))
        .collect();
    let refused = asked(py, properties, tokens, seconds, |client, deadline| {
        client.alter_client_quotas(changes, deadline)
    })?;
    Ok(refused
        .into_iter()
        .map(|(entity, error)| (entity, error.to_string()))
        .collect())
}

#[pyfunction]
#[pyo3(signature = (properties, tokens, ids, seconds))]
#[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
pub(crate) fn delete_topics_by_id(
    py: Python<'_>,
    properties: BTreeMap<String, String>,
    tokens: Option<Py<PyAny>>,
    ids: Vec<String>,
    seconds: f64,
) -> PyResult<Vec<(String, &'static str)>> {
    let ids = ids
        .iter()
        .map(|id| topic_id(id))
        .collect::<PyResult<Vec<_>>>()?;
    let refused = asked(py, properties, tokens, seconds, |client, deadline| {
        client.delete_topics(ids, deadline)
    })?;
    Ok(refused
        .into_iter()
        .map(|(id, code)| (id.to_string(), code.name()))
        .collect())
}
