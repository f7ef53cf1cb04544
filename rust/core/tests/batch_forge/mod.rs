//! Builds batches byte by byte: an encoder that shares no code with the crate's own.

// each test file takes what it needs
#![allow(dead_code)]

use eomirror_batch::{Batch, BatchError, Limits, Memory, Records};
use eomirror_core::HeaderRef;
use proptest::prelude::*;

pub(crate) const LOG_APPEND_TIME: i16 = 0x08;
pub(crate) const TRANSACTIONAL: i16 = 0x10;
pub(crate) const CONTROL: i16 = 0x20;
pub(crate) const DELETE_HORIZON: i16 = 0x40;

/// The fields of one record that a reader should see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) offset: i64,
    pub(crate) timestamp: i64,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Plain {
    pub(crate) fn header_refs(&self) -> Vec<HeaderRef<'_>> {
        self.headers
            .iter()
            .map(|(key, value)| HeaderRef {
                key,
                value: value.as_deref(),
            })
            .collect()
    }
}

pub(crate) fn plain(offset: i64, timestamp: i64, value: &[u8]) -> Plain {
    Plain {
        offset,
        timestamp,
        key: None,
        value: Some(value.to_vec()),
        headers: Vec::new(),
    }
}

/// A batch to encode, with every header field free.
#[derive(Debug, Clone)]
pub(crate) struct Forge {
    pub(crate) base_offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_timestamp: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) record_count: i32,
    pub(crate) body: Vec<u8>,
}

impl Forge {
    /// Wraps uncompressed records; offsets count from `base_offset`, timestamps from the first record's.
    pub(crate) fn new(base_offset: i64, records: &[Plain]) -> Self {
        let base_timestamp = records.first().map_or(-1, |record| record.timestamp);
        let mut body = Vec::new();
        for record in records {
            record_bytes(record, base_offset, base_timestamp, &mut body);
        }
        let last = records.last().map_or(base_offset, |record| record.offset);
        Self {
            base_offset,
            leader_epoch: -1,
            attributes: 0,
            last_offset_delta: i32::try_from(last - base_offset).unwrap(),
            base_timestamp,
            max_timestamp: records.iter().map(|r| r.timestamp).max().unwrap_or(-1),
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            record_count: i32::try_from(records.len()).unwrap(),
            body,
        }
    }

    /// A transaction marker.
    pub(crate) fn marker(offset: i64, producer_id: i64, kind: i16) -> Self {
        let record = Plain {
            key: Some([0_i16.to_be_bytes(), kind.to_be_bytes()].concat()),
            value: Some([&[0, 0][..], &5_i32.to_be_bytes()].concat()),
            ..plain(offset, 1000, b"")
        };
        Self {
            attributes: TRANSACTIONAL | CONTROL,
            producer_id,
            producer_epoch: 1,
            ..Self::new(offset, &[record])
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut checked = Vec::new();
        checked.extend(self.attributes.to_be_bytes());
        checked.extend(self.last_offset_delta.to_be_bytes());
        checked.extend(self.base_timestamp.to_be_bytes());
        checked.extend(self.max_timestamp.to_be_bytes());
        checked.extend(self.producer_id.to_be_bytes());
        checked.extend(self.producer_epoch.to_be_bytes());
        checked.extend(self.base_sequence.to_be_bytes());
        checked.extend(self.record_count.to_be_bytes());
        checked.extend(&self.body);
        let mut bytes = Vec::new();
        bytes.extend(self.base_offset.to_be_bytes());
        bytes.extend(i32::try_from(checked.len() + 9).unwrap().to_be_bytes());
        bytes.extend(self.leader_epoch.to_be_bytes());
        bytes.push(2);
        bytes.extend(crc32c(&checked).to_be_bytes());
        bytes.extend(checked);
        bytes
    }
}

fn record_bytes(record: &Plain, base_offset: i64, base_timestamp: i64, out: &mut Vec<u8>) {
    let mut body = vec![0];
    number(record.timestamp.wrapping_sub(base_timestamp), &mut body);
    number(record.offset - base_offset, &mut body);
    field(record.key.as_deref(), &mut body);
    field(record.value.as_deref(), &mut body);
    number(i64::try_from(record.headers.len()).unwrap(), &mut body);
    for (key, value) in &record.headers {
        field(Some(key), &mut body);
        field(value.as_deref(), &mut body);
    }
    number(i64::try_from(body.len()).unwrap(), out);
    out.extend(body);
}

fn field(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    match bytes {
        None => number(-1, out),
        Some(bytes) => {
            number(i64::try_from(bytes.len()).unwrap(), out);
            out.extend(bytes);
        }
    }
}

/// Zigzag by its definition: even numbers are the positive ones.
pub(crate) fn number(value: i64, out: &mut Vec<u8>) {
    let value = i128::from(value);
    let mut rest = if value >= 0 {
        2 * value
    } else {
        -2 * value - 1
    };
    loop {
        let low = u8::try_from(rest % 128).unwrap();
        rest /= 128;
        if rest == 0 {
            out.push(low);
            return;
        }
        out.push(low + 128);
    }
}

/// CRC-32C bit by bit (RFC 3720, appendix B.4).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 * (crc & 1));
        }
    }
    !crc
}

/// Corrects the checksum after bytes were changed.
pub(crate) fn reseal(bytes: &mut [u8]) {
    if bytes.len() >= 21 {
        let crc = crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    }
}

pub(crate) fn read(batch: &Batch<'_>) -> Result<Vec<Plain>, BatchError> {
    read_with(batch, &mut Memory::default(), Limits::default())
}

pub(crate) fn read_with(
    batch: &Batch<'_>,
    memory: &mut Memory,
    limits: Limits,
) -> Result<Vec<Plain>, BatchError> {
    Records::of(batch, memory, limits)?
        .map(|record| {
            let record = record?;
            Ok(Plain {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect(),
            })
        })
        .collect()
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

fn field_strategy() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Vec::new())),
        4 => bytes(80).prop_map(Some),
        1 => (any::<u8>(), 1_usize..5000).prop_map(|(byte, times)| Some(vec![byte; times])),
    ]
}

fn timestamp() -> impl Strategy<Value = i64> {
    let now = 1_790_000_000_000_i64;
    prop_oneof![
        2 => Just(-1_i64),
        1 => Just(0_i64),
        4 => now..now + 1000,
        1 => now - (1 << 40)..now + (1 << 40),
    ]
}

fn headers() -> impl Strategy<Value = Vec<(Vec<u8>, Option<Vec<u8>>)>> {
    // few keys, so that duplicates come; keys are bytes, not text
    let key = prop_oneof![
        Just(b"h".to_vec()),
        Just(Vec::new()),
        Just(vec![0xff, 0xfe]),
        bytes(6)
    ];
    prop_oneof![
        2 => Just(Vec::new()),
        1 => proptest::collection::vec((key, field_strategy()), 0..5),
    ]
}

/// Records with offsets from 0 on.
pub(crate) fn records(most: usize) -> impl Strategy<Value = Vec<Plain>> {
    let record = (timestamp(), field_strategy(), field_strategy(), headers());
    proptest::collection::vec(record, 1..most).prop_map(|records| {
        (0..)
            .zip(records)
            .map(|(offset, (timestamp, key, value, headers))| Plain {
                offset,
                timestamp,
                key,
                value,
                headers,
            })
            .collect()
    })
}
