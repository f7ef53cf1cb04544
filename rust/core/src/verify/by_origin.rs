//! Compares a source partition with its copies in several target partitions, where records are placed by key.
//!
//! The header [`crate::origin`] of a copy names the source offset of its original. The copies are read first, then the
//! source: every original must have one copy with the same content, and the copies in a target partition must be in the
//! order of their originals. Copies of other partitions, clusters and links are left out, and so are records without
//! the header.
//!
//! Memory is limited by the number of copies. A larger partition is compared in shares: share `i` of `n` covers the
//! source offsets that are `i` modulo `n`, and reads all records again.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::placement::place;

/// Settings of a comparison.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Alias of the source cluster, topic and partition, as the header begins: `ALIAS/TOPIC/PARTITION/`.
    pub prefix: String,
    /// Compared source offsets.
    pub source: Range<i64>,
    /// Source partition.
    pub partition: i32,
    /// Number of target partitions.
    pub count: i32,
    /// Target partitions whose log does not begin at 0: earlier copies were deleted.
    pub shortened: HashSet<i32>,
    /// False if the link did not mirror the partition from its beginning: originals before the first copy are left
    /// out.
    pub from_start: bool,
    /// Maximum number of copies in memory.
    pub most: usize,
    /// Share and number of shares.
    pub share: (i64, i64),
}

/// Kind of a difference, as in [`crate::verify::compare::Difference`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An original without a copy.
    Missing,
    /// A second copy of an original.
    Duplicate,
    /// A copy behind the copy of a later original.
    Reordered,
    /// A copy with other content.
    Altered,
    /// A copy whose original does not exist, or is not mirrored yet.
    Foreign,
}

/// A difference, with the places of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Difference {
    /// Its kind.
    pub kind: Kind,
    /// Source offset.
    pub source: Option<i64>,
    /// Target partition and offset.
    pub target: Option<(i32, i64)>,
}

#[derive(Debug)]
struct Copy {
    digest: u64,
    at: (i32, i64),
    reordered: bool,
    compared: bool,
}

/// Compares originals with copies.
#[derive(Debug)]
pub struct ByOrigin {
    setup: Setup,
    copies: HashMap<i64, Copy>,
    /// By target partition: source offsets of the first and the last original that has a copy there.
    span: HashMap<i32, (i64, i64)>,
    full: bool,
    matched: u64,
    left_out: (u64, u64),
    differences: Vec<Difference>,
}

impl ByOrigin {
    /// Returns a comparison without records.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            copies: HashMap::new(),
            span: HashMap::new(),
            full: false,
            matched: 0,
            left_out: (0, 0),
            differences: Vec::new(),
        }
    }

    /// Returns true if there are too many copies for one share; the result would be wrong.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Returns the number of originals with an equal copy, so far.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.matched
    }

    /// Returns the numbers of source and target records that are not compared, so far.
    #[must_use]
    pub fn left_out(&self) -> (u64, u64) {
        self.left_out
    }

    /// Returns the differences since the last call.
    pub fn take(&mut self) -> Vec<Difference> {
        std::mem::take(&mut self.differences)
    }

    /// Adds a record of the target; all records of a target partition in order, before any original.
    ///
    /// `origin` is the value of its last header [`crate::origin`], if there is one.
    pub fn copy(&mut self, at: (i32, i64), digest: u64, origin: Option<&[u8]>) {
        let Some(rest) = origin.and_then(|value| value.strip_prefix(self.setup.prefix.as_bytes()))
        else {
            self.left_out.1 += 1;
            return;
        };
        let offset = std::str::from_utf8(rest)
            .ok()
            .and_then(|text| text.parse::<i64>().ok());
        let Some(offset) = offset.filter(|offset| *offset < self.setup.source.end) else {
            self.found(Kind::Foreign, None, Some(at), offset.unwrap_or(0));
            return;
        };
        let span = self.span.entry(at.0).or_insert((offset, offset));
        let reordered = offset < span.1;
        *span = (span.0.min(offset), span.1.max(offset));
        if offset < self.setup.source.start {
            self.left_out.1 += 1;
            return;
        }
        if !self.is_mine(offset) {
            return;
        }
        if self.copies.contains_key(&offset) {
            self.found(Kind::Duplicate, Some(offset), Some(at), offset);
            return;
        }
        if self.copies.len() >= self.setup.most {
            self.full = true;
            return;
        }
        let copy = Copy {
            digest,
            at,
            reordered,
            compared: false,
        };
        self.copies.insert(offset, copy);
    }

    /// Adds a record of the source.
    pub fn original(&mut self, offset: i64, digest: u64, key: Option<&[u8]>) {
        if !self.is_mine(offset) {
            return;
        }
        let Some(copy) = self.copies.get_mut(&offset) else {
            if self.is_excused(offset, key) {
                self.left_out.0 += 1;
            } else {
                self.found(Kind::Missing, Some(offset), None, offset);
            }
            return;
        };
        copy.compared = true;
        let (at, reordered) = (copy.at, copy.reordered);
        if copy.digest != digest {
            self.found(Kind::Altered, Some(offset), Some(at), offset);
        } else if reordered {
            self.found(Kind::Reordered, Some(offset), Some(at), offset);
        } else {
            self.matched += 1;
        }
    }

    /// Adds a record of the source that the link drops. A copy of it is foreign.
    pub fn dropped(&mut self, offset: i64) {
        if self.is_mine(offset) && !self.copies.contains_key(&offset) {
            self.left_out.0 += 1;
        }
    }

    /// Ends the comparison, after all records of both sides.
    pub fn finish(&mut self) {
        let mut left: Vec<(i32, i64)> = self
            .copies
            .values()
            .filter(|copy| !copy.compared)
            .map(|copy| copy.at)
            .collect();
        left.sort_unstable();
        for at in left {
            self.differences.push(Difference {
                kind: Kind::Foreign,
                source: None,
                target: Some(at),
            });
        }
    }

    fn is_mine(&self, offset: i64) -> bool {
        offset % self.setup.share.1 == self.setup.share.0
    }

    fn found(&mut self, kind: Kind, source: Option<i64>, target: Option<(i32, i64)>, offset: i64) {
        if self.is_mine(offset) {
            self.differences.push(Difference {
                kind,
                source,
                target,
            });
        }
    }

    /// Returns true if the copy of a record may have been deleted by retention, or the record was never mirrored.
    fn is_excused(&self, offset: i64, key: Option<&[u8]>) -> bool {
        let before = |first: Option<i64>| first.is_none_or(|first| offset < first);
        if !self.setup.from_start && before(self.span.values().map(|span| span.0).min()) {
            return true;
        }
        let copy = place(key, self.setup.partition, self.setup.count);
        self.setup.shortened.contains(&copy) && before(self.span.get(&copy).map(|span| span.0))
    }
}

#[cfg(test)]
mod tests {
    use super::{ByOrigin, Difference, Kind, Setup};
    use std::collections::HashSet;

    /// Kind, source offset, target partition and offset.
    type Found = (Kind, Option<i64>, Option<(i32, i64)>);

    /// Of 3 partitions, "a" goes to 1 and "b" to 2.
    fn setup() -> Setup {
        Setup {
            prefix: "shop/orders/4/".to_owned(),
            source: 10..20,
            partition: 4,
            count: 3,
            shortened: HashSet::new(),
            from_start: true,
            most: 100,
            share: (0, 1),
        }
    }

    /// Copies (target partition, target offset, digest, origin), then originals (offset, digest, key).
    fn compare(
        setup: Setup,
        copies: &[(i32, i64, u64, &str)],
        originals: &[(i64, u64, &str)],
    ) -> (u64, Vec<Found>) {
        let mut comparison = ByOrigin::new(setup);
        for (partition, offset, digest, origin) in copies {
            comparison.copy((*partition, *offset), *digest, Some(origin.as_bytes()));
        }
        for (offset, digest, key) in originals {
            comparison.original(*offset, *digest, Some(key.as_bytes()));
        }
        comparison.finish();
        assert!(!comparison.is_full());
        let told = |each: Difference| (each.kind, each.source, each.target);
        (
            comparison.matched(),
            comparison.take().into_iter().map(told).collect(),
        )
    }

    #[test]
    fn each_original_has_one_equal_copy_in_order() {
        let copies = [
            (1, 70, 5, "shop/orders/4/10"),
            (1, 71, 6, "shop/orders/4/12"),
            (1, 72, 9, "other/orders/4/11"),
            (2, 30, 7, "shop/orders/4/11"),
            (2, 31, 7, "shop/orders/40/11"),
        ];
        let originals = [(10, 5, "a"), (11, 7, "b"), (12, 6, "a")];
        assert_eq!(compare(setup(), &copies, &originals), (3, vec![]));
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let copies = [
            (1, 70, 5, "shop/orders/4/14"),
            (1, 71, 6, "shop/orders/4/12"),
            (1, 72, 6, "shop/orders/4/x"),
            (2, 30, 8, "shop/orders/4/11"),
            (2, 31, 5, "shop/orders/4/14"),
            (2, 32, 5, "shop/orders/4/20"),
            (2, 33, 5, "shop/orders/4/19"),
            (2, 34, 5, "shop/orders/4/9"),
        ];
        let originals = [(10, 5, "a"), (11, 7, "b"), (12, 6, "a"), (14, 5, "a")];
        let (matched, found) = compare(setup(), &copies, &originals);
        assert_eq!(matched, 1);
        assert_eq!(
            found,
            [
                (Kind::Foreign, None, Some((1, 72))),
                (Kind::Duplicate, Some(14), Some((2, 31))),
                (Kind::Foreign, None, Some((2, 32))),
                (Kind::Missing, Some(10), None),
                (Kind::Altered, Some(11), Some((2, 30))),
                (Kind::Reordered, Some(12), Some((1, 71))),
                (Kind::Foreign, None, Some((2, 33))),
            ]
        );
    }

    #[test]
    fn copies_that_retention_deleted_are_excused() {
        let shortened = Setup {
            shortened: HashSet::from([1]),
            ..setup()
        };
        let copies = [(1, 70, 5, "shop/orders/4/13")];
        let originals = [(11, 5, "a"), (12, 6, "b"), (13, 5, "a"), (14, 5, "a")];
        let (matched, found) = compare(shortened, &copies, &originals);
        assert_eq!(matched, 1);
        let missing = |offset| (Kind::Missing, Some(offset), None);
        assert_eq!(found, [missing(12), missing(14)]);
    }

    #[test]
    fn originals_before_the_first_copy_of_a_late_start_are_excused() {
        let late = Setup {
            from_start: false,
            ..setup()
        };
        let copies = [(1, 70, 5, "shop/orders/4/13")];
        let originals = [(11, 5, "a"), (13, 5, "a"), (14, 5, "b")];
        let (matched, found) = compare(late, &copies, &originals);
        assert_eq!((matched, found), (1, vec![(Kind::Missing, Some(14), None)]));
    }

    #[test]
    fn shares_give_the_sum_of_the_whole() {
        let copies = [
            (1, 70, 5, "shop/orders/4/14"),
            (1, 71, 6, "shop/orders/4/12"),
            (1, 72, 6, "shop/orders/4/12"),
        ];
        let originals = [(12, 6, "a"), (13, 6, "a"), (14, 5, "a")];
        let parts = [0, 1].map(|share| {
            let setup = Setup {
                share: (share, 2),
                ..setup()
            };
            compare(setup, &copies, &originals)
        });
        assert_eq!(parts[0].0 + parts[1].0, 1);
        let kinds = |part: usize| parts[part].1.iter().map(|each| each.0).collect::<Vec<_>>();
        assert_eq!(kinds(0), [Kind::Duplicate, Kind::Reordered]);
        assert_eq!(kinds(1), [Kind::Missing]);
    }

    #[test]
    fn too_many_copies_are_told() {
        let mut comparison = ByOrigin::new(Setup { most: 1, ..setup() });
        comparison.copy((1, 70), 5, Some(b"shop/orders/4/13"));
        comparison.copy((1, 71), 5, Some(b"shop/orders/4/14"));
        assert!(comparison.is_full());
    }
}
