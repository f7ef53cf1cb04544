"""
Background threads of a link, and the effect of their errors on the link.

Retriable errors (an unreachable cluster, a revoked ACL) are logged and retried; any other error fails the link.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import structlog

from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    DataLossError,
    LaneError,
    MirrorError,
    StateError,
    SupersededError,
    UnreachableError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.clock import Deadline
    from eomirror.driver.link import LinkThread

__all__ = ["Background"]

Made = TypeVar("Made")

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Background:
    """
    The background threads of one link.

    Attributes:
        link: Link that an error fails.
        over: Set when the link is to end.
    """

    link: LinkThread
    over: threading.Event
    _threads: list[threading.Thread] = field(default_factory=list)
    # error of the last round of each kind of work that asks a cluster; only its own thread writes
    _troubles: dict[str, ClusterError] = field(default_factory=dict)

    @property
    def trouble(self) -> ClusterError | None:
        """The error of a cluster in the last round of some work; None if all were answered."""
        troubles = dict(self._troubles)
        # by name, so that the same one is told as long as it lasts
        return next((troubles[event] for event in sorted(troubles)), None)

    def start(self, target: Callable[[], None], name: str) -> None:
        """Starts a thread that runs ``target``."""
        thread = threading.Thread(target=target, name=f"{name}-{self.link.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, deadline: Deadline) -> None:
        """Waits until all threads have ended, at most until the deadline."""
        for thread in self._threads:
            thread.join(deadline.remaining())

    def obtained(self, event: str, make: Callable[[], Made | None], *, until: threading.Event) -> Made | None:
        """
        Creates the client of a background thread; retries while its cluster is unreachable.

        Args:
            event: Name of the log event of a failed try.
            make: Creates the client.
            until: Ends the retries when set.

        Returns:
            The result of ``make``; None if ``until`` was set first.
        """
        while not until.is_set():
            try:
                return make()
            except UnreachableError as error:
                log.warning(event, link=self.link.name, reason=error.message)
                until.wait(_AGAIN_SECONDS)
        return None

    def guard(self, event: str, action: Callable[[], None]) -> None:
        """
        Runs ``action``; logs a retriable error and fails the link on any other.

        Args:
            event: Name of the log event of an error.
            action: Work to do.
        """
        try:
            self._guarded(event, action)
        except Exception:
            # a stop closes clients that are in use: errors of that are expected
            if not self.over.is_set():
                raise

    def _guarded(self, event: str, action: Callable[[], None]) -> None:
        link = self.link
        try:
            action()
            self._troubles.pop(event, None)
        except (SupersededError, DataLossError, StateError, UsageError) as error:
            link.fail(error)
        except AuthorizationError as error:
            if not link.patient:
                link.fail(error)
                return
            self._troubles[event] = error
            # an administrator must grant the ACL, which needs no restart; lanes keep running meanwhile
            log.error(event, link=link.name, reason=error.message, fix=error.fix)  # noqa: TRY400  no fault of the code
        except (LaneError, MirrorError) as error:
            # an unreachable cluster: lanes keep running, the next round retries
            if isinstance(error, ClusterError):
                self._troubles[event] = error
            log.warning(event, link=link.name, reason=str(error))
        except Exception as error:
            if self.over.is_set():
                raise
            link.fail(error)
            log.exception(event, link=link.name)
