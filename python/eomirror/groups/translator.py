"""`translate`: queries the link's topics in the required order and returns translations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import UnreachableError, UsageError
from eomirror.groups.bidirectional_reader import BidirectionalPair, opposite_link
from eomirror.groups.empty_partition import from_end_to_end
from eomirror.groups.from_checkpoints import (
    FindUnreachable,
    checkpointed,
    none_unreachable,
    refuse_reverse_without_source,
)
from eomirror.groups.log_start import from_log_start
from eomirror.groups.recreated_topic import replaced
from eomirror.groups.translation import Translation, never_mirrored, refuse_nameless, translation, voided
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.config import Cluster, Config, Link
    from eomirror.kafka.consumer_groups import Committed
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["translate"]


def translate(
    config: Config,
    *,
    group: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    reverse: bool = False,
    link: str | None = None,
    source_unavailable: bool = False,
    away: FindUnreachable = none_unreachable,
) -> list[Translation]:
    """
    Translates offsets to the other side of a link.

    Either ``group``: resume offsets for all of its committed offsets in topics of the link; or ``topic``,
    ``partition`` and ``offset``: the offset of that record.  If equal names are written on both sides these differ, and
    ``group`` queries the maps of both links, as `eomirror.groups.group_offsets` does.

    Args:
        config: Configuration of the mirror.
        group: A consumer group of the source (of the target with ``reverse``).
        topic: A topic of the source (of the target with ``reverse``).
        partition: A partition of it.
        offset: Next offset to read there.
        reverse: From target to source.
        link: Name of the link; by default all links that know the topic or the group's topics are queried.
        source_unavailable: For a group: use its checkpoints on the target, as for a source that does not answer.
        away: Finds the clusters of links that do not answer; by default each is waited for in turn.

    Returns:
        One per link and partition, sorted.

    Raises:
        UsageError: Neither or both were given, or no link has a position for the topic.
        StateError: A record in the link's topics is not readable.
        ClusterError: A cluster cannot be asked.
    """
    plain = (topic, partition, offset)
    if (group is None) == (None in plain) or (group is not None and any(item is not None for item in plain)):
        raise UsageError(
            "name either a group, or a topic, a partition and an offset",
            fix="give --group, or all of --topic, --partition and --offset",
        )
    refuse_nameless(group)
    refuse_reverse_without_source(source_unavailable=source_unavailable, reverse=reverse)
    if offset is not None and offset < 0:
        raise UsageError(f"{offset} is not an offset", fix="give an offset of 0 or more")
    found = []
    links = [config.link(link)] if link is not None else list(config.links)
    unreachable = away(links)
    for each in links:
        reader = OffsetMapReader(each, config.clusters[each.target])
        try:
            if group is not None:
                found += _of_group(
                    config,
                    each,
                    reader,
                    group,
                    reverse=reverse,
                    source_unavailable=source_unavailable,
                    away=unreachable,
                )
            elif topic is not None and partition is not None and offset is not None:
                found += _of_offset(config, each, reader, (topic, partition), offset, reverse=reverse)
        finally:
            reader.close()
    if not found and topic is not None:
        side = "target" if reverse else "source"
        raise UsageError(
            f"no link has mirrored {topic}-{partition} on its {side}",
            fix="`eomirror status CONFIG` lists the partitions; without --reverse, name the source's topic",
        )
    return sorted(found, key=lambda item: (item.link, item.topic, item.partition))


def _of_group(
    config: Config,
    link: Link,
    reader: OffsetMapReader,
    group: str,
    *,
    reverse: bool,
    source_unavailable: bool,
    away: Mapping[str, UnreachableError],
) -> list[Translation]:
    client_id = LinkNames(link.state_name).client_id("offsets")
    error = None if reverse else away.get(link.source)
    committed: Mapping[tuple[str, int], Committed] | None = None
    if not source_unavailable and error is None:
        groups = ClusterGroups(config.clusters[link.target if reverse else link.source], client_id=client_id)
        try:
            committed = groups.committed([group])[group]
        except UnreachableError as caught:
            if reverse:
                raise
            error = caught
        finally:
            groups.close()
    if committed is None:
        target = config.clusters[link.target]
        return checkpointed(link, reader, target, matches=group.__eq__, client_id=client_id, error=error)[0]
    asked = [(name, one.offset) for name, one in committed.items()]
    # The way back may be queried while the source is down.
    source = None if reverse else config.clusters[link.source]
    found, void = _ask(
        link, reader, asked, (source, config.clusters[link.target]), group=group, reverse=reverse
    )
    if not reverse:
        # Only the positions say which of the target's topics are the link's.
        known = [(each.topic, each.partition) for each in (*found, *void)]
        void += never_mirrored(link, asked, known, group=group)
    opposite = opposite_link(config, link)
    if opposite is not None and found:
        # One map knows nothing of records that were written on the other side, and a group would skip them.
        pair = BidirectionalPair(config, link, opposite, reverse=reverse)
        try:
            found = [each for each, _ in pair.settle(found)]
        finally:
            pair.close()
    if not reverse:
        found = from_log_start(found, config.clusters[link.target], client_id=client_id)
    return found + void


def _of_offset(
    config: Config, link: Link, reader: OffsetMapReader, name: tuple[str, int], offset: int, *, reverse: bool
) -> list[Translation]:
    clusters = None, config.clusters[link.target]
    found, void = _ask(link, reader, [(name, offset)], clusters, group="", reverse=reverse)
    return found + void


def _ask(
    link: Link,
    reader: OffsetMapReader,
    asked: Sequence[tuple[tuple[str, int], int]],
    clusters: tuple[Cluster | None, Cluster],
    *,
    group: str,
    reverse: bool,
) -> tuple[list[Translation], list[Translation]]:
    """Returns translations from the map, and unknown ones for recreated topics."""
    # An offset behind the last record is valid only with an end that was read before the map.  The positions are read
    # after the group's offsets, so that a group is not ahead of the positions.
    names = _by_name(reader.positions(), reverse=reverse)
    asked = [item for item in asked if item[0] in names]
    source, target = clusters
    client_id = LinkNames(link.state_name).client_id("offsets")
    reasons = replaced([names[name] for name, _ in asked], source=source, target=target, client_id=client_id)
    void = voided(link, [(group, *item) for item in asked], names, reasons, reverse=reverse)
    asked = [item for item in asked if names[item[0]].source not in reasons]
    if not asked:
        return [], void
    ends = reader.stable_ends([name for name, _ in asked]) if reverse else {}
    questions = [Question(names[name], offset, ends.get(name, 0)) for name, offset in asked]
    answers = from_end_to_end(reader, questions, reader.answers(questions, reverse=reverse), reverse=reverse)
    found = [
        translation(link.name, question.position, question.offset, answer, group=group, reverse=reverse)
        for question, answer in zip(questions, answers, strict=True)
    ]
    return found, void


def _by_name(
    positions: Mapping[SourcePartition, Position], *, reverse: bool
) -> dict[tuple[str, int], Position]:
    if not reverse:
        return {(source.topic, source.partition): position for source, position in positions.items()}
    return {(position.target_topic, position.target_partition): position for position in positions.values()}
