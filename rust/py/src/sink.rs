//! `SinkProducer` and `RowPlacer`: rows of Arrow columns into transactions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eomirror_batch::Codec;
use eomirror_core::arrow::{Column, ColumnKind};
use eomirror_core::placement::{place, task_of};
use eomirror_kafka::{
    Client, Clock, Error, Identity, IsolationLevel, OffsetSpec, ProducerSettings, Properties,
    SystemClock, TRANSACTION_VERSION, TopicPartition, TransactionalProducer,
};
use eomirror_plane::rows::{RowColumns, RowError, RowWriter, Share};
use eomirror_plane::state_log;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::detach::without_interpreter;
use crate::error::{rows_failed, sink_failed};
use crate::plane::duration;
use crate::tokens::{self, Interruptions};

/// Time between two looks at Python's signals.
const SLICE: Duration = Duration::from_millis(500);

/// Type, offset, length, buffers and children of an Arrow array.
#[derive(FromPyObject)]
struct Spec<'py>(
    String,
    usize,
    usize,
    Vec<Option<PyBuffer<u8>>>,
    Vec<Bound<'py, PyAny>>,
);

/// Topic, partition, records, bytes, digest, first and next target offset.
type WrittenTuple = (String, i32, i64, u64, String, i64, i64);

/// A transactional producer of rows.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct SinkProducer {
    rows: Mutex<RowWriter>,
    properties: Properties,
    level: i16,
    interruptions: Interruptions,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists and tuples over
impl SinkProducer {
    #[new]
    #[pyo3(signature = (properties, transactional_id, *, seconds, transaction_timeout_ms=60_000, codec="none", batch_bytes=524_288, identity=None, tokens=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        py: Python<'_>,
        properties: BTreeMap<String, String>,
        transactional_id: String,
        seconds: f64,
        transaction_timeout_ms: u64,
        codec: &str,
        batch_bytes: usize,
        identity: Option<(i64, i16)>,
        tokens: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let wait = duration(seconds)?;
        let codec = Codec::ALL.into_iter().find(|one| one.name() == codec);
        let codec = codec.ok_or_else(|| PyValueError::new_err("unknown compression.type"))?;
        let interruptions = Interruptions::default();
        let opened = without_interpreter(py, || {
            let properties = tokens::parse(properties, tokens, &interruptions)?;
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let deadline = clock.now() + wait;
            let mut client = Client::connect(properties.clone(), Arc::clone(&clock), deadline)?;
            let level = client.feature(TRANSACTION_VERSION, deadline)?;
            let settings = ProducerSettings {
                transaction_timeout: Duration::from_millis(transaction_timeout_ms),
                ..ProducerSettings::new(transactional_id, &properties)
            };
            let producer = match identity {
                Some((producer_id, epoch)) => {
                    let identity = Identity { producer_id, epoch };
                    TransactionalProducer::join(client, settings, identity)
                }
                None => TransactionalProducer::open(client, settings, deadline)?,
            };
            let rows = RowWriter::new(producer, clock, codec, batch_bytes);
            Ok((rows, properties, level))
        });
        interruptions.check()?;
        let (rows, properties, level) = opened.map_err(|error: Error| sink_failed(py, &error))?;
        Ok(Self {
            rows: Mutex::new(rows),
            properties,
            level,
            interruptions,
        })
    }

    #[getter]
    fn transaction_version(&self) -> i16 {
        self.level
    }

    fn partitions(&self, py: Python<'_>, topic: &str, seconds: f64) -> PyResult<Option<usize>> {
        self.call(py, seconds, |rows, deadline| {
            let metadata = rows.producer().client().metadata(&[topic], deadline)?;
            Ok(metadata.topic(topic).map(|facts| facts.partitions.len()))
        })
    }

    fn end_offset(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        seconds: f64,
    ) -> PyResult<i64> {
        self.call(py, seconds, |rows, deadline| {
            let client = rows.producer().client();
            let listed = client.list_offsets(
                IsolationLevel::ReadUncommitted,
                OffsetSpec::Latest,
                &[(topic, partition)],
                deadline,
            )?;
            Ok(listed.first().map_or(0, |one| one.offset))
        })
    }

    #[allow(clippy::too_many_arguments)] // a place, a claim and a wait
    fn claim(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        since: i64,
        key: &[u8],
        own: &[u8],
        seconds: f64,
    ) -> PyResult<bool> {
        let target = TopicPartition::new(topic, partition);
        let properties = self.properties.clone();
        self.call(py, seconds, |_, deadline| {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let place = (&target, since);
            let claimed = state_log::claim(properties, &clock, place, (key, own), deadline)?;
            Ok(claimed)
        })
    }

    fn latest<'py>(
        &self,
        py: Python<'py>,
        topic: &str,
        partition: i32,
        key: &[u8],
        seconds: f64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let target = TopicPartition::new(topic, partition);
        let properties = self.properties.clone();
        let found = self.call(py, seconds, |_, deadline| {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            Ok(state_log::latest(
                properties, &clock, &target, key, deadline,
            )?)
        })?;
        Ok(found.map(|value| PyBytes::new(py, &value)))
    }

    fn begin(&self, py: Python<'_>, seconds: f64) -> PyResult<(i64, i16)> {
        self.sliced(py, seconds, |rows, deadline| {
            let identity = rows.begin(deadline)?;
            Ok((identity.producer_id, identity.epoch))
        })
    }

    #[pyo3(signature = (topic=None, task=None, tasks=None))]
    fn limit(&self, topic: Option<String>, task: Option<i32>, tasks: Option<i32>) -> PyResult<()> {
        let share = match (task, tasks) {
            (Some(task), Some(tasks)) if tasks > 0 => Some(Share { task, tasks }),
            (None, None) => None,
            _ => return Err(PyValueError::new_err("a task is one of a number of tasks")),
        };
        self.lock().limit(topic, share);
        Ok(())
    }

    fn count_only(&self) {
        self.lock().count_only(true);
    }

    fn write(
        &self,
        py: Python<'_>,
        rows: usize,
        columns: BTreeMap<String, Spec<'_>>,
        seconds: f64,
    ) -> PyResult<()> {
        let mut given = RowColumns {
            rows,
            ..RowColumns::default()
        };
        for (name, spec) in columns {
            let column = Some(column(py, spec)?);
            match name.as_str() {
                "key" => given.key = column,
                "value" => given.value = column,
                "headers" => given.headers = column,
                "topic" => given.topic = column,
                "partition" => given.partition = column,
                "timestamp" => given.timestamp = column,
                _ => return Err(PyValueError::new_err(format!("{name} is no column"))),
            }
        }
        self.call(py, seconds, |rows, deadline| rows.write(&given, deadline))
    }

    fn send(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        key: &[u8],
        value: &[u8],
    ) -> PyResult<()> {
        let target = TopicPartition::new(topic, partition);
        self.call(py, 0.0, |rows, _| rows.send(&target, key, value))
    }

    fn settle(&self, py: Python<'_>, seconds: f64) -> PyResult<Vec<WrittenTuple>> {
        self.sliced(py, seconds, |rows, deadline| {
            rows.settle(deadline)?;
            let written = rows.written().map(|(target, it)| {
                let TopicPartition { topic, partition } = target.clone();
                let digest = it.digest.hex();
                (
                    topic, partition, it.records, it.bytes, digest, it.first, it.next,
                )
            });
            Ok(written.collect())
        })
    }

    fn commit_offsets(
        &self,
        py: Python<'_>,
        group: &str,
        offsets: Vec<(String, i32, i64)>,
        seconds: f64,
    ) -> PyResult<()> {
        let mut offsets: Vec<(TopicPartition, i64)> = offsets
            .into_iter()
            .map(|(topic, partition, offset)| (TopicPartition::new(topic, partition), offset))
            .collect();
        offsets.sort();
        self.call(py, seconds, |rows, deadline| {
            rows.producer().commit_offsets(group, &offsets, deadline)?;
            Ok(())
        })
    }

    fn commit(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.sliced(py, seconds, |rows, deadline| {
            rows.producer().commit(deadline)?;
            Ok(())
        })
    }

    fn abort(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        self.sliced(py, seconds, |rows, deadline| {
            rows.abort(deadline)?;
            Ok(())
        })
    }
}

impl SinkProducer {
    fn lock(&self) -> MutexGuard<'_, RowWriter> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T: Send>(
        &self,
        py: Python<'_>,
        seconds: f64,
        work: impl FnOnce(&mut RowWriter, Instant) -> Result<T, RowError> + Send,
    ) -> PyResult<T> {
        let most = duration(seconds)?;
        let done = without_interpreter(py, || {
            let deadline = SystemClock.now() + most;
            work(&mut self.lock(), deadline)
        });
        self.interruptions.check()?;
        done.map_err(|error| rows_failed(py, &error))
    }

    /// Like [`SinkProducer::call`], for a call that resumes after a timeout; signals are seen meanwhile.
    fn sliced<T: Send>(
        &self,
        py: Python<'_>,
        seconds: f64,
        mut work: impl FnMut(&mut RowWriter, Instant) -> Result<T, RowError> + Send,
    ) -> PyResult<T> {
        let end = SystemClock.now() + duration(seconds)?;
        loop {
            let done = without_interpreter(py, || {
                let deadline = end.min(SystemClock.now() + SLICE);
                work(&mut self.lock(), deadline)
            });
            self.interruptions.check()?;
            match done {
                Err(RowError::Kafka(Error::TimedOut { .. })) if SystemClock.now() < end => {
                    py.check_signals()?;
                }
                done => return done.map_err(|error| rows_failed(py, &error)),
            }
        }
    }
}

/// Chooses partitions and tasks of rows.
#[pyclass(module = "eomirror._core")]
pub(crate) struct RowPlacer {
    tasks: i32,
    /// The topic of rows without one.
    topic: Option<String>,
    /// The value decides about a row without a key; otherwise only its task is chosen by the value.
    by_value: bool,
    counts: BTreeMap<Vec<u8>, i32>,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // how PyO3 hands tuples over
impl RowPlacer {
    #[new]
    #[pyo3(signature = (tasks, *, topic=None, by_value=false))]
    fn new(tasks: i32, topic: Option<String>, by_value: bool) -> PyResult<Self> {
        if tasks < 1 {
            return Err(PyValueError::new_err("there is at least one task"));
        }
        Ok(Self {
            tasks,
            topic,
            by_value,
            counts: BTreeMap::new(),
        })
    }

    /// Places rows: partitions and tasks, as buffers of 32-bit numbers. `count` returns the partitions of a topic.
    #[pyo3(signature = (rows, columns, count))]
    fn place<'py>(
        &mut self,
        py: Python<'py>,
        rows: usize,
        columns: BTreeMap<String, Spec<'_>>,
        count: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let mut parsed: BTreeMap<String, Column> = BTreeMap::new();
        for (name, spec) in columns {
            parsed.insert(name, column(py, spec)?);
        }
        let (keys, values) = (parsed.get("key"), parsed.get("value"));
        let (topics, chosen) = (parsed.get("topic"), parsed.get("partition"));
        let mut partitions: Vec<u8> = Vec::with_capacity(rows * 4);
        let mut tasks: Vec<u8> = Vec::with_capacity(rows * 4);
        for row in 0..rows {
            let topic = topics.and_then(|it| it.bytes(row));
            let topic = topic.or(self.topic.as_deref().map(str::as_bytes));
            let Some(topic) = topic else {
                return Err(rows_failed(
                    py,
                    &RowError::Content("a row has no topic".to_owned()),
                ));
            };
            if !self.counts.contains_key(topic) {
                let name = String::from_utf8_lossy(topic).into_owned();
                let found: i32 = count.call1((name,))?.extract()?;
                self.counts.insert(topic.to_vec(), found.max(1));
            }
            let most = self.counts.get(topic).copied().unwrap_or(1);
            let key = keys.and_then(|it| it.bytes(row));
            let value = values.and_then(|it| it.bytes(row));
            let mut open = false;
            let partition = match (chosen.and_then(|it| it.number(row)), key) {
                (Some(number), _) => {
                    let fits = i32::try_from(number).ok();
                    let fits = fits.filter(|number| (0..most).contains(number));
                    fits.ok_or_else(|| {
                        let name = String::from_utf8_lossy(topic);
                        let reason = format!(
                            "a row is for partition {number} of topic {name}, which has partitions 0 to {}",
                            most - 1
                        );
                        rows_failed(py, &RowError::Content(reason))
                    })?
                }
                (None, Some(key)) => place(Some(key), 0, most),
                // by content, so that a task that runs again does not send the row elsewhere
                (None, None) => {
                    open = !self.by_value;
                    place(Some(value.unwrap_or_default()), 0, most)
                }
            };
            let told = if open { -1 } else { partition };
            partitions.extend_from_slice(&told.to_le_bytes());
            tasks.extend_from_slice(&task_of(topic, partition, self.tasks).to_le_bytes());
        }
        Ok((PyBytes::new(py, &partitions), PyBytes::new(py, &tasks)))
    }
}

/// Copies a column out of its buffers, which are freed meanwhile or not.
fn column(py: Python<'_>, spec: Spec<'_>) -> PyResult<Column> {
    let Spec(kind, offset, length, buffers, children) = spec;
    let kind = match kind.as_str() {
        "null" => ColumnKind::Null,
        "int32" => ColumnKind::Int32,
        "int64" => ColumnKind::Int64,
        "bytes" => ColumnKind::Bytes,
        "large_bytes" => ColumnKind::LargeBytes,
        "list" => ColumnKind::List,
        _ => {
            return Err(PyValueError::new_err(format!(
                "{kind} is no kind of column"
            )));
        }
    };
    let buffers = buffers
        .iter()
        .map(|buffer| buffer.as_ref().map(|it| it.to_vec(py)).transpose())
        .collect::<PyResult<Vec<_>>>()?;
    let children = children
        .iter()
        .map(|child| column(py, child.extract()?))
        .collect::<PyResult<Vec<_>>>()?;
    Column::new(kind, offset, length, buffers, children)
        .map_err(|fault| PyValueError::new_err(fault.to_string()))
}
