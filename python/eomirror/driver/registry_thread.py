"""
Thread that mirrors the schema registries of a link in rounds (`eomirror.registry.mirror`), and its control record.

A registry that does not answer, or refuses, stops no record: its state is shown in `status`, and the next round asks
again.  A run with ``until="caught-up"`` waits for one round after its first call of `RegistryThread.settled`.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline
from eomirror.errors import RegistryError
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.events import PastEvent
from eomirror.records.names import LinkNames
from eomirror.records.reports import SchemasMirrored
from eomirror.registry.mirror import SchemasSnapshot, registry_mirror
from eomirror.status.model import SchemasStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.driver.background import Background
    from eomirror.lane.spec import LaneSpec
    from eomirror.registry.mirror import RegistryMirror

__all__ = ["RegistryThread"]

log = structlog.get_logger(__name__)

# a large registry is asked for a fifth of the time at most
_PAUSE_SHARE = 4.0
# between two records without another change, so that their age is known without the driver
_RECORD_SECONDS = 60.0
_SETTLED = frozenset({"mirrored", "conflict", "refused"})


class RegistryThread:
    """
    Mirrors the registries of one link.

    Args:
        background: Background threads of the link.
        spec: Spec of the link's lanes; names the link and the run.
        over: Set when the link is to end.
        clock: Measures pauses, and is the source of timestamps.
    """

    def __init__(
        self, background: Background, spec: LaneSpec, *, over: threading.Event, clock: Clock
    ) -> None:
        self._background = background
        self._link = spec.link
        self._run = spec.run
        self._over = over
        self._clock = clock
        self._snapshot = SchemasSnapshot()
        # set by the first call of `settled`, so that a round follows at once
        self._asked = threading.Event()
        self._settled = threading.Event()
        self._written: SchemasSnapshot | None = None
        self._due = Deadline(0, clock)

    def start(self) -> None:
        """Starts the thread, if the link mirrors registries."""
        if self._link.schemas is not None:
            self._background.start(self._rounds, "schemas")

    def settled(self) -> bool:
        """Returns True once a round that began after the first call has made all changes that can be made."""
        self._asked.set()
        return self._link.schemas is None or self._settled.is_set()

    def status(self) -> SchemasStatus | None:
        """Returns the state of the mirror of schemas; None if the link mirrors none."""
        if self._link.schemas is None:
            return None
        return SchemasStatus.of(self._snapshot, self._clock.wall_ms())

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the records are due again.
        """
        now, before = self._snapshot, self._written
        same = before is not None and replace(now, equal_at=0) == replace(before, equal_at=0)
        if self._link.schemas is None or now.state == "starting" or (same and not self._due.passed):
            commit([])
            return
        at = self._clock.wall_ms()
        records: list[SchemasMirrored | PastEvent] = [
            SchemasMirrored(
                state=now.state,
                subjects=now.subjects,
                versions=now.versions,
                pending=now.pending,
                conflicts=now.conflicts,
                kept=now.kept,
                problem=now.problem,
                fix=now.fix,
                equal_at=now.equal_at,
                run=self._run,
                timestamp=at,
            )
        ]
        if before is None or (now.state, now.problem) != (before.state, before.problem):
            text = f"schemas: {now.state}" + (
                f": {now.problem}" if now.problem else f", {now.subjects} subjects"
            )
            records.append(PastEvent(at=at, of="schemas", topic="", text=text))
        topic = LinkNames(self._link.state_name).control_topic
        commit([MetadataRecord(topic, 0, one.key(), one.value()) for one in records])
        self._written, self._due = now, Deadline(_RECORD_SECONDS, self._clock)

    # -- inside ----------------------------------------------------------------------------------

    def _rounds(self) -> None:
        mirror: RegistryMirror | None = None
        settings = self._link.schemas
        try:
            while not self._over.is_set() and settings is not None:
                began, asked = self._clock.monotonic(), self._asked.is_set()
                try:
                    mirror = mirror or registry_mirror(
                        self._link, clock=self._clock, stopped=self._over.is_set
                    )
                    if mirror is not None:
                        self._snapshot = mirror.round()
                except RegistryError as error:
                    # its certificates cannot be read
                    self._snapshot = replace(
                        self._snapshot, state="away", problem=error.message, fix=error.fix
                    )
                except Exception as error:
                    # a bug; records are mirrored nevertheless
                    log.exception("schemas_not_mirrored", link=self._link.name)
                    # not its text: it may show what was sent
                    self._snapshot = replace(
                        self._snapshot,
                        state="behind",
                        problem=f"{type(error).__name__} in the mirror of schemas",
                        fix="report it, with the log of this process",
                    )
                if asked and self._snapshot.state in _SETTLED:
                    self._settled.set()
                # a round that ran into timeouts says nothing about the size of a registry
                away = self._snapshot.state == "away"
                share = 0.0 if away else _PAUSE_SHARE * (self._clock.monotonic() - began)
                self._wait(max(settings.interval, share), asked=asked)
        finally:
            if mirror is not None:
                mirror.close()

    def _wait(self, pause: float, *, asked: bool) -> None:
        deadline = Deadline(pause, self._clock)
        while not deadline.passed and not self._over.wait(min(0.5, deadline.remaining())):
            if self._asked.is_set() and not asked:
                return
