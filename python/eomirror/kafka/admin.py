"""
A thin adapter over confluent-kafka's AdminClient: describes, creates, alters; decides nothing.

Futures of an AdminClient die with it, so the client lives as long as this object.  librdkafka retries a
connection for ever and only tells its log and its error callback why; both are served by `poll` alone.  The
last reason is kept, so that an error can say that the credentials are refused rather than "timed out".
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config import Secret
from eomirror.config.clients import admin_properties
from eomirror.errors import AuthorizationError, ClusterError, MirrorError, TopicError
from eomirror.kafka.classify import Action, Right, classify_admin, to_mirror_error
from eomirror.kafka.client_log import ClientLog
from eomirror.kafka.facts import ClusterFacts, ConfigValue, TopicFacts, config_value, operations, topic_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.sync.diff import CreateTopic

__all__ = ["ClusterAdmin", "ClusterFacts", "ConfigValue", "PendingTopics", "TopicFacts"]

log = structlog.get_logger(__name__)

Result = TypeVar("Result")
Key = TypeVar("Key")

# the connection that carried a request broke; everything that is asked here may be asked again
_BROKE = frozenset({KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER})
_CONNECT_SECONDS = 10.0
_OPERATION_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
# how long after a refused handshake or login another bootstrap server may still let us in
_GRACE_SECONDS = 2.0

_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    }
)
_LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)


_ENDS = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest}


class PendingTopics:
    """A describe request that is on its way."""

    __slots__ = ("_admin", "_futures")

    def __init__(self, admin: ClusterAdmin, futures: Mapping[str, Any]) -> None:
        self._admin = admin
        self._futures = futures

    def result(self, timeout: float = _OPERATION_SECONDS) -> dict[str, TopicFacts | None]:
        """
        The topics; None for one that does not exist.

        Raises:
            AuthorizationError: We may not see one of them.
            ClusterError: The cluster cannot be reached.
        """
        found, refused = self.visible(timeout)
        for error in refused.values():
            raise error
        return found

    def visible(
        self, timeout: float = _OPERATION_SECONDS
    ) -> tuple[dict[str, TopicFacts | None], dict[str, AuthorizationError]]:
        """
        The topics that we may see (None for one that does not exist), and why not the others.

        Raises:
            ClusterError: The cluster cannot be reached, or refuses us as a whole.
        """
        deadline = Deadline(timeout)
        found: dict[str, TopicFacts | None] = {}
        refused: dict[str, AuthorizationError] = {}
        for name, future in self._futures.items():
            try:
                found[name] = topic_facts(future.result(deadline.remaining()))
            except (KafkaException, FutureTimeoutError) as raised:
                code = _code(raised)
                if code in _MISSING:
                    found[name] = None
                    continue
                right = Right("Describe", "topic", name)
                error = self._admin.translated(raised, f"describe topic {name}", right)
                if code != KafkaError.TOPIC_AUTHORIZATION_FAILED or not isinstance(error, AuthorizationError):
                    raise error from raised
                refused[name] = error
        return found, refused


class _Answered:
    """
    The offset of one partition, or an error where librdkafka gives neither.

    When a connection breaks before a broker has answered ListOffsets, librdkafka 2.16 reports success and the offset
    -1001, "invalid" (measured: every time).  Taken for an end, it makes a reader skip the partition, and what
    was committed there is never seen (rule 3); taken for a log start, it hides a gap (rule 6).
    """

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self, timeout: float) -> Any:
        """The answer; raises KafkaException, which says that asking again helps, where there is none."""
        answer = self._future.result(timeout)
        if answer.offset == OFFSET_INVALID:
            raise KafkaException(
                KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the connection broke before the answer")
            )
        return answer


class ClusterAdmin:
    """
    Administers one cluster.

    Args:
        cluster: The cluster.
        client_id: What brokers see.
        timeout: Seconds that one operation may take, repetitions included.
        clock: Where time comes from.

    Raises:
        ClusterError: librdkafka does not take the cluster's properties.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        timeout: float = _OPERATION_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._clock = clock
        self._reason: KafkaError | None = None
        try:
            self._client: Any = AdminClient(
                {
                    **admin_properties(cluster, client_id=client_id),
                    "error_cb": self._on_error,
                    "logger": ClientLog(cluster=cluster.alias),
                }
            )
        except KafkaException as raised:
            raise ClusterError(
                f"cluster {cluster.alias}: librdkafka does not take its properties: "
                f"{_without_secrets(str(raised.args[0].str()), cluster)}",
                fix=f"correct them under clusters.{cluster.alias}; `eomirror check` names each one",
            ) from None

    @property
    def name(self) -> str:
        """The cluster's alias and address, for messages."""
        return f"{self._cluster.alias} ({self._cluster.bootstrap_servers})"

    @property
    def principal(self) -> str:
        """Who we are to the brokers, as far as the configuration tells; empty when it does not."""
        name = self._cluster.properties.get("sasl.username", "")
        return name if isinstance(name, str) else ""

    # -- looking ---------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterFacts:
        """
        The cluster's id and brokers; the cheapest way to see that it can be reached.

        Raises:
            AuthorizationError: The credentials are refused.
            ClusterError: No broker answers within 10 s, and why as far as librdkafka tells.
        """
        try:
            future = self._client.describe_cluster(request_timeout=_CONNECT_SECONDS)
            self._await_connection(future)
            found = future.result(_PAUSE_SECONDS)
        except (KafkaException, FutureTimeoutError) as raised:
            raise self.translated(raised, "") from raised
        self._served()
        return ClusterFacts(str(found.cluster_id), len(found.nodes))

    def topic_names(self) -> list[str]:
        """Every topic that we may describe, sorted."""
        return self._patiently(
            lambda: sorted(self._client.list_topics(timeout=self._timeout).topics), "list topics"
        )

    def begin_describe(self, names: Sequence[str]) -> PendingTopics:
        """Ask for topics in one request, without waiting for the answer."""
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

    def describe_topics(self, names: Sequence[str]) -> dict[str, TopicFacts | None]:
        """Topics by name in one request; answers and raises as `PendingTopics.result`."""
        return self.begin_describe(names).result(self._timeout + 1)

    def topic_rights(self, names: Sequence[str]) -> dict[str, frozenset[str]]:
        """
        Operations that we may do on existing topics, such as ``WRITE`` (KIP-430); missing topics are left out.

        Raises:
            ClusterError: The cluster cannot be reached.
        """

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            return self._client.describe_topics(  # type: ignore[no-any-return]
                TopicCollection(list(waiting)), include_authorized_operations=True, request_timeout=seconds
            )

        def failed(name: str, raised: Exception) -> None:
            if _code(raised) not in _MISSING:
                raise self.translated(
                    raised, f"read our rights on topic {name}", Right("Describe", "topic", name)
                ) from raised

        found = self._each(names, send, failed)
        return {name: operations(answer) for name, answer in found.items() if answer is not None}

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """
        Effective settings of topics, in one request.

        Raises:
            AuthorizationError: We may not read them.
            ClusterError: The cluster cannot be reached.
            TopicError: A topic does not exist; its ``topic`` says which.
        """

        def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
            resources = [ConfigResource(ResourceType.TOPIC, name) for name in waiting]
            futures = self._client.describe_configs(resources, request_timeout=seconds)
            return {resource.name: future for resource, future in futures.items()}

        def failed(name: str, raised: Exception) -> None:
            right = Right("DescribeConfigs", "topic", name)
            raise self._about_topic(raised, name, f"read the settings of topic {name}", right) from raised

        return {
            name: {key: config_value(entry) for key, entry in entries.items()}
            for name, entries in self._each(list(names), send, failed).items()
        }

    def offsets(
        self, partitions: Iterable[tuple[str, int]], *, at: str | int, read_committed: bool
    ) -> dict[tuple[str, int], int]:
        """
        Offsets of partitions.

        Args:
            partitions: Topic and number.
            at: ``earliest``, ``latest``, or a timestamp in ms: the first record at or after it, -1 if none.
            read_committed: Whether ``latest`` is the last stable offset, or else the high watermark.

        Raises:
            TopicError: A topic or partition does not exist (any more); its ``topic`` says which.
            ClusterError: The cluster refuses us or cannot be reached.
        """
        spec = _ENDS[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED

        def send(waiting: Sequence[tuple[str, int]], seconds: float) -> Mapping[tuple[str, int], Any]:
            wanted = {TopicPartition(topic, number): spec for topic, number in waiting}
            futures = self._client.list_offsets(wanted, isolation_level=level, request_timeout=seconds)
            return {(one.topic, one.partition): _Answered(future) for one, future in futures.items()}

        def failed(where: tuple[str, int], raised: Exception) -> None:
            topic, number = where
            right = Right("Describe", "topic", topic)
            doing = f"read the offsets of {topic}-{number}"
            raise self._about_topic(raised, topic, doing, right) from raised

        names = [(topic, number) for topic, number in partitions]

        def passes(where: tuple[str, int], raised: Exception) -> bool:
            # librdkafka looks for leaders in its cache, which does not know a partition that was just added, nor
            # a leader that was just elected; the brokers say whether it is there
            topic, number = where
            facts = self.describe_topics([topic])[topic] if _code(raised) in _MISSING else None
            if facts is None or number >= facts.partitions:
                return False
            self._client.list_topics(topic, timeout=self._timeout)
            return True

        found = self._each(names, send, failed, passes)
        return {where: int(answer.offset) for where, answer in found.items()}

    # -- changing --------------------------------------------------------------------------------

    def create_topics(self, topics: Sequence[CreateTopic], *, validate_only: bool = False) -> None:
        """
        Create topics in one request; one that exists meanwhile is left alone.

        Args:
            topics: What to create.
            validate_only: Let the broker check rights, names, policies and settings, and create nothing.

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
            if _code(raised) != KafkaError.TOPIC_ALREADY_EXISTS:
                right = Right("Create", "topic", name)
                raise self.translated(raised, f"create topic {name}", right) from raised

        self._each(list(plans), send, failed)

    def create_partitions(self, name: str, total: int) -> None:
        """
        Grow a topic to ``total`` partitions; one that has as many already is left alone.

        Raises:
            AuthorizationError: We may not alter it.
            ClusterError: The cluster refuses or cannot be reached.
        """

        def grow() -> None:
            futures = self._client.create_partitions(
                [NewPartitions(name, total)],
                request_timeout=self._timeout,
                operation_timeout=self._timeout / 2,
            )
            try:
                futures[name].result(self._timeout + 1)
            except KafkaException as raised:
                # also said when there are more than that by now; that there are enough is looked at again
                if _code(raised) != KafkaError.INVALID_PARTITIONS:
                    raise

        self._patiently(grow, f"grow topic {name} to {total} partitions", Right("Alter", "topic", name))

    def alter_configs(self, name: str, values: Mapping[str, str]) -> None:
        """
        Set settings of a topic, leaving the others alone (KIP-339).

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
        self._patiently(alter, doing, Right("AlterConfigs", "topic", name))

    def close(self) -> None:
        """Let go of the client: its destructor closes the connections."""
        self._client = None

    # -- what went wrong -------------------------------------------------------------------------

    def translated(self, raised: Exception, doing: str, right: Right | None = None) -> MirrorError:
        """The user's error for what the client raised."""
        if self._client is not None:
            self._client.poll(0)
        error = raised.args[0] if isinstance(raised, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        return to_mirror_error(
            error, doing=doing, cluster=self.name, reason=self._reason, right=right, principal=self.principal
        )

    def _about_topic(self, raised: Exception, topic: str, doing: str, right: Right) -> MirrorError:
        error = self.translated(raised, doing, right)
        if _code(raised) in _MISSING:
            return TopicError(error.message, fix=error.fix, topic=topic)
        return error

    def _patiently(self, ask: Callable[[], Result], doing: str, right: Right | None = None) -> Result:
        """Ask again while what is in the way passes by itself, such as a controller that moves."""
        deadline = Deadline(self._timeout, self._clock)
        while True:
            try:
                answer = ask()
            except (KafkaException, FutureTimeoutError) as raised:
                if not self._worth_repeating(raised, deadline):
                    raise self.translated(raised, doing, right) from raised
                self._clock.sleep(_PAUSE_SECONDS)
            else:
                self._served()
                return answer

    def _each(
        self,
        keys: Sequence[Key],
        send: Callable[[Sequence[Key], float], Mapping[Key, Any]],
        failed: Callable[[Key, Exception], None],
        passes: Callable[[Key, Exception], bool] = lambda _, __: False,
    ) -> dict[Key, Any]:
        """
        Send one request for all keys; ask again only for those that are in the way of a moving leader.

        Args:
            keys: What to ask for.
            send: Gives a future for each key; takes the seconds that are left.
            failed: Raises the user's error, or returns where None is an answer.
            passes: Whether an error will pass by itself, besides those that always do.
        """
        deadline = Deadline(self._timeout, self._clock)
        found: dict[Key, Any] = {}
        waiting = keys
        while waiting:
            again = []
            for key, future in send(waiting, max(0.1, deadline.remaining())).items():
                try:
                    found[key] = future.result(deadline.remaining() + 1)
                except (KafkaException, FutureTimeoutError) as raised:
                    if self._worth_repeating(raised, deadline) or (
                        not deadline.passed and passes(key, raised)
                    ):
                        again.append(key)
                    else:
                        failed(key, raised)
                        found[key] = None
            waiting = again
            if waiting:
                self._clock.sleep(_PAUSE_SECONDS)
        self._served()
        return found

    def _worth_repeating(self, raised: Exception, deadline: Deadline) -> bool:
        if deadline.passed or not isinstance(raised, KafkaException):
            return False
        if raised.args[0].code() in _BROKE:
            # one connection of a cluster that serves; a refused login and a failed handshake say so before
            return self._reason is None or self._reason.code() in _BROKE
        return classify_admin(raised.args[0]).action is Action.RETRY

    def _await_connection(self, future: Any) -> None:
        """Wait for an answer, but not for long after a refused login: librdkafka would try for ever."""
        deadline = Deadline(_CONNECT_SECONDS, self._clock)
        refused: Deadline | None = None
        while not future.done() and not deadline.passed:
            self._client.poll(0.05)
            if refused is None and self._reason is not None and self._reason.code() in _LOGIN:
                refused = Deadline(_GRACE_SECONDS, self._clock)
            if refused is not None and refused.passed:
                return

    def _served(self) -> None:
        """A request went through: what was said before explains nothing any more."""
        self._client.poll(0)
        self._reason = None

    def _on_error(self, error: KafkaError) -> None:
        # "all brokers are down" follows every failure and never says why; a refused login is followed by
        # the connection's end, which says less
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        if self._reason is None or self._reason.code() not in _LOGIN or error.code() in _LOGIN:
            self._reason = error


def _code(raised: Exception) -> int:
    return int(raised.args[0].code()) if isinstance(raised, KafkaException) else int(KafkaError._TIMED_OUT)


def _without_secrets(text: str, cluster: Cluster) -> str:
    for value in cluster.properties.values():
        if isinstance(value, Secret) and value.reveal() and value.reveal() in text:
            return "(the reason is left out, for it shows a secret)"
    return text
