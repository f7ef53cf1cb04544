"""
Background threads of a link, and the effect of their errors on the link.

Retriable errors (an unreachable cluster, a revoked ACL) are logged and retried; any other error fails the link.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import structlog

from eomirror.clock import Clock, jitter
from eomirror.driver.retry import Backoff
from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    ClusterError,
    DataLossError,
    HandshakeError,
    LaneError,
    MirrorError,
    QuotaError,
    StateError,
    StoppedError,
    SupersededError,
    TopicGoneError,
    UnreachableError,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.clock import Deadline
    from eomirror.driver.link import LinkThread

__all__ = ["Background", "ClusterRetry"]

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
    _look: threading.Event = field(default_factory=threading.Event)
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

    def repeat(self, event: str, action: Callable[[], None], seconds: float, name: str) -> None:
        """Starts a thread that runs ``action`` as `guard` does, now and after each pause of ``seconds``."""

        def run() -> None:
            self.guard(event, action)
            while not self.over.wait(seconds):
                self.guard(event, action)

        self.start(run, name)

    def wake(self) -> None:
        """Ends `rested` at once."""
        self._look.set()

    def rested(self, seconds: float) -> bool:
        """Waits, at most until `wake`; returns False if the link is to end.  For one thread only."""
        self._look.wait(seconds)
        self._look.clear()
        return not self.over.is_set()

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


Result = TypeVar("Result")


# the log names the cluster once a minute, besides the first time and each new reason
_LOG_SECONDS = 60.0


class ClusterRetry:
    """
    Retries actions of one link.

    Args:
        over: Set when the link is to end.
        on_wait: Called with the error that the link waits for and the recommended action; with empty texts once it
            has passed.
    """

    def __init__(
        self, link: str, over: threading.Event, *, clock: Clock, on_wait: Callable[[str, str], None]
    ) -> None:
        self._link = link
        self._over = over
        self._clock = clock
        self._on_wait = on_wait

    def do(self, action: Callable[[], Result]) -> Result:
        """
        Repeats ``action`` until it succeeds.

        Raises:
            StoppedError: The link is to end.
            MirrorError: ``action`` failed with an error that a retry cannot heal.
        """
        backoff, logged, logged_at = Backoff(), "", float("-inf")
        began = self._clock.monotonic()
        while not self._over.is_set():
            try:
                result = action()
            except HandshakeError:
                # brokers answer, but TLS or the security protocol does not match theirs
                raise
            except (UnreachableError, BrokerFailedError, TopicGoneError) as error:
                # the next try lists the topics anew
                backoff = backoff.failed(progressed=False)
                now = self._clock.monotonic()
                if error.message != logged or now - logged_at >= _LOG_SECONDS:
                    self._log_wait(error, now - began)
                    logged, logged_at = error.message, now
                told = error.seconds if isinstance(error, QuotaError) else 0.0
                self._over.wait(told or jitter(backoff.seconds))
            else:
                if logged:
                    log.info("link_reached_its_clusters", link=self._link)
                    self._on_wait("", "")
                return result
        raise StoppedError(f"link {self._link}: stopped before its clusters were reachable")

    def _log_wait(self, error: MirrorError, seconds: float) -> None:
        log.warning(
            "link_waits",
            link=self._link,
            reason=error.message,
            fix=error.fix,
            seconds=round(seconds, 1),
        )
        self._on_wait(error.message, error.fix)
