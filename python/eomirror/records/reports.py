"""
Informative control records: restarts of lanes, comparisons, drills. Pure.

Nothing is decided from them, so `decode_reports` skips a record that it cannot read, and older releases ignore their
kinds.  Keys:

* ``{"kind":"restarts","lane"}`` -> `LaneRestarts`: attempts of a lane that ended early; the owner writes it with its
  claim.
* ``{"kind":"groups-left"}`` -> `GroupsLeft`: groups whose offsets on the target are not the link's; the owner writes it
  with its claim.
* ``{"kind":"verification","topic"}`` -> `Verification`: result of the last `eomirror verify` of a topic.
* ``{"kind":"tail"}`` -> `TailComparison`: result of the last comparison before a planned promotion that compared only
  the ends of the copies.  It replaces no `Verification`: what stands before these ends was not looked at.
* ``{"kind":"drill"}`` -> `DrillResult`: result of the last `eomirror drill --record`.

All but the first two come from a command that does not own the link, so a plain producer writes them, outside of
transactions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.records.json_fields import checked, text, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "DrillResult",
    "GroupsLeft",
    "LaneRestarts",
    "Reports",
    "TailComparison",
    "Verification",
    "decode_reports",
]

VERSION = 1

# every starting lane reads control, so the length of a text is limited
_MOST_CHARACTERS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRestarts:
    """
    Attempts of one lane that ended early, in one run.

    Attributes:
        lane: Number of the lane.
        count: Number of these attempts.
        endings: Number by kind of ending (`eomirror.lane.spec.Ending`).
        ending: Kind of the last one.
        reason: Reason of the last one, one line.
        run: Run of the mirror.
        timestamp: Time of the last one, ms since the epoch.
    """

    lane: int
    count: int
    endings: Mapping[str, int]
    ending: str
    reason: str
    run: str
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "restarts", "lane": self.lane})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self) | {"reason": self.reason[:_MOST_CHARACTERS]}
        del body["lane"]
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLeft:
    """
    Groups that a run leaves alone on the target, because consumers there have reached their offsets.

    Attributes:
        groups: The first ones by name, with the reason of each.
        count: Number of all.
        run: Run of the mirror.
        timestamp: Time of the record, ms since the epoch.
    """

    groups: Mapping[str, Any]
    count: int
    run: str
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "groups-left"})

    def value(self) -> bytes:
        """Value of the record."""
        groups = {
            name: reason[:_MOST_CHARACTERS]
            for name, reason in self.groups.items()
            if len(name) <= _MOST_CHARACTERS
        }
        return orjson.dumps({"v": VERSION, **asdict(self), "groups": groups})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """
    Result of the last comparison of one topic.

    Attributes:
        topic: Source topic.
        outcome: ``equal``, ``differs``, or ``not compared`` if the comparison was stopped without a difference.
        partitions: Number of compared partitions.
        offsets: Compared source offsets, all partitions.
        up_to: Partition number, as text -> source offset that it was compared up to.
        differences: Number of differences by kind; without zeros.
        problem: Reason that a partition could not be compared; empty if all could.
        from_offset: First source offset that was requested; 0 for all.
        since: Time that was requested, ms since the epoch; 0 for all.
        host: Host that compared.
        timestamp: Time of the result, ms since the epoch.
    """

    topic: str
    outcome: str
    partitions: int
    offsets: int
    up_to: Mapping[str, int]
    differences: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    from_offset: int = 0
    since: int = 0
    host: str = ""
    timestamp: int

    def key(self) -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "verification", "topic": self.topic})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self) | {"problem": self.problem[:_MOST_CHARACTERS]}
        del body["topic"]
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True, kw_only=True)
class TailComparison:
    """
    Result of the last comparison of the ends of all copies, before a planned promotion.

    Attributes:
        outcome: ``equal``, ``differs``, or ``not compared`` if the comparison was stopped without a difference.
        tail: Source offsets of each partition that were requested, before its position.
        topics: Number of topics.
        partitions: Number of their partitions.
        offsets: Compared source offsets, all partitions.
        command: Command that compared: ``promote``, ``cutover`` or ``failback``.
        problem: Partitions that differ, the first ones; empty for none.
        host: Host that compared.
        timestamp: Time of the result, ms since the epoch.
    """

    outcome: str
    tail: int
    topics: int
    partitions: int
    offsets: int
    command: str
    problem: str = ""
    host: str = ""
    timestamp: int

    @staticmethod
    def key() -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "tail"})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self) | {"problem": self.problem[:_MOST_CHARACTERS]}
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult:
    """
    Result of a drill.

    Attributes:
        passed: True if every comparison held.
        rpo_records: Records that the failover left behind; all were merged later.
        rto_ms: Time from the loss of the source to the promotion.
        host: Host that ran it.
        timestamp: Time of its end, ms since the epoch.
        stage: Stage that failed; empty if it passed, and in records of older releases.
        problem: Reason of the failure, without secrets; empty in the same cases.
    """

    passed: bool
    rpo_records: int
    rto_ms: int
    host: str
    timestamp: int
    stage: str = ""
    problem: str = ""

    @staticmethod
    def key() -> bytes:
        """Key of the record."""
        return orjson.dumps({"kind": "drill"})

    def value(self) -> bytes:
        """Value of the record."""
        body = asdict(self) | {"problem": self.problem[:_MOST_CHARACTERS]}
        return orjson.dumps({"v": VERSION, **body})


@dataclass(frozen=True, slots=True)
class Reports:
    """
    Informative records of one link.

    Attributes:
        restarts: By lane, in order; those of earlier runs stay until their lane restarts again.
        verifications: By topic, in order.
        drill: Last drill; None for none.
        tail: Last comparison of the ends of all copies; None for none.
        left: Groups that the last run left alone; None for none.
    """

    restarts: tuple[LaneRestarts, ...] = ()
    verifications: tuple[Verification, ...] = ()
    drill: DrillResult | None = None
    tail: TailComparison | None = None
    left: GroupsLeft | None = None


def decode_reports(records: Iterable[tuple[bytes | None, bytes | None]]) -> Reports:
    """
    Returns the informative records of a control topic.

    Args:
        records: Key and value of each control record, oldest first; other kinds, and records that are not readable or
            of a newer version, are skipped.
    """
    restarts: dict[int, LaneRestarts] = {}
    verifications: dict[str, Verification] = {}
    drill: DrillResult | None = None
    tail: TailComparison | None = None
    left: GroupsLeft | None = None
    for key, value in records:
        try:
            name, body = orjson.loads(key or b"{}"), orjson.loads(value or b"{}")
            kind = name.get("kind")
            if body.get("v") != VERSION:
                continue
            if kind == "restarts":
                lane = whole(name["lane"])
                restarts[lane] = checked(LaneRestarts(lane=lane, **_given(LaneRestarts, body)))
            elif kind == "verification":
                topic = text(name["topic"])
                verifications[topic] = checked(Verification(topic=topic, **_given(Verification, body)))
            elif kind == "groups-left":
                left = checked(GroupsLeft(**_given(GroupsLeft, body)))
            elif kind == "drill":
                drill = checked(DrillResult(**_given(DrillResult, body)))
            elif kind == "tail":
                tail = checked(TailComparison(**_given(TailComparison, body)))
        except (AttributeError, KeyError, TypeError, ValueError):
            continue
    return Reports(
        tuple(one for _, one in sorted(restarts.items())),
        tuple(one for _, one in sorted(verifications.items())),
        drill,
        tail,
        left,
    )


def _given(
    kind: type[LaneRestarts | GroupsLeft | Verification | DrillResult | TailComparison],
    body: Mapping[str, Any],
) -> dict[str, Any]:
    return {name: body[name] for name in kind.__slots__ if name in body}
