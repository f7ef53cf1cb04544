"""Compares what a link has mirrored with its source, before a planned promotion."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import DifferenceError
from eomirror.verify.origins import with_origins
from eomirror.verify.runner import Verifier
from eomirror.verify.scope import Bound

if TYPE_CHECKING:
    from eomirror.config import Config, Link

__all__ = ["verify_copies"]


def verify_copies(config: Config, link: Link, *, seconds: float | None, clock: Clock = SYSTEM_CLOCK) -> None:
    """
    Compares source and copies up to the positions.

    Args:
        config: Configuration of the mirror.
        link: The link.
        seconds: Only records whose timestamps are not older; None for all.

    Raises:
        DifferenceError: They differ, or could not be compared whole.
        ClusterError: A cluster does not answer.
    """
    since = None if seconds is None else max(0, clock.wall_ms() - int(seconds * 1000))
    clusters = config.clusters[link.source], config.clusters[link.target]
    with closing(Verifier(with_origins(link, config.clusters), *clusters, clock=clock)) as verifier:
        verdict = verifier.run(bound=Bound(since_ms=since))
    if verdict.differs or not verdict.whole:
        names = [
            f"{partition.scope.source.topic}-{partition.scope.source.partition}: {partition.word}"
            for partition in verdict.partitions
            if partition.differs or not partition.whole
        ]
        raise DifferenceError(
            f"link {link.name}: source and copies are {verdict.word}: {', '.join(names[:3])}",
            fix="`eomirror verify CONFIG` shows the differences; to promote all the same: --verify skip",
        )
