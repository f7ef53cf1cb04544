"""State topics and topics of both sides, as `LaneRunner` and owner read them from the simulated clusters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from sim_kafka import META

from eomirror.errors import ClusterError
from eomirror.lane.poison_records import Limits
from eomirror.lane.spec import AssignedPartition, LaneSpec
from eomirror.link.valid_positions import valid_positions
from eomirror.records.control import ControlView, Generation, decode_control
from eomirror.records.names import StateTopics
from eomirror.recovery.resume import SourceFacts, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sim_world import Actor, World

    from eomirror.plane.protocol import MetadataRecord
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

CONTROL = ("control", 0)
_READ_WAITS = 80


class SimRecord(NamedTuple):
    """A committed record of a state topic."""

    partition: int
    key: bytes
    value: bytes
    where: str


def assigned(world: World, source: SourcePartition, generation: int = 0) -> AssignedPartition:
    """A source partition as the driver sees it now; and the generation that moved it to its lane."""
    return AssignedPartition(
        source, world.topic_ids[source.topic], f"east.{source.topic}", f"id-east.{source.topic}", generation
    )


def meta(records: Sequence[MetadataRecord], generation: int) -> dict[Any, list[Any]]:
    """State records by simulated partition; those of the offset map are left out."""
    found: dict[Any, list[Any]] = {}
    for record in records:
        kind = record.topic.rpartition(".")[2]
        if kind != "offset-map":
            found.setdefault((kind, record.partition), []).append(
                (META, record.key, record.value, generation)
            )
    return found


class SimState:
    """Reads the state topics to their ends (rule 3), on behalf of one actor."""

    def __init__(self, world: World, actor: Actor, spec: LaneSpec | None = None) -> None:
        self._world = world
        self._actor = actor
        self._spec = spec
        self.before_fencing: Mapping[SourcePartition, Position] | None = None

    def read(self, kind: str, *, wait_for_open: bool = True) -> Any:
        """Read to the end, then decode as the product does; what was decoded before is not decoded again."""
        world = self._world
        world.pause(self._actor)
        world.trouble()
        names = (
            [CONTROL] if kind == "control" else [("positions", number) for number in range(world.positions)]
        )
        if wait_for_open:
            for name in names:
                log = world.target.log(name)
                end = len(log.entries)
                for _ in range(_READ_WAITS):
                    if log.cursor >= end:
                        break
                    world.wait(self._actor)
                else:
                    raise ClusterError(f"could not read {kind} to the end in time")
        logs = [(name[1], world.target.log(name).visible) for name in names]
        size = sum(len(visible) for _, visible in logs)
        known = world.decoded.get(kind)
        if known is None or known[0] != size:
            records = [
                SimRecord(number, item[1], item[2], f"{kind}-{number}@{offset}")
                for number, visible in logs
                for offset, item in visible
            ]
            known = world.decoded[kind] = (size, _decode(kind, records))
        return known[1]

    def read_control(self) -> ControlView:
        world, spec = self._world, self._spec
        if world.mutation == "control not read" and spec is not None:
            # what the driver told it is all that this attempt believes
            return ControlView(
                Generation(
                    generation=spec.generation, revision=0, run=spec.run, highest_lane=0,
                    assignment=None, timestamp=0,  # type: ignore[arg-type]
                )
            )  # fmt: skip
        view: ControlView = self.read("control")
        return view

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        if self.before_fencing is not None:
            return self.before_fencing
        found: Mapping[SourcePartition, Position] = self.read(
            "positions", wait_for_open=self._world.mutation != "positions to the stable offset"
        )
        return found

    def look_before_fencing(self) -> None:
        """The mutation that rule 2 forbids."""
        self.before_fencing = self.read("positions")

    def state_topics(self) -> StateTopics:
        return StateTopics(
            "eomirror.l.positions",
            self._world.positions,
            "eomirror.l.offset-map",
            1,
            "eomirror.l.dead-letter",
        )


def _decode(kind: str, records: list[SimRecord]) -> Any:
    if kind == "control":
        return decode_control([(item.key, item.value, item.where) for item in records])
    return valid_positions(records)  # type: ignore[arg-type]


class SimTopics:
    """Topics of both clusters as they are at the moment of asking."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    def facts(self, positions: Sequence[Position]) -> dict[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        world = self._world
        world.pause(self._actor)
        world.trouble()
        found = {}
        for position in positions:
            log = world.source[position.source]
            found[position.source] = (
                SourceFacts(log.topic_id, log.start, log.end),
                TargetFacts(
                    position.target_topic_id, len(world.target.log(("data", position.source)).entries)
                ),
            )
        return found

    def request_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> Any:
        world = self._world
        answer = ({topic: world.topic_ids[topic] for topic in source_topics},
                  {topic: f"id-{topic}" for topic in target_topics})  # fmt: skip
        return SimpleNamespace(result=lambda: answer)

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        del source_topic, target_topic
        self._world.trouble()
        source, target = self._world.limits
        return Limits({"max.message.bytes": str(source)}, {"max.message.bytes": str(target)})

    def raise_limit(self, target_topic: str, size: int) -> None:
        self._world.trouble()
        self._world.say(self._actor, "raises the limit of", target_topic, "to", size)
        self._world.limits = (self._world.limits[0], size)
