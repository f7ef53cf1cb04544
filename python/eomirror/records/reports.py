"""
Informative control records: restarts of lanes, comparisons, drills, processes that stand by. Pure.

Nothing is decided from them, so `decode_reports` skips a record that it cannot read, and older releases ignore their
kinds.  Keys:

* ``{"kind":"restarts","lane"}`` -> `LaneRestarts`: attempts of a lane that ended early; the owner writes it with its
  claim.
* ``{"kind":"groups-left"}`` -> `GroupsLeft`: groups whose offsets on the target are not the link's; the owner writes it
  with its claim.
* ``{"kind":"refused-configuration"}`` -> `RefusedConfiguration`: the changed file that the mirror does not take; the
  owner writes it with its claim, and deletes it when a file is in force again.
* ``{"kind":"schemas"}`` -> `SchemasMirrored`: state of the mirror of schema registries; the owner writes it with its
  claim.
* ``{"kind":"verification","topic"}`` -> `Verification`: result of the last `eomirror verify` of a topic.
* ``{"kind":"tail"}`` -> `TailComparison`: result of the last comparison before a planned promotion that compared only
  the ends of the copies.  It replaces no `Verification`: what stands before these ends was not looked at.
* ``{"kind":"drill"}`` -> `DrillResult`: result of the last `eomirror drill --record`.
* ``{"kind":"standby","run"}`` -> `StandbyProcess`: a process that stands by for the link; it deletes its record when it
  ends, and the owner those that are not renewed any more.

All but the first three come from a process that does not own the link, so a plain producer writes them, outside of
transactions.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from eomirror.records.control_record import (
    ControlEntry,
    ControlRecord,
    RecordError,
    RecordsByClass,
    SingleRecord,
    control_record,
)
from eomirror.records.json_fields import JSON_TYPES, MOST_CHARACTERS, JsonType
from eomirror.records.kept_entries import OwnEntry, TargetComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.records.json_fields import Excerpt, Whole

__all__ = [
    "MISSED_RENEWALS",
    "DrillResult",
    "GroupsLeft",
    "LaneRestarts",
    "RefusedConfiguration",
    "Reports",
    "SchemasMirrored",
    "StandbyProcess",
    "TailComparison",
    "Verification",
    "decode_reports",
]


#: Renewals that a process that stands by may miss until it counts as gone.
MISSED_RENEWALS = 3


def _excerpts(groups: Mapping[str, str]) -> dict[str, str]:
    return {name: reason[:MOST_CHARACTERS] for name, reason in groups.items() if len(name) <= MOST_CHARACTERS}


_REASONS = JsonType(JSON_TYPES["Mapping[str, Any]"].read, _excerpts)


@control_record("restarts", key=("lane",), informative=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRestarts(ControlRecord):
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

    lane: Whole
    count: int
    endings: Mapping[str, int]
    ending: str
    reason: Excerpt
    run: str
    timestamp: int

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        often = "once" if self.count == 1 else f"{self.count} times"
        return f"lane {self.lane} ended early, {often} in this run: {self.ending}: {self.reason}"


@control_record("groups-left", informative=True, silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLeft(SingleRecord):
    """
    Groups that a run leaves alone on the target, because consumers there have reached their offsets.

    Attributes:
        groups: The first ones by name, with the reason of each.
        count: Number of all.
        run: Run of the mirror.
        timestamp: Time of the record, ms since the epoch.
    """

    groups: Mapping[str, Any] = field(metadata={"json_type": _REASONS})
    count: int
    run: str
    timestamp: int


@control_record(
    "refused-configuration",
    informative=True,
    sentence="the changed configuration is refused: {one.reason}",
    deleted=("configuration", "a configuration is in force that is not refused"),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedConfiguration(SingleRecord):
    """
    A changed configuration file that a running mirror refuses; the configuration of before stays in force.

    Attributes:
        reason: Faults of the file.
        run: Run of the link; of an earlier one the record has no meaning.
        timestamp: Time of the refusal, ms since the epoch.
    """

    reason: Excerpt
    run: str
    timestamp: int


@control_record("schemas", informative=True, silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasMirrored(SingleRecord):
    """
    State of the mirror of schema registries, as `eomirror.registry.mirror.SchemasSnapshot` explains its fields.

    Attributes:
        run: Run of the mirror.
        timestamp: Time of the record, ms since the epoch.
    """

    state: str
    subjects: int
    versions: int
    pending: int
    conflicts: int
    kept: int
    problem: Excerpt
    fix: Excerpt
    equal_at: int
    run: str
    timestamp: int


@control_record("verification", key=("topic",), informative=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class Verification(ControlRecord):
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
    problem: Excerpt = ""
    from_offset: int = 0
    since: int = 0
    host: str = ""
    timestamp: int

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        part = [f"from offset {self.from_offset} on"] if self.from_offset else []
        if self.since > 0:
            part.append(f"records since {_iso(self.since)}")
        found = [f"{count} {kind}" for kind, count in self.differences.items()]
        return f"topic {self.topic} was compared with its source: {_compared(self, *part, *found)}"


@control_record("tail", informative=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class TailComparison(SingleRecord):
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
    problem: Excerpt = ""
    host: str = ""
    timestamp: int

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        return (
            f"only the last {self.tail:,} offsets of each partition were compared with the source, before a "
            f"{self.command}: {_compared(self)}"
        )


@control_record("drill", informative=True, lasting=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class DrillResult(SingleRecord):
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
    problem: Excerpt = ""

    @property
    def rto_seconds(self) -> float:
        """Time from the loss of the source to the promotion."""
        return self.rto_ms / 1000

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        if not self.passed:
            # it measured nothing
            where = f" at the stage {self.stage!r}" if self.stage else ""
            why = f": {self.problem}" if self.problem else ""
            return f"a drill failed{where}{why}; repeat it with eomirror drill --report FILE"
        text = f"a drill passed: {self.rpo_records} records left behind, all merged later; "
        return text + f"{self.rto_ms} ms to the promotion"


@control_record("standby", key=("run",), informative=True, silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyProcess(ControlRecord):
    """
    A process that takes the link when its owner is gone (`eomirror run --standby`); renewed while it stands by.

    Attributes:
        run: Id of its run.
        host: Host of the process.
        pid: Id of the process on that host.
        since: Time from which on it stands by, ms since the epoch.
        interval_ms: Interval of renewals.
        timestamp: Time of the renewal, ms since the epoch.
    """

    run: str
    host: str
    pid: int
    since: int
    interval_ms: Whole
    timestamp: int

    def stands(self, now_ms: int) -> bool:
        """Returns True if the renewal is recent enough at this time."""
        return abs(now_ms - self.timestamp) <= MISSED_RENEWALS * self.interval_ms


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
        standbys: Processes that stand by, or were killed while they did, by run.
        refused: Refused configuration; None for none.
        own: Entries on the target that the link has added.
        comparison: Last comparison of the target with the source; None for none.
        schemas: State of the mirror of schema registries; None for none.
    """

    restarts: tuple[LaneRestarts, ...] = ()
    verifications: tuple[Verification, ...] = ()
    drill: DrillResult | None = None
    tail: TailComparison | None = None
    left: GroupsLeft | None = None
    standbys: tuple[StandbyProcess, ...] = ()
    refused: RefusedConfiguration | None = None
    own: tuple[OwnEntry, ...] = ()
    comparison: TargetComparison | None = None
    schemas: SchemasMirrored | None = None


def decode_reports(records: Iterable[tuple[bytes | None, bytes | None]]) -> Reports:
    """
    Returns the informative records of a control topic.

    Args:
        records: Key and value of each control record, oldest first; other kinds, and records that are not readable or
            of a newer version, are skipped.
    """
    newest: dict[bytes | None, ControlRecord] = {}
    for key, value in records:
        if value is None:
            newest.pop(key, None)
        entry = ControlEntry.of(key, value)
        if entry.declared is not None and entry.declared.declaration.informative:
            with suppress(RecordError):
                newest[key] = entry.record()
    found = RecordsByClass(newest.values())
    return Reports(
        tuple(sorted(found.all(LaneRestarts), key=lambda one: one.lane)),
        tuple(sorted(found.all(Verification), key=lambda one: one.topic)),
        found.last(DrillResult),
        found.last(TailComparison),
        found.last(GroupsLeft),
        tuple(sorted(found.all(StandbyProcess), key=lambda one: (one.since, one.run))),
        found.last(RefusedConfiguration),
        tuple(found.all(OwnEntry)),
        found.last(TargetComparison),
        found.last(SchemasMirrored),
    )


def _compared(one: Verification | TailComparison, *more: str) -> str:
    problem = [one.problem] if one.problem else []
    return ", ".join([f"{one.outcome}, {one.offsets} offsets", *more, *problem])


def _iso(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return str(milliseconds)
