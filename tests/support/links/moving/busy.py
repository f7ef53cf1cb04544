"""
Trials of groups that commit all the time, as consumers do that commit every batch, until they and the mirror are gone.

Such a group has moved on whenever the mirror has dealt with what it said last, so what the target knows of it is always
a little old: a consumer that goes on there may read again what it had read since, and must skip nothing.  Once it has
stopped, and the mirror is back, it stands exactly where it was.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from support.links.moving.flows import PARTITIONS, Flow
from support.links.moving.moves import Move, Place
from support.links.moving.ours import CONSUMERS, OurTrials
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from support.links.moving.standing import Standing

__all__ = ["AT_ONCE", "BACK", "JAVA", "BusyTrials"]

AT_ONCE = "synced groups, at once: commits all the time"
BACK = "synced groups, mirror back: has stopped"
JAVA = "java, at once: commits all the time"

_PATIENCE_SECONDS = 120.0
# how far a consumer is behind the end, in offsets, and how long it works on a batch
_BEHIND = 12
_PAUSE_SECONDS = 0.15


class _Committing(WorkerThread):
    """Groups of one cluster that read on and commit, a few times a second each, until they are stopped."""

    def __init__(self, standing: Standing, groups: Mapping[str, str], rng: random.Random) -> None:
        super().__init__("commit")
        self._standing, self._groups, self._rng = standing, dict(groups), rng
        self._offsets: dict[str, dict[tuple[str, int], int]] = {}

    def stop(self) -> dict[str, dict[tuple[str, int], int]]:
        """Where each group has come to."""
        self.finish(2 * _PATIENCE_SECONDS)
        return self._offsets

    def work(self) -> None:
        """Commit until told to stop."""
        while not self.asked.wait(self._rng.uniform(0, 2 * _PAUSE_SECONDS)):
            self._commit()

    def _commit(self) -> None:
        moved = {}
        ends = {
            topic: self._standing.stable_ends(topic, range(PARTITIONS))
            for topic in set(self._groups.values())
        }
        for group, topic in self._groups.items():
            before = self._offsets.get(group, {})
            moved[group] = {
                (topic, partition): max(
                    before.get((topic, partition), 0), end - self._rng.randrange(_BEHIND), 0
                )
                for partition, end in ends[topic].items()
            }
        self._standing.stand_all(moved)
        self._offsets |= moved


class BusyTrials(OurTrials):
    """Two one-way links that move groups, and consumers that commit until they and the mirror are killed."""

    def _made_flows(self) -> list[Flow]:
        return [flow for flow in super()._made_flows() if flow.written != "both"]

    def _made_links(self) -> list[dict[str, Any]]:
        return [
            {**self._made_link(f"{self._tag}-{naming}", "east", naming, words), "sync_group_offsets": True}
            for naming, words in (("prefix", "pd|pc"), ("identity", "id|ic"))
        ]

    def _trials(self, rounds: int, back: int, on_round: Callable[[str], None]) -> None:
        del back
        self._settle()
        for number in range(rounds):
            on_round(f"{self._tag}: move {number + 1} of {rounds}, {self._run.kills} kills")
            self._move(number)
        for application in self._applications:
            application.finish()
        self._settle()

    def _move(self, number: int) -> None:
        flows = {
            f"{self._tag}-busy-{number}-{index}-{one}": flow
            for index, flow in enumerate(self._flows)
            for one in range(CONSUMERS)
        }
        committing = _Committing(
            self._standing["east"], {group: flow.topic for group, flow in flows.items()}, self._rng
        )
        committing.start()
        time.sleep(self._rng.uniform(3, 6))
        self._strike()
        time.sleep(self._rng.uniform(0, 0.5))
        stood = {
            (group, *where): (flows[group], offset)
            for group, offsets in committing.stop().items()
            for where, offset in offsets.items()
        }
        pattern = f"{self._tag}-busy-{number}-.*"
        self._moved(AT_ONCE, stood, self._synced(flows))
        if self._java is not None:
            self._moved(JAVA, stood, self._java.translate(self._sides["west"], "east", pattern))
        rows = self._answers("east", pattern, {where[1:] for where in stood})
        self._enter("east", stood, rows)
        self._start()
        expected: dict[str, dict[tuple[str, int], int]] = {}
        for where, row in rows.items():
            assert row.to_offset is not None, row
            expected.setdefault(where[0], {})[row.to_topic, row.to_partition] = row.to_offset
        self._moved(BACK, stood, self._await_synced(flows, expected))

    def _await_synced(
        self, flows: Mapping[str, Flow], expected: Mapping[str, Mapping[tuple[str, int], int]]
    ) -> dict[str, dict[tuple[str, int], int]]:
        """Where the mirror has put the groups, once that is where the library says; markers in between do not count."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            found = self._synced(flows)
            other = {
                (group, *where): (found[group].get(where), offset)
                for group, offsets in expected.items()
                for where, offset in offsets.items()
                if not self._is_same(where, found[group].get(where), offset)
            }
            if not other:
                return found
            self._mirror.check()
            assert time.monotonic() < deadline, (other, self._mirror.tree.last_lines())
            time.sleep(0.3)

    def _is_same(self, where: tuple[str, int], found: int | None, told: int) -> bool:
        """Whether a consumer reads the same from both offsets on."""
        if found is None:
            return False
        between = range(min(found, told), max(found, told))
        return not any(offset in between for offset in self._log(Place("west", *where)).values())

    def _synced(self, flows: Mapping[str, Flow]) -> dict[str, dict[tuple[str, int], int]]:
        """Where the mirror has put the groups on the target."""
        return {
            group: self._standing["west"].standing(group, _places(flow.copy)) for group, flow in flows.items()
        }

    def _moved(
        self,
        by: str,
        stood: Mapping[tuple[str, str, int], tuple[Flow, int]],
        told: Mapping[str, Mapping[tuple[str, int], int]],
    ) -> None:
        for (group, topic, partition), (flow, offset) in stood.items():
            to = Place("west", flow.copy, partition)
            start = told.get(group, {}).get((to.topic, to.partition))
            origin = Place("east", topic, partition)
            self._moves.made.append(Move(by, flow.kind, group, origin, offset, to, start))


def _places(topic: str) -> Sequence[tuple[str, int]]:
    return [(topic, partition) for partition in range(PARTITIONS)]
