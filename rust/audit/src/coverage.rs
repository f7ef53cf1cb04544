//! O3: every record is covered by a position and a chunk of its own transaction.
//!
//! Three streams meet here, in any order: positions with records, chunks of the offset map, and records committed to
//! data partitions. A position and its chunk form a [`Claim`] on records. A claim is decided after its records have
//! been read. Matched items are discarded.

mod decide;
mod pair;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::chain::Chains;
use super::facts::{Chunk, Position, Source};
use super::log::{LogId, Logs, Segment, Span};
use super::report::{Fault, Finding, Producer, Report, TransactionName};

/// Number of segments of unnamed producers above which one of these producers is classified as foreign.
const MOST_UNKNOWN: usize = 65_536;
/// Maximum number of chunks that wait for their positions, if positions are known to have been removed.
const MOST_CHUNKS: usize = 65_536;
/// Maximum number of aborted segments kept, only to report defects under a more precise name.
const MOST_ABORTED: usize = 65_536;

/// Segment that a marker ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) log: LogId,
    pub(super) bounds: Span,
    /// Time at which the broker wrote the marker, in ms.
    pub(super) at: i64,
}

/// Unclaimed records that a transaction committed to a data partition.
#[derive(Debug)]
struct Data {
    ended: Ended,
    spans: Vec<Span>,
    unclaimed: Vec<Span>,
    owner: Option<TransactionName>,
}

#[derive(Debug)]
struct AwaitedPosition {
    offset: i64,
    position: Position,
    ended: Ended,
}

#[derive(Debug)]
struct AwaitedChunk {
    offset: i64,
    chunk: Chunk,
    epoch: i16,
    ended: Ended,
}

/// Positions and chunks of one producer id and source partition, each in transaction order.
#[derive(Debug, Default)]
struct Pairs {
    positions: VecDeque<AwaitedPosition>,
    chunks: VecDeque<AwaitedChunk>,
}

/// A position and its chunk, waiting for the records.
#[derive(Debug)]
struct Claim {
    name: TransactionName,
    /// Record of the position.
    log: LogId,
    offset: i64,
    data: LogId,
    spans: Vec<Span>,
    /// Target offset of the position.
    target_offset: i64,
    records: i64,
    /// Id of the target topic.
    topic_id: String,
    /// True if the chunk is missing, and `spans` is only the last record.
    chunkless: bool,
}

impl Claim {
    fn bounds(&self) -> Span {
        Span {
            first: self.spans[0].first,
            last: self.spans[self.spans.len() - 1]
                .last
                .max(self.target_offset),
        }
    }
}

/// A committed transaction with unmatched parts.
#[derive(Debug, Default)]
struct Live {
    awaiting: usize,
    touched: Vec<Ended>,
    torn: bool,
}

/// Result of comparing a claim with the log.
#[derive(Debug, Default)]
struct Compared {
    /// First offsets of the committed segments that hold claimed records.
    hits: Vec<i64>,
    aborted: bool,
    missing: Vec<Span>,
}

/// Matches data, positions and offset map.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// Producer ids of the link's positions and claims.
    ours: HashSet<i64>,
    data: HashMap<(LogId, Producer), BTreeMap<i64, Data>>,
    unknown: usize,
    /// Number of records of producers that were classified as foreign.
    folded: HashMap<i64, u64>,
    /// Offset up to which committed records were discarded, because nothing can be proved about them.
    forgotten: HashMap<LogId, i64>,
    aborted_data: HashMap<(LogId, Producer), Vec<Span>>,
    aborted_positions: Vec<(Producer, LogId, i64, TransactionName)>,
    aborted_chunks: HashSet<(Producer, Source, i64)>,
    aborted: usize,
    pairs: HashMap<(i64, Source), Pairs>,
    /// Number of chunks in `pairs`.
    chunks: usize,
    /// By data partition, then by the last offset and a number that separates equal ones.
    waiting: HashMap<LogId, BTreeMap<(i64, u64), Claim>>,
    held: HashMap<(LogId, Producer), Vec<Claim>>,
    sequence: u64,
    live: HashMap<TransactionName, Live>,
    /// Last transaction in the positions topic, and last owner of a segment of the map, to detect torn transactions.
    newest: HashMap<i64, TransactionName>,
    map_owner: HashMap<(LogId, i64), (i64, TransactionName)>,
    /// Positions that were set outside of a lane's data. The chunk of an adopted one describes another replicator's
    /// records, which no transaction holds.
    set: HashSet<(Producer, Source)>,
}

impl Cover {
    /// Registers a producer id of the link.
    pub(super) fn learn(&mut self, producer_id: i64) {
        self.ours.insert(producer_id);
    }

    /// Returns the number of remembered items.
    pub(super) fn pending(&self) -> usize {
        let pairs = self.pairs.values();
        self.data.values().map(BTreeMap::len).sum::<usize>()
            + pairs
                .map(|pairs| pairs.positions.len() + pairs.chunks.len())
                .sum::<usize>()
            + self.waiting.values().map(BTreeMap::len).sum::<usize>()
            + self.held.values().map(Vec::len).sum::<usize>()
    }

    /// Takes a transaction committed on a data partition.
    pub(super) fn data_committed(
        &mut self,
        logs: &Logs,
        chains: &Chains,
        report: &mut Report,
        ended: Ended,
        segment: Segment,
    ) {
        let producer = segment.producer;
        let records = segment.spans.iter().map(|span| span.count()).sum::<u64>();
        let ours = self.ours.contains(&producer.id);
        if let Some(folded) = self.folded.get_mut(&producer.id) {
            *folded += records;
            return;
        }
        if !ours {
            self.unknown += 1;
            if self.unknown > MOST_UNKNOWN {
                self.fold(producer.id, records);
                return;
            }
        }
        let key = (ended.log, producer);
        let held = self.held.remove(&key).unwrap_or_default();
        // no position before the first remaining one will follow
        let last = ended.bounds.last;
        if held.is_empty() && ours && !chains.can_judge(logs, ended.log, last + 1) {
            let forgotten = self.forgotten.entry(ended.log).or_default();
            *forgotten = last.max(*forgotten);
            report.unproven.records += records;
            return;
        }
        let data = Data {
            ended,
            unclaimed: segment.spans.clone(),
            spans: segment.spans,
            owner: None,
        };
        self.data
            .entry(key)
            .or_default()
            .insert(ended.bounds.first, data);
        for claim in held {
            self.claim(logs, report, claim);
        }
    }

    /// Takes an aborted segment.
    pub(super) fn aborted(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        ended: Ended,
        segment: Segment,
    ) {
        let producer = segment.producer;
        if self.ours.contains(&producer.id) || !segment.positions.is_empty() {
            report.aborted += 1;
        }
        self.aborted += 1;
        if self.aborted <= MOST_ABORTED {
            for (_, position) in segment.positions {
                if let (Some(offset), true) = (position.target_offset, position.records > 0) {
                    let data = logs.named(&position.target_topic, position.target_partition);
                    self.aborted_positions
                        .push((producer, data, offset, position.name));
                }
            }
            for (_, chunk) in segment.chunks {
                self.aborted_chunks
                    .insert((producer, chunk.source, chunk.first));
            }
            let key = (ended.log, producer);
            self.aborted_data
                .entry(key)
                .or_default()
                .extend(segment.spans);
        }
        for claim in self.held.remove(&(ended.log, producer)).unwrap_or_default() {
            self.claim(logs, report, claim);
        }
    }

    /// Takes committed positions, all of one transaction.
    pub(super) fn positions_committed(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        ended: Ended,
        segment: Segment,
    ) {
        let stamped = segment
            .positions
            .iter()
            .find(|(_, position)| !position.is_set());
        if let Some((offset, first)) = stamped {
            let name = first.name.clone();
            let mut tears = Vec::new();
            if segment
                .positions
                .iter()
                .any(|(_, other)| !other.is_set() && other.name != name)
            {
                tears.push("positions of two transactions are under one marker".to_owned());
            }
            let before = self.newest.insert(segment.producer.id, name.clone());
            if let Some(before) = before.filter(|before| !follows(before, &name)) {
                tears.push(format!(
                    "its positions are after the marker of {before}, not before it"
                ));
            }
            for detail in tears {
                self.torn(
                    logs,
                    report,
                    (ended.log, *offset),
                    Some(&name),
                    segment.producer,
                    detail,
                );
            }
        }
        let mut keys = Vec::new();
        for (offset, position) in segment.positions {
            if position.name.producer != segment.producer {
                let detail = format!(
                    "it names {} but is in a transaction of {}",
                    position.name.producer, segment.producer
                );
                let at = (ended.log, offset);
                self.torn(
                    logs,
                    report,
                    at,
                    Some(&position.name),
                    segment.producer,
                    detail,
                );
                continue;
            }
            if position.is_set() {
                self.set.insert((segment.producer, position.source.clone()));
            }
            if position.records == 0 {
                continue;
            }
            let live = self.live.entry(position.name.clone()).or_default();
            live.awaiting += 1;
            if live.touched.is_empty() {
                live.touched.push(ended);
            }
            let key = (segment.producer.id, position.source.clone());
            self.pairs
                .entry(key.clone())
                .or_default()
                .positions
                .push_back(AwaitedPosition {
                    offset,
                    position,
                    ended,
                });
            keys.push(key);
        }
        // at the end, because a transaction is complete once none of its parts is awaited
        for key in keys {
            self.pair(logs, report, &key);
        }
    }

    /// Takes committed chunks of the offset map.
    pub(super) fn chunks_committed(
        &mut self,
        logs: &mut Logs,
        report: &mut Report,
        ended: Ended,
        segment: Segment,
    ) {
        for (offset, chunk) in segment.chunks {
            let key = (segment.producer.id, chunk.source.clone());
            self.chunks += 1;
            let pairs = self.pairs.entry(key.clone()).or_default();
            pairs.chunks.push_back(AwaitedChunk {
                offset,
                chunk,
                epoch: segment.producer.epoch,
                ended,
            });
            if self.chunks > MOST_CHUNKS && !logs.positions_whole() {
                let oldest = pairs.chunks.pop_front();
                self.forget_chunk(logs, report, oldest);
            }
            self.pair(logs, report, &key);
        }
    }

    /// Decides claims on records before a data partition's new read position.
    pub(super) fn advanced(&mut self, logs: &Logs, report: &mut Report, log: LogId) {
        let next = logs.get(log).next;
        while let Some(entry) = self.waiting.get_mut(&log).and_then(BTreeMap::first_entry) {
            if entry.key().0 >= next {
                return;
            }
            let claim = entry.remove();
            self.claim(logs, report, claim);
        }
    }

    /// Decides everything that is left at the end of input.
    pub(super) fn finish(
        &mut self,
        logs: &mut Logs,
        chains: &Chains,
        report: &mut Report,
        at_rest: bool,
    ) {
        self.finish_pairs(logs, report, at_rest);
        self.finish_claims(logs, report, at_rest);
        self.finish_data(logs, chains, report, at_rest);
        for (id, records) in std::mem::take(&mut self.folded) {
            if self.ours.contains(&id) {
                report.unproven.records += records;
            } else {
                report.foreign_records += records;
                report.foreign_producers += 1;
            }
        }
    }
}

/// Returns true if `name` may follow `before` under one producer id.
fn follows(before: &TransactionName, name: &TransactionName) -> bool {
    if (&before.run, before.lane) != (&name.run, name.lane) {
        return true;
    }
    let order = |name: &TransactionName| (name.epoch, name.attempt, name.txn, name.producer.epoch);
    order(before) < order(name)
}

/// Reports a fault at a record.
fn add(
    logs: &Logs,
    report: &mut Report,
    fault: Fault,
    (log, offset): (LogId, i64),
    producer: Producer,
    transaction: Option<&TransactionName>,
    detail: String,
) {
    report.add(Finding {
        fault,
        place: logs.get(log).place(offset),
        producer,
        transaction: transaction.cloned(),
        detail,
    });
}
