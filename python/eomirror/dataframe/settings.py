"""Settings of a sink: its name and its options, parsed once. Driver and tasks open their producers with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from eomirror._native import SinkProducer
from eomirror.config.clients import producer_properties
from eomirror.dataframe.options import kafka_cluster, refuse_unknown
from eomirror.errors import UsageError
from eomirror.log import quiet_unless_configured
from eomirror.plane.native.oauth import as_text, with_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.model import Cluster

__all__ = ["BATCH_BYTES", "FENCED_CODES", "WAIT_SECONDS", "SinkSettings"]

#: Bytes of one batch of records, uncompressed, unless ``kafka.batch.size`` tells.
BATCH_BYTES: Final = 524_288
#: Seconds to wait for one answer of the cluster, retries included.
WAIT_SECONDS: Final = 60.0

#: Error codes for a producer whose transactional id another one has taken.
FENCED_CODES: Final = frozenset({"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"})

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
_TIMEOUT = "kafka.transaction.timeout.ms"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_COLUMNS = 3
# the last three: Spark's connector has the first for readers, and Spark itself passes the others
_KNOWN = (
    "topic",
    "groupId",
    "sourceColumns",
    "newQuery",
    "runId",
    "attempts",
    "tasks",
    "name",
    "includeHeaders",
    "checkpointLocation",
    "queryName",
)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """
    Settings of a sink.

    Attributes:
        name: Name of the sink: key of its progress record, and part of its transactional id.
        cluster: The cluster to write to.
        topic: Topic of all rows; None if a column names it.
        timeout_ms: Time after which the coordinator aborts a transaction.
        codec: Compression of the batches.
        batch_bytes: Size of a batch before compression.
        attempts: Attempts to write one batch before the query fails.
        tasks: Number of writing tasks; 0 for the context's parallelism.
        group: Consumer group that gets the source offsets; empty for none.
        source_columns: Columns with the source topic, partition and offset of a row; empty for none.
        new_query: What a batch of another query does: ``refuse`` or ``append``.
        run_id: Id of a batch write, which is not written a second time; empty for none.
        link_id: Transactional id of a link whose query writes; empty for a sink of a user.
    """

    name: str
    cluster: Cluster
    topic: str | None
    timeout_ms: int
    codec: str
    batch_bytes: int
    attempts: int
    tasks: int
    group: str
    source_columns: tuple[str, ...]
    new_query: str
    run_id: str
    link_id: str = ""

    @classmethod
    def parse(cls, name: str, options: Mapping[str, str]) -> SinkSettings:
        """
        Returns the settings.

        Args:
            name: Name of the sink.
            options: Those of Spark's connector, and ours, with names in any case.

        Raises:
            UsageError: The name or an option cannot be used.
        """
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a sink", fix="use letters, digits, dot, hyphen and underscore"
            )
        given = {key.lower(): str(value) for key, value in options.items()}
        refuse_unknown(options, _KNOWN)
        codec = given.get("kafka.compression.type", given.get("kafka.compression.codec", "none"))
        if codec not in _CODECS:
            raise UsageError(
                f"sink {name}: unknown kafka.compression.type {codec}", fix=f"one of {', '.join(_CODECS)}"
            )
        columns = tuple(part.strip() for part in given.get("sourcecolumns", "").split(",") if part.strip())
        if columns and len(columns) != _COLUMNS:
            raise UsageError(
                f"sink {name}: sourceColumns names {len(columns)} columns",
                fix="name the columns of topic, partition and offset: "
                '"source_topic,source_partition,source_offset"',
            )
        new_query = given.get("newquery", "refuse")
        if new_query not in {"refuse", "append"}:
            raise UsageError(f"sink {name}: newQuery is {new_query}", fix='write "refuse" or "append"')
        properties = {key: str(value) for key, value in options.items() if key.lower() != _TIMEOUT}
        return cls(
            name=name,
            cluster=kafka_cluster(properties, "target"),
            topic=given.get("topic"),
            timeout_ms=_whole(name, _TIMEOUT, given.get(_TIMEOUT, "60000"), 1_000),
            codec=codec,
            batch_bytes=_whole(name, "kafka.batch.size", given.get("kafka.batch.size", str(BATCH_BYTES)), 1),
            attempts=_whole(name, "attempts", given.get("attempts", "3"), 1),
            tasks=_whole(name, "tasks", given.get("tasks", "0"), 0),
            group=given.get("groupid", ""),
            source_columns=columns,
            new_query=new_query,
            run_id=given.get("runid", ""),
        )

    @property
    def transactional_id(self) -> str:
        """The transactional id of the whole sink."""
        return self.link_id or f"eomirror.sink.{self.name}"

    def open(self, transactional_id: str = "", identity: tuple[int, int] | None = None) -> SinkProducer:
        """
        Returns a producer; without an identity it takes its transactional id.

        Args:
            transactional_id: The sink's own if empty.
            identity: Producer id and epoch of the transaction that another process has begun.

        Raises:
            MirrorError: The cluster cannot be reached, or refuses.
        """
        quiet_unless_configured()
        chosen = transactional_id or self.transactional_id
        properties = producer_properties(
            self.cluster,
            client_id=chosen,
            transactional_id=chosen,
            transaction_timeout_ms=self.timeout_ms,
        )
        text, tokens = with_tokens(as_text(properties))
        return SinkProducer(
            text,
            chosen,
            seconds=WAIT_SECONDS,
            transaction_timeout_ms=self.timeout_ms,
            codec=self.codec,
            batch_bytes=self.batch_bytes,
            identity=identity,
            tokens=tokens,
        )


def _whole(name: str, option: str, value: str, least: int) -> int:
    if not value.strip().isdigit() or int(value) < least:
        raise UsageError(f"sink {name}: {option} is {value}", fix=f"write a whole number from {least}")
    return int(value)
