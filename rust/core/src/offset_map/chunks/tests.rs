use super::super::{Answer, OffsetMap, Range, Reason};
use proptest::prelude::*;

const ANYWHERE: std::ops::Range<i64> = 0..120;

fn range(source: i64, target: i64, count: i64) -> Range {
    Range {
        source,
        target,
        count,
    }
}

fn pairs(map: &OffsetMap) -> Vec<(i64, i64)> {
    map.ranges()
        .iter()
        .flat_map(|range| (0..range.count).map(|step| (range.source + step, range.target + step)))
        .collect()
}

/// Returns the end of the last range that begins before `end` on a side, capped at `end`; and the first range.
fn cuts(map: &OffsetMap, source: i64, target: i64) -> [Option<(i64, i64)>; 3] {
    let ranges = map.ranges();
    let last = |before: &dyn Fn(&Range) -> Option<i64>| {
        let found = ranges
            .iter()
            .rev()
            .find_map(|range| before(range).map(|left| (range, left)));
        found.map(|(range, left)| {
            let count = left.min(range.count);
            (range.source + count, range.target + count)
        })
    };
    let left = |end: i64, begin: i64| (begin < end).then(|| end - begin);
    [
        ranges.first().map(|range| (range.source, range.target)),
        last(&|range| left(source, range.source)),
        last(&|range| left(target, range.target)),
    ]
}

prop_compose! {
    fn chunk()(
        base in (0_i64..40, 0_i64..40),
        steps in proptest::collection::vec((0_i64..4, 0_i64..4, 1_i64..5), 1..5),
    ) -> OffsetMap {
        let (mut source, mut target) = base;
        let mut map = OffsetMap::default();
        for (source_gap, target_gap, count) in steps {
            source += source_gap;
            target += target_gap;
            map.push(range(source, target, count)).unwrap();
            source += count;
            target += count;
        }
        map
    }
}

prop_compose! {
    /// Successive transactions, as a lane writes them.
    fn history()(
        steps in proptest::collection::vec((0_i64..4, 1_i64..4, chunk()), 1..12),
    ) -> Vec<OffsetMap> {
        let (mut source, mut target) = (0, 0);
        steps
            .into_iter()
            .map(|(source_gap, target_gap, shape)| {
                let base = shape.ranges()[0];
                let moved: Vec<Range> = shape
                    .ranges()
                    .iter()
                    .map(|each| range(
                        each.source - base.source + source + source_gap,
                        each.target - base.target + target + target_gap,
                        each.count,
                    ))
                    .collect();
                let map = OffsetMap::from_ranges(&moved).unwrap();
                source = map.source_bounds().unwrap().1;
                target = map.target_bounds().unwrap().1 + 1;
                map
            })
            .collect()
    }
}

fn taken_in<'a>(chunks: impl IntoIterator<Item = &'a OffsetMap>) -> OffsetMap {
    let mut whole = OffsetMap::default();
    for each in chunks {
        whole.take_in(each).unwrap();
    }
    whole
}

proptest! {
    #[test]
    fn chunks_in_order_are_their_ranges_in_order(history in history()) {
        let all: Vec<Range> = history.iter().flat_map(|each| each.ranges().to_vec()).collect();
        prop_assert_eq!(taken_in(&history), OffsetMap::from_ranges(&all).unwrap());
    }

    /// Holds whatever the chunks override, and wherever the logs begin.
    #[test]
    fn what_decides_where_logs_were_cut_is_kept(
        chunks in proptest::collection::vec(chunk(), 1..12),
        source in ANYWHERE,
        target in ANYWHERE,
    ) {
        let whole = taken_in(&chunks);
        let mut small = OffsetMap::default();
        for chunk in &chunks {
            small.take_in(chunk).unwrap();
            small.keep_near(source, target, 64);
        }
        prop_assert_eq!(cuts(&small, source, target), cuts(&whole, source, target));
        small.keep_near(source, target, 1);
        prop_assert!(small.ranges().len() <= 3);
        prop_assert_eq!(cuts(&small, source, target), cuts(&whole, source, target));
    }

    /// Record by record: records that a later chunk contradicts are gone, all others stay.
    #[test]
    fn a_later_chunk_counts(chunks in proptest::collection::vec(chunk(), 1..8)) {
        let mut model: Vec<(i64, i64)> = Vec::new();
        for each in &chunks {
            let (source, source_end) = each.source_bounds().unwrap();
            let (target, target_last) = each.target_bounds().unwrap();
            model.retain(|(s, t)| {
                (*s < source && *t < target) || (*s >= source_end && *t > target_last)
            });
            model.extend(pairs(each));
            model.sort_unstable();
        }
        prop_assert_eq!(pairs(&taken_in(&chunks)), model);
    }

    #[test]
    fn a_chunk_that_is_taken_in_twice_changes_nothing(history in history(), again in any::<prop::sample::Index>()) {
        let whole = taken_in(&history);
        let part: Vec<Range> = again.get(&history).ranges().to_vec();
        let mut twice = whole.clone();
        twice.take_in(&OffsetMap::from_ranges(&part).unwrap()).unwrap();
        prop_assert_eq!(twice, whole);
    }

    /// The answer of the newest chunks splits the mirrored records as the whole map does, also after past offsets were
    /// mirrored again.
    #[test]
    fn what_the_newest_chunks_answer_holds_in_the_whole(
        chunks in proptest::collection::vec(chunk(), 1..8),
        from in any::<prop::sample::Index>(),
        offset in ANYWHERE,
    ) {
        let mirrored = pairs(&taken_in(&chunks));
        let part = taken_in(&chunks[from.index(chunks.len())..]);
        match part.part_to_target(offset) {
            Some(Answer::Exact(at)) => prop_assert!(mirrored.contains(&(offset, at))),
            Some(Answer::Next(at)) => {
                prop_assert!(mirrored.iter().all(|(s, t)| (*s < offset) == (*t < at)));
            }
            Some(Answer::Unknown(_)) => prop_assert!(false),
            None => {}
        }
        match part.part_to_source(offset) {
            Some(Answer::Exact(at)) => prop_assert!(mirrored.contains(&(at, offset))),
            Some(Answer::Next(at)) => {
                prop_assert!(mirrored.iter().all(|(s, t)| (*t < offset) == (*s < at)));
            }
            Some(Answer::Unknown(_)) => prop_assert!(false),
            None => {}
        }
    }

    /// With a position and a stable end, every offset from the first record on has an answer that splits the mirrored
    /// records the same way on both sides.
    #[test]
    fn answers_neither_skip_nor_repeat(history in history(), ahead in 0_i64..6, offset in ANYWHERE) {
        let whole = taken_in(&history);
        let mirrored = pairs(&whole);
        let (first, last) = (mirrored[0], *mirrored.last().unwrap());
        let (position, stable) = (last.0 + 1 + ahead, last.1 + 1 + ahead);
        match whole.answer_to_target(offset, position) {
            Answer::Exact(at) => prop_assert!(mirrored.contains(&(offset, at))),
            Answer::Next(at) => {
                prop_assert!(mirrored.iter().all(|(s, t)| *s != offset && (*s < offset) == (*t < at)));
            }
            Answer::Unknown(Reason::Before(known)) => prop_assert!(known == first.0 && offset < known),
            Answer::Unknown(reason) => {
                prop_assert_eq!(reason, Reason::Beyond(position));
                prop_assert!(offset > position);
            }
        }
        match whole.answer_to_source(offset, stable) {
            Answer::Exact(at) => prop_assert!(mirrored.contains(&(at, offset))),
            Answer::Next(at) => {
                prop_assert!(mirrored.iter().all(|(s, t)| *t != offset && (*t < offset) == (*s < at)));
            }
            Answer::Unknown(Reason::Before(known)) => prop_assert!(known == first.1 && offset < known),
            Answer::Unknown(reason) => {
                prop_assert_eq!(reason, Reason::Beyond(stable));
                prop_assert!(offset > stable);
            }
        }
    }
}

#[test]
fn an_older_record_is_next_in_a_part_and_exact_in_the_whole_map() {
    let older = OffsetMap::from_ranges(&[range(34, 7, 2)]).unwrap();
    let newest = OffsetMap::from_ranges(&[range(34, 0, 1)]).unwrap();

    assert_eq!(newest.part_to_target(35), Some(Answer::Next(1)));
    assert_eq!(
        taken_in([&older, &newest]).answer_to_target(35, 36),
        Answer::Exact(8)
    );
}

#[test]
fn an_empty_map_says_so() {
    let map = OffsetMap::default();

    assert_eq!(map.answer_to_target(0, 9), Answer::Unknown(Reason::Nothing));
    assert_eq!(map.answer_to_source(0, 9), Answer::Unknown(Reason::Nothing));
}
