//! Targets of the fuzzer, and the invariants of each. A violated invariant panics.

use std::collections::HashSet;

use eomirror_batch::{
    AbortedFilter, AbortedTransaction, Batch, Batches, Control, Limits, Memory, Records, Stamp,
    TimestampType, rewritten_header,
};
use eomirror_core::digest::Digest;
use eomirror_core::digest_batch;
use eomirror_core::header::{self, Reading};
use eomirror_core::loop_guard::LoopGuard;
use eomirror_core::offset_map;
use eomirror_core::relay::{self, Fetched, Outgoing, Relay, TopicPolicy};

use eomirror_kafka::probe;

use crate::corpus::{self, TOPIC};
use crate::mutate::{Random, leave, mend_batches};
use crate::protocol;

/// A reader under test.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Inputs that mutations start from.
    pub(crate) corpus: fn() -> Vec<Vec<u8>>,
    /// Corrects checksums and lengths of mutated bytes.
    pub(crate) mend: fn(&mut [u8], &mut Random),
    /// Reads the input; the number selects settings. Returns true if the bytes were accepted.
    pub(crate) feed: fn(&[u8], u64) -> bool,
}

pub(crate) const TARGETS: &[Target] = &[
    Target {
        name: "batches",
        corpus: corpus::logs,
        mend: mend_batches,
        feed: batches,
    },
    Target {
        name: "relay",
        corpus: corpus::logs,
        mend: mend_batches,
        feed: relay,
    },
    Target {
        name: "halve",
        corpus: corpus::batches,
        mend: mend_batches,
        feed: halve,
    },
    Target {
        name: "header",
        corpus: corpus::headers,
        mend: leave,
        feed: header,
    },
    Target {
        name: "offsets",
        corpus: corpus::offset_maps,
        mend: leave,
        feed: offsets,
    },
    Target {
        name: "fetch",
        corpus: protocol::fetch_answers,
        mend: leave,
        feed: |bytes, choice| probe::fetch_answer(protocol::version(choice, 12..=17), bytes),
    },
    Target {
        name: "metadata",
        corpus: protocol::metadata_answers,
        mend: leave,
        feed: |bytes, choice| probe::metadata_answer(protocol::version(choice, 10..=13), bytes),
    },
    Target {
        name: "handshake",
        corpus: protocol::handshakes,
        mend: leave,
        feed: |bytes, choice| probe::handshake(choice & 1 == 0, bytes),
    },
];

/// Small enough that an excess shows in the process's memory.
const LIMITS: Limits = Limits {
    bytes: 4 << 20,
    ratio: 1024,
    unchecked: 1 << 20,
};

/// Runs every operation of the batch reader.
fn batches(bytes: &[u8], choice: u64) -> bool {
    let mut filter = AbortedFilter::new(aborted(choice));
    let (mut memory, mut scratch) = (Memory::default(), Vec::new());
    let mut accepted = !bytes.is_empty();
    let mut batches = Batches::new(bytes);
    for batch in &mut batches {
        let Ok(batch) = batch else {
            return false;
        };
        accepted &= batch.check_crc().is_ok();
        let _ = filter.judge(&batch);
        let _ = Control::of(&batch);
        let _ = rewritten_header(&batch, &Stamp::NONE);
        let mut digest = Digest::default();
        let digested = digest_batch(
            &batch,
            0..i64::MAX,
            &mut digest,
            &mut memory,
            &mut scratch,
            LIMITS,
        );
        if let Some(count) = read(&batch, &mut memory) {
            assert_eq!(digested, Ok(count));
        } else {
            assert!(digested.is_err());
            accepted = false;
        }
    }
    if let Some(partial) = batches.partial() {
        assert!(partial.have < partial.need);
        accepted = false;
    }
    accepted
}

/// Returns the number of records, if the batch is valid.
fn read(batch: &Batch<'_>, memory: &mut Memory) -> Option<u64> {
    let mut previous = None;
    let mut count = 0;
    for record in Records::of(batch, memory, LIMITS).ok()? {
        let record = record.ok()?;
        assert!((batch.base_offset()..batch.next_offset()).contains(&record.offset));
        assert!(previous < Some(record.offset));
        assert_eq!(record.headers.len(), record.headers.clone().count());
        previous = Some(record.offset);
        count += 1;
    }
    assert_eq!(u64::try_from(batch.record_count()), Ok(count));
    Some(count)
}

/// Runs the whole relay, with varied settings.
fn relay(bytes: &[u8], choice: u64) -> bool {
    let bit = |place: u32| choice >> place & 1 == 1;
    let Some(policy) = policy(choice) else {
        return false;
    };
    let small = if bit(4) { usize::MAX } else { 2000 };
    let target = relay::Target {
        max_batch_bytes: if bit(5) { 1 << 20 } else { 700 },
        timestamps: if bit(6) {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        },
        merge_bytes: if bit(7) { 1 << 20 } else { 900 },
        small_bytes: small,
        small_compressed_bytes: small,
        most_runs: if bit(8) { 50_000 } else { 2 },
        partitions: bit(16).then_some(3),
    };
    let start = i64::try_from(choice >> 8 & 0x3f).unwrap_or(0);
    let end = if bit(15) { i64::MAX } else { start + 40 };
    let fetched = Fetched {
        records: bytes,
        aborted: &aborted(choice),
        offsets: start..end,
    };
    let mut relay = Relay::new(LIMITS);
    let mut relayed = relay.relay(&policy, 0, &target, &fetched);
    let again = relay.relay(&policy, 0, &target, &fetched);
    assert_eq!(relayed, again, "the same bytes give the same batches");

    let accounting = relayed.accounting;
    assert!(accounting.settle(TOPIC, 0, accounting.sent).is_ok());
    assert!(relayed.next_position >= start);
    let mut sent = 0;
    let mut reached = [start - 1; 3];
    for batch in &mut relayed.batches {
        assert!(batch.size() <= target.max_batch_bytes);
        let Some(last) = reached.get_mut(usize::try_from(batch.partition()).unwrap_or(3)) else {
            panic!("partition {}", batch.partition());
        };
        for run in batch.runs() {
            assert!(run.first > *last && run.count > 0);
            *last = run.first + (run.count - 1);
        }
        assert!(*last < relayed.next_position && *last < end);
        assert_eq!(batch.last_offset(), *last);
        sent += u64::from(batch.count().unsigned_abs());
        well_formed(batch, bytes);
    }
    assert_eq!(sent, accounting.sent);
    if let Some(error) = &relayed.stopped {
        assert!(!error.to_string().is_empty() && !error.fix().is_empty());
        assert_eq!(error.topic(), Some(TOPIC));
    }
    relayed.stopped.is_none() && sent > 0
}

/// Checks a batch as a broker does; the records of a passed batch are checked only if the source was valid.
fn well_formed(batch: &mut Outgoing, fetched: &[u8]) {
    let stamp = Stamp {
        producer_id: 1,
        producer_epoch: 1,
        base_sequence: 1,
        transactional: true,
    };
    let bytes = match batch
        .stamp(fetched, &stamp)
        .and_then(|()| batch.parts(fetched))
    {
        Ok(parts) => parts.concat(),
        Err(error) => panic!("{error}"),
    };
    assert_eq!(bytes.len(), batch.size());
    let view = match Batch::parse(&bytes) {
        Ok(view) => view,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(view.check_crc(), Ok(()));
    assert_eq!(view.obstacle(), None);
    assert_eq!(view.record_count(), batch.count());
    assert_eq!((view.base_offset(), view.delete_horizon()), (0, None));
    if matches!(batch.content(), relay::Content::Written(_)) {
        let limits = Limits {
            bytes: 64 << 20,
            ratio: usize::MAX,
            unchecked: 64 << 20,
        };
        let mut memory = Memory::default();
        let records = Records::of(&view, &mut memory, limits);
        assert!(records.is_ok_and(|mut records| records.all(|record| record.is_ok())));
    }
}

/// Splits batches that the target rejects until they are single records.
fn halve(bytes: &[u8], choice: u64) -> bool {
    let Some(policy) = policy(choice & 1) else {
        return false;
    };
    let fetched = Fetched {
        records: bytes,
        aborted: &[],
        offsets: 0..i64::MAX,
    };
    let target = relay::Target::default();
    let mut relay = Relay::new(LIMITS);
    let relayed = relay.relay(&policy, 0, &target, &fetched);
    let mut waiting: Vec<Outgoing> = relayed.batches.into_iter().rev().collect();
    let (mut next, mut single) = (0, 0);
    while let Some(batch) = waiting.pop() {
        match relay.halve(&policy, 0, &batch, bytes) {
            Ok([first, second]) => {
                assert_eq!(first.count() + second.count(), batch.count());
                assert!(first.count() > 0 && second.count() > 0);
                assert_eq!(first.first_offset(), batch.first_offset());
                assert_eq!(second.last_offset(), batch.last_offset());
                waiting.push(second);
                waiting.push(first);
            }
            Err(relay::RelayError::RecordTooLarge { offset, .. }) => {
                assert!(offset >= next && batch.count() == 1);
                (next, single) = (offset + 1, single + 1);
            }
            // a passed batch was not read before
            Err(_) => return false,
        }
    }
    assert!(relayed.stopped.is_some() || single == relayed.accounting.sent);
    single > 0
}

/// Reads values of provenance headers.
fn header(bytes: &[u8], _choice: u64) -> bool {
    match header::read(bytes, TOPIC, Some(b"key"), Some(b"value")) {
        Reading::Ours(provenance, mark) => {
            let (key, value) = (Some(&b"key"[..]), Some(&b"value"[..]));
            let again = provenance.encode(TOPIC, key, value, mark.as_ref());
            // marks that older releases passed on are not kept
            assert!(again == bytes || again.len() < bytes.len());
            let same = header::read(&again, TOPIC, key, value);
            assert_eq!(same, Reading::Ours(provenance, mark));
            true
        }
        Reading::Foreign | Reading::UnknownVersion(_) => false,
    }
}

/// Reads chunks of the offset map.
fn offsets(bytes: &[u8], choice: u64) -> bool {
    let Ok(chunk) = offset_map::decode(bytes) else {
        return false;
    };
    let again = chunk.map.encode(&chunk.topic, chunk.partition);
    assert_eq!(again.as_deref(), Ok(bytes), "one map, one chunk");
    let offset = i64::from_be_bytes(choice.to_be_bytes());
    let _ = chunk.map.to_target(offset);
    let _ = chunk.map.to_source(offset);
    true
}

/// Returns a policy; one bit for each option of a link.
fn policy(choice: u64) -> Option<TopicPolicy> {
    let bit = |place: u32| choice >> place & 1 == 1;
    let origins = bit(2).then(|| HashSet::from(["source".to_owned()]));
    let guard = LoopGuard::new("source", "target", origins, bit(1)).ok()?;
    let opposite = bit(3).then_some(0_i64).into_iter().collect();
    TopicPolicy::new(TOPIC, "x.orders", guard, bit(0), opposite).ok()
}

/// Returns transactions of the first producer ids of a cluster, which are those of the corpus.
fn aborted(choice: u64) -> Vec<AbortedTransaction> {
    let number = |shift: u32| i64::try_from(choice >> shift & 0x1f).unwrap_or(0);
    (0..choice >> 60)
        .map(|index| AbortedTransaction {
            producer_id: number(20) + i64::try_from(index).unwrap_or(0),
            first_offset: number(25),
        })
        .collect()
}
