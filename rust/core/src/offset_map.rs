//! Maps source offsets to target offsets.
//!
//! A chunk is the value of one record in the offset map topic: a target partition, and ranges in which source and
//! target offsets advance together. Both sides increase from range to range, because a partition's order is preserved.
//!
//! # Layout of a chunk
//!
//! ```text
//! version    1 byte    1
//! topic      text      target topic
//! partition  varint    target partition
//! count      varint    number of ranges, at least 1
//! ranges     per range: source gap, target gap, length - 1
//! ```
//!
//! A gap is the distance from the end of the previous range (from 0 for the first), as an unsigned varint: a
//! transaction marker between two batches costs three bytes. Every number has a single encoding. So equal maps are
//! equal bytes, and a compacted topic holds one of them.
//!
//! # Many chunks
//!
//! A partition's map is the sequence of its chunks, applied in log order ([`OffsetMap::take_in`]). A query does not
//! need all of them: the chunks from any place in the log to its end are a valid part of the map
//! ([`OffsetMap::part_to_target`]), because a later chunk overrides an earlier one. A reader goes backwards from the
//! end until the part gives an answer.

mod answer;
mod chunks;

pub use answer::{Answer, Reason};

use crate::error::Error;
use crate::header::MAX_TOPIC;
use crate::varint::{Reader, put, put_text};

/// Version that this release writes, and the only one that it reads.
pub const VERSION: u8 = 1;

/// `count` consecutive source offsets with as many consecutive target offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First source offset.
    pub source: i64,
    /// First target offset.
    pub target: i64,
    /// Number of offsets, at least 1.
    pub count: i64,
}

impl Range {
    fn source_end(&self) -> i64 {
        self.source + self.count
    }

    fn target_end(&self) -> i64 {
        self.target + self.count
    }
}

/// Translation of an offset to the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Translation {
    /// The record at the offset has this offset on the other side.
    Exact(i64),
    /// No record was mirrored from the offset; resuming at this one neither skips nor repeats a record of this map.
    Next(i64),
    /// This map has no answer.
    Unknown,
}

/// Ranges of one source partition, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OffsetMap {
    ranges: Vec<Range>,
}

impl OffsetMap {
    /// Returns the ranges, in order.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Returns true if the map has no ranges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the first and last target offset.
    #[must_use]
    pub fn target_bounds(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.ranges.first()?, self.ranges.last()?);
        Some((first.target, last.target_end() - 1))
    }

    /// Returns the first source offset, and the one after the last.
    #[must_use]
    pub fn source_bounds(&self) -> Option<(i64, i64)> {
        let (first, last) = (self.ranges.first()?, self.ranges.last()?);
        Some((first.source, last.source_end()))
    }

    /// Returns a map of the given ranges, which must be positive and increase on both sides.
    pub fn from_ranges(ranges: &[Range]) -> Result<Self, Error> {
        let mut map = Self::default();
        for range in ranges {
            map.push(*range)?;
        }
        Ok(map)
    }

    /// Appends a range. Joins it with the last one if nothing lies between them on either side.
    pub fn push(&mut self, range: Range) -> Result<(), Error> {
        let within = range.source >= 0
            && range.target >= 0
            && range.count >= 1
            && range.source.checked_add(range.count).is_some()
            && range.target.checked_add(range.count).is_some();
        if !within {
            return Err(bad(format!("{range:?} is not a range of offsets")));
        }
        if let Some(last) = self.ranges.last_mut() {
            if range.source < last.source_end() || range.target < last.target_end() {
                return Err(bad(format!("{range:?} does not come after {last:?}")));
            }
            if range.source == last.source_end() && range.target == last.target_end() {
                last.count += range.count;
                return Ok(());
            }
        }
        self.ranges.push(range);
        Ok(())
    }

    /// Translates source offset `offset` to the target.
    #[must_use]
    pub fn to_target(&self, offset: i64) -> Translation {
        translate(&self.ranges, offset, |range| (range.source, range.target))
    }

    /// Translates target offset `offset` to the source.
    #[must_use]
    pub fn to_source(&self, offset: i64) -> Translation {
        translate(&self.ranges, offset, |range| (range.target, range.source))
    }

    /// Encodes the map as a chunk.
    pub fn encode(&self, topic: &str, partition: i32) -> Result<Vec<u8>, Error> {
        if topic.is_empty() || topic.len() > MAX_TOPIC {
            return Err(bad("the topic's name has no or too many characters".into()));
        }
        let partition =
            u64::try_from(partition).map_err(|_| bad(format!("{partition} is not a partition")))?;
        if self.is_empty() {
            return Err(bad("a chunk has at least one range".into()));
        }
        let mut out = Vec::with_capacity(8 + topic.len() + 6 * self.ranges.len());
        out.push(VERSION);
        put_text(&mut out, topic);
        put(&mut out, partition);
        put(&mut out, self.ranges.len() as u64);
        let (mut source, mut target) = (0, 0);
        for range in &self.ranges {
            put(&mut out, (range.source - source).unsigned_abs());
            put(&mut out, (range.target - target).unsigned_abs());
            put(&mut out, (range.count - 1).unsigned_abs());
            (source, target) = (range.source_end(), range.target_end());
        }
        Ok(out)
    }
}

/// A decoded chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Target topic.
    pub topic: String,
    /// Target partition.
    pub partition: i32,
    /// Ranges of the chunk.
    pub map: OffsetMap,
}

/// Decodes a chunk; every byte is accounted for.
pub fn decode(bytes: &[u8]) -> Result<Chunk, Error> {
    let mut reader = Reader::new(bytes);
    match reader.byte() {
        Some(VERSION) => {}
        Some(version) => {
            return Err(Error::UnknownOffsetMapVersion {
                version,
                known: VERSION,
            });
        }
        None => return Err(bad("the chunk is empty".into())),
    }
    let topic = reader
        .text(MAX_TOPIC)
        .filter(|topic| !topic.is_empty())
        .ok_or_else(|| bad("the target topic is not readable".into()))?
        .to_owned();
    let partition = reader
        .number()
        .and_then(|number| i32::try_from(number).ok())
        .ok_or_else(|| bad("the target partition is not readable".into()))?;
    let count = reader
        .number()
        // a range takes at least three bytes, so a forged count cannot cause a large allocation
        .filter(|count| *count >= 1 && *count <= (reader.remaining() / 3) as u64)
        .ok_or_else(|| bad("the number of ranges does not fit the chunk".into()))?;
    let mut map = OffsetMap::default();
    let (mut source, mut target) = (0_i64, 0_i64);
    for index in 0..count {
        let range = read_range(&mut reader, source, target)
            .ok_or_else(|| bad(format!("range {index} of {count} is not readable")))?;
        (source, target) = (range.source_end(), range.target_end());
        let before = map.ranges.len();
        map.push(range)?;
        if map.ranges.len() == before {
            return Err(bad(format!(
                "range {index} of {count} should have been joined to the one before it"
            )));
        }
    }
    if reader.remaining() > 0 {
        return Err(bad(format!(
            "{} bytes follow the last range",
            reader.remaining()
        )));
    }
    Ok(Chunk {
        topic,
        partition,
        map,
    })
}

fn read_range(reader: &mut Reader<'_>, source: i64, target: i64) -> Option<Range> {
    let mut number = || i64::try_from(reader.number()?).ok();
    let range = Range {
        source: source.checked_add(number()?)?,
        target: target.checked_add(number()?)?,
        count: number()?.checked_add(1)?,
    };
    range.source.checked_add(range.count)?;
    range.target.checked_add(range.count)?;
    Some(range)
}

fn translate(ranges: &[Range], offset: i64, sides: impl Fn(&Range) -> (i64, i64)) -> Translation {
    // the last range that starts at or before the offset
    let after = ranges.partition_point(|range| sides(range).0 <= offset);
    let Some(range) = after.checked_sub(1).map(|index| &ranges[index]) else {
        return Translation::Unknown;
    };
    let (from, to) = sides(range);
    let distance = offset - from;
    if distance < range.count {
        return Translation::Exact(to + distance);
    }
    match ranges.get(after) {
        // in a hole: everything before it is in `range`, everything after it starts with the next range
        Some(next) => Translation::Next(sides(next).1),
        None if distance == range.count => Translation::Next(to + range.count),
        None => Translation::Unknown,
    }
}

fn bad(reason: String) -> Error {
    Error::BadOffsetMap { reason }
}

#[cfg(test)]
mod tests {
    use super::{OffsetMap, Range, Translation, decode};
    use proptest::prelude::*;

    prop_compose! {
        fn maps()(steps in proptest::collection::vec((0_i64..5, 0_i64..5, 1_i64..9), 1..40), base in 0_i64..1 << 40)
            -> OffsetMap
        {
            let (mut source, mut target) = (base, base / 3);
            let mut map = OffsetMap::default();
            for (source_gap, target_gap, count) in steps {
                source += source_gap;
                target += target_gap;
                map.push(Range { source, target, count }).unwrap();
                source += count;
                target += count;
            }
            map
        }
    }

    proptest! {
        #[test]
        fn a_chunk_survives_a_round_trip(map in maps(), topic in "[a-zA-Z0-9._-]{1,249}", partition in 0..i32::MAX) {
            let bytes = map.encode(&topic, partition).unwrap();
            let chunk = decode(&bytes).unwrap();
            prop_assert_eq!((chunk.topic, chunk.partition, chunk.map), (topic, partition, map));
        }

        #[test]
        fn one_map_has_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let mut framed = b"\x01\x01t\x00".to_vec();
            framed.extend_from_slice(&bytes);
            if let Ok(chunk) = decode(&framed) {
                prop_assert_eq!(chunk.map.encode(&chunk.topic, chunk.partition).unwrap(), framed);
            }
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn a_cut_chunk_is_refused(map in maps(), cut: prop::sample::Index) {
            let bytes = map.encode("t", 0).unwrap();
            prop_assert!(decode(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn there_and_back_is_the_same_offset(map in maps()) {
            for range in map.ranges() {
                for step in 0..range.count {
                    let target = map.to_target(range.source + step);
                    prop_assert_eq!(target, Translation::Exact(range.target + step));
                    prop_assert_eq!(
                        map.to_source(range.target + step),
                        Translation::Exact(range.source + step)
                    );
                }
            }
        }

        /// A group that resumes at the translated offset neither skips nor repeats a record.
        #[test]
        fn translation_neither_skips_nor_repeats(map in maps(), ahead in -3_i64..80) {
            let mirrored: Vec<(i64, i64)> = map
                .ranges()
                .iter()
                .flat_map(|range| (0..range.count).map(|step| (range.source + step, range.target + step)))
                .collect();
            let offset = mirrored[0].0 + ahead;
            match map.to_target(offset) {
                Translation::Exact(at) | Translation::Next(at) => {
                    for (source, target) in mirrored {
                        prop_assert_eq!(source < offset, target < at);
                    }
                }
                Translation::Unknown => {
                    let last = mirrored[mirrored.len() - 1].0;
                    prop_assert!(offset < mirrored[0].0 || offset > last + 1);
                }
            }
        }

        #[test]
        fn translation_never_goes_back(map in maps(), start in 0_i64..100) {
            let mut last = i64::MIN;
            let first = map.ranges()[0].source;
            for offset in first + start..first + start + 20 {
                if let Translation::Exact(at) | Translation::Next(at) = map.to_target(offset) {
                    prop_assert!(at >= last);
                    last = at;
                }
            }
        }
    }

    #[test]
    fn ranges_must_grow_on_both_sides() {
        let range = |source, target, count| Range {
            source,
            target,
            count,
        };
        for ranges in [
            vec![range(0, 0, 0)],
            vec![range(-1, 0, 1)],
            vec![range(0, -1, 1)],
            vec![range(i64::MAX, 0, 1)],
            vec![range(0, i64::MAX, 1)],
            vec![range(0, 0, 2), range(1, 5, 1)],
            vec![range(0, 5, 2), range(5, 6, 1)],
        ] {
            assert!(OffsetMap::from_ranges(&ranges).is_err(), "{ranges:?}");
        }
    }
}
