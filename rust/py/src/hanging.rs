//! `LeftOpen`: finds and ends hanging transactions in partitions of a cluster.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eomirror_core::transaction::Identity;
use eomirror_kafka::{Client, Clock, RecordState, SystemClock, Writer};
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::plane_failed;
use crate::plane::duration;
use crate::tokens::{self, Interruptions};

/// Topic, partition, producer id, its newest epoch there, and the offset of its first open record.
type Open = (String, i32, i64, i32, i64);

/// A client that asks leaders for open transactions, and coordinators to end them.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct LeftOpen {
    client: Mutex<Client>,
    interruptions: Interruptions,
}

#[pymethods]
impl LeftOpen {
    #[new]
    #[pyo3(signature = (properties, tokens=None))]
    fn new(
        py: Python<'_>,
        properties: BTreeMap<String, String>,
        tokens: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let interruptions = Interruptions::default();
        let made = tokens::parse(properties, tokens, &interruptions)
            .and_then(|properties| Client::unconnected(properties, Arc::new(SystemClock)));
        interruptions.check()?;
        match made {
            Ok(client) => Ok(Self {
                client: Mutex::new(client),
                interruptions,
            }),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Returns the open transactions in partitions.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
    fn open(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<Open>> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            client.open_producers(&borrowed(&partitions), deadline)
        });
        self.interruptions.check()?;
        match found {
            Ok(found) => Ok(found
                .into_iter()
                .map(|it| {
                    let at = it.partition;
                    (
                        at.topic,
                        at.partition,
                        it.producer_id,
                        it.epoch,
                        it.open_from,
                    )
                })
                .collect()),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Returns topic, partition, state (`shown`, `doubtful`, `open`, `gone` or `unreadable`) of records, and the
    /// partition's last stable offset.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
    fn fates(
        &self,
        py: Python<'_>,
        records: Vec<(String, i32, i64)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, &'static str, i64)>> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            let offsets = records
                .iter()
                .map(|(topic, number, offset)| ((topic.as_str(), *number), *offset));
            client.record_states(&offsets.collect(), deadline)
        });
        self.interruptions.check()?;
        match found {
            Ok(found) => Ok(found
                .into_iter()
                .map(|(at, fate, stable)| (at.topic, at.partition, named(fate), stable))
                .collect()),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Returns whether a record was written by this producer with this epoch.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands tuples over
    fn is_written_by(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        writer: (i64, i16),
        seconds: f64,
    ) -> PyResult<bool> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            let record = (record.0.as_str(), record.1, record.2);
            let (producer_id, epoch) = writer;
            client.is_written_by(record, Identity { producer_id, epoch }, deadline)
        });
        self.interruptions.check()?;
        found.map_err(|error| plane_failed(py, &error))
    }

    /// Returns producer id and epoch of the batch that contains an offset, -1 and -1 for a marker; None when no batch
    /// does.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands tuples over
    fn writer_of(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        seconds: f64,
    ) -> PyResult<Option<(i64, i16)>> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            client.writer_of((record.0.as_str(), record.1, record.2), deadline)
        });
        self.interruptions.check()?;
        match found {
            Ok(found) => Ok(found.map(|writer| match writer {
                Writer::Producer(identity) => (identity.producer_id, identity.epoch),
                Writer::Coordinator => (-1, -1),
            })),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Returns whether committed records of these producers follow a record. Reads at most `most` bytes.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands sets over
    fn shown_behind(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        producer_ids: HashSet<i64>,
        most: usize,
        seconds: f64,
    ) -> PyResult<bool> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            let record = (record.0.as_str(), record.1, record.2);
            client.has_committed_behind(record, &producer_ids, most, deadline)
        });
        self.interruptions.check()?;
        found.map_err(|error| plane_failed(py, &error))
    }

    /// Returns the producer id of a transactional id; None when its coordinator knows none.
    fn producer_id(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        seconds: f64,
    ) -> PyResult<Option<i64>> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            client.producer_id(transactional_id, deadline)
        });
        self.interruptions.check()?;
        found.map_err(|error| plane_failed(py, &error))
    }

    /// Returns topics, partitions and the transactional ids that have written there, as far as brokers remember.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
    fn writers(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, String)>> {
        let wait = duration(seconds)?;
        let found = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            client.writers(&borrowed(&partitions), deadline)
        });
        self.interruptions.check()?;
        match found {
            Ok(found) => Ok(found
                .into_iter()
                .map(|(at, id)| (at.topic, at.partition, id))
                .collect()),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }

    /// Takes over a transactional id, and ends its producer's open transactions in these partitions.
    #[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists over
    #[allow(clippy::too_many_arguments)] // they are keywords in Python
    #[pyo3(signature = (transactional_id, partitions, *, commit, transaction_timeout, seconds, held=None))]
    fn end(
        &self,
        py: Python<'_>,
        transactional_id: String,
        partitions: Vec<(String, i32)>,
        commit: bool,
        transaction_timeout: f64,
        seconds: f64,
        held: Option<(i64, i16)>,
    ) -> PyResult<(i64, i16)> {
        let (timeout, wait): (Duration, Duration) =
            (duration(transaction_timeout)?, duration(seconds)?);
        let ended = without_interpreter(py, || {
            let mut client = self.lock();
            let deadline = SystemClock.now() + wait;
            let partitions = borrowed(&partitions);
            client.end_hanging(
                &transactional_id,
                timeout,
                &partitions,
                commit,
                held.unwrap_or((-1, -1)),
                deadline,
            )
        });
        self.interruptions.check()?;
        match ended {
            Ok(identity) => Ok((identity.producer_id, identity.epoch)),
            Err(error) => Err(plane_failed(py, &error)),
        }
    }
}

impl LeftOpen {
    fn lock(&self) -> MutexGuard<'_, Client> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn named(fate: RecordState) -> &'static str {
    match fate {
        RecordState::Committed => "shown",
        RecordState::Unknown => "doubtful",
        RecordState::Pending => "open",
        RecordState::Deleted => "gone",
        RecordState::Unreadable => "unreadable",
    }
}

fn borrowed(partitions: &[(String, i32)]) -> Vec<(&str, i32)> {
    partitions
        .iter()
        .map(|(topic, number)| (topic.as_str(), *number))
        .collect()
}
