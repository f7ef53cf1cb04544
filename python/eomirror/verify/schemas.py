"""
Compares what the schema ids in copied records stand for at both registries.

A serializer writes a zero byte and an id of four bytes before the data, or a header with an id or a GUID (17 bytes).
Other data may begin with a zero byte, too: an id that the source's registry does not know is counted, and is no
difference.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.errors import RegistryError, UsageError
from eomirror.kafka.session import link_sessions
from eomirror.registry.mirror import registry_clients
from eomirror.verify.scope import RequestedRange, ScopeFinder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.registry.client import RegistryClient
    from eomirror.registry.state import Reference, SchemaContent

__all__ = ["SchemaIdVerdict", "SchemaVerdicts", "schema_ids", "schema_outcome", "verify_schema_ids"]

#: An id as an integer, a GUID as text.
SchemaId = int | str

_HEADERS = ("__key_schema_id", "__value_schema_id")
_ID_BYTES, _GUID_BYTES = 5, 17
_NOT_FOUND = 404


def schema_ids(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] = ()
) -> Iterator[SchemaId]:
    """Yields the ids and GUIDs that a record carries."""
    for data in (key, value):
        if data is not None and len(data) >= _ID_BYTES and data[0] == 0:
            yield int.from_bytes(data[1:_ID_BYTES], "big")
    for name, carried in headers:
        if name not in _HEADERS or carried is None:
            continue
        if len(carried) == _ID_BYTES and carried[0] == 0:
            yield int.from_bytes(carried[1:], "big")
        elif len(carried) == _GUID_BYTES and carried[0] == 1:
            text = carried[1:].hex()
            yield "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaIdVerdict:
    """
    Comparison of one id of copied records at both registries.

    Attributes:
        schema_id: The id, or the GUID.
        outcome: ``equal``; ``missing``: the target's registry does not know it; ``differs``; or ``unknown``: the
            source's registry does not know it, so that it may be no id.
        records: Records that carry it.
        topics: Topics on the target with such records.
    """

    schema_id: SchemaId
    outcome: str
    records: int
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVerdicts:
    """
    Result for a link.

    Attributes:
        link: Its name.
        records: Copied records that were read.
        ids: Their ids, in order.
    """

    link: str
    records: int
    ids: tuple[SchemaIdVerdict, ...] = ()

    @property
    def differs(self) -> bool:
        """True if an id does not resolve to the same schema."""
        return any(one.outcome in ("missing", "differs") for one in self.ids)

    def as_dict(self) -> dict[str, Any]:
        """Returns the result as plain values."""
        return {
            "link": self.link,
            "records": self.records,
            "outcomes": dict(sorted(Counter(one.outcome for one in self.ids).items())),
            "ids": [
                {
                    "id": one.schema_id,
                    "outcome": one.outcome,
                    "records": one.records,
                    "topics": list(one.topics),
                }
                for one in self.ids
            ],
        }


def verify_schema_ids(
    config: Config,
    link: Link,
    *,
    topics: str | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> SchemaVerdicts:
    """
    Reads all copied records of a link, and compares what their schema ids stand for.

    Args:
        topics: Only source topics that this regular expression matches whole.
        on_progress: Called with the number of records, every few thousand.

    Raises:
        UsageError: The link names no registries.
        DifferenceError: The link never ran.
        MirrorError: A cluster or a registry cannot be reached.
    """
    if link.schemas is None:
        raise UsageError(
            f"link {link.name} names no schema registries",
            fix="write `schemas: {source: URL, target: URL}`, or give it here alone: "
            "-s 'links[0].schemas={source: URL, target: URL}'",
        )
    carried: dict[SchemaId, Counter[str]] = {}
    records = _read(config, link, topics, carried, on_progress)
    source, target = registry_clients(link, link.schemas)
    try:
        verdicts = tuple(
            SchemaIdVerdict(
                schema_id=each,
                outcome=schema_outcome(each, source, target),
                records=carried[each].total(),
                topics=tuple(sorted(carried[each])),
            )
            for each in sorted(carried, key=str)
        )
    finally:
        source.close()
        target.close()
    return SchemaVerdicts(link=link.name, records=records, ids=verdicts)


def _read(
    config: Config,
    link: Link,
    topics: str | None,
    carried: dict[SchemaId, Counter[str]],
    on_progress: Callable[[int], None],
) -> int:
    """Adds the ids of all copied records to ``carried``; returns the number of records."""
    sessions = link_sessions(link, config.clusters[link.source], config.clusters[link.target], "verify")
    read = 0

    def take(where: tuple[str, int], message: Any) -> None:
        nonlocal read
        read += 1
        if read % 5_000 == 0:
            on_progress(read)
        for one in schema_ids(message.key(), message.value(), message.headers() or ()):
            carried.setdefault(one, Counter())[where[0]] += 1

    try:
        found = ScopeFinder(link, *sessions).find(RequestedRange(topics=topics)).positions
        admin = sessions.target.admin
        copies = admin.describe_topics(sorted({one.target_topic for one in found.values()}))
        where = [(name, n) for name, facts in copies.items() if facts for n in range(facts.partitions)]
        starts = admin.offsets(where, at="earliest", read_committed=True)
        ends = admin.offsets(where, at="latest", read_committed=True)
        ranges: Mapping[tuple[str, int], tuple[int, int]] = {
            each: (starts[each], ends[each]) for each in where if starts[each] < ends[each]
        }
        if ranges:
            with sessions.target.reader() as reader:
                reader.read(ranges, take)
    finally:
        sessions.close()
    return read


def _content(client: RegistryClient, schema_id: SchemaId) -> SchemaContent | None:
    if isinstance(schema_id, int):
        return client.content(schema_id)
    try:
        return client.content_of_guid(schema_id)
    except RegistryError as error:
        # a release without GUIDs answers as for any path that it does not have
        if error.code == _NOT_FOUND:
            return None
        raise


def _used(client: RegistryClient, reference: Reference) -> SchemaContent | None:
    found = client.version(reference.subject, reference.version)
    return None if found is None else found[1]


def schema_outcome(schema_id: SchemaId, source: RegistryClient, target: RegistryClient) -> str:
    """Compares what an id stands for at both registries, with all schemas that it refers to."""
    pending = [(_content(source, schema_id), _content(target, schema_id))]
    if pending[0][0] is None:
        return "unknown"
    if pending[0][1] is None:
        return "missing"
    seen: set[Reference] = set()
    while pending:
        here, there = pending.pop()
        if here is None:
            continue
        if here != there:
            return "differs"
        for each in here.references:
            if each not in seen:
                seen.add(each)
                pending.append((_used(source, each), _used(target, each)))
    return "equal"
