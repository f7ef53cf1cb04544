"""
Reads what a planned promotion decides on after its check, for a dry run: the real one waits, and a dry run must not.

The real one drains the source, compares the tail, and fences.  A dry run looks at the same facts once: records that
keep arriving, the comparison of the copies, what the fence would do, and transactions that stayed open meanwhile.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import DifferenceError, MirrorError
from eomirror.failover.readiness import QUIET_SECONDS, Verified
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.log_ends import existing_ends
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Config, Link
    from eomirror.failover.readiness import Facts

__all__ = ["planned_facts"]


def planned_facts(
    config: Config,
    link: Link,
    facts: Facts,
    *,
    verify: Callable[[], None] | None,
    fence: Callable[[], str] | None,
    clock: Clock,
) -> Facts:
    """
    Returns the facts with those of a planned promotion.

    Args:
        facts: Facts of a link whose source answers.
        verify: Compares the copies; raises if they differ.  None to leave that out.
        fence: Tells what the fence would do; raises if it cannot be set.  None for no fence.

    Raises:
        ClusterError: The source does not answer any more.
    """
    mirrored = [
        SourcePartition(item.topic, item.partition)
        for item in facts.status.partitions
        if not item.parked and item.source_lso is not None and item.topic != link.target_naming.heartbeats
    ]
    client_id = LinkNames(link.state_name).client_id("readiness")
    with closing(ClusterAdmin(config.clusters[link.source], client_id=client_id, clock=clock)) as admin:

        def ends() -> Mapping[tuple[str, int], int]:
            return existing_ends(admin, mirrored, read_committed=False)

        before = ends()
        clock.sleep(QUIET_SECONDS)
        after = ends()
    facts = replace(
        facts,
        moving=tuple(str(source) for source in mirrored if before.get(source) != after.get(source)),
    )
    if fence is not None:
        try:
            facts = replace(facts, fence=fence())
        except MirrorError as error:
            facts = replace(facts, fence_problem=error.message, fence_fix=error.fix)
    if verify is not None:
        facts = replace(facts, verified=_compared(verify, clock))
    # last, so that a transaction which ends soon has had the time
    return replace(facts, held=_held(config, link, facts, clock))


def _held(config: Config, link: Link, facts: Facts, clock: Clock) -> tuple[str, ...]:
    """Returns the partitions whose open transactions of the check are still the first ones."""
    opened = {SourcePartition(topic, number): stable for topic, number, stable, _ in facts.open_transactions}
    if not opened:
        return ()
    client_id = LinkNames(link.state_name).client_id("readiness")
    with closing(ClusterAdmin(config.clusters[link.source], client_id=client_id, clock=clock)) as admin:
        found = existing_ends(admin, list(opened), read_committed=True)
    return tuple(str(source) for source, stable in sorted(opened.items()) if found.get(source) == stable)


def _compared(verify: Callable[[], None], clock: Clock) -> Verified:
    began = clock.monotonic()
    problem = ""
    try:
        verify()
    except DifferenceError as error:
        problem = error.message
    return Verified(clock.monotonic() - began, "what --verify asks for", problem)
