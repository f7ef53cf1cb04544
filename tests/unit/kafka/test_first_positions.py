"""Where a link begins that never ran, without a cluster."""

from __future__ import annotations

from typing import Any

from eomirror.config import Link
from eomirror.formats.names import LinkNames
from eomirror.kafka.first_positions import FirstPositions
from eomirror.lane.plane import ProducerIdentity
from eomirror.types import SourcePartition

T0, T1 = SourcePartition("t", 0), SourcePartition("t", 1)


class Growing:
    """A source whose partition 0 gets its first record behind ``start`` after it was asked once."""

    def __init__(self) -> None:
        self.ends = {T0: 10, T1: 20}
        self.late = {T0: -1, T1: 7}

    def offsets(self, names: list[SourcePartition], *, at: str | int, **_: Any) -> dict[Any, int]:
        found = self.ends if at == "latest" else self.late
        answer = {tuple(name): found[name] for name in names}
        self.ends = {**self.ends, T0: 11}
        return answer


def starts(source: Any, start: str | int) -> dict[SourcePartition, int]:
    link = Link(name="one", source="east", target="west", topics=("t",))
    first = FirstPositions(
        link, LinkNames("one"), source=source, target=source, source_cluster_id="a", run="r",
        identity=ProducerIdentity(1, 0), now_ms=0,
    )  # fmt: skip
    return first._starts([T0, T1], start)


def test_a_record_that_arrives_while_the_source_is_asked_is_mirrored() -> None:
    """No record was as late as `start`; one that comes before the end is asked for may be, and must not be lost."""
    assert starts(Growing(), 1_700_000_000_000) == {T0: 10, T1: 7}


def test_the_end_is_asked_for_once() -> None:
    """`latest` is one moment."""
    assert starts(Growing(), "latest") == {T0: 10, T1: 20}
