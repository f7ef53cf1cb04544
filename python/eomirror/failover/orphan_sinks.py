"""
Keeps exported orphans: in a file, or in a topic on the target.

A file holds one JSON document a line.  Bytes are base64, because they may be anything; null stays null::

    {"topic":"orders","partition":0,"offset":71,"timestamp":1700000000000,"key":"azE=","value":"dg==",
     "headers":[["h","MQ=="]]}

Headers are null where a name is not UTF-8: the client library shows no header of such a record.  While it is written,
the file is called ``FILE.ID.part``, where the id stands for the beginnings of the ranges; a call that finds it goes on
behind its last whole line.  Only the user who exports may read and write either file.

The old source may lose the end of its log after an export and be written on, so a record that was exported may be
nowhere else.  A file is therefore replaced only by one that has each of its lines, and a part is continued only if the
source still has the last record of each partition in it::

    source   10 11 12 13                 10 11 | 12' 13' 14'
    FILE     10 11 12 13    then         10 11   12' 13' 14'  lacks 12 and 13: FILE stays, and the export is refused

The topic holds the records as they were, with one more header, ``eomirror.orphan``: promotion, topic, partition and
offset as JSON.  They are written in transactions, and a call leaves out what is committed there, if it is the same
record: another one at the same offset is added.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from array import array
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

import orjson

from eomirror.clock import Deadline
from eomirror.errors import LaneError, UnreachableError, UsageError
from eomirror.failover.orphan_reader import ForeignRecords, OrphanRange, headers_of
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.records.dead_letter import LARGEST_MESSAGE
from eomirror.records.names import LinkNames
from eomirror.topics.diff import default_replication_factor
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from eomirror.config import Link
    from eomirror.failover.orphans import Headers
    from eomirror.kafka.session import ClusterSession

__all__ = ["ORPHAN_HEADER", "HeldRecords", "OrphanFile", "OrphanTopic"]

#: Header that names the origin of an exported record.
ORPHAN_HEADER = "eomirror.orphan"

# Of one transaction.
_MOST_RECORDS = 2_000
_MOST_BYTES = 4 * 2**20
_READ_SECONDS = 600.0
_SHOWN = 5


class HeldRecords:
    """
    Records that a file or topic holds of some ranges: one at an offset is told by its key, value and headers.

    As a sink it takes the records of the source, and counts those that are held.

    Args:
        ranges: Ranges of offsets, one or more of a partition.

    Attributes:
        compared: Number of records of the source that are held, of each partition.
    """

    def __init__(self, ranges: Sequence[OrphanRange]) -> None:
        self.compared = dict.fromkeys((each.source for each in ranges), 0)
        self._there: dict[SourcePartition, list[tuple[OrphanRange, array[int]]]] = {}
        for each in ranges:
            there = array("q", bytes(8 * (each.end - each.start)))
            self._there.setdefault(each.source, []).append((each, there))

    def take(self, source: SourcePartition, offset: int, record: int) -> None:
        """Notes a record; the last one at an offset counts."""
        for each, there in self._there.get(source, ()):
            if each.start <= offset < each.end:
                there[offset - each.start] = record

    def holds(self, source: SourcePartition, offset: int, record: int) -> bool:
        """Returns True if this record was noted."""
        return any(
            each.start <= offset < each.end and there[offset - each.start] == record
            for each, there in self._there.get(source, ())
        )

    def resume(self, ranges: object, found: object) -> Mapping[SourcePartition, int]:
        """Compares all records."""
        del ranges, found
        return {}

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """Counts a record that is held."""
        self.compared[where] += self.holds(
            where, message.offset(), content(message.key(), message.value(), headers)
        )

    def finish(self) -> None:
        """Everything is compared."""

    def close(self) -> None:
        """Nothing is open."""


def content(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Returns a number that tells records at the same offset apart, in this process; never 0."""
    return hash((key, value, None if headers is None else tuple(map(tuple, headers)))) or 1


class OrphanFile:
    """
    A file, which is replaced only when it is complete, and by one that has all its lines.

    Args:
        path: The file.
        cluster: Alias of the old source; with the ranges it names the export.
        starts: Log starts of the partitions: what the source has deleted is not asked for again.
    """

    def __init__(
        self, path: Path, cluster: str = "", starts: Mapping[SourcePartition, int | None] | None = None
    ) -> None:
        self._path, self._cluster, self._starts = path, cluster, starts
        self._part = path
        self._file: IO[bytes] | None = None
        self._last: dict[SourcePartition, tuple[int, bytes]] = {}

    def resume(
        self, ranges: Sequence[OrphanRange], found: dict[SourcePartition, int]
    ) -> Mapping[SourcePartition, int]:
        """
        Cuts a file that a killed call left behind its last whole line, and counts its records.

        Returns:
            The next offset of each partition in it: that of its last record, which `write` compares, if that is there.

        Raises:
            UsageError: The file is none of exported records, or the part is another user's, or of other records.
        """
        if self._path.exists():
            if not self._path.is_file():
                raise UsageError(f"{self._path} is no file", fix=f"repeat this with one: {self._another()}")
            next(_lines(self._path), None)
        # Not their ends: a log may have grown when a killed call is repeated.
        begins = repr([self._cluster, *sorted((each.source, each.start) for each in ranges)]).encode()
        export = hashlib.blake2b(begins, digest_size=4).hexdigest()
        self._part = self._path.with_name(f"{self._path.name}.{export}.part")
        self._file = self._opened()
        whole = 0
        for (source, offset), line in _lines(self._part, torn=True):
            self._last[source] = offset, line
            found[source] = found.get(source, 0) + 1
            whole += len(line)
        self._file.truncate(whole)
        begin = {source: offset + 1 for source, (offset, _) in self._last.items()}
        for source in list(self._last):
            start = 0 if self._starts is None else self._starts.get(source)
            if start is None or start >= begin[source]:
                del self._last[source]
            else:
                begin[source] -= 1
                found[source] -= 1
        ends = {each.source: each.end for each in ranges}
        if shorter := {source: one for source, one in self._last.items() if one[0] >= ends[source]}:
            raise self._other(shorter)
        return begin

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """
        Writes one line, or compares it with the last one of a killed call.

        Raises:
            UsageError: The source has not what a killed call has written.
        """
        document = {
            "topic": where.topic,
            "partition": where.partition,
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _text(message.key()),
            "value": _text(message.value()),
            "headers": None if headers is None else [[name, _text(value)] for name, value in headers],
        }
        line = orjson.dumps(document) + b"\n"
        before = self._last.pop(where, None)
        if before is None:
            self._open_file().write(line)
        elif before != (message.offset(), line):
            raise self._other({where: before})

    def finish(self) -> None:
        """
        Replaces the file.

        Raises:
            UsageError: It holds records that the new one does not have, or the source has not what a killed call wrote.
        """
        if self._last:
            raise self._other(self._last)
        file = self._open_file()
        file.flush()
        os.fsync(file.fileno())
        if missing := self._missing():
            raise UsageError(
                f"{self._path} holds {sum(each.records for each in missing)} exported records that this export does "
                f"not contain: {', '.join(map(str, missing[:_SHOWN]))}; they may be nowhere else: it is not replaced",
                fix=f"repeat this with another file: {self._another()}",
            )
        self._part.replace(self._path)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, take: Callable[[SourcePartition, int, int], None]) -> bool:
        """Passes partition, offset and `content` of each record of a complete file; False if there is no file."""
        if not self._path.exists():
            return False
        for origin, line in _lines(self._path):
            one = orjson.loads(line)
            headers = one.get("headers")
            take(
                *origin,
                content(
                    _bytes(one.get("key")),
                    _bytes(one.get("value")),
                    None if headers is None else [(name, _bytes(value)) for name, value in headers],
                ),
            )
        return True

    # -- inside ----------------------------------------------------------------------------------

    def _opened(self) -> IO[bytes]:
        """Opens the part of this export, which another user may have put there first."""
        flags = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            file = os.fdopen(os.open(self._part, flags | os.O_CREAT | os.O_EXCL, 0o600), "ab")
        except FileExistsError:
            try:
                file = os.fdopen(os.open(self._part, flags), "ab")
            except OSError as error:
                raise self._not_ours() from error
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            file.close()
            raise self._not_ours()
        os.fchmod(file.fileno(), 0o600)
        return file

    def _not_ours(self) -> UsageError:
        return UsageError(
            f"{self._part} is a link, a file of another user, or no file: exported records are not written there",
            fix="look at it, and delete it; or repeat this with a file in a folder of your own: --to FILE",
        )

    def _other(self, last: Mapping[SourcePartition, tuple[int, bytes]]) -> UsageError:
        some = ", ".join(f"{source} at offset {offset}" for source, (offset, _) in sorted(last.items()))
        return UsageError(
            f"{self._part} holds exported records of a call that did not end, and {self._cluster} does not have the "
            f"last one any more: {some}; they are not continued",
            fix=f"keep that file, and repeat this with another one: {self._another()}",
        )

    def _another(self) -> str:
        """Returns the argument that names a file which does not exist."""
        path = self._path
        free = next(
            one for n in count(2) if not (one := path.with_name(f"{path.stem}-{n}{path.suffix}")).exists()
        )
        return f"--to {quote(str(free))}"

    def _missing(self) -> list[ForeignRecords]:
        """Returns the records of the file that its part does not have."""
        if not self._path.exists():
            return []
        # Numbers, because a file may be of any size.
        left = {hash(line) for _, line in _lines(self._path)}
        for _, line in _lines(self._part) if left else ():
            left.discard(hash(line))
        missing: dict[SourcePartition, ForeignRecords] = {}
        for (source, offset), line in _lines(self._path) if left else ():
            if hash(line) in left:
                one = missing.get(source, ForeignRecords(source=source, start=offset, end=offset, records=0))
                missing[source] = replace(
                    one,
                    start=min(one.start, offset),
                    end=max(one.end, offset + 1),
                    records=one.records + 1,
                )
        return [one for _, one in sorted(missing.items())]

    def _open_file(self) -> IO[bytes]:
        if self._file is None:
            raise AssertionError("resume comes first")
        return self._file


class OrphanTopic:
    """
    The topic ``eomirror.LINK.orphans`` on the target of a link.

    Args:
        link: The promoted link.
        target: Connections to its target.
        number: Number of the promotion.
    """

    def __init__(self, link: Link, target: ClusterSession, number: int) -> None:
        self.name = LinkNames(link.state_name).orphans_topic
        self._link, self._target, self._number = link, target, number
        self._producer: TransactionalProducer | None = None
        self._batch: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._there = HeldRecords(())

    def resume(
        self,
        ranges: Sequence[OrphanRange],
        found: dict[SourcePartition, int],  # noqa: ARG002  as of `OrphanSink`
    ) -> Mapping[SourcePartition, int]:
        """Creates the topic, and reads what earlier calls have committed for this promotion."""
        admin = self._target.admin
        if admin.describe_topics([self.name])[self.name] is None:
            factor = default_replication_factor(
                admin.describe_cluster().brokers, self._link.replication_factor
            )
            configs = {"retention.ms": "-1", "max.message.bytes": str(LARGEST_MESSAGE)}
            admin.create_topics([CreateTopic(self.name, 1, factor, configs)])
        names = LinkNames(self._link.state_name)
        self._producer = TransactionalProducer(
            self._target.cluster,
            client_id=names.client_id("orphans"),
            transactional_id=f"{names.control_transactional_id}.orphans",
            transaction_timeout=self._link.transaction_timeout,
            known_topic=self.name,
            clock=self._target.clock,
        )
        # Fences another call, and aborts what a killed one left.
        with _reported(self.name, self._target.cluster.alias):
            self._producer.init()
        self._there = HeldRecords(ranges)
        self.read(self._there.take)
        return {}

    def read(self, take: Callable[[SourcePartition, int, int], None]) -> bool:
        """Passes what `OrphanFile.read` does, of records exported for this promotion; False without the topic."""
        admin, where = self._target.admin, (self.name, 0)
        if admin.describe_topics([self.name])[self.name] is None:
            return False
        low = admin.offsets([where], at="earliest", read_committed=False)[where]
        high = admin.offsets([where], at="latest", read_committed=False)[where]

        def taken(_: object, message: Any) -> None:
            headers = headers_of(message) or []
            if (origin := self._origin(headers)) is not None:
                source, offset, shown = origin
                # Ours is the last one.
                others = headers[:-1] if shown else None
                take(source, offset, content(message.key(), message.value(), others))

        if high > low:
            with self._target.reader() as reader:
                reader.connect([self.name])
                reader.read({where: (low, high)}, taken, deadline=Deadline(_READ_SECONDS, self._target.clock))
        return True

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """Adds a record that is not there yet to the open transaction, and commits it when it is full."""
        if self._there.holds(where, message.offset(), content(message.key(), message.value(), headers)):
            return
        origin = {
            "promotion": self._number,
            "topic": where.topic,
            "partition": where.partition,
            "offset": message.offset(),
            **({"headers": "unreadable"} if headers is None else {}),
        }
        value = message.value()
        self._batch.append(
            (
                self.name,
                value,
                message.key(),
                0,
                None,
                None,
                max(0, message.timestamp()[1]),
                [*(headers or ()), (ORPHAN_HEADER, orjson.dumps(origin))],
            )
        )
        self._bytes += len(value or b"") + len(message.key() or b"")
        if len(self._batch) >= _MOST_RECORDS or self._bytes >= _MOST_BYTES:
            self._commit()

    def finish(self) -> None:
        """Commits the last records."""
        self._commit()

    def close(self) -> None:
        """Closes the producer; what is not committed is aborted."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _commit(self) -> None:
        if not self._batch:
            return
        producer = self._producer
        if producer is None:
            raise AssertionError("resume comes first")
        with _reported(self.name, self._target.cluster.alias):
            producer.begin()
            producer.produce_all(self._batch)
            producer.flush(self._link.transaction_timeout)
            producer.take_acks()
            producer.commit()
        self._batch, self._bytes = [], 0

    def _origin(self, headers: Headers) -> tuple[SourcePartition, int, bool] | None:
        """Returns partition and offset that a record of this promotion had, and False if its headers are left out."""
        found = next((value for name, value in reversed(headers) if name == ORPHAN_HEADER), None)
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            origin = orjson.loads(found or b"")
            if origin["promotion"] == self._number:
                return (
                    SourcePartition(origin["topic"], origin["partition"]),
                    origin["offset"],
                    "headers" not in origin,
                )
        return None


@contextmanager
def _reported(topic: str, cluster: str) -> Iterator[None]:
    """Raises a lane's error as one of the cluster."""
    try:
        yield
    except LaneError as error:
        raise UnreachableError(
            f"cannot write {topic} on {cluster}: {error}",
            fix="repeat this when the target is healthy: it goes on behind what is committed",
        ) from error


def _lines(path: Path, *, torn: bool = False) -> Iterator[tuple[tuple[SourcePartition, int], bytes]]:
    """
    Yields partition and offset of each line of a file, and the line.

    Args:
        torn: The last line may be half of one, and is left out then.

    Raises:
        UsageError: A line is none of an exported record.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if torn and not line.endswith(b"\n"):
                return
            try:
                document = orjson.loads(line)
                origin = SourcePartition(document["topic"], document["partition"]), int(document["offset"])
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
                raise UsageError(
                    f"{path} is no file of exported records: line {number} is none; it is not replaced",
                    fix="repeat this with another file: --to FILE",
                ) from error
            yield origin, line if line.endswith(b"\n") else line + b"\n"


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
