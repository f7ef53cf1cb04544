//! The only place that turns the crates' errors into Python exceptions.

use eomirror_core::{Error, Kind};
use eomirror_plane::fix_of;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;

mod python {
    #![allow(missing_docs)]
    pyo3::import_exception!(eomirror.errors, AuthorizationError);
    pyo3::import_exception!(eomirror.errors, ClusterError);
    pyo3::import_exception!(eomirror.errors, DataLossError);
    pyo3::import_exception!(eomirror.errors, FencedError);
    pyo3::import_exception!(eomirror.errors, MirrorError);
    pyo3::import_exception!(eomirror.errors, RowError);
    pyo3::import_exception!(eomirror.errors, StateError);
    pyo3::import_exception!(eomirror.errors, TransactionRefusedError);
    pyo3::import_exception!(eomirror.errors, TopicError);
    pyo3::import_exception!(eomirror.errors, TransactionFailedError);
    pyo3::import_exception!(eomirror.errors, UnreachableError);
    pyo3::import_exception!(eomirror.errors, UnrepresentableRecordError);
    pyo3::import_exception!(eomirror.plane.native.errors, NativeFailureError);
}

/// Returns the exception for an error of the core.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        Kind::Argument => PyValueError::new_err(message),
        Kind::Topic => about_topic::<python::TopicError>(py, &message, error),
        Kind::Unrepresentable => {
            about_topic::<python::UnrepresentableRecordError>(py, &message, error)
        }
        // internal to the lane, which handles it, so there is no fix to show
        Kind::Transaction => python::TransactionFailedError::new_err(message),
        Kind::State => with_fix::<python::StateError>(py, &message, error.fix()),
    }
}

/// Returns the exception for a record that this plane cannot write unchanged.
pub(crate) fn unrepresentable(py: Python<'_>, message: &str, topic: &str, fix: &str) -> PyErr {
    let names = [("fix", fix), ("topic", topic)];
    with_names::<python::UnrepresentableRecordError>(py, message, &names)
}

/// Returns the exception for a broken installation, such as a librdkafka without interceptors.
pub(crate) fn installation(py: Python<'_>, message: &str, fix: &str) -> PyErr {
    with_fix::<python::MirrorError>(py, message, fix)
}

/// Returns the exception for an error that the user can fix.
pub(crate) fn failure(py: Python<'_>, message: &str, fix: &str) -> PyErr {
    with_fix::<python::MirrorError>(py, message, fix)
}

/// Returns an exception that stops one topic; the lane continues with the others.
fn about_topic<E: pyo3::PyTypeInfo>(py: Python<'_>, message: &str, error: &Error) -> PyErr {
    let topic = error.topic().unwrap_or_default();
    with_names::<E>(py, message, &[("fix", error.fix()), ("topic", topic)])
}

/// Returns the exception for an error between the native plane and a cluster; the plane's errors contain no secrets.
pub(crate) fn plane_failed(py: Python<'_>, error: &eomirror_kafka::Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        eomirror_kafka::Kind::Unreachable => {
            with_fix::<python::UnreachableError>(py, &message, fix_of(error))
        }
        eomirror_kafka::Kind::Unauthorized => {
            with_fix::<python::AuthorizationError>(py, &message, fix_of(error))
        }
        // internal to the owner of the id, which handles it, so there is no fix to show
        eomirror_kafka::Kind::Superseded => python::FencedError::new_err(message),
        _ => with_fix::<python::ClusterError>(py, &message, fix_of(error)),
    }
}

/// Returns the exception for an error of a sink's transaction: one with the broker's code, if there is one.
pub(crate) fn sink_failed(py: Python<'_>, error: &eomirror_kafka::Error) -> PyErr {
    use eomirror_kafka::Error;
    let code = match error {
        Error::MustAbort { code, .. }
        | Error::NotCommitted { code }
        | Error::Fenced { code, .. }
        | Error::Refused { code, .. } => code.name(),
        _ => return plane_failed(py, error),
    };
    let names = [("fix", error.fix()), ("code", code)];
    with_names::<python::TransactionRefusedError>(py, &error.to_string(), &names)
}

/// Returns the exception for rows that are not written.
pub(crate) fn rows_failed(py: Python<'_>, error: &eomirror_plane::rows::RowError) -> PyErr {
    match error {
        eomirror_plane::rows::RowError::Kafka(error) => sink_failed(py, error),
        eomirror_plane::rows::RowError::Content(reason) => {
            python::RowError::new_err(reason.clone())
        }
    }
}

/// Returns the exception for an error of a native lane; Python maps kinds to the errors of a lane in one table.
pub(crate) fn lane_failed(py: Python<'_>, failure: &eomirror_plane::lane::Failure) -> PyErr {
    let partition = failure
        .partition
        .as_ref()
        .map(|at| (at.topic.as_str(), at.partition));
    let refused = failure.refused.as_ref().map(|refused| {
        let source = refused.source.as_ref();
        (
            source.map(|at| (at.topic.as_str(), at.partition)),
            refused.target_topic.as_str(),
            refused.first,
            refused.last,
            refused.code.name(),
        )
    });
    let gap = failure
        .gap
        .map(|gap| (gap.position, gap.log.start, gap.log.end));
    let named = pyo3::types::PyDict::new(py);
    let raised = named
        .set_item("fix", failure.fix)
        .and_then(|()| named.set_item("partition", partition))
        .and_then(|()| named.set_item("refused", refused))
        .and_then(|()| named.set_item("gap", gap))
        .and_then(|()| {
            let positional = (failure.kind.name(), failure.message.as_str());
            py.get_type::<python::NativeFailureError>()
                .call(positional, Some(&named))
        });
    match raised {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}

/// Returns the message of an eomirror exception; `None` for all others. eomirror's own errors contain no secrets.
pub(crate) fn own_message(py: Python<'_>, error: &PyErr) -> Option<String> {
    if !error.is_instance_of::<python::MirrorError>(py) {
        return None;
    }
    error.value(py).getattr("message").ok()?.extract().ok()
}

/// Returns the exception for a topic that cannot be read to the requested offset.
pub(crate) fn topic_failed(py: Python<'_>, message: &str, topic: &str, fix: &str) -> PyErr {
    with_names::<python::TopicError>(py, message, &[("fix", fix), ("topic", topic)])
}

/// Returns the exception for records that a log does not hold any more.
pub(crate) fn log_lost(py: Python<'_>, message: &str, topic: &str, fix: &str) -> PyErr {
    with_names::<python::DataLossError>(py, message, &[("fix", fix), ("topic", topic)])
}

fn with_fix<E: pyo3::PyTypeInfo>(py: Python<'_>, message: &str, fix: &str) -> PyErr {
    with_names::<E>(py, message, &[("fix", fix)])
}

fn with_names<E: pyo3::PyTypeInfo>(py: Python<'_>, message: &str, names: &[(&str, &str)]) -> PyErr {
    let raised = names
        .to_vec()
        .into_py_dict(py)
        .and_then(|named| py.get_type::<E>().call((message,), Some(&named)));
    match raised {
        Ok(value) => PyErr::from_value(value),
        Err(error) => error,
    }
}
