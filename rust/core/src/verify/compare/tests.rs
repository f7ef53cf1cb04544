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

/// Feeds both sides in pieces of these sizes, as fetches return them.
fn compare(source: &[u64], target: &[u64], limits: Limits, piece: usize) -> (Vec<Difference>, u64) {
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
    // read but not judged: a comparison that resumes there reads them again
    assert_eq!(comparison.waiting(Side::Target), 4);
    comparison.end(Side::Target);
    assert_eq!(comparison.step().len(), 1);
    assert_eq!(comparison.waiting(Side::Target), 0);
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
    /// Every record of both sides is in one match or in one difference, however fetches are split.
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

    /// The order in which the two sides arrive changes nothing.
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

    /// A single planted defect is reported once, under its name.
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
