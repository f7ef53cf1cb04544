//! O3: every record is covered by a position and a chunk of its own transaction.
//!
//! Three streams meet here, in any order: positions with records, chunks of the offset map, and what was committed
//! to data partitions. A position and a chunk that belong together make a [`Claim`] on records; a claim is decided
//! when its records have been read past. Whatever has met is forgotten.

mod decide;
mod pair;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::chain::Chains;
use super::facts::{Chunk, Position, Source};
use super::log::{LogId, Logs, Segment, Span};
use super::report::{Fault, Finding, Producer, Report, TransactionName};

/// Segments of producers that no position has named yet, above which one of these producers counts as foreign.
const MOST_UNKNOWN: usize = 65_536;
/// Chunks that wait for their positions while positions are known to have been removed.
const MOST_CHUNKS: usize = 65_536;
/// Aborted segments that are remembered, only to give a better name to what is wrong.
const MOST_ABORTED: usize = 65_536;

/// The segment that a marker ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    pub(super) log: LogId,
    pub(super) bounds: Span,
    /// When the broker wrote the marker, ms.
    pub(super) at: i64,
}

/// What a transaction committed to a data partition, as far as nothing has claimed it yet.
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

/// Positions and chunks of one producer id and source partition, each in the order of the transactions.
#[derive(Debug, Default)]
struct Pairs {
    positions: VecDeque<AwaitedPosition>,
    chunks: VecDeque<AwaitedChunk>,
}

/// A position and its chunk, on the way to the records.
#[derive(Debug)]
struct Claim {
    name: TransactionName,
    /// The position's record.
    log: LogId,
    offset: i64,
    data: LogId,
    spans: Vec<Span>,
    /// What the position says.
    target_offset: i64,
    records: i64,
    /// Of the target topic.
    topic_id: String,
    /// Whether the chunk is missing, and `spans` is only the last record.
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

/// A committed transaction of which something has not met yet.
#[derive(Debug, Default)]
struct Live {
    awaiting: usize,
    touched: Vec<Ended>,
    torn: bool,
}

/// How a claim compares with the log.
#[derive(Debug, Default)]
struct Compared {
    /// First offsets of the committed segments that hold claimed records.
    hits: Vec<i64>,
    aborted: bool,
    missing: Vec<Span>,
}

/// The matching of data, positions and offset map.
#[derive(Debug, Default)]
pub(super) struct Cover {
    /// Producer ids that a position or a claim of the link was written by.
    ours: HashSet<i64>,
    data: HashMap<(LogId, Producer), BTreeMap<i64, Data>>,
    unknown: usize,
    /// Records of producers that were given up as foreign.
    folded: HashMap<i64, u64>,
    /// Up to where committed records were forgotten, because nothing can be proved of them.
    forgotten: HashMap<LogId, i64>,
    aborted_data: HashMap<(LogId, Producer), Vec<Span>>,
    aborted_positions: Vec<(Producer, LogId, i64, TransactionName)>,
    aborted_chunks: HashSet<(Producer, Source, i64)>,
    aborted: usize,
    pairs: HashMap<(i64, Source), Pairs>,
    /// Chunks in `pairs`.
    chunks: usize,
    /// By data partition, then by the last offset and a number that tells equal ones apart.
    waiting: HashMap<LogId, BTreeMap<(i64, u64), Claim>>,
    held: HashMap<(LogId, Producer), Vec<Claim>>,
    sequence: u64,
    live: HashMap<TransactionName, Live>,
    /// Last transaction in the positions topic, and last owner of a segment of the map, to see what came apart.
    newest: HashMap<i64, TransactionName>,
    map_owner: HashMap<(LogId, i64), (i64, TransactionName)>,
    /// Positions that were set outside of a lane's data. The chunk of an adopted one says where another replicator
    /// has put records; nobody's transaction holds them.
    set: HashSet<(Producer, Source)>,
}

impl Cover {
    /// A producer id is the link's own.
    pub(super) fn learn(&mut self, producer_id: i64) {
        self.ours.insert(producer_id);
    }

    /// How much is remembered.
    pub(super) fn pending(&self) -> usize {
        let pairs = self.pairs.values();
        self.data.values().map(BTreeMap::len).sum::<usize>()
            + pairs
                .map(|pairs| pairs.positions.len() + pairs.chunks.len())
                .sum::<usize>()
            + self.waiting.values().map(BTreeMap::len).sum::<usize>()
            + self.held.values().map(Vec::len).sum::<usize>()
    }

    /// A transaction was committed on a data partition.
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
        // no position from before the first that is left will come any more
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

    /// Something was aborted.
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

    /// Positions were committed; all of one transaction.
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
                tears.push("positions of two transactions stand under one marker".to_owned());
            }
            let before = self.newest.insert(segment.producer.id, name.clone());
            if let Some(before) = before.filter(|before| !follows(before, &name)) {
                tears.push(format!(
                    "its positions stand behind the marker of {before}, not before it"
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
                    "it names {} and stands in a transaction of {}",
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
        // only now, because a transaction is done when nothing of it is awaited any more
        for key in keys {
            self.pair(logs, report, &key);
        }
    }

    /// Chunks of the offset map were committed.
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

    /// A data partition was read further: claims on what lies before may be decided.
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

    /// Nothing more will come.
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

/// Whether `name` may come after `before` under one producer id.
fn follows(before: &TransactionName, name: &TransactionName) -> bool {
    if (&before.run, before.lane) != (&name.run, name.lane) {
        return true;
    }
    let order = |name: &TransactionName| (name.epoch, name.attempt, name.txn, name.producer.epoch);
    order(before) < order(name)
}

/// Reports what a record shows.
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
