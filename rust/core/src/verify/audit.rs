//! The log audit: shows from the target's logs alone that every transaction of a link is whole.
//!
//! # What is read
//!
//! The data partitions, the positions and the offset map of one link, read uncommitted, with markers. The batches of
//! each partition come in offset order; the partitions may come in any order and in turns ([`Audit::feed`]).
//!
//! # How a transaction is put together
//!
//! A log knows transactions only per partition: what a producer id wrote there since its last marker, and how the
//! next marker decided it. Such a piece is called a segment here. Nothing in the log says which segments of different
//! partitions were decided together:
//!
//! * Under the second transaction protocol (KIP-890) the producer epoch grows with every transaction. (producer id,
//!   epoch) names it, and equal names are all that is needed.
//! * Under the first one (KIP-98; librdkafka speaks it) one (producer id, epoch) runs many transactions, one after the
//!   other. Each ends with a marker in the partitions that it touched and in no others, so that the k-th segment of a
//!   partition is not the k-th transaction. Times do not help: markers of one decision are written when each
//!   partition's leader gets to it, by that broker's clock.
//!
//! So the records have to say it. A position carries the name of its transaction (run, lane, epoch, attempt, number,
//! producer), the source range [prev, offset), how many records of it were mirrored, and the target offset of the
//! last. The chunk of the offset map with the same producer and a first source offset in that range says where each
//! of these records is on the target. From this follow the segments that belong to a transaction:
//!
//! ```text
//! positions   [ p(t1) ]M   [ p(t2) ]M     the segment that holds the position
//!                 |            |          source range
//! offset map  [ c(t1) ]M   [ c(t2) ]M     the segment that holds the chunk
//!                 |            |          target offsets
//! data        [ r r r ]M   [ r r ]M       the segment that holds the records
//! ```
//!
//! # What is checked
//!
//! * O3. The lines in the drawing are one-to-one: a transaction has at most one segment in a partition, a segment
//!   belongs to one transaction, all of them are of one producer epoch and committed, and every record of a segment is
//!   claimed once. Names grow in the positions topic. What breaks this is named: [`Fault::UncoveredData`],
//!   [`Fault::TornTransaction`], [`Fault::PositionWithoutData`], [`Fault::WrongTargetOffset`],
//!   [`Fault::MapMismatch`].
//! * O4. The positions of each source partition form one chain, in which nothing goes back: [`Fault::BrokenChain`].
//! * O6. At rest every segment has its marker: [`Fault::OpenTransaction`]. A stranger's open transaction counts,
//!   because it hides our records from readers as well as one of ours.
//!
//! A chunk in the transaction of a first position says what another replicator had mirrored before the link was adopted.
//! Nobody's transaction holds these records, so nothing is asked of them.
//!
//! Committed records of producer ids that no position or claim names are foreign. A shared topic may have them, so they
//! are counted and are no fault. A record of a link's producer id is never foreign, whatever its epoch.
//!
//! # What cannot be proved
//!
//! * Under the first protocol, a transaction that two decisions ended one after the other, with no record of the same
//!   partition on both sides, looks like one that was decided at once and whose markers were slow. In the end everything
//!   is there; a reader could have seen half of it meanwhile. [`Report::widest_spread`] tells how far apart the
//!   markers of one transaction are, by the brokers' clocks. The second protocol leaves no such doubt.
//! * Contents. That the records are the source's is for `verify` to show; this audit shows that what claims to be
//!   mirrored is there, once and in one piece.
//! * Records by a producer id that only removed positions named look foreign.
//!
//! # Compaction and retention
//!
//! The state topics are compact, and data topics may be. Offsets of a log are dense, so a hole shows that records were
//! removed, and behind the last hole nothing was. Where a chain of positions has a joint that removed records explain,
//! the audit is complete from that transaction on ([`Report::since`]); older records are [`Unproven`], not faults.
//! Positions and chunks whose records may have been removed are counted likewise, and so are positions that name the
//! id of a target topic that was deleted since.
//!
//! # A link that runs
//!
//! The ends of the partitions are taken one after the other, so the last transaction of each producer may be cut in
//! two. Take the ends of data partitions first, then those of positions, then those of the offset map; then every
//! transaction but the last of a producer id is judged ([`Audit::finish`] with `at_rest: false`).
//!
//! # Memory
//!
//! Open segments, what has not met its counterpart, and the last position of each source partition and generation. It
//! stays small if the positions and the map are read a little ahead of the data: when the records of a transaction
//! come, their claims are there, and both are forgotten ([`Audit::wants`]). What has no counterpart is kept to a
//! limit of 65,536 each: above it a producer that nothing names is given up as foreign, a chunk in a link whose
//! positions were compacted is not proved, and what lies beside an abort gets a less telling name.

mod chain;
mod coverage;
mod facts;
mod json;
mod log;
mod report;

use crate::batch::{Batch, BatchError, Control, Limits, Marker, Memory, Records};

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
    /// Adds a partition, to be read from its log's start to `end`. All partitions of the positions topic and of the offset map must be added before the first
    /// batch, because a chunk's place follows from their number.
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

    /// Says which topic a partition belongs to. Positions of an earlier topic of the same name are not held against it.
    pub fn identify(&mut self, id: LogId, topic_id: &str) {
        self.logs.get_mut(id).topic_id = Some(topic_id.to_owned());
    }

    /// Says that a producer id is the link's own. Positions and claims say so, too, but where most of them have been
    /// compacted away they come late, and until then its records look like a stranger's.
    pub fn learn(&mut self, producer_id: i64) {
        self.cover.learn(producer_id);
    }

    /// Whether the partition has something left to read.
    #[must_use]
    pub fn is_unfinished(&self, id: LogId) -> bool {
        self.logs.get(id).wants()
    }

    /// Whether the partition should be fed now, so that little has to be remembered: data as far as all state topics
    /// have been read, state topics no further ahead than one step, by the times of the markers. Of all unfinished
    /// partitions at least one is wanted.
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

    /// The next offset that a partition is to be fed.
    #[must_use]
    pub fn position(&self, id: LogId) -> i64 {
        self.logs.get(id).next
    }

    /// How many segments, positions and chunks are remembered because they have not met their counterparts.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.cover.pending()
    }

    /// Takes the next batch of a partition. A batch that was taken before is passed over, so that a fetch from the
    /// middle of a batch does no harm.
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

    /// Says what is left over wrong, and what was seen.
    ///
    /// `at_rest` means that nobody writes: then what is open is a fault, and so is everything that has not met its
    /// counterpart.
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
            // readers believe it, so the audit has to look at it: a transaction of its own
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
                // a newer epoch begins only when the older one's transaction has its marker
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

    /// Reads the records of a state topic's batch into `segment`.
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
                // a tombstone takes a state back; nothing of it is left to check
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
        // none where the transaction registered the partition and wrote nothing to it
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
