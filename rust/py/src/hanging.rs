//! `HangingTransactionClient`: finds and ends hanging transactions in partitions of a cluster.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use eomirror_kafka::Identity;
use eomirror_kafka::{
    Client, Clock, Error, FoundBatch, HangingTransactions, RecordState, SystemClock, Writer,
};
use pyo3::prelude::*;

use crate::detach::without_interpreter;
use crate::error::plane_failed;
use crate::plane::duration;
use crate::tokens::{self, Interruptions};

/// Topic, partition, producer id, its newest epoch there, and the offset of its first open record.
type Open = (String, i32, i64, i32, i64);

/// An open transaction, its transactional id, and its begin and timeout in ms, where its coordinator knows it as open.
type OpenTransaction = (
    String,
    i32,
    i64,
    i32,
    i64,
    Option<String>,
    Option<(i64, i32)>,
);

/// Base offset, CRC, largest timestamp, last offset, producer id and epoch of a batch.
type BatchAt = (i64, u32, i64, i64, i64, i16);

/// A client that asks leaders for open transactions, and coordinators to end them.
#[pyclass(frozen, module = "eomirror._core")]
pub(crate) struct HangingTransactionClient {
    client: Mutex<HangingTransactions>,
    interruptions: Interruptions,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // how PyO3 hands lists, tuples and sets over
impl HangingTransactionClient {
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
        let client = made.map_err(|error| plane_failed(py, &error))?;
        Ok(Self {
            client: Mutex::new(HangingTransactions::new(client)),
            interruptions,
        })
    }

    fn open(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<Open>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.open_producers(&borrowed(&partitions), deadline)
        })?;
        let open = found.into_iter().map(|it| {
            let at = it.partition;
            let first = it.open_from;
            (at.topic, at.partition, it.producer_id, it.epoch, first)
        });
        Ok(open.collect())
    }

    fn open_transactions(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<OpenTransaction>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.open_transactions(&borrowed(&partitions), deadline)
        })?;
        let open = found.into_iter().map(|it| {
            let (one, at) = (&it.producer, it.producer.partition.clone());
            let first = one.open_from;
            let (id, epoch) = (one.producer_id, one.epoch);
            (
                at.topic,
                at.partition,
                id,
                epoch,
                first,
                it.transactional_id,
                it.timeout,
            )
        });
        Ok(open.collect())
    }

    fn log_sizes(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, i64)>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.log_sizes(&borrowed(&partitions), deadline)
        })?;
        Ok(found
            .into_iter()
            .map(|(at, size)| (at.topic, at.partition, size))
            .collect())
    }

    fn record_states(
        &self,
        py: Python<'_>,
        records: Vec<(String, i32, i64)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, &'static str, i64)>> {
        let offsets = records
            .iter()
            .map(|(topic, number, offset)| ((topic.as_str(), *number), *offset))
            .collect();
        let found = self.ask(py, seconds, |client, deadline| {
            client.record_states(&offsets, deadline)
        })?;
        Ok(found
            .into_iter()
            .map(|(at, state, stable)| (at.topic, at.partition, name_of(state), stable))
            .collect())
    }

    fn is_written_by(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        writer: (i64, i16),
        seconds: f64,
    ) -> PyResult<bool> {
        let (producer_id, epoch) = writer;
        self.ask(py, seconds, |client, deadline| {
            let record = (record.0.as_str(), record.1, record.2);
            client.is_written_by(record, Identity { producer_id, epoch }, deadline)
        })
    }

    fn writer_of(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        seconds: f64,
    ) -> PyResult<Option<(i64, i16)>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.writer_of((record.0.as_str(), record.1, record.2), deadline)
        })?;
        Ok(found.map(identity_of))
    }

    fn batch_at(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        seconds: f64,
    ) -> PyResult<Option<BatchAt>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.batch_at((record.0.as_str(), record.1, record.2), deadline)
        })?;
        Ok(found.map(described))
    }

    fn batches_at(
        &self,
        py: Python<'_>,
        records: Vec<(String, i32, i64)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, BatchAt)>> {
        let found = self.ask(py, seconds, |client, deadline| {
            let offsets = records
                .iter()
                .map(|(topic, partition, offset)| ((topic.as_str(), *partition), *offset))
                .collect();
            client.batches_at(&offsets, deadline)
        })?;
        Ok(found
            .into_iter()
            .map(|(at, batch)| (at.topic, at.partition, described(batch)))
            .collect())
    }

    fn committed(
        &self,
        py: Python<'_>,
        partition: (String, i32),
        offsets: (i64, i64),
        seconds: f64,
    ) -> PyResult<(Vec<BatchAt>, i64)> {
        self.ask(py, seconds, |client, deadline| {
            let mut found = Vec::new();
            let at = (partition.0.as_str(), partition.1);
            let end = client.committed(at, offsets.0..offsets.1, deadline, |batch| {
                found.push(described(FoundBatch::of(batch)));
                Ok(())
            })?;
            Ok((found, end))
        })
    }

    fn copied(
        &self,
        py: Python<'_>,
        partition: (String, i32),
        offsets: (i64, i64),
        from_cluster: &str,
        seconds: f64,
    ) -> PyResult<(Vec<(i64, i64)>, i64)> {
        let (found, end) = self.ask(py, seconds, |client, deadline| {
            let at = (partition.0.as_str(), partition.1);
            eomirror_plane::copied(client, at, offsets.0..offsets.1, from_cluster, deadline)
        })?;
        Ok((
            found.into_iter().map(|it| (it.start, it.end)).collect(),
            end,
        ))
    }

    fn has_committed_behind(
        &self,
        py: Python<'_>,
        record: (String, i32, i64),
        producer_ids: HashSet<i64>,
        most: usize,
        seconds: f64,
    ) -> PyResult<bool> {
        self.ask(py, seconds, |client, deadline| {
            let record = (record.0.as_str(), record.1, record.2);
            client.has_committed_behind(record, &producer_ids, most, deadline)
        })
    }

    fn producer_identity(
        &self,
        py: Python<'_>,
        transactional_id: &str,
        seconds: f64,
    ) -> PyResult<Option<(i64, i16)>> {
        self.ask(py, seconds, |client, deadline| {
            client.producer_identity(transactional_id, deadline)
        })
    }

    fn writers(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
        seconds: f64,
    ) -> PyResult<Vec<(String, i32, String)>> {
        let found = self.ask(py, seconds, |client, deadline| {
            client.writers(&borrowed(&partitions), deadline)
        })?;
        Ok(found
            .into_iter()
            .map(|(at, id)| (at.topic, at.partition, id))
            .collect())
    }

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
        let timeout = duration(transaction_timeout)?;
        let identity = self.ask(py, seconds, |client, deadline| {
            client.end(
                &transactional_id,
                timeout,
                &borrowed(&partitions),
                commit,
                held.unwrap_or((-1, -1)),
                deadline,
            )
        })?;
        Ok((identity.producer_id, identity.epoch))
    }
}

impl HangingTransactionClient {
    /// Runs one call of the client without the interpreter's lock.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        seconds: f64,
        call: impl FnOnce(&mut HangingTransactions, Instant) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let wait = duration(seconds)?;
        let answer = without_interpreter(py, || {
            let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            call(&mut client, SystemClock.now() + wait)
        });
        self.interruptions.check()?;
        answer.map_err(|error| plane_failed(py, &error))
    }
}

const fn name_of(state: RecordState) -> &'static str {
    match state {
        RecordState::Committed => "committed",
        RecordState::Unknown => "unknown",
        RecordState::Pending => "pending",
        RecordState::Deleted => "deleted",
        RecordState::Unreadable => "unreadable",
    }
}

fn borrowed(partitions: &[(String, i32)]) -> Vec<(&str, i32)> {
    partitions
        .iter()
        .map(|(topic, number)| (topic.as_str(), *number))
        .collect()
}

fn described(batch: FoundBatch) -> BatchAt {
    let (producer_id, epoch) = if batch.is_transactional {
        identity_of(batch.writer)
    } else {
        (-1, -1)
    };
    let mark = batch.mark;
    (
        mark.base_offset,
        mark.crc,
        mark.max_timestamp,
        batch.last_offset,
        producer_id,
        epoch,
    )
}

fn identity_of(writer: Writer) -> (i64, i16) {
    match writer {
        Writer::Producer(identity) => (identity.producer_id, identity.epoch),
        Writer::Coordinator => (-1, -1),
    }
}
