//! Writes rows of Arrow columns into a transaction, which may be another process's.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use eomirror_batch::{BatchWriter, Codec, HeaderRef, OpenBatch};
use eomirror_core::arrow::Column;
use eomirror_core::digest::Digest;
use eomirror_core::placement::{Sticky, task_of};
use eomirror_core::{RecordRef, Written};
use eomirror_kafka::{Clock, Error, Identity, SourceRange, TopicPartition, TransactionalProducer};

/// Columns of a record batch. A missing key, value or header column is null in every row.
#[derive(Debug, Default)]
pub struct RowColumns {
    /// Number of rows.
    pub rows: usize,
    /// Keys.
    pub key: Option<Column>,
    /// Values.
    pub value: Option<Column>,
    /// Lists of headers, with the children key and value.
    pub headers: Option<Column>,
    /// Target topics; none if all rows have the writer's topic.
    pub topic: Option<Column>,
    /// Target partitions; none, or -1, for any that the task may write.
    pub partition: Option<Column>,
    /// Timestamps in microseconds; none, or null, for the time of writing.
    pub timestamp: Option<Column>,
}

/// Totals of the rows of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WrittenRows {
    /// Number of records.
    pub records: i64,
    /// Bytes of their keys, values and headers.
    pub bytes: u64,
    /// Sum of their digests.
    pub digest: Digest,
    /// Target offset of the first record; -1 before it is known.
    pub first: i64,
    /// Target offset after the last record; -1 before it is known.
    pub next: i64,
    acknowledged: i64,
}

/// The partitions that one task may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Number of the task.
    pub task: i32,
    /// Number of tasks.
    pub tasks: i32,
}

/// A row that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The cluster or its answer.
    #[error(transparent)]
    Kafka(#[from] Error),
    /// The row's own content.
    #[error("{0}")]
    Content(String),
}

/// A batch that is being filled.
#[derive(Debug, Default)]
struct Filling {
    batch: OpenBatch,
    written: WrittenRows,
    /// Number of the batch's first record in its partition.
    first: i64,
}

/// Writes rows. Each row goes to the partition that it names.
pub struct RowWriter {
    producer: TransactionalProducer,
    clock: Arc<dyn Clock>,
    writer: BatchWriter,
    codec: Codec,
    batch_bytes: usize,
    /// The topic of rows without one.
    topic: Option<String>,
    share: Option<Share>,
    /// Rows are counted, not written.
    counts_only: bool,
    places: HashMap<TopicPartition, usize>,
    /// Partitions of each topic that rows without one may go to, and the one that they go to.
    own: HashMap<String, (Vec<i32>, Sticky)>,
    filling: Vec<(TopicPartition, Filling)>,
    scratch: Vec<u8>,
}

impl RowWriter {
    /// Returns a writer into the transaction of `producer`, or into one of another process that has this identity.
    #[must_use]
    pub fn new(
        producer: TransactionalProducer,
        clock: Arc<dyn Clock>,
        codec: Codec,
        batch_bytes: usize,
    ) -> Self {
        Self {
            producer,
            clock,
            writer: BatchWriter::new(codec),
            codec,
            batch_bytes,
            topic: None,
            share: None,
            counts_only: false,
            places: HashMap::new(),
            own: HashMap::new(),
            filling: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Sets the topic of rows without one, and the partitions that may be written.
    pub fn limit(&mut self, topic: Option<String>, share: Option<Share>) {
        self.topic = topic;
        self.share = share;
    }

    /// Sets whether rows are only counted: to compare them with rows that were written before.
    pub const fn count_only(&mut self, counts_only: bool) {
        self.counts_only = counts_only;
    }

    /// Returns the producer, for everything that is no row.
    pub const fn producer(&mut self) -> &mut TransactionalProducer {
        &mut self.producer
    }

    /// Begins a transaction, and forgets what was written in the last one.
    pub fn begin(&mut self, deadline: Instant) -> Result<Identity, Error> {
        self.forget();
        self.producer.begin(deadline)?;
        self.producer.identity().ok_or(Error::InvalidState {
            call: "begin",
            state: "no transaction is open",
        })
    }

    /// Aborts the transaction, and forgets what was written in it.
    pub fn abort(&mut self, deadline: Instant) -> Result<(), Error> {
        self.forget();
        self.producer.abort(deadline)
    }

    /// Adds rows. Full batches are sent; [`RowWriter::settle`] sends the rest.
    pub fn write(&mut self, columns: &RowColumns, deadline: Instant) -> Result<(), RowError> {
        let now = self.now_ms();
        let mut headers: Vec<HeaderRef<'_>> = Vec::new();
        let mut last: Option<(Option<&[u8]>, i64, usize)> = None;
        for row in 0..columns.rows {
            let key = columns.key.as_ref().and_then(|it| it.bytes(row));
            let value = columns.value.as_ref().and_then(|it| it.bytes(row));
            read_headers(columns.headers.as_ref(), row, &mut headers)?;
            let micros = columns.timestamp.as_ref().and_then(|it| it.number(row));
            let given = micros.map(|micros| micros.div_euclid(1000));
            let topic = columns.topic.as_ref().and_then(|it| it.bytes(row));
            let partition = columns.partition.as_ref().and_then(|it| it.number(row));
            let partition = match partition {
                Some(number) if number >= 0 => number,
                _ => self.any_partition(topic, value.map_or(0, <[u8]>::len), deadline)?,
            };
            // rows of a partition often follow each other
            let at = match last {
                Some((before, number, at)) if (before, number) == (topic, partition) => at,
                _ => self.place(topic, partition)?,
            };
            last = Some((topic, partition, at));
            let record = RecordRef {
                topic: "",
                partition: 0,
                offset: 0,
                leader_epoch: -1,
                // the time of writing is another one when the row is written again
                timestamp: given.unwrap_or(-1),
                key,
                value,
                headers: &headers,
                written: Written::Unknown,
            };
            let mut digest = Digest::default();
            digest.add(&record, &mut self.scratch);
            if !self.counts_only {
                self.add(at, given.unwrap_or(now), &record, deadline)?;
            }
            let written = &mut self.filling[at].1.written;
            written.records += 1;
            written.bytes += record.size();
            written.digest = written.digest.sum(digest);
        }
        Ok(())
    }

    /// Sends one record outside of the rows, behind all others of its partition.
    pub fn send(
        &mut self,
        target: &TopicPartition,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), RowError> {
        let batch = one_record(self.now_ms(), key, value).map_err(RowError::Content)?;
        self.producer.send(target, &batch, range(0, 0))?;
        Ok(())
    }

    /// Sends all rows, and waits until they are acknowledged.
    pub fn settle(&mut self, deadline: Instant) -> Result<(), RowError> {
        for at in 0..self.filling.len() {
            self.flush(at)?;
        }
        while !self.producer.is_settled() {
            self.pump(deadline)?;
            if !self.producer.is_settled() && self.clock.now() >= deadline {
                let last = self.producer.trouble();
                return Err(RowError::Kafka(Error::TimedOut {
                    what: "writing rows",
                    waited: Duration::ZERO,
                    last: last.unwrap_or_else(|| "no answer".to_owned()),
                }));
            }
        }
        Ok(())
    }

    /// Returns what was written to each partition since the transaction began.
    pub fn written(&self) -> impl Iterator<Item = (&TopicPartition, &WrittenRows)> {
        self.filling
            .iter()
            .map(|(target, it)| (target, &it.written))
    }

    fn topic<'t>(&'t self, topic: Option<&'t [u8]>) -> Result<&'t str, RowError> {
        let missing = || RowError::Content("a row has no topic".to_owned());
        match topic {
            Some(topic) => std::str::from_utf8(topic)
                .map_err(|_| RowError::Content("a topic is not UTF-8".to_owned())),
            None => self.topic.as_deref().ok_or_else(missing),
        }
    }

    /// Returns a partition that this task may write, for a row of so many bytes.
    fn any_partition(
        &mut self,
        topic: Option<&[u8]>,
        size: usize,
        deadline: Instant,
    ) -> Result<i64, RowError> {
        let topic = self.topic(topic)?.to_owned();
        if !self.own.contains_key(&topic) {
            let client = self.producer.client();
            let metadata = client.metadata(&[&topic], deadline)?;
            let facts = metadata.topic(&topic);
            let all = facts.into_iter().flat_map(|it| it.partitions.keys());
            let is_own = |at: &i32| {
                self.share
                    .is_none_or(|it| task_of(topic.as_bytes(), *at, it.tasks) == it.task)
            };
            let own: Vec<i32> = all.copied().filter(is_own).collect();
            self.own.insert(topic.clone(), (own, Sticky::new(0)));
        }
        let found = self.own.get_mut(&topic).filter(|(own, _)| !own.is_empty());
        let Some((own, sticky)) = found else {
            let reason = format!("topic {topic} has no partition for a row without one");
            return Err(RowError::Content(reason));
        };
        let count = i32::try_from(own.len()).unwrap_or(i32::MAX);
        let at = usize::try_from(sticky.place(size, count)).unwrap_or(0);
        Ok(own.get(at).copied().map_or(-1, i64::from))
    }

    fn place(&mut self, topic: Option<&[u8]>, partition: i64) -> Result<usize, RowError> {
        let topic = self.topic(topic)?;
        let number = i32::try_from(partition).unwrap_or(-1);
        let target = TopicPartition::new(topic, number);
        if number < 0 {
            let reason = format!("a row of topic {topic} has no partition");
            return Err(RowError::Content(reason));
        }
        if let Some(Share { task, tasks }) = self.share {
            let owner = task_of(topic.as_bytes(), number, tasks);
            if owner != task {
                return Err(RowError::Content(format!(
                    "task {task} got a row of {target}, which task {owner} writes"
                )));
            }
        }
        if let Some(at) = self.places.get(&target) {
            return Ok(*at);
        }
        let written = WrittenRows {
            first: -1,
            next: -1,
            ..WrittenRows::default()
        };
        self.writer.restart(self.codec);
        let mut filling = Filling {
            written,
            ..Filling::default()
        };
        // the new batch gets the writer's codec
        self.writer.exchange(&mut filling.batch);
        self.writer.restart(self.codec);
        self.places.insert(target.clone(), self.filling.len());
        self.filling.push((target, filling));
        Ok(self.filling.len() - 1)
    }

    fn add(
        &mut self,
        at: usize,
        timestamp: i64,
        record: &RecordRef<'_>,
        deadline: Instant,
    ) -> Result<(), RowError> {
        loop {
            let (target, filling) = &mut self.filling[at];
            self.writer.exchange(&mut filling.batch);
            let added = self.writer.add_within(
                self.batch_bytes,
                timestamp,
                record.key,
                record.value,
                record.headers.iter().copied(),
            );
            self.writer.exchange(&mut filling.batch);
            if added.map_err(|error| RowError::Content(format!("{target}: {error}")))? {
                return Ok(());
            }
            self.flush(at)?;
            self.pump_if_full(deadline)?;
        }
    }

    fn flush(&mut self, at: usize) -> Result<(), RowError> {
        let (target, filling) = &mut self.filling[at];
        self.writer.exchange(&mut filling.batch);
        let count = i64::from(self.writer.count());
        let taken = (count > 0).then(|| self.writer.take());
        self.writer.exchange(&mut filling.batch);
        let Some(taken) = taken else { return Ok(()) };
        let batch = taken.map_err(|error| RowError::Content(format!("{target}: {error}")))?;
        let first = filling.first;
        filling.first += count;
        let source = range(first, first + count - 1);
        self.producer.send(target, &Bytes::from(batch), source)?;
        self.producer.step()?;
        Ok(())
    }

    fn pump_if_full(&mut self, deadline: Instant) -> Result<(), RowError> {
        while self.producer.room() == 0 {
            self.pump(deadline)?;
            if self.producer.room() == 0 && self.clock.now() >= deadline {
                let last = self.producer.trouble();
                return Err(RowError::Kafka(Error::TimedOut {
                    what: "writing rows",
                    waited: Duration::ZERO,
                    last: last.unwrap_or_else(|| "no answer".to_owned()),
                }));
            }
        }
        Ok(())
    }

    fn pump(&mut self, deadline: Instant) -> Result<(), Error> {
        for acknowledged in self.producer.pump(deadline)? {
            let Some(at) = self.places.get(&acknowledged.target) else {
                continue;
            };
            let written = &mut self.filling[*at].1.written;
            let records = i64::from(acknowledged.records);
            written.acknowledged += records;
            if let Some(offset) = acknowledged.base_offset {
                if written.first < 0 || offset < written.first {
                    written.first = offset;
                }
                written.next = written.next.max(offset + records);
            }
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.places.clear();
        self.own.clear();
        self.filling.clear();
        self.writer.restart(self.codec);
    }

    fn now_ms(&self) -> i64 {
        i64::try_from(self.clock.unix_time().as_millis()).unwrap_or(-1)
    }
}

impl WrittenRows {
    /// Returns whether all records are acknowledged.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.acknowledged == self.records
    }
}

/// Returns a batch of one record.
pub fn one_record(timestamp: i64, key: &[u8], value: &[u8]) -> Result<Bytes, String> {
    let mut writer = BatchWriter::new(Codec::None);
    writer
        .add(timestamp, Some(key), Some(value), [].iter().copied())
        .and_then(|()| writer.take())
        .map(Bytes::from)
        .map_err(|error| error.to_string())
}

fn range(first: i64, last: i64) -> SourceRange {
    SourceRange {
        partition: 0,
        first,
        last,
    }
}

fn read_headers<'a>(
    column: Option<&'a Column>,
    row: usize,
    headers: &mut Vec<HeaderRef<'a>>,
) -> Result<(), RowError> {
    headers.clear();
    let Some(column) = column else { return Ok(()) };
    let Some(elements) = column.elements(row) else {
        return Ok(());
    };
    let [keys, values] = column.children() else {
        return Err(RowError::Content(
            "the headers' elements have no key and value".to_owned(),
        ));
    };
    for element in elements {
        let key = keys
            .bytes(element)
            .ok_or_else(|| RowError::Content("a header has no key".to_owned()))?;
        headers.push(HeaderRef {
            key,
            value: values.bytes(element),
        });
    }
    Ok(())
}
