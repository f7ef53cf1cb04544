"""
Sends ListOffsets only for partitions whose leaders librdkafka knows.

If a leader is not in its cache, librdkafka's AdminClient requests metadata and continues when the cache changes.  Any
change counts, one of another request too, and then its main thread continues with data that the calling thread is still
working on.  Measured with 2.16.1: four threads that asked one client for topics new to it, a few thousand times, ended
the process each time (a null mutex in ``rd_kafka_topic_partition_list_query_leaders_async_worker``; its main branch has
the same code).  A lane that starts asks in two threads, and met it once in some thousand starts.  With all leaders in
the cache, no request waits for a change.

So leaders are looked up first, by a blocking request, and no lookup runs in a client while it is asked for offsets.  A
partition without a leader, or one that does not exist, is not requested: the answer is what librdkafka would return.

The lookup describes topics, and does not use ``list_topics``.  With a topic name, that creates an object in librdkafka
which stays as long as the client.  Its metadata is requested in the background, and for a missing or deleted topic
about twice a second for ever (measured with 2.16.1).  Without a name, it loads all topics of the cluster into the
memory of each client.
"""

from __future__ import annotations

import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicCollection, TopicPartition

from eomirror.config.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from confluent_kafka.admin import OffsetSpec

    from eomirror.clock import Clock

__all__ = ["ListOffsets", "trusted_seconds"]

_Where = tuple[str, int]

# how long one look for leaders may take: a broker that stands still would take all the time there is
_LOOK_SECONDS = 5.0
# librdkafka looks for changes every 5 minutes and drops what it has not seen for 15, both by default
_TRUSTED_SECONDS = 120.0
_AGES = {"topic.metadata.refresh.interval.ms": 0.5, "metadata.max.age.ms": 0.5}


def trusted_seconds(properties: Mapping[str, Any]) -> float:
    """Returns how long a client with these properties surely keeps leaders in its cache."""
    ages = [_number(properties[name]) * share / 1000 for name, share in _AGES.items() if name in properties]
    # a refresh interval of -1 switches it off
    return min([_TRUSTED_SECONDS, *(age for age in ages if age >= 0)])


def _number(value: Any) -> float:
    """Returns a property as a number."""
    # whatever comes from the environment or a file is a secret
    text = value.reveal() if isinstance(value, Secret) else value
    try:
        return float(text)
    except ValueError:
        # librdkafka takes other notations, such as 0xea60; looking each time is always right
        return 0.0


class _Answered:
    """
    Future of one partition's offset, which turns an invalid offset into an error.

    When a connection breaks before a broker has answered ListOffsets, librdkafka 2.16 reports success and the offset
    -1001, "invalid" (measured: every time).  As an end, it would make a reader skip the partition with its committed
    records (EO-3); as a log start, it would hide a gap (EO-6).
    """

    __slots__ = ("_future", "_siblings")

    def __init__(self, future: Any, siblings: _Siblings) -> None:
        self._future, self._siblings = future, siblings

    def result(self, timeout: float | None = None) -> Any:
        """Returns the answer; raises a retriable KafkaException if there is none."""
        try:
            answer = self._future.result(timeout)
        finally:
            self._siblings.judge()
        if answer.offset == OFFSET_INVALID:
            raise KafkaException(
                KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the connection broke before the answer")
            )
        return answer


class _Siblings:
    """
    Answers of one request, which are judged together.

    Of a topic whose answer failed, librdkafka has dropped the leaders from its cache.  They are forgotten here as well,
    with or without a caller that waits for that answer.
    """

    __slots__ = ("_asked", "_futures", "_judged")

    def __init__(self, futures: Mapping[TopicPartition, Any], asked: ListOffsets) -> None:
        self._futures, self._asked, self._judged = futures, asked, False

    def judge(self) -> None:
        """Forgets the leaders of topics whose answers failed, or did not arrive."""
        if self._judged:
            return
        self._judged = True
        for one, future in self._futures.items():
            try:
                failed = future.result(0).offset == OFFSET_INVALID
            except KafkaException:
                failed = True
            except FutureTimeoutError:
                failed, self._judged = True, False
            if failed:
                self._asked.forget(one.topic)


class _Refused:
    """Result for a partition that is not requested."""

    __slots__ = ("_error",)

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002  that of a future
        """Raises KafkaException with the reason."""
        raise KafkaException(self._error)


class _Leaders(NamedTuple):
    """Leaders of one topic: an error, or the number of partitions and those without a leader."""

    error: KafkaError | None
    partitions: int
    leaderless: frozenset[int]

    def refusal(self, number: int) -> KafkaError | None:
        """Returns the error of a partition that cannot be requested, as librdkafka would report it."""
        if self.error is not None:
            return self.error
        if number >= self.partitions:
            return KafkaError(KafkaError._UNKNOWN_PARTITION)
        return KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if number in self.leaderless else None


_NOTHING = _Leaders(None, 0, frozenset())


class ListOffsets:
    """
    Requests offsets and topic names through one client; thread-safe.

    Args:
        trusted: Seconds for which the client keeps leaders in its cache; see `trusted_seconds`.
    """

    def __init__(self, *, trusted: float, clock: Clock) -> None:
        self._trusted = trusted
        self._clock = clock
        # held while the client is asked for metadata, and while it begins to ask for offsets
        self._lock = threading.Lock()
        # what topics' partitions have leaders, and until when that is trusted; that one has none is not
        self._known: dict[str, tuple[float, _Leaders]] = {}

    def forget(self, topic: str) -> None:
        """
        Forgets a topic's leaders, which were wrong; the next request looks them up.

        librdkafka does not refresh a leader whose epoch differs from its cache (measured on a broker that hung for
        longer than its session: the same answer for all of 25 s).  It does not refresh one whose connection broke
        either, and waits for it.  Called from any thread, librdkafka's too, and so without the lock.
        """
        self._known.pop(topic, None)

    def forget_all(self) -> None:
        """Forgets all leaders: a connection broke, and its broker may be gone."""
        self._known.clear()

    def metadata(self, client: Any, *, seconds: float) -> Any:
        """Returns metadata of all topics, like ``list_topics`` of the client.  Raises KafkaException."""
        with self._lock:
            return client.list_topics(timeout=seconds)

    def request(
        self, client: Any, partitions: Sequence[_Where], spec: OffsetSpec, level: Any, *, seconds: float
    ) -> Mapping[_Where, _Answered | _Refused]:
        """
        Sends a request for offsets.

        Args:
            client: An AdminClient, the same each time.
            partitions: Topic and number.
            spec: Offset to read.
            level: The isolation level.
            seconds: Timeout.

        Returns:
            A future-like result per partition.
        """
        end = self._clock.monotonic() + seconds
        with self._lock:
            try:
                found = self._leaders(client, partitions, end)
            except KafkaException as raised:
                return dict.fromkeys(partitions, _Refused(_asked_again(raised)))
            refusals = {where: found[where[0]].refusal(where[1]) for where in partitions}
            wanted = {TopicPartition(*where): spec for where, error in refusals.items() if error is None}
            futures: Mapping[TopicPartition, Any] = {}
            if wanted:
                left = max(0.1, end - self._clock.monotonic())
                futures = client.list_offsets(wanted, isolation_level=level, request_timeout=left)
        siblings = _Siblings(futures, self)
        answers: dict[_Where, _Answered | _Refused] = {
            (one.topic, one.partition): _Answered(future, siblings) for one, future in futures.items()
        }
        return answers | {where: _Refused(error) for where, error in refusals.items() if error is not None}

    def _leaders(self, client: Any, partitions: Sequence[_Where], end: float) -> Mapping[str, _Leaders]:
        """Returns the leaders of these partitions' topics, after a lookup of unknown ones."""
        now = self._clock.monotonic()
        found: dict[str, _Leaders] = {}
        unknown: dict[str, None] = {}
        for topic, number in partitions:
            until, leaders = self._known.get(topic, (0.0, _NOTHING))
            if now < until and leaders.refusal(number) is None:
                found[topic] = leaders
            else:
                unknown[topic] = None
        if unknown:
            left = min(_LOOK_SECONDS, max(0.1, end - now))
            for topic, leaders in _looked_up(client, list(unknown), left).items():
                found[topic] = leaders
                self._known.pop(topic, None)
                if leaders.error is None:
                    self._known[topic] = (now + self._trusted, leaders)
        return found


def _looked_up(client: Any, names: list[str], seconds: float) -> Mapping[str, _Leaders]:
    """Returns the brokers' answer about topics, which fills the client's cache.  Raises KafkaException."""
    found = {}
    for name, future in client.describe_topics(TopicCollection(names), request_timeout=seconds).items():
        try:
            partitions = future.result(seconds + 1).partitions
        except FutureTimeoutError as raised:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from raised
        except KafkaException as raised:
            # librdkafka's own errors have negative codes, and are said of the request; brokers speak of the topic
            if raised.args[0].code() < 0:
                raise
            found[name] = _Leaders(raised.args[0], 0, frozenset())
        else:
            # a leader that is not among the brokers of the same answer is one without an address
            leaderless = (one.id for one in partitions if one.leader is None or not one.leader.host)
            found[name] = _Leaders(None, len(partitions), frozenset(leaderless))
    return found


def _asked_again(raised: KafkaException) -> KafkaError:
    """Returns a retriable error for a lookup that timed out in its part of the time."""
    error: KafkaError = raised.args[0]
    if error.code() in {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}:
        return KafkaError(KafkaError._TRANSPORT, "no broker told in time who leads")
    return error
