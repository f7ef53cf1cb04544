"""
Pauses a link, and resumes it: a record in its control topic, which the owner of the link obeys.

The command may run on any host.  It writes the record with a producer of its own, because the mirror owns the link and
keeps it: it renews its claim, holds its lanes, and goes on at their positions.  A mirror that starts finds the record.
"""

from __future__ import annotations

from contextlib import closing
from shlex import quote
from typing import TYPE_CHECKING, Final

from eomirror.clock import Deadline
from eomirror.errors import LaneError, NotReadyError, UnreachableError
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import Pause, decode_control
from eomirror.records.events import lasting_events
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.session import ClusterSession

__all__ = ["PAUSE_SECONDS", "PauseWatch", "paused_error", "write_control"]

#: Interval at which the owner looks for a request.
PAUSE_SECONDS: Final = 2.0

_READ_SECONDS = 30.0


class PauseWatch:
    """
    Looks for a pause in the control topic of a link.  Not thread-safe.

    Args:
        link: The link.
        target: Connections to its target.

    Attributes:
        pause: The pause that stood at the last look.
    """

    def __init__(self, link: Link, target: ClusterSession) -> None:
        self._topic = LinkNames(link.state_name).control_topic
        self._target = target
        self._reader = CompactedTopicReader(target)
        self._next: int | None = None
        self.pause: Pause | None = None

    def look(self) -> Pause | None:
        """
        Returns the pause that stands; reads only what was written since the last look.

        Raises:
            StateError: A record is not readable.
            ClusterError: The target does not answer.
        """
        where = (self._topic, 0)
        admin = self._target.admin
        if self._next is None:
            self._next = admin.offsets([where], at="earliest", read_committed=False)[where]
        end = admin.offsets([where], at="latest", read_committed=True)[where]
        if end > self._next:
            deadline = Deadline(_READ_SECONDS, self._target.clock)
            records = self._reader.range(self._topic, 0, self._next, end, deadline=deadline)
            found: list[tuple[bytes | None, bytes | None, str]] = [
                (one.key, one.value, one.where) for one in records if one.key == Pause.key()
            ]
            if found:
                self.pause = decode_control(found[-1:]).pause
            self._next = end
        return self.pause


def paused_error(link: str, pause: Pause) -> NotReadyError:
    """Returns the error for what a paused link cannot do."""
    topics = f"topics {pause.topics}" if pause.topics else "all topics"
    return NotReadyError(
        f"link {link} is paused ({topics}, by {pause.host}): it does not catch up",
        fix=f"resume it first: `eomirror resume CONFIG --link {quote(link)}`",
    )


def write_control(
    link: Link, target: Cluster, records: Sequence[tuple[bytes, bytes | None]], *, role: str, clock: Clock
) -> None:
    """
    Commits records to the control topic of a link, beside its owner.

    Args:
        link: The link.
        target: Its target.
        records: Key and value of each; None deletes.
        role: Names the client and its transactional id, so that two commands of a kind follow each other.

    Raises:
        AuthorizationError: Control may not be written.
        UnreachableError: The records are not committed, or that is not known.
    """
    names = LinkNames(link.state_name)
    topic = names.control_topic
    producer = TransactionalProducer(
        target,
        client_id=names.client_id(role),
        transactional_id=f"{names.control_transactional_id}.{role}",
        transaction_timeout=link.transaction_timeout,
        known_topic=topic,
        clock=clock,
    )
    with closing(producer):
        try:
            producer.init()
            producer.begin()
            events, _ = lasting_events(records, owner=None, now_ms=clock.wall_ms())
            written = [*records, *((event.key(), event.value()) for event in events)]
            producer.write([MetadataRecord(topic, 0, key, value) for key, value in written])
            producer.flush(link.transaction_timeout)
            producer.commit()
        except LaneError as error:
            raise UnreachableError(
                f"cannot write {topic} on {link.target}: {error}",
                fix="repeat this when the target is healthy",
            ) from error
