"""Looks at a lane's clusters at an interval, each time in a thread, so that the lane does not wait."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

import structlog

from eomirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["BackgroundLook"]

log = structlog.get_logger(__name__)

Found = TypeVar("Found")


class BackgroundLook(ABC, Generic[Found]):
    """
    Looks again and again, one look at a time.

    Args:
        link: Name of the link, for the log.
        event: Name of the log event of a failed look; the next one retries.
        first_seconds: Time until the first look.
        seconds: Time between two looks.
        close_seconds: Maximum wait for a look that is under way at the end.
    """

    def __init__(
        self,
        *,
        link: str,
        event: str,
        first_seconds: float,
        seconds: float,
        close_seconds: float,
        clock: Clock,
    ) -> None:
        self._link = link
        self._event = event
        self._seconds = seconds
        self._close_seconds = close_seconds
        self._clock = clock
        self._closing = threading.Event()
        self._next = clock.monotonic() + first_seconds
        self._thread: threading.Thread | None = None
        self._found: tuple[Found, ...] = ()

    @abstractmethod
    def look(self, positions: Collection[Position]) -> tuple[Found, ...]:
        """
        Looks and waits; returns the findings.

        Args:
            positions: Positions that the lane has committed.

        Raises:
            MirrorError: A cluster cannot be asked.
        """

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """
        Starts a look in the background if one is due; returns at once.

        Args:
            positions: Positions that the lane has committed.
        """
        now = self._clock.monotonic()
        if now < self._next or self._thread is not None or not positions:
            return
        self._next = now + self._seconds
        self._thread = threading.Thread(target=self._run, args=(tuple(positions.values()),), daemon=True)
        self._thread.start()

    def take(self) -> tuple[Found, ...]:
        """Returns the findings since the last call."""
        if self._thread is None or self._thread.is_alive():
            return ()
        self._thread = None
        found, self._found = self._found, ()
        return found

    def close(self) -> None:
        """Asks a look that is under way to end, and waits a moment; it ends when the lane closes its connections."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(self._close_seconds)

    def _run(self, positions: Collection[Position]) -> None:
        try:
            self._found = self.look(positions)
        except MirrorError as error:
            log.info(self._event, link=self._link, reason=error.message)
        except Exception:
            # the lane has closed connections that are in use: errors of that are expected
            if not self._closing.is_set():
                raise
