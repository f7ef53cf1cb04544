"""Reads the log ends of a comparison, to detect a stalled reader or records that arrived since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import TopicError, UnreachableError

if TYPE_CHECKING:
    from eomirror.kafka.session import LinkSessions
    from eomirror.verify.verdict import Range, Scope

__all__ = ["LogEnd", "stalled"]


class LogEnd:
    """
    Reads log ends of both clusters.

    Args:
        sessions: Connections to both.
    """

    def __init__(self, sessions: LinkSessions) -> None:
        self._sessions = sessions

    def stable(self, one: Scope) -> tuple[int, int]:
        """
        Returns the last stable offsets of a partition and its copy.

        Raises:
            MirrorError: A cluster cannot be reached or refuses the request, or a topic was deleted.
        """
        source, target = (
            session.admin.offsets([(part.topic, part.partition)], at="latest", read_committed=True)[
                part.topic, part.partition
            ]
            for session, part in zip(self._sessions, (one.source, one.target), strict=True)
        )
        return source, target

    def check(self, one: Scope, reached: tuple[int, int], wanted: tuple[bool, bool]) -> None:
        """
        Raises the reason that a comparison does not advance; returns while a cluster is unreachable, which may recover.

        Args:
            one: Scope of the comparison.
            reached: Offsets of source and target up to which it has read.
            wanted: True for each of source and target that has more to read.

        Raises:
            TopicError: A log ends before its end at the beginning of the comparison, or its brokers return no records.
            MirrorError: A cluster refuses the request.
        """
        try:
            ends = self.stable(one)
        except UnreachableError:
            return
        for part, at, end, waits in zip((one.source, one.target), reached, ends, wanted, strict=True):
            why = stalled(part, at, end) if waits else ""
            if why:
                raise TopicError(
                    why,
                    topic=part.topic,
                    fix="verify again; if it recurs, find out what changes the topic",
                )


def stalled(part: Range, reached: int, end: int) -> str:
    """
    Returns the reason that a log is not read further; empty if it is read to its wanted end.

    Args:
        part: The wanted range.
        reached: Offset up to which it was read.
        end: Its last stable offset.
    """
    where = f"{part.topic}-{part.partition}"
    if reached >= part.tail:
        return ""
    if end < part.tail:
        return (
            f"{where} ends at {end} now, before {part.tail}, where it ended when the comparison began: it was "
            "recreated, truncated or restored from an older log in the meantime"
        )
    return f"{where} was read to {reached}, and its brokers return no records before {end}"
