"""Reads both clusters again, when all is over, and compares; shares no code with the mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.demo.clients import Offsets, read_partition
from eomirror.demo.compare import Comparison, Revision, compare_partition

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.demo.watch import TopicWatcher

__all__ = ["judge"]


def judge(
    source: dict[str, str],
    target: dict[str, str],
    topic: str,
    copies: dict[str, TopicWatcher],
    partitions: int,
    *,
    on_partition: Callable[[int], None] = lambda _: None,
) -> dict[str, tuple[Comparison, Revision]]:
    """
    Read source and copies again with read_committed consumers and compare, one partition after the other.

    Args:
        copies: By topic on the target, the watcher that read along.
        on_partition: Told how many partitions are done.

    Returns:
        By topic: how the copy differs, and how what the watcher saw differs from what lies there now.
    """
    found = {copy: (Comparison(), Revision()) for copy in copies}
    source_ends = Offsets(source).settled_ends(topic, partitions)
    target_ends = {copy: Offsets(target).settled_ends(copy, partitions) for copy in copies}
    for number in range(partitions):
        original = list(read_partition(source, topic, number, source_ends[number]))
        for copy, watcher in copies.items():
            records = list(read_partition(target, copy, number, target_ends[copy][number]))
            comparison, revision = found[copy]
            found[copy] = (
                comparison.plus(compare_partition(number, original, records)),
                revision.plus(watcher.histories[number].revised(records)),
            )
        on_partition(number + 1)
    return found
