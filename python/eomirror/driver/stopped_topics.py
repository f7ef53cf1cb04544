"""
The stopped topics of one link, and the records that show them in control.

Only the running driver hears from its lanes that a topic is stopped, and why.  The owner writes it to control together
with the next renewal of its claim, so that `eomirror status` shows it too, also after the run.  Fencing protects these
records as it protects the claim: a driver that has lost the link cannot write them (EO-10).

A record is deleted when the topic goes on.  A lane that has just begun does not know yet: it may find the same refused
record again with its first fetch.  So a topic goes on when each of its partitions has moved in this run or is at its
end, or when its lanes have had all of them for `SETTLED_SECONDS` without stopping the topic again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from eomirror.kafka.client_factory import holds_secret
from eomirror.lane.machine import LaneState
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import Stopped
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.errors import MirrorError
    from eomirror.lane.spec import LaneProgress, LaneSpec
    from eomirror.types import SourcePartition

__all__ = ["SETTLED_SECONDS", "StopRecords"]

#: A topic whose lanes have fetched it for so long without stopping it goes on.
SETTLED_SECONDS = 5.0

# control is read by every lane that begins: a reason is a screen of text, not a dump
_MOST_CHARACTERS = 4_000

_HIDDEN = (
    "the reason is left out, for it shows a secret\n  fix: take the secret out of the name that shows it"
)

# the way up: what a lane says of its positions then, it has read and not yet compared with the topics
_ON_THE_WAY_UP = frozenset(
    {LaneState.STARTING, LaneState.CONTROL, LaneState.POSITIONS, LaneState.COMPARING, LaneState.RESOLVING}
) | {LaneState.CLOSED}


class StopRecords:
    """
    Keeps what control shows of a link's stopped topics in step with what its lanes say.  Thread-safe.

    Args:
        spec: Common to all attempts of the link's lanes; names the link, its clusters and the run.
        clock: Where time comes from.
    """

    def __init__(self, spec: LaneSpec, clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._clusters = (spec.source, spec.target)
        self._clock = clock
        self._lock = threading.Lock()
        # stopped now, by this run
        self._stopped: dict[str, Stopped] = {}
        # of these, what `left_out` was told
        self._left_out: set[str] = set()
        # what control holds for each topic, as far as this run knows
        self._written: dict[str, Stopped] = {}
        # of topics that control shows as stopped and that may go on: where each partition stood when a lane had begun
        # with it, None before that; what has gone on is taken out
        self._waiting: dict[str, dict[int, int | None]] = {}
        # when lanes had begun with all of them
        self._begun: dict[str, float] = {}

    def inherit(self, stopped: Iterable[Stopped], mirrored: Collection[SourcePartition]) -> None:
        """
        Take over what control shows when the link is taken.

        Args:
            stopped: The records, of earlier runs.
            mirrored: Everything that this run mirrors; what it does not mirror is not stopped.
        """
        with self._lock:
            for record in stopped:
                self._written[record.topic] = record
                if record.topic not in self._stopped:
                    self._await(record.topic, mirrored)

    def stopped(self, topics: Mapping[str, tuple[int, str]], lane: int | None) -> None:
        """
        Note that topics are stopped.

        Args:
            topics: Exit code and text of each, as `str` of a `MirrorError` gives it.
            lane: Lane that stopped them; None for the owner.
        """
        with self._lock:
            for topic, (code, text) in topics.items():
                self._waiting.pop(topic, None)
                self._begun.pop(topic, None)
                if topic in self._stopped:
                    continue
                hidden = any(holds_secret(cluster, text) for cluster in self._clusters)
                reason, _, fix = (_HIDDEN if hidden else text).partition("\n  fix: ")
                stop = Stopped(
                    topic=topic,
                    reason=reason[:_MOST_CHARACTERS],
                    fix=fix[:_MOST_CHARACTERS],
                    exit_code=code,
                    lane=lane,
                    run=self._run,
                    timestamp=self._clock.wall_ms(),
                )
                known = self._written.get(topic)
                # tried again, by this run or by a later one, and stopped by the same: it has been since the first time
                self._stopped[topic] = known if known is not None and known.told_alike(stop) else stop

    def left_out(self, topics: Mapping[str, MirrorError]) -> None:
        """
        Note which topics are left out before any lane has them.

        Args:
            topics: All of them, and why; one that is not among them any more is about to be mirrored.
        """
        with self._lock:
            for topic in self._left_out - topics.keys():
                self._stopped.pop(topic, None)
                self._waiting[topic] = {}
            self._left_out = set(topics)
        self.stopped({topic: (error.exit_code, str(error)) for topic, error in topics.items()}, None)

    def tried_again(self, topics: Iterable[str], mirrored: Collection[SourcePartition]) -> None:
        """Note that topics that were stopped are mirrored again, or are about to be."""
        with self._lock:
            for topic in topics:
                if self._stopped.pop(topic, None) is not None and topic in self._written:
                    self._await(topic, mirrored)

    def heard(self, progress: LaneProgress, stopped: Collection[str]) -> None:
        """
        Note what a lane has begun with, and what it has stopped.

        Args:
            progress: A sign of life of the lane.
            stopped: Those of its stopped topics that it did not stop before it was told to try them again.
        """
        codes, texts = progress.stopped_codes, progress.stopped_topics
        self.stopped({topic: (codes.get(topic, 1), texts[topic]) for topic in stopped}, progress.lane)
        with self._lock:
            if not self._waiting or progress.state in _ON_THE_WAY_UP:
                return
            for item in progress.partitions:
                waiting = self._waiting.get(item.topic, {})
                if item.partition not in waiting:
                    continue
                stood = waiting[item.partition]
                if stood is None:
                    waiting[item.partition] = stood = item.position
                if item.position > stood or (item.lso is not None and item.position >= item.lso):
                    del waiting[item.partition]
                if None not in waiting.values():
                    self._begun.setdefault(item.topic, self._clock.monotonic())

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Let the owner commit what control does not show yet, with a record of its own; none may be due.

        What ``commit`` raises is raised, and the same records are due again then.
        """
        with self._lock:
            due = self._due()
        commit(
            [
                MetadataRecord(self._topic, 0, Stopped.key_of(topic), None if stop is None else stop.value())
                for topic, stop in sorted(due.items())
            ]
        )
        with self._lock:
            for topic, stop in due.items():
                if stop is None:
                    self._written.pop(topic, None)
                    self._waiting.pop(topic, None)
                    self._begun.pop(topic, None)
                else:
                    self._written[topic] = stop
                    if topic not in self._stopped:
                        # tried again while it was being written: the next write takes it back
                        self._waiting.setdefault(topic, {})

    # -- inside ----------------------------------------------------------------------------------

    def _await(self, topic: str, mirrored: Collection[SourcePartition]) -> None:
        self._waiting[topic] = {source.partition: None for source in mirrored if source.topic == topic}
        self._begun.pop(topic, None)

    def _due(self) -> dict[str, Stopped | None]:
        due: dict[str, Stopped | None] = {
            topic: stop for topic, stop in self._stopped.items() if stop != self._written.get(topic)
        }
        now = self._clock.monotonic()
        for topic, waiting in self._waiting.items():
            # also empty: the link does not mirror the topic any more
            settled = now - self._begun.get(topic, now) >= SETTLED_SECONDS
            if topic in self._written and (not waiting or settled):
                due[topic] = None
        return due
