//! `PlaneReader`: a client that reads record batches for comparisons and audits.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
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

/// Topic, partition, bytes of whole batches, and offsets that they span.
type SampleTuple = (String, i32, u64, i64);

/// Maximum number of reported holes in a range.
const MOST_HOLES: usize = 100;

/// Maximum duration of a call, so that Python can handle signals.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// Returns a number for [`Reading::assigned_by`].
pub(crate) fn next_reader_number() -> u64 {
    NUMBERS.fetch_add(1, Ordering::Relaxed)
}

/// A fetcher, and the comparison or scan that uses it at the moment.
pub(crate) struct Reading {
    pub(crate) fetcher: Fetcher,
    /// Number of the comparison or scan that assigned last; 0 for none.
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

    fn density(
        &self,
        py: Python<'_>,
        offsets: Vec<(String, i32, i64)>,
        size: i32,
        seconds: f64,
    ) -> PyResult<Vec<SampleTuple>> {
        let most = duration(seconds)?;
        let sampled = without_interpreter(py, || {
            let mut reading = self.lock();
            reading.assigned_by = 0;
            density(&mut reading.fetcher, offsets, size, most)
        });
        self.interruptions.check()?;
        sampled.map_err(|error| plane_failed(py, &error))
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

/// Fetches about `bytes` of each partition from its offset, in one request to each broker. A partition that cannot be read
/// has no sample.
fn density(
    fetcher: &mut Fetcher,
    offsets: Vec<(String, i32, i64)>,
    bytes: i32,
    most: Duration,
) -> Result<Vec<SampleTuple>, Error> {
    let deadline = SystemClock.now() + most;
    let usual = fetcher.limits();
    fetcher.limit(Limits {
        partition_bytes: bytes,
        ..usual
    });
    fetcher.assign(&[]);
    let assigned: Vec<Assignment> = offsets
        .into_iter()
        .map(|(topic, partition, offset)| Assignment::new(topic, partition, offset))
        .collect();
    fetcher.assign(&assigned);
    let mut waiting = assigned.len();
    let mut found = Vec::with_capacity(waiting);
    let outcome = loop {
        if waiting == 0 {
            break Ok(());
        }
        let polled = match fetcher.poll(deadline) {
            Ok(polled) if polled.is_empty() => break Ok(()),
            Ok(polled) => polled,
            Err(error) => break Err(error),
        };
        for fetched in polled {
            waiting -= 1;
            let Outcome::Records(records) = &fetched.outcome else {
                continue;
            };
            let (mut size, mut next) = (0, fetched.offset);
            for batch in Batches::new(&records.records).map_while(Result::ok) {
                size += batch.bytes().len() as u64;
                next = next.max(batch.next_offset());
            }
            let at = fetched.partition;
            found.push((at.topic, at.partition, size, next - fetched.offset));
        }
    };
    fetcher.assign(&[]);
    fetcher.limit(usual);
    outcome.map(|()| found)
}

/// Converts seconds from Python.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is no number of seconds")))
}
