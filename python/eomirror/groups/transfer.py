"""
Exports exact offsets of groups to a file (`export_offsets`) and imports them group by group (`import_offsets`).

The file is JSON, so that it can be read, kept and edited::

    {"v": 1, "cluster": "west", "cluster_id": "...", "made": 1700000000000, "link": "east->west",
     "topic_ids": {"east.orders": "..."},
     "groups": {"billing": [{"topic": "east.orders", "partition": 0, "offset": 998,
                             "from_topic": "orders", "from_partition": 0, "from_offset": 1000,
                             "metadata": ""}]}}

The offsets of a group go to the coordinator in one request, after all of them were checked.  A coordinator answers for
each partition: what it refuses all the same is told by partition.
A topic that was recreated since the export is another topic, although its offsets have the same numbers.
`eomirror.groups.offset_rule` decides if an offset may be written.  The file may set a group back, and where consumers
have read: its author knows why.

`read_offset_list` reads offsets that an application keeps in a store of its own.  Three forms are known::

    [{"topic": "orders", "partition": 0, "offset": 1000}, ...]        also under "offsets"
    {"orders": {"0": 1000, "1": 998}}                                 Spark, as `startingOffsets` takes it
    v1 / {...} / {"orders": {"0": 1000, "1": 998}} / -                Spark, a file of `CHECKPOINT/offsets`

A file of a Spark checkpoint has a line for its version, one for the batch, and one for each source of the query.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.config.rights import told
from eomirror.errors import MirrorError, UsageError
from eomirror.groups.offset_queries import FindUnreachable, group_offsets, none_unreachable, unreadable_topics
from eomirror.groups.offset_rule import commit_denied, members_there, metadata_left_out, past_others
from eomirror.groups.shared_copies import WrittenTopic, copies_of, other_records
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.records.names import LinkNames
from eomirror.topology.naming import illegal_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from eomirror.config import Config
    from eomirror.groups.translation import OtherRecords
    from eomirror.kafka.admin import TopicFacts

__all__ = ["OFFSET_LIST_FIX", "ImportedGroup", "export_offsets", "import_offsets", "read_offset_list"]

OFFSET_LIST_FIX = (
    'write [{"topic": "orders", "partition": 0, "offset": 1000}, ...] or {"orders": {"0": 1000}}, or name a file of '
    "Spark's CHECKPOINT/offsets"
)


def read_offset_list(content: bytes, name: str) -> list[tuple[str, int, int]]:
    """
    Returns topic, partition and next offset to read of each entry, without repetitions.

    Args:
        content: The file.
        name: Its name, for messages.

    Raises:
        UsageError: It has none of the forms, or an entry is not an offset.
    """
    found: dict[tuple[str, int], int] = {}
    for topic, partition, offset in _entries(content, name):
        if type(topic) is not str or not topic:
            raise _refused(name, f"{topic!r} is not a topic")
        if type(partition) is not int or partition < 0:
            raise _refused(name, f"{topic} has no partition {partition!r}")
        # True is an int in Python; -1 and -2 are the end and the beginning for Spark, and no offsets.
        if type(offset) is not int or offset < 0:
            raise _refused(name, f"{topic}-{partition}: {offset!r} is not an offset")
        if found.setdefault((topic, partition), offset) != offset:
            raise _refused(
                name, f"{topic}-{partition} has two offsets, {found[topic, partition]} and {offset}"
            )
    if not found:
        raise _refused(name, "it has no offset")
    return [(*where, offset) for where, offset in found.items()]


def _entries(content: bytes, name: str) -> Iterator[tuple[Any, Any, Any]]:
    try:
        parsed = [orjson.loads(content)]
    except orjson.JSONDecodeError:
        parsed = list(_spark_sources(content, name))
    for each in parsed:
        rows = (
            each.get("offsets") if isinstance(each, dict) and isinstance(each.get("offsets"), list) else each
        )
        if isinstance(rows, list):
            for row in rows:
                if not isinstance(row, dict) or not {"topic", "partition", "offset"} <= row.keys():
                    raise _refused(name, f"{row!r} has no topic, partition and offset")
                yield row["topic"], row["partition"], row["offset"]
        elif isinstance(rows, dict):
            for topic, partitions in rows.items():
                if not isinstance(partitions, dict):
                    raise _refused(name, f"{topic} has no partitions")
                for partition, offset in partitions.items():
                    yield topic, int(partition) if partition.isdecimal() else partition, offset
        else:
            raise _refused(name, f"{rows!r} is no list")


def _spark_sources(content: bytes, name: str) -> Iterator[Any]:
    """Yields the sources of a file of `CHECKPOINT/offsets`; a line of one without an offset is ``-``."""
    lines = content.decode(errors="replace").splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):  # noqa: PLR2004  version, batch, and a source
        raise _refused(name, "it is not JSON")
    for line in lines[2:]:
        if line.strip() in {"", "-"}:
            continue
        try:
            yield orjson.loads(line)
        except orjson.JSONDecodeError:
            raise _refused(name, f"{line[:80]!r} is not JSON") from None


def _refused(name: str, reason: str) -> UsageError:
    return UsageError(f"{name} is no list of offsets: {reason}", fix=OFFSET_LIST_FIX)


VERSION = 1

Name = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedGroup:
    """
    Result of the import of one group.

    Attributes:
        offsets: Topic, partition, previous offset (None for none), new offset.
        written: True if they were committed; with ``dry_run``, if they would be.
        problem: Reason against the import; empty if there is none.
        notes: Partitions whose metadata is left out, with the reason.
    """

    group: str
    offsets: tuple[tuple[str, int, int | None, int], ...]
    written: bool
    problem: str = ""
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "group": self.group,
            "written": self.written,
            "problem": self.problem,
            "notes": list(self.notes),
            "offsets": [
                {"topic": topic, "partition": partition, "had": had, "offset": offset}
                for topic, partition, had, offset in self.offsets
            ],
        }


def export_offsets(
    config: Config,
    *,
    link: str | None = None,
    group: str | None = None,
    groups: str | None = None,
    reverse: bool = False,
    source_unavailable: bool = False,
    away: FindUnreachable = none_unreachable,
    now_ms: int,
) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Returns the resume offsets of groups on the other side of one link, as a document for `import_offsets`.

    Args:
        link: Name of the link; required if there are several.
        group: Only this group.
        groups: Only groups that this regular expression matches whole.
        reverse: From target to source.
        source_unavailable: Use the groups' checkpoints on the target, as for a source that does not answer.
        away: Finds the clusters of links that do not answer; by default each is waited for in turn.
        now_ms: Wall clock, for ``made``.

    Returns:
        The document, and the reasons for left-out groups: a group with an unknown offset is left out whole.

    Raises:
        UsageError: The configuration has several links and none was named.
        MirrorError: A cluster cannot be asked.
    """
    if link is None and len(config.links) != 1:
        raise UsageError(
            "the configuration has several links, and a file holds offsets of one",
            fix="name one with --link",
        )
    chosen = config.link(link) if link is not None else config.links[0]
    found = group_offsets(
        config,
        group=group,
        groups=groups,
        link=chosen.name,
        reverse=reverse,
        source_unavailable=source_unavailable,
        away=away,
    )
    left_out = {
        each.group: f"{each.topic}-{each.partition}: {each.skipped}" if each.topic else each.skipped
        for each in found
        if each.to_offset is None
    }
    documents: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        if each.group not in left_out:
            documents.setdefault(each.group, []).append(
                {
                    "topic": each.to_topic,
                    "partition": each.to_partition,
                    "offset": each.to_offset,
                    "from_topic": each.topic,
                    "from_partition": each.partition,
                    "from_offset": each.offset,
                    "again": each.again,
                    "metadata": each.metadata,
                }
            )
    alias = chosen.source if reverse else chosen.target
    admin = ClusterAdmin(config.clusters[alias], client_id=LinkNames(chosen.state_name).client_id("offsets"))
    topics = {row["topic"] for rows in documents.values() for row in rows}
    try:
        cluster_id = admin.describe_cluster().cluster_id
        facts, _ = admin.visible_topics(sorted(topics))
    finally:
        admin.close()
    return (
        {
            "v": VERSION,
            "cluster": alias,
            "cluster_id": cluster_id,
            "made": now_ms,
            "link": chosen.name,
            "topic_ids": {topic: each.topic_id for topic, each in facts.items() if each is not None},
            "groups": documents,
        },
        left_out,
    )


def import_offsets(
    config: Config, document: Mapping[str, Any], *, group: str | None = None, dry_run: bool = False
) -> list[ImportedGroup]:
    """
    Commits the offsets of a file for idle groups, each group in one request.

    A group of which a partition would be refused is left as it is.  If a broker refuses one all the same, ``problem``
    names each such partition and those that are committed.

    Args:
        config: Configuration of the export.
        document: Result of `export_offsets`.
        group: Only this group of the file.
        dry_run: Check everything, commit nothing.

    Returns:
        One per group, sorted.

    Raises:
        UsageError: The document is not an export, is for another cluster, or does not have the group.
        MirrorError: The cluster cannot be asked.
    """
    alias, wanted = _read(config, document)
    if group is not None:
        if group not in wanted:
            raise UsageError(f"the file has no group {group}", fix="see the file's `groups`")
        wanted = {group: wanted[group]}
    client_id = "eomirror.groups"
    admin = ClusterAdmin(config.clusters[alias], client_id=client_id)
    groups = ClusterGroups(config.clusters[alias], client_id=client_id)
    try:
        found = admin.describe_cluster().cluster_id
        if found != document.get("cluster_id"):
            raise UsageError(
                f"the file was made for cluster id {document.get('cluster_id')}, but {alias} is {found}",
                fix="export the offsets again",
            )
        names = sorted({name for offsets in wanted.values() for name in offsets})
        facts = admin.describe_topics(sorted({topic for topic, _ in names}))
        # Files of older releases, and handwritten ones, have no topic ids.
        noted = document.get("topic_ids", {})
        other = {
            topic
            for topic, known in facts.items()
            if known is not None and noted.get(topic, known.topic_id) != known.topic_id
        }
        there = [
            (topic, number)
            for topic, number in names
            if (known := facts[topic]) is not None and number < known.partitions
        ]
        starts = admin.offsets(there, at="earliest", read_committed=False) if there else {}
        ends = admin.offsets(there, at="latest", read_committed=False) if there else {}
        spans = {name: (start, ends[name]) for name, start in starts.items()}
        others = _others(config, alias, document, {name: facts[name[0]] for name in there})
        denied = unreadable_topics(admin, (topic for topic, _ in there))
        carried = any(one.metadata for offsets in wanted.values() for one in offsets.values())
        limit = groups.metadata_limit() if carried else None
        states, had = groups.states(wanted), groups.committed(wanted)
        done = []
        for name, offsets in sorted(wanted.items()):
            problem = _problem(
                offsets, members_there(states[name].name, side=alias), spans, other, others, denied=denied
            )
            before = had[name]
            if isinstance(before, str):
                problem, before = problem or f"its offsets there cannot be read: {before}", {}
            if not problem and not dry_run:
                # The group may have got a member since the check.
                problem = _written(groups, name, offsets)
            rows = tuple(
                (where[0], where[1], _offset(before.get(where)), offsets[where].offset)
                for where in sorted(offsets)
            )
            notes = tuple(
                note
                for where, one in sorted(offsets.items())
                if (note := metadata_left_out(where, one.metadata, limit))
            )
            done.append(
                ImportedGroup(group=name, offsets=rows, written=not problem, problem=problem, notes=notes)
            )
        return done
    finally:
        groups.close()
        admin.close()


def _others(
    config: Config,
    alias: str,
    document: Mapping[str, Any],
    there: Mapping[Name, TopicFacts | None],
) -> dict[Name, OtherRecords]:
    """
    Returns the records in copies that another link has written than the one of the file.

    A file of the way back sets offsets of source topics, where the link has read the records of all.
    """
    link = next((each for each in config.links if each.name == document.get("link")), None)
    if link is not None and link.target != alias:
        return {}
    with closing(ClusterSession(config.clusters[alias], client_id="eomirror.groups")) as session:
        if link is None:
            # Handwritten, or the link has another name by now.
            copies = {
                name: WrittenTopic(facts.topic_id, None) for name, facts in there.items() if facts is not None
            }
            return other_records(config.links[0], session, copies, own="")
        own = copies_of(OffsetMapReader(link, session).positions().values())
        copies = {name: own[name] for name in there if name in own}
        return other_records(link, session, copies, own=link.state_name)


def _written(groups: ClusterGroups, group: str, offsets: Mapping[Name, Committed]) -> str:
    """Commits offsets; returns the reason if that fails, else an empty string, so that others are reported."""
    try:
        return groups.write(group, offsets)
    except MirrorError as error:
        return told(error)


def _offset(committed: Committed | None) -> int | None:
    return None if committed is None else committed.offset


def _problem(
    offsets: Mapping[Name, Committed],
    members: str,
    spans: Mapping[Name, tuple[int, int]],
    other: Collection[str],
    others: Mapping[Name, OtherRecords],
    *,
    denied: Mapping[str, str],
) -> str:
    if members:
        return f"{members}; stop its consumers first"
    for topic, number in sorted(offsets):
        offset = offsets[topic, number].offset
        if (topic, number) not in spans:
            return f"{topic}-{number} does not exist"
        if topic in other:
            return f"{topic} was deleted and created again since the file was made; export the offsets again"
        start, end = spans[topic, number]
        if not start <= offset <= end:
            return f"{topic}-{number} holds [{start}, {end}), and not {offset}"
        if passed := past_others((topic, number), offset, others.get((topic, number))):
            return passed
        if reason := commit_denied((topic, number), denied):
            return reason
    return ""


def _read(config: Config, document: Mapping[str, Any]) -> tuple[str, dict[str, dict[Name, Committed]]]:
    try:
        if document["v"] != VERSION:
            raise UsageError(
                f"the file has version {document['v']}, this release knows {VERSION}",
                fix="use the release of eomirror that made it, or a newer one",
            )
        alias = str(document["cluster"])
        wanted = {group: _offsets_of(group, rows) for group, rows in document["groups"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _not_an_export(repr(error)) from error
    if not isinstance(document.get("topic_ids", {}), dict):
        raise _not_an_export("topic_ids is not an object")
    if alias not in config.clusters:
        raise UsageError(
            f"the file is for cluster {alias}, which the configuration does not have",
            fix="use the configuration that it was made with",
        )
    return alias, wanted


def _not_an_export(reason: str) -> UsageError:
    return UsageError(
        f"the file is not an export of `eomirror offsets export`: {reason}",
        fix="make one: eomirror offsets export CONFIG",
    )


def _offsets_of(group: str, rows: Any) -> dict[Name, Committed]:
    """
    Returns the offsets of a group; as strict as the export, because a file may have been edited.

    A partly valid offset would move a group to an unintended position.
    """
    found: dict[Name, Committed] = {}
    for row in rows:
        topic, partition, offset = row["topic"], row["partition"], row["offset"]
        if not isinstance(topic, str) or illegal_name(topic):
            raise _not_an_export(f"group {group}: {topic!r} is not a topic")
        # True is an int in Python.
        if type(partition) is not int or partition < 0:
            raise _not_an_export(f"group {group}: {topic} has no partition {partition!r}")
        if type(offset) is not int:
            raise _not_an_export(f"group {group}: {topic}-{partition} has no offset {offset!r}")
        if (topic, partition) in found:
            raise _not_an_export(f"group {group}: {topic}-{partition} appears twice")
        # Files of older releases, and handwritten ones, have no metadata.
        metadata = row.get("metadata", "")
        if not isinstance(metadata, str):
            raise _not_an_export(f"group {group}: {topic}-{partition} has no metadata {metadata!r}")
        found[topic, partition] = Committed(offset, metadata)
    if not group or not found:
        raise _not_an_export(f"group {group!r} has no name, or no offset")
    return found
