"""Which jumps of offsets are looked at, and when."""

from __future__ import annotations

from eomirror.plane.client.position_checks import OffsetGaps
from eomirror.types import SourcePartition

ONE, OTHER = SourcePartition("orders", 0), SourcePartition("orders", 1)


class Log:
    """A log with one hole, or of unknown content."""

    def __init__(self, hole: tuple[int, int] | None = None, *, compacted: bool = False) -> None:
        self.asked: list[tuple[int, int]] = []
        self._hole, self._compacted = hole, compacted

    def explain(
        self, _source: SourcePartition, start: int, end: int
    ) -> tuple[list[tuple[int, int]], bool] | None:
        self.asked.append((start, end))
        hole = self._hole
        within = hole is not None and start <= hole[0] and hole[1] <= end
        return ([hole] if hole is not None and within else []), self._compacted


def test_the_first_jump_of_a_partition_is_looked_at_before_the_commit() -> None:
    """EO-6: a topic without transactions has none but holes."""
    log = Log((10, 20))
    jumps = OffsetGaps(log.explain)
    jumps.begin(ONE)

    assert jumps.examine([(ONE, [])], 0.0) == {}
    assert jumps.examine([(ONE, [(10, 20)]), (OTHER, [(1, 2)])], 1.0) == {ONE: (((10, 20),), False)}
    assert log.asked == [(10, 20)]


def test_markers_cost_a_look_a_minute_and_the_largest_jumps_are_kept() -> None:
    """EO-6: the hole among many markers is looked at with the next turn."""
    log = Log((500, 600))
    jumps = OffsetGaps(log.explain)
    jumps.begin(ONE)
    assert jumps.examine([(ONE, [(5, 6)])], 0.0) == {}
    for number in range(20):
        assert jumps.examine([(ONE, [(100 + 2 * number, 101 + 2 * number)])], 1.0 + number) == {}
    assert jumps.examine([(ONE, [(500, 600)])], 59.0) == {}

    assert jumps.examine([(ONE, [])], 60.0) == {ONE: (((500, 600),), False)}
    assert len(log.asked) <= 9


def test_a_compacted_log_is_not_looked_at_again() -> None:
    """Holes mean nothing there."""
    log = Log(compacted=True)
    jumps = OffsetGaps(log.explain)
    jumps.begin(ONE)

    assert jumps.examine([(ONE, [(5, 6)])], 0.0) == {ONE: ((), True)}
    assert jumps.examine([(ONE, [(8, 9)])], 100.0) == {}
    assert log.asked == [(5, 6)]
