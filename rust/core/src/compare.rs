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
        self.stream(side).waiting.extend(records);
    }

    /// Nothing more follows on a side.
    pub fn end(&mut self, side: Side) {
        self.stream(side).ended = true;
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

    /// Whether more records of a side are needed before the comparison can go on.
    ///
    /// A caller that fetches only what is wanted keeps at most a window and one fetch of each side in memory.
    #[must_use]
    pub fn wants(&self, side: Side) -> bool {
        let stream = match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        };
        !stream.ended && stream.waiting.len() <= self.limits.window
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

    fn stream(&mut self, side: Side) -> &mut Stream {
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
mod tests {
    use proptest::prelude::*;

    use super::{Comparison, Difference, Limits, Seen, Side};

    const SMALL: Limits = Limits {
        window: 8,
        history: 16,
    };

    fn seen(digests: &[u64]) -> Vec<Seen> {
        digests
            .iter()
            .enumerate()
            .map(|(place, digest)| Seen {
                offset: i64::try_from(place).unwrap_or(i64::MAX),
                digest: *digest,
            })
            .collect()
    }

    /// Feeds both sides in pieces of these sizes, as fetches come.
    fn compare(
        source: &[u64],
        target: &[u64],
        limits: Limits,
        piece: usize,
    ) -> (Vec<Difference>, u64) {
        let mut comparison = Comparison::new(limits);
        let mut sides = [
            (Side::Source, seen(source).into_iter()),
            (Side::Target, seen(target).into_iter()),
        ];
        let mut found = Vec::new();
        loop {
            let mut fed = false;
            for (side, records) in &mut sides {
                if comparison.wants(*side) {
                    let some: Vec<_> = records.take(piece).collect();
                    fed = true;
                    if some.is_empty() {
                        comparison.end(*side);
                    }
                    comparison.add(*side, some);
                }
            }
            found.extend(comparison.step());
            if !fed {
                return (found, comparison.matched());
            }
        }
    }

    fn differences(source: &[u64], target: &[u64]) -> Vec<Difference> {
        compare(source, target, SMALL, 3).0
    }

    #[test]
    fn equal_sides_have_no_difference() {
        assert_eq!(compare(&[1, 2, 2, 3], &[1, 2, 2, 3], SMALL, 3), (vec![], 4));
        assert_eq!(compare(&[], &[], SMALL, 3), (vec![], 0));
    }

    #[test]
    fn each_defect_has_its_name() {
        let source = [1, 2, 3, 4, 5, 6];
        assert_eq!(
            differences(&source, &[1, 2, 4, 5, 6]),
            [Difference::Missing { source: 2 }]
        );
        assert_eq!(
            differences(&source, &[1, 2, 3, 3, 4, 5, 6]),
            [Difference::Duplicate {
                target: 3,
                matched: 2
            }]
        );
        assert_eq!(
            differences(&source, &[1, 2, 3, 4, 1, 5, 6]),
            [Difference::Duplicate {
                target: 4,
                matched: 0
            }]
        );
        assert_eq!(
            differences(&source, &[1, 2, 9, 4, 5, 6]),
            [Difference::Altered {
                source: 2,
                target: 2
            }]
        );
        assert_eq!(
            differences(&source, &[1, 2, 9, 3, 4, 5, 6]),
            [Difference::Foreign { target: 2 }]
        );
        assert_eq!(
            differences(&source, &[1, 3, 2, 4, 5, 6]),
            [Difference::Reordered {
                source: 2,
                target: 1
            }]
        );
        assert_eq!(
            differences(&source, &[2, 3, 4, 1, 5, 6]),
            [Difference::Reordered {
                source: 0,
                target: 3
            }]
        );
    }

    #[test]
    fn the_ends_are_compared_too() {
        assert_eq!(
            differences(&[1, 2, 3], &[1]),
            [
                Difference::Missing { source: 1 },
                Difference::Missing { source: 2 }
            ]
        );
        assert_eq!(
            differences(&[1], &[1, 1, 7]),
            [
                Difference::Duplicate {
                    target: 1,
                    matched: 0
                },
                Difference::Foreign { target: 2 }
            ]
        );
    }

    #[test]
    fn records_of_equal_content_are_counted() {
        assert_eq!(
            differences(&[5, 5, 5, 6], &[5, 5, 6]),
            [Difference::Missing { source: 2 }]
        );
        assert_eq!(
            differences(&[5, 5, 6], &[5, 5, 5, 6]),
            [Difference::Duplicate {
                target: 2,
                matched: 1
            }]
        );
    }

    #[test]
    fn what_lies_beyond_the_limits_is_found_under_another_name() {
        let source: Vec<u64> = (0..100).collect();
        let mut target = source.clone();
        target.insert(90, 3);
        assert_eq!(
            differences(&source, &target),
            [Difference::Foreign { target: 90 }]
        );
    }

    #[test]
    fn a_comparison_can_go_on_where_another_one_stood() {
        let mut comparison = Comparison::new(SMALL);
        comparison.add(Side::Source, seen(&[1, 2, 3, 4]));
        comparison.add(Side::Target, seen(&[2, 3, 4, 1]));
        comparison.end(Side::Source);
        assert_eq!(comparison.resume_at(), Some((0, 0)));
        comparison.end(Side::Target);
        assert_eq!(comparison.step().len(), 1);
        assert_eq!(comparison.resume_at(), None, "the moved record is ahead");
        comparison.reopen();
        let more = |offset| [Seen { offset, digest: 9 }];
        comparison.add(Side::Source, more(4));
        comparison.add(Side::Target, more(4));
        assert_eq!(comparison.step(), []);
        assert_eq!(comparison.resume_at(), Some((5, 5)));
    }

    #[test]
    fn memory_is_bounded_by_window_and_history() {
        let mut comparison = Comparison::new(SMALL);
        for number in 0..1000_u64 {
            let offset = i64::try_from(number).unwrap_or(0);
            for side in [Side::Source, Side::Target] {
                if comparison.wants(side) {
                    comparison.add(
                        side,
                        [Seen {
                            offset,
                            digest: number,
                        }],
                    );
                }
            }
            assert_eq!(comparison.step(), []);
            assert!(comparison.history.order.len() <= SMALL.history);
            assert!(comparison.history.newest.len() <= SMALL.history);
            assert!(comparison.source.waiting.len() <= SMALL.window + 1);
        }
    }

    proptest! {
        /// Every record of both sides is in one match or in one difference, however fetches are cut.
        #[test]
        fn nothing_is_overlooked(
            source in prop::collection::vec(0_u64..30, 0..60),
            target in prop::collection::vec(0_u64..30, 0..60),
            piece in 1_usize..20,
        ) {
            let (found, matched) = compare(&source, &target, SMALL, piece);
            let (mut left, mut right) = (matched, matched);
            for difference in &found {
                match difference {
                    Difference::Missing { .. } => left += 1,
                    Difference::Duplicate { .. } | Difference::Foreign { .. } => right += 1,
                    Difference::Reordered { .. } | Difference::Altered { .. } => {
                        left += 1;
                        right += 1;
                    }
                }
            }
            prop_assert_eq!(left, source.len() as u64);
            prop_assert_eq!(right, target.len() as u64);
            prop_assert_eq!(found.is_empty(), source == target);
        }

        /// How the two sides arrive changes nothing.
        #[test]
        fn the_cut_of_fetches_does_not_matter(
            source in prop::collection::vec(0_u64..30, 0..60),
            target in prop::collection::vec(0_u64..30, 0..60),
            one in 1_usize..20,
            other in 1_usize..20,
        ) {
            prop_assert_eq!(
                compare(&source, &target, SMALL, one),
                compare(&source, &target, SMALL, other)
            );
        }

        /// A single planted defect is found, once, and as what it is.
        #[test]
        fn one_defect_is_one_difference(length in 2_usize..50, place in 0_usize..50, kind in 0_usize..4) {
            let source: Vec<u64> = (100..100 + length as u64).collect();
            let place = place % length;
            let mut target = source.clone();
            match kind {
                0 => { target.remove(place); }
                1 => target.insert(place + 1, source[place]),
                2 => target[place] = 7,
                _ => target.insert(place, 7),
            }
            let found = compare(&source, &target, SMALL, 5).0;
            prop_assert_eq!(found.len(), 1);
            let named = match found[0] {
                Difference::Missing { .. } => 0,
                Difference::Duplicate { .. } => 1,
                Difference::Altered { .. } => 2,
                Difference::Foreign { .. } => 3,
                Difference::Reordered { .. } => 9,
            };
            prop_assert_eq!(named, kind);
        }
    }
}
