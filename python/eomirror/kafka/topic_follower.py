"""
Reads compacted topics of one cluster again and again, each time only what was committed since.

A read begins where the last one ended, unless the log is no longer the one that was read.  Then it begins at the log's
start, and says so.  Signs of another log, per partition::

    topic id changed                     the topic was created again
    fewer partitions                     the topic was created again
    end before our offset                the log was truncated
    log start behind our offset          records were deleted that were not read
    another leader epoch                 an unclean election may have cut the log, which may have grown since

Compaction is no such sign: it removes records for which a later one of the same key stays, and that one is read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eomirror.errors import ClusterError
from eomirror.kafka.compacted_topic import LogRecord, log_record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.session import ClusterSession

__all__ = ["News", "TopicFollower"]


class News(NamedTuple):
    """
    Records of one read.

    Attributes:
        restarted: True if these are all records of the topic, and what was read before is void.
        records: Committed records, in log order per partition.
    """

    restarted: bool
    records: list[LogRecord]


@dataclass(slots=True)
class _Place:
    """
    End of the last read of a topic.

    Attributes:
        topic_id: Id of the topic.
        offsets: Next offset of each partition, by number.
        epochs: Leader epoch of each partition, by number.
    """

    topic_id: str
    offsets: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)


class TopicFollower:
    """
    Follows topics of one cluster.  Not thread-safe.

    Args:
        wait_for_open: Wait for open transactions, so that they hide no committed record.  By default a read ends at the
            last stable offset, and nothing may be decided from it (EO-3).
    """

    def __init__(self, cluster: ClusterSession, *, wait_for_open: bool = False) -> None:
        self._cluster = cluster
        self._wait_for_open = wait_for_open
        self._places: dict[str, _Place] = {}

    def forget(self, topic: str) -> None:
        """Lets the next read of ``topic`` begin at its start."""
        self._places.pop(topic, None)

    def read(self, topic: str, *, seconds: float, missing: bool = False) -> News:
        """
        Returns what was committed to ``topic`` since the last read.

        After an error the next read begins where this one did.

        Args:
            topic: A topic that exists.
            seconds: Maximum wait for the next record.
            missing: A topic that does not exist has no records, and is no error.

        Raises:
            UnreachableError: The read did not come to its end in time.
            ClusterError: The topic does not exist, or the cluster refuses us.
        """
        admin = self._cluster.admin
        facts = admin.describe_topics([topic])[topic]
        if facts is None:
            self.forget(topic)
            if missing:
                return News(restarted=True, records=[])
            raise ClusterError(
                f"topic {topic} does not exist on the target",
                fix="run `eomirror plan CONFIG` to see what is missing",
            )
        names = [(topic, number) for number in range(facts.partitions)]
        starts = admin.offsets(names, at="earliest", read_committed=False)
        found = admin.log_ends(names, read_committed=not self._wait_for_open)
        ends = {number: end for (_, number), (end, _) in found.items()}
        epochs = {number: epoch for (_, number), (_, epoch) in found.items()}
        before = self._places.get(topic)
        begins = {number: start for (_, number), start in starts.items()}
        restarted = (
            before is None or before.topic_id != facts.topic_id or _is_another(before, begins, ends, epochs)
        )
        if before is not None and not restarted:
            begins |= before.offsets
        records: list[LogRecord] = []
        wanted = {
            (topic, number): (begins[number], end) for number, end in ends.items() if end > begins[number]
        }
        if wanted:
            with self._cluster.reader() as reader:
                reader.connect([topic])
                reader.read(
                    wanted, lambda _, message: records.append(log_record(message)), stall=seconds, to_end=True
                )
        after = {number: max(begins[number], end) for number, end in ends.items()}
        for record in records:
            after[record.partition] = max(after[record.partition], record.offset + 1)
        self._places[topic] = _Place(facts.topic_id, after, epochs)
        return News(restarted, records)


def _is_another(
    before: _Place, starts: Mapping[int, int], ends: Mapping[int, int], epochs: Mapping[int, int]
) -> bool:
    """Returns True if the logs are not those that were read before, grown."""
    return any(
        number not in ends
        or not starts[number] <= offset <= ends[number]
        or epochs[number] != before.epochs[number]
        for number, offset in before.offsets.items()
    )
