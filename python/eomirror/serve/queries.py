"""
Questions that the polled state does not answer: readiness, offsets of groups, and the translation of one offset.

They are answered on request, from the clusters.  One thread computes each kind of answer of a link at a time, however
many clients ask, and an answer is given again for some seconds, so a page that is open costs the clusters little.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import MirrorError
from eomirror.failover.facts import read_facts, source_answers
from eomirror.failover.machine import Verb
from eomirror.failover.readiness import assess
from eomirror.groups import translate

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config

__all__ = ["LinkQueries"]

log = structlog.get_logger(__name__)

#: An answer is given again for this time after it was found.
KEPT_SECONDS = 15.0
# a request waits this long, and is then told that the answer is on its way
_PATIENCE_SECONDS = 8.0
_MOST_KEPT = 200
_MOST_PENDING = 4


class LinkQueries:
    """
    Answers questions about links.  Thread-safe.

    Args:
        config: The configuration.
        clock: Source of time.
    """

    def __init__(self, config: Config, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._answers: dict[tuple[Any, ...], tuple[float, Future[dict[str, Any]]]] = {}
        self._found_at: dict[tuple[Any, ...], float] = {}
        self._pending = 0

    def readiness(self, link: str) -> dict[str, Any]:
        """
        Returns the checks of a link for a planned promotion and for a failover, and its groups.

        Args:
            link: Name of a configured link.

        Returns:
            ``planned`` and ``failover`` (fields of `eomirror.failover.readiness.Readiness`); or ``error`` and ``fix``;
            or ``pending``, if the answer is not known yet.
        """
        return self._ask(("readiness", link), lambda: self._readiness(link))

    def offset(
        self, link: str, topic: str, partition: int, offset: int, *, reverse: bool = False
    ) -> dict[str, Any]:
        """
        Returns the offset of a record on the other side of a link.

        Args:
            link: Name of a configured link.
            topic: Topic of the source; of the target with ``reverse``.
            partition: Its partition.
            offset: Next offset to read there.
            reverse: From target to source.

        Returns:
            ``offsets`` (fields of `eomirror.groups.Translation`), or as `readiness`.
        """

        def find() -> dict[str, Any]:
            found = translate(
                self._config, topic=topic, partition=partition, offset=offset, reverse=reverse, link=link
            )
            return {"offsets": [each.as_dict() for each in found]}

        return self._ask(("offset", link, topic, partition, offset, reverse), find)

    def _readiness(self, name: str) -> dict[str, Any]:
        link = self._config.link(name)
        answers = source_answers(self._config, link)
        facts = read_facts(self._config, link, answers=answers, clock=self._clock)
        return {
            "planned": assess(facts, Verb.PROMOTE).as_dict(),
            "failover": assess(facts, Verb.FAILOVER, force=True).as_dict(),
        }

    def _ask(self, key: tuple[Any, ...], find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        now = self._clock.monotonic()
        with self._lock:
            at, future = self._answers.get(key, (float("-inf"), None))
            if future is None or (future.done() and now - self._found_at.get(key, at) > KEPT_SECONDS):
                if self._pending >= _MOST_PENDING:
                    return {"pending": True}
                self._pending += 1
                at, future = now, Future()
                self._answers.pop(key, None)
                self._answers[key] = at, future
                if len(self._answers) > _MOST_KEPT:
                    oldest = next(iter(self._answers))
                    del self._answers[oldest]
                    self._found_at.pop(oldest, None)
                # a daemon: a question must not hold up the end of the process
                threading.Thread(
                    target=self._find, args=(key, find, future), name="query", daemon=True
                ).start()
        try:
            found = future.result(_PATIENCE_SECONDS)
        except FutureTimeoutError:
            return {"pending": True}
        with self._lock:
            found_at = self._found_at.get(key, at)
        return {**found, "age_seconds": round(max(0.0, self._clock.monotonic() - found_at), 1)}

    def _find(
        self, key: tuple[Any, ...], find: Callable[[], dict[str, Any]], future: Future[dict[str, Any]]
    ) -> None:
        try:
            found = find()
        except MirrorError as error:
            found = {"error": error.message, "fix": error.fix}
            if error.missing_rights:
                found["missing_rights"] = list(error.missing_rights)
        except Exception as error:
            log.exception("question_not_answered", question=key[0], link=key[1])
            found = {
                "error": f"asking fails: {type(error).__name__}",
                "fix": "report this as a bug, with the log",
            }
        with self._lock:
            self._pending -= 1
            # its age counts from here: clusters that are away take seconds
            self._found_at[key] = self._clock.monotonic()
        future.set_result(found)
