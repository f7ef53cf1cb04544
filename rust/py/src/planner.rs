//! `Planner`.

use eomirror_core::client_plane::plan::{Decision, Planned, plan};
use eomirror_core::digest::Digest;
use eomirror_core::transform::Edited;
use eomirror_core::{Ledger, header, origin, skip};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use crate::acks::Acks;
use crate::convert::{Batch, Row, sort};
use crate::detach::without_interpreter;
use crate::error::raise;
use crate::partition_account::PartitionAccount;
use crate::plan::Plan;
use crate::policy::Policy;

#[pyfunction]
pub(crate) fn digest_behind(before: &str, message: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut digest = Digest::parse(before)
        .ok_or_else(|| PyValueError::new_err(format!("{before:?} is not a digest")))?;
    let batch = Batch::read(&PyList::new(message.py(), [message])?)?;
    let headers = batch.header_refs()?;
    for record in batch.record_refs(&headers)? {
        digest.add(&record, &mut Vec::new());
    }
    Ok(digest.hex())
}

/// The batches and the open transaction of one lane.
#[pyclass(module = "eomirror._core")]
pub(crate) struct Planner {
    policy: Py<Policy>,
    ledger: Ledger,
}

#[pymethods]
impl Planner {
    #[new]
    fn new(policy: Py<Policy>) -> Self {
        Self {
            policy,
            ledger: Ledger::default(),
        }
    }

    fn set_policy(&mut self, policy: Py<Policy>) -> PyResult<()> {
        if !self.ledger.is_empty() {
            return Err(PyRuntimeError::new_err(
                "the policy can only change between transactions; call clear() after commit or abort",
            ));
        }
        self.policy = policy;
        Ok(())
    }

    fn plan(&mut self, py: Python<'_>, messages: &Bound<'_, PyList>) -> PyResult<Plan> {
        let sorted = sort(messages)?;
        let batch = Batch::read(&sorted.records)?;
        let policy = self.policy.get();
        let planned = {
            let headers = batch.header_refs()?;
            let records = batch.record_refs(&headers)?;
            let ledger = &mut self.ledger;
            without_interpreter(py, || plan(&policy.rules, &records, ledger))
                .map_err(|error| raise(py, &error))?
        };
        let fetched = batch.rows.len();
        let records = produce_arguments(py, policy, &batch, &planned)?;
        Ok(Plan {
            records: records.unbind(),
            ends: sorted.ends.unbind(),
            error_at: sorted.error_at,
            fetched,
            kept: planned.kept,
            dropped: fetched - planned.kept,
            bytes: planned.bytes,
        })
    }

    fn leave_out(&mut self, py: Python<'_>, messages: &Bound<'_, PyList>) -> PyResult<Vec<String>> {
        let batch = Batch::read(messages)?;
        let headers = batch.header_refs()?;
        let records = batch.record_refs(&headers)?;
        let policy = self.policy.get();
        skip(&policy.rules, &records, &mut self.ledger).map_err(|error| raise(py, &error))
    }

    fn settle(&self, py: Python<'_>, acks: &Acks) -> PyResult<Vec<PartitionAccount>> {
        let accounts = self
            .ledger
            .settle(self.policy.get().rules.routes(), &acks.acks)
            .map_err(|error| raise(py, &error))?;
        Ok(accounts
            .into_iter()
            .map(|account| PartitionAccount::new(py, account))
            .collect())
    }

    fn planned(&self) -> Vec<(String, i32, i64)> {
        self.ledger
            .planned(self.policy.get().rules.routes())
            .map(|(topic, partition, count)| (topic.to_owned(), partition, count))
            .collect()
    }

    fn reached(&self) -> Vec<(String, i32, i64, Option<i32>)> {
        self.ledger
            .reached(self.policy.get().rules.routes())
            .map(|(topic, partition, offset, epoch)| {
                (
                    topic.to_owned(),
                    partition,
                    offset,
                    (epoch >= 0).then_some(epoch),
                )
            })
            .collect()
    }

    fn tails(&self) -> Vec<(String, i32, (i64, String, String))> {
        self.ledger
            .tails(self.policy.get().rules.routes())
            .map(|(topic, partition, tail)| {
                let mark = (tail.offset, tail.before.hex(), tail.after.hex());
                (topic.to_owned(), partition, mark)
            })
            .collect()
    }

    fn clear(&mut self) {
        self.ledger.clear();
    }
}

/// Positional arguments of `confluent_kafka.Producer.produce` for every kept record: topic, value, key, partition,
/// callback, `on_delivery`, timestamp, headers.
fn produce_arguments<'py>(
    py: Python<'py>,
    policy: &Policy,
    batch: &Batch<'py>,
    planned: &Planned,
) -> PyResult<Bound<'py, PyList>> {
    let none = py.None().into_bound(py);
    let names = [header::NAME, origin::NAME].map(|name| PyString::new(py, name));
    let mut place = Vec::new();
    let mut records = Vec::with_capacity(planned.kept);
    for (row, decision) in batch.rows.iter().zip(&planned.decisions) {
        let Decision::Keep {
            route,
            partition,
            header,
            edited,
            ..
        } = decision
        else {
            continue;
        };
        let origin = policy.origins.get(route.source).map(|origin| {
            origin.write(row.partition_number, row.offset, &mut place);
            place.as_slice()
        });
        let headers = match (header.as_deref(), origin) {
            (None, None) if edited.headers().is_none() => row.headers.clone(),
            values => with_headers(batch, row, edited, &names, [values.0, values.1])?.into_any(),
        };
        records.push(PyTuple::new(
            py,
            [
                policy.targets[route.target].bind(py).as_any().clone(),
                row.value.edited(py, |value| edited.value(value)),
                row.key.edited(py, |key| edited.key(key)),
                match partition {
                    None => row.partition.clone(),
                    Some(number) => PyInt::new(py, *number).into_any(),
                },
                none.clone(),
                none.clone(),
                row.timestamp.clone(),
                headers,
            ],
        )?);
    }
    PyList::new(py, records)
}

/// Returns the record's headers in order, without earlier ones of the mirror that are written again, and the new ones
/// last: provenance and origin.
fn with_headers<'py>(
    batch: &Batch<'py>,
    row: &Row<'py>,
    edited: &Edited,
    names: &[Bound<'py, PyString>; 2],
    values: [Option<&[u8]>; 2],
) -> PyResult<Bound<'py, PyList>> {
    let py = names[0].py();
    let headers = PyList::empty(py);
    let replaced = |key: &str| {
        (key == header::NAME && values[0].is_some()) || (key == origin::NAME && values[1].is_some())
    };
    if let Some(changed) = edited.headers() {
        for (name, value) in changed {
            // the client plane reads only names that are text, and rules add no others
            let name = std::str::from_utf8(name)
                .map_err(|_| PyValueError::new_err("a header's name is no text"))?;
            if !replaced(name) {
                let value = value.as_deref().map(|value| PyBytes::new(py, value));
                headers.append((name, value))?;
            }
        }
    } else {
        for header in &batch.headers[row.first_header..row.end_header] {
            if !replaced(header.key.to_str()?) {
                headers.append(&header.original)?;
            }
        }
    }
    for (name, value) in names.iter().zip(values) {
        if let Some(value) = value {
            headers.append((name, PyBytes::new(py, value)))?;
        }
    }
    Ok(headers)
}
