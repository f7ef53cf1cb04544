//! Outgoing batches in order, and the batch to which records are being added.

use super::outgoing::{Content, Outgoing, SourceRun, extend};
use super::split;
use super::stop::{Source, Stop};
use super::target::Target;
use super::topic_policy::Change;
use crate::header;
use crate::origin;
use crate::placement;
use crate::transform::Edited;
use crate::types::HeaderRef;
use eomirror_batch::{BatchError, BatchWriter, Codec, Memory, OpenBatch, Record};

/// Memory that a relay reuses.
pub(super) struct Buffers<'w> {
    pub(super) writer: &'w mut BatchWriter,
    /// Batches that the writer has exchanged, by target partition, where records are placed by key.
    pub(super) parked: &'w mut Vec<OpenBatch>,
    /// Memory to split batches that are too large.
    pub(super) memory: &'w mut Memory,
}

/// Collects the outgoing batches of one source partition: one batch at a time, or one for each target partition, where
/// records are placed by key. The writer then holds the batch of `current`, and the others are parked.
pub(super) struct Merge<'w> {
    source: Source<'w>,
    target: &'w Target,
    writer: &'w mut BatchWriter,
    parked: &'w mut Vec<OpenBatch>,
    memory: &'w mut Memory,
    /// Target partition of the batch in the writer.
    current: i32,
    /// Codec of the next batch, where records are placed by key.
    codec: Codec,
    /// Source offsets of the batches being written: one, or one for each target partition.
    runs: Vec<Vec<SourceRun>>,
    batches: Vec<Outgoing>,
    /// Number of runs in all batches, including the one being written.
    all_runs: usize,
    /// Value of the current record's origin header.
    place: Vec<u8>,
}

impl<'w> Merge<'w> {
    pub(super) fn new(source: Source<'w>, target: &'w Target, buffers: Buffers<'w>) -> Self {
        let Buffers {
            writer,
            parked,
            memory,
        } = buffers;
        // an abandoned attempt may have left records
        writer.clear();
        let slots = target.partitions.map_or(0, slot);
        parked.resize_with(slots, OpenBatch::default);
        parked.iter_mut().for_each(OpenBatch::clear);
        Self {
            source,
            target,
            writer,
            parked,
            memory,
            current: target.partitions.map_or(source.partition, |_| 0),
            codec: Codec::None,
            runs: vec![Vec::new(); slots.max(1)],
            batches: Vec::new(),
            all_runs: 0,
            place: Vec::new(),
        }
    }

    /// Returns true if nothing more may be added.
    pub(super) const fn is_full(&self) -> bool {
        self.all_runs >= self.target.most_runs
    }

    /// Returns true if records with this codec may be added to the batch being written.
    pub(super) fn accepts(&self, codec: Codec) -> bool {
        if self.target.partitions.is_some() {
            return self.codec == codec;
        }
        self.writer.count() > 0
            && self.writer.codec() == codec
            && self.writer.size() < self.target.merge_until()
    }

    /// Finishes the batch being written; the next one has `codec`. Batches of records that are placed by key go on:
    /// producers with different codecs would otherwise leave one of a few records in each target partition.
    pub(super) fn begin(&mut self, codec: Codec) -> Result<(), Stop> {
        self.codec = codec;
        if self.target.partitions.is_some() {
            return Ok(());
        }
        self.flush()?;
        self.writer.restart(codec);
        Ok(())
    }

    /// Returns the target partition of a record.
    pub(super) fn place(&self, key: Option<&[u8]>) -> i32 {
        let partition = self.source.partition;
        let count = self.target.partitions;
        count.map_or(partition, |count| {
            placement::place(key, partition, count.max(1))
        })
    }

    /// Adds a record for a target partition with its changes; starts a new batch if the current one is full.
    pub(super) fn add(
        &mut self,
        record: &Record<'_>,
        partition: i32,
        change: Change,
        provenance: &[u8],
        edited: &Edited,
    ) -> Result<(), Stop> {
        if self.target.partitions.is_some() {
            self.turn_to(partition);
            let full = self.writer.size() >= self.target.merge_until();
            if full || !self.suits(record) {
                self.flush()?;
            }
            self.restart_empty();
        }
        let mut added = self.write(record, change, provenance, edited);
        if !matches!(added, Ok(true)) && self.writer.count() > 0 {
            // full, or the timestamp is too far from those in the batch
            self.flush()?;
            self.restart_empty();
            added = self.write(record, change, provenance, edited);
        }
        added.map_err(|error| self.source.unwritable(record.offset, error))?;
        let runs = self.runs();
        let before = runs.len();
        extend(runs, record.offset);
        let more = runs.len() - before;
        self.all_runs += more;
        Ok(())
    }

    /// Returns true if the batch being written has the record's codec, or the record is small: a large one may be within
    /// the target's limit with its own codec only.
    fn suits(&self, record: &Record<'_>) -> bool {
        self.writer.codec() == self.codec || split::weight(record) < self.target.merge_until() / 2
    }

    /// Gives an empty batch the codec of the records to come, where they are placed by key.
    fn restart_empty(&mut self) {
        if self.target.partitions.is_some() && self.writer.count() == 0 {
            self.writer.restart(self.codec);
        }
    }

    /// Makes the batch of a target partition the one being written.
    fn turn_to(&mut self, partition: i32) {
        if partition != self.current {
            self.exchange();
            self.current = partition;
            self.exchange();
        }
    }

    /// Exchanges the batch in the writer for the one that is parked for the current target partition.
    fn exchange(&mut self) {
        if let Some(parked) = self.parked.get_mut(slot(self.current)) {
            self.writer.exchange(parked);
        }
    }

    /// Returns the source offsets of the batch being written.
    fn runs(&mut self) -> &mut Vec<SourceRun> {
        let number = self.target.partitions.map_or(0, |_| slot(self.current));
        &mut self.runs[number]
    }

    fn write(
        &mut self,
        record: &Record<'_>,
        change: Change,
        provenance: &[u8],
        edited: &Edited,
    ) -> Result<bool, BatchError> {
        let most = self.target.most_plain(self.writer.codec());
        let own = HeaderRef {
            key: header::NAME.as_bytes(),
            value: Some(provenance),
        };
        if let Some(origin) = self.source.policy.origin() {
            origin.write(self.source.partition, record.offset, &mut self.place);
            let place = HeaderRef {
                key: origin::NAME.as_bytes(),
                value: Some(&self.place),
            };
            let own = (change != Change::Nothing).then_some(own);
            let replaced = |header: &HeaderRef<'_>| {
                header.key == place.key || own.is_some_and(|own| header.key == own.key)
            };
            let others = edited.header_refs();
            let others = others.unwrap_or_else(|| record.headers.clone().collect());
            let headers: Vec<HeaderRef<'_>> = others
                .into_iter()
                .filter(|header| !replaced(header))
                .chain(own)
                .chain([place])
                .collect();
            let headers = headers.iter().copied();
            return self.writer.add_within(
                most,
                record.timestamp,
                edited.key(record.key),
                edited.value(record.value),
                headers,
            );
        }
        if !edited.is_empty() {
            // a link with a transform adds no provenance header
            let (key, value) = (edited.key(record.key), edited.value(record.value));
            let time = record.timestamp;
            if let Some(headers) = edited.header_refs() {
                let headers = headers.iter().copied();
                return self.writer.add_within(most, time, key, value, headers);
            }
            let headers = record.headers.clone();
            return self.writer.add_within(most, time, key, value, headers);
        }
        match change {
            Change::Nothing => self.writer.copy_within(most, record, None),
            Change::Append => self.writer.copy_within(most, record, Some(own)),
            Change::Replace => {
                let others = record.headers.clone();
                let headers: Vec<HeaderRef<'_>> = others
                    .filter(|header| header.key != own.key)
                    .chain([own])
                    .collect();
                let headers = headers.iter().copied();
                self.writer
                    .add_within(most, record.timestamp, record.key, record.value, headers)
            }
        }
    }

    /// Appends a whole batch; no batch may be being written.
    pub(super) fn push(&mut self, batch: Outgoing) {
        self.all_runs += batch.runs().len();
        self.batches.push(batch);
    }

    /// Finishes the batch being written, if any.
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        if self.writer.count() == 0 {
            return Ok(());
        }
        let max_timestamp = self.writer.max_timestamp();
        let runs = std::mem::take(self.runs());
        let first = runs.first().map_or(0, |run| run.first);
        let bytes = self
            .writer
            .take()
            .map_err(|error| self.source.unwritable(first, error))?;
        let content = Content::Written(bytes);
        let mut waiting = vec![Outgoing::new(self.current, content, runs, max_timestamp)];
        while let Some(batch) = waiting.pop() {
            if batch.size() <= self.target.max_batch_bytes {
                self.batches.push(batch);
                continue;
            }
            let [before, after] = self.halve(batch)?;
            waiting.push(after);
            waiting.push(before);
        }
        Ok(())
    }

    fn halve(&mut self, batch: Outgoing) -> Result<[Outgoing; 2], Stop> {
        let (offset, size) = (batch.first_offset(), batch.size());
        let (source, limit) = (self.source, self.target.max_batch_bytes);
        let (partition, runs) = (batch.partition(), batch.runs().to_vec());
        let Content::Written(bytes) = batch.into_content() else {
            return Err(source.too_large(offset, size, limit));
        };
        let halves = split::in_two(&bytes, (partition, &runs), self.memory, split::OURS);
        self.writer.give_back(bytes);
        halves
            .map_err(|error| self.source.unwritable(offset, error))?
            .ok_or_else(|| source.too_large(offset, size, limit))
    }

    /// Returns all batches in order.
    pub(super) fn finish(mut self) -> Result<Vec<Outgoing>, Stop> {
        let Some(partitions) = self.target.partitions else {
            self.flush()?;
            return Ok(self.batches);
        };
        for partition in 0..partitions {
            self.turn_to(partition);
            self.flush()?;
        }
        Ok(self.batches)
    }
}

/// Returns the index of a target partition.
fn slot(partition: i32) -> usize {
    usize::try_from(partition).unwrap_or(0)
}
