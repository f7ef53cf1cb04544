"""
Does for a link what needs its clusters, again and again while one of them is away.

A lane whose cluster dies is built anew until the cluster is back.  A link that starts while a cluster is away waits for
it in the same way: for ever, or until it is told to stop.  What does not pass by itself (refused credentials, a
missing right, a configuration that the brokers refuse) is raised at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import structlog

from eomirror.clock import Clock, jitter
from eomirror.driver.retry import Backoff
from eomirror.errors import BrokerFailedError, HandshakeError, StoppedError, UnreachableError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from eomirror.errors import MirrorError

__all__ = ["Reaching"]

Result = TypeVar("Result")

log = structlog.get_logger(__name__)

# the log names the cluster once a minute, besides the first time and each new reason
_LOG_SECONDS = 60.0


class Reaching:
    """
    Repeats what a link needs its clusters for.

    Args:
        link: Name of the link.
        over: Set when the link is to end.
        clock: Where time comes from.
        say: Told what the link waits for, and an empty text once it goes on.
    """

    def __init__(self, link: str, over: threading.Event, *, clock: Clock, say: Callable[[str], None]) -> None:
        self._link = link
        self._over = over
        self._clock = clock
        self._say = say

    def do(self, action: Callable[[], Result]) -> Result:
        """
        Repeat ``action`` until it succeeds.

        Raises:
            StoppedError: The link is to end.
            MirrorError: What ``action`` raises, unless it passes by itself.
        """
        backoff, said, told_at = Backoff(), "", float("-inf")
        began = self._clock.monotonic()
        while not self._over.is_set():
            try:
                result = action()
            except HandshakeError:
                # brokers answer, and TLS or the security protocol is set otherwise than theirs
                raise
            except (UnreachableError, BrokerFailedError) as error:
                backoff = backoff.failed(progressed=False)
                now = self._clock.monotonic()
                if error.message != said or now - told_at >= _LOG_SECONDS:
                    self._tell(error, now - began)
                    said, told_at = error.message, now
                self._over.wait(jitter(backoff.seconds))
            else:
                if said:
                    log.info("link_reached_its_clusters", link=self._link)
                    self._say("")
                return result
        raise StoppedError(f"link {self._link}: told to stop before its clusters could be reached")

    def _tell(self, error: MirrorError, seconds: float) -> None:
        log.warning(
            "link_waits",
            link=self._link,
            reason=error.message,
            fix=error.fix,
            seconds=round(seconds, 1),
        )
        self._say(error.message)
