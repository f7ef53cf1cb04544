//! A map put together from its chunks, and what may be done with the chunks over time.
//!
//! Chunks are read in log order, each whole. A later one counts where two disagree: a position that was moved back by
//! the user, or a target that was replaced, has the same source offsets mirrored again, to other target offsets. A
//! chunk that only repeats what is known (its part was merged into another, and its tombstone is still to come) is
//! the same map again, so that any prefix of the log gives a consistent map.

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

    /// The ranges without those that lie below both log starts, where nobody can read any more.
    ///
    /// A range is kept whole or not at all, and the last one always, so that an idle partition stays translatable.
    #[must_use]
    pub fn without_unreadable(&self, source_start: i64, target_start: i64) -> Self {
        let gone = self.ranges.partition_point(|range| {
            range.source_end() <= source_start && range.target_end() <= target_start
        });
        let kept = gone.min(self.ranges.len().saturating_sub(1));
        Self {
            ranges: self.ranges[kept..].to_vec(),
        }
    }
}

/// What to write so that the topic holds fewer and larger chunks, in one transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tidying {
    /// Chunks to write, each under its first source offset.
    pub writes: Vec<OffsetMap>,
    /// First source offsets of chunks to delete.
    pub deletes: Vec<i64>,
}

/// Merges neighbouring chunks of one partition, and drops what lies below both log starts.
///
/// `chunks` are those on the topic, in order of their source offsets, all to one target partition. A merged chunk
/// has at most `most` ranges; a chunk that would come out as it is, is not written again. The last chunk stays as it
/// is: the mirror may be about to write behind it. The map that readers see is the same before and after, but for
/// what was dropped; `take_in` accepts every order in which the writes and deletes become visible.
#[must_use]
pub fn tidy(chunks: &[OffsetMap], source_start: i64, target_start: i64, most: usize) -> Tidying {
    let mut found = Tidying::default();
    let Some((_, older)) = chunks.split_last() else {
        return found;
    };
    let mut group: Vec<&OffsetMap> = Vec::new();
    let mut size = 0;
    for chunk in older {
        let Some(last) = chunk.ranges.last() else {
            continue;
        };
        if last.source_end() <= source_start && last.target_end() <= target_start {
            found.deletes.push(chunk.ranges[0].source);
            continue;
        }
        if size + chunk.ranges.len() > most {
            close(&mut group, &mut found);
            size = 0;
        }
        size += chunk.ranges.len();
        group.push(chunk);
    }
    close(&mut group, &mut found);
    found
}

fn close(group: &mut Vec<&OffsetMap>, found: &mut Tidying) {
    let (Some((first, others)), true) = (group.split_first(), group.len() > 1) else {
        return group.clear();
    };
    let mut merged = (*first).clone();
    // chunks that do not fit together are left as they are
    if others.iter().all(|chunk| merged.join(chunk)) {
        found.writes.push(merged);
        found
            .deletes
            .extend(others.iter().map(|chunk| chunk.ranges[0].source));
    }
    group.clear();
}

impl OffsetMap {
    fn join(&mut self, other: &Self) -> bool {
        other.ranges.iter().all(|range| self.push(*range).is_ok())
    }
}

#[cfg(test)]
mod tests;
