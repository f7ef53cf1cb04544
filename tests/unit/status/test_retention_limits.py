"""How near the source's retention is to what waits: by age, by size, of topics that wait; asked once a minute."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import AuthorizationError
from eomirror.kafka.cluster_metadata import ConfigValue
from eomirror.status.model import PartitionStatus, RetentionStatus
from eomirror.status.reader import RetentionSettings
from eomirror.status.retention import (
    MOST_TOPICS,
    RetentionLimits,
    retention_rows,
    retention_text,
    waiting_topics,
)
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = RetentionLimits(3600.0, by_size=False)
SIZE = RetentionLimits(None, by_size=True)
NONE = RetentionLimits(None, by_size=False)


def partition(topic: str = "orders", number: int = 0, **changes: Any) -> PartitionStatus:
    """A partition at 60 of 100, whose oldest record is 45 minutes old."""
    made = PartitionStatus(
        topic=topic, partition=number, target_topic=f"west.{topic}", lane=0, position=60, source_lso=100,
        lag_records=40, lag_seconds=2700.0, records=5, rate=0.0, last_commit=1,
    )  # fmt: skip
    return replace(made, **changes)


def rows(*partitions: PartitionStatus, start: int = 0, **limits: RetentionLimits) -> list[RetentionStatus]:
    starts = {SourcePartition(item.topic, item.partition): start for item in partitions}
    return list(retention_rows(partitions, starts, limits))


def test_the_age_of_the_oldest_record_is_a_share_of_the_retention() -> None:
    """Of the worst partition of a topic; the worst topic first."""
    found = rows(
        partition(),
        partition(number=1, lag_seconds=3240.0),
        partition("older", lag_seconds=4000.0),
        orders=HOUR,
        older=HOUR,
    )
    assert found == [
        RetentionStatus(topic="older", partition=0, used=1.0, left_seconds=0.0, setting="retention.ms"),
        RetentionStatus(topic="orders", partition=1, used=0.9, left_seconds=360.0, setting="retention.ms"),
    ]
    assert retention_text(found[0]) == (
        "older-0: the source may delete records that are not mirrored, at any time (retention.ms)"
    )
    assert "not mirrored, in 6 min (retention.ms)" in retention_text(found[1])


def test_a_log_that_is_cut_by_its_size_is_near_when_most_of_it_waits() -> None:
    """A log that begins at 0 was never cut, and its size is not known."""
    assert rows(partition(), orders=SIZE) == []
    (found,) = rows(partition(), start=50, orders=SIZE)
    assert (found.used, found.left_seconds, found.setting) == (0.8, None, "retention.bytes")
    assert "not mirrored, once its log has grown by 20% (retention.bytes)" in retention_text(found)
    (both,) = rows(partition(), start=50, orders=replace(HOUR, by_size=True))
    assert (both.used, both.left_seconds, both.setting) == (0.8, 900.0, "retention.bytes")
    (age,) = rows(partition(lag_seconds=3500.0), start=50, orders=replace(HOUR, by_size=True))
    assert age.setting == "retention.ms"


@pytest.mark.parametrize(
    "changes",
    [
        {"lag_records": 0, "lag_seconds": 0.0},
        {"lag_seconds": 59.0},
        {"lag_records": None, "lag_seconds": None},
        {"parked": True},
    ],
)
def test_a_topic_that_does_not_wait_is_not_asked_for(changes: dict[str, Any]) -> None:
    """Caught up, on its way, unknown, or not mirrored at all."""
    item = partition(**changes)
    assert waiting_topics([item]) == []
    assert rows(item, orders=HOUR) == []


def test_the_oldest_topics_are_asked_for() -> None:
    """Of thousands that wait; an unknown age is no reason to leave a topic out, but comes last."""
    many = [partition(f"t{number:04}", lag_seconds=60.0 + number) for number in range(MOST_TOPICS + 5)]
    found = waiting_topics([partition("unknown", lag_seconds=None), *many])
    assert len(found) == MOST_TOPICS
    assert found[0] == f"t{MOST_TOPICS + 4:04}"
    assert "unknown" not in found
    assert waiting_topics([partition("unknown", lag_seconds=None), many[0]]) == ["t0000", "unknown"]
    # of a known age only
    assert rows(partition(lag_seconds=None), orders=HOUR) == []


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1"}, HOUR),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "7"}, SIZE),
        ({"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "7"}, NONE),
        ({"cleanup.policy": "delete", "retention.ms": None}, NONE),
        ({}, NONE),
    ],
)  # fmt: skip
def test_the_settings_of_a_topic_are_its_limits(
    values: dict[str, str | None], limits: RetentionLimits
) -> None:
    """A topic that is only compacted deletes nothing for its age."""
    assert RetentionLimits.of(values) == limits


class Admin:
    """A cluster that counts what it is asked."""

    name = "west"

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.refuses = False
        self.hidden: set[str] = set()

    def topic_configs(self, names: list[str]) -> dict[str, dict[str, ConfigValue]]:
        self.asked.append(names)
        if self.refuses:
            raise AuthorizationError("no right", fix="grant it")
        for hidden in set(names) & self.hidden:
            raise AuthorizationError("no right", fix="grant it", topic=hidden)
        values = {"cleanup.policy": "delete", "retention.ms": "3600000", "retention.bytes": "-1"}
        return {
            name: {key: ConfigValue(value, is_default=False) for key, value in values.items()}
            for name in names
        }


def settings_of(admin: Any, clock: PlayedClock) -> Callable[[list[str]], Any]:
    """The limits of topics, as a status asks for them."""
    settings = RetentionSettings(clock)
    return lambda topics: settings.of(admin, topics)


def test_each_topic_is_asked_for_once_a_minute() -> None:
    """A status is read every few seconds."""
    admin, clock = Admin(), PlayedClock()
    settings = settings_of(admin, clock)
    assert settings([]) == {}
    assert settings(["a"]) == {"a": HOUR}
    clock.sleep(30)
    assert settings(["b", "a"]) == {"a": HOUR, "b": HOUR}
    clock.sleep(31)
    settings(["b", "a"])
    assert admin.asked == [["a"], ["b"], ["a"]]


def test_a_topic_that_refuses_hides_no_other() -> None:
    """Its own limits are unknown; those of the others are what the operator must know."""
    admin = Admin()
    admin.hidden = {"secret", "gone"}
    settings = settings_of(admin, PlayedClock())
    assert settings(["a", "gone", "secret", "z"]) == {"a": HOUR, "z": HOUR}


def test_a_refusal_is_no_failure_and_is_not_repeated() -> None:
    """The rest of the status holds without it."""
    admin, clock = Admin(), PlayedClock()
    admin.refuses = True
    settings = settings_of(admin, clock)
    for _ in range(3):
        assert settings(["a"]) == {}
    assert admin.asked == [["a"]]
    admin.refuses = False
    clock.sleep(61)
    assert settings(["a"]) == {"a": HOUR}
