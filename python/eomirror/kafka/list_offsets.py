"""
ListOffsets of partitions whose leaders librdkafka knows, and of no others.

Asked for a partition whose leader is not in its cache, librdkafka's AdminClient asks for metadata and goes on when its
cache changes; any change will do, one that another request brought about too, and then its main thread goes on with
what the calling thread is still at work on.  Measured with 2.16.1: four threads that asked one client for topics new
to it, a few thousand times, ended the process each time (a null mutex in
``rd_kafka_topic_partition_list_query_leaders_async_worker``, and the code is the same on its main branch).  A lane
that starts asks in two threads, and met it once in some thousand starts.  With all leaders in the cache, nothing waits
for a change of it.

So leaders are looked up first, by a request whose answer is waited for; and no such look is under way in a client
while it is asked for offsets.  A partition that has no leader, or is not there, is not asked about: the
answer is what librdkafka would have said.

The look describes topics, and is not ``list_topics``: with the name of a topic, that makes an object of the topic in
librdkafka which stays as long as the client.  It is asked about once more in the background at once, and where it is
not there, or is deleted later, about twice a second for ever (measured with 2.16.1).  Without a name, it brings all
topics of the cluster into the memory of each client.
"""

from __future__ import annotations

import threading
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
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
    """How long a client with these properties has what it was told about leaders in its cache, and some more."""
    ages = [_number(properties[name]) * share / 1000 for name, share in _AGES.items() if name in properties]
    # a refresh interval of -1 switches it off
    return min([_TRUSTED_SECONDS, *(age for age in ages if age >= 0)])


def _number(value: Any) -> float:
    """A property as a number."""
    # whatever comes from the environment or a file is a secret
    text = value.reveal() if isinstance(value, Secret) else value
    try:
        return float(text)
    except ValueError:
        # librdkafka takes other notations, such as 0xea60; looking each time is always right
        return 0.0


class _Answered:
    """
    The offset of one partition, or an error where librdkafka gives neither.

    When a connection breaks before a broker has answered ListOffsets, librdkafka 2.16 reports success and the offset
    -1001, "invalid" (measured: every time).  Taken for an end, it makes a reader skip the partition, and what
    was committed there is never seen (EO-3); taken for a log start, it hides a gap (EO-6).
    """

    __slots__ = ("_future", "_heard")

    def __init__(self, future: Any, topic: str, asked: ListOffsets) -> None:
        self._future = future
        self._heard = partial(_heard, asked, topic)
        # when it comes, and whether anybody waits for it or not: librdkafka has dropped the topic from its cache
        future.add_done_callback(self._heard)

    def result(self, timeout: float | None = None) -> Any:
        """The answer; raises KafkaException, which says that asking again helps, where there is none."""
        try:
            answer = self._future.result(timeout)
        except KafkaException:
            # who waits for a future is woken before its callbacks are called
            self._heard(self._future)
            raise
        if answer.offset == OFFSET_INVALID:
            self._heard(self._future)
            raise KafkaException(
                KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, "the connection broke before the answer")
            )
        return answer


def _heard(asked: ListOffsets, topic: str, done: Any) -> None:
    """What an answer says of the leader that was asked."""
    if done.exception() is not None or done.result().offset == OFFSET_INVALID:
        asked.forget(topic)


class _Refused:
    """Of a partition that is not asked about."""

    __slots__ = ("_error",)

    def __init__(self, error: KafkaError) -> None:
        self._error = error

    def result(self, timeout: float | None = None) -> Any:  # noqa: ARG002  that of a future
        """Raises KafkaException: why."""
        raise KafkaException(self._error)


class _Leaders(NamedTuple):
    """Of one topic: why it cannot be asked, or how many partitions it has, and which of them have no leader."""

    error: KafkaError | None
    partitions: int
    leaderless: frozenset[int]

    def refusal(self, number: int) -> KafkaError | None:
        """Why a partition is not asked about; in librdkafka's words."""
        if self.error is not None:
            return self.error
        if number >= self.partitions:
            return KafkaError(KafkaError._UNKNOWN_PARTITION)
        return KafkaError(KafkaError.LEADER_NOT_AVAILABLE) if number in self.leaderless else None


_NOTHING = _Leaders(None, 0, frozenset())


class ListOffsets:
    """
    How one client is asked for offsets and for names of topics; any thread may ask.

    Args:
        trusted: Seconds for which the client has in its cache what it was told; see `trusted_seconds`.
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
        Looks for the topic's leaders before it is asked about again: what the client knows of them was wrong.

        librdkafka does not look by itself where a leader has another epoch than the one in its cache, with which it
        would go on asking (measured on a broker that stood still for longer than its session: the same answer
        for the 25 s that we looked), nor where the connection to it broke, which it would wait for.  Called in any
        thread, librdkafka's too, and so without the lock.
        """
        self._known.pop(topic, None)

    def forget_all(self) -> None:
        """Looks for all leaders again: a connection broke, and the broker at its other end may be gone."""
        self._known.clear()

    def metadata(self, client: Any, *, seconds: float) -> Any:
        """Of all topics, as ``list_topics`` of the client answers.  Raises KafkaException."""
        with self._lock:
            return client.list_topics(timeout=seconds)

    def ask(
        self, client: Any, partitions: Sequence[_Where], spec: OffsetSpec, level: Any, *, seconds: float
    ) -> Mapping[_Where, _Answered | _Refused]:
        """
        Begins to ask for offsets.

        Args:
            client: An AdminClient, the same each time.
            partitions: Topic and number.
            spec: Which offset of each.
            level: The isolation level.
            seconds: How long it may take.

        Returns:
            What has the result of a future, for each partition.
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
        answers: dict[_Where, _Answered | _Refused] = {
            (one.topic, one.partition): _Answered(future, one.topic, self) for one, future in futures.items()
        }
        return answers | {where: _Refused(error) for where, error in refusals.items() if error is not None}

    def _leaders(self, client: Any, partitions: Sequence[_Where], end: float) -> Mapping[str, _Leaders]:
        """What is known about these partitions' topics, after a look at those of which it was not."""
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
    """What the brokers say of topics, which then is in the client's cache.  Raises KafkaException."""
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
    """A look that got no answer in its part of the time is worth another one, as one whose connection broke."""
    error: KafkaError = raised.args[0]
    if error.code() in {KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE}:
        return KafkaError(KafkaError._TRANSPORT, "no broker told in time who leads")
    return error
