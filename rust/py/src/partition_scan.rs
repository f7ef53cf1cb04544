//! `PartitionScan`: reads a range of a partition into the buffers of Arrow arrays.

mod rows;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use eomirror_batch::{AbortedFilter, Batches, Limits, Memory, Records, Verdict};
use eomirror_kafka::{
    Assignment, Clock, FetchedRecords, Fetcher, Outcome, Stop, SystemClock, TopicId, TopicPartition,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use rows::{Rows, RowsTuple};

use crate::detach::without_interpreter;
use crate::error::{log_lost, plane_failed, topic_failed};
use crate::offset_map::Triple;
use crate::plane::{LONGEST, PlaneReader, Reading, duration, next_reader_number};

/// Largest size of the rows between two calls of `take`: a decompressed batch may follow, and an Arrow column that
/// counts in 32 bits holds 2 GiB.
const MOST_BYTES: usize = 512 * 1024 * 1024;

/// The rows that a scan returns, of those in its range.
struct Choice {
    /// Bounds of the timestamp, both included, in ms since the epoch.
    times: (i64, i64),
    /// Returns only records in these ranges, under the offset of the source; sorted by target offset.
    ranges: Option<Vec<Triple>>,
}

impl Choice {
    /// Returns the offset under which a record is returned; None for a record that is left out.
    fn shown(&self, offset: i64, timestamp: i64) -> Option<i64> {
        if timestamp < self.times.0 || timestamp > self.times.1 {
            return None;
        }
        let Some(ranges) = &self.ranges else {
            return Some(offset);
        };
        let after = ranges.partition_point(|(_, target, _)| *target <= offset);
        let (source, target, count) = ranges.get(after.checked_sub(1)?)?;
        let within = offset - target;
        (within < *count).then_some(source + within)
    }
}

/// Reason that a step failed.
enum Trouble {
    Plane(eomirror_kafka::Error),
    Lost { message: String, fix: &'static str },
    Topic { message: String, fix: &'static str },
}

struct Scan {
    number: u64,
    partition: TopicPartition,
    topic_id: Option<TopicId>,
    next: i64,
    end: i64,
    /// Continue at the log start where records were deleted.
    skips_deleted: bool,
    lost: Option<Range<i64>>,
    choice: Choice,
    rows: Rows,
    memory: Memory,
    fetched_bytes: u64,
}

/// Reads the committed records of a range of offsets.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct PartitionScan {
    scan: Mutex<Scan>,
}

#[pymethods]
impl PartitionScan {
    #[new]
    #[pyo3(signature = (topic, partition, start, end, *, topic_id=None, headers=false, skips_deleted=false, times=None, ranges=None))]
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    fn new(
        topic: String,
        partition: i32,
        start: i64,
        end: i64,
        topic_id: Option<&str>,
        headers: bool,
        skips_deleted: bool,
        times: Option<(i64, i64)>,
        ranges: Option<Vec<Triple>>,
    ) -> PyResult<Self> {
        let topic_id = match topic_id {
            None => None,
            Some(text) => Some(
                TopicId::parse(text)
                    .ok_or_else(|| PyValueError::new_err(format!("{text} is not a topic id")))?,
            ),
        };
        Ok(Self {
            scan: Mutex::new(Scan {
                number: next_reader_number(),
                partition: TopicPartition::new(topic, partition),
                topic_id: topic_id.filter(|id| !id.is_none()),
                next: start,
                end,
                skips_deleted,
                lost: None,
                choice: Choice {
                    times: times.unwrap_or((i64::MIN, i64::MAX)),
                    ranges,
                },
                rows: Rows::new(headers),
                memory: Memory::default(),
                fetched_bytes: 0,
            }),
        })
    }

    fn step(
        &self,
        py: Python<'_>,
        reader: &PlaneReader,
        seconds: f64,
        rows: usize,
        size: usize,
    ) -> PyResult<bool> {
        let most = duration(seconds)?.min(LONGEST);
        let size = size.min(MOST_BYTES);
        let stepped = without_interpreter(py, || {
            let deadline = SystemClock.now() + most;
            let mut reading = reader.lock();
            self.lock().step(&mut reading, deadline, rows, size)
        });
        reader.interruptions.check()?;
        stepped.map_err(|trouble| {
            let topic = self.lock().partition.topic.clone();
            match trouble {
                Trouble::Plane(error) => plane_failed(py, &error),
                Trouble::Lost { message, fix } => log_lost(py, &message, &topic, fix),
                Trouble::Topic { message, fix } => topic_failed(py, &message, &topic, fix),
            }
        })
    }

    fn take<'py>(&self, py: Python<'py>) -> Option<RowsTuple<'py>> {
        self.lock().rows.take(py)
    }

    #[getter]
    fn done(&self) -> bool {
        self.lock().is_done()
    }

    #[getter]
    fn position(&self) -> i64 {
        self.lock().next
    }

    #[getter]
    fn fetched_bytes(&self) -> u64 {
        self.lock().fetched_bytes
    }

    #[getter]
    fn lost(&self) -> Option<(i64, i64)> {
        let lost = self.lock().lost.clone()?;
        Some((lost.start, lost.end))
    }
}

impl PartitionScan {
    fn lock(&self) -> MutexGuard<'_, Scan> {
        self.scan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Scan {
    fn is_done(&self) -> bool {
        self.next >= self.end
    }

    /// Reads until there are as many rows, or the range ends: true. False if the deadline came first.
    fn step(
        &mut self,
        reading: &mut Reading,
        deadline: std::time::Instant,
        rows: usize,
        bytes: usize,
    ) -> Result<bool, Trouble> {
        if reading.assigned_by != self.number {
            self.assign(&mut reading.fetcher);
            reading.assigned_by = self.number;
        }
        loop {
            if self.is_done() {
                reading.fetcher.assign(&[]);
                return Ok(true);
            }
            if self.rows.len() >= rows || self.rows.bytes() >= bytes {
                return Ok(true);
            }
            let fetched = reading.fetcher.poll(deadline).map_err(Trouble::Plane)?;
            if fetched.is_empty() {
                return Ok(false);
            }
            for one in fetched {
                if one.partition != self.partition || one.offset != self.next {
                    continue;
                }
                match one.outcome {
                    Outcome::Records(answer) => self.read(answer, &mut reading.fetcher)?,
                    Outcome::Stopped(stop) => self.stopped(&stop, &mut reading.fetcher)?,
                }
            }
        }
    }

    fn assign(&self, fetcher: &mut Fetcher) {
        let TopicPartition { topic, partition } = &self.partition;
        fetcher.assign(&[]);
        fetcher.assign(&[Assignment {
            topic_id: self.topic_id,
            ..Assignment::new(topic.clone(), *partition, self.next)
        }]);
    }

    /// Takes an answer. The broker prepares the next one while this one is decoded.
    fn read(&mut self, answer: FetchedRecords, fetcher: &mut Fetcher) -> Result<(), Trouble> {
        let (mut after, mut epoch) = (self.next, -1);
        for batch in Batches::new(&answer.records).map_while(Result::ok) {
            after = after.max(batch.next_offset());
            epoch = batch.leader_epoch();
        }
        if after < self.end {
            fetcher.advance(&self.partition, after, epoch);
            fetcher.step().map_err(Trouble::Plane)?;
        }
        self.fetched_bytes += answer.records.len() as u64;
        let decoded = self.decode(&answer.records, answer.aborted.unwrap_or_default());
        decoded.map_err(|reason| Trouble::Topic {
            message: format!("{}@{}: {reason}", self.partition, self.next),
            fix: "check the topic with kafka-dump-log.sh on its leader; a batch in an old message format has to be \
                  written again by a producer of Kafka 0.11 or newer",
        })?;
        self.next = after;
        Ok(())
    }

    fn decode(
        &mut self,
        records: &[u8],
        aborted: Vec<eomirror_batch::AbortedTransaction>,
    ) -> Result<(), String> {
        let mut filter = AbortedFilter::new(aborted);
        for batch in Batches::new(records) {
            let batch = batch.map_err(|error| error.to_string())?;
            if batch.base_offset() >= self.end {
                break;
            }
            batch.check_crc().map_err(|error| error.to_string())?;
            let judged = filter.judge(&batch).map_err(|error| error.to_string())?;
            if judged.verdict != Verdict::Data {
                continue;
            }
            let kind = batch.timestamp_type();
            let read = Records::of(&batch, &mut self.memory, Limits::default());
            for record in read.map_err(|error| error.to_string())? {
                let record = record.map_err(|error| error.to_string())?;
                if record.offset < self.next || record.offset >= self.end {
                    continue;
                }
                if let Some(offset) = self.choice.shown(record.offset, record.timestamp) {
                    self.rows.push(&record, offset, kind);
                }
            }
        }
        Ok(())
    }

    fn stopped(&mut self, stop: &Stop, fetcher: &mut Fetcher) -> Result<(), Trouble> {
        let at = &self.partition;
        let lost = |message: String, fix| Err(Trouble::Lost { message, fix });
        match stop {
            Stop::OutOfRange { log: Some(log) } if log.start > self.next => {
                let until = log.start.min(self.end);
                if self.skips_deleted {
                    let from = self.lost.as_ref().map_or(self.next, |lost| lost.start);
                    self.lost = Some(from..until);
                    self.next = until;
                    if !self.is_done() {
                        self.assign(fetcher);
                    }
                    return Ok(());
                }
                lost(
                    format!(
                        "{at}: offsets [{}, {until}) were deleted (retention or deleted records) before they were read",
                        self.next
                    ),
                    "to continue at the first record that exists, set the option failOnDataLoss to false; to keep \
                     records longer, raise retention.ms of the topic",
                )
            }
            Stop::OutOfRange { .. } | Stop::Truncated { .. } => lost(
                format!("{at}@{}: {stop}", self.next),
                "the log is shorter than it was, or another one: find out what happened to the topic, then start the \
                 query with a new checkpoint",
            ),
            Stop::Replaced { .. } | Stop::Gone => lost(
                format!("{at}@{}: {stop}", self.next),
                "the offsets are those of the topic that was deleted: start the query with a new checkpoint",
            ),
            Stop::Unreadable { .. } | Stop::Refused { .. } => Err(Trouble::Topic {
                message: format!("{at}@{}: {stop}", self.next),
                fix: "give the user the rights Read and Describe on the topic, or check its leader's log",
            }),
        }
    }
}
