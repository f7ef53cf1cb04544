//! The content of one partition's log, split into the segments between markers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::facts::{Chunk, Position};
use super::report::{Place, Producer};

/// Role of a partition in the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Mirrored records, possibly among records of other producers.
    Data,
    /// The link's positions topic.
    Positions,
    /// The link's offset map.
    OffsetMap,
}

/// A partition of an [`super::Audit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogId(pub(super) usize);

/// Offsets from first to last, both inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: i64,
    pub(super) last: i64,
}

impl Span {
    pub(super) fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub(super) fn count(self) -> u64 {
        (self.last - self.first + 1).unsigned_abs()
    }
}

/// Records of one producer in one partition since its last marker there: a transaction's part of the partition.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) producer: Producer,
    /// Offsets of batches; adjacent ones are joined.
    pub(super) spans: Vec<Span>,
    pub(super) claims: u64,
    pub(super) positions: Vec<(i64, Position)>,
    pub(super) chunks: Vec<(i64, Chunk)>,
}

impl Segment {
    pub(super) fn new(producer: Producer) -> Self {
        Self {
            producer,
            spans: Vec::new(),
            claims: 0,
            positions: Vec::new(),
            chunks: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, span: Span) {
        match self.spans.last_mut() {
            Some(before) if before.last + 1 == span.first => before.last = span.last,
            _ => self.spans.push(span),
        }
    }

    pub(super) fn bounds(&self) -> Span {
        Span {
            first: self.spans.first().map_or(0, |span| span.first),
            last: self.spans.last().map_or(0, |span| span.last),
        }
    }

    /// Keeps the last record of each key, which is the one that counts, within a transaction as elsewhere.
    pub(super) fn keep_last_of_each_key(&mut self) {
        let mut newest = HashMap::new();
        for (offset, position) in &self.positions {
            newest.insert(position.source.clone(), *offset);
        }
        self.positions
            .retain(|(offset, position)| newest[&position.source] == *offset);
        let mut newest = HashMap::new();
        for (offset, chunk) in &self.chunks {
            newest.insert(
                (chunk.source.clone(), chunk.topic_id.clone(), chunk.first),
                *offset,
            );
        }
        self.chunks.retain(|(offset, chunk)| {
            newest[&(chunk.source.clone(), chunk.topic_id.clone(), chunk.first)] == *offset
        });
    }
}

/// One partition, as far as it was read.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    /// Id of the current topic; `None` if it was not set.
    pub(super) topic_id: Option<String>,
    pub(super) role: Role,
    /// True if the partition is read; false if only positions name it.
    pub(super) read: bool,
    /// First offset of the log when reading began.
    pub(super) start: i64,
    /// Next offset to read.
    pub(super) next: i64,
    /// Offset from which nothing was removed: compaction and retention leave holes in an otherwise dense sequence.
    pub(super) whole_from: i64,
    /// End of reading.
    pub(super) end: i64,
    /// Time of the last marker, in ms by the broker's clock.
    pub(super) decided: i64,
    /// By producer id, because each has at most one open transaction per partition.
    pub(super) open: BTreeMap<i64, Segment>,
}

impl Log {
    pub(super) fn place(&self, offset: i64) -> Place {
        Place {
            topic: Arc::clone(&self.topic),
            partition: self.partition,
            offset,
        }
    }

    /// Returns true if positions refer to this log by this topic id.
    pub(super) fn is_of(&self, topic_id: &str) -> bool {
        self.topic_id.as_deref().is_none_or(|own| own == topic_id)
    }

    /// Returns true if there is something left to read.
    pub(super) fn wants(&self) -> bool {
        self.read && self.next < self.end
    }

    fn is_whole(&self) -> bool {
        self.start == 0 && self.whole_from == 0
    }

    /// Returns true if the producer has an open segment here that touches `span`.
    pub(super) fn is_open(&self, producer: Producer, span: Span) -> bool {
        self.open
            .get(&producer.id)
            .is_some_and(|open| open.producer == producer && open.bounds().overlaps(span))
    }
}

/// All partitions.
#[derive(Debug, Default)]
pub(super) struct Logs {
    all: Vec<Log>,
    by_name: HashMap<(Arc<str>, i32), LogId>,
}

impl Logs {
    pub(super) fn get(&self, id: LogId) -> &Log {
        &self.all[id.0]
    }

    pub(super) fn get_mut(&mut self, id: LogId) -> &mut Log {
        &mut self.all[id.0]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LogId, &Log)> {
        self.all
            .iter()
            .enumerate()
            .map(|(index, log)| (LogId(index), log))
    }

    /// Returns the partition of that name; adds an unread one if it is unknown.
    pub(super) fn named(&mut self, topic: &str, partition: i32) -> LogId {
        let name = (Arc::from(topic), partition);
        if let Some(id) = self.by_name.get(&name) {
            return *id;
        }
        let id = LogId(self.all.len());
        self.all.push(Log {
            topic: Arc::clone(&name.0),
            partition,
            topic_id: None,
            role: Role::Data,
            read: false,
            start: 0,
            next: 0,
            whole_from: 0,
            end: 0,
            decided: i64::MIN,
            open: BTreeMap::new(),
        });
        self.by_name.insert(name, id);
        id
    }

    /// Returns the number of partitions of the offset map.
    pub(super) fn map_partitions(&self) -> usize {
        self.all
            .iter()
            .filter(|log| log.role == Role::OffsetMap)
            .count()
    }

    /// Returns true if nothing was ever removed from the positions topic.
    pub(super) fn positions_whole(&self) -> bool {
        self.role_whole(Role::Positions)
    }

    /// Returns true if nothing was ever removed from the offset map.
    pub(super) fn map_whole(&self) -> bool {
        self.role_whole(Role::OffsetMap)
    }

    /// Returns the times up to which all state topics and all data were read; the maximum for those at their ends.
    pub(super) fn times(&self) -> (i64, i64) {
        let slowest = |data: bool| {
            let logs = self.all.iter().filter(|log| log.wants());
            let times = logs.filter(|log| (log.role == Role::Data) == data);
            times.map(|log| log.decided).min().unwrap_or(i64::MAX)
        };
        (slowest(false), slowest(true))
    }

    fn role_whole(&self, role: Role) -> bool {
        self.all
            .iter()
            .filter(|log| log.role == role)
            .all(Log::is_whole)
    }
}
