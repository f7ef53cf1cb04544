"""Nothing is said of offsets in a topic that is another one by now, on either side; the clusters are played."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from eomirror.config import Cluster
from eomirror.errors import AuthorizationError
from eomirror.groups.corrections import replaced
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.records.position import Position
from eomirror.types import SourcePartition


def position(topic: str, partition: int = 0) -> Position:
    return Position(
        topic=topic, partition=partition, offset=100, source_cluster_id="S", topic_id=f"{topic}-id",
        target_topic=f"east.{topic}", target_partition=partition, target_topic_id=f"copy-{topic}", target_offset=99,
        generation=1, lane=0, run="r", epoch=1, attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=1,
    )  # fmt: skip


class Admin:
    """What one cluster says of its topics: their ids, None for one that is gone; others may not be seen."""

    def __init__(self, ids: dict[str, str | None]) -> None:
        self._ids = ids

    def visible_topics(self, names: list[str]) -> tuple[Any, dict[str, AuthorizationError]]:
        seen = {name: self._ids[name] for name in names if name in self._ids}
        facts = {name: None if id_ is None else TopicFacts(name, id_, 1, 1) for name, id_ in seen.items()}
        return facts, {name: AuthorizationError("no right") for name in names if name not in seen}


def cluster(alias: str, **ids: str | None) -> Any:
    """Connections to a cluster with these topics."""
    topics = {name.replace("_", "."): id_ for name, id_ in ids.items()}
    return SimpleNamespace(cluster=Cluster(alias, {}), admin=Admin(topics))


def test_topics_that_were_deleted_or_created_again_are_named_with_their_side() -> None:
    """What may not be seen is taken for what it was; the source is asked only where it is given."""
    topics = ("same", "copied", "recreated", "gone", "hidden")
    east = cluster("east", same="same-id", copied="copied-id", recreated="new", gone="gone-id")
    west = cluster(
        "west", east_same="copy-same", east_copied="new", east_recreated="copy-recreated", east_gone=None
    )
    positions = [position(topic) for topic in topics]

    found = replaced(positions, source=east, target=west)
    assert {source.topic: reason.partition(":")[0] for source, reason in found.items()} == {
        "copied": "topic east.copied was deleted and created again on west",
        "recreated": "topic recreated was deleted and created again on east",
        "gone": "topic east.gone does not exist on west",
    }
    found = replaced(positions, source=None, target=west)
    assert sorted(source.topic for source in found) == ["copied", "gone"]
    assert replaced([], source=east, target=west) == {}


def test_partitions_of_one_topic_may_speak_of_different_ones() -> None:
    """Only some of them were adopted after the copy had been created again."""
    west = cluster("west", east_same="copy-same")
    before = replace(position("same", 1), target_topic_id="old")
    found = replaced([position("same"), before], source=None, target=west)
    assert list(found) == [SourcePartition("same", 1)]
