"""Finds copies that hold records although a link has no position for them (`eomirror.link.filled_targets` decides)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from eomirror._native import last_hop
from eomirror.clock import Deadline
from eomirror.errors import AuthorizationError, MirrorError, StateError
from eomirror.kafka.partition_reader import GONE
from eomirror.link.filled_targets import (
    Copy,
    Held,
    filled,
    filled_error,
    link_of,
    running_twin,
    sharers,
    twins,
)
from eomirror.link.first_positions import all_copies, without_filled
from eomirror.link.other_links import OtherLinks
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import AssignedPartition
    from eomirror.link.reverse_link import ReverseLink
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["FilledCopies"]

# A copy with records of applications is read in full, and the start must not take for ever.
_SECONDS = 30.0

_Where = tuple[str, int]


class TargetSample:
    """Reads committed records of copies."""

    def __init__(self, target: ClusterSession) -> None:
        self._target = target

    def look(
        self, copies: Mapping[_Where, tuple[int, int, int]], *, source_cluster_id: str | None
    ) -> dict[_Where, Held]:
        """
        Returns the content of copies, as far as it can be read in half a minute.

        Args:
            copies: First offset to read, last stable offset, and high watermark of each copy.
            source_cluster_id: Count only records that were copied from this cluster; None for all.

        Raises:
            AuthorizationError: A copy may not be read.
            MirrorError: The cluster refuses the request.
        """
        held: dict[_Where, Held] = {}

        def take(where: _Where, message: Any) -> bool:
            if source_cluster_id is None:
                held[where] = Held.HEARTBEATS if _is_heartbeat(message) else Held.RECORDS
                return True
            ours = _copied_from(message) == source_cluster_id
            # A record of an application or another cluster; a later one may be ours.
            held[where] = Held.OURS if ours else Held.RECORDS
            return ours or bool(message.offset() + 1 >= copies[where][1])

        ranges = {where: (begin, stable) for where, (begin, stable, _) in copies.items() if begin < stable}
        if ranges:
            deadline = Deadline(_SECONDS, self._target.clock)
            with self._target.reader(tuning={"queued.max.messages.kbytes": 8192}) as reader:
                unread = reader.read(ranges, take, deadline=deadline, to_end=True, passing=GONE, partial=True)
            held.update(dict.fromkeys(unread, Held.UNSEEN))
        for where, (_, stable, end) in copies.items():
            held.setdefault(where, Held.OPEN if stable < end else Held.NOTHING)
        return held


def _copied_from(message: Any) -> str | None:
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # The mirror writes only UTF-8 names, and the client shows no headers of such a record.
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return None if found is None else last_hop(found, message.topic(), message.key(), message.value())


def _is_heartbeat(message: Any) -> bool:
    name = Mm2Names().heartbeats
    # An alias and any separator may stand before it; the decoder is strict.
    if not message.topic().endswith(name):
        return False
    try:
        decode_heartbeat(message.key(), message.value(), where=message.topic())
    except StateError:
        return False
    return True


log = structlog.get_logger(__name__)


class FilledCopies:
    """
    Inspects the copies of one link.

    Args:
        target: Connections to the target.
        into_filled: True if existing records in the copies stay (``--into-filled``).
        hanging_client: Knows which transactional ids wrote to a partition, where the brokers report it.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterSession,
        *,
        into_filled: bool = False,
        hanging_client: HangingClient | None = None,
    ) -> None:
        self._link = link
        self._admin = target.admin
        self._into_filled = into_filled
        self._hanging_client = hanging_client
        self._others = OtherLinks(link.name, target, event="other_link_unknown")
        self._reader = TargetSample(target)

    @property
    def into_filled(self) -> bool:
        """True if existing records in the copies stay."""
        return self._into_filled

    def refuse_running(self, items: Sequence[AssignedPartition], *, source_cluster_id: str) -> None:
        """
        Refuses to run beside another link that writes the same copies from the same partitions.

        Args:
            items: Partitions that the link mirrors.
            source_cluster_id: Id of its source.

        Raises:
            StateError: Such a link runs.
            ClusterError: The target does not answer.
        """
        others = self._others.written(but=self._link.state_name, running_only=True)
        if refused := running_twin(
            self._link.name, twins(items, others, source_cluster_id=source_cluster_id)
        ):
            raise refused

    def refuse(self, items: Sequence[AssignedPartition], *, source_cluster_id: str) -> None:
        """
        Refuses a first run into copies that hold records which the link would write again.

        Args:
            items: Partitions without a position whose existing source records are mirrored.
            source_cluster_id: Id of its source.

        Raises:
            NotReadyError: There are such copies.
            ClusterError: The target does not answer.
        """
        if found := self._filled(items, source_cluster_id=source_cluster_id):
            raise filled_error(self._link.name, self._link.state_name, found, first_run=True)

    def without_filled(
        self,
        items: Sequence[AssignedPartition],
        known: Collection[SourcePartition],
        *,
        source_cluster_id: str,
    ) -> list[AssignedPartition]:
        """
        Returns the partitions of a link that has run, without new topics whose copies are filled; logs the latter.

        Args:
            items: Partitions to mirror.
            known: Partitions that have a position or are adopted.
            source_cluster_id: Id of its source.

        Raises:
            ClusterError: The target does not answer.
        """
        if not self._into_filled:
            items = without_filled(self._link, self._admin, items, known)
        fresh = [item for item in items if item.source not in known]
        if self._link.keyed:
            # the copies hold the records of the other partitions
            begun = {source.topic for source in known}
            fresh = [item for item in fresh if item.source.topic not in begun]
        found: dict[str, list[Copy]] = {}
        for copy in self._filled(fresh, source_cluster_id=source_cluster_id):
            found.setdefault(copy.item.source.topic, []).append(copy)
        for topic, copies in sorted(found.items()):
            error = filled_error(self._link.name, self._link.state_name, copies, first_run=False)
            log.error(
                "topic_left_out", link=self._link.name, topic=topic, reason=error.message, fix=error.fix
            )
        return [item for item in items if item.source in known or item.source.topic not in found]

    # -- looking ---------------------------------------------------------------------------------

    def _filled(self, items: Sequence[AssignedPartition], *, source_cluster_id: str) -> list[Copy]:
        # Heartbeats that the link mirrors: an earlier `heartbeats: link` may have left its own there.
        asked = {
            _where(item): item
            for item in all_copies(self._link, self._admin, items)
            if item.source.topic != self._link.target_naming.heartbeats
        }
        if not asked:
            return []
        ends = self._admin.offsets(list(asked), at="latest", read_committed=False)
        if not any(ends.values()):
            return []
        starts = self._admin.offsets(list(asked), at="earliest", read_committed=False)
        inside = {where: item for where, item in asked.items() if ends[where] > starts[where]}
        if not inside:
            return []
        if self._into_filled:
            log.warning(
                "copies_hold_records",
                link=self._link.name,
                copies=len(inside),
                most_records=sum(ends[where] - starts[where] for where in inside),
                reason="--into-filled: existing records stay",
            )
            return []
        others = list(self._others.written(but=self._link.state_name))
        same = twins(inside.values(), others, source_cluster_id=source_cluster_id)
        shared = sharers(inside.values(), others, source_cluster_id=source_cluster_id)
        held = self._held(inside, starts, ends, source_cluster_id)
        writers = self._writers([where for where in inside if held[where] is not Held.NOTHING])
        copies = [
            Copy(
                item,
                starts[where],
                ends[where],
                held[where],
                _furthest(same.get(item.source, ())),
                shared[item.source],
                writers.get(where, frozenset()),
            )
            for where, item in sorted(inside.items())
        ]
        return [copy for copy in copies if filled(copy, link=self._link.state_name, guard=self._link.guard)]

    def _held(
        self,
        inside: Mapping[_Where, AssignedPartition],
        starts: Mapping[_Where, int],
        ends: Mapping[_Where, int],
        source_cluster_id: str,
    ) -> dict[_Where, Held]:
        stable = self._admin.offsets(list(inside), at="latest", read_committed=True)
        looked = {where: (starts[where], stable[where], ends[where]) for where in inside}
        try:
            return self._reader.look(
                looked, source_cluster_id=source_cluster_id if self._link.guard else None
            )
        except AuthorizationError as error:
            log.warning("copies_not_readable", link=self._link.name, reason=error.message, fix=error.fix)
            return dict.fromkeys(looked, Held.UNSEEN)

    def _writers(self, partitions: Sequence[_Where]) -> Mapping[_Where, frozenset[str]]:
        """Returns links whose lanes have written to each partition; empty where brokers do not report it."""
        if self._hanging_client is None or not partitions:
            return {}
        try:
            ids = self._hanging_client.writers(partitions)
        except MirrorError as error:
            log.info("writers_unknown", link=self._link.name, reason=error.message)
            return {}
        return {
            where: frozenset(filter(None, map(link_of, transactional_ids)))
            for where, transactional_ids in ids.items()
        }


def _where(item: AssignedPartition) -> _Where:
    return item.target_topic, item.source.partition


def _furthest(same: Sequence[ReverseLink]) -> ReverseLink | None:
    return max(same, key=lambda each: each.position.offset, default=None)
