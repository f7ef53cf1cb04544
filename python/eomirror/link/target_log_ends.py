"""
Checks once a minute, in the background of a lane, that copies still end behind their last acknowledged record.

A transaction shows the offsets of its records on the target (`eomirror.lane.commit.grant`).  A partition without new
records shows nothing: its copy may lose records with a broker's disk, or in an unclean election, and stay short for
hours (EO-5).

A copy that seems cut is read again, after a pause and with a new client each time.  A broker that was frozen, and
does not know yet that another one leads, answers from its old state.  A log does not shrink under one leader epoch, so
an answer counts only if its epoch is newer than the one that showed the copy whole.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import DataLossError, MirrorError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.admin_client import skip_missing
from eomirror.recovery.resume import copy_cut_error, cut_copies

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["TargetLogEnds"]

log = structlog.get_logger(__name__)

_SECONDS = 60.0
# Between the reads of a copy that seems cut; the second is as long as a broker's session with its controller.
_PAUSES = (2.0, 9.0)
_CLOSE_SECONDS = 0.1
_SLICE_SECONDS = 0.1
# The leader epoch of a broker that reports none.
_UNKNOWN = -1

_Where = tuple[str, int]


class TargetLogEnds:
    """
    Compares the ends of a lane's copies with its positions; see `eomirror.lane.ports.CopyWatch`.

    Args:
        client_id: Client id that brokers see.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._cluster = cluster
        self._admin: ClusterAdmin | None = None
        self._closing = threading.Event()
        self._client_id = client_id
        self._clock = clock
        # A starting lane has compared all of them.
        self._next = clock.monotonic() + _SECONDS
        self._thread: threading.Thread | None = None
        self._found: tuple[DataLossError, ...] = ()
        # The newest leader epoch under which a copy was seen whole.
        self._whole: dict[_Where, int] = {}

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """
        Starts a check in the background if one is due; returns at once.

        Args:
            positions: Positions that the lane has committed.
        """
        now = self._clock.monotonic()
        if now < self._next or self._thread is not None or not positions:
            return
        self._next = now + _SECONDS
        self._thread = threading.Thread(target=self._run, args=(tuple(positions.values()),), daemon=True)
        self._thread.start()

    def take(self) -> tuple[DataLossError, ...]:
        """Returns the errors found since the last call, one for each topic."""
        if self._thread is None or self._thread.is_alive():
            return ()
        self._thread = None
        found, self._found = self._found, ()
        return found

    def look(self, positions: Sequence[Position]) -> tuple[DataLossError, ...]:
        """
        Checks and waits; returns one error for each topic whose copy lost records.

        Args:
            positions: Positions that the lane has committed.

        Raises:
            MirrorError: The target does not answer.
        """
        waiting = [one for one in positions if one.target_offset is not None]
        if self._admin is None:
            # The thread's own client: the lane may close its clients while the thread waits for an answer.
            self._admin = self._new_admin()
        cut = self._cut(self._admin, waiting)
        for pause in _PAUSES:
            if not cut:
                return ()
            if not self._pauses(pause):
                return ()
            waiting = [one for one in waiting if one.source in cut]
            admin = self._new_admin()
            try:
                cut = self._cut(admin, waiting)
                # A recreated topic is handled elsewhere (`eomirror.recovery.resume`).
                topics = admin.visible_topics(sorted({one.target_topic for one in waiting}))[0]
            finally:
                admin.close()
            same = {
                one.source
                for one in waiting
                if (facts := topics.get(one.target_topic)) and facts.topic_id == one.target_topic_id
            }
            cut = {source: end for source, end in cut.items() if source in same}
        errors: dict[str, DataLossError] = {}
        for one in waiting:
            if one.source in cut:
                errors.setdefault(one.topic, copy_cut_error(one, cut[one.source]))
        return tuple(errors.values())

    def close(self) -> None:
        """Asks a check that is under way to end; its thread closes its client."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)
        if self._thread is None or not self._thread.is_alive():
            self._let_go()

    # -- inside ----------------------------------------------------------------------------------

    def _pauses(self, seconds: float) -> bool:
        """Sleeps; returns False if the lane closes in the meantime."""
        deadline = Deadline(seconds, self._clock)
        while not deadline.passed and not self._closing.is_set():
            self._clock.sleep(min(_SLICE_SECONDS, deadline.remaining()))
        return not self._closing.is_set()

    def _new_admin(self) -> ClusterAdmin:
        return ClusterAdmin(self._cluster, client_id=self._client_id, clock=self._clock)

    def _let_go(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _cut(self, admin: ClusterAdmin, positions: Collection[Position]) -> dict[SourcePartition, int]:
        """Returns the log ends of copies that seem cut, from one read."""
        epochs: dict[_Where, int] = {}

        def ask(partitions: Sequence[_Where]) -> Mapping[_Where, int]:
            found = admin.log_ends(partitions)
            epochs.update({where: epoch for where, (_, epoch) in found.items()})
            return {where: end for where, (end, _) in found.items()}

        copies = {one.source: (one.target_topic, one.target_partition) for one in positions}
        ends = skip_missing(ask, set(copies.values()))
        cut = cut_copies(positions, ends)
        shorter = {copies[source] for source in cut}
        for where in ends.keys() - shorter:
            self._whole[where] = max(epochs[where], self._whole.get(where, _UNKNOWN))
        return {
            source: end
            for source, end in cut.items()
            if epochs[copies[source]] == _UNKNOWN
            or epochs[copies[source]] > self._whole.get(copies[source], _UNKNOWN)
        }

    def _run(self, positions: Sequence[Position]) -> None:
        try:
            self._found = self.look(positions)
        except MirrorError as error:
            # The next check retries; a transaction in the meantime detects the loss as well.
            log.info("copies_not_looked_at", reason=error.message)
        finally:
            if self._closing.is_set():
                self._let_go()
