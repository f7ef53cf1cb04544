"""The judge of moving consumers finds what was skipped and what was read twice."""

from __future__ import annotations

from support.links.moving.judge import Count, Outcome, judge
from support.links.moving.moves import Move, Moves, Place

EAST = {b"a": 0, b"b": 2, b"c": 5, b"d": 6}
WEST = {b"a": 10, b"b": 11, b"c": 14, b"d": 15}


def test_only_the_right_offset_skips_none_and_repeats_none() -> None:
    """Between the last record that was read and the next one, all offsets are as good."""
    found = {start: judge(3, start, EAST, WEST) for start in range(10, 17)}
    assert found == {
        10: Outcome(0, 2),
        11: Outcome(0, 1),
        12: Outcome(0, 0),
        13: Outcome(0, 0),
        14: Outcome(0, 0),
        15: Outcome(1, 0),
        16: Outcome(2, 0),
    }


def test_a_record_of_the_other_side_was_not_read() -> None:
    """Where both sides write, what has not come over yet must not be skipped."""
    assert judge(9, 13, EAST, WEST | {b"local": 12}) == Outcome(1, 2)


def test_a_move_that_reads_something_else_is_found() -> None:
    """The consumer's own records are compared with the log, holes only where compaction may have made them."""
    places = Place("east", "t", 0), Place("west", "t", 0)

    def move(**options: object) -> Move:
        return Move("library", "k", "g", places[0], 3, places[1], **options)  # type: ignore[arg-type]

    moves = Moves(
        [
            move(start=14, saw={b"c": 14, b"d": 15}),
            move(start=14, saw={b"d": 15}),
            move(start=14, saw={b"x": 14}),
            move(start=11, announced=0),
            move(start=None),
        ]
    )

    def log(place: Place) -> dict[bytes, int]:
        return EAST if place.side == "east" else WEST

    counts, wrong = moves.judged(log, lambda _: None)

    count = counts["library", "k"]
    assert (count.consumers, count.places, count.unanswered, count.again, count.most, count.beyond) == (
        1, 5, 1, 1, 1, 1,
    )  # fmt: skip
    assert [line.split(" for ")[0] for line in wrong] == [
        "misread: it read 1 records of 2",
        "misread: it read what is not in the log",
        "library: Outcome(skipped=0, again=1)",
    ]
    assert len(moves.judged(log, lambda _: set(WEST))[1]) == 2
    assert Count.total([count, count]).again == 2


def test_what_compaction_took_before_the_mirror_came_was_not_skipped() -> None:
    """On the way back the original log knows more than the copy; what is still there counts."""
    places = Place("west", "t", 0), Place("east", "t", 0)
    moves = Moves([Move("library", "k", "g", places[0], 15, places[1], 6)])

    def log(place: Place) -> dict[bytes, int]:
        return EAST | {b"gone": 1, b"kept": 3} if place.side == "east" else WEST

    counts, _ = moves.judged(log, lambda _: {b"kept", b"d"})
    assert counts["library", "k"].skipped == 1
    counts, _ = moves.judged(log, lambda _: None)
    assert counts["library", "k"].skipped == 2
