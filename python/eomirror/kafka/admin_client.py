"""
AdminClient with retries.

Retriable errors are retried until the deadline; the final error carries librdkafka's last reason.

A read request gets a part of the time first.  librdkafka (2.16) sends it to one broker, the controller or a leader in
its cache.  If that broker has died or hangs, librdkafka waits for the whole request timeout, and nothing refreshes the
cache of an AdminClient.  Measured after one of three brokers was killed, whose partitions had other leaders 4 s later:
ListOffsets took its 30 s, and so did each description of a topic.  So an unanswered request is followed by one of a new
client, which learns the current leaders from any broker.

A quota on changes of topics (`controller_mutation_rate`) refuses nothing: librdkafka's versions of the requests are
older than that answer (KIP-599).  The broker makes the change, tells how long it throttles, and reads nothing more from
that connection meanwhile: the next request on it, also one that only reads, would time out.  So a throttled connection
is replaced, and `held` tells for how long the next change should wait.

librdkafka retries a connection for ever and reports the reason only to its log and error callback, which both need
`poll`.  The last reason is kept, so that an error can say that the credentials are refused rather than "timed out".

A user who starts a command while a cluster is unreachable would otherwise see nothing until the operation ends.  Every
operation of an AdminClient is watched (`eomirror.kafka.admin_client`), and each command begins with one.
"""

from __future__ import annotations

import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import admin_properties
from eomirror.config.rights import ClusterUser, Right, account_of
from eomirror.errors import MirrorError, TopicGoneError
from eomirror.kafka.client_factory import ClientLog, create_client
from eomirror.kafka.errors import Action, classify_admin, to_mirror_error
from eomirror.kafka.exact_admin_client import ExactAdminClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eomirror.config import Cluster

__all__ = [
    "MISSING",
    "NOTICE_SECONDS",
    "OPERATION_SECONDS",
    "UNANSWERED",
    "RetryingAdmin",
    "error_code",
    "try_seconds",
    "waiting_for",
]

#: An operation that takes longer is announced; a command has two seconds for that, its own start included.
NOTICE_SECONDS = 1.0

# several links ask the same cluster at the same time, and a mirror asks for as long as it is away
_QUIET_SECONDS = 30.0

log = structlog.get_logger(__name__)


class _Notices:
    """
    Announces operations that take long, from one thread that sleeps while no operation has begun.

    A timer for each operation would start a thread for it, and an idle mirror has an operation every second.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # operation -> its cluster, and when it began
        self._begun: dict[object, tuple[Cluster, float]] = {}
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        self._announced: dict[tuple[str, str], float] = {}

    @contextmanager
    def watching(self, cluster: Cluster) -> Iterator[None]:
        """Watches the operation in the block."""
        operation = object()
        with self._lock:
            self._begun[operation] = cluster, SYSTEM_CLOCK.monotonic()
            # a forked child has the object, and no thread
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._watch, name="slow-operations", daemon=True)
                self._thread.start()
            self._some.set()
        try:
            yield
        finally:
            with self._lock:
                self._begun.pop(operation, None)

    def _watch(self) -> None:
        while self._some.wait():
            SYSTEM_CLOCK.sleep(NOTICE_SECONDS)
            now = SYSTEM_CLOCK.monotonic()
            with self._lock:
                due = {one: each for one, each in self._begun.items() if each[1] + NOTICE_SECONDS <= now}
                for one in due:
                    del self._begun[one]
                if not self._begun:
                    self._some.clear()
            for cluster, began in due.values():
                self._announce(cluster, now, began)

    def _announce(self, cluster: Cluster, now: float, began: float) -> None:
        key = (cluster.alias, cluster.bootstrap_servers)
        if now - self._announced.get(key, float("-inf")) >= _QUIET_SECONDS:
            self._announced[key] = now
            log.info(
                "waiting_for_cluster",
                cluster=cluster.alias,
                servers=cluster.bootstrap_servers,
                seconds=round(now - began, 1),
            )


_notices = _Notices()


def waiting_for(cluster: Cluster) -> AbstractContextManager[None]:
    """
    Logs ``waiting_for_cluster`` when the block takes longer than `NOTICE_SECONDS`, and at most that much later.

    The event names the cluster's alias, its bootstrap servers, and the seconds waited.  It is logged once in half a
    minute per cluster of a process.  It is no warning: a healthy cluster may take a second, and the caller reports an
    unreachable one.

    Args:
        cluster: The cluster that is asked.
    """
    return _notices.watching(cluster)


Result = TypeVar("Result")
Key = TypeVar("Key")

# the connection of a request broke; every request here may be repeated
_BROKE = frozenset({KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER})
# a command ends within 10 s if a cluster is unreachable, its own start and other requests included
_CONNECT_SECONDS = 7.0
#: What one operation may take, repetitions included.
OPERATION_SECONDS = 30.0
_PAUSE_SECONDS = 0.2
# how much later than its deadline an operation may end, for an answer that has arrived with it
_LATE_SECONDS = 0.2
# Timeout of the first try of a read request, and its increase per key;
# every further try gets twice as long
_TRY_SECONDS = 2.0
_TRY_SECONDS_EACH = 0.002
# A request quota delays by its window at most, which is a second by default: too short to replace a connection.
_MUTED_SECONDS = 1.0
# A listener with SASL answers the first request of a client without, and closes the connection at the second.
_CLOSED_AT_ONCE = 5
# how long after a refused handshake or login another bootstrap server may still let us in
_GRACE_SECONDS = 2.0

#: A topic or a partition is not there.
MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._NOENT,
    }
)
#: A request timed out.
UNANSWERED = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE})
_LOGIN = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)


# Clusters whose quota has throttled a client of this process: a link that waits for it begins with a new client.
_throttling: set[tuple[str, str]] = set()


class RetryingAdmin:
    """
    An AdminClient with retries.

    Reason for its size: the client and what is known of its cluster belong together in each kind of retry.

    Args:
        timeout: Seconds that one operation may take, retries included.

    Attributes:
        broken: Number of failed or lost connections that librdkafka has reported.

    Raises:
        ClusterError: librdkafka does not take the cluster's properties.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, timeout: float, clock: Clock) -> None:
        self._cluster = cluster
        self._timeout = timeout
        self._clock = clock
        self._client_id = client_id
        self._reason: KafkaError | None = None
        self.broken = 0
        self._held_until = float("-inf")
        self._muted = False
        self._log = ClientLog(cluster=cluster.alias)
        self._closed = False
        self._client: Any = self._new_client()

    @property
    def client(self) -> Any:
        """The AdminClient, made anew by the first use after `rest`; None once closed."""
        client = self._client
        if client is None and not self._closed:
            client = self._client = self._new_client()
        return client

    @property
    def name(self) -> str:
        """The cluster's alias and address, for messages."""
        return f"{self._cluster.alias} ({self._cluster.bootstrap_servers})"

    @property
    def account(self) -> ClusterUser:
        """The cluster, and our user there."""
        return account_of(self._cluster)

    @property
    def throttled(self) -> bool:
        """True if the cluster has a quota that this process has met."""
        return (self._cluster.alias, self._cluster.bootstrap_servers) in _throttling

    @property
    def held(self) -> float:
        """Seconds until a quota allows the next change; 0 if none is in the way."""
        return max(0.0, self._held_until - self._clock.monotonic())

    def release(self) -> None:
        """Lets the next change begin although a quota was exceeded."""
        self._held_until = float("-inf")

    def close(self) -> None:
        """Releases the client: its destructor closes the connections."""
        self._closed = True
        self._client = None

    def rest(self) -> None:
        """Releases the client until the next use; no operation may be under way."""
        self._client = None

    def renew(self, reason: str = "a request was not answered in time") -> None:
        """Replaces a client whose requests are not answered; requests of other threads end with a retriable error."""
        if self._client is not None:
            log.debug("client_replaced", cluster=self._cluster.alias, reason=reason)
            self._client = self._new_client()

    def connected(self, ask: Callable[[float], Any]) -> Any:
        """
        Returns the answer to the first request, which proves that the cluster can be reached.

        Args:
            ask: Returns a future; takes the seconds left.

        Raises:
            AuthorizationError: The credentials are refused.
            ClusterError: No broker answers in time, and why as far as librdkafka tells.
        """
        try:
            with waiting_for(self._cluster):
                future = ask(_CONNECT_SECONDS)
                self._await_connection(future)
                found = future.result(_PAUSE_SECONDS)
        except (KafkaException, FutureTimeoutError) as raised:
            raise self.translated(raised, "") from raised
        self._served()
        return found

    def translated(self, raised: Exception, doing: str, right: Right | None = None) -> MirrorError:
        """Returns the user's error for an error of the client."""
        if self.client is not None:
            self.client.poll(0)
        self._expects_login()
        error = raised.args[0] if isinstance(raised, KafkaException) else KafkaError(KafkaError._TIMED_OUT)
        return to_mirror_error(error, doing=doing, cluster=self.account, reason=self._reason, right=right)

    def topic_error(self, raised: Exception, topic: str, doing: str, right: Right) -> MirrorError:
        """Returns the user's error for one topic, which it names if the topic does not exist."""
        error = self.translated(raised, doing, right)
        if error_code(raised) in MISSING:
            return TopicGoneError(error.message, fix=error.fix, topic=topic)
        return error

    def with_retries(self, ask: Callable[[], Result], doing: str, right: Right | None = None) -> Result:
        """Retries a request while its error is retriable, such as a controller election."""
        with waiting_for(self._cluster):
            return self._patiently(ask, doing, right)

    def _patiently(self, ask: Callable[[], Result], doing: str, right: Right | None) -> Result:
        deadline = Deadline(self._timeout, self._clock)
        while True:
            try:
                answer = ask()
            except (KafkaException, FutureTimeoutError) as raised:
                if not self._worth_repeating(raised, deadline):
                    raise self.translated(raised, doing, right) from raised
                self._pause(deadline)
            else:
                self._served()
                return answer

    def each(
        self,
        keys: Sequence[Key],
        send: Callable[[Sequence[Key], float], Mapping[Key, Any]],
        failed: Callable[[Key, Exception], None],
        passes: Callable[[Key, Exception], bool] = lambda _, __: False,
        *,
        reads: bool = False,
        seconds: float | None = None,
    ) -> dict[Key, Any]:
        """
        Sends one request for all keys; retries only the keys with retriable errors.

        Args:
            keys: Keys of the request.
            send: Returns a future per key; takes the seconds left.
            failed: Raises the user's error, or returns if None is an answer.
            passes: Returns whether an error is retriable, besides those that always are.
            reads: The request is read-only, and gets a part of the time first.
            seconds: Maximum time in all; that of all operations by default.
        """
        limit = self._timeout if seconds is None else seconds
        with waiting_for(self._cluster):
            return self._each(keys, send, failed, passes, reads=reads, seconds=limit)

    def _each(
        self,
        keys: Sequence[Key],
        send: Callable[[Sequence[Key], float], Mapping[Key, Any]],
        failed: Callable[[Key, Exception], None],
        passes: Callable[[Key, Exception], bool],
        *,
        reads: bool,
        seconds: float,
    ) -> dict[Key, Any]:
        deadline = Deadline(seconds, self._clock)
        patience = try_seconds(len(keys)) if reads else seconds
        found: dict[Key, Any] = {}
        waiting = keys
        while waiting:
            again = []
            left = max(0.1, min(patience, deadline.remaining()))
            patience *= 2
            answered = Deadline(left, self._clock)
            for key, future in send(waiting, left).items():
                try:
                    # librdkafka's own timeout comes a little late; the operation must not
                    found[key] = future.result(
                        min(answered.remaining() + 1, deadline.remaining() + _LATE_SECONDS)
                    )
                except (KafkaException, FutureTimeoutError) as raised:
                    unanswered = reads and not deadline.passed and error_code(raised) in UNANSWERED
                    if (
                        unanswered
                        or self._worth_repeating(raised, deadline)
                        or (not deadline.passed and passes(key, raised))
                    ):
                        again.append(key)
                    else:
                        failed(key, raised)
                        found[key] = None
            waiting = again
            if waiting:
                if reads and answered.passed:
                    self.renew()
                self._pause(deadline)
        self._served()
        return found

    def _pause(self, deadline: Deadline) -> None:
        """Waits before a retry, also for the time that a quota told."""
        if self.client is not None:
            self.client.poll(0)
        self._clock.sleep(max(_PAUSE_SECONDS, min(self.held, deadline.remaining())))

    def is_retriable(self, raised: Exception) -> bool:
        """Returns whether a read request that failed with this error should be retried."""
        return error_code(raised) in UNANSWERED or self._passes(raised)

    def _worth_repeating(self, raised: Exception, deadline: Deadline) -> bool:
        return not deadline.passed and self._passes(raised)

    def _passes(self, raised: Exception) -> bool:
        if not isinstance(raised, KafkaException):
            return False
        if raised.args[0].code() in _BROKE:
            # one connection of a cluster that serves; a refused login and a failed handshake say so before
            return self._reason is None or self._reason.code() in _BROKE
        return classify_admin(raised.args[0]).action is Action.RETRY

    def _new_client(self) -> Any:
        return create_client(
            ExactAdminClient,
            self._cluster,
            {
                **admin_properties(self._cluster, client_id=self._client_id),
                "error_cb": self._on_error,
                "throttle_cb": self._on_throttle,
                "logger": self._log,
            },
        )

    def _await_connection(self, future: Any) -> None:
        """Waits for an answer, but only briefly after a refused login: librdkafka would retry for ever."""
        deadline = Deadline(_CONNECT_SECONDS, self._clock)
        refused: Deadline | None = None
        while not future.done() and not deadline.passed:
            self.client.poll(0.05)
            if refused is None and self._expects_login():
                refused = Deadline(_GRACE_SECONDS, self._clock)
            if refused is None and self._reason is not None and self._reason.code() in _LOGIN:
                refused = Deadline(_GRACE_SECONDS, self._clock)
            if refused is not None and refused.passed:
                return

    def _served(self) -> None:
        """Drops the last reason after a successful request, and a connection that was throttled."""
        self.client.poll(0)
        if self._muted:
            self._muted = False
            self.renew("a quota throttles its connection")
        self._reason = None
        self._log.closed = 0

    def _expects_login(self) -> bool:
        """Returns True if the listener seems to expect a login that the client lacks, and keeps that as the reason."""
        if self._reason is not None or self._log.closed < _CLOSED_AT_ONCE:
            return False
        self._reason = KafkaError(
            KafkaError._TRANSPORT,
            "the broker closes each connection at its first request, which might be caused by incorrect "
            "security.protocol configuration (connecting to a SASL listener?)",
        )
        return True

    def _on_throttle(self, event: Any) -> None:
        seconds = float(event.throttle_time)
        self._held_until = max(self._held_until, self._clock.monotonic() + seconds)
        self._muted = self._muted or seconds > _MUTED_SECONDS
        _throttling.add((self._cluster.alias, self._cluster.bootstrap_servers))

    def _on_error(self, error: KafkaError) -> None:
        # "all brokers are down" follows every failure and never says why; a refused login is followed by
        # the connection's end, which says less
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            return
        self.broken += 1
        if self._reason is None or self._reason.code() not in _LOGIN or error.code() in _LOGIN:
            self._reason = error


def try_seconds(things: int) -> float:
    """Returns the wait for a first answer about this many keys."""
    return _TRY_SECONDS + _TRY_SECONDS_EACH * things


def error_code(raised: Exception) -> int:
    """Returns librdkafka's code of an error; an unanswered future counts as timed out."""
    return int(raised.args[0].code()) if isinstance(raised, KafkaException) else int(KafkaError._TIMED_OUT)
