"""An aggregate is compared without the records of other links, and with those of none."""

from __future__ import annotations

import pytest

from eomirror._native import PartitionComparison, encode_offset_map
from eomirror.errors import StateError
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range, Scope


class Message:
    """What a consumer hands out."""

    def __init__(self, offset: int, value: bytes) -> None:
        self._parts = {
            "topic": "t", "partition": 0, "offset": offset, "key": b"k", "value": value, "timestamp": (1, 1_000),
            "leader_epoch": 0, "headers": None, "error": None,
        }  # fmt: skip

    def __getattr__(self, name: str) -> object:
        return lambda: self._parts[name]


def chunk(*ranges: tuple[int, int, int]) -> bytes:
    """A chunk of another link's map."""
    return encode_offset_map("all", 0, ranges)


def feed(comparison: PartitionComparison, side: str, first: int, *values: bytes) -> bool:
    """Records from an offset on."""
    messages = [Message(first + place, value) for place, value in enumerate(values)]
    return comparison.feed(side, messages, first + len(values))


def differences(comparison: PartitionComparison) -> dict[str, int]:
    """Those that there are."""
    return {kind: count for kind, count in comparison.counts()["differences"].items() if count}


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([chunk((0, 1, 2), (2, 4, 1))], {}),
        # of two links; their order does not matter
        ([chunk((7, 4, 1)), chunk((0, 1, 2))], {}),
        # offset 4 is of no link
        ([chunk((0, 1, 2))], {"foreign": 1}),
        ([], {"foreign": 3}),
    ],
)
def test_records_that_another_map_names_are_left_out(others: list[bytes], expected: dict[str, int]) -> None:
    """The copy holds a, x, x, b, x; the source a and b."""
    comparison = PartitionComparison(("t", 0, 0, 2, 2), ("all", 0, 0, 5, 5), others=others)
    feed(comparison, "source", 0, b"a", b"b")
    assert feed(comparison, "target", 0, b"a", b"x", b"x", b"b", b"x")

    assert differences(comparison) == expected
    counts = comparison.counts()
    assert counts["matched"] == 2
    assert counts["target"]["left_out"] == 3 - sum(expected.values())


def test_a_followed_comparison_learns_of_later_records_of_others() -> None:
    """Each look brings the maps as they are by then."""
    comparison = PartitionComparison(("t", 0, 0, 1, 1), ("all", 0, 0, 2, 2), others=[chunk((0, 1, 1))])
    feed(comparison, "source", 0, b"a")
    assert feed(comparison, "target", 0, b"a", b"x")
    comparison.extend(2, 4, [], (0, 0), [chunk((0, 1, 2))])
    feed(comparison, "source", 1, b"b")
    assert feed(comparison, "target", 2, b"x", b"b")

    assert differences(comparison) == {}
    assert comparison.counts()["matched"] == 2


def test_copies_without_a_header_are_known_by_the_maps_of_both_directions() -> None:
    """
    Equal names both ways: the source holds a, then x that came from the target; the copy holds a and its own x.

    None of them has a header.  The link's map names its copy of a, the reverse link's map names x on the source.
    """
    guard = ("east-id", "west-id", ["east-id"])
    ends = ("t", 0, 0, 2, 2), ("t", 0, 0, 2, 2)
    unknown = PartitionComparison(*ends, guard=guard)
    known = PartitionComparison(*ends, guard=guard, own=[chunk((0, 0, 1))], returned=[chunk((1, 1, 1))])
    for comparison in (unknown, known):
        feed(comparison, "source", 0, b"a", b"x")
        assert feed(comparison, "target", 0, b"a", b"x")

    assert differences(unknown) == {"missing": 2}
    assert differences(known) == {}
    assert known.counts()["matched"] == 1
    known.extend(3, 3, [], (0, 0), [], [chunk((0, 0, 1), (2, 2, 1))], [chunk((1, 1, 1))])
    feed(known, "source", 2, b"b")
    assert feed(known, "target", 2, b"b")
    assert differences(known) == {}
    assert known.counts()["matched"] == 2


def test_a_chunk_that_is_none_is_refused() -> None:
    """Corrupt state is an error, not a difference."""
    with pytest.raises(StateError):
        PartitionComparison(("t", 0, 0, 1, 1), ("all", 0, 0, 2, 2), others=[b"\xff"])


def test_json_names_the_other_links() -> None:
    """The maps themselves are no output."""
    part = Range("t", 0, 0, 1, 1)
    one = Scope(
        source=part,
        target=part,
        others=(("b", chunk((0, 1, 1))), ("a", chunk((0, 2, 1)))),
        own=(chunk((0, 0, 1)),),
        returned=(("back", chunk((0, 1, 1))),),
    )

    (shown,) = LinkVerdict(link="l", plane="client", partitions=(PartitionVerdict(scope=one),)).as_dict()[
        "partitions"
    ]
    assert shown["scope"]["others"] == ["a", "b"]
    assert shown["scope"]["returned"] == ["back"]
    assert "own" not in shown["scope"]
