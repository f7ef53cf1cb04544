//! Compares the last record of every key, for compacted topics.
//!
//! Compaction removes a record once its key has a newer one, at different times on each side, so records cannot be
//! matched one by one. The last record of every key must be equal. A missing key is excused if compaction may have
//! removed it: a later record of the key is past the compared range, or the last one was a tombstone.
//!
//! Compaction continues while a side is read. The reader may read an older record of a key, and compaction may remove
//! the last one before it is read, because of a newer one past the compared range. So keys that differ are read once
//! more ([`LastByKey::again`]). If compaction is the cause, the older record is gone as well.
//!
//! Memory is limited by the number of keys. A larger topic is compared in shares: share `i` of `n` covers the keys
//! whose digest is `i` modulo `n`, and reads all records again.

use std::collections::hash_map;
use std::collections::{HashMap, HashSet};

use crate::verify::compare::{Difference, Side};
use crate::verify::log_digest::Entry;

#[derive(Debug, Default, Clone, Copy)]
struct Last {
    digest: u64,
    offset: i64,
    there: bool,
    tombstone: bool,
    /// A record of the key is past the compared range, or another producer wrote one.
    later: bool,
}

/// Tracks the last record of every key, on both sides.
#[derive(Debug)]
pub struct LastByKey {
    keys: HashMap<u64, [Last; 2]>,
    most: usize,
    share: (u64, u64),
    full: bool,
    /// Keys of the second reading; other keys are ignored.
    again: Option<HashSet<u64>>,
}

/// Result of [`LastByKey::finish`].
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of keys whose last records are equal.
    pub matched: u64,
    /// Differences, sorted by source offset, then target offset.
    pub differences: Vec<Difference>,
}

impl LastByKey {
    /// Returns a comparison of at most `most` keys, of share `share.0` of `share.1`.
    #[must_use]
    pub fn new(most: usize, share: (u64, u64)) -> Self {
        Self {
            keys: HashMap::new(),
            most,
            share: (share.0, share.1.max(1)),
            full: false,
            again: None,
        }
    }

    /// Returns true if the keys exceed the limit: the result would be wrong, so use more shares.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Adds a record; `compared` is false for one past the range.
    pub fn add(&mut self, side: Side, entry: &Entry, compared: bool) {
        if entry.key % self.share.1 != self.share.0 || self.full {
            return;
        }
        if self
            .again
            .as_ref()
            .is_some_and(|again| !again.contains(&entry.key))
        {
            return;
        }
        let count = self.keys.len();
        let sides = match self.keys.entry(entry.key) {
            hash_map::Entry::Occupied(found) => found.into_mut(),
            hash_map::Entry::Vacant(free) => {
                if count >= self.most {
                    self.full = true;
                    return;
                }
                free.insert(Default::default())
            }
        };
        let last = &mut sides[usize::from(side == Side::Target)];
        if compared && entry.ours {
            *last = Last {
                digest: entry.seen.digest,
                offset: entry.seen.offset,
                there: true,
                tombstone: entry.tombstone,
                later: false,
            };
        } else {
            last.later = true;
        }
    }

    /// Starts a second reading of both sides, which judges only the differing keys again.
    pub fn again(&mut self) {
        let differ = |(key, sides): (&u64, &[Last; 2])| difference(sides).map(|_| *key);
        let keys: HashSet<u64> = self.keys.iter().filter_map(differ).collect();
        for key in &keys {
            self.keys.insert(*key, Default::default());
        }
        self.again = Some(keys);
    }

    /// Returns the result, after both sides were added completely.
    #[must_use]
    pub fn finish(&self) -> Outcome {
        let mut outcome = Outcome::default();
        for sides in self.keys.values() {
            match difference(sides) {
                Some(difference) => outcome.differences.push(difference),
                None => outcome.matched += u64::from(sides[0].there && sides[1].there),
            }
        }
        outcome
            .differences
            .sort_by_key(|difference| match *difference {
                Difference::Missing { source } => (source, -1),
                Difference::Reordered { source, target }
                | Difference::Altered { source, target } => (source, target),
                Difference::Duplicate { target, .. } | Difference::Foreign { target } => {
                    (i64::MAX, target)
                }
            });
        outcome
    }
}

/// Returns the difference of a key's last records, unless compaction explains it.
fn difference([source, target]: &[Last; 2]) -> Option<Difference> {
    match (source.there, target.there) {
        // compaction removes the oldest record first: if an older one is present, so is the last one
        (true, true) if source.digest != target.digest => Some(Difference::Altered {
            source: source.offset,
            target: target.offset,
        }),
        (true, false) if !source.tombstone && !target.later => Some(Difference::Missing {
            source: source.offset,
        }),
        (false, true) if !target.tombstone && !source.later => Some(Difference::Foreign {
            target: target.offset,
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::LastByKey;
    use crate::verify::compare::{Difference, Seen, Side};
    use crate::verify::log_digest::Entry;

    /// Key, digest (0 for a tombstone), and whether the record is within the range.
    type Row = (u64, u64, bool);

    fn compare(source: &[Row], target: &[Row]) -> (u64, Vec<Difference>) {
        let mut state = LastByKey::new(100, (0, 1));
        read(&mut state, source, target);
        assert!(!state.is_full());
        let outcome = state.finish();
        (outcome.matched, outcome.differences)
    }

    fn read(state: &mut LastByKey, source: &[Row], target: &[Row]) {
        for (side, rows) in [(Side::Source, source), (Side::Target, target)] {
            for (offset, (key, digest, compared)) in rows.iter().enumerate() {
                let seen = Seen {
                    offset: i64::try_from(offset).unwrap(),
                    digest: *digest,
                };
                let entry = Entry {
                    seen,
                    key: *key,
                    tombstone: *digest == 0,
                    ours: true,
                };
                state.add(side, &entry, *compared);
            }
        }
    }

    #[test]
    fn a_side_that_compacted_has_the_same_state() {
        let source = [(1, 10, true), (2, 20, true), (1, 11, true)];
        assert_eq!(
            compare(&source, &[(2, 20, true), (1, 11, true)]),
            (2, vec![])
        );
    }

    #[test]
    fn what_compaction_may_have_removed_is_excused() {
        // the source has only the record past the range, or compaction has removed the tombstone
        assert_eq!(compare(&[(1, 12, false)], &[(1, 11, true)]).1, []);
        assert_eq!(compare(&[(1, 11, true)], &[(1, 12, false)]).1, []);
        assert_eq!(compare(&[], &[(1, 0, true)]).1, []);
        assert_eq!(compare(&[(1, 0, true)], &[]).1, []);
    }

    #[test]
    fn what_compaction_cannot_explain_is_a_difference() {
        let missing = Difference::Missing { source: 0 };
        assert_eq!(compare(&[(1, 10, true)], &[]).1, [missing]);
        let foreign = Difference::Foreign { target: 0 };
        assert_eq!(compare(&[], &[(1, 10, true)]).1, [foreign]);
        let altered = Difference::Altered {
            source: 1,
            target: 0,
        };
        let source = [(1, 10, true), (1, 11, true)];
        assert_eq!(compare(&source, &[(1, 10, true)]).1, [altered]);
        // a tombstone that never arrived
        let source = [(1, 10, true), (1, 0, true)];
        assert_eq!(compare(&source, &[(1, 10, true)]).1, [altered]);
    }

    #[test]
    fn what_differs_is_read_again_and_judged_by_that_alone() {
        let altered = Difference::Altered {
            source: 0,
            target: 2,
        };
        // offset 11 of key 1 was removed because of 12 before it was read; 10 was read before
        let source = [(1, 10, true), (2, 20, true), (1, 12, false)];
        let target = [(1, 10, true), (2, 20, true), (1, 11, true)];
        let mut state = LastByKey::new(100, (0, 1));
        read(&mut state, &source, &target);
        assert_eq!(state.finish().differences, [altered]);
        state.again();
        // the result for key 2 stays, whatever compaction does meanwhile
        read(&mut state, &[(1, 12, false)], &[(1, 11, true)]);
        assert_eq!(state.finish().differences, []);
        assert_eq!(state.finish().matched, 1);
        // a modified copy differs again
        let mut state = LastByKey::new(100, (0, 1));
        for _ in 0..3 {
            read(&mut state, &source, &target);
            assert_eq!(state.finish().differences, [altered]);
            assert_eq!(state.finish().matched, 1);
            state.again();
        }
    }

    #[test]
    fn too_many_keys_are_said_and_shares_cover_all() {
        let entry = |key| Entry {
            seen: Seen {
                offset: 0,
                digest: key,
            },
            key,
            tombstone: false,
            ours: true,
        };
        let mut matched = 0;
        for share in 0..4 {
            let mut state = LastByKey::new(5, (share, 4));
            for key in 0..20 {
                state.add(Side::Source, &entry(key), true);
                state.add(Side::Target, &entry(key), true);
            }
            assert!(!state.is_full());
            matched += state.finish().matched;
        }
        assert_eq!(matched, 20);
        let mut state = LastByKey::new(5, (0, 1));
        for key in 0..6 {
            state.add(Side::Source, &entry(key), true);
        }
        assert!(state.is_full());
    }
}
