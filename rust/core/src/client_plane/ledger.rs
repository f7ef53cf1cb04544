//! Accounts for one open transaction, per source partition (rule 7).
//!
//! Before every commit, the fetched records must equal the acknowledged plus the intentionally dropped ones. The ledger
//! also maps source offsets to target offsets. The target acknowledges a partition's records in the order in which they
//! were produced, so the n-th acknowledged offset belongs to the n-th planned record *of that target partition*. Two
//! source partitions may share a target partition (aggregation). Therefore the order is kept per target partition, as
//! runs of consecutive source offsets.
//!
//! Where the records of a target topic are placed by key, a source partition has several target partitions. Its account
//! then names them all, and has no offset map: an offset of the source divides the target at several offsets.

use std::collections::{BTreeMap, HashMap};

use crate::client_plane::route::{Route, Routes};
use crate::digest::Digest;
use crate::error::Error;
use crate::offset_map::{OffsetMap, Range};
use crate::transform::Edited;
use crate::types::{AckedPartition, Acks, ByRule, DropReason, MOST_RULES, RecordRef, counted};

/// Account of one source partition in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionAccount {
    /// Source topic.
    pub source_topic: String,
    /// Source partition.
    pub source_partition: i32,
    /// Number of fetched records.
    pub fetched: u64,
    /// Number of records that the target acknowledged.
    pub acked: u64,
    /// Size of the kept records' keys, values and headers in bytes, as they were read.
    pub bytes: u64,
    /// Number of dropped records per reason; reasons without records are absent.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Number of acknowledged records that each rule of the transform changed; rules without records are absent.
    pub changed: BTreeMap<&'static str, u64>,
    /// Number of acknowledged records that carry the provenance header of another record: an application copied it.
    pub copied_headers: u64,
    /// Offset of the first fetched record.
    pub first_source_offset: i64,
    /// Offset of the last fetched record.
    pub last_source_offset: i64,
    /// Leader epoch of the last fetched record, -1 if unknown.
    pub leader_epoch: i32,
    /// Timestamp of the last kept record in ms, -1 if there is none.
    pub timestamp: i64,
    /// Target topic.
    pub target_topic: String,
    /// Target partition; where records are placed by key, that of the last acknowledged record.
    pub target_partition: i32,
    /// Target offset of the first acknowledged record, -1 if there is none.
    pub first_target_offset: i64,
    /// Target offset of the last acknowledged record, -1 if there is none.
    pub last_target_offset: i64,
    /// Target partitions with acknowledged records, if these are placed by key: partition, and offsets of the first and
    /// the last record there, in order of the partition. Empty if records keep their partition.
    pub placed: Vec<(i32, i64, i64)>,
    /// Chunk of the offset map, empty if no record was acknowledged, or where records are placed by key.
    pub offset_map: Vec<u8>,
    /// Chained digest of the kept records in hexadecimal, empty if there is none.
    pub digest: String,
    /// The last kept record; `None` if there is none, or if the records were not read.
    pub tail: Option<Tail>,
    /// The largest ranges of offsets without a record (markers, aborted records, or a hole in the log), in order: first
    /// offset and exclusive end.
    pub jumps: Vec<(i64, i64)>,
}

/// Identifies a record among all records that could have the same offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Source offset of the record.
    pub offset: i64,
    /// Chained digest before the record.
    pub before: Digest,
    /// Chained digest after the record.
    pub after: Digest,
}

/// Maximum number of jumps kept per partition.
const MOST_JUMPS: usize = 16;

/// Accounts for one open transaction.
#[derive(Debug, Default)]
pub struct Ledger {
    sources: Vec<SourceBook>,
    by_source: HashMap<(usize, i32), usize>,
    targets: Vec<TargetBook>,
    by_target: HashMap<(usize, i32), usize>,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct SourceBook {
    route: Route,
    partition: i32,
    target_book: usize,
    fetched: u64,
    kept: u64,
    bytes: u64,
    dropped: [u64; DropReason::ALL.len()],
    changed: ByRule,
    copied_headers: u64,
    first: i64,
    last: i64,
    leader_epoch: i32,
    timestamp: i64,
    digest: Digest,
    tail: Option<Tail>,
    jumps: Vec<(i64, i64)>,
}

#[derive(Debug, Default)]
struct TargetBook {
    runs: Vec<PlannedRun>,
}

/// Consecutive source offsets of one source partition, planned in sequence to one target partition.
#[derive(Debug, Clone, Copy)]
struct PlannedRun {
    source_book: usize,
    first: i64,
    count: i64,
}

/// Hands out acknowledged offsets to source partitions.
#[derive(Default)]
struct Settled {
    acked: u64,
    map: OffsetMap,
    placed: BTreeMap<i32, Placed>,
}

/// Acknowledged records of one source partition in one of several target partitions.
struct Placed {
    first: i64,
    last: i64,
    /// Source offset of the last record.
    source: i64,
}

impl Ledger {
    /// Returns true if no record was entered since the last [`Ledger::clear`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Discards all entries, after a commit or an abort.
    pub fn clear(&mut self) {
        self.sources.clear();
        self.by_source.clear();
        self.targets.clear();
        self.by_target.clear();
    }

    /// Returns the last source offset entered for a partition.
    #[must_use]
    pub fn last_offset(&self, route: Route, partition: i32) -> Option<i64> {
        let book = self.by_source.get(&(route.source, partition))?;
        Some(self.sources[*book].last)
    }

    /// Returns target partitions and the number of records entered for each; those without records are absent.
    pub fn planned<'a>(&'a self, routes: &'a Routes) -> impl Iterator<Item = (&'a str, i32, i64)> {
        self.by_target
            .iter()
            .map(|((_, partition), book)| (*partition, &self.targets[*book]))
            .filter(|(_, book)| !book.runs.is_empty())
            .map(|(partition, book)| {
                let route = self.sources[book.runs[0].source_book].route;
                let count = book.runs.iter().map(|run| run.count).sum();
                (routes.target(route), partition, count)
            })
    }

    /// Returns the source partitions with entries: topic, partition, the offset after the last record, and its leader
    /// epoch (-1 if unknown).
    pub fn reached<'a>(
        &'a self,
        routes: &'a Routes,
    ) -> impl Iterator<Item = (&'a str, i32, i64, i32)> {
        self.sources.iter().map(|book| {
            (
                routes.source(book.route),
                book.partition,
                book.last + 1,
                book.leader_epoch,
            )
        })
    }

    /// Returns the last kept record of each source partition.
    pub fn tails<'a>(&'a self, routes: &'a Routes) -> impl Iterator<Item = (&'a str, i32, Tail)> {
        self.sources
            .iter()
            .filter_map(|book| Some((routes.source(book.route), book.partition, book.tail?)))
    }

    /// Enters a record that goes to the target. Its offset must exceed the last one of its partition.
    ///
    /// `partition` is the target partition, if it is not that of the source.
    pub(crate) fn keep(&mut self, route: Route, record: &RecordRef<'_>, partition: Option<i32>) {
        let index = self.enter(route, record);
        let book = &mut self.sources[index];
        book.kept += 1;
        book.bytes += record.size();
        book.timestamp = record.timestamp;
        let before = book.digest;
        book.digest.add(record, &mut self.scratch);
        book.tail = Some(Tail {
            offset: record.offset,
            before,
            after: book.digest,
        });
        let target_book = match partition {
            None => book.target_book,
            Some(partition) => self.target_book(route, partition),
        };
        let runs = &mut self.targets[target_book].runs;
        match runs.last_mut() {
            Some(run) if run.source_book == index && run.first + run.count == record.offset => {
                run.count += 1;
            }
            _ => runs.push(PlannedRun {
                source_book: index,
                first: record.offset,
                count: 1,
            }),
        }
    }

    /// Records that the last kept record carries the provenance header of another record.
    pub(crate) fn copied(&mut self, route: Route, partition: i32) {
        if let Some(book) = self.by_source.get(&(route.source, partition)) {
            self.sources[*book].copied_headers += 1;
        }
    }

    /// Records which rules changed the last kept record.
    pub(crate) fn changed(&mut self, route: Route, partition: i32, edited: &Edited) {
        if edited.is_empty() {
            return;
        }
        if let Some(book) = self.by_source.get(&(route.source, partition)) {
            for rule in edited.rules() {
                self.sources[*book].changed[rule.index()] += 1;
            }
        }
    }

    /// Enters a record that is intentionally dropped.
    pub(crate) fn drop(&mut self, route: Route, record: &RecordRef<'_>, reason: DropReason) {
        let index = self.enter(route, record);
        self.sources[index].dropped[reason.index()] += 1;
    }

    /// Compares the accounts with the target's acknowledgements.
    ///
    /// Acknowledgements of topics without a route belong to the caller's own records (positions, offset map) and are
    /// ignored. The accounts stay open: only [`Ledger::clear`] closes them.
    pub fn settle(&self, routes: &Routes, acks: &Acks) -> Result<Vec<PartitionAccount>, Error> {
        let mut settled: Vec<Settled> = Vec::new();
        settled.resize_with(self.sources.len(), Settled::default);
        for acked in &acks.partitions {
            if let Some(target) = routes.find_target(&acked.topic) {
                let placed = routes.is_keyed(target);
                self.attribute(target, acked, &mut settled, placed)?;
            }
        }
        let mut accounts = Vec::with_capacity(settled.len());
        for (book, settled) in self.sources.iter().zip(&settled) {
            accounts.push(book.close(routes, settled)?);
        }
        if acks.failed > 0 {
            return Err(Error::FailedAcks {
                failed: acks.failed,
            });
        }
        Ok(accounts)
    }

    fn attribute(
        &self,
        target: usize,
        acked: &AckedPartition,
        settled: &mut [Settled],
        placed: bool,
    ) -> Result<(), Error> {
        check_order(acked)?;
        let planned = self
            .by_target
            .get(&(target, acked.partition))
            .map_or(&[][..], |book| &self.targets[*book].runs);
        let mut planned = planned.iter().copied();
        let mut open: Option<PlannedRun> = None;
        let mut surplus = 0_u64;
        for run in &acked.runs {
            let (mut first, mut left) = (run.first, run.count);
            while left > 0 {
                let Some(mut next) = open.take().or_else(|| planned.next()) else {
                    surplus += left.unsigned_abs();
                    break;
                };
                let count = left.min(next.count);
                let book = &mut settled[next.source_book];
                book.acked += count.unsigned_abs();
                if placed {
                    book.place(acked.partition, first, count, next.first);
                } else {
                    book.map.push(Range {
                        source: next.first,
                        target: first,
                        count,
                    })?;
                }
                first += count;
                left -= count;
                next.first += count;
                next.count -= count;
                open = (next.count > 0).then_some(next);
            }
        }
        if surplus > 0 {
            return Err(Error::UnplannedAcks {
                topic: acked.topic.clone(),
                partition: acked.partition,
                surplus,
            });
        }
        Ok(())
    }

    fn enter(&mut self, route: Route, record: &RecordRef<'_>) -> usize {
        let index = match self.by_source.get(&(route.source, record.partition)) {
            Some(index) => *index,
            None => self.open(route, record),
        };
        let book = &mut self.sources[index];
        if book.fetched > 0 && record.offset > book.last + 1 {
            book.jump(record.offset);
        }
        book.fetched += 1;
        book.last = record.offset;
        book.leader_epoch = record.leader_epoch;
        index
    }

    fn target_book(&mut self, route: Route, partition: i32) -> usize {
        let targets = &mut self.targets;
        *self
            .by_target
            .entry((route.target, partition))
            .or_insert_with(|| {
                targets.push(TargetBook::default());
                targets.len() - 1
            })
    }

    fn open(&mut self, route: Route, record: &RecordRef<'_>) -> usize {
        let partition = record.partition;
        let target_book = self.target_book(route, partition);
        self.sources.push(SourceBook {
            route,
            partition,
            target_book,
            fetched: 0,
            kept: 0,
            bytes: 0,
            dropped: [0; DropReason::ALL.len()],
            changed: [0; MOST_RULES],
            copied_headers: 0,
            first: record.offset,
            last: record.offset,
            leader_epoch: -1,
            timestamp: -1,
            digest: Digest::default(),
            tail: None,
            jumps: Vec::new(),
        });
        let index = self.sources.len() - 1;
        self.by_source.insert((route.source, partition), index);
        index
    }
}

impl Settled {
    /// Enters `count` acknowledged records of a target partition from offset `first` on, which have the source offsets
    /// from `source` on.
    fn place(&mut self, partition: i32, first: i64, count: i64, source: i64) {
        let (last, source) = (first + count - 1, source + count - 1);
        self.placed
            .entry(partition)
            .and_modify(|part| {
                part.last = last;
                part.source = source;
            })
            .or_insert(Placed {
                first,
                last,
                source,
            });
    }
}

impl SourceBook {
    /// Records a jump of offsets from the last record to one at `offset`.
    fn jump(&mut self, offset: i64) {
        let size = |jump: &(i64, i64)| jump.1 - jump.0;
        self.jumps.push((self.last + 1, offset));
        if self.jumps.len() > MOST_JUMPS {
            let smallest = (0..self.jumps.len()).min_by_key(|place| size(&self.jumps[*place]));
            smallest.map(|place| self.jumps.remove(place));
        }
    }

    fn close(&self, routes: &Routes, settled: &Settled) -> Result<PartitionAccount, Error> {
        let dropped_in_all = self.dropped.iter().sum::<u64>();
        if self.fetched != settled.acked + dropped_in_all {
            return Err(Error::Unaccounted {
                topic: routes.source(self.route).to_owned(),
                partition: self.partition,
                fetched: self.fetched,
                acked: settled.acked,
                dropped: dropped_in_all,
            });
        }
        let (mut first_target_offset, mut last_target_offset) =
            settled.map.target_bounds().unwrap_or((-1, -1));
        let mut target_partition = self.partition;
        let newest = settled.placed.iter().max_by_key(|(_, part)| part.source);
        if let Some((partition, part)) = newest {
            target_partition = *partition;
            (first_target_offset, last_target_offset) = (part.first, part.last);
        }
        let target_topic = routes.target(self.route);
        let offset_map = if settled.map.is_empty() {
            Vec::new()
        } else {
            settled.map.encode(target_topic, self.partition)?
        };
        Ok(PartitionAccount {
            source_topic: routes.source(self.route).to_owned(),
            source_partition: self.partition,
            fetched: self.fetched,
            acked: settled.acked,
            bytes: self.bytes,
            dropped: DropReason::ALL
                .iter()
                .map(|reason| (reason.name(), self.dropped[reason.index()]))
                .filter(|(_, count)| *count > 0)
                .collect(),
            changed: counted(&self.changed).collect(),
            copied_headers: self.copied_headers,
            first_source_offset: self.first,
            last_source_offset: self.last,
            leader_epoch: self.leader_epoch,
            timestamp: self.timestamp,
            target_topic: target_topic.to_owned(),
            target_partition,
            first_target_offset,
            last_target_offset,
            placed: settled
                .placed
                .iter()
                .map(|(partition, part)| (*partition, part.first, part.last))
                .collect(),
            offset_map,
            digest: if self.kept > 0 {
                self.digest.hex()
            } else {
                String::new()
            },
            tail: self.tail,
            jumps: self.jumps.clone(),
        })
    }
}

/// Checks that offsets increase: attribution by position is correct only then.
fn check_order(acked: &AckedPartition) -> Result<(), Error> {
    let mut last = -1_i64;
    for run in &acked.runs {
        let end = run
            .first
            .checked_add(run.count)
            .filter(|_| run.count >= 1 && run.first > last)
            .ok_or_else(|| Error::AcksOutOfOrder {
                topic: acked.topic.clone(),
                partition: acked.partition,
                offset: run.first,
                last,
            })?;
        last = end - 1;
    }
    Ok(())
}
