//! Incomplete, damaged and hostile batches: a named error, never a panic, never an allocation of a size set by the
//! sender.

// a test ends with a panic; clippy sees that only inside of test functions
#![allow(clippy::unwrap_used)]

mod batch_forge;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use batch_forge::{Forge, TRANSACTIONAL, number, plain, read, read_with, records, reseal};
use eomirror_batch::{
    AbortedFilter, AbortedTransaction, Batch, BatchError, BatchWriter, Batches, Codec, Control,
    Limits, Memory, Stamp, rewritten_header,
};
use eomirror_core::digest::Digest;
use eomirror_core::digest_batch;
use proptest::prelude::*;

/// Remembers the largest allocation of each thread.
struct Measured;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

fn note(size: usize) {
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(size)));
}

// SAFETY: passes every call on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Measured {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Measured = Measured;

const LIMITS: Limits = Limits {
    bytes: 1 << 20,
    ratio: 1024,
    unchecked: 1 << 20,
};
/// An LZ4 frame of linked 4 MiB blocks needs two of them and a window; of the old format, one of 8 MiB.
const LARGEST_ALLOCATION: usize = (8 << 20) + (64 << 10);

fn write(codec: Codec, values: &[&[u8]]) -> Vec<u8> {
    let mut writer = BatchWriter::new(codec);
    for value in values {
        let headers = [eomirror_core::HeaderRef {
            key: b"h",
            value: None,
        }];
        let added = writer.add(1000, Some(b"key"), Some(value), headers.into_iter());
        added.unwrap();
    }
    let mut out = Vec::new();
    let stamp = Stamp {
        producer_id: 1,
        producer_epoch: 0,
        base_sequence: 0,
        transactional: true,
    };
    writer.finish(&stamp, &mut out).unwrap();
    out
}

/// Runs every operation of a reader on bytes, with or without checksum; the output stays within the limits.
fn exercise(bytes: &[u8], memory: &mut Memory) {
    let aborted = AbortedTransaction {
        producer_id: 1,
        first_offset: 0,
    };
    let mut filter = AbortedFilter::new(vec![aborted]);
    let mut scratch = Vec::new();
    let mut batches = Batches::new(bytes);
    for batch in &mut batches {
        let Ok(batch) = batch else { break };
        let _ = batch.check_crc();
        let _ = filter.judge(&batch);
        let _ = Control::of(&batch);
        let _ = rewritten_header(&batch, &Stamp::NONE);
        let everything = 0..i64::MAX;
        let mut digest = Digest::default();
        let digested = digest_batch(
            &batch,
            everything,
            &mut digest,
            memory,
            &mut scratch,
            LIMITS,
        );
        let read = read_with(&batch, memory, LIMITS);
        match (&read, digested) {
            (Ok(records), Ok(count)) => {
                assert_eq!(count, records.len() as u64);
                assert_eq!(usize::try_from(batch.record_count()), Ok(records.len()));
                assert!(
                    records
                        .iter()
                        .all(|r| (batch.base_offset()..batch.next_offset()).contains(&r.offset))
                );
            }
            (read, digested) => assert_eq!(read.is_err(), digested.is_err()),
        }
    }
    if let Some(partial) = batches.partial() {
        assert!(partial.have < partial.need);
    }
}

#[test]
fn a_batch_cut_at_any_byte_is_truncated() {
    for codec in Codec::ALL {
        let bytes = write(codec, &[b"first", b"second"]);
        for end in 0..bytes.len() {
            let need = if end < 17 { 61 } else { bytes.len() };
            assert_eq!(
                Batch::parse(&bytes[..end]),
                Err(BatchError::Truncated { have: end, need })
            );
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(
            Batch::parse(&longer),
            Err(BatchError::Trailing {
                offset: 0,
                bytes: 1
            })
        );
    }
}

#[test]
fn a_body_cut_at_any_byte_under_a_right_checksum_is_refused() {
    for codec in Codec::ALL {
        let bytes = write(codec, &[b"first", b"second"]);
        for end in 61..bytes.len() {
            let mut cut = bytes[..end].to_vec();
            cut[8..12].copy_from_slice(&i32::try_from(end - 12).unwrap().to_be_bytes());
            reseal(&mut cut);
            let batch = Batch::parse(&cut).unwrap();
            batch.check_crc().unwrap();
            let outcome = read(&batch);
            // bytes after the last block of a stream (an end mark, a trailer) hold no record
            let complete = outcome.as_ref().is_ok_and(|records| records.len() == 2);
            assert!(
                outcome.is_err() || (complete && codec == Codec::Lz4),
                "{codec:?} {end}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed_or_lies_where_no_checksum_looks() {
    for codec in Codec::ALL {
        let bytes = write(codec, &[b"first", b"second", &[7; 300]]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let outcome = Batch::parse(&damaged).and_then(|batch| batch.check_crc());
            match bit / 8 {
                // the broker sets base offset and leader epoch
                0..8 | 12..16 => assert!(outcome.is_ok() || damaged[0] > 0x7f, "{bit}"),
                8..12 => assert!(
                    matches!(
                        outcome,
                        Err(BatchError::Truncated { .. }
                            | BatchError::Trailing { .. }
                            | BatchError::BadField { .. })
                    ),
                    "{bit} {outcome:?}"
                ),
                16 => assert!(
                    matches!(
                        outcome,
                        Err(BatchError::OldMagic { magic: 0, .. } | BatchError::UnknownMagic { .. })
                    ),
                    "{bit} {outcome:?}"
                ),
                17..21 => assert!(
                    matches!(outcome, Err(BatchError::WrongCrc { .. })),
                    "{bit} {outcome:?}"
                ),
                _ => assert!(outcome.is_err(), "{bit}"),
            }
        }
    }
}

#[test]
fn impossible_header_fields_are_named() {
    let whole = Forge::new(3, &[plain(3, 1, b"a"), plain(4, 1, b"b")]);
    let field = |change: &dyn Fn(&mut Forge)| {
        let mut forge = whole.clone();
        change(&mut forge);
        match Batch::parse(&forge.bytes()) {
            Err(BatchError::BadField { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(field(&|f| f.base_offset = -1), "its base offset");
    assert_eq!(
        field(&|f| f.last_offset_delta = -1),
        "its last offset delta"
    );
    assert_eq!(
        field(&|f| f.base_offset = i64::MAX - 1),
        "its last offset delta, beyond all offsets,"
    );
    assert_eq!(field(&|f| f.record_count = -1), "its record count");
    assert_eq!(
        field(&|f| f.record_count = 3),
        "its record count, more than it has offsets,"
    );
    for length in [i32::MIN, -1, 0, 48] {
        let mut bytes = whole.bytes();
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        assert!(
            matches!(
                Batch::parse(&bytes),
                Err(BatchError::BadField {
                    field: "its length",
                    ..
                })
            ),
            "{length}"
        );
    }
    let mut codec = whole.clone();
    codec.attributes = 5;
    assert_eq!(
        Batch::parse(&codec.bytes()),
        Err(BatchError::UnknownCodec {
            offset: 3,
            codec: 5
        })
    );
}

#[test]
fn the_old_formats_are_named_even_when_cut() {
    for magic in [0, 1] {
        // offset 9, size 22, crc, magic, attributes, then the fields of versions 0 and 1
        let mut bytes = [&9_i64.to_be_bytes()[..], &22_i32.to_be_bytes(), &[0; 4]].concat();
        bytes.extend([magic, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        for end in [17, bytes.len()] {
            let error = Batches::new(&bytes[..end]).next();
            assert_eq!(error, Some(Err(BatchError::OldMagic { offset: 9, magic })));
        }
    }
    let mut bytes = write(Codec::None, &[b"v"]);
    bytes[16] = 3;
    let mut batches = Batches::new(&bytes);
    assert!(matches!(
        batches.next(),
        Some(Err(BatchError::UnknownMagic { magic: 3, .. }))
    ));
    assert_eq!(batches.next(), None, "an error ends the iteration");
}

#[test]
fn records_that_contradict_their_batch_are_refused() {
    let three = [plain(0, 1, b"a"), plain(1, 1, b"b"), plain(2, 1, b"c")];
    let reason = |forge: &Forge| match read(&Batch::parse(&forge.bytes()).unwrap()) {
        Err(BatchError::BadRecord { reason, index, .. }) => (index, reason),
        other => panic!("{other:?}"),
    };
    let mut fewer = Forge::new(0, &three);
    fewer.record_count = 2;
    assert_eq!(
        reason(&fewer),
        (2, "it is one more than the batch's record count")
    );
    let mut more = Forge::new(0, &three);
    more.body = Forge::new(0, &three[..2]).body;
    assert_eq!(reason(&more), (2, "its length is malformed"));
    let mut beyond = Forge::new(0, &three[1..]);
    beyond.last_offset_delta = 1;
    assert_eq!(
        reason(&beyond),
        (1, "its offset is beyond the end of the batch")
    );
    let mut same = Forge::new(0, &[plain(0, 1, b"a"), plain(0, 1, b"b")]);
    same.last_offset_delta = 1;
    assert_eq!(reason(&same), (1, "its offset does not increase"));

    let body = |parts: &[i64]| {
        let mut record = vec![0];
        for part in parts {
            number(*part, &mut record);
        }
        let mut forge = Forge::new(0, &three[..1]);
        forge.body.clear();
        number(i64::try_from(record.len()).unwrap(), &mut forge.body);
        forge.body.extend(record);
        reason(&forge).1
    };
    assert_eq!(body(&[]), "its timestamp is malformed");
    assert_eq!(body(&[0]), "its offset is malformed");
    assert_eq!(body(&[0, -1]), "its offset does not increase");
    assert_eq!(body(&[0, 0]), "its key is malformed");
    assert_eq!(body(&[0, 0, -2]), "its key is malformed");
    assert_eq!(body(&[0, 0, 5]), "its key is malformed");
    assert_eq!(body(&[0, 0, -1]), "its value is malformed");
    assert_eq!(body(&[0, 0, -1, -1]), "its header count is malformed");
    assert_eq!(body(&[0, 0, -1, -1, -1]), "its header count is malformed");
    assert_eq!(
        body(&[0, 0, -1, -1, i64::from(i32::MAX)]),
        "a header is malformed"
    );
    assert_eq!(
        body(&[0, 0, -1, -1, 1, -1, -1]),
        "a header is malformed",
        "a null key"
    );
    assert_eq!(body(&[0, 0, -1, -1, 0, 0]), "bytes follow its headers");
    let mut outside = Forge::new(0, &three[..1]);
    outside.body[0] += 2;
    assert_eq!(reason(&outside).1, "it ends outside the batch");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A damaged body under a correct checksum, as a hostile or broken producer would send it.
    #[test]
    fn damage_under_a_right_checksum_never_panics(
        records in records(8),
        codec in proptest::sample::select(Codec::ALL.to_vec()),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut writer = BatchWriter::new(codec);
        for record in &records {
            writer.add(
                record.timestamp, record.key.as_deref(), record.value.as_deref(),
                record.header_refs().into_iter(),
            ).unwrap();
        }
        let mut bytes = Vec::new();
        writer.finish(&Stamp::NONE, &mut bytes).unwrap();
        for (place, value) in damage {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        reseal(&mut bytes);
        exercise(&bytes, &mut Memory::default());
    }

    #[test]
    fn no_bytes_make_the_reader_panic(tail in proptest::collection::vec(any::<u8>(), 0..200), count in 0_i32..9, bits in 0_i16..0x40) {
        let mut forge = Forge::new(0, &[]);
        (forge.last_offset_delta, forge.record_count, forge.body, forge.attributes) = (20, count, tail.clone(), bits);
        exercise(&forge.bytes(), &mut Memory::default());
        exercise(&tail, &mut Memory::default());
    }
}

/// A small generator with a seed of its own, so that a failure can be repeated: `EOMIRROR_SEED`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap()
    }
}

fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    let place = random.below(bytes.len());
    match random.below(7) {
        0 => bytes[place] ^= 1 << random.below(8),
        1 => bytes[place] = u8::try_from(random.below(256)).unwrap(),
        2 => bytes.truncate(place.max(1)),
        3 => bytes.insert(place, u8::try_from(random.below(256)).unwrap()),
        4 => {
            // a number at an aligned place
            let number = [-1_i32, 0, 1, i32::MAX, i32::MIN, 1 << 24][random.below(6)];
            for (byte, value) in bytes[place..].iter_mut().zip(number.to_be_bytes()) {
                *byte = value;
            }
        }
        5 => {
            let other = &others[random.below(others.len())];
            let from = random.below(other.len());
            bytes.truncate(place.max(1));
            bytes.extend(&other[from..]);
        }
        _ => {
            let end = (place + 1 + random.below(40)).min(bytes.len());
            let part = bytes[place..end].to_vec();
            bytes.splice(place..place, part);
        }
    }
}

/// `EOMIRROR_FUZZ_ROUNDS` makes it longer.
#[test]
fn mutations_give_an_error_or_records_and_take_little_memory() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a decimal number"))
    };
    let seed = number("EOMIRROR_SEED", 4711);
    let rounds = number("EOMIRROR_FUZZ_ROUNDS", 20_000);
    let mut corpus: Vec<Vec<u8>> = Codec::ALL
        .iter()
        .map(|codec| write(*codec, &[b"first", b"", &[7; 300], b"last"]))
        .collect();
    corpus.push(Forge::marker(4, 1, 0).bytes());
    let mut open = Forge::new(0, &[plain(0, -1, b"x")]);
    (open.attributes, open.producer_id) = (TRANSACTIONAL, 1);
    corpus.push([open.bytes(), Forge::marker(1, 1, 0).bytes()].concat());
    let mut random = Random(seed | 1);
    let mut memory = Memory::default();
    LARGEST.set(0);
    for round in 0..rounds {
        let mut bytes = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(4) {
            mutate(&mut bytes, &corpus, &mut random);
        }
        // mostly corrected, so that the mutation reaches the code after the checks
        if random.below(4) > 0 && bytes.len() > 61 {
            let length = i32::try_from(bytes.len() - 12).unwrap();
            bytes[8..12].copy_from_slice(&length.to_be_bytes());
            reseal(&mut bytes);
        }
        exercise(&bytes, &mut memory);
        let largest = LARGEST.get();
        assert!(
            largest <= LARGEST_ALLOCATION,
            "seed {seed}, round {round}: {largest} bytes in one allocation"
        );
    }
}
