"""What is read to place groups on the target, in which order, and what is left alone."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.errors import AuthorizationError, UnreachableError
from eomirror.failover import group_reader
from eomirror.failover.group_moves import Absence
from eomirror.failover.group_reader import GroupReader, absences
from eomirror.groups.translation import Translation
from eomirror.kafka.consumer_groups import Committed, GroupState
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Resumption
from eomirror.types import SourcePartition

CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"source": "east", "target": "west", "topics": ["t"], "groups": ["pay"]}],
    }
)
T = SourcePartition("t", 0)
CUT = Cut(
    topic="t", partition=0, topic_id="i", position=100, target_topic="east.t", target_topic_id="j", target_end=90,
    timestamp=1,
)  # fmt: skip
PROMOTED = Promotion(
    number=1, planned=False, run="r", host="h", generation=2, source_cluster_id="E", target_cluster_id="W",
    cuts=(CUT,), started=1, timestamp=2,
)  # fmt: skip
RETURNED = Resumption(number=1, link="west->east", starts={T: 130}, run="s", timestamp=3)


class Source:
    """The groups of the source, of which the link follows one; brokers before 2.6 list no states."""

    def __init__(
        self, state: str = "EMPTY", problem: Exception | None = None, *, listed: str = "", dead: bool = False
    ) -> None:
        self.reads: list[str] = []
        self.state, self.problem, self.listed, self.dead = state, problem, listed or state, dead

    def listed_states(self) -> dict[str, str]:
        self.reads.append("members on the source")
        if self.problem is not None and self.dead:
            raise self.problem
        return dict.fromkeys(("pay", "theirs"), self.listed)

    def states(self, names: list[str]) -> dict[str, GroupState]:
        assert names == ["pay"]
        if self.problem is not None:
            raise self.problem
        return {name: GroupState(self.state, 1, idle=False) for name in names}


class Played:
    """Stands for all that is asked; the group stands at 70 on the target, where the link may have placed it."""

    def __init__(
        self, state: str = "EMPTY", problem: Exception | None = None, *, source: Source | None = None
    ) -> None:
        self.reads: list[str] = []
        self.state, self.problem = state, problem
        self.groups = source or Source()
        self.groups.reads = self.reads

    # the reader of the link's topics
    def placed(self) -> dict[tuple[str, str, int], frozenset[int]]:
        self.reads.append("checkpoints for what was placed")
        return {("pay", "east.t", 0): frozenset({70})}

    def log_starts(self, _: Any) -> dict[tuple[str, int], int]:
        return {}

    # the translator
    def translate_groups(
        self, *_: Any, source_unavailable: bool, **named: Any
    ) -> tuple[list[Translation], bool]:
        self.reads.append("translations")
        self.away = named.get("away")
        assert not gc.isenabled()
        if self.problem is not None:
            raise self.problem
        row = Translation(
            link="east->west", group="pay", topic="t", partition=0, offset=50, to_topic="east.t", to_partition=0,
            to_offset=45, kind="exact",
        )  # fmt: skip
        return [row], source_unavailable or bool(self.away)

    # the groups of the target
    def states(self, names: Any) -> dict[str, GroupState]:
        if names:
            self.reads.append("states")
        return {name: GroupState(self.state, 0, idle=True) for name in names}

    def committed(self, names: Any) -> dict[str, dict[tuple[str, int], Committed]]:
        self.reads.append("offsets")
        return {name: {("east.t", 0): Committed(70)} for name in names}

    def close(self) -> None:
        """Nothing is open."""


def reading(monkeypatch: pytest.MonkeyPatch, played: Played) -> GroupReader:
    for name in ("OffsetMapReader", "OffsetTranslator", "ClusterGroups"):
        monkeypatch.setattr(group_reader, name, lambda *_, **__: played)
    admin = SimpleNamespace(topic_rights=lambda names: dict.fromkeys(names, frozenset({"READ"})))
    session: Any = SimpleNamespace(admin=admin)
    return GroupReader(CONFIG, CONFIG.links[0], session)


def test_what_was_placed_is_read_behind_the_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that goes back has a checkpoint for that before its offset on the target follows."""
    played = Played()
    reader = reading(monkeypatch, played)
    (move,) = reader.moves({T: CUT}, PromotionHistory(), answers=False)
    reader.close()

    assert played.reads == ["translations", "states", "offsets", "checkpoints for what was placed"]
    assert (move.action, move.has, move.to_offset) == ("move", 70, 45)
    assert gc.isenabled()


def test_a_target_without_the_groups_is_asked_for_states_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 groups then cost 1,000 requests, and no second look at the checkpoints."""
    played = Played(state="DEAD")
    reader = reading(monkeypatch, played)
    (move,) = reader.moves({T: CUT}, PromotionHistory(), answers=False)
    reader.close()

    assert played.reads == ["translations", "states"]
    assert (move.action, move.has) == ("move", None)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (Source(), ("exact", 0, False, "")),
        (Source("STABLE"), ("earlier", None, True, "it has members on the source (state stable)")),
        (
            Source(problem=AuthorizationError("may not describe pay", fix="allow it"), listed="UNKNOWN"),
            ("earlier", None, True, "it is not known if it has members on the source: may not describe pay"),
        ),
        (Source("PREPARING_REBALANCING", listed="UNKNOWN"), ("earlier", None, True, "preparing_rebalancing")),
        (Source(listed="UNKNOWN"), ("exact", 0, False, "")),
        (Source(problem=UnreachableError("gone", fix="check"), dead=True), ("exact", None, False, "")),
        (Source(problem=UnreachableError("gone", fix="check"), listed="UNKNOWN"), ("exact", None, False, "")),
    ],
    ids=["idle", "members", "hidden", "described", "described idle", "gone", "gone meanwhile"],
)
def test_members_on_the_source_are_looked_for_once_and_before_the_offsets(
    monkeypatch: pytest.MonkeyPatch, source: Source, expected: tuple[Any, ...]
) -> None:
    """One request for each broker; a group that commits behind it may commit behind the offsets that are read."""
    played = Played(source=source)
    reader = reading(monkeypatch, played)
    (move,) = reader.moves({T: CUT}, PromotionHistory(), answers=True)
    reader.close()

    assert played.reads[:2] == ["members on the source", "translations"]
    assert (move.kind, move.again, move.active_on_source) == expected[:3]
    assert expected[3] in move.reason
    # a source that has just died is not waited for a second time
    assert played.away == ({"east": source.problem} if isinstance(source.problem, UnreachableError) else {})


def test_a_failure_leaves_the_collector_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that failed may go on for days."""
    reader = reading(monkeypatch, Played(problem=UnreachableError("east does not answer", fix="check")))
    with pytest.raises(UnreachableError):
        reader.moves({T: CUT}, PromotionHistory(), answers=True)
    reader.close()
    assert gc.isenabled()


def test_a_link_was_absent_from_each_promotion_to_its_return() -> None:
    """A promotion that was not returned from is none: the link mirrors nothing behind it."""
    assert absences(PromotionHistory(promotions={1: PROMOTED})) == {}
    history = PromotionHistory(promotions={1: PROMOTED}, resumptions={1: RETURNED})
    assert absences(history) == {T: [Absence(100, 130, 90)]}
