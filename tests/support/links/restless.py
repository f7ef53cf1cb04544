"""
Moves partitions between lanes that go on, whether that pays or not (docs/adr/0035)::

    python -m support.links.restless SEED run CONFIG

is ``eomirror run CONFIG`` like that.
"""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from eomirror.driver import moves
from eomirror.driver.balance import Shift

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.status.work import PartitionLoad
    from eomirror.types import SourcePartition

__all__ = ["Restless"]

_SECONDS = 0.5


class Restless:
    """
    Moves some partitions from any lane to any other one, again and again, in place of `Balance`.

    Args:
        rng: Chooses.
        lanes: Number of lanes, all of which have to run.
        most: Number of moves.
    """

    def __init__(self, rng: random.Random, *, lanes: int, most: int = 1_000_000) -> None:
        self.needs: Mapping[SourcePartition, float] = {}
        self.made = 0
        self._rng = rng
        self._lanes = lanes
        self._most = most
        self._next = 0.0

    def due(self, now: float) -> bool:
        return now >= self._next and self.made < self._most

    def disturbed(self, now: float) -> None:
        raise AssertionError(f"lanes of a local master have slots ({now})")

    def look(
        self, loads: Mapping[SourcePartition, PartitionLoad], running: Collection[int], now: float
    ) -> Shift | None:
        self._next = now + _SECONDS
        if len(running) < self._lanes:
            return None
        giver, getter = self._rng.sample(sorted(running), 2)
        mine = sorted(source for source, load in loads.items() if load.lane == giver)
        if len(mine) < 2:
            return None
        self.made += 1
        given = self._rng.sample(mine, self._rng.randrange(1, len(mine)))
        return Shift(giver, getter, tuple(given), 0.0, (0.0, 0.0))


def _main() -> None:
    from eomirror.cli.app import main

    rng = random.Random(int(sys.argv.pop(1)))
    moves.Balance = lambda: Restless(rng, lanes=3)  # type: ignore[assignment,misc]
    main()


if __name__ == "__main__":
    _main()
