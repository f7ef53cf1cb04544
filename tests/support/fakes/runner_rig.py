"""A pump with fakes around it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

import orjson

from eomirror.errors import MirrorError
from eomirror.lane.runner import LaneRunner
from support.fakes.lane_fakes import (
    ORDERS,
    PAYMENTS,
    FakeClock,
    FakeMailbox,
    FakePlane,
    FakeState,
    FakeTopics,
    position,
    served_by,
    spec,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.lane.ports import CopyWatch
    from eomirror.lane.spec import LaneReport, LaneSpec
    from eomirror.lane.start import AddedRead


def at_once(read: Callable[[], AddedRead]) -> Future[AddedRead]:
    """Reads for added partitions without a thread."""
    found: Future[AddedRead] = Future()
    try:
        found.set_result(read())
    except MirrorError as error:
        found.set_exception(error)
    return found


class Rig:
    """A pump with fakes around it."""

    def __init__(
        self,
        lane: LaneSpec | None = None,
        *,
        copies: CopyWatch | None = None,
        later: Callable[[Callable[[], AddedRead]], Future[AddedRead]] = at_once,
        **offsets: int,
    ) -> None:
        self.clock = FakeClock()
        self.plane = FakePlane(self.clock)
        sources = {ORDERS: offsets.get("orders", 10)}
        if "payments" in offsets:
            sources[PAYMENTS] = offsets["payments"]
        self.state = FakeState({source: position(source, offset) for source, offset in sources.items()})
        self.topics = FakeTopics()
        self.mailbox = FakeMailbox(self.plane)
        self.rests: list[float] = []
        self.pump = LaneRunner(
            lane or spec(*sources),
            planes=served_by(self.plane),
            state=self.state,
            topics=self.topics,
            mailbox=self.mailbox,
            clock=self.clock,
            copies=copies,
            at_rest=lambda: self.rests.append(self.clock.monotonic()),
            later=later,
        )

    def run(self) -> LaneReport:
        return self.pump.run()

    def positions(self, transaction: int) -> list[dict[str, object]]:
        return [
            {**orjson.loads(record.key), **orjson.loads(record.value)}
            for record in self.plane.committed[transaction]
            if record.topic.endswith("positions")
        ]
