"""
Consumer groups of one cluster: who there is, where they stand, and how to move one that is idle.

A group's offsets are fetched with one request each (confluent-kafka asks for no more), many of them on their way at
a time.  All offsets of a group are written with one OffsetCommit, which a coordinator appends as one batch: all of them
or none.  It refuses the request for a group with members, so that one that wakes up meanwhile is safe.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from eomirror.config.clients import admin_properties
from eomirror.kafka.classify import to_mirror_error
from eomirror.kafka.client_log import ClientLog
from eomirror.sync.groups import Committed, TargetGroup

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eomirror.config import Cluster

__all__ = ["ClusterGroups"]

log = structlog.get_logger(__name__)

_SECONDS = 20.0
# requests on their way at a time; brokers answer them from memory
_AT_ONCE = 200
_DAY_SECONDS = 86_400.0


class ClusterGroups:
    """
    Groups of one cluster.

    Args:
        cluster: The cluster.
        client_id: What brokers see.
    """

    def __init__(self, cluster: Cluster, *, client_id: str) -> None:
        self._cluster = cluster
        self._client: Any = AdminClient(
            {**admin_properties(cluster, client_id=client_id), "logger": ClientLog(cluster=cluster.alias)}
        )

    def names(self) -> tuple[list[str], bool]:
        """
        Every consumer group that we may see, of the classic and of the consumer protocol (KIP-848).

        Returns:
            Them, sorted; and whether every broker has answered.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        self._client.poll(0)
        try:
            found = self._client.list_consumer_groups(request_timeout=_SECONDS).result(_SECONDS + 1)
        except (KafkaException, TimeoutError) as raised:
            raise self._error(raised, "list consumer groups") from raised
        for error in found.errors:
            # one broker of several: its groups are missing this time
            log.info("groups_of_a_broker_unknown", cluster=self._cluster.alias, reason=str(error))
        return sorted({one.group_id for one in found.valid}), not found.errors

    def shared(self) -> list[str]:
        """
        Share groups (KIP-932), which have no offsets that could be followed.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        try:
            # what confluent-kafka calls deprecated is its only call that tells share groups
            warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
            found = self._client.list_groups(timeout=_SECONDS)
        except KafkaException as raised:
            raise self._error(raised, "list groups") from raised
        return sorted(group.id for group in found if group.protocol_type == "share")

    def committed(
        self, groups: Sequence[str]
    ) -> Iterator[tuple[str, Mapping[tuple[str, int], Committed] | str]]:
        """
        Where groups stand, by topic and partition; or why that is not known.

        Raises:
            MirrorError: The cluster refuses us as a whole.
        """
        for begin in range(0, len(groups), _AT_ONCE):
            asked = [(group, self._ask(group)) for group in groups[begin : begin + _AT_ONCE]]
            for group, future in asked:
                yield group, _offsets(future)

    def states(self, groups: Sequence[str]) -> dict[str, str]:
        """
        State of each group, in lower case; ``dead`` for one that does not exist.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        if not groups:
            return {}
        try:
            futures = self._client.describe_consumer_groups(list(groups), request_timeout=_SECONDS)
        except KafkaException as raised:
            raise self._error(raised, "describe groups") from raised
        states = {}
        for group, future in futures.items():
            try:
                found = future.result(_SECONDS + 1)
            except (KafkaException, TimeoutError) as raised:
                if _code(raised) == KafkaError.GROUP_ID_NOT_FOUND:
                    states[group] = "dead"
                    continue
                raise self._error(raised, f"describe group {group}") from raised
            states[group] = found.state.name.lower()
        return states

    def look(self, groups: Sequence[str]) -> dict[str, TargetGroup]:
        """
        State and offsets of groups; a group whose offsets cannot be read now is left out.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        states = self.states(groups)
        found = {}
        for group, offsets in self.committed(groups):
            if isinstance(offsets, str):
                log.info("group_not_read", cluster=self._cluster.alias, group=group, reason=offsets)
                continue
            plain = {where: one.offset for where, one in offsets.items()}
            found[group] = TargetGroup(states[group], plain)
        return found

    def write(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        """
        Commit offsets for a group without members, all in one request; why that was refused, empty if it was not.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        wanted = [
            TopicPartition(topic, number, one.offset, metadata=one.metadata)
            for (topic, number), one in offsets.items()
        ]
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        try:
            futures = self._client.alter_consumer_group_offsets(request, request_timeout=_SECONDS)
            answer = next(iter(futures.values())).result(_SECONDS + 1)
        except (KafkaException, TimeoutError) as raised:
            if _code(raised) in {
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.NON_EMPTY_GROUP,
                KafkaError.STALE_MEMBER_EPOCH,
            }:
                return "it has members on the target"
            raise self._error(raised, f"commit offsets of group {group}") from raised
        refused: Iterable[str] = (
            f"{one.topic}-{one.partition}: {one.error.str()}" for one in answer.topic_partitions if one.error
        )
        return next(iter(refused), "")

    def retention_seconds(self) -> float:
        """How long brokers keep offsets of a group without members; a day where they do not say."""
        try:
            broker = next(iter(self._client.list_topics(timeout=_SECONDS).brokers))
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            future = self._client.describe_configs([resource], request_timeout=_SECONDS)[resource]
            return 60.0 * int(future.result(_SECONDS + 1)["offsets.retention.minutes"].value)
        except (KafkaException, TimeoutError, KeyError, StopIteration) as raised:
            log.info("offset_retention_unknown", cluster=self._cluster.alias, reason=str(raised))
            return _DAY_SECONDS

    def close(self) -> None:
        """Let go of the client."""
        del self._client

    def _ask(self, group: str) -> Any:
        request = [ConsumerGroupTopicPartitions(group)]
        try:
            return self._client.list_consumer_group_offsets(request, request_timeout=_SECONDS)[group]
        except KafkaException as raised:
            raise self._error(raised, f"read the offsets of group {group}") from raised

    def _error(self, raised: Exception, doing: str) -> Exception:
        error = raised.args[0] if isinstance(raised, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        return to_mirror_error(error, doing=doing, cluster=self._cluster.alias)


def _offsets(future: Any) -> Mapping[tuple[str, int], Committed] | str:
    try:
        answer = future.result(_SECONDS + 1)
    except (KafkaException, TimeoutError) as raised:
        return str(raised.args[0].str()) if isinstance(raised, KafkaException) else "no answer in time"
    found = {}
    for one in answer.topic_partitions:
        if one.error is not None:
            return str(one.error.str())
        if one.offset >= 0:
            found[one.topic, one.partition] = Committed(int(one.offset), one.metadata or "")
    return found


def _code(raised: Exception) -> int:
    return int(raised.args[0].code()) if isinstance(raised, KafkaException) else int(KafkaError._TIMED_OUT)
