//! Source logs to relay, and the expected result for their records.

// each test file takes what it needs
#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};

use eomirror_batch::{AbortedTransaction, Codec, Limits, Stamp, TimestampType};
use eomirror_core::DropReason;
use eomirror_core::header::{NAME, Provenance, Writer};
use eomirror_core::offset_map::{OffsetMap, Translation};
use eomirror_core::relay::{Content, Fetched, Outgoing, Relay, Relayed, Target};
use proptest::prelude::*;

pub(crate) mod rules;

use rules::Rules;

use crate::batch_forge::{DELETE_HORIZON, Forge, LOG_APPEND_TIME, Plain, TRANSACTIONAL, records};
use crate::produced::{assert_kafka_protocol_agrees, compress, decode};

pub(crate) const TOPIC: &str = "orders";
pub(crate) const TARGET_TOPIC: &str = "x.orders";
/// Producer id of the reverse link, whose batches come from the target.
pub(crate) const OPPOSITE: i64 = 900;
pub(crate) const LIMITS: Limits = Limits {
    bytes: 8 << 20,
    ratio: 1024,
    unchecked: 8 << 20,
};

/// A record of a log, with its batch's attributes.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    pub(crate) record: Plain,
    /// Its batch shows the log's append time.
    append_time: bool,
    producer_id: i64,
    aborted: bool,
}

/// A source partition.
#[derive(Debug, Clone)]
pub(crate) struct Log {
    /// Bytes of the batches, and their offsets (exclusive end).
    pub(crate) batches: Vec<(Vec<u8>, std::ops::Range<i64>)>,
    /// By the offset of the records.
    codecs: HashMap<i64, Codec>,
    records: Vec<Expected>,
    /// Aborted transactions and the offset of their markers.
    aborted: Vec<(AbortedTransaction, i64)>,
    pub(crate) end: i64,
}

impl Log {
    /// Returns the codec of the record at `offset`.
    pub(crate) fn codec(&self, offset: i64) -> Codec {
        self.codecs[&offset]
    }

    /// Returns a broker's response for a position: from the batch that holds it, with the aborted transactions that
    /// reach there.
    pub(crate) fn answer(&self, position: i64) -> (Vec<u8>, Vec<AbortedTransaction>) {
        let batches = self.batches.iter().filter(|(_, at)| at.end > position);
        let from = batches.clone().next().map_or(position, |(_, at)| at.start);
        let bytes = batches.flat_map(|(bytes, _)| bytes.clone()).collect();
        let aborted = self.aborted.iter().filter(|(_, marker)| *marker >= from);
        (bytes, aborted.map(|(entry, _)| *entry).collect())
    }

    /// Returns the records that a `read_committed` consumer sees in `offsets`.
    pub(crate) fn visible(
        &self,
        offsets: std::ops::Range<i64>,
    ) -> impl Iterator<Item = &Expected> + '_ {
        let within = move |entry: &&Expected| offsets.contains(&entry.record.offset);
        self.records
            .iter()
            .filter(|entry| !entry.aborted)
            .filter(within)
    }
}

/// One batch of a generated log, and the action after it.
#[derive(Debug, Clone)]
struct Step {
    producer: i64,
    records: Vec<Plain>,
    codec: Codec,
    /// Records that compaction has kept.
    left: Vec<bool>,
    append_time: Option<i64>,
    horizon: bool,
    origins: Vec<u8>,
    /// Ends the producer's transaction: commit or abort.
    end: Option<bool>,
}

fn step(most: usize) -> impl Strategy<Value = Step> {
    let producer = prop_oneof![3 => Just(-1_i64), 3 => 1_i64..3, 1 => Just(OPPOSITE)];
    let left = prop_oneof![
        3 => Just(vec![true; most]),
        1 => proptest::collection::vec(any::<bool>(), most),
        1 => Just(vec![false; most]),
    ];
    let append_time = prop_oneof![3 => Just(None), 1 => (0_i64..1 << 42).prop_map(Some)];
    let origins = prop_oneof![
        1 => Just(vec![0; most]),
        1 => proptest::collection::vec(0_u8..10, most),
    ];
    (
        producer,
        records(most),
        proptest::sample::select(Codec::ALL.to_vec()),
        left,
        append_time,
        prop_oneof![4 => Just(false), 1 => Just(true)],
        origins,
        proptest::option::of(any::<bool>()),
    )
        .prop_map(
            |(producer, records, codec, left, append_time, horizon, origins, end)| Step {
                producer,
                records,
                codec,
                left,
                append_time,
                horizon,
                origins,
                end,
            },
        )
}

/// Generates logs of up to `batches` batches with fewer than `most` records each.
pub(crate) fn logs(batches: usize, most: usize) -> impl Strategy<Value = Log> {
    let one_codec = proptest::option::of(proptest::sample::select(Codec::ALL.to_vec()));
    let steps = proptest::collection::vec(step(most), 1..batches);
    (0_i64..1 << 40, one_codec, steps).prop_map(|(start, codec, steps)| {
        let mut writer = LogWriter::new(start);
        for mut step in steps {
            step.codec = codec.unwrap_or(step.codec);
            writer.step(step);
        }
        writer.finish()
    })
}

struct LogWriter {
    log: Log,
    /// First offset of the open transactions.
    open: BTreeMap<i64, i64>,
}

impl LogWriter {
    fn new(start: i64) -> Self {
        let log = Log {
            batches: Vec::new(),
            codecs: HashMap::new(),
            records: Vec::new(),
            aborted: Vec::new(),
            end: start,
        };
        Self {
            log,
            open: BTreeMap::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let base = self.log.end;
        let mut records = step.records;
        for (record, origin) in records.iter_mut().zip(&step.origins) {
            record.offset += base;
            provenance(record, *origin);
        }
        let last = records.last().unwrap().offset;
        let mut left = step.left.iter();
        records.retain(|_| *left.next().unwrap_or(&true));

        let mut forge = Forge::new(base, &records);
        forge.last_offset_delta = i32::try_from(last - base).unwrap();
        forge.leader_epoch = 3;
        forge.producer_id = step.producer;
        if step.producer >= 0 {
            forge.attributes |= TRANSACTIONAL;
            forge.producer_epoch = 4;
            forge.base_sequence = 17;
            self.open.entry(step.producer).or_insert(base);
        }
        if let Some(time) = step.append_time {
            forge.attributes |= LOG_APPEND_TIME;
            forge.max_timestamp = time;
            for record in &mut records {
                record.timestamp = time;
            }
        }
        if step.horizon {
            forge.attributes |= DELETE_HORIZON;
        }
        if !records.is_empty() {
            forge.attributes |= step.codec as i16;
            forge.body = compress(step.codec, &forge.body);
            let offsets = records.iter().map(|record| (record.offset, step.codec));
            self.log.codecs.extend(offsets);
        }
        self.append(forge.bytes(), last + 1);
        self.log
            .records
            .extend(records.into_iter().map(|record| Expected {
                record,
                append_time: step.append_time.is_some(),
                producer_id: step.producer,
                aborted: false,
            }));
        if let Some(commit) = step.end {
            self.end(step.producer, commit);
        }
    }

    fn end(&mut self, producer: i64, commit: bool) {
        let Some(first) = self.open.remove(&producer) else {
            return;
        };
        let marker = self.log.end;
        self.append(
            Forge::marker(marker, producer, i16::from(commit)).bytes(),
            marker + 1,
        );
        if commit {
            return;
        }
        let entry = AbortedTransaction {
            producer_id: producer,
            first_offset: first,
        };
        self.log.aborted.push((entry, marker));
        for entry in &mut self.log.records {
            entry.aborted |= entry.producer_id == producer && entry.record.offset >= first;
        }
    }

    fn append(&mut self, bytes: Vec<u8>, end: i64) {
        self.log.batches.push((bytes, self.log.end..end));
        self.log.end = end;
    }

    fn finish(mut self) -> Log {
        for (index, producer) in self.open.clone().into_keys().enumerate() {
            self.end(producer, index % 2 == 0);
        }
        self.log
    }
}

/// Headers of all kinds: of the source, of the target, of a third cluster, foreign, twice, and marked, by a producer of
/// the log and by one of another cluster.
fn provenance(record: &mut Plain, origin: u8) {
    let cluster = |origin: u8| ["source", "target", "third"][usize::from(origin) % 3];
    let marked = |origin: u8, record: &Plain, marked_on: Option<&str>| {
        let provenance = Provenance {
            origin: cluster(origin).to_owned(),
            hops: vec![cluster(origin).to_owned()],
        };
        let mark = marked_on.map(|on| Writer::new(on, 1).unwrap().mark(0, record.timestamp));
        let (key, value) = (record.key.as_deref(), record.value.as_deref());
        provenance.encode(TOPIC, key, value, mark.as_ref())
    };
    let written = |origin: u8, record: &Plain| marked(origin, record, None);
    let value = match origin {
        0 => return,
        1..=3 => Some(written(origin, record)),
        4 => Some(b"EM\x01 an application's own".to_vec()),
        5 => None,
        6 | 7 => Some(marked(origin, record, Some("source"))),
        8 => Some(marked(1, record, Some("third"))),
        _ => {
            let first = written(1, record);
            record.headers.insert(0, (NAME.into(), Some(first)));
            Some(written(3, record))
        }
    };
    let middle = record.headers.len() / 2;
    record.headers.insert(middle, (NAME.into(), value));
}

pub(crate) fn targets() -> impl Strategy<Value = Target> {
    (
        prop_oneof![
            Just(1 << 20),
            // hardly any generated record is larger than that with its headers
            60_000_usize..80_000,
            200_usize..4000
        ],
        proptest::sample::select(vec![
            TimestampType::CreateTime,
            TimestampType::LogAppendTime,
        ]),
        prop_oneof![Just(0_usize), 100_usize..3000, Just(1 << 20)],
        prop_oneof![Just(0_usize), 100_usize..5000, Just(1 << 20)],
        prop_oneof![2 => Just(None), 1 => (1_i32..6).prop_map(Some)],
    )
        .prop_map(
            |(max_batch_bytes, timestamps, merge_bytes, small, partitions)| Target {
                max_batch_bytes,
                timestamps,
                merge_bytes,
                small_bytes: small,
                small_compressed_bytes: small,
                most_runs: usize::MAX,
                partitions,
            },
        )
}

/// Records on the target: source offset and record, in order of the source offset.
pub(crate) type Arrived = Vec<(i64, Plain)>;

/// Returns the partition of a record of source partition 0, as the code of Java's partitioner reads.
fn partition_of(key: Option<&[u8]>, target: &Target) -> i32 {
    const M: i32 = 0x5bd1_e995;
    let (Some(key), Some(count)) = (key, target.partitions) else {
        return 0;
    };
    let signed = |bits: u32| i32::from_ne_bytes(bits.to_ne_bytes());
    // Java's >>>
    let shifted = |hash: i32, by: u32| signed(u32::from_ne_bytes(hash.to_ne_bytes()) >> by);
    let byte = |at: usize| i32::from(key[at]);
    let mut h = signed(0x9747_b28c) ^ i32::try_from(key.len()).unwrap();
    for word in 0..key.len() / 4 {
        let at = 4 * word;
        let mut k = byte(at) + (byte(at + 1) << 8) + (byte(at + 2) << 16) + (byte(at + 3) << 24);
        k = k.wrapping_mul(M);
        k ^= shifted(k, 24);
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = key.len() & !3;
    for at in (rest..key.len()).rev() {
        h ^= byte(at) << (8 * (at - rest));
    }
    if rest < key.len() {
        h = h.wrapping_mul(M);
    }
    h ^= shifted(h, 13);
    h = h.wrapping_mul(M);
    h ^= shifted(h, 15);
    (h & 0x7fff_ffff) % count
}

/// A partition of the target, as batches arrive there.
struct Part {
    stamp: Stamp,
    map: OffsetMap,
    base_offset: i64,
    /// Target offset and source offset of each record.
    places: Vec<(i64, i64)>,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            stamp: Stamp {
                producer_id: 77,
                producer_epoch: 5,
                base_sequence: i32::MAX - 3,
                transactional: true,
            },
            map: OffsetMap::default(),
            base_offset: 1000,
            places: Vec::new(),
        }
    }
}

/// Stamps the batches, decodes them with two independent decoders, and checks them like a broker. Checks that each record
/// is in its partition, and that each partition has the order of the source.
pub(crate) fn arrive(
    batches: &mut [Outgoing],
    fetched: &[u8],
    target: &Target,
    codec: impl Fn(i64) -> Codec,
) -> Arrived {
    let mut arrived = Vec::new();
    let mut parts: BTreeMap<i32, Part> = BTreeMap::new();
    for batch in batches {
        let Part {
            stamp,
            map,
            base_offset,
            places,
        } = parts.entry(batch.partition()).or_default();
        batch.stamp(fetched, stamp).unwrap();
        let bytes = batch.parts(fetched).unwrap().concat();
        assert_eq!(bytes.len(), batch.size());
        assert!(bytes.len() <= target.max_batch_bytes, "{}", bytes.len());
        let decoded = decode(&bytes);
        assert_kafka_protocol_agrees(&bytes, &decoded.records);
        assert_eq!(decoded.leader_epoch, -1);
        assert_eq!(decoded.attributes & !7, TRANSACTIONAL, "other bits");
        assert_eq!(
            (decoded.producer_id, decoded.producer_epoch),
            (stamp.producer_id, stamp.producer_epoch)
        );
        assert_eq!(decoded.base_sequence, stamp.base_sequence);
        if target.timestamps == TimestampType::CreateTime {
            let times = decoded.records.iter().map(|record| record.timestamp);
            assert_eq!(times.max(), Some(batch.max_timestamp()));
            assert_eq!(decoded.max_timestamp, batch.max_timestamp());
        }
        let offsets: Vec<i64> = batch
            .runs()
            .iter()
            .flat_map(|run| run.first..run.first + run.count)
            .collect();
        assert_eq!(offsets.len(), decoded.records.len());
        if target.partitions.is_some() {
            let keys = decoded.records.iter().map(|record| record.key.as_deref());
            let mut partitions = keys.map(|key| partition_of(key, target));
            assert!(partitions.all(|number| number == batch.partition()));
        } else {
            assert!(offsets.iter().all(|at| codec(*at) == decoded.codec));
        }
        assert_eq!(usize::try_from(batch.count()), Ok(offsets.len()));
        assert_eq!(offsets.first(), Some(&batch.first_offset()));
        assert_eq!(offsets.last(), Some(&batch.last_offset()));
        batch.map(*base_offset, map).unwrap();
        places.extend((*base_offset..).zip(offsets.iter().copied()));
        *base_offset += i64::from(batch.count()) + 1;
        arrived.extend(offsets.into_iter().zip(decoded.records));
        *stamp = stamp.after(batch.count());
    }
    for Part { map, places, .. } in parts.values() {
        assert!(places.is_sorted_by(|before, after| before.1 < after.1));
        for (target, source) in places {
            assert_eq!(map.to_target(*source), Translation::Exact(*target));
        }
    }
    if target.partitions.is_some() {
        arrived.sort_by_key(|(offset, _)| *offset);
    }
    arrived
}

/// Returns the records of `offsets` that should arrive, and the counts of those that should be dropped.
pub(crate) fn expected(
    log: &Log,
    offsets: std::ops::Range<i64>,
    rules: &Rules,
    target: &Target,
) -> (Arrived, HashMap<DropReason, u64>) {
    let (mut wanted, mut dropped) = (Vec::new(), HashMap::new());
    for entry in log.visible(offsets) {
        let partition = partition_of(entry.record.key.as_deref(), target);
        match rules.apply(entry, partition) {
            Ok(mut record) => {
                if entry.append_time && target.timestamps == TimestampType::LogAppendTime {
                    // the target sets its own
                    record.timestamp = i64::MIN;
                }
                wanted.push((entry.record.offset, record));
            }
            Err(reason) => *dropped.entry(reason).or_default() += 1,
        }
    }
    (wanted, dropped)
}

/// Returns the number of records of `offsets` that should arrive and carry the provenance header of another record.
pub(crate) fn copied_headers(log: &Log, offsets: std::ops::Range<i64>, rules: &Rules) -> u64 {
    let visible = log.visible(offsets);
    visible.filter(|entry| rules.is_copied(entry)).count() as u64
}

/// Compares everything except offsets within batches, and timestamps that the target replaces.
pub(crate) fn assert_equal(mut arrived: Arrived, wanted: &Arrived) {
    let offsets = |records: &Arrived| records.iter().map(|(at, _)| *at).collect::<Vec<_>>();
    assert_eq!(offsets(&arrived), offsets(wanted));
    for ((_, record), (offset, wanted)) in arrived.iter_mut().zip(wanted) {
        record.offset = *offset;
        if wanted.timestamp == i64::MIN {
            record.timestamp = i64::MIN;
        }
        assert_eq!(record, wanted);
    }
}

pub(crate) fn relay(
    log: &Log,
    offsets: std::ops::Range<i64>,
    rules: &Rules,
    target: &Target,
) -> (Relayed, Vec<u8>) {
    let (records, aborted) = log.answer(offsets.start);
    let fetched = Fetched {
        records: &records,
        aborted: &aborted,
        offsets,
    };
    let mut relay = Relay::new(LIMITS);
    relay.write_as(rules.writer);
    let relayed = relay.relay(&rules.policy(), 0, target, &fetched);
    (relayed, records)
}

/// A target without merging or size limit.
pub(crate) const LARGE: Target = Target {
    max_batch_bytes: 1 << 20,
    timestamps: TimestampType::CreateTime,
    merge_bytes: 0,
    small_bytes: 0,
    small_compressed_bytes: 0,
    most_runs: usize::MAX,
    partitions: None,
};

pub(crate) fn run(
    bytes: &[u8],
    offsets: std::ops::Range<i64>,
    rules: &Rules,
    target: &Target,
) -> Relayed {
    let fetched = Fetched {
        records: bytes,
        aborted: &[],
        offsets,
    };
    Relay::new(LIMITS).relay(&rules.policy(), 0, target, &fetched)
}

pub(crate) fn one_batch(bytes: &[u8], offsets: std::ops::Range<i64>) -> Relayed {
    run(bytes, offsets, &Rules::NONE, &LARGE)
}

pub(crate) fn is_passed(batch: &Outgoing) -> bool {
    matches!(batch.content(), Content::Passed { .. })
}
