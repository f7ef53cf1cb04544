"""
Compares one partition with its copy: reads both sides, and fetches the records that differ.

A batch job on Spark runs this in its tasks; `eomirror.verify.runner` runs it in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from eomirror._native import PartitionComparison, PlaneReader
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import account_of, named
from eomirror.errors import MirrorError, TopicError, UnreachableError
from eomirror.kafka.record_reader import CommittedPartition
from eomirror.kafka.session import link_sessions
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.records.names import LinkNames
from eomirror.verify.counts import Found, PartitionCounts
from eomirror.verify.placed import PlacedComparer
from eomirror.verify.verdict import PartitionVerdict, Range, Scope, Shown, altered_parts

if TYPE_CHECKING:
    from eomirror.config import Cluster, Link
    from eomirror.kafka.session import LinkSessions

__all__ = ["MOST_KEYS", "Comparer", "Progress", "plane_refusal", "stalled"]


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


_CONNECT_SECONDS = 30.0
_STEP_SECONDS = 0.1
_MESSAGES = 5000
# Seconds without records of either side, after which the log ends are checked.
_PATIENCE_SECONDS = 60.0

#: Keys of a compacted partition in memory at a time, about 100 bytes each; more are compared in shares.
MOST_KEYS = 1_000_000

#: Called during a comparison with its scope and the counts so far.
Progress = Callable[[Scope, PartitionCounts], None]

_HISTORY = 65_536


def plane_refusal(link: Link, source: Cluster, target: Cluster) -> str:
    """Returns the reason that the native plane cannot read these clusters; empty if it can."""
    role = LinkNames(link.state_name).client_id("verify")
    return "; ".join(
        f"{cluster.alias}: {name}: {why}"
        for cluster in (source, target)
        for name, why in PlaneReader.unsupported_properties(*with_tokens(_properties(cluster, role)))
    )


@dataclass(slots=True)
class _Kept:
    """
    A comparison that can resume with records that are mirrored later.

    Attributes:
        of: Its subject: ids of both topics, name of the copy, True if timestamps are compared.
        before: Counts of earlier topics of these names.
        found: The first differences.
    """

    of: tuple[Any, ...]
    comparison: PartitionComparison
    before: PartitionCounts | None
    found: list[Found] = field(default_factory=list)

    def counts(self, show: int, *, whole: bool) -> PartitionCounts:
        """Returns all counts."""
        counts = PartitionCounts.of(
            self.comparison.counts(), self.found, self.comparison.resume_at(), whole=whole
        )
        return counts if self.before is None else self.before.plus(counts, show=show)


class Comparer:
    """
    Compares partitions of one link, one after the other.

    Args:
        ids: Ids of both clusters.
        show: Number of differences of a partition whose records are fetched.
        most_keys: Keys of a compacted partition that are kept in memory.
        native: True if the native plane reads; see `plane_refusal`.

    Raises:
        MirrorError: A cluster cannot be reached or refuses the request.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        ids: tuple[str, str],
        *,
        show: int = 10,
        most_keys: int = MOST_KEYS,
        native: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._link = link
        self._ids = ids
        self._show = show
        self._most_keys = most_keys
        role = LinkNames(link.state_name).client_id("verify")
        self._clients = (
            CommittedPartition(source, client_id=role, clock=clock),
            CommittedPartition(target, client_id=role, clock=clock),
        )
        self._placed = PlacedComparer(
            link.source,
            *self._clients,
            from_start=link.start == "earliest",
            show=show,
            most=most_keys,
            patience=_PATIENCE_SECONDS,
            transform=link.compiled(),
            clock=clock,
        )
        self._kept: dict[tuple[str, int], _Kept] = {}
        self._sessions = link_sessions(link, source, target, "verify", clock=clock)
        self._ends = LogEnd(self._sessions)
        self._clock = clock
        self._users = account_of(source), account_of(target)
        self._readers: tuple[PlaneReader, PlaneReader] | None = None
        if native:
            self._readers = (
                _reader(source, role),
                _reader(target, role),
            )

    def compare(
        self,
        one: Scope,
        *,
        progress: Progress | None = None,
        stopped: Callable[[], bool] = lambda: False,
        keep: int = 0,
        ids: tuple[str, str] = ("", ""),
    ) -> PartitionCounts:
        """
        Compares one partition.

        Args:
            one: Its scope; one with a problem has nothing to compare.
            progress: Called at most every 0.1 s.
            stopped: Returns True to stop, called as often; the rest is not compared then.
            keep: With `keep` > 0, resume the previous comparison of this partition, which remembers that many records,
                so that a duplicate of one of them is recognised; 0 starts over.
            ids: Ids of source and target topic: previous counts of other topics of these names are only added.

        Raises:
            MirrorError: The partition could not be read.
        """
        if one.problem:
            return PartitionCounts()
        if one.placed:
            return self._placed.compare(one, progress, stopped)
        if one.by_key:
            return self._by_key(one, progress, stopped)
        kept = self._going_on(one, keep, ids) if keep else _Kept((), self._comparison(one), None)
        whole = self._finish(one, kept.comparison, kept.found, progress, stopped)
        return kept.counts(self._show, whole=whole)

    def _going_on(self, one: Scope, keep: int, ids: tuple[str, str]) -> _Kept:
        """Returns the previous comparison of this partition, extended to the present ends; or a new comparison."""
        where, of = (one.source.topic, one.source.partition), (*ids, one.target.topic, one.timestamps)
        kept = self._kept.get(where)
        if kept is not None and kept.of == of:
            starts = (one.source.start, one.target.start)
            kept.comparison.extend(
                one.source.end,
                one.target.end,
                _letters(one),
                starts,
                _chunks(one.others),
                list(one.own),
                _chunks(one.returned),
            )
            return kept
        # A comparison of other topics; the same topics are read again from their beginning.
        others = kept is not None and all(kept.of[:2]) and kept.of[:2] != ids
        before = kept.counts(self._show, whole=True) if kept is not None and others else None
        self._kept[where] = _Kept(of, self._comparison(one, history=keep), before)
        return self._kept[where]

    def verdict(self, one: Scope, counts: PartitionCounts) -> PartitionVerdict:
        """
        Returns the verdict, with the records that differ.

        Raises:
            MirrorError: The records could not be read.
        """
        return PartitionVerdict(
            scope=one,
            matched=counts.matched,
            differences=counts.differences,
            source=counts.source,
            target=counts.target,
            shown=tuple(
                self._shown(one, *each, place=place)
                for each, place in zip_longest(counts.found[: self._show], counts.places)
            ),
            whole=counts.whole,
            # If either side is compacted, holes are normal.
            holes=() if one.by_key else counts.holes,
        )

    def _by_key(self, one: Scope, progress: Progress | None, stopped: Callable[[], bool]) -> PartitionCounts:
        shares = 1
        results: list[PartitionCounts] = []
        while len(results) < shares:
            comparison = self._comparison(one, by_key=(self._most_keys, len(results), shares))
            found: list[Found] = []
            whole = self._read_keys(one, comparison, found, progress, stopped)
            if whole and comparison.counts()["differences"]["altered"]:
                # An older record of the key was read, and compaction removed the last one before the reader reached it.
                found.clear()
                comparison.read_again()
                whole = self._read_keys(one, comparison, found, progress, stopped)
            if comparison.too_many_keys:
                shares, results = shares * 4, []
                continue
            results.append(PartitionCounts.of(comparison.counts(), found, None, whole=whole))
            if not whole:
                break
        counts = results[0]
        for each in results[1:]:
            # Every share reads everything again.
            counts = counts.plus(replace(each, source={}, target={}), show=self._show)
        return replace(
            counts,
            source=results[0].source,
            target=results[0].target,
            found=tuple(sorted(counts.found, key=lambda each: [-1 if n is None else n for n in each[1:]])),
        )

    def _read_keys(
        self,
        one: Scope,
        comparison: PartitionComparison,
        found: list[Found],
        progress: Progress | None,
        stopped: Callable[[], bool],
    ) -> bool:
        """Compares the last records of keys; returns False if it was stopped."""
        whole = self._finish(one, comparison, found, progress, stopped)
        if whole and any(comparison.counts()["differences"].values()):
            # Compaction continues: each record that it removed during the read has a later record behind the tails.
            comparison.read_on(*self._ends.stable(one))
            found.clear()
            whole = self._finish(one, comparison, found, progress, stopped)
        return whole

    def close(self) -> None:
        """Closes all connections."""
        self._readers = None
        for client in self._clients:
            client.close()
        self._sessions.close()

    def _comparison(
        self, one: Scope, *, by_key: tuple[int, int, int] | None = None, history: int = _HISTORY
    ) -> PartitionComparison:
        guard = None
        if self._link.guard:
            source_id, target_id = self._ids
            guard = (source_id, target_id, self._link.origin_ids(self._link.source, source_id))
        return PartitionComparison(
            _tuple(one.source),
            _tuple(one.target),
            timestamps=one.timestamps,
            guard=guard,
            marked=self._link.provenance_header,
            by_key=by_key,
            history=history,
            dead_letters=_letters(one),
            others=_chunks(one.others),
            own=list(one.own),
            returned=_chunks(one.returned),
            origins=not self._link.origin_header,
            transform=self._link.compiled(),
        )

    def _finish(
        self,
        one: Scope,
        comparison: PartitionComparison,
        found: list[Found],
        progress: Progress | None,
        stopped: Callable[[], bool],
    ) -> bool:
        """Compares to the end; returns False if it was stopped."""
        if self._readers is None:
            counts = comparison.counts()
            for client, part, side in zip(
                self._clients, (one.source, one.target), ("source", "target"), strict=True
            ):
                client.assign(part.topic, part.partition, counts[side]["position"])
        done = False
        at: tuple[int, int] | None = None
        patience = Deadline(_PATIENCE_SECONDS, self._clock)
        while not done and not stopped():
            done = (
                self._feed(comparison)
                if self._readers is None
                else self._step(one, comparison, self._readers)
            )
            found += comparison.take()[: self._show - len(found)]
            counts = comparison.counts()
            reached = (counts["source"]["position"], counts["target"]["position"])
            if reached != at:
                at, patience = reached, Deadline(_PATIENCE_SECONDS, self._clock)
            elif patience.passed and not done:
                wanted = (comparison.wants("source"), comparison.wants("target"))
                self._ends.check(one, reached, wanted)
                patience = Deadline(_PATIENCE_SECONDS, self._clock)
            if progress is not None:
                found_so_far = PartitionCounts.of(counts, found, comparison.resume_at(), whole=done)
                progress(one, found_so_far)
        return done

    def _step(
        self, one: Scope, comparison: PartitionComparison, readers: tuple[PlaneReader, PlaneReader]
    ) -> bool:
        try:
            return comparison.step(*readers, _STEP_SECONDS)
        except MirrorError as error:
            sides = zip((one.source, one.target), self._users, strict=True)
            users = [user for part, user in sides if _names(error, part)]
            raise named(error, *(users or self._users)) from None

    def _feed(self, comparison: PartitionComparison) -> bool:
        done = False
        for side, client in zip(("source", "target"), self._clients, strict=True):
            if comparison.wants(side):
                messages, reached = client.read(_MESSAGES, _STEP_SECONDS)
                done = comparison.feed(side, messages, reached)
        # Both sides may be empty, and the comparison has not been asked yet.
        return done or comparison.feed("source", [], None)

    def _shown(
        self,
        one: Scope,
        kind: str,
        source_offset: int | None,
        target_offset: int | None,
        *,
        place: int | None = None,
    ) -> Shown:
        copy = one.target if place is None else replace(one.target, partition=place)
        source, target = (
            None if offset is None else client.one(part.topic, part.partition, offset)
            for client, part, offset in zip(
                self._clients, (one.source, copy), (source_offset, target_offset), strict=True
            )
        )
        return Shown(
            kind=kind,
            source_offset=source_offset,
            target_offset=target_offset,
            parts=altered_parts(source, target) if source and target and kind == "altered" else (),
            source=_readable(source),
            target=_readable(target),
            target_partition=place,
        )


def _names(error: MirrorError, part: Range) -> bool:
    return any(f"{part.topic}-{part.partition}{mark}" in error.message for mark in ":@")


def _letters(one: Scope) -> list[tuple[int, int]]:
    return [(offset, int(digest, 16)) for offset, digest in one.letters]


def _chunks(named: Sequence[tuple[str, bytes]]) -> list[bytes]:
    return [chunk for _, chunk in named]


def _tuple(part: Range) -> tuple[str, int, int, int, int]:
    return part.topic, part.partition, part.start, part.end, part.tail


def _reader(cluster: Cluster, role: str) -> PlaneReader:
    properties, tokens = with_tokens(_properties(cluster, role))
    return PlaneReader(properties, _CONNECT_SECONDS, tokens)


def _properties(cluster: Cluster, role: str) -> dict[str, str]:
    return as_text(consumer_properties(cluster, client_id=role))


_LONGEST = 200


def _readable(record: dict[str, Any] | None) -> dict[str, Any] | None:
    """Returns a record for people and JSON: bytes as text if possible, shortened."""
    if record is None:
        return None
    return {
        **record,
        "key": _bytes(record["key"]),
        "value": _bytes(record["value"]),
        "headers": [[name, _bytes(value)] for name, value in record["headers"]],
    }


def _bytes(value: bytes | None) -> str | None:
    if value is None:
        return None
    text = value[:_LONGEST].decode("utf-8", "backslashreplace")
    return text if len(value) <= _LONGEST else f"{text}... ({len(value)} bytes)"
