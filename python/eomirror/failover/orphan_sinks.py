"""
Keeps exported orphans: in a file, or in a topic on the target.

A file holds one JSON document a line.  Bytes are base64, because they may be anything; null stays null::

    {"topic":"orders","partition":0,"offset":71,"timestamp":1700000000000,"key":"azE=","value":"dg==",
     "headers":[["h","MQ=="]]}

Headers are null where a name is not UTF-8: the client library shows no header of such a record.  While it is written,
the file is called ``FILE.ID.part``, where the id stands for the beginnings of the ranges; a call that finds it goes on
behind its last whole line.

The topic holds the records as they were, with one more header, ``eomirror.orphan``: promotion, topic, partition and
offset as JSON.  They are written in transactions, and a call leaves out what is committed there.
"""

from __future__ import annotations

import base64
import hashlib
import os
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any

import orjson

from eomirror.clock import Deadline
from eomirror.errors import LaneError, UnreachableError
from eomirror.failover.copied_records import headers_of
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
    from eomirror.failover.orphans import Headers, OrphanRange
    from eomirror.kafka.session import ClusterSession

__all__ = ["ORPHAN_HEADER", "OrphanFile", "OrphanTopic"]

#: Header that names the origin of an exported record.
ORPHAN_HEADER = "eomirror.orphan"

# Of one transaction.
_MOST_RECORDS = 2_000
_MOST_BYTES = 4 * 2**20
_READ_SECONDS = 600.0


class OrphanFile:
    """
    A file, which is replaced only when it is complete.

    Args:
        path: The file.
        cluster: Alias of the old source; with the ranges it names the export.
    """

    def __init__(self, path: Path, cluster: str = "") -> None:
        self._path, self._cluster = path, cluster
        self._part = path
        self._file: IO[bytes] | None = None

    def resume(
        self, ranges: Sequence[OrphanRange], found: dict[SourcePartition, int]
    ) -> Mapping[SourcePartition, int]:
        """Cuts a file that a killed call left behind its last whole line, and counts its records."""
        # Not their ends: a log may have grown when a killed call is repeated.
        begins = repr([self._cluster, *sorted((each.source, each.start) for each in ranges)]).encode()
        export = hashlib.blake2b(begins, digest_size=4).hexdigest()
        self._part = self._path.with_name(f"{self._path.name}.{export}.part")
        last = self._counted(found)
        self._file = self._part.open("ab")
        return {source: offset + 1 for source, offset in last.items()}

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """Writes one line."""
        document = {
            "topic": where.topic,
            "partition": where.partition,
            "offset": message.offset(),
            "timestamp": message.timestamp()[1],
            "key": _text(message.key()),
            "value": _text(message.value()),
            "headers": None if headers is None else [[name, _text(value)] for name, value in headers],
        }
        self._open_file().write(orjson.dumps(document) + b"\n")

    def finish(self) -> None:
        """Replaces the file."""
        file = self._open_file()
        file.flush()
        os.fsync(file.fileno())
        self._part.replace(self._path)

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def read(self, take: Callable[[SourcePartition, int], None]) -> bool:
        """Passes partition and offset of each record of a complete file; False if there is no file."""
        if not self._path.exists():
            return False
        for origin, _ in _lines(self._path):
            take(*origin)
        return True

    def _counted(self, found: dict[SourcePartition, int]) -> Mapping[SourcePartition, int]:
        if not self._part.exists():
            return {}
        last: dict[SourcePartition, int] = {}
        whole = 0
        for (source, offset), size in _lines(self._part):
            last[source] = offset
            found[source] += 1
            whole += size
        os.truncate(self._part, whole)
        return last

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
        self._there: dict[SourcePartition, list[tuple[int, int]]] = {}

    def resume(
        self,
        ranges: Sequence[OrphanRange],  # noqa: ARG002  as of `OrphanSink`
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
        there: dict[SourcePartition, list[tuple[int, int]]] = {}

        def take(source: SourcePartition, offset: int) -> None:
            runs = there.setdefault(source, [])
            if runs and offset > runs[-1][1]:
                # A call writes, or finds there, everything between two of its records.
                runs[-1] = runs[-1][0], offset
            else:
                runs.append((offset, offset))

        self.read(take)
        self._there = there
        return {}

    def read(self, take: Callable[[SourcePartition, int], None]) -> bool:
        """Passes partition and offset of each record that was exported for this promotion; False without the topic."""
        admin, where = self._target.admin, (self.name, 0)
        if admin.describe_topics([self.name])[self.name] is None:
            return False
        low = admin.offsets([where], at="earliest", read_committed=False)[where]
        high = admin.offsets([where], at="latest", read_committed=False)[where]

        def taken(_: object, message: Any) -> None:
            origin = self._origin(message)
            if origin is not None:
                take(*origin)

        if high > low:
            with self._target.reader() as reader:
                reader.connect([self.name])
                reader.read({where: (low, high)}, taken, deadline=Deadline(_READ_SECONDS, self._target.clock))
        return True

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """Adds a record that is not there yet to the open transaction, and commits it when it is full."""
        if any(first <= message.offset() <= last for first, last in self._there.get(where, ())):
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

    def _origin(self, message: Any) -> tuple[SourcePartition, int] | None:
        found = next(
            (value for name, value in reversed(headers_of(message) or []) if name == ORPHAN_HEADER), None
        )
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            origin = orjson.loads(found or b"")
            if origin["promotion"] == self._number:
                return SourcePartition(origin["topic"], origin["partition"]), origin["offset"]
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


def _lines(path: Path) -> Iterator[tuple[tuple[SourcePartition, int], int]]:
    """Yields partition and offset of each whole line of a file, and its size."""
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            document = orjson.loads(line)
            yield (SourcePartition(document["topic"], document["partition"]), document["offset"]), len(line)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
