//! `LogAudit`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eomirror_audit::{Audit, Finding, LogId, Report, Role, TransactionName};
use eomirror_batch::Batches;
use eomirror_kafka::{
    Assignment, Client, Clock, FetchedPartition, Fetcher, IsolationLevel, Limits, Outcome,
    SystemClock, TopicPartition,
};
use eomirror_plane::fix_of;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::detach::without_interpreter;
use crate::error::failure;
use crate::plane::{LONGEST, duration};
use crate::tokens::{self, Interruptions};

/// Minimum size of a fetch per partition, whatever their number.
const LEAST_BYTES: i32 = 16 * 1024;

/// Reads the logs of a link's target and audits them.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct LogAudit {
    work: Mutex<Option<Work>>,
    interruptions: Interruptions,
}

/// A partition and its id in the audit.
struct Partition {
    id: LogId,
    /// Fetched bytes that the audit does not want yet.
    parked: Option<FetchedPartition>,
}

struct Work {
    fetcher: Fetcher,
    limits: Limits,
    clock: Arc<SystemClock>,
    audit: Audit,
    partitions: BTreeMap<TopicPartition, Partition>,
    assigned: bool,
    bytes: u64,
}

/// Reason that a step failed.
enum Trouble {
    Plane(eomirror_kafka::Error),
    Log { message: String, fix: &'static str },
}

#[pymethods]
impl LogAudit {
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
        let work: Result<Work, eomirror_kafka::Error> = without_interpreter(py, || {
            let properties = tokens::parse(properties, tokens, &interruptions)?;
            let limits = Limits::from_properties(&properties);
            let clock = Arc::new(SystemClock);
            let deadline = clock.now() + wait;
            let client = Client::connect(properties, clock.clone(), deadline)?;
            Ok(Work {
                fetcher: Fetcher::new(client, IsolationLevel::ReadUncommitted, limits),
                limits,
                clock,
                audit: Audit::default(),
                partitions: BTreeMap::new(),
                assigned: false,
                bytes: 0,
            })
        });
        interruptions.check()?;
        match work {
            Ok(work) => Ok(Self {
                work: Mutex::new(Some(work)),
                interruptions,
            }),
            Err(error) => Err(failure(py, &error.to_string(), fix_of(&error))),
        }
    }

    fn add(
        &self,
        topic: &str,
        partition: i32,
        role: &str,
        start: i64,
        end: i64,
        topic_id: &str,
    ) -> PyResult<()> {
        let role = match role {
            "data" => Role::Data,
            "positions" => Role::Positions,
            "offset-map" => Role::OffsetMap,
            _ => return Err(PyValueError::new_err(format!("{role} is not a role"))),
        };
        self.with(|work| {
            let id = work.audit.add(topic, partition, role, start, end);
            work.audit.identify(id, topic_id);
            let partition = TopicPartition::new(topic, partition);
            work.partitions
                .insert(partition, Partition { id, parked: None });
        })
    }

    fn learn(&self, producer_id: i64) -> PyResult<()> {
        self.with(|work| work.audit.learn(producer_id))
    }

    fn step(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let wait = duration(seconds)?.min(LONGEST);
        let stepped = without_interpreter(py, || {
            let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
            work.as_mut().map(|work| work.step(wait))
        });
        self.interruptions.check()?;
        match stepped {
            None => Err(finished()),
            Some(Ok(done)) => Ok(done),
            Some(Err(Trouble::Plane(error))) => {
                Err(failure(py, &error.to_string(), fix_of(&error)))
            }
            Some(Err(Trouble::Log { message, fix })) => Err(failure(py, &message, fix)),
        }
    }

    fn progress(&self) -> PyResult<(u64, usize)> {
        self.with(|work| (work.bytes, work.audit.pending()))
    }

    fn finish<'py>(&self, py: Python<'py>, at_rest: bool) -> PyResult<Bound<'py, PyDict>> {
        let taken = self
            .work
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let work = taken.ok_or_else(finished)?;
        let report = without_interpreter(py, || work.audit.finish(at_rest));
        told(py, &report)
    }
}

impl LogAudit {
    fn with<T>(&self, act: impl FnOnce(&mut Work) -> T) -> PyResult<T> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.as_mut().map(act).ok_or_else(finished)
    }
}

impl Work {
    fn step(&mut self, wait: Duration) -> Result<bool, Trouble> {
        if !self.assigned {
            self.assign();
        }
        self.feed_parked()?;
        if self.is_done() {
            return Ok(true);
        }
        let deadline = self.clock.now() + wait;
        for fetched in self.fetcher.poll(deadline).map_err(Trouble::Plane)? {
            if let Some(partition) = self.partitions.get_mut(&fetched.partition) {
                partition.parked = Some(fetched);
            }
        }
        self.feed_parked()?;
        Ok(self.is_done())
    }

    /// Assigns the unfinished partitions, so no fetch is wasted on finished ones.
    fn assign(&mut self) {
        let assignments: Vec<_> = self
            .partitions
            .iter()
            .filter(|(_, partition)| self.audit.is_unfinished(partition.id))
            .map(|(name, partition)| {
                Assignment::new(
                    name.topic.clone(),
                    name.partition,
                    self.audit.position(partition.id),
                )
            })
            .collect();
        self.fetcher.limit(shared(self.limits, assignments.len()));
        self.fetcher.assign(&assignments);
        self.assigned = true;
    }

    fn is_done(&self) -> bool {
        let mut partitions = self.partitions.values();
        partitions.all(|partition| !self.audit.is_unfinished(partition.id))
    }

    /// Feeds wanted batches; a batch of one partition may make another partition wanted.
    fn feed_parked(&mut self) -> Result<(), Trouble> {
        loop {
            let wanted = self.partitions.iter_mut().find_map(|(name, partition)| {
                let wanted = partition.parked.is_some() && self.audit.wants(partition.id);
                wanted.then(|| (name.clone(), partition.id, partition.parked.take()))
            });
            let Some((name, id, Some(fetched))) = wanted else {
                return Ok(());
            };
            self.feed(&name, id, &fetched)?;
        }
    }

    fn feed(
        &mut self,
        name: &TopicPartition,
        id: LogId,
        fetched: &FetchedPartition,
    ) -> Result<(), Trouble> {
        let records = match &fetched.outcome {
            Outcome::Records(records) => &records.records,
            Outcome::Stopped(stop) => {
                return Err(Trouble::Log {
                    message: format!("{name}: the audit cannot continue: {stop}"),
                    fix: "run the audit again; if the error persists, check for changes of the topic",
                });
            }
        };
        let mut epoch = -1;
        for batch in Batches::new(records) {
            let fed = batch.and_then(|batch| {
                // batches after the end belong to a later cut
                if self.audit.is_unfinished(id) {
                    epoch = batch.leader_epoch();
                    self.audit.feed(id, &batch)?;
                }
                Ok(())
            });
            if let Err(error) = fed {
                return Err(Trouble::Log {
                    message: format!("{name}: {error}"),
                    fix: "read the partition with another client: if that fails too, the log is corrupt",
                });
            }
        }
        self.bytes += records.len() as u64;
        if self.audit.is_unfinished(id) {
            self.fetcher.advance(name, self.audit.position(id), epoch);
        }
        Ok(())
    }
}

/// Returns the fetch limits for a number of partitions. A partition's data waits until its counterpart is read, and the
/// last response of each is never returned. A common budget would be used up by waiting and finished partitions, and
/// those that they wait for would never be fetched. So each partition has its own part of the budget, and holds one
/// response of that size.
fn shared(limits: Limits, partitions: usize) -> Limits {
    let all = usize::try_from(limits.budget).unwrap_or(usize::MAX);
    let each = i32::try_from(all / partitions.max(1)).unwrap_or(i32::MAX);
    Limits {
        budget: u64::MAX,
        partition_bytes: each.max(LEAST_BYTES).min(limits.partition_bytes),
        ..limits
    }
}

fn finished() -> PyErr {
    PyValueError::new_err("the audit is finished")
}

fn told<'py>(py: Python<'py>, report: &Report) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("transactions", report.transactions)?;
    told.set_item("records", report.records)?;
    told.set_item("positions", report.positions)?;
    told.set_item("advances", report.advances)?;
    told.set_item("set_positions", report.set)?;
    told.set_item("claims", report.claims)?;
    told.set_item("aborted", report.aborted)?;
    told.set_item("foreign_records", report.foreign_records)?;
    told.set_item("foreign_producers", report.foreign_producers)?;
    told.set_item("unproven_records", report.unproven.records)?;
    told.set_item("unproven_positions", report.unproven.positions)?;
    told.set_item("under_way", report.unproven.under_way)?;
    let counts = PyDict::new(py);
    for (fault, count) in &report.counts {
        counts.set_item(fault.name(), count)?;
    }
    told.set_item("counts", counts)?;
    let findings = PyList::empty(py);
    for finding in &report.findings {
        findings.append(finding_told(py, finding)?)?;
    }
    told.set_item("findings", findings)?;
    let since = PyList::empty(py);
    for item in &report.since {
        let one = PyDict::new(py);
        one.set_item("topic", &*item.topic)?;
        one.set_item("partition", item.partition)?;
        one.set_item("offset", item.offset)?;
        one.set_item("transaction", name_told(py, &item.transaction)?)?;
        since.append(one)?;
    }
    told.set_item("since", since)?;
    let unread: Vec<(&str, i32)> = report
        .unread
        .iter()
        .map(|(topic, partition)| (&**topic, *partition))
        .collect();
    told.set_item("unread", unread)?;
    let spread = report.widest_spread.as_ref();
    told.set_item("widest_spread_ms", spread.map(|(spread, _)| *spread))?;
    let widest = spread.map(|(_, name)| name_told(py, name)).transpose()?;
    told.set_item("widest_spread_transaction", widest)?;
    Ok(told)
}

fn finding_told<'py>(py: Python<'py>, finding: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("fault", finding.fault.name())?;
    told.set_item("topic", &*finding.place.topic)?;
    told.set_item("partition", finding.place.partition)?;
    told.set_item("offset", finding.place.offset)?;
    told.set_item("producer_id", finding.producer.id)?;
    told.set_item("producer_epoch", finding.producer.epoch)?;
    let name = finding.transaction.as_ref();
    told.set_item(
        "transaction",
        name.map(|name| name_told(py, name)).transpose()?,
    )?;
    told.set_item("detail", &finding.detail)?;
    Ok(told)
}

fn name_told<'py>(py: Python<'py>, name: &TransactionName) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("run", &*name.run)?;
    told.set_item("lane", name.lane)?;
    told.set_item("epoch", name.epoch)?;
    told.set_item("attempt", name.attempt)?;
    told.set_item("txn", name.txn)?;
    told.set_item("producer_id", name.producer.id)?;
    told.set_item("producer_epoch", name.producer.epoch)?;
    Ok(told)
}
