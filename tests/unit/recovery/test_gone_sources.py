"""Source topics and partitions that are deleted for good, from position to promotion, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from eomirror import load_config
from eomirror.errors import AuthorizationError
from eomirror.failover.drain import SourceDrain
from eomirror.failover.facts import cuts_of, mirrored
from eomirror.failover.machine import Verb
from eomirror.failover.promoted_link import back_link, begins
from eomirror.failover.readiness import Facts, Level, assess
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.lane.spec import AssignedPartition
from eomirror.link.first_positions import of_grown_topics, without_surplus
from eomirror.records.control import ControlView, Generation, decode_control
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, lost
from eomirror.recovery.copy_end import whole
from eomirror.recovery.resume import SourceFacts, Stop, TargetFacts, decide_resume, gone_sources
from eomirror.status.model import LinkStatus, PartitionStatus
from eomirror.types import Assignment, SourcePartition
from eomirror.verify.report import tail_records, verifications
from eomirror.verify.scope import RequestedRange, ScopeFinder
from eomirror.verify.verdict import CopyPartitionEnds, LinkVerdict, PartitionFacts, PartitionVerdict, scope
from support.fakes.clocks import PlayedClock
from support.fakes.lane_fakes import position
from support.fakes.status_records import stop

CONFIG = load_config(
    {
        "clusters": {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:2"}},
        "links": [
            {"name": "there", "source": "east", "target": "west", "topics": ["t.*"]},
            {
                "name": "back", "source": "west", "target": "east", "topics": [r"east\.t.*"],
                "exclude": [r"east\.tgone"], "naming": {"match": r"east\.(.*)", "to": "$1"},
            },
        ],
    }
)  # fmt: skip
LINK, BACK = CONFIG.links


def part(number: int, topic: str = "t") -> SourcePartition:
    return SourcePartition(topic, number)


def positions(*topic_ids: str, **changes: Any) -> dict[SourcePartition, Any]:
    """Partitions of t by the id of the topic that their position names."""
    return {
        part(number): position(part(number), 10, topic_id=topic_id, **changes)
        for number, topic_id in enumerate(topic_ids)
    }


def topic(topic_id: str, partitions: int, name: str = "t") -> TopicFacts:
    return TopicFacts(name, topic_id, partitions, 1)


@pytest.mark.parametrize(
    ("ids", "now", "expected"),
    [
        (["old"] * 2, {"t": None}, {0, 1}),
        (["new", "old"], {"t": None}, {0, 1}),
        (["old"] * 2, {"t": topic("old", 2)}, set()),
        # hidden by an ACL, or not asked for
        (["old"] * 2, {}, set()),
        # made again, whatever its size: its records are on no copy
        (["old"] * 3, {"t": topic("new", 3)}, set()),
        (["old"] * 3, {"t": topic("new", 1)}, set()),
        # made again with fewer, and adopted: a part, or all of what exists
        (["new", "new", "old", "old"], {"t": topic("new", 2)}, {2, 3}),
        (["new", "old", "old", "old"], {"t": topic("new", 2)}, {2, 3}),
        (["old", "old", "old", "new"], {"t": topic("new", 2)}, set()),
        # and grown, and made again once more
        (["new", "new", "old", "old"], {"t": topic("new", 3)}, {3}),
        (["new", "new", "old", "old"], {"t": topic("newer", 1)}, set()),
    ],
)
def test_what_the_source_has_no_more(ids: list[str], now: dict[str, Any], expected: set[int]) -> None:
    """A topic that was made again and not adopted is a loss of records, and never gone."""
    assert gone_sources(positions(*ids), now) == {part(number) for number in expected}


@pytest.mark.parametrize(
    ("partitions", "options"),
    [
        (2, "`eomirror run CONFIG --resume-at t-0=0 --resume-at t-1=0`"),
        (1, "`eomirror run CONFIG --resume-at t-0=0`"),
        (30, "--resume-at t-11=0 and so on up to t-29`"),
        (0, "`eomirror run CONFIG --resume-at t-3=0`"),
    ],
)
def test_the_fix_of_a_topic_that_was_made_again_names_what_exists(partitions: int, options: str) -> None:
    """One command for the topic, whichever partition is asked."""
    there = SourceFacts("new", 0, 5, partitions=partitions)
    found = decide_resume(
        position(part(3), 10, topic_id="old"), there, TargetFacts("id-east.t", 20), accept_gaps=False
    )
    assert isinstance(found, Stop)
    assert options in found.error.fix


class Source:
    """Clusters with some topics; the principal may not see ``thidden``."""

    def __init__(self, topics: dict[str, Any]) -> None:
        self.topics = topics
        self.asked: list[str] = []

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        self.asked += names
        hidden = {name: AuthorizationError("no") for name in names if name == "thidden"}
        return {name: self.topics.get(name) for name in names if name not in hidden}, hidden

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {name: self.topics.get(name) for name in names}

    def offsets(self, names: Any, **_: Any) -> dict[Any, int]:
        return {tuple(name): 10 for name in names}


def test_surplus_partitions_are_skipped_by_name_and_mistakes_stay() -> None:
    """Of a topic that was made again with fewer, or is gone; not what an ACL hides, or what was never mirrored."""
    source: Any = Source({"t": topic("new", 2)})
    adopt = {part(n): 0 for n in range(4)} | {part(0, name): 7 for name in ("tgone", "thidden", "typo", "u")}
    known = adopt.keys() - {part(0, "typo")}

    with structlog.testing.capture_logs() as logs:
        found = without_surplus(LINK, source, adopt, offered={part(0), part(1)}, known=known)

    assert found == {part(0): 0, part(1): 0} | {part(0, name): 7 for name in ("thidden", "typo", "u")}
    assert [(each["event"], each["partition"]) for each in logs] == [
        ("adopt_skipped", "t-2"), ("adopt_skipped", "t-3"), ("adopt_skipped", "tgone-0"),
    ]  # fmt: skip
    source.asked.clear()
    assert without_surplus(LINK, source, {part(0): 0}, offered={part(0)}, known=known) == {part(0): 0}
    assert source.asked == []


@pytest.mark.parametrize(
    ("ids", "had", "expected"),
    [
        (["new", "new", "old", "old"], [0, 1], {2, 3}),
        # the layout had it when the others were adopted: the user has not said what to do with it
        (["new", "new", "old", "old"], [0, 1, 2], {3}),
        (["old"] * 4, [0, 1], set()),
        (["older", "older", "old", "old"], [0, 1], set()),
        (["new"] * 4, [0, 1], set()),
    ],
)
def test_a_topic_that_grows_again(ids: list[str], had: list[int], expected: set[int]) -> None:
    """Partitions that are new in the topic that the link mirrors begin; the others go on."""
    items = [
        AssignedPartition(source=part(n), topic_id="new", target_topic="east.t", target_topic_id="id-east.t")
        for n in range(4)
    ]
    assert of_grown_topics(items, positions(*ids), [part(n) for n in had]) == {part(n) for n in expected}


def facts(**changes: Any) -> PartitionFacts:
    values: dict[str, Any] = {
        "position": position(part(0), 10, topic_id="old", target_offset=8, total_records=7),
        "source_id": None,
        "target_id": "id-east.t",
        "source_start": 0,
        "source_stable": 0,
        "target_start": 2,
        "target_stable": 0,
        "target_stable_now": 9,
        "gone": True,
        **changes,
    }
    return PartitionFacts(**values)


@pytest.mark.parametrize(
    ("changes", "held", "words"),
    [
        ({}, (2, 9), "east.t-0 holds offsets [2, 9); 7 records were mirrored, up to source offset 10"),
        # everything was deleted by retention
        ({"target_start": 9}, (9, 9), "[9, 9)"),
        ({"target_id": None}, (0, 0), "its copy east.t-0 was deleted, too"),
        ({"target_id": "other"}, (0, 0), "its copy east.t-0 was created again since"),
        ({"source_id": "new"}, (2, 9), "[2, 9)"),
        (
            {
                "position": position(part(0), 10, keyed={"0": 3, "1": -1}, target_offset=3),
                "placed": (CopyPartitionEnds(0, 0, 0, 4), CopyPartitionEnds(1, 0, 0, 0)),
            },
            (0, 4),
            "its records are in east.t;",
        ),
    ],
)
def test_what_is_gone_is_no_difference(changes: dict[str, Any], held: tuple[int, int], words: str) -> None:
    """It is told with what the copy holds, and nothing is compared."""
    one = scope(facts(**changes))
    found = PartitionVerdict(scope=one)
    assert ((one.target.start, one.target.end), found.word, found.differs) == (held, "gone", False)
    assert words in one.gone
    assert one.problem == ""
    link = LinkVerdict(link="l", plane="native", partitions=(found,))
    assert link.word == "equal"
    assert link.as_dict()["partitions"][0]["verdict"] == "gone"
    assert scope(facts(gone=False)).problem


def test_the_recorded_comparison_of_what_is_gone_replaces_an_older_difference() -> None:
    """It is equal over nothing; a comparison of the ends before a switch does not count it."""
    link = LinkVerdict(link="l", plane="native", partitions=(PartitionVerdict(scope=scope(facts())),))
    (one,) = verifications(link, RequestedRange(), host="h", now_ms=1)
    assert (one.outcome, one.partitions, one.offsets, one.up_to) == ("equal", 0, 0, {})
    assert tail_records(link, RequestedRange(), tail=9, command="promote", host="h", now_ms=1) == []


def cut(number: int, *, gone: bool, name: str = "t", **changes: Any) -> Cut:
    values: dict[str, Any] = {
        "topic": name, "partition": number, "topic_id": "new", "position": 10, "target_topic": f"east.{name}",
        "target_topic_id": "id-east.t", "target_end": 12, "timestamp": 5, "gone": gone,
        "source_end": None if gone else 10, **changes,
    }  # fmt: skip
    return Cut(**values)


def promotion(*cuts: Cut) -> Promotion:
    return Promotion(
        number=1, planned=True, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=cuts, started=1, timestamp=2,
    )  # fmt: skip


def test_a_cut_of_what_is_gone_loses_nothing_and_is_read_again() -> None:
    """And a promotion without such a cut is written as before."""
    made = promotion(cut(0, gone=False), cut(1, gone=True))
    assert (made.lost, lost([cut(0, gone=False, source_end=None)])) == (0, None)
    read = decode_control([(made.key(), made.value(), "c")]).history
    assert read.promotions[1] == made
    assert read.gone == {part(1)}
    assert PromotionHistory().gone == frozenset()
    assert b"gone" not in promotion(cut(0, gone=False)).value()


def test_the_link_back_may_leave_out_what_was_deleted() -> None:
    """It begins at the cut in all others; with it, what was deleted begins at the cut, too."""
    made = promotion(cut(0, gone=False), cut(0, gone=True, name="tgone"), cut(0, gone=True, name="tother"))
    assert back_link(CONFIG, LINK, made) is BACK
    copies = {SourcePartition("east.t", 0): 12, SourcePartition("east.tother", 0): 12}
    assert begins(made, BACK) == copies
    assert begins(made) == copies | {SourcePartition("east.tgone", 0): 12}


def test_copies_of_what_is_gone_have_a_cut_whether_or_not_lanes_have_them() -> None:
    """Not what the filter leaves out, or an ACL hides; and none without the source."""
    where = [part(0), part(0, "tgone"), part(0, "tleft"), part(0, "thidden"), part(0, "u")]
    every = {each: position(each, 10) for each in where}
    layout = Assignment(1, {part(0): 0, part(0, "tgone"): 0}, frozenset(where[2:]))
    view = ControlView(
        Generation(generation=1, revision=0, run="r", highest_lane=0, assignment=layout, timestamp=1)
    )
    source: Any = Source({"t": topic("id-t", 1), "east.t": topic("x", 1)})

    assert set(mirrored(LINK, every, view)) == set(where[:2])
    found = mirrored(LINK, every, view, source)
    assert set(found) == set(where[:3])
    copies = {each: whole(one, one.target_topic_id, 11) for each, one in found.items()}
    cuts = cuts_of(found.values(), copies, source)
    assert {each: one.gone for each, one in cuts.items()} == {
        where[0]: False, where[1]: True, where[2]: True,
    }  # fmt: skip
    assert not any(one.gone for one in cuts_of(found.values(), copies, None).values())


def test_what_is_gone_refuses_no_planned_command_and_a_topic_made_again_does() -> None:
    """The stop of the running mirror stays in control until it starts again."""
    one = PartitionStatus(
        topic="t", partition=0, target_topic="east.t", lane=0, position=10, source_lso=None, lag_records=None,
        lag_seconds=None, records=10, rate=0.0, last_commit=1, problem="t-0: the source topic is gone", gone=True,
    )  # fmt: skip
    other = replace(one, topic="keep", source_lso=10, lag_records=0, lag_seconds=0.0, problem="", gone=False)
    status = LinkStatus(
        link="l", state="running", lag_records=0, lag_seconds=0.0, partitions=(other, one),
        stopped=(stop("t", "the source topic is gone"),),
    )  # fmt: skip
    found = assess(Facts(status=status), Verb.PROMOTE)
    (check,) = [each for each in found.checks if each.name == "stopped topics"]
    assert (found.ready, check.level, check.text) == (
        True, Level.OK, "0; 1 gone on the source, their copies stay: t",
    )  # fmt: skip
    assert [each.state for each in found.topics] == ["ok", "gone"]

    for parts in ((other, replace(one, gone=False)), (other, one, replace(other, topic="t", partition=1))):
        # the stop speaks of what exists as well
        again = assess(Facts(status=replace(status, partitions=parts)), Verb.PROMOTE)
        assert [each.name for each in again.refusals] == ["stopped topics"]


def test_what_is_there_again_holds_back_a_planned_command() -> None:
    """A topic that appears between the look at the logs and the record: its records would be left behind."""
    drain = object.__new__(SourceDrain)
    source = Source({"t": topic("new", 1)})
    drain._sessions = SimpleNamespace(source=SimpleNamespace(admin=source))  # type: ignore[assignment]
    cuts = {part(n): cut(n, gone=n < 2) for n in range(3)}
    assert drain.behind(cuts, {part(2): 10}) == [cuts[part(0)]]
    assert drain.behind(cuts, {part(2): 11}) == [cuts[part(0)], cuts[part(2)]]
    source.topics.clear()
    assert drain.behind(cuts, {part(2): 10}) == []


def test_a_topic_that_is_away_for_a_moment_is_not_gone() -> None:
    """It is deleted and created again meanwhile; what is really gone costs one pause, not one a round."""
    clock = PlayedClock()
    answers = [None, topic("new", 2), None, None, None]
    source: Any = SimpleNamespace(describe_topics=lambda _: {"t": answers.pop(0)})
    finder = object.__new__(ScopeFinder)
    finder._source, finder._clock, finder._gone = source, clock, set()
    every = positions("old", "old")
    assert finder._described(every, {"t"}) == {"t": topic("new", 2)}
    assert (finder._gone, clock.now) == (set(), 1.0)
    for _ in range(2):
        assert finder._described(every, {"t"}) == {"t": None}
        assert (finder._gone, clock.now) == ({part(0), part(1)}, 2.0)
    assert answers == []
