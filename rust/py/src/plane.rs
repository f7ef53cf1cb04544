//! `PlaneReader`: a connection of the native plane that reads record batches, for whoever compares or audits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eomirror_plane::{Client, Clock, Error, Fetcher, IsolationLevel, Limits, SystemClock};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::plane_failed;
use crate::tokens::{self, Interruptions};

/// A connection, and whose partition it reads at the moment.
pub(crate) struct Reading {
    pub(crate) fetcher: Fetcher,
    /// Number of the comparison that assigned last; 0 for none.
    pub(crate) assigned_by: u64,
}

/// Reads committed record batches of one cluster.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PlaneReader {
    reading: Mutex<Reading>,
    /// What was raised where a token was asked for, in whatever call that was.
    pub(crate) interruptions: Interruptions,
}

#[pymethods]
impl PlaneReader {
    #[new]
    #[pyo3(signature = (properties, seconds, tokens=None))]
    fn new(
        py: Python<'_>,
        properties: BTreeMap<String, String>,
        seconds: f64,
        tokens: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let wait = duration(seconds)?;
        let interruptions = Interruptions::default();
        let connected = without_interpreter(py, || {
            let properties = tokens::parse(properties, tokens, &interruptions)?;
            let limits = Limits::from_properties(&properties);
            let clock = Arc::new(SystemClock);
            let deadline = clock.now() + wait;
            let client = Client::connect(properties, clock, deadline)?;
            Ok(Fetcher::new(client, IsolationLevel::ReadCommitted, limits))
        });
        interruptions.check()?;
        match connected {
            Ok(fetcher) => Ok(Self {
                reading: Mutex::new(Reading {
                    fetcher,
                    assigned_by: 0,
                }),
                interruptions,
            }),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Properties that the native plane cannot honour, and why.
    #[staticmethod]
    #[pyo3(signature = (properties, tokens=None))]
    fn refusals(
        py: Python<'_>,
        properties: BTreeMap<String, String>,
        tokens: Option<Py<PyAny>>,
    ) -> PyResult<Vec<(String, String)>> {
        match tokens::parse(properties, tokens, &Interruptions::default()) {
            Ok(_) => Ok(Vec::new()),
            Err(Error::Unhonoured { refusals }) => Ok(refusals
                .into_iter()
                .map(|refusal| (refusal.property, refusal.reason))
                .collect()),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }
}

impl PlaneReader {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Reading> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds as Python has them.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no number of seconds")))
}
