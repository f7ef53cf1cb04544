"""
Consumer groups of one cluster: lists, describes, reads, alters and deletes them.

librdkafka (2.16) takes one group per request, so many requests are in flight at a time.  All offsets of a group are
written with one OffsetCommit.  A coordinator refuses it for a group with members, so a consumer that starts meanwhile
is safe.  It may also refuse single partitions and commit the others.  Metadata that is too large is left out and the
partition committed; another refusal is told by partition.

There are two kinds of calls.  A command is `strict`: it needs a complete, stable answer or an error.  A follower of
groups is not: one broker or one group may be missing this time, and is read again in a second.

A coordinator that was restarted never answers an AdminClient that was connected to it: librdkafka (2.16) holds the
request back until its timeout, where a new client has the answer at once.  So a client is replaced after a request that
timed out, and a strict call repeats that request.

A mirror never uses this class in its own process: librdkafka may end the process
(`eomirror.kafka.consumer_groups_proxy`).
"""

from __future__ import annotations

import warnings
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import ConfigResource, ResourceType

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import admin_properties
from eomirror.config.rights import Right, account_of, lacking, told
from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.kafka.admin_client import UNANSWERED, error_code
from eomirror.kafka.client_factory import ClientLog, create_client
from eomirror.kafka.errors import Action, classify_admin, said, to_mirror_error, without_values
from eomirror.kafka.exact_admin_client import ExactAdminClient, GroupAnswer, PartitionOffset

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.config import Cluster

__all__ = ["Committed", "GroupCoordinators", "GroupState", "Offsets", "Row", "TargetGroup", "batches"]

log = structlog.get_logger(__name__)

_SECONDS = 30.0
# of a request to a coordinator: a strict call has time for three
_REQUEST_SECONDS = 10.0
# in-flight requests; brokers answer them from memory
_AT_ONCE = 200
_PAUSE_SECONDS = 0.2
# a transaction that is about to end does so within a second
_UNSTABLE_SECONDS = 10.0
_PENDING = "an open transaction holds them: end it (`kafka-transactions.sh find-hanging`, `abort`)"
_DAY_SECONDS = 86_400.0

# in these states a group has no members, and its offsets may be set from outside
_IDLE = frozenset({ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD})
_TOPIC_DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
_TOO_LARGE = KafkaError.OFFSET_METADATA_TOO_LARGE
_HAS_MEMBERS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)

TargetPartition = tuple[str, int]
"""Topic and partition number on the target."""


class Committed(NamedTuple):
    """
    A committed offset of a group.

    Attributes:
        offset: Next offset that it reads.
        metadata: Metadata of the commit.
    """

    offset: int
    metadata: str = ""


Offsets = dict[tuple[str, int], Committed]
"""Committed offsets of one group, by topic and partition."""

Row = tuple[str, int, int, str]
"""Topic, partition, offset and metadata of a commit: reaches another process in a tenth of the time of `Offsets`."""


@dataclass(frozen=True, slots=True)
class TargetGroup:
    """
    A group of the same name on the target.

    Attributes:
        state: Such as ``empty``, ``dead`` (also: does not exist) or ``stable``.
        offsets: Its committed offsets there.
    """

    state: str
    offsets: Mapping[TargetPartition, int]


@dataclass(frozen=True, slots=True)
class GroupState:
    """
    A group as its coordinator describes it.

    Attributes:
        name: Of the state, such as ``EMPTY``; ``DEAD`` for a group that does not exist.
        idle: Whether its offsets may be set.
    """

    name: str
    members: int
    idle: bool


class GroupCoordinators:
    """
    Sends requests to the coordinators of one cluster.

    Reason for its size: one method for each request about groups; the state is that of the client.

    Args:
        seconds: Timeout of a strict call with its repetitions.
        connect: Makes an AdminClient; for tests.
    """

    def __init__(
        self,
        cluster: Cluster,
        client_id: str,
        *,
        seconds: float = _SECONDS,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[], Any] | None = None,
    ) -> None:
        self._alias = cluster.alias
        self._account = account_of(cluster)
        self._seconds = seconds
        self._request_seconds = min(seconds, _REQUEST_SECONDS)
        self._clock = clock
        properties = admin_properties(cluster, client_id=client_id)
        self._connect = connect or (
            lambda: create_client(
                ExactAdminClient, cluster, properties | {"logger": ClientLog(cluster=cluster.alias)}
            )
        )
        self._client: Any = self._connect()
        # True after a request that timed out.
        self._stale = False
        # Groups whose offsets were in an open transaction for as long as a strict call waits.
        self._unstable: set[str] = set()

    def names(self, *, strict: bool) -> tuple[list[str], bool]:
        """
        Returns every visible consumer group, of the classic and of the consumer protocol (KIP-848).

        Groups of other kinds, such as Connect's, are excluded.  The group without a name is excluded too: old clients
        that assigned partitions to themselves commit under it, and librdkafka reads no offsets without a name.

        Args:
            strict: Raise if a broker does not answer: its groups would be missing.

        Returns:
            The names, sorted; and whether every broker has answered.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        found = self._listed(strict=strict)
        return sorted({one.group_id for one in found.valid if one.group_id}), not found.errors

    def listed_states(self) -> dict[str, str]:
        """
        Returns the state of every visible consumer group as brokers list it (KIP-518): one request for each broker.

        A description of 1,000 groups takes a hundred times as long.  Brokers before 2.6 list no states: ``UNKNOWN``.

        Raises:
            MirrorError: A broker does not answer, or refuses us.
        """
        return {one.group_id: one.state.name for one in self._listed(strict=True).valid if one.group_id}

    def _listed(self, *, strict: bool) -> Any:
        client = self._connected()
        client.poll(0)
        try:
            found = client.list_consumer_groups(request_timeout=self._seconds).result(self._seconds + 1)
        except (KafkaException, TimeoutError) as raised:
            raise self._error(raised, "list consumer groups") from raised
        for error in found.errors:
            if strict:
                raise self._error(error, "list consumer groups")
            log.info("groups_of_a_broker_unknown", cluster=self._alias, reason=without_values(str(error)))
        return found

    def shared(self) -> list[str]:
        """
        Returns share groups (KIP-932), which have no offsets to follow, and streams groups (KIP-1071); sorted.

        librdkafka 2.16 reports neither kind: it describes every group with a request that knows classic groups only,
        where these appear dead.  The list of consumer groups excludes them, which distinguishes them from dead consumer
        groups.

        Raises:
            MirrorError: The cluster does not answer, or refuses us.
        """
        try:
            # what confluent-kafka calls deprecated is its only call that tells share groups
            warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)
            found = self._connected().list_groups(timeout=self._seconds)
        except KafkaException as raised:
            raise self._error(raised, "list groups") from raised
        dead = {group.id for group in found if group.state == "Dead" and not group.protocol_type}
        return sorted(dead.difference(self.names(strict=False)[0])) if dead else []

    def read_offsets(self, groups: Sequence[str]) -> list[tuple[str, Offsets | str]]:
        """
        Returns current offsets of groups, by topic and partition; or the reason why they are unknown.

        Raises:
            MirrorError: The cluster refuses us as a whole.
        """
        return [
            (group, answer if isinstance(answer, dict) else self._reason(answer, group))
            for group, answer in self._answers(groups, stable=False)
        ]

    def committed(self, groups: Iterable[str]) -> dict[str, Offsets | str]:
        """
        Returns committed offsets of groups, from transactions too; partitions without an offset are left out.

        A group that is refused has the reason instead, such as offsets in a transaction that stays open.

        Raises:
            AuthorizationError: We may not read any of the groups.
            ClusterError: A coordinator does not answer, or all groups are refused.
        """
        found: dict[str, Offsets | str] = {}
        refused: MirrorError | None = None
        waiting = list(groups)
        deadline = Deadline(self._seconds, self._clock)
        unstable = Deadline(min(self._seconds, _UNSTABLE_SECONDS), self._clock)
        while waiting:
            held = []
            for group, answer in self._answers(waiting, stable=True):
                if isinstance(answer, dict):
                    found[group] = answer
                    self._unstable.discard(group)
                elif error_code(answer) == KafkaError.UNSTABLE_OFFSET_COMMIT:
                    # a consumer's transaction that is about to end, or one that hangs
                    if unstable.passed or group in self._unstable:
                        self._unstable.add(group)
                        found[group] = _PENDING
                    else:
                        held.append(group)
                elif deadline.passed or not (self._is_unanswered(answer) or _passes(answer)):
                    error = self._offsets_error(answer, group)
                    if isinstance(error, UnreachableError):
                        raise error from answer
                    refused = refused or error
                    found[group] = told(error)
                else:
                    # a coordinator that has just moved or restarted
                    held.append(group)
            if held:
                self._clock.sleep(_PAUSE_SECONDS)
            waiting = held
        if refused is not None and not any(isinstance(one, dict) for one in found.values()):
            raise refused
        return found

    def states(self, groups: Iterable[str]) -> dict[str, GroupState]:
        """
        Returns the states of groups; one that does not exist is idle.

        Raises:
            AuthorizationError: We may not describe a group.
            ClusterError: A coordinator does not answer.
        """
        found: dict[str, GroupState] = {}
        for group, state in self._states(groups, strict=True):
            if isinstance(state, MirrorError):
                raise state
            found[group] = state
        return found

    def describe(self, groups: Sequence[str]) -> dict[str, TargetGroup | str]:
        """
        Returns states and offsets of groups; the reason for a group that is hidden or unavailable.

        Raises:
            MirrorError: No coordinator answers, or the cluster refuses us as a whole.
        """
        states: dict[str, GroupState] = {}
        found: dict[str, TargetGroup | str] = {}
        silent: MirrorError | None = None
        for group, state in self._states(groups, strict=False):
            if isinstance(state, MirrorError):
                # a right on this group, or its own coordinator; the others have theirs
                found[group] = told(state)
                if silent is None and not isinstance(state, AuthorizationError):
                    silent = state
            else:
                states[group] = state
        if silent is not None and not states:
            raise silent
        for group, offsets in self.read_offsets(list(states)):
            if isinstance(offsets, str):
                found[group] = f"its offsets there cannot be read: {offsets}"
                continue
            plain = {where: one.offset for where, one in offsets.items()}
            found[group] = TargetGroup(states[group].name.lower(), plain)
        return found

    def write(self, group: str, offsets: Mapping[tuple[str, int], Committed]) -> str:
        """
        Commits offsets for a group without members; returns the reason of a refusal, else empty.

        Raises:
            AuthorizationError: An ACL is missing.
            ClusterError: The coordinator does not answer; the offsets may have been committed.
        """
        rows = [(topic, number, one.offset, one.metadata) for (topic, number), one in offsets.items()]
        found = self._written({group: rows})[group]
        if isinstance(found, MirrorError):
            raise found
        return found

    def write_all(self, wanted: Mapping[str, Sequence[Row]]) -> dict[str, str]:
        """
        Commits offsets for groups without members, in one request a group and many requests at a time.

        Returns:
            For each group the reason of a refusal, empty for none.  After an error of a coordinator the offsets may
            have been committed.
        """
        return {
            group: told(answer) if isinstance(answer, MirrorError) else answer
            for group, answer in self._written(wanted).items()
        }

    def _written(self, wanted: Mapping[str, Sequence[Row]]) -> dict[str, str | MirrorError]:
        """
        Commits, and repeats what a coordinator that moves or restarts did not answer or refused.

        The same offsets may be committed twice: the coordinator refuses them for a group with members.
        """
        found: dict[str, str | MirrorError] = {}
        waiting = dict(wanted)
        deadline = Deadline(self._seconds, self._clock)
        while waiting:
            again: dict[str, Sequence[Row]] = {}
            for batch in batches(list(waiting)):
                asked = [(group, self._sent(group, waiting[group])) for group in batch]
                for group, future in asked:
                    refused, raised = self._outcome(future)
                    large = {where for where, error in refused.items() if error.code() == _TOO_LARGE}
                    if raised is None and not refused:
                        found[group] = ""
                    elif large and large == refused.keys():
                        # the others are committed: what the group has read counts more than its metadata
                        again[group] = self._without_metadata(group, waiting[group], large)
                    elif not deadline.passed and self._may_pass(refused, raised):
                        again[group] = waiting[group]
                    else:
                        found[group] = self._refusal(group, waiting[group], refused, raised)
            if again:
                self._clock.sleep(_PAUSE_SECONDS)
            waiting = again
        return found

    def _without_metadata(
        self, group: str, rows: Sequence[Row], large: Collection[TargetPartition]
    ) -> list[Row]:
        for topic, number, _, metadata in rows:
            if (topic, number) in large:
                log.warning(
                    "group_metadata_left_out",
                    cluster=self._alias,
                    group=group,
                    partition=f"{topic}-{number}",
                    bytes=len(metadata.encode()),
                    fix="raise offset.metadata.max.bytes of its brokers to keep it",
                )
        return [(topic, number, at, "") for topic, number, at, _ in rows if (topic, number) in large]

    def _may_pass(
        self,
        refused: Mapping[TargetPartition, KafkaError],
        raised: KafkaException | TimeoutError | None,
    ) -> bool:
        if raised is not None:
            return self._is_unanswered(raised) or _passes(raised)
        return any(_passes(KafkaException(error)) for error in refused.values())

    def _sent(self, group: str, rows: Sequence[Row]) -> Any:
        """Sends the request; returns its future, which has failed if it could not be sent."""
        # `TopicPartition` refuses a NUL, which clients that end a text with one have committed
        partitions = [PartitionOffset(*row, None) for row in rows]
        request = [GroupAnswer(group, partitions)]
        try:
            return self._connected().alter_consumer_group_offsets(
                request, request_timeout=self._request_seconds
            )[group]
        except KafkaException as raised:
            failed: Future[Any] = Future()
            failed.set_exception(raised)
            return failed

    def _outcome(
        self, future: Any
    ) -> tuple[dict[TargetPartition, KafkaError], KafkaException | TimeoutError | None]:
        """Returns the partitions that were refused, and the error of the whole commit; None for none."""
        try:
            answer = future.result(self._request_seconds + 1)
        except (KafkaException, TimeoutError) as raised:
            return {}, raised
        return {(one.topic, one.partition): one.error for one in answer.topic_partitions if one.error}, None

    def _refusal(
        self,
        group: str,
        rows: Sequence[Row],
        refused: Mapping[TargetPartition, KafkaError],
        raised: KafkaException | TimeoutError | None,
    ) -> str | MirrorError:
        codes = {error.code() for error in refused.values()}
        if (raised is not None and error_code(raised) in _HAS_MEMBERS) or codes & _HAS_MEMBERS:
            return "it has members there: only they may commit for it"
        topics = sorted({topic for topic, _, _, _ in rows})
        doing = f"commit offsets of group {group}"
        if raised is not None:
            return self._error(raised, doing, group, operation="Read", topics=topics)
        denied = {topic for (topic, _), error in refused.items() if error.code() == _TOPIC_DENIED}
        rights = [Right("Read", "topic", topic) for topic in sorted(denied)]
        committed = [f"{topic}-{number}" for topic, number, _, _ in rows if (topic, number) not in refused]
        reasons = [f"{topic}-{number}: {said(error)}" for (topic, number), error in sorted(refused.items())]
        if rights:
            reasons.append(told(lacking("", self._account, rights)))
        return "; ".join(reasons) + (f"; committed: {', '.join(committed)}" if committed else "")

    def metadata_limit(self) -> int | None:
        """Returns the UTF-16 units of metadata that brokers take for an offset; None if unknown."""
        found = self._broker_setting("offset.metadata.max.bytes")
        return None if found is None else int(found)

    def delete(self, group: str) -> str:
        """
        Deletes a group without members, with all of its offsets; returns the reason of a refusal, else empty.

        Raises:
            AuthorizationError: An ACL is missing.
            ClusterError: The coordinator does not answer; the group may have been deleted.
        """
        try:
            futures = self._connected().delete_consumer_groups([group], request_timeout=self._seconds)
            futures[group].result(self._seconds + 1)
        except (KafkaException, TimeoutError) as raised:
            if error_code(raised) == KafkaError.GROUP_ID_NOT_FOUND:
                return ""
            if error_code(raised) in _HAS_MEMBERS:
                return "it has members there"
            doing = f"delete group {group}"
            raise self._error(raised, doing, group, operation="Delete") from raised
        return ""

    def retention_seconds(self) -> float:
        """Returns how long brokers keep offsets of a group without members; a day if unknown."""
        found = self._broker_setting("offsets.retention.minutes")
        return _DAY_SECONDS if found is None else 60.0 * int(found)

    def _broker_setting(self, name: str) -> str | None:
        try:
            broker = next(iter(self._connected().list_topics(timeout=self._seconds).brokers))
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            future = self._connected().describe_configs([resource], request_timeout=self._seconds)[resource]
            return str(future.result(self._seconds + 1)[name].value)
        except (KafkaException, TimeoutError, KeyError, StopIteration) as raised:
            log.info(
                "broker_setting_unknown",
                cluster=self._alias,
                setting=name,
                reason=without_values(str(raised)),
            )
            return None

    def close(self) -> None:
        """Releases the client."""
        self._client = None

    def _connected(self) -> Any:
        if self._stale:
            log.info("groups_client_replaced", cluster=self._alias)
            self._client, self._stale = self._connect(), False
        return self._client

    def _states(
        self, groups: Iterable[str], *, strict: bool
    ) -> Iterator[tuple[str, GroupState | MirrorError]]:
        waiting = list(groups)
        deadline = Deadline(self._seconds if strict else 0.0, self._clock)
        while waiting:
            unanswered = []
            for batch in batches(waiting):
                futures = self._connected().describe_consumer_groups(
                    batch, request_timeout=self._request_seconds
                )
                for group, future in futures.items():
                    try:
                        yield group, _state(future.result(self._request_seconds + 1))
                    except (KafkaException, TimeoutError) as raised:
                        if error_code(raised) == KafkaError.GROUP_ID_NOT_FOUND:
                            yield group, GroupState("DEAD", 0, idle=True)
                        elif self._is_unanswered(raised) and not deadline.passed:
                            unanswered.append(group)
                        else:
                            yield group, self._error(raised, f"describe group {group}", group)
            if unanswered:
                self._clock.sleep(_PAUSE_SECONDS)
            waiting = unanswered

    def _answers(
        self, groups: Sequence[str], *, stable: bool
    ) -> Iterator[tuple[str, Offsets | KafkaException | TimeoutError]]:
        for batch in batches(groups):
            asked = []
            for group in batch:
                request = [ConsumerGroupTopicPartitions(group)]
                try:
                    futures = self._connected().list_consumer_group_offsets(
                        request, require_stable=stable, request_timeout=self._request_seconds
                    )
                except KafkaException as raised:
                    raise self._offsets_error(raised, group) from raised
                asked.append((group, futures[group]))
            for group, future in asked:
                try:
                    yield group, _offsets(future.result(self._request_seconds + 1))
                except (KafkaException, TimeoutError) as raised:
                    self._is_unanswered(raised)
                    yield group, raised

    def _is_unanswered(self, raised: Exception) -> bool:
        """Returns True for a request that timed out: the next one has a new client."""
        unanswered = error_code(raised) in UNANSWERED
        self._stale |= unanswered
        return unanswered

    def _reason(self, raised: Exception, group: str) -> str:
        error = self._offsets_error(raised, group)
        if error.missing_rights:
            return told(error)
        return said(raised.args[0]) if isinstance(raised, KafkaException) else "no answer in time"

    def _offsets_error(self, raised: Exception, group: str) -> MirrorError:
        """Returns the error of a read of offsets; one of a topic is raised with its name (`_offsets`)."""
        topics = [str(name) for name in raised.args[1:]] if isinstance(raised, KafkaException) else []
        return self._error(raised, f"read the offsets of group {group}", group, topics=topics)

    def _error(
        self,
        raised: Exception | KafkaError,
        doing: str,
        group: str = "",
        *,
        operation: str = "Describe",
        topics: Iterable[str] = (),
    ) -> MirrorError:
        """Returns the user's error for a request that needs the operation on the group and on the topics."""
        if isinstance(raised, KafkaException):
            raised = raised.args[0]
        error = raised if isinstance(raised, KafkaError) else KafkaError(KafkaError._TIMED_OUT)
        self._stale |= error.code() in UNANSWERED
        needed = [Right(operation, "group", group)] if group else [Right("Describe", "cluster")]
        needed += [Right(operation, "topic", topic) for topic in topics]
        return to_mirror_error(error, doing=doing, cluster=self._account, right=needed)


def _state(answer: Any) -> GroupState:
    members = len(answer.members)
    return GroupState(answer.state.name, members, idle=answer.state in _IDLE and members == 0)


def _offsets(answer: Any) -> Offsets:
    found = {}
    for one in answer.topic_partitions:
        if one.error is not None:
            raise KafkaException(one.error, one.topic)
        if one.offset >= 0:
            found[one.topic, one.partition] = Committed(int(one.offset), one.metadata or "")
    return found


def _passes(raised: Exception) -> bool:
    if not isinstance(raised, KafkaException):
        return False
    error: KafkaError = raised.args[0]
    return error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT or classify_admin(error).action is Action.RETRY


def batches(groups: Sequence[str]) -> Iterator[list[str]]:
    """Yields groups in portions for concurrent requests."""
    for begin in range(0, len(groups), _AT_ONCE):
        yield list(groups[begin : begin + _AT_ONCE])
