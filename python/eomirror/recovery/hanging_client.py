"""
Finds and ends hanging transactions on a cluster (`eomirror.recovery.hanging`).

librdkafka has no call for it (its `Producer` neither describes producers nor adds partitions without records), so the
extension's own client does it, on either plane.  If that client cannot honour a property of the cluster, or the cluster
does not know the request, the search is skipped, and the log says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from eomirror._native import HangingTransactionClient, PlaneReader
from eomirror.clock import Deadline
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import Right, account_of, lacking, named
from eomirror.errors import AuthorizationError, ClusterError, UnreachableError
from eomirror.kafka.log_ends import skip_missing
from eomirror.kafka.parallel import run_all
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.names import LinkNames
from eomirror.recovery.copy_end import CommittedBatch
from eomirror.recovery.hanging import OpenRange, RecordState, unclear_error
from eomirror.recovery.record_state import RecordStateReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.config import Cluster, Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["TargetHangingClient", "extension_client"]

log = structlog.get_logger(__name__)

_SECONDS = 30.0
_MARKED_SECONDS = 5.0
_MARKER = 1
# bytes read after our last record in a copy with other writers; a failed lane of ours
# leaves less behind
_MOST_BYTES = 256 * 1024 * 1024
_LOOK_SECONDS = 0.02
_TWICE_SECONDS = 2.0

_Where = tuple[str, int]
_Answer = TypeVar("_Answer")


class CommittedRanges(Protocol):
    """Reads committed records after a position from the offset map."""

    def ahead(self, positions: Collection[Position]) -> AbstractSet[SourcePartition]:
        """Returns the source partitions for which the map holds committed records behind these positions."""


class TargetHangingClient:
    """
    Client for hanging transactions of a link's target; see `eomirror.recovery.hanging.HangingClient`.

    Args:
        offset_map: Reader of the link's offset map.
    """

    def __init__(self, link: Link, target: ClusterSession, *, offset_map: CommittedRanges) -> None:
        self._offset_map = offset_map
        self._link = link
        self._names = LinkNames(link.state_name)
        self._timeout = link.transaction_timeout
        self._admin = target.admin
        self._target = target.cluster
        self._account = account_of(target.cluster)
        prefix = self._names.control_transactional_id.removesuffix("control")
        self._ids = Right("Write", "transactional-id", prefix, prefixed=True)
        self._client_id = target.client_id
        self._clock = target.clock
        self._states = RecordStateReader(target)
        self._made: HangingTransactionClient | None = None
        # last stable offsets, as `record_states` has seen them
        self._stable: Mapping[_Where, int] = {}

    def open(self, partitions: Collection[_Where]) -> Sequence[OpenRange]:
        """
        Returns open transactions in these partitions; none where the producer is unknown.

        Raises:
            UnreachableError: A partition has no leader that answers.
            MirrorError: The target refuses the request.
        """
        found: dict[bool, Mapping[_Where, int]] = {}

        def ask(committed: bool) -> None:  # noqa: FBT001  an item of the list below
            found[committed] = self._admin.offsets(partitions, at="latest", read_committed=committed)

        # in parallel: over a long link each takes its time
        run_all(ask, [False, True], threads=2, name="ends")
        ends, stable = found[False], found[True]
        # includes partitions whose transaction ended between the two calls; their leader reports none
        behind = [where for where in partitions if stable[where] < ends[where]]
        return [
            OpenRange(
                topic=topic, partition=number, producer_id=producer_id, epoch=epoch, start=start,
                end=ends[topic, number],
            )
            for topic, number, producer_id, epoch, start in self._asked(behind)
        ]  # fmt: skip

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Returns keys and values of all records of a range, of other producers too."""
        return self._states.range(found.topic, found.partition, found.start, found.end)

    def record_states(self, records: Mapping[_Where, int]) -> Mapping[_Where, RecordState]:
        """
        Returns the states of acknowledged records, one offset per partition.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us; a missing Read ACL raises nothing.
        """
        asked = [(*where, offset) for where, offset in records.items()]
        try:
            answers = self._ask_client(lambda client: client.record_states(asked, _SECONDS), records)
        except UnreachableError:
            never = self._never_led(records)
            if not never:
                raise
            left = {where: offset for where, offset in records.items() if where not in never}
            return {**never, **(self.record_states(left) if left else {})}
        if answers is None:
            return self._states.read(records)
        told = {(topic, number): state for topic, number, state, _ in answers}
        self._stable = {(topic, number): stable for topic, number, _, stable in answers}
        unreadable = sorted({topic for (topic, _), state in told.items() if state == "unreadable"})
        if unreadable:
            lacks = lacking(
                "a transaction that the target dropped would go unnoticed: ",
                self._account,
                _reads(unreadable),
            )
            log.warning("records_not_readable", topics=unreadable, reason=lacks.message, fix=lacks.fix)
        found = {where: RecordState(state) for where, state in told.items() if state != "unknown"}
        unknown = {where: offset for where, offset in records.items() if told.get(where) == "unknown"}
        return {**found, **(self._states.read(unknown) if unknown else {})}

    def batches(self, records: Mapping[_Where, int]) -> Mapping[_Where, tuple[int, int, int] | None] | None:
        """
        Returns base offset, checksum and largest timestamp of the batch at each offset; None where there is none.

        None as a whole if the extension's client cannot serve this cluster.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The cluster refuses us.
        """

        def ask(client: HangingTransactionClient) -> dict[_Where, tuple[int, int, int] | None]:
            asked = [(*where, offset) for where, offset in records.items()]
            found = {(topic, number): batch for topic, number, batch in client.batches_at(asked, _SECONDS)}
            return {where: batch[:3] if (batch := found.get(where)) else None for where in records}

        return self._ask_client(ask, records)

    def is_written_by(self, where: _Where, offset: int, writer: ProducerIdentity) -> bool:
        """
        Returns whether the offset holds a record of this producer, rather than a marker or another producer's record.

        Raises:
            UnreachableError: The partition has no leader that answers in time, or the producer is unknown.
            MirrorError: The target refuses us.
        """
        record, whose = (*where, offset), (writer.producer_id, writer.producer_epoch)
        told = self._ask_client(lambda client: client.is_written_by(record, whose, _SECONDS), [where])
        if told is None:
            raise unclear_error(f"{where[0]}-{where[1]}", f"the producer of offset {offset} is unknown")
        return told

    def batches_at(self, records: Mapping[_Where, int]) -> Mapping[_Where, CommittedBatch]:
        """
        Returns the batches that hold these offsets, as `batch_at` does, where there is one: one request to each broker.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us.
        """
        asked = [(*where, offset) for where, offset in records.items()]
        found = (
            self._ask_client(lambda client: client.batches_at(asked, _SECONDS), records) if asked else None
        )
        return {(topic, number): _batch(batch) for topic, number, batch in found or ()}

    def batch_at(self, record: tuple[str, int, int]) -> CommittedBatch | None:
        """
        Returns the batch that holds an offset (topic, partition, offset), committed or not.

        Returns:
            None where the log holds no such batch any more, or if the extension's client cannot serve this cluster.

        Raises:
            UnreachableError: The partition has no leader that answers in time.
            MirrorError: The target refuses us.
        """
        found = self._ask_client(lambda client: client.batch_at(record, _SECONDS), [record[:2]])
        return None if found is None else _batch(found)

    def committed(self, where: _Where, offsets: tuple[int, int]) -> list[CommittedBatch] | None:
        """
        Returns the batches with committed records in a range of offsets; None if the client cannot serve this cluster.

        Raises:
            UnreachableError: The partition has no leader that answers in time.
            MirrorError: The target refuses us.
        """
        found = self._ask_client(lambda client: client.committed(where, offsets, _SECONDS), [where])
        return None if found is None else [_batch(one) for one in found[0]]

    def overwritten(self, records: Mapping[_Where, tuple[int, ProducerIdentity]]) -> AbstractSet[_Where]:
        """
        Returns partitions where the offset holds something else than a record of this producer.

        Only for partitions that `record_states` examined just before.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us.
        """
        offsets = {where: offset for where, (offset, _) in records.items()}
        # where only the marker is missing, another transaction's marker may have taken the record's offset
        asked = [
            *self._longer(offsets),
            *(where for where, offset in offsets.items() if self._stable.get(where) == offset + 1),
        ]
        if self._link.guard:
            # applications write to the copy too: a lost record and its marker may be replaced by as many records
            asked += [where for where, offset in offsets.items() if self._stable.get(where) == offset + 2]

        def ask(client: HangingTransactionClient) -> set[_Where]:
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

        return (self._ask_client(ask, asked) if asked else None) or frozenset()

    def committed_behind(
        self, records: Mapping[_Where, int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[_Where]:
        """
        Returns partitions where committed records of these producers follow the given offset.

        Only for partitions that `record_states` examined just before.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The target refuses us; a missing Read ACL raises nothing.
        """
        longer = self._longer(records)
        if not longer:
            return frozenset()
        whose = set(producer_ids())
        # if the first records after it are deleted, the rest is examined
        starts = self._starts(longer)

        def ask(client: HangingTransactionClient) -> set[_Where]:
            found = set()
            # one deadline for all: a lane with many shared copies has to start too
            look = Deadline(_SECONDS, self._clock)
            for number, where in enumerate(longer):
                if look.passed:
                    log.warning("records_behind_not_looked_at", partitions=len(longer) - number)
                    break
                before = max(records[where], starts.get(where, 0) - 1)
                if client.has_committed_behind((*where, before), whose, _MOST_BYTES, _SECONDS):
                    found.add(where)
            return found

        return self._ask_client(ask, longer) or frozenset()

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[_Where]:
        """
        Returns copies where, by the offset map, records after the position's last one were committed and deleted since.

        Only for partitions that `record_states` examined just before.  Records followed the position's last one, and
        retention has deleted them, so the log does not tell whether they were committed.  The map does: a chunk is
        committed with the records that it names.  Partitions whose chunks cannot be read in time are skipped and
        logged.

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
        try:
            ahead = self._offset_map.ahead(deleted)
        except UnreachableError as error:
            # another lane's open transaction, or a long map, must not delay each start of this lane
            log.warning("records_behind_not_looked_at", partitions=len(deleted), reason=error.message)
            return frozenset()
        return {(one.target_topic, one.target_partition) for one in deleted if one.source in ahead}

    def writers(self, partitions: Collection[_Where]) -> Mapping[_Where, AbstractSet[str]]:
        """
        Returns the transactional ids that wrote to partitions; none where unknown (KIP-664, ListTransactions).

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: The target refuses us.
        """
        asked = list(partitions)
        found: dict[_Where, set[str]] = {}
        for topic, number, transactional_id in (
            self._ask_client(lambda client: client.writers(asked, _SECONDS), asked) or ()
        ):
            found.setdefault((topic, number), set()).add(transactional_id)
        return found

    def producers_of_others(self, where: _Where) -> AbstractSet[int]:
        """
        Returns the producer ids of transactional ids that wrote to a partition and are no lane's; none where unknown.

        Raises:
            UnreachableError: A broker does not answer in time.
            MirrorError: The target refuses us.
        """
        lane = self._names.transactional_id(0).removesuffix("0")
        ids = [one for one in self.writers([where]).get(where, ()) if not one.startswith(lane)]

        def ask(client: HangingTransactionClient) -> set[int]:
            found = (client.producer_identity(one, _SECONDS) for one in ids)
            return {identity[0] for identity in found if identity is not None}

        return (self._ask_client(ask, ids=ids) if ids else None) or frozenset()

    def lanes(self, highest: int) -> Mapping[int, int]:
        """
        Returns producer id -> lane, for lanes up to this number; none where unknown (KIP-664, DescribeTransactions).

        Raises:
            UnreachableError: A coordinator does not answer in time.
            MirrorError: The target refuses us.
        """

        def ask(client: HangingTransactionClient) -> dict[int, int]:
            ids = (
                (client.producer_identity(self._names.transactional_id(lane), _SECONDS), lane)
                for lane in range(highest + 1)
            )
            return {identity[0]: lane for identity, lane in ids if identity is not None}

        return self._ask_client(ask) or {}

    def control_identity(self) -> ProducerIdentity | None:
        """
        Returns the newest identity of the link's control producer; None where unknown (KIP-664, DescribeTransactions).

        Raises:
            UnreachableError: The coordinator does not answer in time.
            MirrorError: The target refuses us.
        """
        name = self._names.control_transactional_id
        found = self._ask_client(lambda client: client.producer_identity(name, _SECONDS))
        return None if found is None else ProducerIdentity(*found)

    def end(
        self,
        lane: int | None,
        partitions: Collection[_Where],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """
        Takes over the transactional.id of a lane, or of the owner (None), and ends its producer's transactions there.

        Raises:
            FencedError: Another process took the id at the same time, or after it was ``held``.
            MirrorError: The target refuses, or does not answer in time.
        """
        whose = self._names.control_transactional_id if lane is None else self._names.transactional_id(lane)
        client, asked = self._client(), list(partitions)
        before = None if held is None else (held.producer_id, held.producer_epoch)
        try:
            producer_id, epoch = client.end(
                whose, asked, commit=commit, transaction_timeout=self._timeout, seconds=_SECONDS, held=before
            )
        except (AuthorizationError, UnreachableError) as error:
            writes = [Right("Write", "topic", topic) for topic, _ in asked]
            needed = [Right("Write", "transactional-id", whose), *writes]
            raise named(error, self._account, rights=needed) from None
        except ClusterError as error:
            # the coordinator's state differs from what we assumed; the next attempt reads it
            raise unclear_error(whose, error.message) from error
        # the coordinator answers before the markers are written; the next search finds skipped ones
        deadline = Deadline(_MARKED_SECONDS, self._clock)
        while not deadline.passed and producer_id in {one[2] for one in client.open(asked, _SECONDS)}:
            self._clock.sleep(_LOOK_SECONDS)
        return ProducerIdentity(producer_id, epoch)

    # -- inside ----------------------------------------------------------------------------------

    def _longer(self, records: Mapping[_Where, int]) -> list[_Where]:
        """Returns partitions where more than the transaction's marker follows, or followed, a record."""
        # a leader that answers OFFSET_OUT_OF_RANGE tells nothing else
        unknown = [where for where in records if self._stable.get(where, -1) < 0]
        if unknown:

            def ask(partitions: Sequence[_Where]) -> Mapping[_Where, int]:
                return self._admin.offsets(partitions, at="latest", read_committed=True)

            self._stable = {**self._stable, **skip_missing(ask, unknown)}
        return [
            where for where, offset in records.items() if self._stable.get(where, -1) > offset + 1 + _MARKER
        ]

    def _starts(self, partitions: Sequence[_Where]) -> Mapping[_Where, int]:
        """Returns log starts of existing partitions."""

        def ask(asked: Sequence[_Where]) -> Mapping[_Where, int]:
            return self._admin.offsets(asked, at="earliest", read_committed=False)

        return skip_missing(ask, partitions) if partitions else {}

    def _asked(self, partitions: Sequence[_Where]) -> Sequence[tuple[str, int, int, int, int]]:
        if not partitions:
            return ()
        try:
            found = self._ask_client(lambda client: client.open(partitions, _SECONDS), partitions)
        except AuthorizationError:
            asked = [(*where, 0) for where in partitions]
            states = self._ask_client(lambda client: client.record_states(asked, _SECONDS), partitions) or ()
            hidden = {topic for topic, _, state, _ in states if state == "unreadable"}
            if hidden:
                error = lacking("", self._account, _reads(hidden))
            log.warning(
                "open_transactions_not_told", topics=sorted(hidden), reason=error.message, fix=error.fix
            )
            left = [where for where in partitions if where[0] not in hidden]
            if not hidden:
                # Read is not the missing ACL; our own topics are searched in any case
                left = [where for where in partitions if where[0].startswith("eomirror.")]
            found = self._ask_client(lambda client: client.open(left, _SECONDS), left) if left else None
        return found or ()

    def _never_led(self, partitions: Collection[_Where]) -> Mapping[_Where, RecordState]:
        """
        Returns those partitions that the cluster does not have or hides, so that no leader will ever be elected.

        Called after one of them had no leader for a while.  A broker that has just started may not know a topic yet, so
        the cluster is asked twice.
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

    def _ask_client(
        self,
        ask: Callable[[HangingTransactionClient], _Answer],
        partitions: Iterable[_Where] = (),
        *,
        ids: Sequence[str] = (),
    ) -> _Answer | None:
        """
        Calls the extension's client; None if it cannot serve this cluster.

        Args:
            partitions: What it is asked about, which takes the right Read.
            ids: Transactional ids of others that it is asked about.
        """
        try:
            return ask(self._client())
        except (AuthorizationError, UnreachableError) as error:
            # one who may not even describe a topic is told no leader of it
            whose = [Right("Describe", "transactional-id", one) for one in ids] or [self._ids]
            reads = _reads({topic for topic, _ in partitions})
            raise named(error, self._account, rights=[*reads, *whose]) from None
        except ClusterError as error:
            # a broker that does not know the request may be replaced by one that does
            log.warning("open_transactions_not_told", cluster=self._target.alias, reason=error.message)
            return None

    def release(self) -> None:
        """Closes the connection; the next search opens a new one."""
        self._made = None

    def _client(self) -> HangingTransactionClient:
        if self._made is None:
            self._made = extension_client(self._target, self._client_id)
        return self._made


def extension_client(cluster: Cluster, client_id: str) -> HangingTransactionClient:
    """
    Returns the extension's client for a cluster.

    Raises:
        ClusterError: It cannot honour a property of the cluster.
    """
    properties, tokens = with_tokens(as_text(consumer_properties(cluster, client_id=client_id)))
    if refused := PlaneReader.unsupported_properties(properties, tokens):
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
        raise ClusterError(f"the extension's client cannot honour {reasons}")
    return HangingTransactionClient(properties, tokens)


def _reads(topics: Iterable[str]) -> list[Right]:
    return [Right("Read", "topic", topic) for topic in sorted(topics)]


def _batch(told: tuple[int, int, int, int, int, int]) -> CommittedBatch:
    base_offset, _, _, last_offset, producer_id, epoch = told
    return CommittedBatch(base_offset, last_offset, producer_id, epoch)
