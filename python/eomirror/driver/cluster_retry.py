"""
Retries actions of a link while one of its clusters is unreachable.

A lane whose cluster fails is rebuilt until the cluster is back.  A link that starts while a cluster is unreachable
waits in the same way, until it is stopped.  Errors that a retry cannot heal (refused credentials, a missing ACL, a
configuration that the brokers refuse) are raised at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog

from eomirror.clock import Clock, jitter
from eomirror.driver.retry import Backoff
from eomirror.errors import BrokerFailedError, HandshakeError, QuotaError, StoppedError, UnreachableError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from eomirror.errors import MirrorError

__all__ = ["ClusterRetry"]

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

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
            except (UnreachableError, BrokerFailedError) as error:
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
