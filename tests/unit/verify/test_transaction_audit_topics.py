"""Which topics a log audit reads, where a transaction that is open at first hides positions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from eomirror.config import Link
from eomirror.kafka.admin import TopicFacts
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.verify import transactions

if TYPE_CHECKING:
    import pytest

POSITIONS, OFFSET_MAP = "eomirror.l.positions", "eomirror.l.offset-map"


class Target:
    """A cluster with two copies; the transaction of a killed lane ends when its ends were asked for twice."""

    alias = "west"

    def __init__(self) -> None:
        self.looks = 0
        self.added: list[tuple[str, str]] = []

    @property
    def settled(self) -> bool:
        """Whether nothing is open any more."""
        return self.looks > 2

    @property
    def admin(self) -> Target:
        """Its own."""
        return self

    cluster = admin

    def session(self, *_: Any, **__: Any) -> Target:
        """Its own, too."""
        return self

    def audit(self, *_: Any) -> Target:
        """What reads it."""
        return self

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        """All that is asked for is there."""
        return {name: TopicFacts(name, f"id of {name}", 1, 1) for name in names}

    def offsets(
        self, partitions: list[tuple[str, int]], *, at: str, read_committed: bool
    ) -> dict[tuple[str, int], int]:
        """Ten records each."""
        self.looks += read_committed
        held = read_committed and not self.settled
        return {
            where: 0 if at == "earliest" else 5 if held and where[0] == POSITIONS else 10
            for where in partitions
        }

    def read(self, topic: str, *, wait_for_open: bool) -> tuple[int, list[LogRecord]]:
        """A position of each copy; the second one's stands behind the open transaction."""
        assert not wait_for_open
        names = ["e.first", "e.second"] if self.settled else ["e.first"]
        bodies = [orjson.dumps({"producer_id": 1, "target_topic": name}) for name in names]
        return 1, [LogRecord(topic, 0, n, b"k%d" % n, body) for n, body in enumerate(bodies)]

    def add(self, topic: str, partition: int, role: str, *_: Any) -> None:
        """A partition is to be read."""
        assert partition == 0
        self.added.append((role, topic))

    def learn(self, _: int) -> None:
        """A producer of the link."""

    def step(self, _: float) -> bool:
        """All is read."""
        return True

    def progress(self) -> tuple[int, int]:
        """Nothing is."""
        return 0, 0

    def finish(self, _: bool) -> dict[str, Any]:
        """Nothing was found."""
        counts = (
            "transactions", "records", "positions", "advances", "set_positions", "claims", "aborted", "foreign_records",
            "foreign_producers", "unproven_records", "unproven_positions", "under_way",
        )  # fmt: skip
        lists: dict[str, Any] = {name: [] for name in ("findings", "since", "unread")}
        spread = dict.fromkeys(("widest_spread_ms", "widest_spread_transaction"))
        return {**dict.fromkeys(counts, 0), **lists, **spread, "counts": {}}

    def close(self) -> None:
        """Nothing is open."""


class Now:
    """A clock that stands still."""

    def monotonic(self) -> float:
        """Always the same."""
        return 0.0

    def sleep(self, _: float) -> None:
        """No time passes."""


def test_a_topic_whose_first_position_was_hidden_is_audited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """At rest, right after a lane was killed: its open transaction hid what another lane had committed behind it."""
    target = Target()
    for name in ("ClusterSession", "CompactedTopicReader", "LogAudit"):
        monkeypatch.setattr(transactions, name, target.audit if name == "LogAudit" else target.session)
    for name, value in (("consumer_properties", {}), ("as_text", {}), ("with_tokens", ({}, None))):
        monkeypatch.setattr(transactions, name, lambda *_, _value=value, **__: _value)
    link = Link(name="l", source="east", target="west", topics=(".*",))
    found: Any = transactions.audit_link(link, target, at_rest=True, clock=Now())  # type: ignore[arg-type]
    assert found.clean
    assert [topic for role, topic in target.added if role == "data"] == ["e.first", "e.second"]
