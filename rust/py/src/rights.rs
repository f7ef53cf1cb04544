//! `lacking_rights`: rights that brokers do not report, asked with requests that change nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use eomirror_kafka::{AskedRight, Client, Clock, Error, SystemClock};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::plane_failed;
use crate::plane::duration;
use crate::tokens::{self, Interruptions};

#[pyfunction]
#[pyo3(signature = (properties, tokens, asked, seconds))]
#[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
pub(crate) fn lacking_rights(
    py: Python<'_>,
    properties: BTreeMap<String, String>,
    tokens: Option<Py<PyAny>>,
    asked: Vec<(String, String, String)>,
    seconds: f64,
) -> PyResult<Vec<(String, String, String)>> {
    let mut kinds: BTreeMap<(&str, &str), (AskedRight, Vec<String>)> = BTreeMap::new();
    for (operation, resource, name) in &asked {
        let right = match (operation.as_str(), resource.as_str()) {
            ("Read", "topic") => AskedRight::ReadTopic,
            ("Write", "topic") => AskedRight::WriteTopic,
            ("Write", "transactional-id") => AskedRight::WriteTransactionalId,
            ("Describe", "group") => AskedRight::DescribeGroup,
            ("Read", "group") => AskedRight::ReadGroup,
            ("Delete", "group") => AskedRight::DeleteGroup,
            _ => {
                let text = format!("no request tells of {operation} on {resource}");
                return Err(PyValueError::new_err(text));
            }
        };
        let kind = (operation.as_str(), resource.as_str());
        let names = &mut kinds.entry(kind).or_insert((right, Vec::new())).1;
        names.push(name.clone());
    }
    self::asked(py, properties, tokens, seconds, |client, deadline| {
        let mut found = Vec::new();
        for ((operation, resource), (right, names)) in &kinds {
            let denied = client.lacks(*right, names, deadline)?;
            let denied = denied.into_iter();
            found
                .extend(denied.map(|name| ((*operation).to_owned(), (*resource).to_owned(), name)));
        }
        Ok(found)
    })
}

/// Asks a cluster through a client of its own.
pub(crate) fn asked<T: Send>(
    py: Python<'_>,
    properties: BTreeMap<String, String>,
    tokens: Option<Py<PyAny>>,
    seconds: f64,
    ask: impl FnOnce(&mut Client, Instant) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let wait = duration(seconds)?;
    let interruptions = Interruptions::default();
    let made = tokens::parse(properties, tokens, &interruptions)
        .and_then(|properties| Client::unconnected(properties, Arc::new(SystemClock)));
    interruptions.check()?;
    let mut client = made.map_err(|error| plane_failed(py, &error))?;
    let answer = without_interpreter(py, || ask(&mut client, SystemClock.now() + wait));
    interruptions.check()?;
    answer.map_err(|error| plane_failed(py, &error))
}
