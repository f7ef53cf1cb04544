//! `NativeLane`: a lane of the native plane, for the thread that made it.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use eomirror_batch::Mark;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::relay::{Holes, Target, TopicPolicy};
use eomirror_kafka::{
    Clock, ProducerSettings, Protocol, SystemClock, Throttled, TopicId, TopicPartition,
};
use eomirror_plane::lane::{
    Account, Failure, FailureKind, History, Lane, Route, Settings, Start, StateRecord,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::{lane_failed, raise};
use crate::partition_account::PartitionAccount;
use crate::plane::duration;
use crate::tokens::{self, Interruptions};
use crate::transform::Transform;

/// Longest time without a check for signals.
const SLICE: Duration = Duration::from_millis(50);

/// The same where a signal ends the wait: one that another thread of the process took does not.
const LONG_SLICE: Duration = Duration::from_secs(1);

/// Base offset, checksum and largest timestamp of a batch.
type MarkTuple = (i64, u32, i64);

/// The batch before the position, the treatment of holes, skipped offsets.
type HistoryTuple = (Option<MarkTuple>, String, u64);

/// Topic, partition, first offset, leader epoch, its offset, topic id, known part of the log.
type StartTuple = (
    String,
    i32,
    i64,
    Option<i32>,
    Option<i64>,
    Option<String>,
    HistoryTuple,
);

/// Topic, partition, key, value.
type RecordTuple = (String, i32, Vec<u8>, Option<Vec<u8>>);

/// Answers that requested a pause, and the total pause in seconds.
type ThrottledTuple = (u64, f64);
/// Topic, partition, seconds since the stall began, reason.
type StalledTuple = (String, i32, f64, String);

/// The batch before the position, skipped offsets, whether the log was compacted, holes.
type SeenTuple = (Option<MarkTuple>, u64, bool, Vec<(i64, i64)>);

/// Topic, partition, next offset, leader epoch, known part of the log.
type AdvanceTuple = (String, i32, i64, Option<i32>, SeenTuple);

/// Moves one lane's records through the native plane.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct NativeLane {
    /// The process that made it: a forked child shares its sockets and must not touch them.
    process: u32,
    source_cluster: String,
    target_cluster: String,
    header: bool,
    guard: bool,
    origins: Option<HashSet<String>>,
    origin: Option<String>,
    transform: Option<Arc<eomirror_core::transform::Transform>>,
    lane: Mutex<Option<Lane>>,
    interruptions: Interruptions,
}

#[pymethods]
impl NativeLane {
    #[new]
    #[pyo3(signature = (
        source, target, *, transactional_id, transaction_timeout, source_cluster_id, target_cluster_id,
        header=false, guard=false, origins=None, origin=None, source_tokens=None, target_tokens=None,
        transform=None
    ))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        py: Python<'_>,
        source: BTreeMap<String, String>,
        target: BTreeMap<String, String>,
        transactional_id: String,
        transaction_timeout: f64,
        source_cluster_id: String,
        target_cluster_id: String,
        header: bool,
        guard: bool,
        origins: Option<Vec<String>>,
        origin: Option<String>,
        source_tokens: Option<Py<PyAny>>,
        target_tokens: Option<Py<PyAny>>,
        transform: Option<&Transform>,
    ) -> PyResult<Self> {
        let timeout = duration(transaction_timeout)?;
        let interruptions = Interruptions::default();
        let lane = without_interpreter(py, || {
            let parse =
                |given, tokens| tokens::parse(given, tokens, &interruptions).map_err(Failure::from);
            let source = parse(source, source_tokens)?;
            let target = parse(target, target_tokens)?;
            let mut producer = ProducerSettings::new(transactional_id, &target);
            producer.transaction_timeout = timeout;
            Lane::new(
                Settings::new(source, target, producer),
                Arc::new(SystemClock),
            )
        });
        Ok(Self {
            process: std::process::id(),
            source_cluster: source_cluster_id,
            target_cluster: target_cluster_id,
            header,
            guard,
            origins: origins.map(HashSet::from_iter),
            origin,
            transform: transform.map(|given| Arc::clone(&given.rules)),
            lane: Mutex::new(Some(lane.map_err(|failure| lane_failed(py, &failure))?)),
            interruptions,
        })
    }

    #[staticmethod]
    fn failure_kinds() -> Vec<&'static str> {
        FailureKind::ALL.iter().map(|kind| kind.name()).collect()
    }

    #[pyo3(signature = (source_topic, target_topic, *, target_id, max_batch_bytes, partitions=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn route(
        &self,
        py: Python<'_>,
        source_topic: &str,
        target_topic: &str,
        target_id: Option<&str>,
        max_batch_bytes: usize,
        partitions: Option<i32>,
    ) -> PyResult<()> {
        let guard = LoopGuard::new(
            &self.source_cluster,
            &self.target_cluster,
            self.origins.clone(),
            self.guard,
        )
        .map_err(|error| raise(py, &error))?;
        let policy = TopicPolicy::new(
            source_topic,
            target_topic,
            guard,
            self.header,
            HashSet::new(),
        )
        .map_err(|error| raise(py, &error))?;
        let policy = match &self.origin {
            Some(alias) => policy.with_origin(alias),
            None => policy,
        };
        let rules = self.transform.as_ref();
        let policy = policy.with_transform(rules.and_then(|rules| rules.of_topic(source_topic)));
        // CreateTime also when the target sets its own times now: its setting may change at any moment, and a batch
        // sent with the source's append times would then show other ones.
        let target = Target {
            max_batch_bytes,
            ..Target::default()
        };
        let target = partitions.map_or(target, |count| target.placed(count));
        let target_id = target_id.map(topic_id).transpose()?;
        self.with(py, |lane| {
            lane.route(Route {
                policy,
                target,
                target_id,
            });
            Ok(())
        })
    }

    fn open(&self, py: Python<'_>, seconds: f64) -> PyResult<(i64, i16)> {
        let most = duration(seconds)?;
        self.with(py, Lane::begin_open)?;
        let identity = self.sliced(py, most, Lane::open)?;
        Ok((identity.producer_id, identity.epoch))
    }

    fn start(&self, py: Python<'_>, starts: Vec<StartTuple>) -> PyResult<()> {
        let starts: Vec<Start> = starts
            .into_iter()
            .map(
                |(topic, partition, offset, leader_epoch, epoch_offset, id, history)| {
                    Ok(Start {
                        partition: TopicPartition::new(topic, partition),
                        offset,
                        leader_epoch,
                        epoch_offset,
                        topic_id: id.as_deref().map(topic_id).transpose()?,
                        history: known(history)?,
                    })
                },
            )
            .collect::<PyResult<_>>()?;
        self.with(py, |lane| lane.start(&starts))
    }

    fn stop(&self, py: Python<'_>, partitions: Vec<(String, i32)>) -> PyResult<()> {
        let stopped = partitions.into_iter();
        let partitions: Vec<TopicPartition> = stopped
            .map(|(topic, partition)| TopicPartition::new(topic, partition))
            .collect();
        self.with(py, |lane| {
            lane.stop(&partitions);
            Ok(())
        })
    }

    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |lane| {
            lane.restart();
            Ok(())
        })
    }

    #[pyo3(signature = (seconds, other=None))]
    fn await_records(&self, py: Python<'_>, seconds: f64, other: Option<RawFd>) -> PyResult<bool> {
        let end = now() + duration(seconds)?;
        // SAFETY: the caller holds its socket open during the call.
        #[allow(unsafe_code)]
        let other = other.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
        loop {
            py.check_signals()?;
            // a signal that another thread takes ends no wait of this one
            let until = end.min(now() + if other.is_some() { LONG_SLICE } else { SLICE });
            if self.with(py, |lane| lane.await_records(until, other))? {
                return Ok(true);
            }
            // before the end: something other than records came
            if now() >= end || (other.is_some() && now() < until) {
                py.check_signals()?;
                return Ok(false);
            }
        }
    }

    fn advances(&self, py: Python<'_>) -> PyResult<Vec<AdvanceTuple>> {
        self.with(py, |lane| {
            let advances = lane.advances().into_iter();
            Ok(advances
                .map(|one| {
                    let TopicPartition { topic, partition } = one.partition;
                    let holes = one.holes.iter().map(|hole| (hole.start, hole.end));
                    let mark = one
                        .mark
                        .map(|mark| (mark.base_offset, mark.crc, mark.max_timestamp));
                    let seen = (mark, one.missing, one.compacted, holes.collect());
                    (topic, partition, one.offset, one.leader_epoch, seen)
                })
                .collect())
        })
    }

    fn log_ends(&self, py: Python<'_>) -> PyResult<Vec<(String, i32, i64)>> {
        self.with(py, |lane| {
            let ends = lane.log_ends().into_iter();
            Ok(ends
                .map(|(at, end)| (at.topic.clone(), at.partition, end))
                .collect())
        })
    }

    fn pinned(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.with(py, |lane| {
            let pinned = lane.pinned().into_iter();
            Ok(pinned.map(ToString::to_string).collect())
        })
    }

    fn begin(&self, py: Python<'_>, seconds: f64) -> PyResult<(i64, i16)> {
        let identity = self.sliced(py, duration(seconds)?, Lane::begin)?;
        Ok((identity.producer_id, identity.epoch))
    }

    fn pump(&self, py: Python<'_>, seconds: f64, most: u64) -> PyResult<(u64, u64, bool, bool)> {
        let end = now() + duration(seconds)?;
        let (mut records, mut bytes) = (0, 0);
        loop {
            py.check_signals()?;
            let pumped = self.with(py, |lane| lane.pump(end.min(now() + SLICE), most))?;
            records += pumped.records;
            bytes += pumped.bytes;
            if pumped.drained || pumped.full || now() >= end {
                return Ok((records, bytes, pumped.drained, pumped.full));
            }
        }
    }

    fn write(&self, py: Python<'_>, records: Vec<RecordTuple>, timestamp: i64) -> PyResult<()> {
        let records: Vec<StateRecord> = records
            .into_iter()
            .map(|(topic, partition, key, value)| StateRecord {
                target: TopicPartition::new(topic, partition),
                key,
                value,
            })
            .collect();
        self.with(py, |lane| lane.write(&records, timestamp))
    }

    fn settle(&self, py: Python<'_>, seconds: f64) -> PyResult<Vec<PartitionAccount>> {
        let accounts = self.sliced(py, duration(seconds)?, Lane::settle)?;
        Ok(accounts
            .into_iter()
            .map(|account| PartitionAccount::new(py, told(account)))
            .collect())
    }

    fn has_more(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, Lane::has_more)
    }

    fn speculative_accounts(&self, py: Python<'_>) -> PyResult<Option<Vec<PartitionAccount>>> {
        let accounts = self.with(py, |lane| Ok(lane.speculative_accounts()))?;
        Ok(accounts.map(|accounts| {
            accounts
                .into_iter()
                .map(|account| PartitionAccount::new(py, told(account)))
                .collect()
        }))
    }

    fn commit(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        self.sliced(py, duration(seconds)?, |lane, until| {
            if lane.commit(until)? {
                lane.leaders_moved().map(|moved| Some(!moved))
            } else {
                Ok(None)
            }
        })
    }

    fn abort(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let end = now() + duration(seconds)?;
        loop {
            py.check_signals()?;
            if self.with(py, |lane| lane.abort(end.min(now() + SLICE)))? {
                return Ok(true);
            }
            if now() >= end {
                return Ok(false);
            }
        }
    }

    fn throttled(&self, py: Python<'_>) -> PyResult<(ThrottledTuple, ThrottledTuple)> {
        let told = |one: Throttled| (one.answers, one.time.as_secs_f64());
        let (source, target) = self.with(py, |lane| Ok(lane.throttled()))?;
        Ok((told(source), told(target)))
    }

    fn protocol(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.with(py, |lane| Ok(lane.protocol().map_or("", Protocol::name)))
    }

    fn stalled(&self, py: Python<'_>) -> PyResult<Vec<StalledTuple>> {
        let now = now();
        self.with(py, |lane| {
            let stalled = lane.stalled().into_iter();
            Ok(stalled
                .map(|one| {
                    let TopicPartition { topic, partition } = one.partition;
                    let lasted = now.saturating_duration_since(one.since).as_secs_f64();
                    (topic, partition, lasted, one.reason)
                })
                .collect())
        })
    }

    fn close(&self, py: Python<'_>) {
        // a call of another thread may hold the lane and wait for the interpreter, for a token
        without_interpreter(py, || drop(self.lock().take()));
    }
}

impl NativeLane {
    fn lock(&self) -> MutexGuard<'_, Option<Lane>> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one call of the lane without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut Lane) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        let called = without_interpreter(py, || {
            let mut guard = self.lock();
            if std::process::id() != self.process {
                return Err(Failure::bug(
                    "this lane was made in another process, and a forked child must not use its connections",
                ));
            }
            match guard.as_mut() {
                Some(lane) => call(lane),
                None => Err(Failure::bug("this lane is closed")),
            }
        });
        self.interruptions.check()?;
        called.map_err(|failure| lane_failed(py, &failure))
    }

    /// Repeats a call of the lane in slices, checking signals in between, until it returns a result.
    fn sliced<T: Send>(
        &self,
        py: Python<'_>,
        most: Duration,
        mut call: impl FnMut(&mut Lane, Instant) -> Result<Option<T>, Failure> + Send,
    ) -> PyResult<T> {
        let end = now() + most;
        loop {
            py.check_signals()?;
            if let Some(answer) = self.with(py, |lane| call(lane, end.min(now() + SLICE)))? {
                return Ok(answer);
            }
            if now() >= end {
                return self.with(py, |lane| Err(lane.overdue(most)));
            }
        }
    }
}

fn now() -> Instant {
    SystemClock.now()
}

/// Converts the known part of a log from Python.
fn known((mark, holes, missing): HistoryTuple) -> PyResult<History> {
    let holes = match holes.as_str() {
        "count" => Holes::Count,
        "name" => Holes::Name,
        "stop" => Holes::Stop,
        other => {
            return Err(PyValueError::new_err(format!(
                "{other:?} is no way to treat holes"
            )));
        }
    };
    let mark = mark.map(|(base_offset, crc, max_timestamp)| Mark {
        base_offset,
        crc,
        max_timestamp,
    });
    Ok(History {
        mark,
        holes,
        missing,
    })
}

pub(crate) fn topic_id(text: &str) -> PyResult<TopicId> {
    TopicId::parse(text).ok_or_else(|| PyValueError::new_err(format!("{text:?} is no topic id")))
}

/// Converts an account to the form of the client plane. The digest stays empty, because a relayed batch is not read.
fn told(account: Account) -> eomirror_core::PartitionAccount {
    let (first, last) = account.target_offsets.unwrap_or((-1, -1));
    eomirror_core::PartitionAccount {
        source_topic: account.source.topic,
        source_partition: account.source.partition,
        fetched: account.fetched,
        acked: account.acknowledged,
        bytes: account.bytes,
        dropped: account.dropped,
        changed: account.changed,
        copied_headers: account.copied_headers,
        first_source_offset: account.first_source_offset,
        last_source_offset: account.next_source_offset - 1,
        leader_epoch: -1,
        timestamp: account.timestamp,
        target_topic: account.target.topic,
        target_partition: account.target.partition,
        first_target_offset: first,
        last_target_offset: last,
        placed: account.placed,
        offset_map: account.offset_map,
        digest: String::new(),
        tail: None,
        jumps: Vec::new(),
    }
}
