"""The control producer between a target and leftovers that are played."""

from __future__ import annotations

from typing import Any

import pytest

import eomirror.link.control_producer
from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link
from eomirror.errors import MirrorError, UnreachableError
from eomirror.link.control_producer import ControlProducer
from eomirror.records.control import ControlView


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


def test_a_producer_that_nobody_could_look_for_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-10: who finds it goes on without asking control whether somebody else was fenced by its InitProducerId."""
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
