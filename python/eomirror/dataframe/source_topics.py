"""The topics that a source reads: their partitions, ids and offsets, as the brokers tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from eomirror._native import PatternSet
from eomirror.dataframe.options import EARLIEST, LATEST
from eomirror.dataframe.scan import CLIENT_ID, MirroredRange, connect
from eomirror.errors import DataLossError, TopicError, UsageError, some
from eomirror.kafka.session import ClusterSession
from eomirror.topology.filters import internal_reason

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.dataframe.offsets import Name, QueryOffsets, ReadRange
    from eomirror.dataframe.options import OffsetBound, SourceOptions

__all__ = [
    "SAMPLE_BYTES",
    "SAMPLE_SECONDS",
    "ClusterTopics",
    "SubscribedTopics",
    "bound_offsets",
    "checked_ids",
    "chosen_names",
    "recreated_error",
]

# a sample of a log, from which its bytes per offset are known
SAMPLE_BYTES = 64 * 1024
SAMPLE_SECONDS = 5.0


class SubscribedTopics(Protocol):
    """Topics of a source, on its cluster or as copies on another one."""

    def partitions(self) -> Mapping[Name, str]:
        """Returns the partitions that the options name, with the ids of their topics."""

    def starts(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the first offsets of logs."""

    def ends(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the last stable offsets."""

    def at_time(self, names: Collection[Name], milliseconds: int) -> dict[Name, int]:
        """Returns the offsets of the first records at or after a time; -1 for none."""

    def sizes(self, offsets: Mapping[Name, int]) -> dict[Name, float]:
        """Returns the bytes of one offset, near these offsets."""

    def mirrored(self, wanted: ReadRange) -> MirroredRange | None:
        """Returns the copy of a range; None if the range is read as it is."""

    def close(self) -> None:
        """Releases the connections."""


class ClusterTopics:
    """Topics of the cluster that the options name."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._session = ClusterSession(options.cluster, client_id=CLIENT_ID)

    def partitions(self) -> Mapping[Name, str]:
        """
        Returns the partitions that the options name, with the ids of their topics.

        Raises:
            TopicError: A topic or partition that is named does not exist.
            ClusterError: The cluster cannot be asked.
        """
        admin = self._session.admin
        names = chosen_names(self._options, admin.topic_names() if self._options.pattern else ())
        found: dict[Name, str] = {}
        for topic, facts in admin.describe_topics(names).items() if names else ():
            if facts is None:
                if self._options.pattern:
                    # deleted since it was listed
                    continue
                raise TopicError(
                    f"topic {topic} does not exist", fix="create it, or correct the option", topic=topic
                )
            found |= {(topic, number): facts.topic_id for number in range(facts.partitions)}
        return _assigned(found, self._options.partitions)

    def starts(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the first offsets of logs."""
        return self._listed(names, "earliest")

    def ends(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the last stable offsets: no open transaction lies before them."""
        return self._listed(names, "latest")

    def at_time(self, names: Collection[Name], milliseconds: int) -> dict[Name, int]:
        """Returns the offsets of the first records at or after a time; -1 for none."""
        return self._listed(names, milliseconds)

    def sizes(self, offsets: Mapping[Name, int]) -> dict[Name, float]:
        """Returns the bytes of one offset as the broker stores it, by a sample of each log from these offsets on."""
        asked = [(topic, number, offset) for (topic, number), offset in offsets.items()]
        if not asked:
            return {}
        found = connect(self._options.cluster).density(asked, SAMPLE_BYTES, SAMPLE_SECONDS)
        return {(topic, number): size / span for topic, number, size, span in found if span}

    def mirrored(self, wanted: ReadRange) -> MirroredRange | None:
        """Returns None: the range is read as it is."""
        del wanted
        return None

    def close(self) -> None:
        """Releases the connections."""
        self._session.close()

    def _listed(self, names: Collection[Name], at: str | int) -> dict[Name, int]:
        return self._session.admin.offsets(names, at=at, read_committed=True) if names else {}


def chosen_names(options: SourceOptions, existing: Collection[str]) -> list[str]:
    """
    Returns the topics that the options name.

    Args:
        existing: All topics, for a pattern; internal ones are never chosen by it.

    Raises:
        UsageError: The pattern is wrong.
    """
    if options.topics:
        return list(dict.fromkeys(options.topics))
    if options.partitions:
        return sorted({topic for topic, _ in options.partitions})
    try:
        patterns = PatternSet([options.pattern], [])
    except ValueError as error:
        raise UsageError(f"option subscribePattern: {error}", fix="correct the pattern") from error
    return sorted(name for name in existing if patterns.matches(name) and not internal_reason(name))


def _assigned(found: Mapping[Name, str], wanted: Collection[Name]) -> Mapping[Name, str]:
    if not wanted:
        return found
    if missing := sorted(set(wanted) - found.keys()):
        topic, number = missing[0]
        raise TopicError(
            f"option assign: {topic} has no partition {number}", fix="name partitions that exist", topic=topic
        )
    return {name: found[name] for name in sorted(wanted)}


def bound_offsets(
    topics: SubscribedTopics,
    bound: OffsetBound,
    names: Collection[Name],
    *,
    strict: bool,
    at_end: bool = False,
) -> dict[Name, int]:
    """
    Returns the offsets that a bound means.

    Args:
        names: All partitions of the query.
        strict: Fail where no record is at or after the time; otherwise the end is meant.
        at_end: The bound is that of the end.

    Raises:
        UsageError: The bound does not name every partition, or names another one.
        TopicError: A partition has no record at or after the time.
    """
    if bound.at == "earliest":
        return topics.starts(names)
    if bound.at == "latest":
        return topics.ends(names)
    if bound.at != "":
        return _by_time(
            topics, dict.fromkeys(names, int(bound.at)), strict=strict and not at_end, bound=bound
        )
    given = bound.times if bound.offsets is None else bound.offsets
    _check_complete(bound.option, given or {}, names)
    if bound.offsets is None:
        return _by_time(topics, bound.times or {}, strict=strict and not at_end, bound=bound)
    special = {
        LATEST: topics.ends([name for name, at in bound.offsets.items() if at == LATEST]),
        EARLIEST: topics.starts([name for name, at in bound.offsets.items() if at == EARLIEST]),
    }
    return {name: special[at][name] if at in special else at for name, at in bound.offsets.items()}


def _check_complete(option: str, given: Mapping[Name, int], names: Collection[Name]) -> None:
    for wrong, what in ((set(names) - given.keys(), "does not name"), (given.keys() - set(names), "names")):
        if wrong:
            shown = some([f"{topic}-{number}" for topic, number in sorted(wrong)])
            raise UsageError(
                f"option {option} {what} {shown}",
                fix="name exactly the partitions of the subscribed topics; -2 is the beginning, -1 the end",
            )


def _by_time(
    topics: SubscribedTopics, times: Mapping[Name, int], *, strict: bool, bound: OffsetBound
) -> dict[Name, int]:
    found: dict[Name, int] = {}
    for time in set(times.values()):
        found |= topics.at_time([name for name, at in times.items() if at == time], time)
    without = sorted(name for name, offset in found.items() if offset < 0)
    if without and strict:
        shown = some([f"{topic}-{number}" for topic, number in without])
        raise TopicError(
            f"option {bound.option}: no record of {shown} is at or after the time",
            fix="set startingOffsetsByTimestampStrategy to latest to begin at the end there",
            topic=without[0][0],
        )
    return found | topics.ends(without)


def recreated_error(topic: str, expected: str, found: str) -> DataLossError:
    """Returns the error of offsets that speak of another topic of this name."""
    return DataLossError(
        f"topic {topic} is not the one that the offsets of the query speak of: its id is {found}, theirs is "
        f"{expected}; it was deleted and created again, or the query reads another cluster",
        fix="start the query with a new checkpoint; for a copy on the other side of a link, translate the checkpoint: "
        "`eomirror checkpoint translate DIR --link NAME`, or set the option mirror.source",
        topic=topic,
    )


def checked_ids(start: QueryOffsets, current: Mapping[str, str], *, strict: bool) -> set[str]:
    """
    Returns the topics that were created again since, and are to be read from their beginning.

    Raises:
        DataLossError: There is one, and ``strict``.
    """
    other = {
        topic for topic, known in start.ids.items() if topic in current and current[topic] not in {known, ""}
    }
    if other and strict:
        topic = min(other)
        raise recreated_error(topic, start.ids[topic], current[topic])
    return other
