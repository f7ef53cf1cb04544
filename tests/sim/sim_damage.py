"""
What the environment takes from the target: ends of copies, committed positions, and what retention deletes.

A copy is cut back under running lanes, as with a broker's disk that is restored or an election of a replica that was
not in sync.  Positions are cut back without a mirror, as with a topic that is restored alone; the offset map is not,
and retention may have deleted what stood behind them in the copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_kafka import VISIBLE

from eomirror.records.position import Position, decode_key, decode_position
from eomirror.recovery.resume import copy_cut_error, cut_copies

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sim_kafka import TargetLog
    from sim_world import World

    from eomirror.errors import DataLossError
    from eomirror.types import SourcePartition

__all__ = [
    "CUTS", "DAMAGED", "NOT_COMPARED", "NO_MAP", "ROLLED_BACK", "WRITER_NOT_ASKED", "SimCopies", "damage",
]  # fmt: skip

#: Worlds with such damage, and no safeguard off.
CUTS = "copies are cut"
ROLLED_BACK = "positions are rolled back"

#: Mutations in such worlds.
NOT_COMPARED = "first acknowledgement not compared"
WRITER_NOT_ASKED = "who wrote the last record not asked"
NO_MAP = "offset map not asked for deleted records"

_CUT = frozenset({CUTS, NOT_COMPARED, WRITER_NOT_ASKED})
_BACK = frozenset({ROLLED_BACK, NO_MAP})
DAMAGED = _CUT | _BACK

# of so many actions one does damage; no mirror survives that positions are rolled back
_SELDOM = (24, 50)
# records that are lost
_MOST = 6


def damage(world: World) -> None:
    """Sometimes something is taken away; only in worlds that are for it, whose draws are their own."""
    if world.calm or world.mutation not in DAMAGED:
        return
    seldom = _SELDOM[world.mutation in _BACK]
    if world.draw(seldom) != seldom - 1:
        return
    if world.mutation in _CUT:
        _cut(world)
    elif world.draw(2):
        _roll_back(world)
    else:
        _retention(world)


class SimCopies:
    """See `eomirror.lane.ports.CopyWatch`; on behalf of one attempt."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._positions: Mapping[SourcePartition, Position] = {}

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        self._positions = dict(positions)

    def take(self) -> list[DataLossError]:
        world = self._world
        if not world.calm and world.draw(8) != 7:
            return []
        ends = {
            (f"east.{source.topic}", source.partition): len(world.target.log(("data", source)).entries)
            for source in self._positions
        }
        cut = cut_copies(self._positions.values(), ends)
        return [copy_cut_error(self._positions[source], end) for source, end in cut.items()]


def _cut(world: World) -> None:
    """
    A copy loses its end, with records that were committed there.

    The markers of their transactions are written.  One that comes later may take the place of a single lost record, and
    with another marker behind it nothing shows that the record is gone.
    """
    oracle = world.oracle
    pending = {where for it in world.target.unmarked() for where in it.partitions}
    whole = [
        (source, last)
        for source, position in oracle.decided.items()
        if (last := position.target_offset) is not None
        and source not in oracle.cut
        and ("data", source) not in pending
        and last < len(world.target.log(("data", source)).entries)
    ]
    if not whole:
        return
    source, last = whole[world.draw(len(whole))]
    end = max(0, last - world.draw(_MOST))
    world.target.log(("data", source)).cut(end)
    oracle.cut[source] = f"{source}: its copy lost what stood from {end} on, up to {last} committed"
    world.say(None, "cut:", oracle.cut[source])


def _retention(world: World) -> None:
    """What readers have seen of a copy is deleted."""
    logs = [log for where, log in world.target.logs.items() if where[0] == "data"]
    if logs:
        log = logs[world.draw(len(logs))]
        log.start = max(log.start, log.cursor - world.draw(3))
        world.say(None, "retention deletes a copy up to", log.start)


def _roll_back(world: World) -> None:
    """All mirrors are dead, and a partition of the positions topic is as it was some records ago."""
    for actor in [*world.owners, *world.attempts]:
        actor.dead = True
    world._bury()
    world.network.clear()
    world.now += 1_000
    world.progress()
    while unmarked := world.target.unmarked():
        world.target.write_marker(unmarked[0], 0)
    name = "positions", world.draw(world.positions)
    log, before = world.target.log(name), _valid(world, {})
    many = 1 + world.draw(_MOST)
    if len(log.visible) <= many:
        return
    end = log.visible[-many][0]
    while end and log.entries[end - 1] is not None:
        end -= 1
    if {*log.transactions[:end]} & {*log.transactions[end:]} - {None}:
        # its marker would be lost, and it would be open again
        return
    after = _valid(world, {name: end})
    changed = [source for source, position in before.items() if after.get(source) != position]
    # before the first position of a lane no reader can tell what is ours in a copy (docs/adr/0012)
    if any(
        source not in after or after[source].epoch == 0 or after[source].target_offset is None
        for source in changed
    ):
        return
    log.cut(end)
    world.decoded.clear()
    for source in changed:
        world.oracle.rolled_back(source, after[source])
        copy = world.target.log(("data", source))
        copy.start = max(copy.start, (copy.start, copy.cursor, copy.cursor - 2)[world.draw(3)])
    world.say(None, "positions are rolled back:", *changed)


def _valid(world: World, ends: Mapping[tuple[str, int], int]) -> dict[SourcePartition, Position]:
    """The valid position of each partition (rule 3), with logs that end earlier."""
    found: dict[SourcePartition, Position] = {}
    for number in range(world.positions):
        name = "positions", number
        for offset, item in world.target.log(name).visible:
            source = decode_key(item[1], where="")
            if isinstance(source, int) or offset >= ends.get(name, offset + 1):
                continue
            position = decode_position(source, item[2], where="")
            if source not in found or position.generation >= found[source].generation:
                found[source] = position
    return found


def named_by_map(log: TargetLog, last: int) -> bool:
    """Whether the offset map names deleted records behind one, as it does for all that was committed."""
    return log.start > last + 1 and VISIBLE in log.status[last + 1 : log.start]
