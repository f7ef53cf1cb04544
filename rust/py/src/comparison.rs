//! `PartitionComparison`.

mod half;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::offset_map::decode;
use eomirror_core::verify::compacted::LastByKey;
use eomirror_core::verify::compare::{Comparison, Difference, Limits, Side};
use eomirror_core::verify::log_digest::{Counts, Part};
use eomirror_kafka::{Clock, SystemClock, wait};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use half::{Half, Judge, Range, Trouble};

use crate::convert::Batch;
use crate::detach::without_interpreter;
use crate::error::{plane_failed, raise, topic_failed};
use crate::plane::{LONGEST, PlaneReader, Reading, duration, next_reader_number};
use crate::transform::Transform;

/// Maximum number of differences that wait to be taken; more are only counted.
const KEPT: usize = 1000;

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

/// Compares a source partition with its copy.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PartitionComparison {
    work: Mutex<Work>,
}

#[pymethods]
impl PartitionComparison {
    #[new]
    #[pyo3(signature = (source, target, *, timestamps=true, guard=None, marked=true, by_key=None, dead_letters=Vec::new(), others=Vec::new(), own=Vec::new(), returned=Vec::new(), origins=true, transform=None, window=4096, history=65536))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        py: Python<'_>,
        source: Range,
        target: Range,
        timestamps: bool,
        guard: Option<(String, String, Option<Vec<String>>)>,
        marked: bool,
        by_key: Option<(usize, u64, u64)>,
        dead_letters: Vec<(i64, u64)>,
        others: Vec<Vec<u8>>,
        own: Vec<Vec<u8>>,
        returned: Vec<Vec<u8>>,
        origins: bool,
        transform: Option<&Transform>,
        window: usize,
        history: usize,
    ) -> PyResult<Self> {
        let (forwarded, mirrored) = match guard {
            None => (Part::All, Part::All),
            Some((from, to, origins)) => {
                let origins = origins.map(|ids| ids.into_iter().collect());
                let guard =
                    LoopGuard::new(&from, &to, origins, true).map_err(|error| raise(py, &error))?;
                let mirrored = if marked {
                    Part::From {
                        source: from,
                        target: to,
                    }
                } else {
                    Part::All
                };
                (Part::Forwarded(guard), mirrored)
            }
        };
        let judge = match by_key {
            None => Judge::InOrder(Comparison::new(Limits { window, history })),
            Some((most, share, shares)) => Judge::ByKey(LastByKey::new(most, (share, shares))),
        };
        let mut source = Half::new(source, forwarded, timestamps);
        source.content.skip_dead_letters(dead_letters);
        source.content.skip_others(ranges_of(py, returned)?);
        let mut target = Half::new(target, mirrored, timestamps);
        target.content.skip_others(ranges_of(py, others)?);
        target.content.keep_own(ranges_of(py, own)?);
        if let Some(transform) = transform {
            let rules = transform.rules.of_topic(&source.partition.topic);
            source.content.transform_by(rules);
        }
        if !origins {
            source.content.skip_origins();
            target.content.skip_origins();
        }
        Ok(Self {
            work: Mutex::new(Work {
                number: next_reader_number(),
                source,
                target,
                judge,
                matched: 0,
                found: Vec::new(),
                counts: [0; 5],
                finished: false,
            }),
        })
    }

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
        source.interruptions.check()?;
        target.interruptions.check()?;
        stepped.map_err(|trouble| match trouble {
            Trouble::Plane(error) => plane_failed(py, &error),
            Trouble::Topic { topic, message } => failed(py, &topic, &message),
        })
    }

    fn wants(&self, side: &str) -> PyResult<bool> {
        let side = side_of(side)?;
        let mut work = self.lock();
        Ok(!work.half(side).content.is_done() && work.judge.wants(side))
    }

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

    #[pyo3(signature = (source_end, target_end, dead_letters=Vec::new(), starts=(0, 0), others=Vec::new(), own=Vec::new(), returned=Vec::new()))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn extend(
        &self,
        py: Python<'_>,
        source_end: i64,
        target_end: i64,
        dead_letters: Vec<(i64, u64)>,
        starts: (i64, i64),
        others: Vec<Vec<u8>>,
        own: Vec<Vec<u8>>,
        returned: Vec<Vec<u8>>,
    ) -> PyResult<()> {
        let others = ranges_of(py, others)?;
        let (own, returned) = (ranges_of(py, own)?, ranges_of(py, returned)?);
        let mut work = self.lock();
        work.begin_again();
        work.source.content.skip_dead_letters(dead_letters);
        work.source.content.skip_others(returned);
        work.target.content.skip_others(others);
        work.target.content.keep_own(own);
        for (side, start, end) in [
            (Side::Source, starts.0, source_end),
            (Side::Target, starts.1, target_end),
        ] {
            let half = work.half(side);
            half.content.extend(end);
            half.content.skip_to(start);
            half.end = half.end.max(end);
        }
        if let Judge::InOrder(comparison) = &mut work.judge {
            comparison.reopen();
        }
        Ok(())
    }

    fn read_on(&self, source_tail: i64, target_tail: i64) {
        let mut work = self.lock();
        work.judge_again();
        work.source.content.extend(source_tail);
        work.target.content.extend(target_tail);
    }

    fn read_again(&self) {
        let mut work = self.lock();
        work.judge_again();
        work.source.rewind();
        work.target.rewind();
        if let Judge::ByKey(state) = &mut work.judge {
            state.again();
        }
    }

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

    fn take(&self) -> Vec<(&'static str, Option<i64>, Option<i64>)> {
        let found = std::mem::take(&mut self.lock().found);
        found.into_iter().map(told).collect()
    }

    #[getter]
    fn too_many_keys(&self) -> bool {
        matches!(&self.lock().judge, Judge::ByKey(state) if state.is_full())
    }

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
            // unjudged records are not counted: a comparison that resumes here reads them again
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
            let holes = half.content.holes().iter();
            let holes: Vec<(i64, i64)> = holes.map(|hole| (hole.start, hole.end)).collect();
            one.set_item("holes", holes)?;
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

impl Work {
    /// Reopens the sides after they were extended. The readers know only the old ends, and may be waiting there.
    fn begin_again(&mut self) {
        self.finished = false;
        self.number = next_reader_number();
    }

    /// Reopens the sides and discards the result so far.
    fn judge_again(&mut self) {
        self.begin_again();
        self.found.clear();
        self.counts = [0; 5];
        self.matched = 0;
    }

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

    /// Compares as far as possible. Returns true if everything is compared.
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

/// Returns the target offsets that chunks of other links name.
fn ranges_of(py: Python<'_>, chunks: Vec<Vec<u8>>) -> PyResult<Vec<std::ops::Range<i64>>> {
    let mut ranges = Vec::new();
    for bytes in chunks {
        let chunk = decode(&bytes).map_err(|error| raise(py, &error))?;
        let named = chunk.map.ranges().iter();
        ranges.extend(named.map(|range| range.target..range.target + range.count));
    }
    Ok(ranges)
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
        _ => Err(PyValueError::new_err(format!("{name} is not a side"))),
    }
}

fn failed(py: Python<'_>, topic: &str, message: &str) -> PyErr {
    let fix = "run verify again; if the error persists, check for changes of the topic, or read it with another client";
    topic_failed(py, message, topic, fix)
}
