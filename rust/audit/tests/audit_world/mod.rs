//! A target cluster as its logs, and lanes that write to it: the input of an audit, without brokers.

// each test file takes what it needs
#![allow(dead_code)]

#[path = "../../../core/tests/batch_forge/mod.rs"]
mod batch_forge;

use std::collections::{BTreeMap, BTreeSet};
use std::slice::Iter;

use batch_forge::{Forge, TRANSACTIONAL, plain};
use eomirror_audit::{Audit, Fault, LogId, Report, Role};
use eomirror_batch::{Batch, Batches, Control, Marker};
use eomirror_core::offset_map::{OffsetMap, Range};

pub(crate) const POSITIONS: &str = "eomirror.link.positions";
pub(crate) const MAP: &str = "eomirror.link.offset-map";
pub(crate) const MAP_PARTITIONS: i32 = 3;
pub(crate) const DATA: &str = "east.orders";

/// Transaction protocol of the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// One epoch, many transactions.
    V1,
    /// A new epoch for each.
    V2,
}

#[derive(Debug, Default)]
struct Log {
    batches: Vec<Vec<u8>>,
    next: i64,
}

type Name = (String, i32);

/// A partition and its remaining batches.
type Unread<'a> = (LogId, Iter<'a, Vec<u8>>);

/// The logs.
#[derive(Debug)]
pub(crate) struct Cluster {
    logs: BTreeMap<Name, Log>,
    touched: BTreeMap<i64, BTreeSet<Name>>,
    time: i64,
    /// Id of every topic; positions say "T".
    pub(crate) topic_id: &'static str,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            logs: BTreeMap::new(),
            touched: BTreeMap::new(),
            time: 0,
            topic_id: "T",
        }
    }
}

impl Cluster {
    pub(crate) fn next(&self, topic: &str, partition: i32) -> i64 {
        let name = (topic.to_owned(), partition);
        self.logs.get(&name).map_or(0, |log| log.next)
    }

    /// Appends a batch and returns its first offset.
    pub(crate) fn append(
        &mut self,
        topic: &str,
        partition: i32,
        (id, epoch): (i64, i16),
        records: &[(Option<Vec<u8>>, Vec<u8>)],
    ) -> i64 {
        self.time += 1;
        let name = (topic.to_owned(), partition);
        let log = self.logs.entry(name.clone()).or_default();
        let base = log.next;
        let records: Vec<_> = (base..)
            .zip(records)
            .map(|(offset, (key, value))| {
                let mut record = plain(offset, self.time, value);
                record.key.clone_from(key);
                record
            })
            .collect();
        let mut forge = Forge::new(base, &records);
        if id >= 0 {
            forge.attributes = TRANSACTIONAL;
            forge.producer_id = id;
            forge.producer_epoch = epoch;
            self.touched.entry(id).or_default().insert(name);
        }
        log.batches.push(forge.bytes());
        log.next += i64::try_from(records.len()).unwrap();
        base
    }

    /// Ends the transaction of a producer id with a marker in each partition it wrote to.
    pub(crate) fn end(&mut self, id: i64, epoch: i16, commit: bool) {
        for name in self.touched.remove(&id).unwrap_or_default() {
            self.mark(&name.0, name.1, id, epoch, commit);
        }
    }

    /// Writes a marker to one partition, as only a broken cluster would.
    pub(crate) fn end_in(
        &mut self,
        topic: &str,
        partition: i32,
        id: i64,
        epoch: i16,
        commit: bool,
    ) {
        let name = (topic.to_owned(), partition);
        if let Some(touched) = self.touched.get_mut(&id) {
            touched.remove(&name);
        }
        self.mark(topic, partition, id, epoch, commit);
    }

    fn mark(&mut self, topic: &str, partition: i32, id: i64, epoch: i16, commit: bool) {
        self.time += 1;
        let log = self.logs.entry((topic.to_owned(), partition)).or_default();
        let mut forge = Forge::marker(log.next, id, i16::from(commit));
        forge.producer_epoch = epoch;
        forge.base_timestamp = self.time;
        forge.max_timestamp = self.time;
        log.batches.push(forge.bytes());
        log.next += 1;
    }

    /// Compacts a partition up to `before`: keeps the last committed record of each key, and no aborted one. Every
    /// batch of a state topic has one record here.
    pub(crate) fn compact(&mut self, topic: &str, partition: i32, before: i64) {
        let log = self.logs.get_mut(&(topic.to_owned(), partition)).unwrap();
        let mut open: BTreeMap<i64, Vec<(i64, Vec<u8>)>> = BTreeMap::new();
        let mut last: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for bytes in &log.batches {
            let batch = Batch::parse(bytes).unwrap();
            if batch.is_control() {
                let commit = matches!(
                    Control::of(&batch).unwrap().unwrap().marker,
                    Marker::Commit { .. }
                );
                for (offset, key) in open.remove(&batch.producer_id()).unwrap_or_default() {
                    if commit {
                        last.insert(key, offset);
                    }
                }
            } else {
                let key = batch_forge::read(&batch).unwrap()[0].key.clone().unwrap();
                let records = open.entry(batch.producer_id()).or_default();
                records.push((batch.base_offset(), key));
            }
        }
        let kept: BTreeSet<i64> = last.into_values().collect();
        log.batches.retain(|bytes| {
            let batch = Batch::parse(bytes).unwrap();
            batch.is_control()
                || batch.base_offset() >= before
                || kept.contains(&batch.base_offset())
        });
    }

    /// Audits everything; `turn` selects the unfinished partition that is fed next.
    pub(crate) fn audit(&self, at_rest: bool, mut turn: impl FnMut(usize) -> usize) -> Report {
        let (mut audit, mut left) = self.opened();
        while !left.is_empty() {
            let chosen = turn(left.len());
            match left[chosen].1.next() {
                Some(bytes) => feed(&mut audit, left[chosen].0, bytes),
                None => drop(left.swap_remove(chosen)),
            }
        }
        audit.finish(at_rest)
    }

    /// Audits a cluster at rest as a reader does: feeds the first wanted partition, `at_once` batches of it. Also
    /// returns the maximum number of remembered items. `producers` are known beforehand.
    pub(crate) fn audit_in_turn(&self, producers: &[i64], at_once: usize) -> (Report, usize) {
        let (mut audit, mut left) = self.opened();
        for id in producers {
            audit.learn(*id);
        }
        let mut most = 0;
        while left.iter().any(|(id, _)| audit.is_unfinished(*id)) {
            let wanted = left.iter_mut().find(|(id, _)| audit.wants(*id));
            let (id, batches) = wanted.expect("one of the unfinished partitions is wanted");
            for bytes in batches.take(at_once) {
                feed(&mut audit, *id, bytes);
                most = most.max(audit.pending());
            }
        }
        (audit.finish(true), most)
    }

    fn opened(&self) -> (Audit, Vec<Unread<'_>>) {
        let mut audit = Audit::default();
        for partition in 0..MAP_PARTITIONS {
            let end = self.next(MAP, partition);
            audit.add(MAP, partition, Role::OffsetMap, 0, end);
        }
        let mut left = Vec::new();
        for ((topic, partition), log) in &self.logs {
            let role = match topic.as_str() {
                POSITIONS => Role::Positions,
                MAP => Role::OffsetMap,
                _ => Role::Data,
            };
            let start = log
                .batches
                .first()
                .map_or(log.next, |bytes| Batch::parse(bytes).unwrap().base_offset());
            // a compacted log still begins at 0
            let start = if role == Role::Data { start } else { 0 };
            let id = audit.add(topic, *partition, role, start, log.next);
            audit.identify(id, self.topic_id);
            left.push((id, log.batches.iter()));
        }
        (audit, left)
    }

    /// Audits a cluster at rest, one partition after the other.
    pub(crate) fn audited(&self) -> Report {
        self.audit(true, |_| 0)
    }
}

fn feed(audit: &mut Audit, id: LogId, bytes: &[u8]) {
    for batch in Batches::new(bytes) {
        audit.feed(id, &batch.unwrap()).unwrap();
    }
}

/// Returns the names of the reported faults, each once.
pub(crate) fn faults(report: &Report) -> Vec<Fault> {
    report.counts.keys().copied().collect()
}

/// State of a source partition.
#[derive(Debug, Clone)]
struct Stand {
    offset: i64,
    target_offset: Option<i64>,
    total: i64,
}

/// Changes of a test to a position before it is written.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) offset: i64,
    pub(crate) prev: Option<i64>,
    pub(crate) target_offset: Option<i64>,
    pub(crate) records: i64,
    pub(crate) total: i64,
    pub(crate) topic_id: &'static str,
    pub(crate) leader_epoch: i64,
    pub(crate) txn: i64,
    pub(crate) producer: (i64, i16),
    pub(crate) generation: i64,
    pub(crate) lane: i64,
    pub(crate) epoch: i64,
}

impl Draft {
    /// The record's key and value.
    pub(crate) fn record(&self, partition: i32) -> (Option<Vec<u8>>, Vec<u8>) {
        let number =
            |value: Option<i64>| value.map_or("null".to_owned(), |value| value.to_string());
        let value = format!(
            r#"{{"v":1,"offset":{},"prev":{},"source_cluster_id":"c","topic_id":"{}","leader_epoch":{},
            "target_topic":"{DATA}","target_partition":{partition},"target_topic_id":"T","target_offset":{},
            "generation":{},"lane":{},"run":"r{}","epoch":{},"attempt":1,"producer_id":{},
            "producer_epoch":{},"txn":{},"records":{},"bytes":0,"dropped":{{}},"header":false,"timestamp":1,
            "source_timestamp":null,"total_records":{},"digest":""}}"#,
            self.offset,
            number(self.prev),
            self.topic_id,
            self.leader_epoch,
            number(self.target_offset),
            self.generation,
            self.lane,
            self.generation,
            self.epoch,
            self.producer.0,
            self.producer.1,
            self.txn,
            self.records,
            self.total,
        );
        (Some(position_key(partition)), value.into_bytes())
    }
}

pub(crate) fn position_key(partition: i32) -> Vec<u8> {
    format!(r#"{{"topic":"orders","partition":{partition}}}"#).into_bytes()
}

/// One lane and its source partitions, each mirrored to the partition of the same number.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    number: i64,
    protocol: Protocol,
    pub(crate) producer: (i64, i16),
    pub(crate) generation: i64,
    epoch: i64,
    txn: i64,
    stands: BTreeMap<i32, Stand>,
    /// Records that are written and not committed yet.
    written: BTreeMap<i32, (Stand, Vec<Range>)>,
}

impl Lane {
    /// Starts a lane: first positions by the control producer, then a claim.
    pub(crate) fn start(
        cluster: &mut Cluster,
        number: i64,
        protocol: Protocol,
        partitions: &[i32],
    ) -> Self {
        let mut lane = Self {
            number,
            protocol,
            producer: (100 + number, 0),
            generation: 1,
            epoch: 1,
            txn: 0,
            stands: BTreeMap::new(),
            written: BTreeMap::new(),
        };
        let control = (90, i16::try_from(number).unwrap());
        for partition in partitions {
            let draft = Draft {
                producer: control,
                epoch: 0,
                ..lane.draft(0, None)
            };
            cluster.append(
                POSITIONS,
                lane.positions(),
                control,
                &[draft.record(*partition)],
            );
            let stand = Stand {
                offset: 0,
                target_offset: None,
                total: 0,
            };
            lane.stands.insert(*partition, stand);
        }
        cluster.end(control.0, control.1, true);
        lane.claim(cluster);
        lane
    }

    pub(crate) fn positions(&self) -> i32 {
        i32::try_from(self.number).unwrap()
    }

    pub(crate) fn partitions(&self) -> Vec<i32> {
        self.stands.keys().copied().collect()
    }

    fn draft(&self, offset: i64, prev: Option<i64>) -> Draft {
        Draft {
            offset,
            prev,
            target_offset: None,
            records: 0,
            total: 0,
            topic_id: "S",
            leader_epoch: 3,
            txn: self.txn,
            producer: self.producer,
            generation: self.generation,
            lane: self.number,
            epoch: self.epoch,
        }
    }

    /// Starts a new attempt: a new producer epoch, which ends the open transaction, and a claim.
    pub(crate) fn restart(&mut self, cluster: &mut Cluster) {
        self.producer.1 += 1;
        cluster.end(self.producer.0, self.producer.1, false);
        self.written.clear();
        self.epoch += 1;
        self.txn = 0;
        self.claim(cluster);
    }

    fn claim(&mut self, cluster: &mut Cluster) {
        let claim = (
            Some(format!(r#"{{"lane":{}}}"#, self.number).into_bytes()),
            br#"{"v":1}"#.to_vec(),
        );
        cluster.append(POSITIONS, self.positions(), self.producer, &[claim]);
        self.end(cluster, true);
    }

    fn end(&mut self, cluster: &mut Cluster, commit: bool) {
        // under V2 the marker has the next transaction's epoch
        self.producer.1 += i16::from(self.protocol == Protocol::V2);
        cluster.end(self.producer.0, self.producer.1, commit);
    }

    /// Writes `count` records of a source partition, after `skipped` source offsets, as one batch.
    pub(crate) fn write(
        &mut self,
        cluster: &mut Cluster,
        partition: i32,
        skipped: i64,
        count: i64,
    ) {
        let records: Vec<_> = (0..count).map(|_| (None, b"v".to_vec())).collect();
        let target = cluster.append(DATA, partition, self.producer, &records);
        let stand = self.stands[&partition].clone();
        let (stand, ranges) = self
            .written
            .entry(partition)
            .or_insert_with(|| (stand, Vec::new()));
        let source = stand.offset + skipped;
        ranges.push(Range {
            source,
            target,
            count,
        });
        stand.offset = source + count;
        stand.target_offset = Some(target + count - 1);
        stand.total += count;
    }

    /// Moves past source offsets without a record for the target.
    pub(crate) fn skip(&mut self, partition: i32, offsets: i64) {
        let stand = self.stands[&partition].clone();
        let (stand, _) = self
            .written
            .entry(partition)
            .or_insert_with(|| (stand, Vec::new()));
        stand.offset += offsets;
    }

    /// Writes the positions and chunks of the written records.
    pub(crate) fn describe(&mut self, cluster: &mut Cluster) {
        self.describe_as(cluster, |_, _, _| {});
    }

    /// Writes them after a test has changed drafts and ranges; a chunk without ranges is not written.
    pub(crate) fn describe_as(
        &mut self,
        cluster: &mut Cluster,
        mut change: impl FnMut(i32, &mut Draft, &mut Vec<Range>),
    ) {
        self.txn += 1;
        for (partition, (stand, ranges)) in &self.written {
            let before = &self.stands[partition];
            let mut draft = Draft {
                target_offset: stand.target_offset,
                records: stand.total - before.total,
                total: stand.total,
                ..self.draft(stand.offset, Some(before.offset))
            };
            let mut ranges = ranges.clone();
            change(*partition, &mut draft, &mut ranges);
            let record = draft.record(*partition);
            cluster.append(POSITIONS, self.positions(), self.producer, &[record]);
            if let Some(first) = ranges.first() {
                let key = format!(
                    r#"{{"topic":"orders","partition":{partition},"topic_id":"S","first":{}}}"#,
                    first.source
                );
                let map = OffsetMap::from_ranges(&ranges).unwrap();
                let value = map.encode(DATA, *partition).unwrap();
                let home = home("orders", *partition);
                cluster.append(MAP, home, self.producer, &[(Some(key.into_bytes()), value)]);
            }
        }
    }

    /// Ends the transaction; after a commit the next one continues from it.
    pub(crate) fn decide(&mut self, cluster: &mut Cluster, commit: bool) {
        self.end(cluster, commit);
        let written = std::mem::take(&mut self.written);
        if commit {
            for (partition, (stand, _)) in written {
                self.stands.insert(partition, stand);
            }
        }
    }

    /// Writes a whole transaction of `count` records of a partition.
    pub(crate) fn mirror(&mut self, cluster: &mut Cluster, partition: i32, count: i64) {
        self.write(cluster, partition, 0, count);
        self.describe(cluster);
        self.decide(cluster, true);
    }

    /// Starts the next generation: partitions may have moved to another lane.
    pub(crate) fn next_generation(cluster: &mut Cluster, lanes: &mut [Self], swap: bool) {
        let generation = lanes.iter().map(|lane| lane.generation).max().unwrap_or(0) + 1;
        if swap && lanes.len() == 2 {
            let (first, second) = lanes.split_at_mut(1);
            std::mem::swap(&mut first[0].stands, &mut second[0].stands);
        }
        for lane in lanes {
            lane.generation = generation;
            lane.epoch = 0;
            lane.restart(cluster);
        }
    }
}

/// crc32 of name and number, bit by bit.
pub(crate) fn home(topic: &str, partition: i32) -> i32 {
    let mut crc = !0_u32;
    for byte in format!("{topic}\0{partition}").bytes() {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
        }
    }
    i32::try_from(!crc % MAP_PARTITIONS.unsigned_abs()).unwrap()
}
