"""
Records outages, restarts of lanes and lost slots, changes of protocol, target and configuration, for the timeline.

A mirror that runs through an outage writes one record of it, when it is over, with the next renewal of its claim.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.kafka.client_factory import holds_secret
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.events import Outage, PastEvent, change_events
from eomirror.records.json_fields import MOST_CHARACTERS
from eomirror.records.names import LinkNames
from eomirror.records.reports import LaneRestarts, RefusedConfiguration
from eomirror.topics.entries import comparison_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.driver.channel import AttemptId
    from eomirror.lane.spec import LaneSpec
    from eomirror.records.kept_entries import TargetComparison
    from eomirror.topics.entries import EntryPlan

__all__ = ["ConfigurationRecords", "LaneRecords", "OutageRecords", "TargetRecords"]

log = structlog.get_logger(__name__)

# one request that fails is no outage
_SHORTEST_SECONDS = 5.0
# Nor is one that a busy target takes slowly; one that waits for longer has waited for a target that was away.
_LONGEST_SECONDS = 10.0


class OutageRecords:
    """
    Tracks outages of both clusters of a link.  Not thread-safe: the thread that renews the claim has it.

    Args:
        link: The link.
        failing: Returns the seconds for which the source has not answered the driver; 0 while it does.
        clock: Source of timestamps.
    """

    def __init__(self, link: Link, *, failing: Callable[[], float], clock: Clock) -> None:
        self._link = link
        self._topic = LinkNames(link.state_name).control_topic
        self._failing = failing
        self._clock = clock
        # begin and length so far of the outage of the source
        self._source: tuple[int, float] | None = None
        # time of the last record that the target took, and whether it has refused one since
        self._taken_at, self._refused = clock.monotonic(), False
        self._due: list[Outage] = []

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records of outages that are over to ``commit``, possibly none.

        If ``commit`` raises, the target is away, and the same records are due again.
        """
        self._read_source()
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        found = list(self._due)
        begin = wall_ms
        if self._refused and (seconds := now - self._taken_at) >= _SHORTEST_SECONDS:
            begin -= round(seconds * 1000)
            found.append(Outage(at=begin, cluster=self._link.target, until=wall_ms))
        try:
            commit([MetadataRecord(self._topic, 0, one.key(), one.value()) for one in found])
        except Exception:
            self._refused = True
            raise
        self._due.clear()
        self._taken_at, self._refused = self._clock.monotonic(), False
        if (took := self._taken_at - now) >= _LONGEST_SECONDS:
            # in place of the record that it has just taken, if that is of the same outage
            self._due.append(Outage(at=begin, cluster=self._link.target, until=wall_ms + round(took * 1000)))

    def _read_source(self) -> None:
        wall_ms, failing = self._clock.wall_ms(), self._failing()
        if failing:
            begin = wall_ms - round(failing * 1000) if self._source is None else self._source[0]
            self._source = begin, failing
        elif self._source is not None:
            begin, longest = self._source
            self._source = None
            if longest >= _SHORTEST_SECONDS:
                self._due.append(Outage(at=begin, cluster=self._link.source, until=wall_ms))


_HIDDEN = "the reason is hidden because it contains a secret"


class LaneRecords:
    """
    Keeps the restarts of lanes in control up to date, and adds what else happens to them.  Thread-safe.

    Args:
        spec: Spec of the link's lanes; names the link, its clusters and the run.
        clock: Source of timestamps.
    """

    def __init__(self, spec: LaneSpec, clock: Clock) -> None:
        self._link = spec.link
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._clusters = (spec.source, spec.target)
        self._clock = clock
        self._lock = threading.Lock()
        self._lanes: dict[int, LaneRestarts] = {}
        self._written: dict[int, LaneRestarts] = {}
        # by lane: the newest attempt that has reported its transaction protocol, and this protocol
        self._protocols: dict[int, tuple[AttemptId, str]] = {}
        self._changes: list[PastEvent] = []

    def ended(self, lane: int, ending: str, reason: str) -> None:
        """
        Records an attempt that ended early.

        Args:
            lane: Its lane.
            ending: Kind of the ending.
            reason: Reason, for people.
        """
        hidden = any(holds_secret(cluster, reason) for cluster in self._clusters)
        with self._lock:
            known = self._lanes.get(lane) or LaneRestarts(
                lane=lane, count=0, endings={}, ending="", reason="", run=self._run, timestamp=0
            )
            self._lanes[lane] = replace(
                known,
                count=known.count + 1,
                endings={**known.endings, ending: known.endings.get(ending, 0) + 1},
                ending=ending,
                reason=_HIDDEN if hidden else reason,
                timestamp=self._clock.wall_ms(),
            )

    def tell(self, kind: str, text: str) -> None:
        """Adds an event of the lanes to the timeline."""
        with self._lock:
            at = max([self._clock.wall_ms(), *(one.at + 1 for one in self._changes)])
            self._changes.append(PastEvent(at=at, of=kind, topic="", text=text))

    def uses(self, attempt: AttemptId, protocol: str) -> None:
        """
        Records a change of the transaction protocol, which follows ``transaction.version`` of the target.

        Args:
            attempt: An attempt of a lane; two may report at the same time, of which the newer one counts.
            protocol: Its transaction protocol; empty if unknown.
        """
        with self._lock:
            newest, before = self._protocols.get(attempt.lane, (attempt, ""))
            if not protocol or attempt < newest:
                return
            self._protocols[attempt.lane] = attempt, protocol
            if before in {"", protocol}:
                return
        text = f"lane {attempt.lane} uses transaction protocol {protocol} instead of {before}"
        self.tell("protocol", f"{text}: transaction.version of {self._link.target} has changed")
        where = {"link": self._link.name, "lane": attempt.lane}
        log.info("transaction_protocol_changed", **where, before=before, protocol=protocol)

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        with self._lock:
            due = {lane: one for lane, one in self._lanes.items() if one != self._written.get(lane)}
            changes = list(self._changes)
        records = [*(one for _, one in sorted(due.items())), *changes]
        commit([MetadataRecord(self._topic, 0, one.key(), one.value()) for one in records])
        with self._lock:
            self._written.update(due)
            del self._changes[: len(changes)]


class TargetRecords:
    """
    Records what discovery has changed on the target, and what stands.  Thread-safe.

    Args:
        link: The link.
        clock: Source of timestamps.
    """

    def __init__(self, link: Link, clock: Clock) -> None:
        self._topic = LinkNames(link.state_name).control_topic
        self._clock = clock
        self._lock = threading.Lock()
        self._events: list[PastEvent] = []
        self._comparison: TargetComparison | None = None
        self._written: TargetComparison | None = None

    def took(self, changed: Sequence[tuple[str, str]], last: EntryPlan | None) -> None:
        """
        Takes a round of discovery.

        Args:
            changed: Sign and text of each change.
            last: What stands; None if no entries are compared.
        """
        now_ms = self._clock.wall_ms()
        with self._lock:
            if changed:
                begin = max([now_ms, *(one.at + 1 for one in self._events)])
                self._events += change_events(changed, now_ms=begin)
            if changed or last is not None:
                self._comparison = comparison_of(
                    last, changed, before=self._comparison, command="run", now_ms=now_ms
                )

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """Passes the records that control lacks to ``commit``; if that raises, they are due again."""
        with self._lock:
            events, comparison = list(self._events), self._comparison
        records: list[PastEvent | TargetComparison] = list(events)
        if comparison is not None and comparison != self._written:
            records.append(comparison)
        commit([MetadataRecord(self._topic, 0, one.key(), one.value()) for one in records])
        with self._lock:
            self._written = comparison
            del self._events[: len(events)]


class ConfigurationRecords:
    """
    Records changes of the configuration under a running link.  Thread-safe.

    Args:
        spec: Spec of the link's lanes; names the link, its clusters and the run.
        clock: Source of timestamps.
    """

    def __init__(self, spec: LaneSpec, clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._clusters = (spec.source, spec.target)
        self._clock = clock
        self._lock = threading.Lock()
        self._changes: list[PastEvent] = []
        self._refused: RefusedConfiguration | None = None
        self._retried = False
        self._written: RefusedConfiguration | None = None

    @property
    def refused(self) -> RefusedConfiguration | None:
        """The changed configuration that is refused; None for none."""
        return self._refused

    def changed(self, text: str) -> None:
        """Records that the settings of the link have changed."""
        with self._lock:
            at = max([self._clock.wall_ms(), *(one.at + 1 for one in self._changes)])
            self._changes.append(PastEvent(at=at, of="configuration", topic="", text=text))

    def refuse(self, reason: str, *, retried: bool = False) -> None:
        """
        Records the reason for which a changed configuration is not in force.

        Args:
            reason: Empty once it is; then a refusal of the other kind stays.
            retried: The link tries to take the change again; otherwise the file waits for its next change.
        """
        hidden = any(holds_secret(cluster, reason) for cluster in self._clusters)
        now_ms = self._clock.wall_ms()
        with self._lock:
            if not reason and self._refused is not None and self._retried != retried:
                return
            self._retried = retried
            self._refused = (
                RefusedConfiguration(
                    reason=_HIDDEN if hidden else reason[:MOST_CHARACTERS], run=self._run, timestamp=now_ms
                )
                if reason
                else None
            )

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """Passes the records that control lacks to ``commit``; if that raises, they are due again."""
        with self._lock:
            changes, refused = list(self._changes), self._refused
        due = [MetadataRecord(self._topic, 0, one.key(), one.value()) for one in changes]
        if refused != self._written:
            value = None if refused is None else refused.value()
            due.append(MetadataRecord(self._topic, 0, RefusedConfiguration.key(), value))
        commit(due)
        with self._lock:
            self._written = refused
            del self._changes[: len(changes)]
