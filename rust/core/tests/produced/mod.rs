//! Decodes one produced batch as strictly as a broker; shares no code with the crate's reader.

// each test file takes what it needs
#![allow(dead_code)]

use std::io::Read;

use bytes::Bytes;
use eomirror_batch::Codec;
use kafka_protocol::records::{Compression, RecordBatchDecoder};

use crate::batch_forge::{Plain, crc32c};

/// A produced batch: its header, and its records with offsets from 0.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) leader_epoch: i32,
    pub(crate) attributes: i16,
    pub(crate) max_timestamp: i64,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    pub(crate) base_sequence: i32,
    pub(crate) codec: Codec,
    pub(crate) records: Vec<Plain>,
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }

    fn big_endian<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().unwrap()
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.big_endian())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.big_endian())
    }

    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.big_endian())
    }

    /// Zigzag by its definition: even numbers are the positive ones.
    fn number(&mut self) -> i64 {
        let (mut value, mut factor) = (0_i128, 1_i128);
        loop {
            let byte = i128::from(self.take(1)[0]);
            value += (byte % 128) * factor;
            factor *= 128;
            if byte < 128 {
                break;
            }
        }
        let value = if value % 2 == 0 {
            value / 2
        } else {
            -(value + 1) / 2
        };
        i64::try_from(value).unwrap()
    }

    fn field(&mut self) -> Option<Vec<u8>> {
        let length = self.number();
        (length >= 0).then(|| self.take(usize::try_from(length).unwrap()).to_vec())
    }
}

/// Panics if a broker would reject the batch, or store it differently.
pub(crate) fn decode(bytes: &[u8]) -> Decoded {
    let mut input = Input(bytes);
    assert_eq!(input.i64(), 0, "base offset");
    let length = usize::try_from(input.i32()).unwrap();
    assert_eq!(length, input.0.len(), "length");
    let leader_epoch = input.i32();
    assert_eq!(input.take(1), [2], "magic");
    let crc = u32::from_be_bytes(input.big_endian());
    assert_eq!(crc, crc32c(input.0), "checksum");
    let attributes = input.i16();
    let last_delta = input.i32();
    let base_timestamp = input.i64();
    let max_timestamp = input.i64();
    let producer_id = input.i64();
    let producer_epoch = input.i16();
    let base_sequence = input.i32();
    let count = input.i32();
    assert!(count > 0, "no records");
    assert_eq!(last_delta + 1, count, "offsets are not consecutive");
    let codec = Codec::ALL[usize::try_from(attributes & 7).unwrap()];
    let plain = decompress(codec, input.0);
    let mut input = Input(&plain);
    let mut records = Vec::new();
    for index in 0..i64::from(count) {
        let length = usize::try_from(input.number()).unwrap();
        let mut body = Input(input.take(length));
        assert_eq!(body.take(1), [0], "a record's attributes");
        let timestamp = base_timestamp + body.number();
        assert_eq!(body.number(), index, "offset delta");
        let (key, value) = (body.field(), body.field());
        let headers = (0..body.number())
            .map(|_| (body.field().expect("a header's name"), body.field()))
            .collect();
        assert!(body.0.is_empty(), "bytes behind a record");
        records.push(Plain {
            offset: index,
            timestamp,
            key,
            value,
            headers,
        });
    }
    assert!(input.0.is_empty(), "bytes behind the records");
    Decoded {
        leader_epoch,
        attributes,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        codec,
        records,
    }
}

/// Decodes the same bytes with the kafka-protocol crate. It keeps one header per name, and requires text as names:
/// other batches are left to [`decode`].
pub(crate) fn assert_kafka_protocol_agrees(bytes: &[u8], records: &[Plain]) {
    let text = |record: &Plain| {
        let names = record.headers.iter().map(|(name, _)| name);
        names.clone().all(|name| std::str::from_utf8(name).is_ok())
    };
    if !records.iter().all(text) {
        return;
    }
    let unpack = |packed: &mut Bytes, compression: Compression| {
        let codec = Codec::ALL[compression as usize];
        Ok(Bytes::from(decompress(codec, packed)))
    };
    let mut input = Bytes::copy_from_slice(bytes);
    let set = RecordBatchDecoder::decode_with_custom_compression(&mut input, Some(unpack)).unwrap();
    assert_eq!(set.records.len(), records.len());
    for (theirs, record) in set.records.iter().zip(records) {
        assert_eq!(theirs.offset, record.offset);
        assert_eq!(theirs.timestamp, record.timestamp);
        assert_eq!(theirs.key.as_deref(), record.key.as_deref());
        assert_eq!(theirs.value.as_deref(), record.value.as_deref());
        for (name, value) in &theirs.headers {
            let ours = record.headers.iter().rev();
            let mut ours = ours.filter(|(other, _)| other == name.as_bytes());
            assert_eq!(ours.next().unwrap().1.as_deref(), value.as_deref());
        }
        let distinct: std::collections::HashSet<_> =
            record.headers.iter().map(|(name, _)| name).collect();
        assert_eq!(theirs.headers.len(), distinct.len());
    }
}

pub(crate) fn decompress(codec: Codec, packed: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match codec {
        Codec::None => plain.extend(packed),
        Codec::Gzip => {
            let mut reader = flate2::read::GzDecoder::new(packed);
            reader.read_to_end(&mut plain).unwrap();
        }
        Codec::Snappy => plain = unsnappy(packed),
        Codec::Lz4 => {
            let mut reader = lz4_flex::frame::FrameDecoder::new(packed);
            reader.read_to_end(&mut plain).unwrap();
        }
        Codec::Zstd => {
            plain.reserve(1 << 20);
            zstd_safe::decompress(&mut plain, packed).unwrap();
        }
    }
    plain
}

/// Raw, or in xerial's framing: a magic, two versions, then blocks preceded by their length.
fn unsnappy(packed: &[u8]) -> Vec<u8> {
    let mut decoder = snap::raw::Decoder::new();
    let Some(blocks) = packed.strip_prefix(b"\x82SNAPPY\0") else {
        return decoder.decompress_vec(packed).unwrap();
    };
    let mut input = Input(&blocks[8..]);
    let mut plain = Vec::new();
    while !input.0.is_empty() {
        let length = usize::try_from(input.i32()).unwrap();
        plain.extend(decoder.decompress_vec(input.take(length)).unwrap());
    }
    plain
}

/// The reverse, for forged logs.
pub(crate) fn compress(codec: Codec, plain: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match codec {
        Codec::None => plain.to_vec(),
        Codec::Gzip => {
            let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            writer.write_all(plain).unwrap();
            writer.finish().unwrap()
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(plain).unwrap(),
        Codec::Lz4 => {
            let mut writer = lz4_flex::frame::FrameEncoder::new(Vec::new());
            writer.write_all(plain).unwrap();
            writer.finish().unwrap()
        }
        Codec::Zstd => {
            let mut packed = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
            zstd_safe::compress(&mut packed, plain, 1).unwrap();
            packed
        }
    }
}
