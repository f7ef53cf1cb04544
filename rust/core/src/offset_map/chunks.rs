//! A map put together from its chunks.
//!
//! Chunks are read in log order, each whole. A later one counts where two disagree: a position that was moved back by
//! the user, or a target that was replaced, has the same source offsets mirrored again, to other target offsets. A
//! chunk that only repeats what is known (it was merged into another, and has not been compacted away) is the same map
//! again, so that any prefix of the log gives a consistent map. What is merged, and when: `eomirror.lane.offset_map_compaction`.

use super::{OffsetMap, Range};
use crate::error::Error;

impl OffsetMap {
    /// Takes in a chunk that stands behind all that was taken in before.
    ///
    /// Of what was known stay the records that lie before the chunk on both sides, or behind it on both. That is
    /// everything, unless the chunk rewrites the past. Usual order costs nothing but the copy; otherwise two binary
    /// searches and a move.
    pub fn take_in(&mut self, chunk: &Self) -> Result<(), Error> {
        let Some((first, last)) = chunk.ranges.first().zip(chunk.ranges.last()) else {
            return Ok(());
        };
        let (source, target) = (first.source, first.target);
        let (source_end, target_end) = (last.source_end(), last.target_end());
        // both sides grow, so what lies before is a prefix, and what lies behind a suffix
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
        // the one range that may begin before the chunk's end, or end behind its beginning
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

    /// Forgets what does not decide where a log that begins at `source`, or a copy that begins at `target`, was cut: what
    /// stays is the first range, and of those that begin before either offset the last `most` ones.
    ///
    /// Which ranges a chunk overrules is decided range by range, so that more chunks can be taken in behind it.
    pub fn keep_near(&mut self, source: i64, target: i64, most: usize) {
        let near = |end: usize| end.saturating_sub(most)..end;
        // both sides grow
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
