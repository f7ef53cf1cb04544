"""
Consumer groups of one cluster, read in a separate process.

librdkafka (2.16) ends the process when a coordinator moves while it reads the offsets of a group.  It takes an answer
of ``NOT_COORDINATOR``, or a connection that breaks at the wrong moment, as news for the consumer group that it is a
member of, and an AdminClient is a member of none (librdkafka issue 5040; its issue 4605 and pull request 5397 are a
similar crash, after a request timeout).  A mirror reads offsets every second, and rolling restarts move coordinators.
So the AdminClient lives in a process that may die (`eomirror.kafka.isolated_process`).

Reads are retried in a new process.  Writes are not: the coordinator may have executed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import ClusterError
from eomirror.kafka.consumer_groups import GroupCoordinators, GroupState, Offsets, batches
from eomirror.kafka.isolated_process import DiedError, IsolatedObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.kafka.consumer_groups import Committed, Row, TargetGroup

__all__ = ["ClusterGroups", "GroupState"]

log = structlog.get_logger(__name__)

# a coordinator moves within seconds; the pauses between add up to 6 s
_TRIES = 6
_PAUSE_SECONDS = 0.2
_FIX = (
    "a running mirror retries automatically, a command can be repeated; SIGSEGV and SIGABRT are a defect of "
    "librdkafka (its issue 5040) while coordinators move, and not in your configuration"
)


class ClusterGroups:
    """
    Sends requests to the coordinators of one cluster like `GroupCoordinators`, which documents the methods.

    Args:
        coordinators: Creates the object in the other process; for tests.

    Raises:
        ClusterError: From every method, besides its own errors: the other process died.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        clock: Clock = SYSTEM_CLOCK,
        coordinators: Callable[[Cluster, str], Any] = GroupCoordinators,
    ) -> None:
        self._alias = cluster.alias
        self._clock = clock
        self._isolated = IsolatedObject(coordinators, cluster, client_id)

    def names(self, *, strict: bool) -> tuple[list[str], bool]:
        """Returns every visible consumer group, sorted; and whether every broker has answered."""
        return cast("tuple[list[str], bool]", self._read("list consumer groups", "names", strict=strict))

    def listed_states(self) -> dict[str, str]:
        """Returns the state of every visible consumer group, as brokers list it; ``UNKNOWN`` if they do not."""
        return cast("dict[str, str]", self._read("list consumer groups", "listed_states"))

    def shared(self) -> list[str]:
        """Returns share groups (KIP-932) and streams groups (KIP-1071), sorted."""
        return cast("list[str]", self._read("list groups", "shared"))

    def read_offsets(self, groups: Sequence[str]) -> Iterator[tuple[str, Offsets | str]]:
        """Yields current offsets of groups, by topic and partition; or the reason why they are unknown."""
        for some in batches(groups):
            yield from self._read("read the offsets of groups", "read_offsets", some)

    def committed(self, groups: Iterable[str]) -> dict[str, Offsets | str]:
        """Returns committed offsets of groups, from transactions too; the reason for a group that is refused."""
        found = self._read("read the offsets of groups", "committed", list(groups))
        return cast("dict[str, Offsets | str]", found)

    def states(self, groups: Iterable[str]) -> dict[str, GroupState]:
        """Returns the states of groups; one that does not exist is idle."""
        return cast("dict[str, GroupState]", self._read("describe groups", "states", list(groups)))

    def describe(self, groups: Sequence[str]) -> dict[str, TargetGroup | str]:
        """Returns states and offsets of groups; the reason for a group that is hidden or unavailable."""
        return cast("dict[str, TargetGroup | str]", self._read("describe groups", "describe", list(groups)))

    def write(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        """Commits offsets for a group without members; returns the reason of a refusal, else empty."""
        return cast("str", self._change(f"commit offsets of group {group}", "write", group, dict(offsets)))

    def write_all(self, wanted: Mapping[str, Sequence[Row]]) -> dict[str, str]:
        """Commits offsets of groups without members; returns the reason of a refusal of each, empty for none."""
        doing = f"commit offsets of {len(wanted)} groups"
        return cast("dict[str, str]", self._change(doing, "write_all", dict(wanted)))

    def delete(self, group: str) -> str:
        """Deletes a group without members; returns the reason of a refusal, else empty."""
        return cast("str", self._change(f"delete group {group}", "delete", group))

    def metadata_limit(self) -> int | None:
        """Returns the UTF-16 units of metadata that brokers take for an offset; None if unknown."""
        return cast("int | None", self._read("describe a broker", "metadata_limit"))

    def retention_seconds(self) -> float:
        """Returns how long brokers keep offsets of a group without members; a day if unknown."""
        return cast("float", self._read("describe a broker", "retention_seconds"))

    def close(self) -> None:
        """Releases the client."""
        self._isolated.close()

    def _read(self, doing: str, method: str, *arguments: Any, **named: Any) -> Any:
        died = 0
        while True:
            try:
                return self._isolated.call(method, *arguments, **named)
            except DiedError as death:
                log.info("group_request_retried", cluster=self._alias, doing=doing, reason=str(death))
                died += 1
                if died == _TRIES:
                    raise ClusterError(
                        f"cluster {self._alias}: cannot {doing}: librdkafka ended its process ({death}), "
                        f"{_TRIES} times",
                        fix=_FIX,
                    ) from None
            self._clock.sleep(_PAUSE_SECONDS * 2 ** (died - 1))

    def _change(self, doing: str, method: str, *arguments: Any) -> Any:
        try:
            return self._isolated.call(method, *arguments)
        except DiedError as death:
            raise ClusterError(
                f"cluster {self._alias}: cannot tell whether it took the request to {doing}: "
                f"librdkafka ended its process ({death})",
                fix=_FIX,
            ) from None
