"""
Runs `eomirror verify` as a Spark batch job: one job, with a task for each group of partitions.

Partitions are grouped by the amount of data to read, so that tasks end at about the same time; there are as many tasks
as the context has slots.  A task compares its partitions one after the other with two connections, in the same bounded
memory as a comparison in one process.  Like a lane's, its closure is compressed and carries references instead of
secrets to other machines (`eomirror.spark.task`).  Records never enter the JVM.
"""

from __future__ import annotations

import os
import pickle
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.config.carried import CarriedCluster, carried_link, resolved_link
from eomirror.errors import MirrorError
from eomirror.spark.transport import is_local

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.verify.verdict import PartitionVerdict, Scope

__all__ = ["SparkComparison", "deal"]


def deal(scopes: Sequence[Scope], groups: int) -> list[list[tuple[int, Scope]]]:
    """
    Distributes partitions over at most ``groups`` groups of about equal work, each with its index in ``scopes``.

    In descending size, each partition goes to the group with the least work; an empty partition counts as 1, for its
    round trip.
    """
    hands: list[list[tuple[int, Scope]]] = [[] for _ in range(max(1, min(groups, len(scopes))))]
    loads = [0] * len(hands)
    for place, one in sorted(enumerate(scopes), key=lambda each: -_offsets(each[1])):
        least = loads.index(min(loads))
        hands[least].append((place, one))
        loads[least] += _offsets(one) + 1
    return [hand for hand in hands if hand]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """Common input of all tasks."""

    link: Link
    source: CarriedCluster
    target: CarriedCluster
    ids: tuple[str, str]
    show: int
    most_keys: int
    native: bool


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Function of a task: compares the partitions of its groups."""

    packed: bytes

    def __call__(
        self, groups: Iterable[list[tuple[int, Scope]]]
    ) -> Iterator[tuple[int, PartitionVerdict | MirrorError]]:
        """Yields each verdict with the index of its partition; the first error ends the task."""
        # clients must not be imported in the daemon from which PySpark forks its workers
        from eomirror.verify.partition import Comparer

        work = pickle.loads(zlib.decompress(self.packed))  # noqa: S301  came in the same closure as this code's name
        # read all input first: a worker with unread input exits, and the next task needs a new one
        dealt = [each for group in list(groups) for each in group]
        place = -1
        try:
            comparer = Comparer(
                resolved_link(work.link, os.environ),
                work.source.resolve(os.environ),
                work.target.resolve(os.environ),
                work.ids,
                show=work.show,
                most_keys=work.most_keys,
                native=work.native,
            )
            try:
                for place, one in dealt:
                    yield place, comparer.verdict(one, comparer.compare(one))
            finally:
                comparer.close()
        except MirrorError as error:
            # yielded as a value: of a failed job only the text would remain
            yield place, error


class SparkComparison:
    """
    Compares partitions of one link on a Spark context.

    Args:
        context: The ``SparkContext``.
        link: Link to compare.
        source: Source cluster of the link.
        target: Target cluster of the link.
        ids: Ids of both clusters.
        show: Number of differences per partition for which the records are fetched.
        most_keys: Keys of a compacted partition that a task keeps in memory.
        native: True to read with the native plane.
    """

    def __init__(
        self,
        context: Any,
        link: Link,
        source: Cluster,
        target: Cluster,
        ids: tuple[str, str],
        *,
        show: int,
        most_keys: int,
        native: bool,
    ) -> None:
        self._context = context
        self._name = link.name
        ends = [
            CarriedCluster(cluster, ()) if is_local(context.master) else CarriedCluster.of(cluster)
            for cluster in (source, target)
        ]
        if not is_local(context.master):
            link = carried_link(link)
        work = _Work(
            link=link, source=ends[0], target=ends[1], ids=ids, show=show, most_keys=most_keys, native=native
        )
        self._packed = zlib.compress(pickle.dumps(work, protocol=pickle.HIGHEST_PROTOCOL), 1)

    def __call__(self, scopes: Sequence[Scope]) -> list[PartitionVerdict]:
        """
        Returns the verdicts, in the order of their scopes.

        Raises:
            MirrorError: A partition could not be compared, or the job failed.
        """
        groups = deal(scopes, self._context.defaultParallelism)
        if not groups:
            return []
        self._context.setJobGroup(
            f"eomirror/{self._name}/verify",
            f"eomirror {self._name}: verify {len(scopes)} partitions in {len(groups)} tasks",
        )
        try:
            rows = self._context.parallelize(groups, len(groups)).mapPartitions(VerifyTask(self._packed))
            found: list[tuple[int, Any]] = rows.collect()
        except Exception as error:
            # py4j, pyspark and socket errors
            raise MirrorError(
                f"link {self._name}: the comparison on spark failed: {_first_line(error)}",
                fix="check the log of the executors, or leave out --master to compare in this process",
            ) from error
        for _, each in found:
            if isinstance(each, MirrorError):
                raise each
        return [verdict for _, verdict in sorted(found, key=lambda each: each[0])]

    @property
    def description(self) -> str:
        """Master and number of concurrent tasks, for people."""
        return f"{self._context.master}, {self._context.defaultParallelism} tasks at a time"


def _offsets(one: Scope) -> int:
    return max(one.source.tail - one.source.start, 0) + max(one.target.tail - one.target.start, 0)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
