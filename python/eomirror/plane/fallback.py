"""
A lane on the native plane, which the client plane takes over while it must.

It must in three cases.  A record that the target refuses is sought by the client plane, which sends ranges of records
and can leave one out (`eomirror.lane.poison_records`); once the search is over, its next commit asks for a new
producer,
and the lane goes on natively.  And where the target turns out to have transactions of an older protocol, or a
property that only librdkafka has, the client plane stays, if the link leaves the choice to us.  It stays likewise
once the source holds message format 0 or 1, which only librdkafka reads: the open transaction is aborted, and the
client plane begins where the last commit ended.
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

__all__ = ["SwitchingPlane"]

log = structlog.get_logger(__name__)

_NATIVE, _CLIENT = "native", "client"
_SEARCH = "a record that the target refuses is being sought"


class SwitchingPlane:
    """
    One plane at a time; see the module's docstring, and `eomirror.plane.protocol.Plane` for what each call means.

    Args:
        lane: Number of the lane, for the log.
        native: Makes a native plane.
        client: Makes a client plane that serves for a reason.
        fall_back: Whether the client plane may serve where the native one cannot.
    """

    def __init__(
        self, lane: int, *, native: Callable[[], Plane], client: Callable[[str], Plane], fall_back: bool
    ) -> None:
        self._lane = lane
        self._native, self._client = native, client
        self._fall_back = fall_back
        self._treatment = Treatment()
        # what only the client plane can serve; empty when there is nothing
        self._unhonoured = ""
        self._plane: Plane | None = None
        # what `_plane` is; empty before the first
        self._serves = ""

    def serving(self) -> Serving:
        """Which of the two serves."""
        return Serving() if self._plane is None else self._plane.serving()

    def throttled(self) -> float | None:
        """For how long quotas have held back the one that serves."""
        return None if self._plane is None else self._plane.throttled()

    def delayed(self) -> str:
        """What the one that serves cannot read."""
        return "" if self._plane is None else self._plane.delayed()

    def open(self) -> ProducerIdentity:
        """Chooses a plane, and run InitProducerId with a new producer of it."""
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
        """Sends records in this way; the plane that can takes over with the next producer."""
        self._treatment = treatment
        if self._serves == _CLIENT:
            self._serving.treat(treatment)

    def await_records(self, seconds: float) -> bool:
        """Waits for something to mirror."""
        return self._serving.await_records(seconds)

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Partitions whose next offset moved since the last commit."""
        return self._serving.advances()

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Last stable offsets of the source."""
        return {} if self._plane is None else self._plane.log_ends()

    def pinned(self) -> AbstractSet[str]:
        """Source topics of the open transaction that both sides know by id."""
        return self._serving.pinned()

    def begin(self) -> ProducerIdentity:
        """Begins a transaction."""
        return self._serving.begin()

    def pump(self, seconds: float) -> Pumped:
        """
        Fetches, decide and produces what is at hand.

        Raises:
            PlaneChangedError: The client plane takes over with the next `open`.
        """
        try:
            return self._serving.pump(seconds)
        except Exception as error:
            if not self._gives_way(error, "old-format"):
                raise
            raise PlaneChangedError(self._unhonoured) from error

    def speculate(self) -> Flushed | None:
        """What `flush` will answer, if that can be told."""
        return self._serving.speculate()

    def flush(self, seconds: float) -> Flushed:
        """Waits until all that was produced is acknowledged, and balances the account (EO-7)."""
        return self._serving.flush(seconds)

    def has_more(self) -> bool:
        """Returns whether more has come of partitions that the open transaction holds."""
        return self._serving.has_more()

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces records of ours into the open transaction."""
        self._serving.write(records)

    def commit(self) -> CommitOutcome:
        """Commits; after a search, the next producer is the native plane's again."""
        # the search that this transaction ends is known to be over only after its commit
        over = self._serves == _CLIENT and self._wanted() == _NATIVE
        outcome = self._serving.commit()
        return CommitOutcome.SUSPECT if over else outcome

    def abort(self) -> None:
        """Aborts what is open, as well as that goes."""
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
            raise AssertionError("the pump opens the plane before it uses it")
        return self._plane

    def _gives_way(self, error: Exception, kind: str) -> bool:
        """
        Returns whether the client plane serves from the next choice on, because the native one failed in this way.
        """
        cause = error.__cause__
        if not (self._fall_back and isinstance(cause, NativeFailureError) and cause.kind == kind):
            return False
        self._unhonoured = cause.message
        log.info("client_plane_chosen", lane=self._lane, reason=cause.message)
        return True

    def _wanted(self) -> str:
        return _CLIENT if self._unhonoured or self._treatment.ranges else _NATIVE

    def _choose(self) -> None:
        wanted = self._wanted()
        if wanted == self._serves:
            return
        self.close()
        self._plane = self._native() if wanted == _NATIVE else self._client(self._unhonoured or _SEARCH)
        if wanted == _CLIENT:
            self._plane.treat(self._treatment)
        self._serves = wanted
        log.info("plane_serves", lane=self._lane, plane=wanted)
