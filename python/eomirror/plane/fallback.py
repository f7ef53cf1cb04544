"""
Lets the client plane take over from the native plane while it must.

There are three cases.  First, a refused record: the client plane isolates it, because it can send ranges of records and
skip one (`eomirror.lane.poison_records`).  After the search its next commit asks for a new producer, and the lane
returns to the native plane.  Second, the target has transactions of an older protocol, or the configuration a property
that only librdkafka has: the client plane stays, if the link says ``plane: auto``.  Third, the source holds message
format 0 or 1, which only librdkafka reads: the open transaction is aborted, and the client plane starts at the last
commit and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import PlaneChangedError
from eomirror.plane.native.errors import NativeFailureError
from eomirror.plane.protocol import CommitOutcome, Serving, Treatment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.plane.protocol import (
        Advance,
        Flushed,
        MetadataRecord,
        Plane,
        ProducerIdentity,
        Pumped,
        Start,
    )
    from eomirror.types import SourcePartition

__all__ = ["FallbackPlane"]

log = structlog.get_logger(__name__)

_NATIVE, _CLIENT = "native", "client"
_SEARCH = "a record that the target refuses is being isolated"


class FallbackPlane:
    """
    Delegates to one plane at a time; see `eomirror.plane.protocol.Plane` for each call.

    Args:
        lane: Number of the lane, for the log.
        native: Makes a native plane.
        client: Makes a client plane, for a reason.
        fall_back: Whether the client plane may replace the native one.
    """

    def __init__(
        self, lane: int, *, native: Callable[[], Plane], client: Callable[[str], Plane], fall_back: bool
    ) -> None:
        self._lane = lane
        self._native, self._client = native, client
        self._fall_back = fall_back
        self._treatment = Treatment()
        # why only the client plane can serve; empty if both can
        self._fallback_reason = ""
        self._plane: Plane | None = None
        # name of `_plane`; empty before the first
        self._serves = ""

    def serving(self) -> Serving:
        """Returns the plane in use."""
        return Serving() if self._plane is None else self._plane.serving()

    def throttled(self) -> float | None:
        """Returns the seconds of throttling by quotas."""
        return None if self._plane is None else self._plane.throttled()

    def delayed(self) -> str:
        """Returns the source partitions that cannot be read."""
        return "" if self._plane is None else self._plane.delayed()

    def open(self) -> ProducerIdentity:
        """Selects a plane, and runs InitProducerId with a new producer of it."""
        self._choose()
        try:
            return self._serving.open()
        except Exception as error:
            if not self._gives_way(error, "unhonoured"):
                raise
            self._choose()
            return self._serving.open()

    def start(self, starts: Sequence[Start]) -> None:
        """Begins to fetch these partitions."""
        self._serving.start(starts)

    def restart(self) -> None:
        """Forgets everything fetched."""
        if self._plane is not None:
            self._plane.restart()

    def treat(self, treatment: Treatment) -> None:
        """Sets how to send records; a plane that can do so takes over with the next producer."""
        self._treatment = treatment
        if self._serves == _CLIENT:
            self._serving.treat(treatment)

    def await_records(self, seconds: float) -> bool:
        """Waits for something to mirror."""
        return self._serving.await_records(seconds)

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Returns partitions whose next offset has moved since the last commit."""
        return self._serving.advances()

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns last stable offsets of the source."""
        return {} if self._plane is None else self._plane.log_ends()

    def pinned(self) -> AbstractSet[str]:
        """Returns source topics of the open transaction that both sides know by id."""
        return self._serving.pinned()

    def begin(self) -> ProducerIdentity:
        """Begins a transaction."""
        return self._serving.begin()

    def pump(self, seconds: float) -> Pumped:
        """
        Fetches, decides and produces the available records.

        Raises:
            PlaneChangedError: The client plane takes over with the next `open`.
        """
        try:
            return self._serving.pump(seconds)
        except Exception as error:
            if not self._gives_way(error, "old-format"):
                raise
            raise PlaneChangedError(self._fallback_reason) from error

    def speculate(self) -> Flushed | None:
        """Returns the expected result of `flush`, if known."""
        return self._serving.speculate()

    def flush(self, seconds: float) -> Flushed:
        """Waits for every acknowledgement, and balances the account (EO-7)."""
        return self._serving.flush(seconds)

    def has_more(self) -> bool:
        """Returns whether more records of the open transaction's partitions are available."""
        return self._serving.has_more()

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces state records into the open transaction."""
        self._serving.write(records)

    def commit(self) -> CommitOutcome:
        """Commits; after a search, the next producer is the native plane's again."""
        # the search that this transaction ends is known to be over only after its commit
        over = self._serves == _CLIENT and self._wanted() == _NATIVE
        outcome = self._serving.commit()
        return CommitOutcome.SUSPECT if over else outcome

    def abort(self) -> None:
        """Aborts the open transaction, best effort. The producer must not be reused."""
        if self._plane is not None:
            self._plane.abort()

    def close(self) -> None:
        """Closes all clients."""
        if self._plane is not None:
            self._plane.close()
            self._plane, self._serves = None, ""

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _serving(self) -> Plane:
        if self._plane is None:
            raise AssertionError("the runner opens the plane before it uses it")
        return self._plane

    def _gives_way(self, error: Exception, kind: str) -> bool:
        """Returns whether the client plane takes over, because the native one failed in this way."""
        cause = error.__cause__
        if not (self._fall_back and isinstance(cause, NativeFailureError) and cause.kind == kind):
            return False
        self._fallback_reason = cause.message
        log.info("client_plane_chosen", lane=self._lane, reason=cause.message)
        return True

    def _wanted(self) -> str:
        return _CLIENT if self._fallback_reason or self._treatment.ranges else _NATIVE

    def _choose(self) -> None:
        wanted = self._wanted()
        if wanted == self._serves:
            return
        self.close()
        self._plane = self._native() if wanted == _NATIVE else self._client(self._fallback_reason or _SEARCH)
        if wanted == _CLIENT:
            self._plane.treat(self._treatment)
        self._serves = wanted
        log.info("plane_serves", lane=self._lane, plane=wanted)
