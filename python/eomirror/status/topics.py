"""
Keeps, of a link's topics, the state that a status needs, so that each look reads only new records.

A reader that looks every few seconds would otherwise read megabytes each time, since the newest segment of a compacted
topic is never compacted.  The state is bounded: of each key the record that counts, and a sample of the positions
before it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import orjson

from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import control_view
from eomirror.kafka.topic_follower import TopicFollower
from eomirror.link.valid_positions import PositionSelection
from eomirror.records.events import MOST_EVENTS
from eomirror.records.mm2 import Checkpoint, decode_checkpoint
from eomirror.records.position import AttemptClaim, Position, decode_attempt, decode_key, decode_position
from eomirror.status.derive import RATE_WINDOW_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.clock import Clock
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.control import ControlView
    from eomirror.types import SourcePartition

__all__ = ["PositionsLog", "StatusTopics"]

# covers the time over which rates are averaged, and a read that takes long
_RECENT_SECONDS = 60.0
_SAMPLE_MS = 60_000
_MOST_SAMPLES = 16
_MOST_PRODUCERS = 1_000
# the topic is then read anew, as compaction has left it
_MOST_CONTROL_RECORDS = 10_000


class PositionsLog:
    """
    State of the positions topic.

    Attributes:
        attempts: Newest claim of each lane.
        starts: Newest claims of all lanes, oldest first.
    """

    def __init__(self) -> None:
        self.attempts: dict[int, AttemptClaim] = {}
        self.starts: deque[AttemptClaim] = deque(maxlen=MOST_EVENTS)
        self._selection = PositionSelection()
        self._recent: deque[tuple[float, list[Position]]] = deque()
        self._samples: dict[SourcePartition, list[Position]] = {}
        self._producers: dict[int, Position] = {}

    def take(self, records: Iterable[LogRecord], now: float) -> None:
        """
        Takes new records.

        Args:
            records: In log order within each partition.
            now: Monotonic seconds.

        Raises:
            StateError: A record is not readable, or goes back.
        """
        recent: list[Position] = []
        for record in records:
            self._selection.take(record)
            name = decode_key(record.key, where=record.where)
            if record.value is None:
                continue
            if isinstance(name, int):
                self.attempts[name] = decode_attempt(name, record.value, where=record.where)
                self.starts.append(self.attempts[name])
            else:
                position = decode_position(name, record.value, where=record.where)
                recent.append(position)
                self._sample(position)
        if recent:
            self._recent.append((now, recent))
        self._forget(now - _RECENT_SECONDS)

    def valid(self) -> Mapping[SourcePartition, Position]:
        """
        Returns the valid position of every source partition.

        Raises:
            StateError: A record is not readable.
        """
        return self._selection.valid()

    def history(self) -> list[Position]:
        """Returns the positions of the last minute, and samples of older ones, with the last of each producer."""
        found = {id(one): one for positions in self._samples.values() for one in positions}
        found |= {id(one): one for one in self._producers.values()}
        found |= {id(one): one for _, positions in self._recent for one in positions}
        return list(found.values())

    def _forget(self, before: float) -> None:
        """Forgets positions that were read earlier; those before the newest stay, for the link's last rate."""
        while len(self._recent) > 1 and self._recent[0][0] < min(
            before, self._recent[-1][0] - RATE_WINDOW_SECONDS
        ):
            self._recent.popleft()
        if self._recent and self._recent[-1][0] < before:
            newest = max(position.timestamp for _, some in self._recent for position in some)
            since = newest - RATE_WINDOW_SECONDS * 1000
            self._recent = deque(
                (at, [position for position in some if position.timestamp >= since])
                for at, some in self._recent
            )

    def _sample(self, position: Position) -> None:
        self._producers.pop(position.producer_id, None)
        self._producers[position.producer_id] = position
        if len(self._producers) > _MOST_PRODUCERS:
            del self._producers[next(iter(self._producers))]
        samples = self._samples.setdefault(position.source, [])
        if not samples or position.timestamp - samples[-1].timestamp >= _SAMPLE_MS:
            samples.append(position)
            if len(samples) > _MOST_SAMPLES:
                # the oldest stays, and the rest thins out
                del samples[1::2]


class StatusTopics:
    """
    Reads a link's topics on its target.  Not thread-safe.

    Args:
        target: Session of the target.
        seconds: Maximum wait for the next record.
        clock: Source of time.
    """

    def __init__(self, target: ClusterSession, *, seconds: float, clock: Clock) -> None:
        self._follower = TopicFollower(target)
        self._seconds = seconds
        self._clock = clock
        self._control: list[LogRecord] = []
        self._positions = PositionsLog()
        self._checkpoints: dict[tuple[int, bytes | None], tuple[Checkpoint | str, int]] = {}

    def control(self, topic: str) -> tuple[ControlView, list[LogRecord]]:
        """
        Returns the control topic, and its records, oldest first; of a claim's renewals the first and the last.

        Raises:
            StateError: A record is not readable; the next read begins at the start; compaction may remove it.
            ClusterError: The topic cannot be read.
        """
        if len(self._control) > _MOST_CONTROL_RECORDS:
            self._follower.forget(topic)
        news = self._follower.read(topic, seconds=self._seconds)
        if news.restarted:
            self._control = []
        if news.records:
            self._control = without_renewals([*self._control, *news.records])
        try:
            return control_view(self._control), self._control
        except StateError:
            self._follower.forget(topic)
            raise

    def positions(self, topic: str) -> PositionsLog:
        """
        Returns the state of the positions topic.

        Raises:
            StateError: A record is not readable; the next read begins at the start; compaction may remove it.
            ClusterError: The topic cannot be read.
        """
        news = self._follower.read(topic, seconds=self._seconds)
        if news.restarted:
            self._positions = PositionsLog()
        try:
            self._positions.take(news.records, self._clock.monotonic())
            self._positions.valid()
        except StateError:
            self._follower.forget(topic)
            raise
        return self._positions

    def checkpoints(self, topic: str) -> list[tuple[Checkpoint | str, int]]:
        """
        Returns the newest checkpoint of each key, or the reason why it is not one, with its timestamp.

        Raises:
            ClusterError: The topic cannot be read.
        """
        news = self._follower.read(topic, seconds=self._seconds)
        if news.restarted:
            self._checkpoints = {}
        for record in news.records:
            key = record.partition, record.key
            # log order: a later record moves to the end
            self._checkpoints.pop(key, None)
            if record.value is not None:
                self._checkpoints[key] = _checkpoint(record), record.timestamp
        return list(self._checkpoints.values())


def without_renewals(records: Iterable[LogRecord]) -> list[LogRecord]:
    """
    Returns control records without renewals of a claim between the first and the last of the same run.

    Args:
        records: Oldest first.
    """
    kept: list[LogRecord] = []
    # place of the last claim in `kept`, what it says, and whether the claim before says the same
    last: tuple[int, tuple[object, object], bool] | None = None
    for record in records:
        claimed = _claimed(record)
        if claimed is None:
            kept.append(record)
        elif last is not None and last[1] == claimed and last[2]:
            del kept[last[0]]
            kept.append(record)
            last = len(kept) - 1, claimed, True
        else:
            kept.append(record)
            last = len(kept) - 1, claimed, last is not None and last[1] == claimed
    return kept


def _claimed(record: LogRecord) -> tuple[object, object] | None:
    """Returns run and release of a claim; None for another record."""
    try:
        name, body = orjson.loads(record.key or b"null"), orjson.loads(record.value or b"null")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(name, dict) or not isinstance(body, dict) or name.get("kind") != "claim":
        return None
    return body.get("run"), body.get("released")


def _checkpoint(record: LogRecord) -> Checkpoint | str:
    try:
        return decode_checkpoint(record.key, record.value, where=record.where)
    except StateError as error:
        return error.message
