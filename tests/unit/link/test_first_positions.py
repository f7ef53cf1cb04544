"""Where a link begins that never ran, without a cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import structlog

from eomirror.config import Link
from eomirror.lane.spec import AssignedPartition
from eomirror.link.first_positions import FirstPositions
from eomirror.link.start_checks import StartChecks, StartFacts
from eomirror.plane.protocol import ProducerIdentity
from eomirror.records.names import LinkNames
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


class Filled:
    """A target on which MirrorMaker 2 has kept offsets; the copy of ``u`` has records."""

    def __init__(self, seen: dict[str, Any]) -> None:
        self._seen = seen

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        assert names == ["mm2-offsets.east.internal"]
        return self._seen, {}

    def offsets(self, names: list[tuple[str, int]], **_: Any) -> dict[tuple[str, int], int]:
        return {name: 500 if name[0] == "east.u" else 0 for name in names}


KNOWN, NEW, EMPTY = (
    AssignedPartition(SourcePartition(topic, 0), "i", f"east.{topic}", "j") for topic in ("t", "u", "v")
)


@pytest.mark.parametrize(
    ("seen", "known", "left"),
    [
        ({"mm2-offsets.east.internal": object()}, {KNOWN.source}, [KNOWN, EMPTY]),
        # adopted by hand, or mirrored by the link itself
        ({"mm2-offsets.east.internal": object()}, {KNOWN.source, NEW.source}, [KNOWN, NEW, EMPTY]),
        # no MirrorMaker 2 was ever here, or no right to see what it left
        ({"mm2-offsets.east.internal": None}, {KNOWN.source}, [KNOWN, NEW, EMPTY]),
        ({}, {KNOWN.source}, [KNOWN, NEW, EMPTY]),
    ],
)
def test_a_new_topic_that_mm2_has_filled_is_left_out(
    seen: dict[str, Any], known: set[SourcePartition], left: list[AssignedPartition]
) -> None:
    """Topics of MM2 are taken over in groups: what it has mirrored of the next ones must not be mirrored again."""
    link = Link(name="one", source="east", target="west", topics=(".*",))
    target: Any = SimpleNamespace(admin=Filled(seen), clock=None)
    with patch("eomirror.link.start_checks.OtherLinks"), structlog.testing.capture_logs() as said:
        checks = StartChecks(link, target, target)
        asked = StartFacts(items=[KNOWN, NEW, EMPTY], known=known)
        assert checks.without_refused(["filled_by_mm2"], asked) == left
    assert [(line["event"], line["topic"]) for line in said] == (
        [] if NEW in left else [("topic_left_out", "u")]
    )
    assert all("--resume-at u-0=OFFSET" in line["fix"] for line in said)
