"""
Compares what a link has mirrored with its source, before a planned promotion.

The tail is a number of source offsets before each position.  A time would not bound it: timestamps are the producers',
and records that were mirrored a second ago may carry those of last year.
"""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING, Final

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import DifferenceError
from eomirror.failover.facts import mirrored
from eomirror.failover.readiness import Verified
from eomirror.kafka.session import ClusterSession
from eomirror.link.state import LinkState, history_of
from eomirror.records.names import LinkNames
from eomirror.verify.report import record, tail_records, verifications
from eomirror.verify.runner import Verifier
from eomirror.verify.scope import RequestedRange, with_origins
from eomirror.verify.verdict import are

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Config, Link
    from eomirror.records.promotion import PromotionHistory
    from eomirror.types import SourcePartition
    from eomirror.verify.verdict import LinkVerdict

__all__ = ["TAIL_OFFSETS", "CopyComparison", "tail_starts", "verified", "verify_copies"]

#: Source offsets of each partition that a planned promotion compares by default.
TAIL_OFFSETS: Final = 10_000


def tail_starts(
    positions: Mapping[SourcePartition, int], history: PromotionHistory, tail: int
) -> dict[SourcePartition, int]:
    """
    Returns the first source offset to compare of each partition.

    It is never before the offset at which the link began to mirror again after a promotion: the copies hold what
    applications wrote there in between.

    Args:
        positions: Next source offset of each partition.
        history: Promotions of the link.
        tail: Offsets before the position.
    """
    returned: dict[SourcePartition, int] = {}
    for _, resumption in sorted(history.resumptions.items()):
        returned.update(resumption.starts)
    return {
        source: max(0, position - tail, returned.get(source, 0)) for source, position in positions.items()
    }


def verify_copies(
    config: Config, link: Link, *, tail: int | None = TAIL_OFFSETS, clock: Clock = SYSTEM_CLOCK
) -> None:
    """
    Compares source and copies up to the positions.

    Args:
        tail: Only so many source offsets before each position; None for all.

    Raises:
        DifferenceError: They differ, or could not be compared whole.
        ClusterError: A cluster does not answer.
    """
    CopyComparison(config, tail=tail, clock=clock).compare(link)


class CopyComparison:
    """
    Comparison of source and copies before a planned promotion, with a result that can be recorded.

    Args:
        config: Configuration of the mirror.
        tail: Only so many source offsets before each position; None for all.
    """

    def __init__(
        self, config: Config, *, tail: int | None = TAIL_OFFSETS, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._config = config
        self._tail = tail
        self._clock = clock
        self._result: tuple[Link, RequestedRange, LinkVerdict] | None = None

    def compare(self, link: Link) -> None:
        """Compares the copies of a link; raises as `verify_copies`."""
        config, clock = self._config, self._clock
        clusters = config.clusters[link.source], config.clusters[link.target]
        bound = (
            RequestedRange()
            if self._tail is None
            else RequestedRange(from_offsets=_tail(link, config, self._tail, clock))
        )
        with closing(Verifier(with_origins(link, config.clusters), *clusters, clock=clock)) as verifier:
            verdict = verifier.run(bound=bound)
        self._result = link, bound, verdict
        if verdict.differs or not verdict.whole:
            names = [
                f"{partition.scope.source.topic}-{partition.scope.source.partition}: "
                f"{partition.changed or partition.word}"
                for partition in verdict.partitions
                if partition.differs or not partition.whole
            ]
            raise DifferenceError(
                f"link {link.name}: source and copies {are(verdict.word)}: {', '.join(names[:3])}",
                fix="`eomirror verify CONFIG` shows the differences; to promote all the same: --verify skip",
            )

    def record(self, command: str) -> str:
        """
        Records the last result on the target, where status, page and metrics show it.

        It is called after the promotion: applications stand still while the copies are compared.

        Args:
            command: Name of the command.

        Returns:
            Reason that it was not recorded; empty if it was, or if nothing was compared.
        """
        if self._result is None:
            return ""
        link, bound, verdict = self._result
        host, now_ms = socket.gethostname(), self._clock.wall_ms()
        if self._tail is None:
            whole = verifications(verdict, bound, host=host, now_ms=now_ms)
            return record(self._config, link, whole) if whole else ""
        found = tail_records(verdict, bound, tail=self._tail, command=command, host=host, now_ms=now_ms)
        return record(self._config, link, found) if found else ""


def verified(
    config: Config, link: Link, *, tail: int | None = TAIL_OFFSETS, clock: Clock = SYSTEM_CLOCK
) -> Verified:
    """
    Returns the result of `verify_copies`, and its duration.

    Raises:
        ClusterError: A cluster does not answer.
    """
    began = clock.monotonic()
    scope = "all records" if tail is None else f"the last {tail} offsets of each partition"
    problem = ""
    try:
        verify_copies(config, link, tail=tail, clock=clock)
    except DifferenceError as error:
        problem = error.message
    return Verified(clock.monotonic() - began, scope, problem)


def _tail(link: Link, config: Config, tail: int, clock: Clock) -> dict[SourcePartition, int]:
    client_id = LinkNames(link.state_name).client_id("verify")
    with closing(ClusterSession(config.clusters[link.target], client_id=client_id, clock=clock)) as target:
        state = LinkState(link, target)
        control = state.control(wait_for_open=False)
        positions = mirrored(link, state.positions(wait_for_open=False, overruled=()), control)
        offsets = {source: position.offset for source, position in positions.items()}
        return tail_starts(offsets, history_of(link, target), tail)
