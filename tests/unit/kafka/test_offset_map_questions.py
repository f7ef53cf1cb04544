"""What is answered about offsets from a position alone, without reading the map."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.formats.position import Position
from eomirror.kafka.facts import TopicFacts
from eomirror.kafka.offset_map_reader import OffsetMapReader, Question

NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


class Admin:
    """The map's topic exists; whoever asks for more would have to read it."""

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", 7, 1) for name in names}

    def close(self) -> None:
        pass


def position(target_offset: int | None) -> Position:
    """At source offset 1000."""
    return Position(
        topic="orders", partition=0, offset=1000, source_cluster_id="S", topic_id="A", target_topic="east.orders",
        target_partition=0, target_topic_id="B", target_offset=target_offset, generation=2, lane=0, run="r", epoch=0,
        attempt=0, producer_id=1, producer_epoch=0, txn=0, timestamp=1,
    )  # fmt: skip


@pytest.fixture
def reader() -> Any:
    """One that cannot reach anything."""
    made = OffsetMapReader(Link(name="one", source="east", target="west", topics=("t",)), NOWHERE)
    made._admin.close()
    made._admin = Admin()  # type: ignore[assignment]  as much of it as is asked
    yield made
    made.close()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_without_records_of_ours_has_no_offsets(reader: OffsetMapReader, *, reverse: bool) -> None:
    """
    Adopted at 1000 behind a copy that was deleted and created again: the map speaks of the one before.

    Its chunks say 500 for 500 and 1000 for 1000; a group that is set to either in the empty copy skips as many records.
    """
    asked = [Question(position(None), offset, stable_end=0) for offset in (500, 999, 1000)]

    assert reader.answers(asked, reverse=reverse) == [("nothing", -1)] * 3


def test_where_the_mirror_stands_needs_no_map(reader: OffsetMapReader) -> None:
    """Behind the last record that it has written; and further on it is not known yet."""
    asked = [Question(position(41), 1000), Question(position(41), 1001), Question(position(None), 1001)]

    assert reader.answers(asked) == [("next", 42), ("beyond", 1000), ("beyond", 1000)]
