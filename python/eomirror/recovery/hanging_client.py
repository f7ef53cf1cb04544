"""
Sees and ends what transactional ids left open on a cluster (`eomirror.recovery.hanging`).

librdkafka has no call for it (its `Producer` neither describes producers nor adds partitions without records), so the
extension's own client does it, on either plane.  Where that client cannot honour a property of the cluster, or the
cluster does not know the request, nobody looks, and the log says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import structlog

from eomirror._native import LeftOpen, PlaneReader
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.kafka.admin_client import where_there
from eomirror.kafka.parallel import run_all
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.names import LinkNames
from eomirror.recovery.hanging import OpenRange, RecordState, unclear_error
from eomirror.recovery.record_state import RecordStateReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["TargetHangingClient"]

log = structlog.get_logger(__name__)

_SECONDS = 30.0
_MARKED_SECONDS = 5.0
_MARKER = 1
# of what stands behind the last record of ours in a copy that others write to as well; a lane of ours that failed there
# leaves less behind
_MOST_BYTES = 256 * 1024 * 1024
_LOOK_SECONDS = 0.02
_TWICE_SECONDS = 2.0
_STATES: Final = {
    "shown": RecordState.COMMITTED,
    "open": RecordState.PENDING,
    "gone": RecordState.DELETED,
    "unreadable": RecordState.UNREADABLE,
}

_Where = tuple[str, int]
_Answer = TypeVar("_Answer")


class CommittedRanges(Protocol):
    """Reads the offset map, as far as it tells committed records behind a position."""

    def ahead(self, positions: Collection[Position]) -> AbstractSet[SourcePartition]:
        """Returns the source partitions for which the map holds committed records behind these positions."""

    def close(self) -> None:
        """Closes the reader."""


class TargetHangingClient:
    """
    Looks at a link's target, and ends what was left open there; see `eomirror.recovery.hanging.HangingClient`.

    Args:
        offset_map: Opens a reader of the link's offset map.
    """

    def __init__(
        self,
        link: Link,
        target: Cluster,
        admin: ClusterAdmin,
        *,
        client_id: str,
        offset_map: Callable[[], CommittedRanges],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._offset_map = offset_map
        self._link = link
        self._names = LinkNames(link.state_name)
        self._timeout = link.transaction_timeout
        self._admin = admin
        self._target = target
        self._client_id = client_id
        self._clock = clock
        self._states = RecordStateReader(target, admin, client_id=client_id, clock=clock)
        self._made: LeftOpen | None = None
        # last stable offsets, as `record_states` has seen them
        self._stable: Mapping[_Where, int] = {}

    def open(self, partitions: Collection[_Where]) -> Sequence[OpenRange]:
        """
        Open transactions in these partitions; none where nobody can tell whose they are.

        Raises:
            UnreachableError: A partition has no leader that answers.
            MirrorError: The target refuses us.
        """
        found: dict[bool, Mapping[_Where, int]] = {}

        def ask(committed: bool) -> None:  # noqa: FBT001  an item of the list below
            found[committed] = self._admin.offsets(partitions, at="latest", read_committed=committed)

        # beside each other: over a long way each takes its time
        run_all(ask, [False, True], threads=2, name="ends")
        ends, stable = found[False], found[True]
        # also one whose transaction has ended between the two; its leader knows of none then
        behind = [where for where in partitions if stable[where] < ends[where]]
        return [
            OpenRange(
                topic=topic, partition=number, producer_id=producer_id, epoch=epoch, start=start,
                end=ends[topic, number],
            )
            for topic, number, producer_id, epoch, start in self._asked(behind)
        ]  # fmt: skip

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records of its range, of other producers too."""
        return self._states.range(found.topic, found.partition, found.start, found.end)

    def record_states(self, records: Mapping[_Where, int]) -> Mapping[_Where, RecordState]:
        """
        What became of acknowledged records, one in each partition, by their offsets.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us; a topic that we may not read is no reason.
        """
        asked = [(*where, offset) for where, offset in records.items()]
        try:
            answers = self._told(lambda client: client.fates(asked, _SECONDS))
        except UnreachableError:
            never = self._never_led(records)
            if not never:
                raise
            left = {where: offset for where, offset in records.items() if where not in never}
            return {**never, **(self.record_states(left) if left else {})}
        if answers is None:
            return self._states.read(records)
        told = {(topic, number): fate for topic, number, fate, _ in answers}
        self._stable = {(topic, number): stable for topic, number, _, stable in answers}
        unreadable = sorted({topic for (topic, _), fate in told.items() if fate == "unreadable"})
        if unreadable:
            log.warning(
                "records_not_readable",
                topics=unreadable,
                reason="whether the target dropped a transaction behind the mirror's back cannot be told",
                fix="grant Read on these topics of the target",
            )
        found = {where: _STATES[fate] for where, fate in told.items() if fate != "doubtful"}
        doubtful = {where: offset for where, offset in records.items() if told.get(where) == "doubtful"}
        return {**found, **(self._states.read(doubtful) if doubtful else {})}

    def is_written_by(self, where: _Where, offset: int, writer: ProducerIdentity) -> bool:
        """
        Returns whether a record of this producer stands at an offset, and not a marker, or what somebody else wrote.

        Raises:
            UnreachableError: The partition has no leader that answers in time, or nobody can tell.
            MirrorError: The target refuses us.
        """
        record, whose = (*where, offset), (writer.producer_id, writer.producer_epoch)
        told = self._told(lambda client: client.is_written_by(record, whose, _SECONDS))
        if told is None:
            raise unclear_error(f"{where[0]}-{where[1]}", f"who wrote offset {offset} cannot be told")
        return told

    def overwritten(self, records: Mapping[_Where, tuple[int, ProducerIdentity]]) -> AbstractSet[_Where]:
        """
        Partitions in which something else stands at an offset than a record of this producer.

        Of partitions that `record_states` was asked about just before.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us.
        """
        offsets = {where: offset for where, (offset, _) in records.items()}
        # where only the marker is missing, the marker of another transaction may stand in the record's place
        asked = [
            *self._longer(offsets),
            *(where for where, offset in offsets.items() if self._stable.get(where) == offset + 1),
        ]
        if self._link.guard:
            # applications write to the copy as well: a record and its marker that were lost may be replaced by as many
            asked += [where for where, offset in offsets.items() if self._stable.get(where) == offset + 2]

        def ask(client: LeftOpen) -> set[_Where]:
            found = set()
            look = Deadline(_SECONDS, self._clock)
            for number, where in enumerate(asked):
                if look.passed:
                    log.warning("last_records_not_looked_at", partitions=len(asked) - number)
                    break
                offset, whose = records[where]
                there = client.writer_of((*where, offset), _SECONDS)
                if there not in {None, (whose.producer_id, whose.producer_epoch)}:
                    found.add(where)
            return found

        return (self._told(ask) if asked else None) or frozenset()

    def committed_behind(
        self, records: Mapping[_Where, int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[_Where]:
        """
        Partitions in which committed records of these producers stand behind a record, by its offset.

        Of partitions that `record_states` was asked about just before.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us; a topic that we may not read is no reason.
        """
        longer = self._longer(records)
        if not longer:
            return frozenset()
        whose = set(producer_ids())
        # where the first of what stands behind a record is deleted, the rest of it is looked at
        starts = self._starts(longer)

        def ask(client: LeftOpen) -> set[_Where]:
            found = set()
            # of all of them: a lane with many copies that others write to has to start as well
            look = Deadline(_SECONDS, self._clock)
            for number, where in enumerate(longer):
                if look.passed:
                    log.warning("records_behind_not_looked_at", partitions=len(longer) - number)
                    break
                before = max(records[where], starts.get(where, 0) - 1)
                if client.shown_behind((*where, before), whose, _MOST_BYTES, _SECONDS):
                    found.add(where)
            return found

        return self._told(ask) or frozenset()

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[_Where]:
        """
        Copies in which deleted records stood, by the offset map, behind the last one that the position knows.

        Of partitions that `record_states` was asked about just before.  Something stood behind the record, and
        retention has
        deleted it, so that the log does not tell whether it was an aborted attempt or committed.  The map does: a
        chunk of it is committed with the records that it names.

        Where the map cannot be read in time nothing is said, and the log names it.

        Raises:
            MirrorError: The target refuses us.
            StateError: A chunk of the map is not readable.
        """
        named = {(one.target_topic, one.target_partition): one for one in positions}
        last = {where: one.target_offset for where, one in named.items() if one.target_offset is not None}
        starts = self._starts(self._longer(last))
        deleted = [named[where] for where, start in starts.items() if start > last[where] + 1]
        if not deleted:
            return frozenset()
        reader = self._offset_map()
        try:
            ahead = reader.ahead(deleted)
        except UnreachableError as error:
            # an open transaction of another lane, or a long map: it must not hold this lane up at each start
            log.warning("records_behind_not_looked_at", partitions=len(deleted), reason=error.message)
            return frozenset()
        finally:
            reader.close()
        return {(one.target_topic, one.target_partition) for one in deleted if one.source in ahead}

    def writers(self, partitions: Collection[_Where]) -> Mapping[_Where, AbstractSet[str]]:
        """
        Transactional ids that have written to partitions; none where nobody can tell (KIP-664, ListTransactions).

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: The target refuses us.
        """
        asked = list(partitions)
        found: dict[_Where, set[str]] = {}
        for topic, number, transactional_id in (
            self._told(lambda client: client.writers(asked, _SECONDS)) or ()
        ):
            found.setdefault((topic, number), set()).add(transactional_id)
        return found

    def lanes(self, highest: int) -> Mapping[int, int]:
        """
        Producer id -> lane, of the lanes up to this one; none where nobody can tell (KIP-664, DescribeTransactions).

        Raises:
            UnreachableError: A coordinator does not answer in time.
            MirrorError: The target refuses us.
        """

        def ask(client: LeftOpen) -> dict[int, int]:
            ids = (
                (client.producer_id(self._names.transactional_id(lane), _SECONDS), lane)
                for lane in range(highest + 1)
            )
            return {producer_id: lane for producer_id, lane in ids if producer_id is not None}

        return self._told(ask) or {}

    def end(
        self,
        lane: int | None,
        partitions: Collection[_Where],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """
        Takes over a lane's transactional.id, or the owner's (None), and end what its producer has open there.

        Raises:
            FencedError: Somebody else took the id at the same time, or since it was ``held``.
            MirrorError: The target does not do it, or not in time.
        """
        whose = self._names.control_transactional_id if lane is None else self._names.transactional_id(lane)
        client, asked = self._client(), list(partitions)
        before = None if held is None else (held.producer_id, held.producer_epoch)
        try:
            producer_id, epoch = client.end(
                whose, asked, commit=commit, transaction_timeout=self._timeout, seconds=_SECONDS, held=before
            )
        except (AuthorizationError, UnreachableError):
            raise
        except ClusterError as error:
            # the coordinator is in another state than we took it for, and the next attempt sees in which
            raise unclear_error(whose, error.message) from error
        # the coordinator answers before the markers are written; where they are left out again, the next look tells
        deadline = Deadline(_MARKED_SECONDS, self._clock)
        while not deadline.passed and producer_id in {one[2] for one in client.open(asked, _SECONDS)}:
            self._clock.sleep(_LOOK_SECONDS)
        return ProducerIdentity(producer_id, epoch)

    # -- inside ----------------------------------------------------------------------------------

    def _longer(self, records: Mapping[_Where, int]) -> list[_Where]:
        """Partitions in which more stands behind a record than the marker of its transaction, or has stood there."""
        # a leader that says that an offset is out of range tells nothing else
        unknown = [where for where in records if self._stable.get(where, -1) < 0]
        if unknown:

            def ask(partitions: Sequence[_Where]) -> Mapping[_Where, int]:
                return self._admin.offsets(partitions, at="latest", read_committed=True)

            self._stable = {**self._stable, **where_there(ask, unknown)}
        return [
            where for where, offset in records.items() if self._stable.get(where, -1) > offset + 1 + _MARKER
        ]

    def _starts(self, partitions: Sequence[_Where]) -> Mapping[_Where, int]:
        """Where logs begin, of partitions that are there."""

        def ask(asked: Sequence[_Where]) -> Mapping[_Where, int]:
            return self._admin.offsets(asked, at="earliest", read_committed=False)

        return where_there(ask, partitions) if partitions else {}

    def _asked(self, partitions: Sequence[_Where]) -> Sequence[tuple[str, int, int, int, int]]:
        if not partitions:
            return ()
        try:
            found = self._told(lambda client: client.open(partitions, _SECONDS))
        except AuthorizationError as error:
            asked = [(*where, 0) for where in partitions]
            fates = self._told(lambda client: client.fates(asked, _SECONDS)) or ()
            hidden = {topic for topic, _, fate, _ in fates if fate == "unreadable"}
            log.warning(
                "open_transactions_not_told",
                topics=sorted(hidden),
                reason=error.message,
                fix="grant Read on these topics of the target",
            )
            left = [where for where in partitions if where[0] not in hidden]
            if not hidden:
                # it is not Read that is missing; nothing is believed of our own topics all the same
                left = [where for where in partitions if where[0].startswith("eomirror.")]
            found = self._told(lambda client: client.open(left, _SECONDS)) if left else None
        return found or ()

    def _never_led(self, partitions: Collection[_Where]) -> Mapping[_Where, RecordState]:
        """
        Of these, those that nobody will lead however long we wait: the cluster does not have or does not show them.

        Asked where one of them had no leader for a while.  A broker that has just started may not know of a topic
        yet, so the cluster has to say it twice.
        """
        first = self._not_shown(partitions)
        if not first:
            return {}
        self._clock.sleep(_TWICE_SECONDS)
        return dict(first.items() & self._not_shown(partitions).items())

    def _not_shown(self, partitions: Collection[_Where]) -> Mapping[_Where, RecordState]:
        found, refused = self._admin.visible_topics(sorted({topic for topic, _ in partitions}))
        numbers = {topic: facts.partitions for topic, facts in found.items() if facts is not None}
        return {
            where: RecordState.UNREADABLE if where[0] in refused else RecordState.DELETED
            for where in partitions
            if where[1] >= numbers.get(where[0], 0)
        }

    def _told(self, ask: Callable[[LeftOpen], _Answer]) -> _Answer | None:
        """What the extension's client says; None where it cannot serve this cluster."""
        try:
            return ask(self._client())
        except (AuthorizationError, UnreachableError):
            raise
        except ClusterError as error:
            # a broker that does not know the request may be replaced by one that does
            log.warning("open_transactions_not_told", cluster=self._target.alias, reason=error.message)
            return None

    def release(self) -> None:
        """Lets go of the connection; the next look makes a new one."""
        self._made = None

    def _client(self) -> LeftOpen:
        if self._made is None:
            self._made = self._new_client()
        return self._made

    def _new_client(self) -> LeftOpen:
        properties, tokens = with_tokens(
            as_text(consumer_properties(self._target, client_id=self._client_id))
        )
        if refused := PlaneReader.refusals(properties, tokens):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
            raise ClusterError(f"the extension's client cannot honour {reasons}")
        return LeftOpen(properties, tokens)
