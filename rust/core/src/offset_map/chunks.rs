//! Builds a map from its chunks.
//!
//! Chunks are read in log order, each as a whole. A later one overrides earlier ones: after the user moved a position
//! back, or the target was replaced, the same source offsets are mirrored again to other target offsets. A chunk that
//! only repeats known ranges (it was merged into another and is not compacted away yet) changes nothing. So any prefix
//! of the log gives a consistent map. `eomirror.lane.offset_map_compaction` decides which chunks are merged, and when.

use super::{OffsetMap, Range};
use crate::error::Error;

impl OffsetMap {
    /// Applies a chunk that follows all chunks applied before.
    ///
    /// Known records stay if they precede the chunk on both sides, or follow it on both. These are all records, unless
    /// the chunk mirrors past offsets again. In the usual order the cost is a copy; otherwise two binary searches and a
    /// move.
    pub fn take_in(&mut self, chunk: &Self) -> Result<(), Error> {
        let Some((first, last)) = chunk.ranges.first().zip(chunk.ranges.last()) else {
            return Ok(());
        };
        let (source, target) = (first.source, first.target);
        let (source_end, target_end) = (last.source_end(), last.target_end());
        // both sides increase, so the records before the chunk are a prefix, and those after it a suffix
        let before = self
            .ranges
            .partition_point(|range| range.source < source && range.target < target);
        if before == self.ranges.len()
            && self
                .ranges
                .last()
                .is_none_or(|range| range.source_end() <= source && range.target_end() <= target)
        {
            for range in &chunk.ranges {
                self.push(*range)?;
            }
            return Ok(());
        }
        let behind = self.ranges.partition_point(|range| {
            range.source_end() <= source_end || range.target_end() <= target_end
        });
        let mut tail = self.ranges.split_off(behind.max(before));
        // the one range that may begin before the chunk's end, or end after its beginning
        let straddles_end = if behind < before {
            self.ranges.last().copied()
        } else {
            None
        };
        self.ranges.truncate(before);
        if let Some(range) = self.ranges.last_mut() {
            range.count = range
                .count
                .min(source - range.source)
                .min(target - range.target);
        }
        if let Some(range) = straddles_end {
            tail.insert(0, range);
        }
        for range in &chunk.ranges {
            self.push(*range)?;
        }
        for range in tail {
            let cut = (source_end - range.source)
                .max(target_end - range.target)
                .max(0);
            if cut < range.count {
                self.push(Range {
                    source: range.source + cut,
                    target: range.target + cut,
                    count: range.count - cut,
                })?;
            }
        }
        Ok(())
    }

    /// Discards ranges that do not affect how the ends of a log from `source` on, or of a copy from `target` on, were
    /// cut. The first range stays, and the last `most` ones of those that begin before either offset.
    ///
    /// Overrides are decided range by range, so further chunks can be applied afterwards.
    pub fn keep_near(&mut self, source: i64, target: i64, most: usize) {
        let near = |end: usize| end.saturating_sub(most)..end;
        // both sides increase
        let before_source = near(self.ranges.partition_point(|range| range.source < source));
        let before_target = near(self.ranges.partition_point(|range| range.target < target));
        let mut places = 0..self.ranges.len();
        self.ranges.retain(|_| {
            places.next().is_some_and(|place| {
                place == 0 || before_source.contains(&place) || before_target.contains(&place)
            })
        });
    }
}

#[cfg(test)]
mod tests;
