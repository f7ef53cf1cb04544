"""
A thin adapter over confluent-kafka's AdminClient: describes, creates and alters; makes no decisions.

Futures of an AdminClient die with it, so the client lives as long as this object.  Retries are in
`eomirror.kafka.admin_client`.
"""

from __future__ import annotations

import warnings
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import structlog
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.rights import Right
from eomirror.errors import AuthorizationError, MirrorError, QuotaError, TopicError, UnreachableError
from eomirror.kafka.acls import AclAdmin
from eomirror.kafka.admin_client import MISSING, OPERATION_SECONDS, RetryingAdmin, error_code, try_seconds
from eomirror.kafka.cluster_metadata import (
    ClusterFacts,
    ConfigValue,
    TopicFacts,
    config_value,
    leaderless_error,
    operations,
    topic_facts,
    topic_shape,
)
from eomirror.kafka.list_offsets import ListOffsets, trusted_seconds
from eomirror.kafka.missing_rights import missing_rights

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.config.rights import ClusterUser
    from eomirror.kafka.cluster_metadata import CreateTopic, TopicShape

__all__ = [
    "ClusterAdmin",
    "ClusterFacts",
    "ConfigValue",
    "PendingTopics",
    "TopicFacts",
    "has_topic",
    "identify",
]

log = structlog.get_logger(__name__)

# for which brokers that replay the metadata log late may not know a topic that another one has created
_NEW_SECONDS = 10.0
_LEADERLESS = MISSING | {KafkaError.LEADER_NOT_AVAILABLE}
# short, because the setting has a default
_BROKER_SECONDS = 5.0
_ENDS = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}


# Partitions of the first request under a quota, or of the first that only validates: what a quota might make of them is
# not known before the first answer.
_FEW_PARTITIONS = 20
# A wait for a quota that needs no report.
_SHORT_SECONDS = 1.0

# records that a request adds to the controller's log (one per topic, partition and setting): a KRaft
# controller refuses a request of more than 10,000 of them (measured with 4.3: 1,000 topics with ten settings each)
_MOST_RECORDS = 5_000


def identify(cluster: Cluster, *, client_id: str) -> str:
    """
    Returns the id of a cluster, through a client of its own.

    Raises:
        ClusterError: It cannot be reached or refuses us.
    """
    admin = ClusterAdmin(cluster, client_id=client_id)
    try:
        return admin.describe_cluster().cluster_id
    finally:
        admin.close()


def has_topic(cluster: Cluster, topic: str, *, client_id: str) -> bool:
    """
    Returns True if a cluster has a topic, through a client of its own.

    Raises:
        ClusterError: It cannot be reached.
        AuthorizationError: The topic may not be described.
    """
    admin = ClusterAdmin(cluster, client_id=client_id)
    try:
        return admin.describe_topics([topic])[topic] is not None
    finally:
        admin.close()


def _first_of(topics: Sequence[CreateTopic], partitions: int) -> int:
    """Returns the number of topics that the next request creates; one that is too large has a request of its own."""
    records = 0
    for number, topic in enumerate(topics):
        records += 1 + topic.partitions + len(topic.configs)
        partitions -= topic.partitions
        if number and (records > _MOST_RECORDS or partitions < 0):
            return number
    return len(topics)


class PendingTopics:
    """An in-flight describe request."""

    __slots__ = ("_admin", "_futures")

    def __init__(self, admin: ClusterAdmin, futures: Mapping[str, Any]) -> None:
        self._admin = admin
        self._futures = futures

    def visible(
        self, timeout: float = OPERATION_SECONDS
    ) -> tuple[dict[str, TopicFacts | None], dict[str, AuthorizationError]]:
        """
        Returns the visible topics (None for one that does not exist), and errors for those that an ACL hides.

        Raises:
            ClusterError: The cluster cannot be reached, or refuses us as a whole.
        """
        deadline = Deadline(timeout)
        answered = Deadline(min(timeout, try_seconds(len(self._futures))))
        found: dict[str, TopicFacts | None] = {}
        refused: dict[str, AuthorizationError] = {}
        again = []
        for name, future in self._futures.items():
            try:
                found[name] = topic_facts(future.result(answered.remaining()))
            except (KafkaException, FutureTimeoutError) as raised:
                if not deadline.passed and self._admin.is_retriable(raised):
                    again.append(name)
                elif (error := self._admin.refusal(name, raised)) is None:
                    found[name] = None
                else:
                    refused[name] = error
        if again:
            if answered.passed:
                self._admin.renew()
            more, more_refused = self._admin.visible_topics(again, seconds=deadline.remaining())
            found.update(more)
            refused.update(more_refused)
        return found, refused


class ClusterAdmin:
    """
    Administers one cluster.

    Reason for its size: one method for each request of Kafka's admin API; the state is that of the client.

    Args:
        timeout: Seconds that one operation may take, repetitions included.

    Raises:
        ClusterError: librdkafka does not take the cluster's properties.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        timeout: float = OPERATION_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._timeout = timeout
        self._retrying = RetryingAdmin(cluster, client_id=client_id, timeout=timeout, clock=clock)
        self._trusted = trusted_seconds(cluster.properties)
        self._clock = clock
        self._broken = 0
        # topics that this client created a short time ago
        self._created: dict[str, Deadline] = {}
        # one per client, as long as a thread holds it: each client has its own cache
        self._list_offsets: WeakKeyDictionary[Any, ListOffsets] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The cluster's alias and address, for messages."""
        return self._retrying.name

    @property
    def account(self) -> ClusterUser:
        """The cluster, and our user there."""
        return self._retrying.account

    # -- looking ---------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterFacts:
        """
        Returns the cluster's id and number of brokers; the cheapest test that it can be reached.

        Raises:
            AuthorizationError: The credentials are refused.
            ClusterError: No broker answers within 7 s, and why as far as librdkafka tells.
        """
        found = self._retrying.connected(
            lambda seconds: self._client.describe_cluster(request_timeout=seconds)
        )
        return ClusterFacts(str(found.cluster_id), len(found.nodes))

    def topic_names(self) -> list[str]:
        """Returns every topic that we may describe, sorted."""
        return sorted(self._listed_topics())

    def topic_shapes(self) -> dict[str, TopicShape | None]:
        """Returns every topic that we may describe with its partitions; None for those if brokers tell an error."""
        return {name: topic_shape(metadata) for name, metadata in self._listed_topics().items()}

    def _listed_topics(self) -> Mapping[str, Any]:
        # a retry gets the rest of the time: an operation does not take its timeout twice
        deadline = Deadline(self._timeout, self._clock)

        def ask() -> Mapping[str, Any]:
            client = self._client
            left = max(0.1, deadline.remaining())
            return self._offsets_of(client).metadata(client, seconds=left).topics  # type: ignore[no-any-return]

        return self._retrying.with_retries(ask, "list topics")

    def begin_describe(self, names: Sequence[str]) -> PendingTopics:
        """Asks for topics in one request, without waiting for the answer."""
        self._client.poll(0)
        if not names:
            return PendingTopics(self, {})
        try:
            futures = self._client.describe_topics(
                TopicCollection(list(names)), request_timeout=self._timeout
            )
        except KafkaException as raised:
            raise self.translated(raised, "describe topics") from raised
        return PendingTopics(self, futures)

    def is_retriable(self, raised: Exception) -> bool:
        """Returns whether a description that failed with this error should be retried."""
        return self._retrying.is_retriable(raised)

    def renew(self) -> None:
        """Replaces a client whose requests are not answered (`eomirror.kafka.admin_client`)."""
        self._retrying.renew()

    def visible_topics(
        self, names: Sequence[str], *, seconds: float | None = None
    ) -> tuple[dict[str, TopicFacts | None], dict[str, AuthorizationError]]:
        """
        Returns the visible topics (None for one that does not exist), and errors for those that an ACL hides.

        Sends one request, and retries it if a connection broke.

        Args:
            seconds: Maximum time; that of all operations by default.

        Raises:
            ClusterError: The cluster cannot be reached, or refuses us as a whole.
        """
        refused: dict[str, AuthorizationError] = {}

        def send(waiting: Sequence[str], left: float) -> Mapping[str, Any]:
            return self._client.describe_topics(  # type: ignore[no-any-return]
                TopicCollection(list(waiting)), request_timeout=left
            )

        def failed(name: str, raised: Exception) -> None:
            if (error := self.refusal(name, raised)) is not None:
                refused[name] = error

        def passes(name: str, raised: Exception) -> bool:
            created = self._created.get(name)
            return error_code(raised) in MISSING and created is not None and not created.passed

        found = self._retrying.each(list(names), send, failed, passes, reads=True, seconds=seconds)
        return {
            name: None if answer is None else topic_facts(answer)
            for name, answer in found.items()
            if name not in refused
        }, refused

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        """
        Returns the topics; None for one that does not exist.

        Raises:
            AuthorizationError: We may not see one of them.
            ClusterError: The cluster cannot be reached.
        """
        found, refused = self.visible_topics(names)
        for error in refused.values():
            raise error
        return found

    def refusal(self, name: str, raised: Exception) -> AuthorizationError | None:
        """
        Returns the error for a topic that an ACL hides; None for a topic that does not exist.

        Raises:
            ClusterError: It is neither.
        """
        if error_code(raised) in MISSING:
            return None
        error = self.translated(raised, f"describe topic {name}", Right("Describe", "topic", name))
        if error_code(raised) != KafkaError.TOPIC_AUTHORIZATION_FAILED or not isinstance(
            error, AuthorizationError
        ):
            raise error from raised
        return error

    def topic_rights(self, names: Sequence[str]) -> dict[str, frozenset[str]]:
        """
        Returns the operations that we may do on existing topics, such as ``WRITE`` (KIP-430).

        Missing topics are left out, and so are those whose operations the brokers do not report.  A principal that can
        describe a topic has at least that operation, so an empty answer means an unsupported field.

        Raises:
            ClusterError: The cluster cannot be reached.
        """

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            return self._client.describe_topics(  # type: ignore[no-any-return]
                TopicCollection(list(waiting)), include_authorized_operations=True, request_timeout=seconds
            )

        def failed(name: str, raised: Exception) -> None:
            if error_code(raised) not in MISSING:
                raise self.translated(
                    raised, f"read our rights on topic {name}", Right("Describe", "topic", name)
                ) from raised

        found = self._retrying.each(names, send, failed, reads=True)
        told = {name: operations(answer) for name, answer in found.items() if answer is not None}
        return {name: rights for name, rights in told.items() if rights}

    def missing_rights(self, asked: Sequence[Right]) -> tuple[set[Right], list[Right]]:
        """
        Returns the rights of ours that are missing, and those that it cannot tell; changes nothing.

        Raises:
            ClusterError: The cluster cannot be reached.
        """
        return missing_rights(self._retrying, asked)

    @property
    def acls(self) -> AclAdmin:
        """ACL entries and SCRAM users of the cluster."""
        return AclAdmin(self._retrying)

    def visible_groups(self) -> list[str]:
        """Returns every group that we may describe, sorted."""

        def ask() -> list[str]:
            future = self._client.list_consumer_groups(request_timeout=self._timeout)
            return sorted(one.group_id for one in future.result(self._timeout + 1).valid)

        return self._retrying.with_retries(ask, "list groups", Right("Describe", "cluster"))

    def topic_configs(
        self, names: Iterable[str], *, only: Collection[str] = ()
    ) -> dict[str, dict[str, ConfigValue]]:
        """
        Returns effective settings of topics, in one request.

        Args:
            names: Topics.
            only: Names of settings; empty for all.

        Raises:
            AuthorizationError: We may not read them.
            ClusterError: The cluster cannot be reached.
            TopicError: A topic does not exist; its ``topic`` says which.
        """

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in waiting]
            futures = self._client.describe_configs(resources, request_timeout=seconds, names=only)
            return {resource.name: future for resource, future in futures.items()}

        def failed(name: str, raised: Exception) -> None:
            right = Right("DescribeConfigs", "topic", name)
            raise self._retrying.topic_error(
                raised, name, f"read the settings of topic {name}", right
            ) from raised

        found = self._retrying.each(list(names), send, failed, self._appears, reads=True)
        return {
            name: {key: config_value(entry) for key, entry in entries.items()}
            for name, entries in found.items()
        }

    def group(self, name: str) -> tuple[str, list[tuple[str, str]]]:
        """
        Returns the state of a group of any kind, such as Connect's, and client id and host of its members.

        The state of a group that does not exist is empty.

        Raises:
            AuthorizationError: The group may not be described.
            ClusterError: The cluster cannot be reached.
        """

        def ask() -> tuple[str, list[tuple[str, str]]]:
            with warnings.catch_warnings():
                # its successor describes consumer groups only (librdkafka 2.16)
                warnings.simplefilter("ignore", DeprecationWarning)
                found = self._client.list_groups(name, timeout=self._timeout)
            for group in found:
                if group.error is not None:
                    raise KafkaException(group.error)
                return group.state, [(one.client_id, one.client_host.lstrip("/")) for one in group.members]
            return "", []

        return self._retrying.with_retries(ask, f"describe group {name}", Right("Describe", "group", name))

    def longest_transaction_ms(self) -> int | None:
        """Returns ``transaction.max.timeout.ms`` of a broker; None where it does not say, or we may not read it."""
        value = self.broker_setting("transaction.max.timeout.ms")
        return int(value) if value is not None and value.isdigit() else None

    def broker_setting(self, name: str) -> str | None:
        """Returns a setting of a broker, empty for none; None where it does not say, or we may not read it."""
        found = (self.broker_settings() or {}).get(name)
        return None if found is None else found.value or ""

    def broker_settings(self) -> dict[str, ConfigValue] | None:
        """Returns the settings of a broker; None where it does not answer in time, or we may not read them."""
        try:
            broker = next(iter(self._client.list_topics(timeout=_BROKER_SECONDS).brokers))
            resource = ConfigResource(ResourceType.BROKER, str(broker))
            future = self._client.describe_configs([resource], request_timeout=_BROKER_SECONDS)[resource]
            found = future.result(_BROKER_SECONDS + 1)
            return {name: config_value(entry) for name, entry in found.items()}
        except (KafkaException, FutureTimeoutError, KeyError, StopIteration, TypeError, ValueError):
            return None

    def offsets(
        self, partitions: Iterable[tuple[str, int]], *, at: str | int, read_committed: bool
    ) -> dict[tuple[str, int], int]:
        """
        Returns offsets of partitions.

        Args:
            partitions: Topic and number.
            at: ``earliest``, ``latest``, or a timestamp in ms: the first record at or after it, -1 if none.
            read_committed: Whether ``latest`` is the last stable offset, or else the high watermark.

        Raises:
            TopicError: A topic or partition does not exist (any more); its ``topic`` says which.
            UnreachableError: A partition has no leader, and got none in time; ``topic`` says of which.
            ClusterError: The cluster refuses us or cannot be reached.
        """
        found = self._listed(partitions, at=at, read_committed=read_committed)
        return {where: int(answer.offset) for where, answer in found.items()}

    def answered_offsets(
        self, partitions: Iterable[tuple[str, int]], *, at: str, seconds: float
    ) -> tuple[dict[tuple[str, int], int], set[tuple[str, int]]]:
        """
        Returns the log starts or ends that the leaders answer within ``seconds``; retries nothing.

        A partition without a leader, one whose leader does not answer, and one that we may not describe have no offset.

        Args:
            partitions: Topic and number.
            at: ``earliest``, or ``latest`` for the high watermark: what stands behind an open transaction counts.
            seconds: Time to wait.

        Returns:
            The offsets, and the partitions that do not exist.
        """
        names = [(topic, number) for topic, number in partitions]
        found, missing = {}, set()
        sent = self._send_list_offsets(names, _ENDS[at](), IsolationLevel.READ_UNCOMMITTED, seconds=seconds)
        deadline = Deadline(seconds + 1, self._clock)
        for where, future in sent.items():
            try:
                found[where] = int(future.result(max(0.0, deadline.remaining())).offset)
            except (KafkaException, FutureTimeoutError) as raised:
                if error_code(raised) in MISSING:
                    missing.add(where)
        return found, missing

    def log_ends(
        self, partitions: Iterable[tuple[str, int]], *, read_committed: bool = False
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """
        Returns ends of logs, each with the leader epoch of the answering broker; -1 if it reported none.

        Args:
            partitions: Topic and number.
            read_committed: Whether an end is the last stable offset, or else the high watermark.

        Raises:
            MirrorError: As `offsets`.
        """
        found = self._listed(partitions, at="latest", read_committed=read_committed)
        return {where: (int(answer.offset), int(answer.leader_epoch)) for where, answer in found.items()}

    def _listed(
        self, partitions: Iterable[tuple[str, int]], *, at: str | int, read_committed: bool
    ) -> dict[tuple[str, int], Any]:
        spec = _ENDS[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED

        def send(waiting: Sequence[tuple[str, int]], seconds: float) -> Mapping[tuple[str, int], Any]:
            return self._send_list_offsets(waiting, spec, level, seconds=seconds)

        def there(where: tuple[str, int]) -> bool:
            facts = self.describe_topics([where[0]])[where[0]]
            return facts is not None and where[1] < facts.partitions

        def failed(where: tuple[str, int], raised: Exception) -> None:
            topic, number = where
            if error_code(raised) in _LEADERLESS and there(where):
                raise leaderless_error(where, self.name) from raised
            right = Right("Describe", "topic", topic)
            doing = f"read the offsets of {topic}-{number}"
            raise self._retrying.topic_error(raised, topic, doing, right) from raised

        names = [(topic, number) for topic, number in partitions]

        def passes(where: tuple[str, int], raised: Exception) -> bool:
            # the broker that was asked for leaders may not know a new partition yet
            return error_code(raised) in MISSING and there(where)

        return self._retrying.each(names, send, failed, passes, reads=True)

    def _appears(self, topic: str, raised: Exception) -> bool:
        """Returns True for the error of a broker that does not know a topic yet, while another one describes it."""
        return error_code(raised) in MISSING and self.describe_topics([topic])[topic] is not None

    def _remember(self, created: Iterable[str]) -> None:
        lately = {name: since for name, since in self._created.items() if not since.passed}
        self._created = lately | dict.fromkeys(created, Deadline(_NEW_SECONDS, self._clock))

    def _send_list_offsets(
        self, partitions: Sequence[tuple[str, int]], spec: Any, level: IsolationLevel, *, seconds: float
    ) -> Mapping[tuple[str, int], Any]:
        # librdkafka tells of connections that broke when it is polled
        client = self._client
        client.poll(0)
        asked = self._offsets_of(client)
        if self._broken != self._retrying.broken:
            self._broken = self._retrying.broken
            asked.forget_all()
        return asked.request(client, partitions, spec, level, seconds=seconds)

    # -- changing --------------------------------------------------------------------------------

    def create_topics(
        self,
        topics: Sequence[CreateTopic],
        *,
        validate_only: bool = False,
        refused: list[MirrorError] | None = None,
    ) -> None:
        """
        Creates topics, in as few requests as a controller accepts; an existing topic is left alone.

        Under a quota on topic changes the requests are small, and each waits for the time that the answer before told.

        Args:
            topics: What to create.
            validate_only: Let the broker check rights, names, policies and settings, and create nothing.  That spends
                the quota, too: it ends with the first answer that a quota throttles, and the others are not checked.
            refused: Receives the errors of topics whose name or setting is refused, which are then not raised; their
                ``topic`` is the refused one.  A topic that waits for a quota for longer than a second gets a
                `QuotaError`; without ``refused``, the call takes as long as the quota wants.

        Raises:
            AuthorizationError: We may not create one of them.
            ClusterError: A setting or a name is refused, or the cluster cannot be reached.
        """
        plans = {topic.name: topic for topic in topics}

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            wanted = [
                NewTopic(name, plan.partitions, plan.replication_factor, config=dict(plan.configs))
                for name, plan in ((name, plans[name]) for name in waiting)
            ]
            return self._client.create_topics(  # type: ignore[no-any-return]
                wanted, request_timeout=seconds, operation_timeout=seconds / 2, validate_only=validate_only
            )

        def failed(name: str, raised: Exception) -> None:
            if error_code(raised) != KafkaError.TOPIC_ALREADY_EXISTS:
                error = self.translated(raised, f"create topic {name}", Right("Create", "topic", name))
                if refused is None or isinstance(error, AuthorizationError | UnreachableError):
                    raise error from raised
                refused.append(TopicError(error.message, fix=error.fix, topic=name))

        waiting = list(topics)
        size = _FEW_PARTITIONS if validate_only or self._retrying.throttled else _MOST_RECORDS
        while waiting:
            if not validate_only and self._must_wait(refused, waiting):
                return
            count = _first_of(waiting, size)
            self._retrying.each([topic.name for topic in waiting[:count]], send, failed)
            if not validate_only:
                without = {error.topic for error in refused or ()}
                self._remember(topic.name for topic in waiting[:count] if topic.name not in without)
            waiting = waiting[count:]
            if validate_only and self._retrying.held:
                # The creation that follows may begin: it would never, if each try had to wait for its validation.
                self._retrying.release()
                if waiting:
                    log.info(
                        "topics_not_validated",
                        cluster=self.name,
                        topics=len(waiting),
                        reason="a quota throttles",
                    )
                return
            size = self._next_size(size)

    def _next_size(self, size: int) -> int:
        """Returns the most partitions of the next request: few under a quota, more while it allows them."""
        return size * 2 if self._retrying.held <= _SHORT_SECONDS else min(size, _FEW_PARTITIONS)

    def _must_wait(self, refused: list[MirrorError] | None, waiting: Sequence[CreateTopic]) -> bool:
        """Waits for a quota; returns True if that is too long for the caller, with an error for each topic."""
        held = self._retrying.held
        if held > _SHORT_SECONDS and refused is not None:
            refused += [self._held_back(topic.name) for topic in waiting]
            return True
        if held > 0:
            if held > _SHORT_SECONDS:
                error = self._held_back("")
                log.warning("quota_holds_back", reason=error.message, seconds=round(held, 1), fix=error.fix)
            self._clock.sleep(held)
        return False

    def _held_back(self, topic: str) -> QuotaError:
        """Returns the error of a topic whose change waits for a quota."""
        return QuotaError(
            f"the quota on topic changes of cluster {self.name} holds us back",
            seconds=self._retrying.held,
            fix="none: what is missing follows as the quota allows; to make it faster raise controller_mutation_rate "
            f"of {self.account.who} there (kafka-configs.sh --alter --add-config)",
            topic=topic,
        )

    def delete_topics(self, names: Sequence[str]) -> None:
        """
        Deletes topics; one that does not exist is left alone.  Brokers may answer for them a moment longer.

        Raises:
            AuthorizationError: We may not delete one of them.
            ClusterError: The cluster refuses or cannot be reached.
        """

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            return self._client.delete_topics(  # type: ignore[no-any-return]
                list(waiting), request_timeout=seconds, operation_timeout=seconds / 2
            )

        def failed(name: str, raised: Exception) -> None:
            if error_code(raised) not in MISSING:
                right = Right("Delete", "topic", name)
                raise self.translated(raised, f"delete topic {name}", right) from raised

        self.deleted(names)
        self._retrying.each(list(names), send, failed)

    def deleted(self, names: Iterable[str]) -> None:
        """Records that topics were deleted: they are not waited for any more."""
        for name in names:
            self._created.pop(name, None)

    def create_partitions(self, name: str, total: int) -> None:
        """
        Grows a topic to ``total`` partitions; one that has as many already is left alone.

        Raises:
            AuthorizationError: We may not alter it.
            QuotaError: A quota on topic changes delays it for longer than a second.
            ClusterError: The cluster refuses or cannot be reached.
        """
        if self._retrying.held > _SHORT_SECONDS:
            raise self._held_back(name)

        def grow() -> None:
            futures = self._client.create_partitions(
                [NewPartitions(name, total)],
                request_timeout=self._timeout,
                operation_timeout=self._timeout / 2,
            )
            try:
                futures[name].result(self._timeout + 1)
            except KafkaException as raised:
                # also the answer if there are more by now; the caller checks the number again
                if error_code(raised) != KafkaError.INVALID_PARTITIONS:
                    raise

        self._retrying.with_retries(
            grow, f"grow topic {name} to {total} partitions", Right("Alter", "topic", name)
        )

    def alter_configs(self, name: str, values: Mapping[str, str]) -> None:
        """
        Sets settings of a topic, leaving the others alone (KIP-339).

        Raises:
            AuthorizationError: We may not.
            ClusterError: The broker refuses a value, or cannot be reached.
        """

        def alter() -> None:
            entries = [
                ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
                for key, value in values.items()
            ]
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
            futures = self._client.incremental_alter_configs([resource], request_timeout=self._timeout)
            for future in futures.values():
                future.result(self._timeout + 1)

        doing = f"set {', '.join(values)} of topic {name}"
        self._retrying.with_retries(alter, doing, Right("AlterConfigs", "topic", name))

    def translated(self, raised: Exception, doing: str, right: Right | None = None) -> MirrorError:
        """Returns the user's error for an error of the client."""
        return self._retrying.translated(raised, doing, right)

    def close(self) -> None:
        """Releases the client: its destructor closes the connections."""
        self._retrying.close()

    def rest(self) -> None:
        """Closes the connections until the next use; as `RetryingAdmin.rest`."""
        self._retrying.rest()

    def _offsets_of(self, client: Any) -> ListOffsets:
        # one for all threads: setdefault of a dictionary is not divided
        made = ListOffsets(trusted=self._trusted, clock=self._clock)
        return self._list_offsets.setdefault(client, made)

    @property
    def _client(self) -> Any:
        return self._retrying.client
