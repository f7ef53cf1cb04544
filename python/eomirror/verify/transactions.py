"""
Audits the log of one link: is every transaction on its target whole?

Reads the target uncommitted, with markers, and shows transaction by transaction that mirrored records, their
positions and their offset map were decided together (O3), that the positions of each source partition form one
chain (O4), and that no transaction is left open (O6).  The head of ``rust/audit/src/lib.rs``, which decides,
lists what the audit can prove; this module finds the topics, reads their ends in the right order, and waits.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror._native import LogAudit
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import account_of, named
from eomirror.errors import DifferenceError, MirrorError, UnreachableError
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.session import ClusterSession
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["AuditFinding", "AuditedSince", "TransactionAudit", "TransactionName", "audit_link"]

_STEP_SECONDS = 0.1
_CONNECT_SECONDS = 30.0

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionName:
    """
    Name of a transaction, from its positions.

    Attributes:
        run: Run of the mirror.
        epoch: Number of the Spark task of the lane in this run.
        attempt: Attempt within the epoch.
        txn: Number within the attempt.
    """

    run: str
    lane: int
    epoch: int
    attempt: int
    txn: int
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """
    One fault.

    Attributes:
        fault: UncoveredData, TornTransaction, BrokenChain, WrongTargetOffset, PositionWithoutData,
            OpenTransaction, MapMismatch or Unreadable.
        topic: Topic on the target.
        offset: Offset of the record that shows it.
        producer_id: Producer of the transaction; -1 if only the broker's watermarks show it.
        producer_epoch: Epoch of the producer; -1 without a producer id.
        transaction: Its name, if a position is involved.
        detail: Description for people.
    """

    fault: str
    topic: str
    partition: int
    offset: int
    producer_id: int
    producer_epoch: int
    transaction: TransactionName | None
    detail: str

    def __str__(self) -> str:
        return f"{self.fault} {self.topic}-{self.partition}@{self.offset}: {self.detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedSince:
    """A source partition whose older positions compaction has removed: audited from a transaction on."""

    topic: str
    partition: int
    offset: int
    transaction: TransactionName


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionAudit:
    """
    Result of an audit.

    Reason for its size: one field for each figure of the JSON result.

    Attributes:
        at_rest: True if everything was judged; else the last transaction of each producer was not.
        transactions: Whole transactions with records.
        records: Records that they cover.
        positions: Committed positions.
        advances: Of these, advances without records.
        set_positions: Of these, positions set outside of data: first ones, adopted ones, ones behind a gap.
        claims: Committed claims of attempts.
        aborted: Aborted transactions of this link, counted once per partition.
        foreign_records: Committed records on its topics by producers that are not the link's.
        foreign_producers: Producer ids of these.
        unproven_records: Records whose positions compaction may have removed.
        unproven_positions: Positions whose records or chunks compaction or retention may have removed.
        under_way: Parts of transactions that had not ended yet, in a running link.
        counts: Number of findings by fault.
        findings: The first 1000 of them.
        since: Source partitions that are not audited from their beginning.
        unread: Partitions that positions name and that were not read.
        widest_spread_ms: Longest time between the markers of one transaction, by the brokers' clocks.
        bytes_read: Bytes of record batches.
    """

    link: str
    at_rest: bool
    transactions: int
    records: int
    positions: int
    advances: int
    set_positions: int
    claims: int
    aborted: int
    foreign_records: int
    foreign_producers: int
    unproven_records: int
    unproven_positions: int
    under_way: int
    counts: Mapping[str, int]
    findings: Sequence[AuditFinding]
    since: Sequence[AuditedSince]
    unread: Sequence[Partition]
    widest_spread_ms: int | None
    widest_spread_transaction: TransactionName | None
    bytes_read: int

    @property
    def clean(self) -> bool:
        """True if there is no finding."""
        return not self.counts

    @property
    def complete(self) -> bool:
        """True if the link's whole history was audited."""
        missing = self.unproven_records or self.unproven_positions or self.under_way
        return not (self.since or self.unread or missing)

    def to_json(self) -> dict[str, Any]:
        """Returns the audit as JSON, with the verdicts."""
        return {"clean": self.clean, "complete": self.complete, **asdict(self)}


@dataclass(frozen=True, slots=True)
class _Topics:
    """Partitions of the link's topics on the target, and the producer ids that its positions name."""

    data: Sequence[Partition]
    positions: Sequence[Partition]
    offset_map: Sequence[Partition]
    producers: AbstractSet[int]
    ids: Mapping[str, str]

    def by_role(self) -> Sequence[tuple[str, Sequence[Partition]]]:
        # A transaction's data is judged by its position, and that by its chunk: a cut through a running link must not
        # show the former without the latter.
        return [("data", self.data), ("positions", self.positions), ("offset-map", self.offset_map)]

    def every(self) -> Sequence[Partition]:
        return [*self.data, *self.positions, *self.offset_map]


def audit_link(
    link: Link,
    target: Cluster,
    *,
    at_rest: bool,
    seconds: float = 600.0,
    settle: float = 5.0,
    clock: Clock = SYSTEM_CLOCK,
    on_progress: Callable[[int, int], None] | None = None,
) -> TransactionAudit:
    """
    Audits the transactions of a link.

    Args:
        at_rest: True if no producer writes to the link's topics.  Then an open transaction is a finding; otherwise the
            last transaction of each producer is not judged.
        seconds: Timeout.
        settle: Seconds to wait for open transactions to end, at rest: markers are written after the commit was
            answered, and the transaction of a killed producer ends with its timeout.
        on_progress: Called about ten times a second with the bytes read and the number of transaction parts
            that wait for their counterparts.

    Raises:
        DifferenceError: The link never ran.
        MirrorError: The native client cannot log in to this cluster, or a log cannot be read.
        ClusterError: The target refuses the request or cannot be reached.
        UnreachableError: The timeout has passed.
    """
    deadline = Deadline(seconds, clock)
    client_id = LinkNames(link.state_name).client_id("audit")
    session = ClusterSession(target, client_id=client_id, clock=clock)
    try:
        admin = session.admin
        topics = _topics(link, session)
        if at_rest and _settle(admin, topics.every(), settle, clock):
            # The open transactions hid committed records behind them, and perhaps the first position of a topic.
            topics = _topics(link, session)
        properties, tokens = with_tokens(as_text(consumer_properties(target, client_id=client_id)))
        audit = LogAudit(properties, _CONNECT_SECONDS, tokens)
        for producer_id in topics.producers:
            audit.learn(producer_id)
        for role, partitions in topics.by_role():
            ends = admin.offsets(partitions, at="latest", read_committed=False)
            starts = admin.offsets(partitions, at="earliest", read_committed=False)
            for topic, number in partitions:
                start, end = starts[topic, number], ends[topic, number]
                audit.add(topic, number, role, start, end, topics.ids[topic])
        while not _step(audit, target):
            if on_progress is not None:
                on_progress(*audit.progress())
            if deadline.passed:
                raise UnreachableError(
                    f"the audit of {link.name} took longer than {seconds:g} s",
                    fix="give it more time; its progress is not kept",
                )
        bytes_read, _ = audit.progress()
        result = audit.finish(at_rest)
        held_back = _held_back(admin, topics.every()) if at_rest else {}
    finally:
        session.close()
    return _frozen(link.name, result, held_back, at_rest=at_rest, bytes_read=bytes_read)


def _step(audit: LogAudit, target: Cluster) -> bool:
    try:
        return audit.step(_STEP_SECONDS)
    except MirrorError as error:
        raise named(error, account_of(target)) from None


def _topics(link: Link, target: ClusterSession) -> _Topics:
    admin = target.admin
    names = LinkNames(link.state_name)
    state = [names.positions_topic, names.offset_map_topic]
    facts = admin.describe_topics(state)
    missing = [name for name in state if facts[name] is None]
    if missing:
        raise DifferenceError(
            f"{link.name}: {target.cluster.alias} has no topic {missing[0]}, so the link never ran",
            fix="run the mirror first, or name the link whose target this is",
        )
    _, records = CompactedTopicReader(target).read(names.positions_topic, wait_for_open=False)
    named, producers = _named(record.value for record in records)
    mirrored = admin.describe_topics(sorted(named))
    found = {name: topic for name, topic in (facts | mirrored).items() if topic is not None}

    def partitions(wanted: Iterable[str]) -> Sequence[Partition]:
        return [
            (name, number) for name in wanted if name in found for number in range(found[name].partitions)
        ]

    return _Topics(
        partitions(mirrored),
        partitions([names.positions_topic]),
        partitions([names.offset_map_topic]),
        producers,
        {name: topic.topic_id for name, topic in found.items()},
    )


def _named(values: Iterable[bytes | None]) -> tuple[set[str], set[int]]:
    """
    Returns target topics and producer ids that positions and claims name.

    A record that cannot be read is left to the audit, which reports it.
    """
    topics, producers = set(), set()
    for value in values:
        try:
            body = orjson.loads(value or b"")
            producers.add(int(body["producer_id"]))
            topics.add(str(body["target_topic"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            continue
    return topics, producers


def _settle(admin: ClusterAdmin, partitions: Sequence[Partition], seconds: float, clock: Clock) -> bool:
    """Waits for open transactions to end; returns True if there were any."""
    deadline = Deadline(seconds, clock)
    waited = False
    while _held_back(admin, partitions):
        waited = True
        if deadline.passed:
            break
        clock.sleep(0.1)
    return waited


def _held_back(admin: ClusterAdmin, partitions: Sequence[Partition]) -> Mapping[Partition, tuple[int, int]]:
    """Returns the partitions whose last stable offset is before the high watermark, with both."""
    # The high watermark first: a transaction that ends in between does not count as open.
    high = admin.offsets(partitions, at="latest", read_committed=False)
    stable = admin.offsets(partitions, at="latest", read_committed=True)
    return {where: (stable[where], high[where]) for where in partitions if stable[where] < high[where]}


def _frozen(
    link: str,
    result: dict[str, Any],
    held_back: Mapping[Partition, tuple[int, int]],
    *,
    at_rest: bool,
    bytes_read: int,
) -> TransactionAudit:
    findings = [
        AuditFinding(**{**item, "transaction": _name(item["transaction"])}) for item in result.pop("findings")
    ]
    counts: dict[str, int] = dict(result.pop("counts"))
    seen = {(item.topic, item.partition) for item in findings if item.fault == "OpenTransaction"}
    for (topic, partition), (stable, high) in held_back.items():
        if (topic, partition) not in seen:
            detail = f"the last stable offset is {stable}, the high watermark {high}"
            findings.append(
                AuditFinding(
                    fault="OpenTransaction", topic=topic, partition=partition, offset=stable,
                    producer_id=-1, producer_epoch=-1, transaction=None, detail=detail,
                )
            )  # fmt: skip
            counts["OpenTransaction"] = counts.get("OpenTransaction", 0) + 1
    since = [
        AuditedSince(**{**item, "transaction": TransactionName(**item["transaction"])})
        for item in result.pop("since")
    ]
    return TransactionAudit(
        link=link,
        at_rest=at_rest,
        counts=counts,
        findings=tuple(findings),
        since=tuple(since),
        unread=tuple(result.pop("unread")),
        widest_spread_transaction=_name(result.pop("widest_spread_transaction")),
        bytes_read=bytes_read,
        **result,
    )


def _name(result: dict[str, Any] | None) -> TransactionName | None:
    return None if result is None else TransactionName(**result)
