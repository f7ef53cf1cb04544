"""
Consumer groups of one cluster: who they are, what they have committed, and setting that for groups that are idle.

librdkafka (2.16) takes one group per call, so that many calls are under way at a time.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import admin_properties
from eomirror.errors import DifferenceError
from eomirror.kafka.classify import Action, Right, classify_admin, to_mirror_error
from eomirror.kafka.client_log import ClientLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.errors import MirrorError

__all__ = ["GroupOffsets", "GroupState"]

_SECONDS = 30.0
_AT_A_TIME = 500
_PAUSE_SECONDS = 0.2

# in these states a group has no members, and its offsets may be set from outside
_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})


@dataclass(frozen=True, slots=True)
class GroupState:
    """
    A group as its coordinator describes it.

    Attributes:
        name: Of the state, such as ``EMPTY``; ``DEAD`` for a group that does not exist.
        members: How many it has.
        idle: Whether its offsets may be set.
    """

    name: str
    members: int
    idle: bool


class GroupOffsets:
    """
    Asks the coordinators of one cluster.

    Args:
        cluster: The cluster.
        client_id: What brokers see.
        clock: Where time comes from.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._alias = cluster.alias
        self._clock = clock
        self._client: Any = AdminClient(
            admin_properties(cluster, client_id=client_id) | {"logger": ClientLog(cluster=cluster.alias)}
        )

    def names(self) -> list[str]:
        """
        Every consumer group that we may describe, sorted; groups of other kinds, such as Connect's, are none.

        Raises:
            ClusterError: A broker does not answer: groups of its would be missing.
        """
        try:
            found = self._client.list_consumer_groups(request_timeout=_SECONDS).result(_SECONDS + 1)
        except (KafkaException, FutureTimeoutError) as raised:
            raise self._error(raised, "list groups") from raised
        for error in found.errors:
            raise self._error(error, "list groups")
        return sorted(group.group_id for group in found.valid)

    def committed(self, groups: Iterable[str]) -> dict[str, dict[tuple[str, int], int]]:
        """
        What groups have committed; partitions without an offset are left out.

        Raises:
            AuthorizationError: We may not read a group.
            ClusterError: A coordinator does not answer.
        """
        found: dict[str, dict[tuple[str, int], int]] = {}
        waiting = list(groups)
        deadline = Deadline(_SECONDS, self._clock)
        while waiting:
            # a coordinator that has just moved, or a consumer's own transaction that is about to end
            held = [group for batch in _batches(waiting) for group in self._ask(batch, found, deadline)]
            if held:
                self._clock.sleep(_PAUSE_SECONDS)
            waiting = held
        return found

    def _ask(
        self, batch: list[str], found: dict[str, dict[tuple[str, int], int]], deadline: Deadline
    ) -> list[str]:
        """Ask once for each group; those that have to be asked again."""
        futures = {
            group: self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], require_stable=True, request_timeout=_SECONDS
            )[group]
            for group in batch
        }
        held = []
        for group, future in futures.items():
            doing = f"read the offsets of group {group}"
            try:
                found[group] = _offsets(future.result(_SECONDS + 1))
            except (KafkaException, FutureTimeoutError) as raised:
                if deadline.passed or not _passes(raised):
                    raise self._error(raised, doing, group) from raised
                held.append(group)
        return held

    def states(self, groups: Iterable[str]) -> dict[str, GroupState]:
        """
        Whether groups are in use; one that does not exist is idle.

        Raises:
            AuthorizationError: We may not describe a group.
            ClusterError: A coordinator does not answer.
        """
        found: dict[str, GroupState] = {}
        for batch in _batches(list(groups)):
            futures = self._client.describe_consumer_groups(batch, request_timeout=_SECONDS)
            for group, future in futures.items():
                try:
                    answer = future.result(_SECONDS + 1)
                except (KafkaException, FutureTimeoutError) as raised:
                    code = raised.args[0].code() if isinstance(raised, KafkaException) else None
                    if code == KafkaError.GROUP_ID_NOT_FOUND:
                        found[group] = GroupState("DEAD", 0, idle=True)
                        continue
                    raise self._error(raised, f"describe group {group}", group) from raised
                members = len(answer.members)
                found[group] = GroupState(
                    answer.state.name, members, idle=answer.state in _IDLE and members == 0
                )
        return found

    def write(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """
        Commit offsets for a group, all in one request: the coordinator takes all of them or, before any, refuses.

        Raises:
            DifferenceError: The group has members: only they may commit for it.
            AuthorizationError: We may not.
            ClusterError: The coordinator does not answer; the offsets may have been taken.
        """
        wanted = [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        future = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=_SECONDS
        )[group]
        doing = f"set the offsets of group {group}"
        try:
            answer = future.result(_SECONDS + 1)
        except (KafkaException, FutureTimeoutError) as raised:
            code = raised.args[0].code() if isinstance(raised, KafkaException) else None
            if code in {
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.NON_EMPTY_GROUP,
                KafkaError.ILLEGAL_GENERATION,
            }:
                raise DifferenceError(
                    f"group {group} of {self._alias} has members: only they may commit for it",
                    fix="stop its consumers, then repeat this",
                ) from raised
            raise self._error(raised, doing, group) from raised
        for each in answer.topic_partitions:
            if each.error is not None:
                raise self._error(each.error, f"{doing} in {each.topic}-{each.partition}", group)

    def close(self) -> None:
        """Let go of the client."""
        self._client = None

    def _error(self, raised: Exception | KafkaError, doing: str, group: str = "") -> MirrorError:
        if isinstance(raised, KafkaException):
            raised = raised.args[0]
        error = raised if isinstance(raised, KafkaError) else KafkaError(KafkaError._TIMED_OUT)
        right = Right("Describe", "group", group) if group else None
        return to_mirror_error(error, doing=doing, cluster=self._alias, right=right)


def _offsets(answer: Any) -> dict[tuple[str, int], int]:
    for each in answer.topic_partitions:
        if each.error is not None:
            raise KafkaException(each.error)
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions if each.offset >= 0}


def _passes(raised: Exception) -> bool:
    if not isinstance(raised, KafkaException):
        return False
    error: KafkaError = raised.args[0]
    return error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT or classify_admin(error).action is Action.RETRY


def _batches(groups: Sequence[str]) -> Iterable[list[str]]:
    for begin in range(0, len(groups), _AT_A_TIME):
        yield list(groups[begin : begin + _AT_A_TIME])
