"""The verdict before a failover, from facts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.failover.facts import drifts_of
from eomirror.failover.group_moves import GroupMove
from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Check, Facts, Level, Verified, assess, with_verified
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.records.promotion import Promotion
from eomirror.status.model import LinkStatus, OwnerStatus, PartitionStatus
from eomirror.topics.diff import AlterConfig, Differs
from support.fakes.status_records import fence, stop, verified

PARTITION = PartitionStatus(
    topic="orders", partition=0, target_topic="east.orders", lane=0, position=10, source_lso=10, lag_records=0,
    lag_seconds=0.0, records=10, rate=0.0, last_commit=1,
)  # fmt: skip
STATUS = LinkStatus(
    link="l", state="running", owner=OwnerStatus(run="r", host="h7"), generation=14, lag_records=0, lag_seconds=0.0,
    partitions=(PARTITION,),
)  # fmt: skip
PROMOTION = Promotion(
    number=3, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b", cuts=(),
    started=1, timestamp=2,
)  # fmt: skip
MOVE = GroupMove(
    group="billing", topic="orders", partition=0, offset=7, to_topic="east.orders", to_offset=5, kind="exact", again=0,
    has=None, action="move",
)  # fmt: skip

UNKNOWN = "READY, LOSS NOT KNOWN"
SINCE = "what was written in the last 4 s"


def facts(status: dict[str, Any] | None = None, **changes: Any) -> Facts:
    return Facts(status=replace(STATUS, **(status or {})), **changes)


GONE = {"source_answers": False, "silent_seconds": 41.0}
LAGS = {"lag_records": 12, "lag_seconds": 0.004}
STOPPED = {"stopped": (stop("orders", "a gap"),)}


@pytest.mark.parametrize(
    ("verb", "given", "refused"),
    [
        (Verb.PROMOTE, facts(), []),
        (Verb.CUTOVER, facts(), []),
        (Verb.FAILOVER, facts(), ["source"]),
        (Verb.FAILOVER, facts(**GONE), []),
        (Verb.PROMOTE, facts(**GONE), ["source"]),
        (Verb.PROMOTE, facts(LAGS), []),
        (Verb.PROMOTE, facts({**LAGS, "state": "stopped"}), ["lag"]),
        (Verb.PROMOTE, facts(STOPPED), ["stopped topics"]),
        (Verb.FAILOVER, facts(STOPPED, **GONE), []),
        (Verb.PROMOTE, facts(open_transactions=(("orders", 0, 5, 9),)), ["open transactions"]),
        (Verb.CUTOVER, facts(open_transactions=(("orders", 0, 5, 9),)), []),
        # it stayed open while a dry run looked
        (
            Verb.CUTOVER,
            facts(open_transactions=(("orders", 0, 5, 9),), held=("orders-0",)),
            ["open transactions"],
        ),
        (Verb.CUTOVER, facts(open_transactions=(("orders", 0, 5, 9),), held=()), []),
        (Verb.FAILOVER, facts(promotion=PROMOTION, **GONE), ["link"]),
        (Verb.FAILOVER, facts({"state": "never ran", "owner": None}, **GONE), ["link"]),
        (Verb.PROMOTE, facts({"state": "handed back"}), ["link"]),
        (Verb.FAILOVER, facts(leaderless=("east.orders-0",), **GONE), ["target leaders"]),
    ],
)
def test_a_command_is_refused_for_its_own_reasons(verb: Verb, given: Facts, refused: list[str]) -> None:
    """A failover goes on where waiting would help no one; a planned command does not lose a record."""
    found = assess(given, verb)

    assert [check.name for check in found.refusals] == refused
    assert found.ready is not bool(refused)
    assert all(check.fix for check in found.refusals)


@pytest.mark.parametrize(
    ("given", "verdict", "lost", "seconds"),
    [
        (facts(), "READY", 0, 0.0),
        (facts(LAGS), "READY WITH LOSS 12", 12, 0.004),
        (facts(**GONE), UNKNOWN, None, None),
        (facts(**GONE, known_lost=7), UNKNOWN, None, None),
        (
            facts(**GONE, known_lost=7, seen_seconds=4.2),
            f"{UNKNOWN}: 7 known + {SINCE}",
            7,
            None,
        ),
        (
            facts(**GONE, known_lost=0, seen_seconds=4.2),
            f"{UNKNOWN}: 0 known + {SINCE}",
            0,
            None,
        ),
        (facts({"lag_records": None}), UNKNOWN, None, 0.0),
        # counted to the ends of the logs, and in partitions without a position
        (facts(known_lost=509), "READY WITH LOSS 509", 509, 0.0),
        (facts({**LAGS, **STOPPED}, known_lost=300), "READY WITH LOSS at least 300", 300, 0.004),
        (facts(STOPPED), "READY WITH LOSS at least 0", 0, 0.0),
        (
            facts(STOPPED, **GONE, known_lost=300, seen_seconds=4.2),
            f"{UNKNOWN}: at least 300 known + {SINCE}",
            300,
            None,
        ),
        (facts(promotion=PROMOTION), "NOT READY", 0, 0.0),
    ],
)
def test_the_verdict_names_what_a_failover_leaves_behind(
    given: Facts, verdict: str, lost: int | None, seconds: float | None
) -> None:
    """In offsets and in seconds; a source that is gone tells neither."""
    found = assess(given, Verb.FAILOVER, force=True)

    assert (found.verdict, found.lost, found.lost_seconds) == (verdict, lost, seconds)


def test_the_producer_of_an_open_transaction_is_named() -> None:
    """It is what the user has to end."""
    opened = facts(
        open_transactions=(("orders", 0, 5, 9),), open_producers={("orders", 0): "producer 7 epoch 3"}
    )

    (refusal,) = assess(opened, Verb.PROMOTE).refusals

    assert refusal.text == "1: orders-0 from 5 (producer 7 epoch 3); they hold back 4 offsets"


HELD = replace(PARTITION, open_records=8, open_seconds=113.0)


def test_what_an_open_transaction_holds_back_is_lost_in_metrics_and_on_the_page() -> None:
    """The status has the lag up to the last stable offset, and what stands behind it."""
    status = replace(STATUS, lag_records=3, partitions=(replace(HELD, lag_records=3),))

    found = assess(Facts.of_status(status), Verb.FAILOVER, force=True)

    assert (found.verdict, found.lost, found.lost_seconds) == ("READY WITH LOSS 11", 11, 113.0)
    unknown = replace(status, partitions=(replace(HELD, open_seconds=None),))
    assert assess(Facts.of_status(unknown), Verb.FAILOVER, force=True).lost_seconds is None


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_partitions_that_have_not_begun_are_named_in_a_readiness_and_stop_no_failover(state: str) -> None:
    """Waiting would help no one when the source is lost."""
    found = assess(
        facts({"state": state}, uncut=("new-0 (500 offsets)",), known_lost=500), Verb.FAILOVER, force=True
    )

    assert (found.verdict, found.lost_seconds) == ("READY WITH LOSS 500", None)
    (check,) = (check for check in found.checks if check.name == "new partitions")
    assert (check.level, "new-0 (500 offsets)" in check.text) == (Level.WARN, True)


@pytest.mark.parametrize(
    ("verb", "verdict"), [(Verb.FAILOVER, "READY WITH LOSS at least 7"), (Verb.PROMOTE, "NOT READY")]
)
def test_a_partition_that_has_neither_begun_nor_a_leader_makes_the_loss_a_lower_bound(
    verb: Verb, verdict: str
) -> None:
    """It is named, and a planned command refuses it: nothing tells what it holds."""
    given = facts({"state": "stopped"}, uncut=("new-0 (no leader)",), uncounted=True, known_lost=7)

    found = assess(given, verb, force=True)

    assert (found.verdict, found.at_least) == (verdict, True)
    (check,) = (check for check in found.checks if check.name == "new partitions")
    assert "new-0 (no leader)" in check.text


def test_a_topic_that_is_left_out_with_a_position_may_lose_more_than_is_known() -> None:
    """Its lag is unknown."""
    out = replace(PARTITION, topic="pay", parked=True, lag_records=None, problem="no right")
    given = facts({"partitions": (PARTITION, out)}, known_lost=4)
    assert assess(given, Verb.FAILOVER, force=True).verdict == "READY WITH LOSS at least 4"
    # a hanging transaction in the copy is a problem, and hides no record of the source
    hanging = replace(PARTITION, problem="hanging on the target")
    assert assess(facts({"partitions": (hanging,)}), Verb.FAILOVER, force=True).verdict == "READY"


def test_a_stopped_topic_is_named_and_a_group_that_is_not_moved_is_a_warning() -> None:
    """Neither is silently included."""
    found = assess(facts(STOPPED, groups_problem="no checkpoints"), Verb.FAILOVER, force=True)

    assert [(topic.topic, topic.state, topic.problem) for topic in found.topics] == [
        ("orders", "stopped", "a gap")
    ]
    levels = {check.name: check.level for check in found.checks}
    assert levels["stopped topics"] is levels["groups"] is Level.WARN


def named(given: Facts, name: str) -> Check:
    return next(check for check in assess(given, Verb.FAILOVER, force=True).checks if check.name == name)


@pytest.mark.parametrize(
    ("given", "level", "text"),
    [
        ({"follows": False}, Level.OK, "none is followed"),
        # they were deleted there, or never committed
        ({}, Level.OK, "no followed group has offsets on the source"),
        ({"no_checkpoints": True}, Level.OK, "no followed group has offsets on the source"),
        ({"source_answers": False}, Level.WARN, "the target has no checkpoint of a followed group"),
        ({"source_answers": False, "no_checkpoints": True}, Level.WARN, "its link back in the configuration"),
        # on a quiet day, while the entry can still be taken out
        ({"groups": (MOVE,)}, Level.OK, "1 exact"),
        ({"groups": (MOVE,), "no_checkpoints": True}, Level.WARN, "without the source none could be moved"),
        (
            {"groups": (MOVE._replace(kind="earlier", again=None, active_on_source=True),)},
            Level.WARN,
            "1 with members on the source read again an unknown number: billing",
        ),
        # after a merge of orphans, what the link back wrote stands before them
        (
            {
                "groups": (
                    MOVE._replace(kind="earlier", again=13_889),
                    MOVE._replace(kind="earlier", again=39_506, partition=1),
                    MOVE._replace(kind="earlier", again=7, partition=2, action="skip"),
                    MOVE._replace(kind="earlier", again=4, group="audit"),
                )
            },
            Level.WARN,
            "; billing reads at most 53,395 records again (orders-1: 39,506, orders-0: 13,889); audit reads at most 4",
        ),
        (
            {
                "groups": (
                    MOVE._replace(kind="earlier", again=None),
                    MOVE._replace(kind="earlier", again=4, partition=1),
                )
            },
            Level.WARN,
            "; billing reads an unknown number again (orders-0, orders-1: 4)",
        ),
        # it reads them only if they are merged
        ({"groups": (MOVE._replace(kind="cut", again=5),)}, Level.OK, "1 read again or at the cut"),
    ],
)
def test_groups_that_do_not_exist_are_told_from_groups_that_cannot_be_moved(
    given: dict[str, Any], level: Level, text: str
) -> None:
    """With equal names both ways no checkpoint is written: a failover without the source moves none."""
    found = named(facts(**given), "groups")
    assert found.level is level
    assert text in found.text
    planned = assess(facts(**given), Verb.PROMOTE).checks
    assert not any("without the source none" in check.text for check in planned)


@pytest.mark.parametrize(("verb", "waits"), [(Verb.FAILOVER, "loses them"), (Verb.CUTOVER, "waits for them")])
def test_a_lag_that_is_old_is_a_warning(verb: Verb, waits: str) -> None:
    """One of a lane without a slot was ok at 66 s; one that comes and goes with each transaction is."""
    for seconds, level in ((0.2, Level.OK), (None, Level.OK), (66.0, Level.WARN)):
        given = facts({"lag_records": 21_000, "lag_seconds": seconds})
        (check,) = (check for check in assess(given, verb, force=True).checks if check.name == "lag")
        assert check.level is level
        assert (waits in check.fix) is (level is Level.WARN)
        assert assess(given, verb, force=True).ready


def test_replicas_that_are_not_in_sync_are_named() -> None:
    """The target is about to be the only copy."""
    assert named(facts(), "target replicas").level is Level.OK
    found = named(facts(under_replicated=("east.orders-0",)), "target replicas")
    assert (found.level, found.text) == (Level.WARN, "1 not in sync: east.orders-0")


def test_settings_that_differ_are_named() -> None:
    """And a comparison that was not made is not one without differences."""
    assert named(facts(drifts=()), "settings").text == "as on the source"
    assert "not compared" in named(facts(), "settings").text
    assert named(facts(drifts="no right"), "settings").level is Level.WARN
    found = named(facts(drifts=("east.orders: retention.ms=1, not 2",)), "settings")
    assert (found.level, found.text) == (Level.WARN, "1 differ: east.orders: retention.ms=1, not 2")


def test_drifts_come_from_what_the_mirror_would_change() -> None:
    """Settings that it leaves to the target, too; new topics are no drift."""
    plan: Any = SimpleNamespace(
        drifts=(
            SimpleNamespace(
                topic="eomirror.l.control", setting="cleanup.policy", wanted="compact", found="delete"
            ),
        ),
        changes={
            "orders": (
                AlterConfig("east.orders", {"retention.ms": "2"}, {"retention.ms": "1"}),
                Differs("east.orders", {"segment.ms": "9"}, {}),
                CreateTopic("east.pay", 1, 3, {}),
            )
        },
    )

    assert drifts_of(plan) == (
        "eomirror.l.control: cleanup.policy=delete, not compact",
        "east.orders: retention.ms=1, not 2",
        "east.orders: segment.ms=None, not 9",
    )


def test_a_difference_is_not_ready() -> None:
    """Applications should not move to copies that differ."""
    found = facts(verified=Verified(0.6, "all records"))
    assert named(found, "verified").text == "all records up to now, 0 differences, in 0.6 s"
    differs = facts(verified=Verified(0.6, "all records", "orders-0: altered"))
    assert named(differs, "verified").level is Level.NO
    assert assess(differs, Verb.FAILOVER, force=True).verdict == "NOT READY"


def test_the_write_pause_is_a_sum_of_what_was_measured() -> None:
    """A part that was not measured makes it a lower bound."""
    assert named(facts(), "write pause").text == "at least 0.5 s: 0.5 s of silence"
    found = named(facts(verified=Verified(0.6, "all records"), last_pause_ms=900), "write pause")
    assert found.text == "about 2.0 s: 0.5 s of silence, verification 0.6 s, steps 0.9 s, as the last time"


def test_without_the_source_no_write_pause_is_predicted_and_no_comparison_recommended() -> None:
    """Nothing can be compared then, and a failover stops no application."""
    gone = assess(facts(source_answers=False), Verb.FAILOVER)
    assert "write pause" not in {check.name for check in gone.checks}
    assert named(facts(source_answers=False), "verified").fix == ""
    assert named(facts(), "verified").fix


def test_a_planned_command_loses_nothing_whatever_the_lag() -> None:
    """What is not mirrored yet is drained before the promotion."""
    planned = assess(facts({"lag_records": 12, "lag_seconds": 1.0}), Verb.CUTOVER)
    assert (planned.verdict, planned.lost) == ("READY", 12)


def test_a_promoted_link_is_refused_for_that_alone() -> None:
    """The advice to fail over, because the source is away, would be wrong for it."""
    found = assess(facts(promotion=PROMOTION, source_answers=False), Verb.CUTOVER)
    assert [check.name for check in found.refusals] == ["link"]
    away = assess(facts(source_answers=False), Verb.CUTOVER)
    assert [check.name for check in away.refusals] == ["source"]


def test_a_link_that_never_ran_has_no_more_checks() -> None:
    """They would blame the source for what nothing has looked at."""
    found = assess(facts({"state": "never ran", "partitions": ()}), Verb.FAILOVER, force=True)
    assert [check.name for check in found.checks] == ["link", "claim", "pause", "source"]
    assert found.verdict == "NOT READY"


def test_the_comparison_of_the_command_itself_replaces_the_one_before() -> None:
    """A report of a promotion would else say that nothing was compared."""
    before = assess(facts(), Verb.PROMOTE)
    after = with_verified(before, Verified(0.6, "all records"))
    (check,) = (check for check in after.checks if check.name == "verified")
    assert (check.level, check.text) == (Level.OK, "all records up to now, 0 differences, in 0.6 s")
    assert len(after.checks) == len(before.checks)


@pytest.mark.parametrize(
    ("compared", "level", "words"),
    [
        ((), Level.WARN, "no comparison is recorded of 1 topics: orders"),
        (
            (verified("orders", unverified=7, timestamp=1_000),),
            Level.OK,
            "up to 3 s ago, 0 differences, 7 offsets were mirrored since",
        ),
        (
            (verified("orders", unverified=7, timestamp=1_000, since=9),),
            Level.OK,
            "7 offsets were mirrored since; only a part of 1 topics",
        ),
        (
            (verified("orders", "differs", unverified=7, timestamp=1_000),),
            Level.WARN,
            "not equal when last",
        ),
    ],
)
def test_the_last_comparison_is_told(compared: Any, level: Level, words: str) -> None:
    """With its age, and what was mirrored since; it is no reason to refuse, because it may be old."""
    found = named(facts({"verifications": compared}, now_ms=4_000), "verified")

    assert found.level is level
    assert words in found.text
    assert found.fix


@pytest.mark.parametrize(
    ("given", "verb", "refused", "words"),
    [
        (facts(uncut=()), Verb.PROMOTE, [], "0"),
        (facts(uncut=("new-0",)), Verb.PROMOTE, [], "1 hold records that the mirror has not begun: new-0"),
        (facts({"state": "stopped"}, uncut=("new-0",)), Verb.PROMOTE, ["new partitions"], "new-0"),
        (facts(moving=()), Verb.PROMOTE, [], "the source stands still"),
        (facts(moving=("orders-0",)), Verb.PROMOTE, [], "orders-0; the command waits for 0.5 s without"),
        (
            facts(moving=("orders-0",), fence="acl: adds 1"),
            Verb.CUTOVER,
            [],
            "orders-0; the fence stops them",
        ),
        (facts(fence="command: calls x"), Verb.CUTOVER, [], "command: calls x"),
        (facts(fence_problem="no authorizer"), Verb.CUTOVER, ["fence"], "no authorizer"),
        (facts(fence_problem="refused", fence_fix="grant it"), Verb.CUTOVER, ["fence"], "refused"),
    ],
)
def test_a_dry_run_tells_what_the_command_would_find_while_it_drains(
    given: Facts, verb: Verb, refused: list[str], words: str
) -> None:
    """A mirror that runs begins new partitions, and a fence stops what arrives; the rest is the user's."""
    found = assess(given, verb)

    assert [check.name for check in found.refusals] == refused
    assert any(words in check.text for check in found.checks), found.checks


def test_share_groups_are_named() -> None:
    """They are not moved, and the user must know before the switch."""
    assert named(facts(unfollowed=()), "share groups").level is Level.OK
    assert "not known" in named(facts(), "share groups").text
    found = named(facts(unfollowed=("sharing",)), "share groups")
    assert (found.level, found.text) == (Level.WARN, "1 share or streams groups are not moved: sharing")


@pytest.mark.parametrize("state", ["running", "stopped", "silent", "promoted"])
@pytest.mark.parametrize(("method", "more"), [("acl", ""), ("command", " --fence-command COMMAND")])
def test_a_fence_that_stands_is_told(state: str, method: str, more: str) -> None:
    """Its command may have died; it refuses nothing, because a planned promotion completes it."""
    found = named(facts({"fence": fence(method), "link": "a->b", "state": state}), "standing fence")

    assert found.level is Level.WARN
    assert f"the fence ({method}) stands since 2020-09-13T12:26:40Z, by h7" in found.text
    assert f"`eomirror unfence CONFIG --link 'a->b'{more}`" in found.fix
    none = named(facts({"state": state}), "standing fence")
    assert (none.level, none.text) == (Level.OK, "none")
