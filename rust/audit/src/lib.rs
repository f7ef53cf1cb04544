//! Audits the target's logs: proves from them alone that every transaction of a link is complete.
//!
//! # Input
//!
//! The data partitions, the positions and the offset map of one link, read uncommitted, with markers. The batches of
//! each partition must come in offset order; partitions may come in any order and interleaved ([`Audit::feed`]).
//!
//! # Reconstruction of a transaction
//!
//! A log shows transactions only per partition: the records of a producer id since its last marker there, and the next
//! marker. Such a part is called a segment. The log does not tell which segments of different partitions were decided
//! together:
//!
//! * Under transaction protocol V2 (KIP-890) the producer epoch increases with every transaction. (producer id, epoch)
//!   identifies it, and equal pairs suffice.
//! * Under V1 (KIP-98, used by librdkafka) one (producer id, epoch) runs many transactions in sequence. Each ends with
//!   a marker in exactly the partitions that it touched, so the k-th segment of a partition is not the k-th
//!   transaction. Times do not help: each partition's leader writes the markers of a decision at its own time, by its
//!   own clock.
//!
//! So the records must identify the transaction. A position carries its name (run, lane, epoch, attempt, number,
//! producer), the source range [prev, offset), the number of mirrored records, and the target offset of the last one.
//! The chunk of the offset map with the same producer and a first source offset in that range gives the target offsets
//! of these records. Together they determine the segments of a transaction:
//!
//! ```text
//! positions   [ p(t1) ]M   [ p(t2) ]M     the segment that holds the position
//!                 |            |          source range
//! offset map  [ c(t1) ]M   [ c(t2) ]M     the segment that holds the chunk
//!                 |            |          target offsets
//! data        [ r r r ]M   [ r r ]M       the segment that holds the records
//! ```
//!
//! # Checks
//!
//! * O3. The lines in the drawing are one-to-one: a transaction has at most one segment per partition, and a segment
//!   belongs to one transaction. All of them have one producer epoch and are committed, and every record of a segment
//!   is claimed once. Names increase in the positions topic. Violations are [`Fault::UncoveredData`],
//!   [`Fault::TornTransaction`], [`Fault::PositionWithoutData`], [`Fault::WrongTargetOffset`] and
//!   [`Fault::MapMismatch`].
//! * O4. The positions of each source partition form one chain, in which nothing goes back: [`Fault::BrokenChain`].
//! * O6. At rest every segment has its marker: [`Fault::OpenTransaction`]. An open transaction of a foreign producer
//!   counts as well, because it hides this link's records from readers.
//!
//! A chunk in the transaction of a first position describes what another replicator mirrored before the link was
//! adopted. No transaction of the link holds these records, so they are not checked.
//!
//! Committed records of producer ids that no position or claim names are foreign. A shared topic may have them, so they
//! are counted and are not a fault. A record of a link's producer id is never foreign, whatever its epoch.
//!
//! # Limits of the proof
//!
//! * Under V1, a transaction that two decisions ended in sequence, with no record of the same partition on both sides,
//!   looks like one that was decided at once with slow markers. All its records are there in the end, but a reader
//!   could have seen half of them in between. [`Report::widest_spread`] gives the time between the markers of one
//!   transaction, by the brokers' clocks. V2 has no such ambiguity.
//! * Contents. `verify` compares the records with the source; this audit proves that everything claimed as mirrored is
//!   there, once and complete.
//! * Records of a producer id that only removed positions named appear foreign.
//!
//! # Compaction and retention
//!
//! The state topics are compacted, and data topics may be. Offsets of a log are dense, so a hole shows that records
//! were removed, and after the last hole none were. If removed records explain a break in a chain of positions, the
//! audit is complete from that transaction on ([`Report::since`]); older records are [`Unproven`], not faults.
//! Positions and chunks whose records may have been removed are counted in the same way, and so are positions that name
//! the id of a deleted target topic.
//!
//! # Running links
//!
//! The end offsets of the partitions are read in sequence, so the last transaction of each producer may be split. Read
//! the ends of data partitions first, then those of positions, then those of the offset map. Then every transaction
//! except the last of a producer id is judged ([`Audit::finish`] with `at_rest: false`).
//!
//! # Memory
//!
//! Open segments, unmatched items, and the last position of each source partition and generation. Memory stays small if
//! the positions and the map are read slightly ahead of the data: when the records of a transaction are read, their
//! claims are there, and both are discarded ([`Audit::wants`]). Unmatched items are limited to 65,536 each. Above that,
//! a producer that no position names is classified as foreign, a chunk in a link with compacted positions is not
//! proved, and a defect beside an abort gets a less precise name.

#![forbid(unsafe_code)]

mod chain;
mod coverage;
mod facts;
mod log;
mod report;

use eomirror_batch::{Batch, BatchError, Control, Limits, Marker, Memory, Records};

use chain::Chains;
use coverage::{Cover, Ended};
use facts::Stated;
use log::{Logs, Segment, Span};

pub use log::{LogId, Role};
pub use report::{
    Fault, Finding, KEPT_FINDINGS, Place, Producer, Report, Since, TransactionName, Unproven,
};

/// An audit of one link's target.
#[derive(Default)]
pub struct Audit {
    logs: Logs,
    chains: Chains,
    cover: Cover,
    report: Report,
    memory: Memory,
}

impl Audit {
    /// Adds a partition, to be read from its log's start to `end`. All partitions of the positions topic and of the
    /// offset map must be added before the first batch, because their number determines a chunk's partition.
    pub fn add(
        &mut self,
        topic: &str,
        partition: i32,
        role: Role,
        log_start: i64,
        end: i64,
    ) -> LogId {
        let id = self.logs.named(topic, partition);
        let log = self.logs.get_mut(id);
        log.role = role;
        log.read = true;
        (log.start, log.next, log.whole_from) = (log_start, log_start, log_start);
        log.end = end;
        id
    }

    /// Sets the topic id of a partition. Positions of an earlier topic of the same name are not reported as faults.
    pub fn identify(&mut self, id: LogId, topic_id: &str) {
        self.logs.get_mut(id).topic_id = Some(topic_id.to_owned());
    }

    /// Registers a producer id of the link. Positions and claims name it as well, but late if most of them have been
    /// compacted away; until then its records appear foreign.
    pub fn learn(&mut self, producer_id: i64) {
        self.cover.learn(producer_id);
    }

    /// Returns true if the partition has something left to read.
    #[must_use]
    pub fn is_unfinished(&self, id: LogId) -> bool {
        self.logs.get(id).wants()
    }

    /// Returns true if the partition should be fed now to limit memory: data only as far as all state topics have been
    /// read, state topics at most one step ahead, by the times of the markers. At least one unfinished partition is
    /// always wanted.
    #[must_use]
    pub fn wants(&self, id: LogId) -> bool {
        let log = self.logs.get(id);
        if !log.wants() {
            return false;
        }
        let (state, data) = self.logs.times();
        match log.role {
            Role::Data => log.decided <= state,
            Role::Positions | Role::OffsetMap => log.decided <= state.max(data),
        }
    }

    /// Returns the next offset to feed of a partition.
    #[must_use]
    pub fn position(&self, id: LogId) -> i64 {
        self.logs.get(id).next
    }

    /// Returns the number of segments, positions and chunks without their counterparts.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.cover.pending()
    }

    /// Takes the next batch of a partition. A batch that was taken before is ignored, so a fetch from the middle of a
    /// batch is harmless.
    pub fn feed(&mut self, id: LogId, batch: &Batch<'_>) -> Result<(), BatchError> {
        let log = self.logs.get_mut(id);
        if batch.last_offset() < log.next {
            return Ok(());
        }
        batch.check_crc()?;
        let span = Span {
            first: batch.base_offset(),
            last: batch.last_offset(),
        };
        if span.first > log.next {
            log.whole_from = span.first;
        }
        let dense = i64::from(batch.record_count()) == i64::from(batch.last_offset_delta()) + 1;
        if !dense {
            log.whole_from = batch.next_offset();
        }
        if batch.is_control() {
            let control = Control::of(batch)?;
            self.logs.get_mut(id).next = batch.next_offset();
            if let Some(control) = control {
                self.logs.get_mut(id).decided = control.timestamp;
                self.marker(id, &control);
            }
        } else {
            self.records(id, batch, span)?;
            self.logs.get_mut(id).next = batch.next_offset();
        }
        if self.logs.get(id).role == Role::Data {
            self.cover.advanced(&self.logs, &mut self.report, id);
        }
        Ok(())
    }

    /// Judges the remaining items and returns the result.
    ///
    /// `at_rest` means that no producer writes: then every open transaction and every item without its counterpart is a
    /// fault.
    #[must_use]
    pub fn finish(mut self, at_rest: bool) -> Report {
        let mut open = Vec::new();
        for (_, log) in self.logs.iter().filter(|(_, log)| log.read) {
            for segment in log.open.values() {
                open.push(unended(log, segment));
            }
        }
        if at_rest {
            for finding in open {
                self.report.add(finding);
            }
        } else {
            self.report.unproven.under_way += open.len() as u64;
        }
        self.chains.finish(&self.logs, &mut self.report);
        self.cover
            .finish(&mut self.logs, &self.chains, &mut self.report, at_rest);
        self.report
    }

    fn records(&mut self, id: LogId, batch: &Batch<'_>, span: Span) -> Result<(), BatchError> {
        let producer = Producer {
            id: batch.producer_id(),
            epoch: batch.producer_epoch(),
        };
        let role = self.logs.get(id).role;
        if !batch.is_transactional() {
            if role == Role::Data {
                self.report.foreign_records += u64::from(batch.record_count().unsigned_abs());
                return Ok(());
            }
            // readers see it, so the audit treats it as a transaction of its own
            let mut segment = Segment::new(producer);
            segment.add(span);
            self.read_state(id, batch, &mut segment)?;
            segment.keep_last_of_each_key();
            let ended = Ended {
                log: id,
                bounds: span,
                at: batch.max_timestamp(),
            };
            self.committed(ended, segment);
            return Ok(());
        }
        let open = self.logs.get_mut(id).open.remove(&producer.id);
        let mut segment = match open {
            Some(open) if open.producer == producer => open,
            Some(open) => {
                // a newer epoch begins only after the marker of the older one's transaction
                let log = self.logs.get(id);
                if open.bounds().last >= log.whole_from {
                    self.report.add(unended(log, &open));
                }
                Segment::new(producer)
            }
            None => Segment::new(producer),
        };
        segment.add(span);
        if role != Role::Data {
            self.read_state(id, batch, &mut segment)?;
        }
        self.logs.get_mut(id).open.insert(producer.id, segment);
        Ok(())
    }

    /// Decodes the records of a state topic's batch into `segment`.
    fn read_state(
        &mut self,
        id: LogId,
        batch: &Batch<'_>,
        segment: &mut Segment,
    ) -> Result<(), BatchError> {
        let log = self.logs.get(id);
        for record in Records::of(batch, &mut self.memory, Limits::default())? {
            let record = record?;
            let (key, Some(value)) = (record.key.unwrap_or_default(), record.value) else {
                // a tombstone deletes a state; there is nothing left to check
                continue;
            };
            let wrong = if log.role == Role::Positions {
                match facts::stated(key, value) {
                    Ok(Stated::Claim) => {
                        segment.claims += 1;
                        None
                    }
                    Ok(Stated::Position(position)) => {
                        segment.positions.push((record.offset, *position));
                        None
                    }
                    Err(reason) => Some(reason.to_owned()),
                }
            } else {
                match facts::chunk(key, value) {
                    Ok(chunk) => {
                        let own = chunk.map(|chunk| (record.offset, chunk));
                        segment.chunks.extend(own);
                        None
                    }
                    Err(reason) => Some(reason),
                }
            };
            if let Some(detail) = wrong {
                self.report.add(Finding {
                    fault: Fault::Unreadable,
                    place: log.place(record.offset),
                    producer: segment.producer,
                    transaction: None,
                    detail,
                });
            }
        }
        Ok(())
    }

    fn marker(&mut self, id: LogId, control: &Control) {
        let committed = match control.marker {
            Marker::Commit { .. } => true,
            Marker::Abort { .. } => false,
            Marker::Other { .. } => return,
        };
        // absent if the transaction registered the partition and wrote nothing to it
        let Some(mut segment) = self.logs.get_mut(id).open.remove(&control.producer_id) else {
            return;
        };
        segment.keep_last_of_each_key();
        let ended = Ended {
            log: id,
            bounds: segment.bounds(),
            at: control.timestamp,
        };
        if segment.claims > 0 || !segment.positions.is_empty() {
            self.cover.learn(segment.producer.id);
        }
        if committed {
            self.committed(ended, segment);
        } else {
            self.cover
                .aborted(&mut self.logs, &mut self.report, ended, segment);
        }
    }

    fn committed(&mut self, ended: Ended, segment: Segment) {
        match self.logs.get(ended.log).role {
            Role::Data => {
                self.cover.data_committed(
                    &self.logs,
                    &self.chains,
                    &mut self.report,
                    ended,
                    segment,
                );
            }
            Role::OffsetMap => {
                self.cover
                    .chunks_committed(&mut self.logs, &mut self.report, ended, segment);
            }
            Role::Positions => {
                self.report.claims += segment.claims;
                for (offset, position) in &segment.positions {
                    self.report.positions += 1;
                    self.report.set += u64::from(position.is_set());
                    self.report.advances += u64::from(!position.is_set() && position.records == 0);
                    let target = self
                        .logs
                        .named(&position.target_topic, position.target_partition);
                    self.chains.push(
                        &self.logs,
                        &mut self.report,
                        ended.log,
                        *offset,
                        position,
                        target,
                    );
                }
                self.cover
                    .positions_committed(&mut self.logs, &mut self.report, ended, segment);
            }
        }
    }
}

fn unended(log: &log::Log, segment: &Segment) -> Finding {
    let bounds = segment.bounds();
    Finding {
        fault: Fault::OpenTransaction,
        place: log.place(bounds.first),
        producer: segment.producer,
        transaction: segment
            .positions
            .iter()
            .find(|(_, position)| !position.is_set())
            .map(|(_, position)| position.name.clone()),
        detail: format!(
            "no marker ends the transaction that wrote offsets {} to {}",
            bounds.first, bounds.last
        ),
    }
}
