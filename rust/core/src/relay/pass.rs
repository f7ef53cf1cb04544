//! A pass over one response: decides for each batch, as drawn in [`super`].

use std::ops::Range;

use super::accounting::{Accounting, Relayed, Skipped};
use super::fetched::{Fetched, Holes};
use super::merge::Merge;
use super::outgoing::{Content, Outgoing, SourceRun};
use super::stop::{Before, Source, Stop, full, refused};
use super::target::Target;
use super::topic_policy::{Author, Decision, Need};
use crate::error::place;
use crate::transform::{Edited, Fate, Parts};
use crate::types::{DropReason, HeaderRef};
use eomirror_batch::{
    AbortedFilter, Batch, Batches, Continuity, HEADER_SIZE, Limits, Mark, Memory, Record, Records,
    Verdict, is_compacted, passing_header,
};

/// Maximum number of holes reported for one response.
const MOST_HOLES: usize = 100;

/// A batch of the response.
#[derive(Clone, Copy)]
struct Piece<'a> {
    batch: Batch<'a>,
    /// Start of the batch in the response's bytes.
    start: usize,
    /// Number of batches before it.
    index: usize,
    /// Number of records read so far that carry the header of another record.
    copied: u64,
}

/// Treatment of a data batch.
enum Way {
    /// Send it alone: it is large enough.
    Pass,
    /// It could be passed, but merging is better.
    Join,
    Write,
}

/// A pass with its parameters.
pub(super) struct Pass<'w, 'a> {
    pub(super) source: Source<'w>,
    pub(super) target: &'w Target,
    pub(super) limits: Limits,
    pub(super) offsets: Range<i64>,
    pub(super) holes: Holes,
    pub(super) memory: &'w mut Memory,
    pub(super) author: Author,
    /// Value of the current record's header.
    pub(super) provenance: &'w mut Vec<u8>,
    pub(super) merge: Merge<'w>,
    pub(super) progress: Progress<'a>,
}

/// Progress of a pass.
#[derive(Default)]
pub(super) struct Progress<'a> {
    /// A small batch that waits for a neighbour to merge with. Meanwhile no batch is being written.
    lone: Option<Piece<'a>>,
    accounting: Accounting,
    skipped: Skipped,
}

impl<'a> Pass<'_, 'a> {
    /// Processes the response's first `most` batches.
    pub(super) fn run(mut self, fetched: &Fetched<'a>, most: usize) -> Result<Relayed, Stop> {
        let mut filter = AbortedFilter::new(fetched.aborted.to_vec());
        let mut batches = Batches::new(fetched.records);
        let (mut start, mut next_position) = (0, self.offsets.start);
        let (mut looked_to, mut leader_epoch) = (-1, -1);
        let mut continuity = Continuity::new(self.offsets.start);
        let (mut mark, mut holes) = (None, Vec::new());
        for (index, batch) in batches.by_ref().enumerate().take(most) {
            let batch = batch.map_err(|error| self.source.malformed(index, error))?;
            let piece = Piece {
                batch,
                start,
                index,
                copied: 0,
            };
            start += batch.bytes().len();
            if batch.base_offset() >= self.offsets.end {
                break;
            }
            batch
                .check_crc()
                .map_err(|e| self.source.malformed(index, e))?;
            let (before, rest) = (continuity, &fetched.records[start..]);
            if let Some(hole) = continuity.look(&batch) {
                if self.names_holes(&continuity, rest) {
                    let stops = self.holes == Holes::Stop;
                    let full = holes.len() == MOST_HOLES;
                    if !full {
                        holes.push(hole);
                    }
                    if stops || full {
                        // the batches after the hole are fetched again
                        continuity = before;
                        break;
                    }
                }
            }
            let judged = filter
                .judge(&batch)
                .map_err(|e| self.source.malformed(index, e))?;
            match judged.verdict {
                Verdict::Control(_) => self.progress.skipped.control += 1,
                Verdict::Aborted => self.progress.skipped.aborted += 1,
                Verdict::Data if batch.record_count() == 0 => self.progress.skipped.empty += 1,
                Verdict::Data => self.data(piece)?,
            }
            leader_epoch = batch.leader_epoch();
            mark = Some(Mark::of(&batch));
            looked_to = judged.next_offset.min(self.offsets.end);
            next_position = next_position.max(looked_to);
        }
        self.pass_lone()?;
        let Source { policy, partition } = self.source;
        let outgoing = self.merge.finish()?;
        let mut accounting = self.progress.accounting;
        for batch in &outgoing {
            accounting.sent += u64::from(batch.count().unsigned_abs());
        }
        accounting
            .settle(policy.source_topic(), partition, accounting.sent)
            .map_err(|error| Stop {
                before: Before::Batch(0),
                error: Some(error.into()),
            })?;
        let times = outgoing.iter().map(Outgoing::max_timestamp);
        Ok(Relayed {
            max_timestamp: times.max().unwrap_or(-1),
            batches: outgoing,
            accounting,
            skipped: self.progress.skipped,
            mark,
            holes,
            missing: continuity.missing(),
            compacted: continuity.is_compacted(),
            next_position,
            looked_to,
            leader_epoch,
            partial: batches.partial(),
            stopped: None,
        })
    }

    /// Returns true if a jump of offsets is a hole: no batch of the response shows compaction.
    fn names_holes(&self, seen: &Continuity, rest: &[u8]) -> bool {
        self.holes != Holes::Count
            && !seen.is_compacted()
            && !Batches::new(rest)
                .map_while(Result::ok)
                .any(|batch| is_compacted(&batch))
    }

    fn data(&mut self, mut piece: Piece<'a>) -> Result<(), Stop> {
        if piece.batch.last_offset() < self.offsets.start {
            return Ok(());
        }
        if self.source.policy.is_opposite(piece.batch.producer_id()) {
            return self.drop_whole(&piece);
        }
        match self.way(&mut piece)? {
            Way::Pass => {
                self.pass_lone()?;
                self.merge.flush()?;
                self.pass(&piece)
            }
            Way::Join if self.has_neighbour(&piece) => self.write(&piece),
            Way::Join => {
                self.pass_lone()?;
                self.merge.flush()?;
                self.progress.lone = Some(piece);
                Ok(())
            }
            Way::Write => self.write(&piece),
        }
    }

    fn way(&mut self, piece: &mut Piece<'a>) -> Result<Way, Stop> {
        let batch = &piece.batch;
        let size = batch.bytes().len();
        let must_write = self.source.policy.need() == Need::Write
            || self.target.partitions.is_some()
            || !self.is_within(batch)
            || batch.obstacle_for(self.target.timestamps).is_some()
            || size > self.target.max_batch_bytes;
        if must_write {
            return Ok(Way::Write);
        }
        let small = self.target.is_small(batch.codec(), size);
        if small && self.has_neighbour(piece) {
            // the guard judges its records when they are written
            return Ok(Way::Join);
        }
        if self.source.policy.need() == Need::Read && self.drops_one_of(piece)? {
            return Ok(Way::Write);
        }
        Ok(if small { Way::Join } else { Way::Pass })
    }

    /// Returns true if the batch before it can be merged with it.
    fn has_neighbour(&self, piece: &Piece<'a>) -> bool {
        let codec = piece.batch.codec();
        match &self.progress.lone {
            Some(lone) => lone.batch.codec() == codec,
            None => self.merge.accepts(codec),
        }
    }

    fn is_within(&self, batch: &Batch<'_>) -> bool {
        self.offsets.start <= batch.base_offset() && batch.last_offset() < self.offsets.end
    }

    /// Returns true if the guard or the transform drops a record of the batch. Otherwise counts the records that carry the header of
    /// another record.
    fn drops_one_of(&mut self, piece: &mut Piece<'a>) -> Result<bool, Stop> {
        let source = self.source;
        let place = source.place(&piece.batch);
        let malformed = |error| source.malformed(piece.index, error);
        let mut copied = 0;
        let records = Records::of(&piece.batch, self.memory, self.limits);
        for record in records.map_err(malformed)? {
            let record = record.map_err(malformed)?;
            if let Fate::Drop(_) = fate(source, &record)? {
                return Ok(true);
            }
            let decision = source
                .policy
                .decide(&record, place, &self.author, self.provenance)
                .map_err(|error| refused(record.offset, error))?;
            match decision {
                Decision::Drop(_) => return Ok(true),
                Decision::Copied(_) => copied += 1,
                Decision::Keep(_) => {}
            }
        }
        piece.copied = copied;
        Ok(false)
    }

    /// Passes the waiting batch, if any.
    fn pass_lone(&mut self) -> Result<(), Stop> {
        match self.progress.lone.take() {
            Some(lone) => self.pass(&lone),
            None => Ok(()),
        }
    }

    /// Sends the batch's body unchanged. No batch may be being written.
    fn pass(&mut self, piece: &Piece<'a>) -> Result<(), Stop> {
        if self.merge.is_full() {
            return Err(full(Before::Batch(piece.index)));
        }
        let batch = &piece.batch;
        let head = passing_header(batch, self.target.timestamps)
            .map_err(|error| self.source.malformed(piece.index, error))?;
        let body = piece.start + HEADER_SIZE..piece.start + batch.bytes().len();
        let run = SourceRun {
            first: batch.base_offset(),
            count: i64::from(batch.record_count()),
        };
        self.progress.accounting.fetched += u64::from(batch.record_count().unsigned_abs());
        self.progress.accounting.copied_headers += piece.copied;
        self.merge.push(Outgoing::new(
            self.source.partition,
            Content::Passed { head, body },
            vec![run],
            batch.max_timestamp(),
        ));
        Ok(())
    }

    /// Re-encodes the batch's records, merged with the waiting batch or the one being written if possible.
    fn write(&mut self, piece: &Piece<'a>) -> Result<(), Stop> {
        let codec = piece.batch.codec();
        match self.progress.lone.take() {
            Some(lone) if lone.batch.codec() == codec => {
                self.merge.begin(codec)?;
                self.collect(&lone)?;
            }
            Some(lone) => {
                self.pass(&lone)?;
                self.merge.begin(codec)?;
            }
            None if !self.merge.accepts(codec) => self.merge.begin(codec)?,
            None => {}
        }
        self.collect(piece)
    }

    fn collect(&mut self, piece: &Piece<'a>) -> Result<(), Stop> {
        let source = self.source;
        let mut place = source.place(&piece.batch);
        let malformed = |error| source.malformed(piece.index, error);
        let records = Records::of(&piece.batch, self.memory, self.limits);
        for record in records.map_err(malformed)? {
            let record = record.map_err(malformed)?;
            if !self.offsets.contains(&record.offset) {
                continue;
            }
            self.progress.accounting.fetched += 1;
            let edited = match fate(source, &record)? {
                Fate::Drop(reason) => {
                    self.progress.accounting.drop(reason, 1);
                    continue;
                }
                Fate::Keep(edited) => edited,
            };
            place.target = self.merge.place(edited.key(record.key));
            let decision = source
                .policy
                .decide(&record, place, &self.author, self.provenance)
                .map_err(|error| refused(record.offset, error))?;
            let change = match decision {
                Decision::Drop(reason) => {
                    self.progress.accounting.drop(reason, 1);
                    continue;
                }
                Decision::Keep(_) | Decision::Copied(_) if self.merge.is_full() => {
                    return Err(full(Before::Record(record.offset)));
                }
                Decision::Keep(change) => change,
                Decision::Copied(change) => {
                    self.progress.accounting.copied_headers += 1;
                    change
                }
            };
            self.progress.accounting.change(&edited);
            self.merge
                .add(&record, place.target, change, self.provenance, &edited)?;
        }
        Ok(())
    }

    /// Drops a batch that the reverse link wrote: its records come from the target.
    fn drop_whole(&mut self, piece: &Piece<'a>) -> Result<(), Stop> {
        let mut count = u64::from(piece.batch.record_count().unsigned_abs());
        if !self.is_within(&piece.batch) {
            let malformed = |error| self.source.malformed(piece.index, error);
            let records = Records::of(&piece.batch, self.memory, self.limits);
            count = 0;
            for record in records.map_err(malformed)? {
                let offset = record.map_err(malformed)?.offset;
                count += u64::from(self.offsets.contains(&offset));
            }
        }
        self.progress.accounting.fetched += count;
        self.progress.accounting.drop(DropReason::Hop, count);
        Ok(())
    }
}

/// Returns what the transform makes of a record.
fn fate(source: Source<'_>, record: &Record<'_>) -> Result<Fate, Stop> {
    let Some(transform) = source.policy.transform() else {
        return Ok(Fate::Keep(Edited::default()));
    };
    let headers: Vec<HeaderRef<'_>> = if transform.reads_headers() {
        record.headers.clone().collect()
    } else {
        Vec::new()
    };
    let parts = Parts {
        timestamp: record.timestamp,
        key: record.key,
        value: record.value,
        headers: &headers,
    };
    let at = || {
        place(
            source.policy.source_topic(),
            source.partition,
            record.offset,
        )
    };
    transform
        .apply(parts, at)
        .map_err(|error| refused(record.offset, error))
}
