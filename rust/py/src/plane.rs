//! `PlaneReader`: a client that reads record batches for comparisons and audits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eomirror_batch::{Batches, Continuity};
use eomirror_kafka::{
    Assignment, Client, Clock, Error, Fetcher, IsolationLevel, Limits, Outcome, SystemClock,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::plane_failed;
use crate::tokens::{self, Interruptions};

/// Ranges of offsets, and whether the log was compacted.
type HolesTuple = (Vec<(i64, i64)>, bool);

/// Maximum number of reported holes in a range.
const MOST_HOLES: usize = 100;

/// A fetcher, and the comparison that uses it at the moment.
pub(crate) struct Reading {
    pub(crate) fetcher: Fetcher,
    /// Number of the comparison that assigned last; 0 for none.
    pub(crate) assigned_by: u64,
}

/// Reads committed record batches of one cluster.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PlaneReader {
    reading: Mutex<Reading>,
    /// Exceptions raised by a token callback, in any call.
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

    fn holes(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        start: i64,
        end: i64,
        seconds: f64,
    ) -> PyResult<Option<HolesTuple>> {
        let most = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut reading = self.lock();
            reading.assigned_by = 0;
            holes(&mut reading.fetcher, topic, partition, start..end, most)
        });
        self.interruptions.check()?;
        found.map_err(|error| plane_failed(py, &error))
    }

    #[staticmethod]
    #[pyo3(signature = (properties, tokens=None))]
    fn unsupported_properties(
        py: Python<'_>,
        properties: BTreeMap<String, String>,
        tokens: Option<Py<PyAny>>,
    ) -> PyResult<Vec<(String, String)>> {
        match tokens::parse(properties, tokens, &Interruptions::default()) {
            Ok(_) => Ok(Vec::new()),
            Err(Error::Unhonoured { unsupported }) => Ok(unsupported
                .into_iter()
                .map(|one| (one.property, one.reason))
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

/// Examines the batches of a range, one after the other.
fn holes(
    fetcher: &mut Fetcher,
    topic: &str,
    partition: i32,
    range: Range<i64>,
    most: Duration,
) -> Result<Option<HolesTuple>, Error> {
    let deadline = SystemClock.now() + most;
    let (mut found, mut compacted) = (Vec::new(), false);
    let mut next = range.start;
    fetcher.assign(&[]);
    fetcher.assign(&[Assignment::new(topic, partition, next)]);
    while next < range.end {
        let polled = fetcher.poll(deadline)?;
        for fetched in &polled {
            let Outcome::Records(records) = &fetched.outcome else {
                return Ok(None);
            };
            let mut continuity = Continuity::new(next);
            let mut epoch = -1;
            for batch in Batches::new(&records.records).map_while(Result::ok) {
                if let Some(hole) = continuity.look(&batch) {
                    if hole.start < range.end {
                        found.push((hole.start, hole.end.min(range.end)));
                    }
                }
                epoch = batch.leader_epoch();
                next = next.max(batch.next_offset());
            }
            compacted |= continuity.is_compacted();
            fetcher.advance(&fetched.partition, next, epoch);
        }
        if polled.is_empty() || found.len() > MOST_HOLES {
            break;
        }
    }
    fetcher.assign(&[]);
    Ok((next >= range.end).then_some((found, compacted)))
}

/// Converts seconds from Python.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no number of seconds")))
}
