"""
Control of one link as its owner writes it: claims, lane layouts, and records of failover (EO-2, EO-8, EO-10).

Only the control producer writes, and every write after a failure begins with the proof that this run still owns the
link.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import structlog

from eomirror.crash import crash_point
from eomirror.errors import LaneError, SupersededError
from eomirror.link.claim import own_claim
from eomirror.link.control_producer import ControlProducer, given_up, refuse_unwritable
from eomirror.link.fencing import fence
from eomirror.link.hanging import end_hanging
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.ownership import CLAIM_INTERVAL_SECONDS, AfterFencing, after_fencing, superseded_by
from eomirror.link.state import LinkState
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.position import position_key
from eomirror.records.promotion import encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.control import ControlView, Generation
    from eomirror.records.promotion import Promotion, Restoration, Resumption, Reversal
    from eomirror.records.recreation import CopyBack, Recreation
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["TRIES", "OwnedControl"]

log = structlog.get_logger(__name__)

TRIES = 5


class OwnedControl:
    """
    Writes control on behalf of one run.  Not thread-safe: the owner holds a lock.

    Args:
        although_promoted: True if the run works on a promoted link, and is not told that the link is promoted.
        hanging_client: Client for hanging transactions on the target; None to end none.
        command: Command that takes the link, which its claims name; empty for a mirror.

    Attributes:
        run: Id of the run.
        names: Names of the link's topics and ids.
        producer: Control producer.
        state: Reads the link's state topics.
        target_admin: Admin client of the target.
        generation: Layout that was published last; None before the link is taken.
        certain: False after a failed publication, which may have been committed nevertheless.
        closed: True once nothing is written any more.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterSession,
        *,
        run: str,
        clock: Clock,
        although_promoted: bool,
        hanging_client: HangingClient | None,
        command: str,
    ) -> None:
        self.run = run
        self.names = LinkNames(link.state_name)
        self.state = LinkState(link, target)
        self.target_admin = target.admin
        self.generation: Generation | None = None
        self.certain, self.closed = True, False
        self._link = link
        self._clock = clock
        self._session = target
        self._hanging_client = hanging_client
        self._command, self._although_promoted = command, although_promoted
        self.producer = ControlProducer(
            link,
            target.cluster,
            read_control=partial(self.state.control, wait_for_open=False),
            read_positions=partial(self.state.positions, wait_for_open=False, overruled=()),
            partitions=self.state.positions_partitions,
            hanging_client=hanging_client,
            clock=clock,
        )
        self._sequence = 0

    # -- the producer ----------------------------------------------------------------------------

    def initialize(self) -> None:
        """Makes a new control producer, which fences an older owner's."""
        self.producer.initialize()

    def close(self) -> None:
        """Closes the control producer."""
        self.closed = True
        self.producer.drop()

    # -- reading ---------------------------------------------------------------------------------

    def read(self) -> ControlView:
        """Returns control up to its end; first ends a hanging transaction there (`Gap`) and all others of its lane."""
        if self.producer.is_held():
            generation = self.state.control(wait_for_open=False).generation
            if generation is not None:
                self.fence_lanes(generation.highest_lane)
        return self.state.control()

    def layout(self) -> Generation:
        """
        Returns the layout in control, which is ours.

        Raises:
            SupersededError: Another mirror published a newer one.
        """
        if not self.certain:
            self.generation = self.refuse_superseded().generation
            self.certain = True
        if self.generation is None:
            raise AssertionError("acquire comes first")
        return self.generation

    def refuse_superseded(self) -> ControlView:
        """Raises SupersededError if another mirror owns the link; returns control."""
        view = self.state.control()
        if after_fencing(view, run=self.run) is AfterFencing.LEAVE:
            raise self.superseded(view)
        return view

    def superseded(self, view: ControlView) -> SupersededError:
        """Returns the error of a run that does not own the link."""
        return superseded_by(
            self._link.name, view, although_promoted=self._although_promoted, command=self._command
        )

    # -- writing ---------------------------------------------------------------------------------

    def claim(
        self, *, released: bool, interval: float = CLAIM_INTERVAL_SECONDS, alone: bool = False
    ) -> MetadataRecord:
        """Returns the next claim of this run, which is renewed within ``interval`` seconds."""
        self._sequence += 1
        claim = own_claim(
            self.run,
            self._sequence,
            interval,
            released=released,
            now_ms=self._clock.wall_ms(),
            command=self._command,
            alone=alone,
        )
        return MetadataRecord(self.names.control_topic, 0, claim.key(), claim.value())

    def records(
        self, record: Promotion | Reversal | Restoration | Resumption | Recreation | CopyBack
    ) -> list[MetadataRecord]:
        """Returns the records of control that hold a record of failover."""
        return [MetadataRecord(self.names.control_topic, 0, key, value) for key, value in encoded(record)]

    def publish_layout(
        self,
        generation: Generation,
        first: Sequence[MetadataRecord],
        *,
        interval: float = CLAIM_INTERVAL_SECONDS,
    ) -> None:
        """Commits a layout with our claim, which is renewed within ``interval`` seconds, and first positions."""
        layout = MetadataRecord(self.names.control_topic, 0, generation.key(), generation.value())
        self.producer.publish([layout, self.claim(released=False, interval=interval), *first])

    def revise(self, generation: Generation, records: Callable[[], Sequence[MetadataRecord]]) -> None:
        """Commits a layout that changes ours, with the records that ``records`` returns for each try."""
        self.certain = False
        self.guarded(lambda: self.publish_layout(generation, records()))
        self.generation, self.certain = generation, True

    def forgotten(
        self, sources: Collection[SourcePartition], copies: Collection[str]
    ) -> list[MetadataRecord]:
        """
        Returns the records by which the link forgets partitions whose copies are deleted.

        They delete positions, in whichever partition of their topic they are.  Checkpoints of the copies get offset 0,
        because a group that resumed at the old one would skip records of a new copy; MirrorMaker 2's readers take no
        tombstone.
        """
        numbers = range(self.state.positions_partitions() if sources else 0)
        checkpoints = (
            OffsetMapReader(self._link, self._session).checkpoints() if copies and self._link.groups else []
        )
        return [
            *(
                MetadataRecord(self.names.positions_topic, number, position_key(source), None)
                for source in sorted(sources)
                for number in numbers
            ),
            *(
                MetadataRecord(
                    self._link.mm2_names.checkpoints(self._link.source),
                    0,
                    one.key(),
                    one._replace(upstream=0, downstream=0, metadata="").value(),
                )
                for one in checkpoints
                if one.topic in copies and one.downstream > 0
            ),
        ]

    def guarded(self, publish: Callable[[], None]) -> None:
        """Publishes; on failure makes a new control producer, checks that this run still owns the link, and retries."""
        for attempt in range(TRIES):
            try:
                if not self.producer.ready:
                    # Our InitProducerId may fence a newcomer's; the newcomer finds our run in control and leaves.
                    self.refuse_superseded()
                    self.initialize()
                    self.refuse_superseded()
                publish()
            except LaneError as error:
                log.info("control_write_failed", link=self._link.name, attempt=attempt, error=str(error))
                self.producer.drop()
                refuse_unwritable(self._link, self.target_admin)
                self.refuse_superseded()
                self._clock.sleep(0.2 * (attempt + 1))
            else:
                return
        raise given_up(self._link, self.target_admin, f"write {self.names.control_topic}", TRIES)

    def fence_lanes(self, highest_lane: int, *, only: Collection[int] | None = None) -> None:
        """
        Fences lane ids, and ends hanging transactions of these lanes; a later lane fences its own id.

        Args:
            highest_lane: Highest lane that was ever used.
            only: Lanes to fence; None for all.
        """
        lanes = range(highest_lane + 1) if only is None else sorted(only)
        fence(
            self._session.cluster,
            {self.names.transactional_id(lane): self.names.client_id(f"fence-{lane}") for lane in lanes},
            known_topic=self.names.control_topic,
            transaction_timeout=self._link.transaction_timeout,
            clock=self._clock,
            on_fenced=lambda: crash_point("owner.fenced_some"),
        )
        if self._hanging_client is not None:
            end_hanging(self._link, self.names, self.state, self._hanging_client, highest_lane, only=only)
