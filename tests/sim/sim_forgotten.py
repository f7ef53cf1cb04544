"""
A move of the environment: the mirror is dead, a tool deletes its state topics, and a run begins that knows of nothing.

For the copies it is the same as a link under another name, or a renamed alias: they hold records, and no position
names them.  It must refuse them (`eomirror.link.start_rules`), or readers see records twice.  The tool comes when
the transactions of the mirror have ended, so that nothing of it is on its way any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_rules import STUCK, BrokenRuleError
from sim_state import assigned

from eomirror.link.start_rules import Copy, Held, filled, filled_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim_world import World

    from eomirror.types import SourcePartition

__all__ = ["NOT_LOOKED_INTO", "STATE_DELETED", "filled_copies", "forget", "refuse_filled"]

#: Switches off nothing: the state is deleted once in each schedule.
STATE_DELETED = "state deleted"

#: The same, and the mirror does not look into the copies.
NOT_LOOKED_INTO = "copies not looked into"


def forget(world: World) -> None:
    """Delete the state topics of a dead mirror, once, as soon as a copy shows records and no actor is in a step."""
    actors = [*world.owners, *world.attempts]
    if (
        world.mutation not in {STATE_DELETED, NOT_LOOKED_INTO}
        or world.forgotten
        or not any(log.visible for where, log in world.target.logs.items() if where[0] == "data")
        or any(actor.busy for actor in actors)
    ):
        return
    world.forgotten = True
    world.say(None, "the mirror is killed, and its state topics are deleted")
    for actor in actors:
        actor.dead = True
    world.owners, world.attempts = [], []
    world.network.clear()
    world.now += 2 * world.target.timeout
    world.target.expire(world.now)
    while unmarked := world.target.unmarked():
        world.target.write_marker(unmarked[0], 0)
    for where in [where for where in world.target.logs if where[0] != "data"]:
        del world.target.logs[where]
    world.decoded.clear()
    world.began.clear()
    world.fenced_generation = 0
    world.fenced_lanes.clear()
    world.oracle.forget()


def filled_copies(world: World, fresh: Sequence[SourcePartition]) -> list[Copy]:
    """Copies of partitions without a position that must not be begun."""
    if world.mutation == NOT_LOOKED_INTO:
        return []
    found = []
    for source in fresh:
        log = world.target.log(("data", source))
        held = Held.RECORDS if log.visible else Held.OPEN if log.cursor < len(log.entries) else Held.NOTHING
        copy = Copy(assigned(world, source), 0, len(log.entries), held)
        if filled(copy, link="l", guard=False):
            found.append(copy)
    return found


def refuse_filled(world: World, fresh: Sequence[SourcePartition]) -> None:
    """
    A first run into filled copies ends; so does every other one, until a person helps.

    Raises:
        NotReadyError: There are such copies.
        BrokenRuleError: Nothing was ever lost.
    """
    if found := filled_copies(world, fresh):
        if not world.forgotten:
            raise BrokenRuleError(STUCK, f"{found[0].item.source} is refused for nothing")
        world.refused_for_good = True
        raise filled_error("l", "l", found, first_run=True)
