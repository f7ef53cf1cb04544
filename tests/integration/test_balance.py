"""Partitions that move between lanes which go on: the copies are the source, whatever moves when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config
from eomirror.driver import moves
from eomirror.driver.balance import Shift
from support.judges.audited import assert_audited
from support.traffic.records import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Mapping

    from eomirror.status.work import PartitionLoad
    from eomirror.types import SourcePartition
    from support.links.link import TestLink

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

_MOVES = 20
_LANES = 3


class Restless:
    """Moves some partitions from any lane to any other one every half second, whether that pays or not."""

    def __init__(self, rng: random.Random) -> None:
        self.needs: Mapping[SourcePartition, float] = {}
        self.made = 0
        self._rng = rng
        self._next = 0.0

    def due(self, now: float) -> bool:
        return now >= self._next and self.made < _MOVES

    def disturbed(self, now: float) -> None:
        raise AssertionError(f"lanes of a local master have slots ({now})")

    def look(
        self, loads: Mapping[SourcePartition, PartitionLoad], running: Collection[int], now: float
    ) -> Shift | None:
        self._next = now + 0.5
        if len(running) < _LANES:
            return None
        giver, getter = self._rng.sample(sorted(running), 2)
        mine = sorted(source for source, load in loads.items() if load.lane == giver)
        if len(mine) < 2:
            return None
        self.made += 1
        given = self._rng.sample(mine, self._rng.randrange(1, len(mine)))
        return Shift(giver, getter, tuple(given), 0.0, (0.0, 0.0))


@pytest.mark.link(lanes=_LANES, balance="bytes")
def test_partitions_that_move_again_and_again_are_mirrored_once_and_in_order(
    link: TestLink, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-1, EO-2: no lane starts an attempt for a move, and none is fenced."""
    restless = Restless(rng)
    monkeypatch.setattr(moves, "Balance", lambda: restless)
    link.create("a", "b", partitions=6)
    with link.running() as run:
        while restless.made < _MOVES:
            link.write("a", 300)
            link.write("b", 100)
            run.wait(lambda: run.error is None)
        run.wait(lambda: link.whole("a", "b"))
        shown: Any = wait_for(lambda: run._snapshot)
        (one,) = shown.links
        assert [lane.last_failure for lane in one.lanes] == [""] * _LANES
        assert one.generation == 1 + _MOVES, "each is published once"
        assert not run.stopped
    link.check("a", "b")
    assert_audited(load_config(link.path))
    # the next run keeps a layout that was balanced
    link.write("a", 100)
    link.catch_up()
    link.check("a", "b")
