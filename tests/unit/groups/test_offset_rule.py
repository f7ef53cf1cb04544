"""Whether the offset of a group may be written: the rule that the mirror, an import and a failover share."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror.groups.followed_groups import decide_sync
from eomirror.groups.offset_rule import has_members, metadata_left_out, past_others, ruling
from eomirror.groups.translation import OtherRecords
from eomirror.kafka.consumer_groups import Committed, TargetGroup

COPY = ("orders", 0)


@pytest.mark.parametrize(
    ("changes", "action", "why"),
    [
        ({}, "move", ""),
        ({"at": None}, "skip", ""),
        ({"state": "STABLE"}, "skip", "has members"),
        ({"state": "STABLE", "has": 50}, "skip", "has members"),
        ({"has": 50}, "stay", ""),
        ({"has": 60}, "skip", "ahead on the target"),
        ({"has": 60, "placed": (60,)}, "move", ""),
        ({"has": 60, "placed": (60,), "rewind": "ignore"}, "skip", "group_rewind"),
        # a link that keeps the offsets there moves its own alone
        ({"has": 20}, "move", ""),
        (
            {"has": 20, "keeps": True},
            "skip",
            "was read on the target to 20 of orders-0, which is not the link's",
        ),
        ({"has": 20, "keeps": True, "placed": (20,)}, "move", ""),
        ({"has": 60, "keeps": True}, "skip", "ahead on the target"),
        ({"has": 50, "keeps": True}, "stay", ""),
        ({"keeps": True}, "move", ""),
        (
            {"denied": {"orders": "User:m lacks it: kafka-acls"}},
            "skip",
            "on topic orders: User:m lacks it: kafka-acls",
        ),
        ({"denied": {"orders": "no"}, "has": 50}, "stay", ""),
        ({"has": 20, "keeps": True, "others": OtherRecords("north", 49)}, "skip", "link north"),
        # the other link's first record is at the offset itself: nothing is passed
        ({"others": OtherRecords("north", 50)}, "move", ""),
        ({"others": OtherRecords("north", 49)}, "skip", "records of link north from offset 49 on, before 50"),
        ({"others": OtherRecords("north", 49), "state": "STABLE"}, "skip", "has members"),
        # consumers there have read past the other's records themselves
        ({"others": OtherRecords("north", 49), "has": 50}, "stay", ""),
        ({"others": OtherRecords("north", 49), "has": 60}, "skip", "ahead on the target"),
        # the link has, and that proves nothing
        ({"others": OtherRecords("north", 49), "has": 50, "placed": (50,)}, "skip", "link north"),
        ({"others": OtherRecords("north", 49), "has": 60, "placed": (60,)}, "skip", "link north"),
        ({"others": OtherRecords("north", 49), "has": 20}, "skip", "link north"),
    ],
)
def test_one_rule_decides_about_each_offset(changes: dict[str, Any], action: str, why: str) -> None:
    """Members, what was read there, records of other links, and rewinds, in this order; the group resumes at 50."""
    values = {"at": 50, "has": None, "state": "EMPTY", "placed": (), **changes}
    found = ruling(COPY, values.pop("at"), values.pop("has"), values.pop("state"), **values)

    assert found.action == action
    assert why in found.reason
    assert bool(why) is bool(found.reason)


@pytest.mark.parametrize("state", ["unknown", "Assigning", "COMPLETING_REBALANCE", "stable"])
def test_a_state_that_is_not_known_to_be_idle_has_members(state: str) -> None:
    """Of either protocol, and of a later one."""
    assert has_members(state)
    assert not has_members("empty")
    assert not has_members("DEAD")


def test_the_reason_names_the_way_on() -> None:
    """Topic, partition, both offsets and the offset that skips nothing."""
    said = past_others(COPY, 90, OtherRecords("north", 30))
    assert said.startswith("orders-0 holds records of link north from offset 30 on, before 90")
    assert said.endswith("at 30 it skips none")
    assert past_others(COPY, 90, None) == past_others(COPY, None, OtherRecords("north", 30)) == ""


def test_metadata_is_left_out_only_where_brokers_do_not_take_it() -> None:
    """The limit counts UTF-16 units, as brokers do; an unknown one foretells nothing."""
    assert metadata_left_out(COPY, "é" * 100, 100) == metadata_left_out(COPY, "😀" * 50, 100) == ""
    assert metadata_left_out(COPY, "é" * 101, None) == ""
    for text, size in (("é" * 101, 101), ("😀" * 51, 102)):
        assert metadata_left_out(COPY, text, 100).startswith(
            f"orders-0: moves without its metadata of {size} characters: the target takes 100"
        )


def test_a_running_mirror_moves_the_partitions_that_pass_nothing() -> None:
    """The others stay as they are, with the reason."""
    wanted = {COPY: Committed(50), ("own", 0): Committed(7)}
    others = {COPY: OtherRecords("north", 30)}
    made = decide_sync(wanted, TargetGroup("empty", {}), {}, rewind="follow", renew=False, others=others)

    assert made.write == {("own", 0): Committed(7)}
    assert "link north" in made.skipped
