"""
Threads beside a link's own, and what it means for the link what they meet.

What may pass (a cluster that does not answer, a right that was revoked) is logged and tried again; anything else fails
the link.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from eomirror.errors import (
    AuthorizationError,
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

__all__ = ["Helped", "Helpers"]

Made = TypeVar("Made")

log = structlog.get_logger(__name__)

_AGAIN_SECONDS = 10.0


class Helped(Protocol):
    """What helpers need of their link."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def patient(self) -> bool:
        """Whether it waits for rights that are missing."""

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        """It cannot go on."""


@dataclass(frozen=True, slots=True)
class Helpers:
    """
    The helpers of one link.

    Attributes:
        link: The link.
        over: Set when the link is to end.
    """

    link: Helped
    over: threading.Event
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self, target: Callable[[], None], name: str) -> None:
        """Begin a thread that does this."""
        thread = threading.Thread(target=target, name=f"{name}-{self.link.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self, deadline: Deadline) -> None:
        """Wait for the ends of all until then."""
        for thread in self._threads:
            thread.join(deadline.remaining())

    def obtained(self, event: str, make: Callable[[], Made | None], *, until: threading.Event) -> Made | None:
        """
        What a helper works with; made again while something passing is in the way, such as a certificate that is away.

        Args:
            event: What to call it in the log.
            make: Makes it.
            until: When nobody needs it any more.
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
        Do this, and what follows from what it meets.

        Args:
            event: What to call it in the log.
            action: What to do.
        """
        try:
            self._guarded(event, action)
        except Exception:
            # a stop closes the clients under whoever is using them, and that is no failure
            if not self.over.is_set():
                raise

    def _guarded(self, event: str, action: Callable[[], None]) -> None:
        link = self.link
        try:
            action()
        except (SupersededError, DataLossError, StateError, UsageError) as error:
            link.fail(error)
        except AuthorizationError as error:
            if not link.patient:
                link.fail(error)
                return
            # only a person can help, and nobody need restart us for it; lanes go on as they can
            log.error(event, link=link.name, reason=error.message, fix=error.fix)  # noqa: TRY400  no fault of the code
        except (LaneError, MirrorError) as error:
            # a cluster that does not answer: lanes go on as they can, and the next round tries again
            log.warning(event, link=link.name, reason=str(error))
        except Exception as error:
            if self.over.is_set():
                raise
            link.fail(error)
            log.exception(event, link=link.name)
