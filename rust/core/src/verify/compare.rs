//! Compares what a partition held with what its copy holds, record by record, in bounded memory.
//!
//! Both sides come as digests of whole records, in the order of their offsets. While heads are equal, they are a
//! match. Where they are not, a window of what follows on either side tells what happened:
//!
//! ```text
//! source head is further on in the target?   target head is further on in the source?
//!          yes                                        no        the target head is surplus
//!          no                                         yes       the source head is missing
//!          yes                                        yes       they changed places
//!          no                                         no        the record was altered on its way, or else
//!                                                               surplus, if it was matched before
//! ```
//!
//! A surplus record that equals one that was matched before is a duplicate; any other is foreign: somebody else wrote
//! it. How far back a duplicate is recognised as one, and how far away a record may have moved, is limited by
//! [`Limits`]; beyond that the same defect is found under another name (foreign; missing and foreign), never overlooked:
//! every record of either side is either part of one match or part of one [`Difference`].

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// A record of one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its offset on that side.
    pub offset: i64,
    /// Digest of all that a copy has to keep.
    pub digest: u64,
}

/// What is wrong with the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The target does not have it.
    Missing {
        /// Offset on the source.
        source: i64,
    },
    /// The target has it once more.
    Duplicate {
        /// Offset of the surplus copy.
        target: i64,
        /// Offset of the last copy that was matched.
        matched: i64,
    },
    /// Both have it, at another place among the others.
    Reordered {
        /// Offset on the source.
        source: i64,
        /// Offset on the target.
        target: i64,
    },
    /// Where the source has one record, the target has another.
    Altered {
        /// Offset on the source.
        source: i64,
        /// Offset on the target.
        target: i64,
    },
    /// The target has a record that the source does not.
    Foreign {
        /// Offset on the target.
        target: i64,
    },
}

/// How much a comparison keeps in memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Records of either side that are looked at beyond the first difference.
    pub window: usize,
    /// Matched records that are remembered to recognise duplicates.
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
    /// Where records come from.
    Source,
    /// Where they should be.
    Target,
}

/// The comparison of one partition with its copy.
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
    /// Behind the last record that was taken from the front.
    next: i64,
    /// Behind the last record that was taken from among those that wait.
    taken_ahead: i64,
}

/// Digests of the last matched records, with the target offset of the newest of each.
#[derive(Debug, Default)]
struct History {
    order: VecDeque<Seen>,
    newest: HashMap<u64, i64, BuildHasherDefault<Digested>>,
}

/// The hash of a digest is the digest.
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
    /// A comparison that has seen nothing.
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

    /// Records that are equal on both sides so far.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Adds records of a side, in the order of their offsets.
    pub fn add(&mut self, side: Side, records: impl IntoIterator<Item = Seen>) {
        self.stream_mut(side).waiting.extend(records);
    }

    /// Nothing more follows on a side.
    pub fn end(&mut self, side: Side) {
        self.stream_mut(side).ended = true;
    }

    /// More follows on both sides after all: what was compared so far is complete, and duplicates of it are known.
    pub fn reopen(&mut self) {
        self.source.ended = false;
        self.target.ended = false;
    }

    /// Where another comparison could go on, as offsets of source and target: every record before them is part of a
    /// match or of a difference that was told, and none behind them is. None while a record has moved that far.
    #[must_use]
    pub fn resume_at(&self) -> Option<(i64, i64)> {
        let clean = |stream: &Stream| stream.taken_ahead <= stream.next;
        (clean(&self.source) && clean(&self.target)).then_some((self.source.next, self.target.next))
    }

    /// How many records of a side have come and are not judged yet; a comparison that goes on elsewhere reads them again.
    #[must_use]
    pub fn waiting(&self, side: Side) -> usize {
        self.stream(side).waiting.len()
    }

    /// Whether more records of a side are needed before the comparison can go on.
    ///
    /// A caller that fetches only what is wanted keeps at most a window and one fetch of each side in memory.
    #[must_use]
    pub fn wants(&self, side: Side) -> bool {
        !self.stream(side).ended && self.waiting(side) <= self.limits.window
    }

    /// Compares as far as what is there allows; gives the differences in the order in which they were met.
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

    /// Whether the windows are full: a verdict on half a window would depend on how fetches were cut.
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

    /// Both heads are further on on the other side: the one that is further away has moved, and shifted the other.
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

    /// Place of the first record with this digest behind the head, within the window.
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
                // a younger record of the same content keeps its place
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
