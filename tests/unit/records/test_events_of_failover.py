"""The timeline tells each record of a failover in words, and none twice; strange ones are named and do no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from eomirror.records.control import Pause
from eomirror.records.events import TAKE_OVER, LinkEvent, link_events
from eomirror.records.promotion import (
    Cut,
    Fence,
    Promotion,
    Restoration,
    Resumption,
    Reversal,
    encoded,
)
from eomirror.records.recreation import CopyBack, Recreation
from eomirror.types import SourcePartition
from support.fakes.claims import claim


def cut(partition: int, end: int | None, topic: str = "orders") -> Cut:
    """A cut at 100 of a partition with this end."""
    return Cut(
        topic=topic, partition=partition, topic_id="t", position=100, target_topic="east.orders",
        target_topic_id="u", target_end=90, timestamp=7, source_end=end,
    )  # fmt: skip


def promotion(*cuts: Cut, **changes: Any) -> Promotion:
    """Promotion 1, a failover."""
    made = Promotion(
        number=1, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b",
        cuts=cuts, groups={}, started=1, timestamp=2, milliseconds={},
    )  # fmt: skip
    return replace(made, **changes)


COPIES = "h failed over (promotion 1): applications write to the copies of"
FENCE = Fence(number=2, method="acl", topics=("a", "b", "c", "<d>", "e"), lifted=False, host="h", timestamp=1)
RESTORED = Restoration(number=1, orphans="merge", records=1, place="", run="r", timestamp=9)
RECREATION = Recreation(
    number=2, link="back", topics={"orders": "id"}, ends={}, records=7, place="", done=False, run="r", timestamp=1
)  # fmt: skip
ORDER = CopyBack(link="there", number=2, done=False, until={}, run="r", timestamp=1)


def events(*records: Any, most: int = 256 * 1024) -> list[LinkEvent]:
    """The timeline of these records, one a millisecond."""
    written = [pair for record in records for pair in encoded(record, most=most)]
    return list(link_events([(key, value, at) for at, (key, value) in enumerate(written)], []))


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (
            promotion(cut(0, 105), cut(1, 100)),
            f"{COPIES} 2 partitions; left behind: 5 source offsets",
        ),
        (
            promotion(cut(0, 100), planned=True),
            "h promoted (promotion 1): applications write to the copies of 1 partition; left behind: 0 source offsets",
        ),
        (
            promotion(cut(0, 105), cut(1, None)),
            f"{COPIES} 2 partitions; left behind: an unknown number of source offsets",
        ),
        (
            promotion(cut(0, 101), ends_at=1),
            f"{COPIES} 1 partition; left behind: at least 1 source offset",
        ),
        (
            promotion(cut(0, 101), uncut=30, at_least=True),
            f"{COPIES} 1 partition; left behind: at least 31 source offsets",
        ),
        (
            FENCE,
            "h fenced (method acl), before promotion 2: no application may write to a, b, c and 2 more",
        ),
        (
            replace(FENCE, method="command", topics=()),
            "h fenced (method command), before promotion 2: no application may write to the source",
        ),
        (replace(FENCE, lifting=True), "the fence before promotion 2 is being lifted"),
        (
            replace(FENCE, lifted=True),
            "the fence before promotion 2 is lifted: applications may write to the source again",
        ),
        (
            Reversal(number=1, link="<b>", ends={SourcePartition("orders", 0): 105}, run="r", timestamp=8),
            "the link back, <b>, begins at the cut of promotion 1",
        ),
        (RESTORED, "1 orphan of promotion 1: merged into the copies"),
        (
            replace(
                RESTORED,
                orphans="export",
                place="file.jsonl",
                records=1200,
                lost={SourcePartition("orders", 1): ((100, 104), (110, 111))},
            ),
            "1,200 orphans of promotion 1: exported to file.jsonl; 5 source offsets had been deleted before",
        ),
        (
            Resumption(
                number=1, link="back", starts={SourcePartition("orders", 0): 130}, run="r", timestamp=10
            ),
            "promotion 1 has ended: the link mirrors again, from the cut of back",
        ),
        (
            RECREATION,
            "deleted on the old source after promotion 2, to be copied back whole by back: orders",
        ),
        (replace(RECREATION, done=True), "back has copied back whole, after promotion 2: orders"),
        (
            replace(RECREATION, topics={}),
            "no topic of the old source is deleted after promotion 2: that was withdrawn",
        ),
        (ORDER, "the link copies topics back whole, after promotion 2 of there"),
        (
            replace(ORDER, done=True),
            "the link has copied topics back whole, after promotion 2 of there",
        ),
    ],
)
def test_each_record_is_told(record: Any, text: str) -> None:
    """With numbers, hosts and names, which stay text."""
    assert [event.text for event in events(record)] == [text]


def test_a_promotion_in_parts_is_one_event() -> None:
    """Its cuts stand in records before it; they count, and are no events."""
    topics = [cut(number, 103, topic=f"t{number}") for number in range(40)]
    found = events(promotion(*topics), most=1_000)
    assert [event.kind for event in found] == ["promotion"]
    assert "the copies of 40 partitions; left behind: 120 source offsets" in found[0].text


def test_a_fence_is_told_once() -> None:
    """It is written before the applications are stopped, and unchanged after that; lifting it is another event."""
    found = events(
        FENCE, FENCE, replace(FENCE, lifting=True), replace(FENCE, lifted=True), replace(FENCE, number=3)
    )
    assert [event.at for event in found] == [0, 2, 3, 4]


def test_a_command_that_takes_the_link_supersedes_nothing() -> None:
    """A planned promotion takes it from the mirror that runs; a run that records nothing is another mirror."""
    claims = [claim(run="mirror"), claim(run="r", pid=7, command="cutover"), claim(run="other")]
    records = [(one.key(), one.value(), at) for at, one in enumerate(claims)]
    made = promotion(cut(0, 100), planned=True)
    records.insert(2, (made.key(), made.value(), 5))
    found = {event.text.partition(" took ")[2]: event.kind for event in link_events(records, [])}
    assert found.pop("the link from run mirror") == "owner"
    (taken,) = [text for text, kind in found.items() if kind == TAKE_OVER]
    assert taken.startswith("the link from run r on ")
    assert taken.endswith("Z: it was killed, or superseded")


def test_the_end_of_a_pause_is_a_resumption() -> None:
    """Its record is deleted."""
    paused = Pause(topics="orders.*", host="h", timestamp=1)
    found = link_events([(paused.key(), paused.value(), 1), (paused.key(), None, 2)], [])
    assert [(event.kind, event.text) for event in found] == [
        ("pause", "h paused orders.*"),
        ("resumed", "the link resumes"),
    ]


@pytest.mark.parametrize("kind", ["promotion", "fence", "reversal", "restoration", "resumption", "part"])
def test_a_strange_record_is_named(kind: str) -> None:
    """The timeline decides nothing, so it must not fail."""
    key = orjson.dumps({"kind": kind, "number": 1})
    strange = {"topics": [1], "host": 3, "planned": None, "lifted": 0, "records": "x", "orphans": []}
    for body in ({}, strange, {"topics": {"t": {"partitions": {"0": [1]}}}}):
        (event,) = link_events([(key, orjson.dumps(body), 5)], [])
        assert event.text == kind
