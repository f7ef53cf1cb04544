//! Outgoing batches in order, and the batch to which records are being added.

use super::outgoing::{Content, Outgoing, SourceRun, extend};
use super::split;
use super::stop::{Source, Stop};
use super::target::Target;
use super::topic_policy::Change;
use crate::header;
use crate::origin;
use crate::types::HeaderRef;
use eomirror_batch::{BatchError, BatchWriter, Codec, Memory, Record};

/// Collects the outgoing batches of one partition.
pub(super) struct Merge<'w> {
    source: Source<'w>,
    target: &'w Target,
    writer: &'w mut BatchWriter,
    /// Memory to split batches that are too large.
    memory: &'w mut Memory,
    runs: Vec<SourceRun>,
    batches: Vec<Outgoing>,
    /// Number of runs in all batches, including the one being written.
    all_runs: usize,
    /// Value of the current record's origin header.
    place: Vec<u8>,
}

impl<'w> Merge<'w> {
    pub(super) fn new(
        source: Source<'w>,
        target: &'w Target,
        writer: &'w mut BatchWriter,
        memory: &'w mut Memory,
    ) -> Self {
        // an abandoned attempt may have left records
        writer.clear();
        Self {
            source,
            target,
            writer,
            memory,
            runs: Vec::new(),
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
        self.writer.count() > 0
            && self.writer.codec() == codec
            && self.writer.size() < self.target.merge_until()
    }

    /// Finishes the batch being written; the next one has `codec`.
    pub(super) fn begin(&mut self, codec: Codec) -> Result<(), Stop> {
        self.flush()?;
        self.writer.restart(codec);
        Ok(())
    }

    /// Adds a record with its change; starts a new batch if the current one is full.
    pub(super) fn add(
        &mut self,
        record: &Record<'_>,
        change: Change,
        provenance: &[u8],
    ) -> Result<(), Stop> {
        let mut added = self.write(record, change, provenance);
        if !matches!(added, Ok(true)) && self.writer.count() > 0 {
            // full, or the timestamp is too far from those in the batch
            self.flush()?;
            added = self.write(record, change, provenance);
        }
        added.map_err(|error| self.source.unwritable(record.offset, error))?;
        let before = self.runs.len();
        extend(&mut self.runs, record.offset);
        self.all_runs += self.runs.len() - before;
        Ok(())
    }

    fn write(
        &mut self,
        record: &Record<'_>,
        change: Change,
        provenance: &[u8],
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
            let others = record.headers.clone();
            let headers: Vec<HeaderRef<'_>> = others
                .filter(|header| !replaced(header))
                .chain(own)
                .chain([place])
                .collect();
            let headers = headers.iter().copied();
            return self.writer.add_within(
                most,
                record.timestamp,
                record.key,
                record.value,
                headers,
            );
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
        let runs = std::mem::take(&mut self.runs);
        let first = runs.first().map_or(0, |run| run.first);
        let bytes = self
            .writer
            .take()
            .map_err(|error| self.source.unwritable(first, error))?;
        let mut waiting = vec![Outgoing::new(Content::Written(bytes), runs, max_timestamp)];
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
        let runs = batch.runs().to_vec();
        let Content::Written(bytes) = batch.into_content() else {
            return Err(source.too_large(offset, size, limit));
        };
        let halves = split::in_two(&bytes, &runs, self.memory, split::OURS);
        self.writer.give_back(bytes);
        halves
            .map_err(|error| self.source.unwritable(offset, error))?
            .ok_or_else(|| source.too_large(offset, size, limit))
    }

    /// Returns all batches in order.
    pub(super) fn finish(mut self) -> Result<Vec<Outgoing>, Stop> {
        self.flush()?;
        Ok(self.batches)
    }
}
