"""The control producer between a target and leftovers that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import eomirror.link.control_producer
from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link
from eomirror.errors import MirrorError, UnreachableError
from eomirror.link.control_producer import ControlProducer
from eomirror.plane.protocol import CommitOutcome, MetadataRecord, ProducerIdentity
from eomirror.records.control import ControlView, Stopped, decode_control
from eomirror.records.events import KEPT_MS, MOST_EVENTS
from eomirror.records.names import LinkNames
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence

LINK = Link(name="l", source="east", target="west", topics=("t",))


class FakeProducer:
    """Is initialized, and closed."""

    closed = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def init(self) -> None:
        """It can be."""

    def close(self) -> None:
        """Count it."""
        type(self).closed += 1


class SilentLeftovers:
    """A target whose partitions do not answer."""

    def open(self, _: Any) -> Any:
        """They have no leader."""
        raise UnreachableError("a partition has no leader", fix="see its log")


def test_a_producer_that_could_not_be_looked_for_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-10: who finds it goes on without asking control whether another run was fenced by its InitProducerId."""
    monkeypatch.setattr(eomirror.link.control_producer, "TransactionalProducer", FakeProducer)
    hanging_client: Any = SilentLeftovers()
    control = ControlProducer(
        Link(name="l", source="east", target="west", topics=("t",)),
        Cluster("west", {"bootstrap.servers": "127.0.0.1:1"}),
        read_control=ControlView,
        read_positions=dict,
        partitions=lambda: 1,
        hanging_client=hanging_client,
        clock=SYSTEM_CLOCK,
    )

    with pytest.raises(MirrorError, match="no leader"):
        control.initialize()

    assert (control.ready, FakeProducer.closed) == (False, 1)


class CommittingProducer(FakeProducer):
    """Commits what it is given to a compacted log, unless the target is away."""

    log: dict[bytes | None, bytes | None]
    away = False

    def begin(self) -> None:
        """Nothing."""

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Keep the newest of each key."""
        if self.away:
            raise UnreachableError("away")
        for one in records:
            self.log.pop(one.key, None)
            if one.value is not None:
                self.log[one.key] = one.value

    def flush(self, _: float) -> None:
        """Nothing waits."""

    def take_acks(self) -> None:
        """None is of interest."""

    def commit(self) -> CommitOutcome:
        """At once."""
        return CommitOutcome.CLEAN

    def abort(self) -> None:
        """Nothing was written."""


def test_events_of_a_mirror_that_runs_for_months_do_not_fill_control(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is stopped and resumed again and again; a renewal that failed deletes with the next one."""
    monkeypatch.setattr(eomirror.link.control_producer, "TransactionalProducer", CommittingProducer)
    monkeypatch.setattr(CommittingProducer, "log", {}, raising=False)
    clock = PlayedClock(0)
    control = ControlProducer(
        LINK,
        Cluster("west", {"bootstrap.servers": "127.0.0.1:1"}),
        read_control=ControlView,
        read_positions=dict,
        partitions=lambda: 1,
        hanging_client=None,
        clock=clock,
    )

    topic = LinkNames(LINK.state_name).control_topic

    def write(value: bytes | None) -> None:
        control.commit([MetadataRecord(topic, 0, Stopped.key_of("bad"), value)])

    def events() -> dict[bytes, int]:
        return dict(decode_control((key, it, "") for key, it in CommittingProducer.log.items()).dated)

    stop = Stopped(topic="bad", reason="gone", fix="", exit_code=4, lane=0, run="a", timestamp=1)
    for _ in range(MOST_EVENTS):
        clock.now += 30
        write(stop.value())
        clock.now += 30
        write(None)
    found = events()
    assert len(found) == MOST_EVENTS
    newest = max(found.values())
    assert min(found.values()) == newest - 30_000 * (MOST_EVENTS - 1)
    assert control.dated == found

    clock.now += KEPT_MS / 1000 - 3600
    monkeypatch.setattr(CommittingProducer, "away", True)
    with pytest.raises(UnreachableError):
        write(stop.value())
    monkeypatch.setattr(CommittingProducer, "away", False)
    write(stop.value())
    found = events()
    assert all(at >= newest - 3_600_000 for at in found.values())
    assert len(found) == 122


class KnownProducer(FakeProducer):
    """Has told its identity in its statistics."""

    def identity(self) -> ProducerIdentity:
        """As told."""
        return ProducerIdentity(7, 3)


class ClosedTarget:
    """A target without an open transaction, whose coordinator may tell identities."""

    def __init__(self, told: ProducerIdentity | None) -> None:
        self.told = told

    def open(self, _: Any) -> Any:
        """Returns none."""
        return ()

    def control_identity(self) -> ProducerIdentity | None:
        """Returns what the coordinator tells."""
        return self.told


@pytest.mark.parametrize("told", [ProducerIdentity(7, 4), None], ids=["told", "not-told"])
def test_the_coordinator_tells_the_identity_before_the_statistics_do(
    monkeypatch: pytest.MonkeyPatch, told: ProducerIdentity | None
) -> None:
    """Brokers before 3.0 do not tell it; librdkafka's statistics come once a second."""
    monkeypatch.setattr(eomirror.link.control_producer, "TransactionalProducer", KnownProducer)
    target: Any = ClosedTarget(told)
    control = ControlProducer(
        LINK,
        Cluster("west", {"bootstrap.servers": "127.0.0.1:1"}),
        read_control=ControlView,
        read_positions=dict,
        partitions=lambda: 1,
        hanging_client=target,
        clock=SYSTEM_CLOCK,
    )

    assert control.identity() == (told or ProducerIdentity(7, 3))
