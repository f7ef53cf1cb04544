//! `PartitionComparison`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eomirror_core::batch::AbortedTransaction;
use eomirror_core::compare::{Comparison, Difference, Limits, Side};
use eomirror_core::content::{Content, Counts, Part};
use eomirror_core::final_state::FinalState;
use eomirror_core::loop_guard::LoopGuard;
use eomirror_plane::{
    Assignment, Clock, FetchedRecords, Fetcher, Outcome, SystemClock, TopicPartition, wait,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::convert::Batch;
use crate::detach::without_interpreter;
use crate::error::{plane_failed, raise, topic_failed};
use crate::plane::{PlaneReader, Reading, duration};

/// No call holds the caller up for longer, so that Python sees signals.
const LONGEST: Duration = Duration::from_millis(100);

/// Differences that wait to be taken; more are only counted.
const KEPT: usize = 1000;

static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// One side of a comparison.
struct Half {
    partition: TopicPartition,
    content: Content,
    /// Records from here on are read to excuse what compaction did, and not compared.
    end: i64,
    parked: Option<FetchedRecords>,
    empty_answers: u32,
}

enum Judge {
    InOrder(Comparison),
    ByKey(FinalState),
}

struct Work {
    number: u64,
    source: Half,
    target: Half,
    judge: Judge,
    matched: u64,
    found: Vec<Difference>,
    counts: [u64; 5],
    finished: bool,
}

enum Trouble {
    Plane(eomirror_plane::Error),
    Topic { topic: String, message: String },
}

/// Compares a source partition with its copy.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PartitionComparison {
    work: Mutex<Work>,
}

/// Topic, partition, first offset, end of what is compared, end of what is read.
type Range = (String, i32, i64, i64, i64);

#[pymethods]
impl PartitionComparison {
    #[new]
    #[pyo3(signature = (source, target, *, timestamps=true, guard=None, by_key=None, letters=Vec::new(), window=4096, history=65536))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        py: Python<'_>,
        source: Range,
        target: Range,
        timestamps: bool,
        guard: Option<(String, String, Option<Vec<String>>)>,
        by_key: Option<(usize, u64, u64)>,
        letters: Vec<(i64, u64)>,
        window: usize,
        history: usize,
    ) -> PyResult<Self> {
        let (forwarded, mirrored) = match guard {
            None => (Part::All, Part::All),
            Some((from, to, origins)) => {
                let origins = origins.map(|ids| ids.into_iter().collect());
                let guard =
                    LoopGuard::new(&from, &to, origins, true).map_err(|error| raise(py, &error))?;
                (Part::Forwarded(guard), Part::From(from))
            }
        };
        let judge = match by_key {
            None => Judge::InOrder(Comparison::new(Limits { window, history })),
            Some((most, share, shares)) => Judge::ByKey(FinalState::new(most, (share, shares))),
        };
        let mut source = Half::new(source, forwarded, timestamps);
        source.content.leave_out(letters);
        Ok(Self {
            work: Mutex::new(Work {
                number: NUMBERS.fetch_add(1, Ordering::Relaxed),
                source,
                target: Half::new(target, mirrored, timestamps),
                judge,
                matched: 0,
                found: Vec::new(),
                counts: [0; 5],
                finished: false,
            }),
        })
    }

    /// Reads and compares for at most `seconds`, and never longer than a tenth of one; whether it is finished.
    fn step(
        &self,
        py: Python<'_>,
        source: &PlaneReader,
        target: &PlaneReader,
        seconds: f64,
    ) -> PyResult<bool> {
        if std::ptr::eq(source, target) {
            return Err(PyValueError::new_err("one reader cannot serve both sides"));
        }
        let most = duration(seconds)?.min(LONGEST);
        let stepped = without_interpreter(py, || {
            self.lock()
                .step(&mut source.lock(), &mut target.lock(), most)
        });
        stepped.map_err(|trouble| match trouble {
            Trouble::Plane(error) => plane_failed(py, &error),
            Trouble::Topic { topic, message } => failed(py, &topic, &message),
        })
    }

    /// Whether more messages of a side are needed, for a caller who brings them.
    fn wants(&self, side: &str) -> PyResult<bool> {
        let side = side_of(side)?;
        let mut work = self.lock();
        Ok(!work.half(side).content.is_done() && work.judge.wants(side))
    }

    /// Takes committed messages of a side from another client; `reached` is its position behind them.
    fn feed(
        &self,
        side: &str,
        messages: &Bound<'_, PyList>,
        reached: Option<i64>,
    ) -> PyResult<bool> {
        let side = side_of(side)?;
        let batch = Batch::read(messages)?;
        let headers = batch.header_refs()?;
        let records = batch.record_refs(&headers)?;
        let mut work = self.lock();
        let Work {
            source,
            target,
            judge,
            ..
        } = &mut *work;
        let half = if side == Side::Source { source } else { target };
        for record in &records {
            match half.content.take(record) {
                Ok(Some(entry)) => judge.add(side, &entry, half.end),
                Ok(None) => {}
                Err(message) => {
                    return Err(failed(messages.py(), &half.partition.topic, &message));
                }
            }
            half.content.skip_to(record.offset + 1);
        }
        if let Some(reached) = reached {
            half.content.skip_to(reached);
        }
        Ok(work.conclude())
    }

    /// Both sides have more; only for records compared in their order.
    #[pyo3(signature = (source_end, target_end, letters=Vec::new()))]
    fn extend(&self, source_end: i64, target_end: i64, letters: Vec<(i64, u64)>) {
        let mut work = self.lock();
        work.finished = false;
        // the readers were told of the old end, and may wait there
        work.number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        work.source.content.leave_out(letters);
        for (half, end) in [(Side::Source, source_end), (Side::Target, target_end)] {
            let half = work.half(half);
            half.content.extend(end);
            half.end = half.end.max(end);
        }
        if let Judge::InOrder(comparison) = &mut work.judge {
            comparison.reopen();
        }
    }

    /// Source and target offset at which another comparison could go on, if there is such a place now.
    fn resume_at(&self) -> Option<(i64, i64)> {
        let work = self.lock();
        match &work.judge {
            Judge::InOrder(_) if work.finished => {
                Some((work.source.content.next(), work.target.content.next()))
            }
            Judge::InOrder(comparison) => comparison.resume_at(),
            Judge::ByKey(_) => None,
        }
    }

    /// Differences found since the last call: kind, source offset, target offset.
    fn take(&self) -> Vec<(&'static str, Option<i64>, Option<i64>)> {
        let found = std::mem::take(&mut self.lock().found);
        found.into_iter().map(told).collect()
    }

    /// Whether the keys are too many for one share; the result would be wrong.
    #[getter]
    fn too_many_keys(&self) -> bool {
        matches!(&self.lock().judge, Judge::ByKey(state) if state.is_full())
    }

    /// What was read and found so far.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let work = self.lock();
        let told = PyDict::new(py);
        told.set_item("matched", work.matched())?;
        let kinds = ["missing", "duplicate", "reordered", "altered", "foreign"];
        let differences = PyDict::new(py);
        for (kind, count) in kinds.iter().zip(work.counts) {
            differences.set_item(kind, count)?;
        }
        told.set_item("differences", differences)?;
        let sides = [
            ("source", &work.source, Side::Source),
            ("target", &work.target, Side::Target),
        ];
        for (name, half, side) in sides {
            // what is not judged yet is not counted: a comparison that goes on from here reads it again
            let waiting = match &work.judge {
                Judge::InOrder(comparison) => comparison.waiting(side) as u64,
                Judge::ByKey(_) => 0,
            };
            let Counts {
                records,
                bytes,
                aborted,
                control,
                left_out,
            } = half.content.counts();
            let one = PyDict::new(py);
            one.set_item("records", records.saturating_sub(waiting))?;
            one.set_item("bytes", bytes)?;
            one.set_item("aborted", aborted)?;
            one.set_item("control", control)?;
            one.set_item("left_out", left_out)?;
            one.set_item("position", half.content.next())?;
            told.set_item(name, one)?;
        }
        Ok(told)
    }
}

impl PartitionComparison {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Half {
    fn new((topic, partition, start, end, tail): Range, part: Part, timestamps: bool) -> Self {
        Self {
            content: Content::new(&topic, start..tail.max(end), part, timestamps),
            partition: TopicPartition::new(topic, partition),
            end,
            parked: None,
            empty_answers: 0,
        }
    }

    fn assign(&self, fetcher: &mut Fetcher) {
        let TopicPartition { topic, partition } = &self.partition;
        let next = self.content.next();
        // the fetcher goes on undisturbed with a partition that it reads from this offset already; but where it has
        // told its answer to a comparison before this one, it would wait for that to take it
        fetcher.assign(&[]);
        fetcher.assign(&[Assignment::new(topic.clone(), *partition, next)]);
    }

    fn trouble(&self, message: impl std::fmt::Display) -> Trouble {
        Trouble::Topic {
            topic: self.partition.topic.clone(),
            message: format!("{}@{}: {message}", self.partition, self.content.next()),
        }
    }

    /// Takes what has arrived, without waiting.
    fn receive(&mut self, fetcher: &mut Fetcher) -> Result<(), Trouble> {
        let now = SystemClock.now();
        for fetched in fetcher.poll(now).map_err(Trouble::Plane)? {
            if fetched.partition != self.partition || fetched.offset != self.content.next() {
                continue;
            }
            match fetched.outcome {
                Outcome::Records(records) => self.parked = Some(records),
                Outcome::Stopped(stop) => return Err(self.trouble(stop)),
            }
        }
        Ok(())
    }

    /// Digests what is parked; false when nothing was.
    fn digest(
        &mut self,
        side: Side,
        judge: &mut Judge,
        fetcher: &mut Fetcher,
    ) -> Result<bool, Trouble> {
        if !judge.wants(side) {
            return Ok(false);
        }
        let Some(answer) = self.parked.take() else {
            return Ok(false);
        };
        if answer.records.is_empty() {
            self.empty_answers += 1;
            // nothing is left of the last batches, and the log goes on behind them: compaction does that
            if self.empty_answers > 1 && answer.last_stable_offset >= self.end {
                let end = self.end.max(answer.last_stable_offset);
                self.content.skip_to(end);
            }
        } else {
            self.empty_answers = 0;
        }
        let aborted = answer
            .aborted
            .unwrap_or_default()
            .into_iter()
            .map(|entry| AbortedTransaction {
                producer_id: entry.producer_id,
                first_offset: entry.first_offset,
            })
            .collect();
        let end = self.end;
        let read = self.content.read(&answer.records, aborted, |entry| {
            judge.add(side, &entry, end);
        });
        let epoch = read.map_err(|reason| self.trouble(reason))?;
        if !self.content.is_done() {
            fetcher.advance(&self.partition, self.content.next(), epoch);
            // the broker works on the next answer while this one's other side is worked on
            fetcher.step().map_err(Trouble::Plane)?;
        }
        Ok(true)
    }
}

impl Judge {
    fn wants(&self, side: Side) -> bool {
        match self {
            Self::InOrder(comparison) => comparison.wants(side),
            Self::ByKey(state) => !state.is_full(),
        }
    }

    fn add(&mut self, side: Side, entry: &eomirror_core::content::Entry, end: i64) {
        match self {
            Self::InOrder(comparison) if entry.ours => comparison.add(side, [entry.seen]),
            Self::InOrder(_) => {}
            Self::ByKey(state) => state.add(side, entry, entry.seen.offset < end),
        }
    }
}

impl Work {
    fn half(&mut self, side: Side) -> &mut Half {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }

    fn matched(&self) -> u64 {
        match &self.judge {
            Judge::InOrder(comparison) => comparison.matched(),
            Judge::ByKey(_) => self.matched,
        }
    }

    fn step(
        &mut self,
        source: &mut Reading,
        target: &mut Reading,
        most: Duration,
    ) -> Result<bool, Trouble> {
        for (reading, half) in [(&mut *source, &self.source), (&mut *target, &self.target)] {
            if reading.assigned_by != self.number {
                half.assign(&mut reading.fetcher);
                reading.assigned_by = self.number;
            }
        }
        let (source, target) = (&mut source.fetcher, &mut target.fetcher);
        let deadline = SystemClock.now() + most;
        loop {
            let mut moved = false;
            if !self.source.content.is_done() {
                self.source.receive(source)?;
                moved |= self.source.digest(Side::Source, &mut self.judge, source)?;
            }
            if !self.target.content.is_done() {
                self.target.receive(target)?;
                moved |= self.target.digest(Side::Target, &mut self.judge, target)?;
            }
            if self.conclude() {
                return Ok(true);
            }
            let now = SystemClock.now();
            if now >= deadline {
                return Ok(false);
            }
            if !moved {
                let until = [source.wakes_at(), target.wakes_at()]
                    .into_iter()
                    .flatten()
                    .fold(deadline, std::cmp::min);
                wait(
                    &mut [source.network(), target.network()],
                    &SystemClock,
                    until,
                );
            }
        }
    }

    /// Compares as far as possible; whether all is compared.
    fn conclude(&mut self) -> bool {
        if self.finished {
            return true;
        }
        let (source_done, target_done) =
            (self.source.content.is_done(), self.target.content.is_done());
        let (found, finished) = match &mut self.judge {
            Judge::InOrder(comparison) => {
                if source_done {
                    comparison.end(Side::Source);
                }
                if target_done {
                    comparison.end(Side::Target);
                }
                (comparison.step(), source_done && target_done)
            }
            Judge::ByKey(state) if state.is_full() => (Vec::new(), true),
            Judge::ByKey(state) if source_done && target_done => {
                let outcome = state.finish();
                self.matched = outcome.matched;
                (outcome.differences, true)
            }
            Judge::ByKey(_) => (Vec::new(), false),
        };
        for difference in found {
            let kind = match difference {
                Difference::Missing { .. } => 0,
                Difference::Duplicate { .. } => 1,
                Difference::Reordered { .. } => 2,
                Difference::Altered { .. } => 3,
                Difference::Foreign { .. } => 4,
            };
            self.counts[kind] += 1;
            if self.found.len() < KEPT {
                self.found.push(difference);
            }
        }
        self.finished = finished;
        finished
    }
}

fn told(difference: Difference) -> (&'static str, Option<i64>, Option<i64>) {
    match difference {
        Difference::Missing { source } => ("missing", Some(source), None),
        Difference::Duplicate { target, .. } => ("duplicate", None, Some(target)),
        Difference::Reordered { source, target } => ("reordered", Some(source), Some(target)),
        Difference::Altered { source, target } => ("altered", Some(source), Some(target)),
        Difference::Foreign { target } => ("foreign", None, Some(target)),
    }
}

fn side_of(name: &str) -> PyResult<Side> {
    match name {
        "source" => Ok(Side::Source),
        "target" => Ok(Side::Target),
        _ => Err(PyValueError::new_err(format!("{name} is no side"))),
    }
}

fn failed(py: Python<'_>, topic: &str, message: &str) -> PyErr {
    let fix = "verify again; if it comes back, look at what happens to the topic, or read it with another client";
    topic_failed(py, message, topic, fix)
}
