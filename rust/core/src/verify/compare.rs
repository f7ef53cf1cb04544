//! Compares a partition with its copy, record by record, in bounded memory.
//!
//! Both sides are digests of whole records, in offset order. Equal heads are a match. Otherwise a window of following
//! records on either side determines the difference:
//!
//! ```text
//! source head is later in the target?        target head is later in the source?
//!          yes                                        no        the target head is surplus
//!          no                                         yes       the source head is missing
//!          yes                                        yes       they are reordered
//!          no                                         no        the record was altered, or else
//!                                                               surplus, if it was matched before
//! ```
//!
//! A surplus record that equals a matched one is a duplicate. Any other is foreign: another producer wrote it.
//! [`Limits`] bounds how far back a duplicate is recognised, and how far a record may have moved. Beyond that the same
//! defect is reported under another name (foreign; missing and foreign), but never overlooked: every record of either
//! side is part of exactly one match or one [`Difference`].

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A record of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Offset on that side.
    pub offset: i64,
    /// Digest of everything that a copy must preserve.
    pub digest: u64,
}

/// Difference between a partition and its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The target lacks the record.
    Missing {
        /// Offset on the source.
        source: i64,
    },
    /// The target has the record once more.
    Duplicate {
        /// Offset of the surplus copy.
        target: i64,
        /// Target offset of the last matched copy.
        matched: i64,
    },
    /// Both sides have the record, in a different order.
    Reordered {
        /// Offset on the source.
        source: i64,
        /// Offset on the target.
        target: i64,
    },
    /// The target has another record in place of the source's.
    Altered {
        /// Offset on the source.
        source: i64,
        /// Offset on the target.
        target: i64,
    },
    /// The target has a record that the source lacks.
    Foreign {
        /// Offset on the target.
        target: i64,
    },
}

/// Memory limits of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of records on either side that are searched after the first difference.
    pub window: usize,
    /// Number of matched records that are remembered to recognise duplicates.
    pub history: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            window: 4096,
            history: 65_536,
        }
    }
}

/// A side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The original partition.
    Source,
    /// The copy.
    Target,
}

/// Compares one partition with its copy.
#[derive(Debug)]
pub struct Comparison {
    limits: Limits,
    source: Stream,
    target: Stream,
    history: History,
    matched: u64,
}

#[derive(Debug, Default)]
struct Stream {
    waiting: VecDeque<Seen>,
    ended: bool,
    /// Offset after the last record taken from the front.
    next: i64,
    /// Offset after the last record taken from the waiting ones.
    taken_ahead: i64,
}

/// Digests of the last matched records, each with its newest target offset.
#[derive(Debug, Default)]
struct History {
    order: VecDeque<Seen>,
    newest: HashMap<u64, i64, BuildHasherDefault<Digested>>,
}

/// Hasher that returns a digest unchanged.
#[derive(Debug, Default)]
struct Digested(u64);

impl Hasher for Digested {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

impl Comparison {
    /// Returns an empty comparison.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits: Limits {
                window: limits.window.max(1),
                history: limits.history,
            },
            source: Stream::default(),
            target: Stream::default(),
            history: History::default(),
            matched: 0,
        }
    }

    /// Returns the number of matched records.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Adds records of a side, in offset order.
    pub fn add(&mut self, side: Side, records: impl IntoIterator<Item = Seen>) {
        self.stream_mut(side).waiting.extend(records);
    }

    /// Marks a side as complete.
    pub fn end(&mut self, side: Side) {
        self.stream_mut(side).ended = true;
    }

    /// Continues after the end of both sides: the compared records are complete, and their duplicates are recognised.
    pub fn reopen(&mut self) {
        self.source.ended = false;
        self.target.ended = false;
    }

    /// Returns the source and target offsets at which another comparison can resume: every record before them is part
    /// of a match or a reported difference, and none after them is. `None` while a record has moved that far.
    #[must_use]
    pub fn resume_at(&self) -> Option<(i64, i64)> {
        let clean = |stream: &Stream| stream.taken_ahead <= stream.next;
        (clean(&self.source) && clean(&self.target)).then_some((self.source.next, self.target.next))
    }

    /// Returns the number of a side's records that are not judged yet; a comparison that resumes elsewhere reads them
    /// again.
    #[must_use]
    pub fn waiting(&self, side: Side) -> usize {
        self.stream(side).waiting.len()
    }

    /// Returns true if the comparison needs more records of a side.
    ///
    /// A caller that fetches only these keeps at most a window and one fetch of each side in memory.
    #[must_use]
    pub fn wants(&self, side: Side) -> bool {
        !self.stream(side).ended && self.waiting(side) <= self.limits.window
    }

    /// Compares the available records and returns differences in the order of detection.
    pub fn step(&mut self) -> Vec<Difference> {
        let mut found = Vec::new();
        loop {
            match (self.source.waiting.front(), self.target.waiting.front()) {
                (Some(source), Some(target)) if source.digest == target.digest => {
                    let target = *target;
                    self.source.take();
                    self.target.take();
                    self.remember(target);
                    self.matched += 1;
                }
                (Some(source), Some(target)) => {
                    if !self.sees_enough() {
                        return found;
                    }
                    let (source, target) = (*source, *target);
                    found.push(self.explain(source, target));
                }
                (Some(source), None) if self.target.ended => {
                    found.push(Difference::Missing {
                        source: source.offset,
                    });
                    self.source.take();
                }
                (None, Some(target)) if self.source.ended => {
                    found.push(self.history.surplus(*target));
                    self.target.take();
                }
                _ => return found,
            }
        }
    }

    fn stream(&self, side: Side) -> &Stream {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }

    fn stream_mut(&mut self, side: Side) -> &mut Stream {
        match side {
            Side::Source => &mut self.source,
            Side::Target => &mut self.target,
        }
    }

    /// Returns true if the windows are full: a verdict on a partial window would depend on the size of fetches.
    fn sees_enough(&self) -> bool {
        [&self.source, &self.target]
            .iter()
            .all(|stream| stream.ended || stream.waiting.len() > self.limits.window)
    }

    fn explain(&mut self, source: Seen, target: Seen) -> Difference {
        let ahead_in_target = self.target.find(source.digest, self.limits.window);
        let ahead_in_source = self.source.find(target.digest, self.limits.window);
        match (ahead_in_target, ahead_in_source) {
            (Some(_), None) => {
                self.target.take();
                self.history.surplus(target)
            }
            (None, Some(_)) => {
                self.source.take();
                Difference::Missing {
                    source: source.offset,
                }
            }
            (Some(in_target), Some(in_source)) => self.reordered(in_target, in_source),
            (None, None) => {
                self.target.take();
                if self.history.newest.contains_key(&target.digest) {
                    return self.history.surplus(target);
                }
                self.source.take();
                Difference::Altered {
                    source: source.offset,
                    target: target.offset,
                }
            }
        }
    }

    /// Handles heads that both are later on the other side: the one that is further away has moved.
    fn reordered(&mut self, in_target: usize, in_source: usize) -> Difference {
        let (source, target) = if in_source >= in_target {
            (self.source.take_at(in_source), self.target.take())
        } else {
            (self.source.take(), self.target.take_at(in_target))
        };
        let offset = |seen: Option<Seen>| seen.map_or(-1, |seen| seen.offset);
        if let Some(target) = target {
            self.remember(target);
        }
        Difference::Reordered {
            source: offset(source),
            target: offset(target),
        }
    }

    fn remember(&mut self, target: Seen) {
        self.history.add(target, self.limits.history);
    }
}

impl Stream {
    fn take(&mut self) -> Option<Seen> {
        let seen = self.waiting.pop_front()?;
        self.next = seen.offset + 1;
        Some(seen)
    }

    fn take_at(&mut self, place: usize) -> Option<Seen> {
        let seen = self.waiting.remove(place)?;
        self.taken_ahead = self.taken_ahead.max(seen.offset + 1);
        Some(seen)
    }

    /// Returns the index of the first record with this digest after the head, within the window.
    fn find(&self, digest: u64, window: usize) -> Option<usize> {
        self.waiting
            .iter()
            .take(window + 1)
            .skip(1)
            .position(|seen| seen.digest == digest)
            .map(|place| place + 1)
    }
}

impl History {
    fn add(&mut self, seen: Seen, most: usize) {
        self.order.push_back(seen);
        self.newest.insert(seen.digest, seen.offset);
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                // a newer record with the same content stays
                if self.newest.get(&oldest.digest) == Some(&oldest.offset) {
                    self.newest.remove(&oldest.digest);
                }
            }
        }
    }

    fn surplus(&self, target: Seen) -> Difference {
        match self.newest.get(&target.digest) {
            Some(matched) => Difference::Duplicate {
                target: target.offset,
                matched: *matched,
            },
            None => Difference::Foreign {
                target: target.offset,
            },
        }
    }
}

#[cfg(test)]
mod tests;
