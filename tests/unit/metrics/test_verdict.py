"""One verdict for each link: a trend decides, not a threshold; what a failover would lose is said with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eomirror.metrics.families import by_name
from eomirror.metrics.verdict import VERDICTS, Verdict, Window
from eomirror.plane.protocol import Serving
from eomirror.status.live import LinkFacts, LinkView
from eomirror.status.model import LaneStatus, LinkStatus, OwnerStatus, PartitionStatus, RetentionStatus
from eomirror.status.snapshot import LinkSnapshot
from support.fakes.status_records import stop

FACTS = LinkFacts("a->b", "a", "b", "prefix", "auto")


def view(position: int, end: int, seconds: float | None = 0.0, **changes: Any) -> LinkView:
    """A running link of one partition."""
    lag = end - position
    partition = PartitionStatus(
        topic="t", partition=0, target_topic="a.t", lane=0, position=position, source_lso=end, lag_records=lag,
        lag_seconds=seconds, records=position, rate=1.0, last_commit=1,
    )  # fmt: skip
    status = LinkStatus(
        link="a->b", state="running", partitions=(partition,), lag_records=lag, lag_seconds=seconds
    )
    return LinkView(facts=FACTS, status=replace(status, **changes))


def judged(*looks: tuple[float, LinkView]) -> Verdict:
    """The verdict after these looks."""
    window = Window()
    return [window.judge(link, at) for at, link in looks][-1]


@pytest.mark.parametrize("word", VERDICTS)
def test_each_verdict_stands_in_the_reference(word: str) -> None:
    """By the same word, in the text of the metric and on the page about verdicts."""
    assert f"`{word}`" in by_name["eomirror_link_verdict"].text
    page = (Path(__file__).resolve().parents[3] / "docs" / "monitor.md").read_text()
    told = page.partition("\n## Verdicts\n")[2].partition("\n## ")[0]
    assert f"`{word}`" in told


def test_a_link_that_keeps_up_is_ok() -> None:
    """A lag that is there at every look and does not age is the time between two commits."""
    looks = [(10.0 * n, view(100 * n, 100 * n + 50 + n, 0.1)) for n in range(10)]
    assert judged(*looks).word == "ok"
    found = judged((0, view(5, 5)))
    assert (found.word, found.failover) == ("ok", "yes: nothing would be lost")


def test_the_sentence_of_a_link_that_keeps_up_stands_still() -> None:
    """Each look finds another few records on their way; only a lag of some seconds is told with its number."""
    window = Window()
    busy = [window.judge(view(400 * n, 400 * n + 1 + n % 7, 0.2), 3.0 * n) for n in range(40)]
    assert {found.text for found in busy} == {"keeps up"}
    late = [(10.0 * n, view(100 * n, 100 * n + 900 - n, 30.0)) for n in range(10)]
    assert judged(*late).text == "891 records behind, and catching up"
    assert judged((0, view(5, 6, 0.2))).failover == "loses at most 1 record, 0.2 s"


def test_a_lag_that_ages_is_behind() -> None:
    """Whatever its size: the link mirrors, and less than the source writes."""
    looks = [(10.0 * n, view(100 * n, 200 * n + 1, 5.0 * n)) for n in range(8)]
    found = judged(*looks)
    assert found.word == "behind"
    assert found.fix
    assert "loses at most 701 records, 35.0 s" in found.failover
    unknown_age = [(at, view(link.status.partitions[0].position, 200 * n + 1, None)) for n, (at, link) in
                   enumerate(looks)]  # fmt: skip
    assert judged(*unknown_age).word == "behind"


def test_a_position_that_stands_before_records_is_stalled() -> None:
    """Also if the source writes nothing more."""
    assert judged(*((10.0 * n, view(7, 9, 10.0 * n)) for n in range(4))).word == "stalled"
    assert judged(*((3.0 * n, view(7, 9)) for n in range(3))).word == "ok", "too early to say"
    caught_up = [(5.0 * n, view(7, 7)) for n in range(4)]
    found = judged(*caught_up, *((20.0 + 4.0 * n, view(7, 9)) for n in range(4)))
    assert (found.word, found.text) == ("stalled", "no record was mirrored for 12 s, and 2 are waiting")
    moves = [(3.5 * n, view(7 + n // 3, 90)) for n in range(6)]
    assert judged(*moves).word == "ok", "a slow lane is not one that stands"
    assert judged(*((10.0 * n, view(7, 7)) for n in range(4))).word == "ok", "there is nothing to mirror"


def test_a_lane_that_is_silent_is_stalled() -> None:
    """Its last report says that it had caught up; a cluster that is away is told before it."""
    live = LinkSnapshot(
        link="a->b", state="running", lanes=(LaneStatus(lane=3, state="open", silent_seconds=9.0),)
    )
    unknown = replace(view(7, 7, lag_records=None), live=live)
    found = judged((0, unknown))
    assert (found.word, found.text) == ("stalled", "lane 3 has not reported for 9 s")
    assert "eomirror events" in found.fix
    lost = LaneStatus(lane=2, state="mirroring", silent_seconds=66.0)
    runs = LaneStatus(lane=0, state="mirroring")
    found = judged((0, replace(unknown, live=replace(live, lanes=(runs, lost)))))
    assert (found.word, found.text) == ("stalled", "lane 2 has not reported for 66 s: 1 of 2 lanes run")
    assert "waits for a slot" in found.fix
    brief = replace(live, lanes=(LaneStatus(lane=3, state="open", silent_seconds=6.0),))
    assert judged((0, replace(unknown, live=brief))).word == "unknown"
    away = replace(
        unknown, status=replace(unknown.status, away=("source",), problem="no way to a", fix="look")
    )
    found = judged((0, away))
    assert (found.word, found.text, found.fix) == (
        "source away", "cluster a is away: no way to a", "look",
    )  # fmt: skip


def test_a_source_that_went_back_is_rewound_until_records_follow() -> None:
    """Position and end fell: the source was restored or recreated."""
    window = Window()
    window.judge(view(50, 60), 0)
    found = window.judge(view(10, 12), 5)
    assert found.word == "rewound"
    assert "48 offsets" in found.text
    assert window.judge(view(12, 12), 10).word == "ok"


def test_what_a_topic_says_of_itself_is_more_than_that_it_went_back() -> None:
    """A topic that was created again has its reason and its command, before and after its owner has stopped it."""
    window = Window()
    window.judge(view(50, 60), 0)
    after = view(10, 12)
    part = replace(
        after.status.partitions[0],
        problem="t-0 was created again",
        fix="eomirror run CONFIG --resume-at t-0=0",
    )
    found = window.judge(replace(after, status=replace(after.status, partitions=(part,))), 5)
    assert (found.word, found.text, found.fix) == ("rewound", part.problem, part.fix)
    halted = replace(after.status, partitions=(part,), stopped=(stop("t", part.problem, part.fix),))
    found = window.judge(replace(after, status=halted), 8)
    assert (found.word, found.text, found.fix) == ("stopped", f"topic t is stopped: {part.problem}", part.fix)


@pytest.mark.parametrize("changes", [{"paused": True}, {"parked": True}, {"lag_records": None}, None])
def test_a_topic_that_is_mirrored_no_more_has_not_gone_back(changes: dict[str, Any] | None) -> None:
    """It is paused, left the link, or is unknown, and its offsets count no more; the others are compared."""
    window = Window()
    one, other = (view(*where).status.partitions[0] for where in ((50, 60), (100, 100)))
    both = replace(
        view(50, 60), status=replace(view(50, 60).status, partitions=(one, replace(other, topic="u")))
    )
    less = () if changes is None else (replace(other, topic="u", **changes),)
    window.judge(both, 0)
    after = replace(both, status=replace(both.status, partitions=(one, *less)))
    assert window.judge(after, 3).word == "ok"
    back = replace(one, position=10, source_lso=12, lag_records=2)
    after = replace(both, status=replace(both.status, partitions=(back, *less)))
    assert window.judge(after, 6).word == "rewound"
    assert window.judge(both, 9).word == "ok"


@pytest.mark.parametrize(
    ("changes", "word", "text"),
    [
        ({"state": "unknown", "problem": "no way to b", "away": ("target",)}, "target away", "no way to b"),
        ({"state": "unknown", "problem": "no right"}, "unknown", "no right"),
        ({"state": "silent"}, "down", "does not renew its claim"),
        ({"state": "waiting", "problem": "no way to a"}, "starting", "it waits for a cluster: no way to a"),
        ({"state": "acquiring"}, "starting", "it waits for the claim of the run before"),
        ({"state": "handed back"}, "handed back", "another replicator"),
        ({"state": "never ran"}, "down", "never ran"),
        ({"state": "promoted"}, "promoted", "it was promoted"),
        ({"state": "paused", "lag_records": None}, "paused", "lanes hold all topics"),
        (
            {"problem": "no way to it", "away": ("source",), "lag_records": None},
            "source away",
            "cluster a is away: no way to it",
        ),
        ({"problem": "no right", "lag_records": None, "lag_seconds": None}, "unknown", "no right"),
        (
            {"stopped": (stop("t", fix="do x"),)},
            "stopped",
            "topic t is stopped: gone",
        ),
    ],
)
def test_a_state_is_told_before_a_trend(changes: dict[str, Any], word: str, text: str) -> None:
    """With the reason in words."""
    found = judged((0, view(1, 1, **changes)))
    assert found.word == word
    assert text in found.text
    assert found.word in VERDICTS


def test_a_link_that_waits_for_spark_is_starting() -> None:
    """By its lanes in this process, and by the claims of its lanes in the topics."""
    begins = replace(
        view(7, 7),
        live=LinkSnapshot(link="a->b", state="running", lanes=(LaneStatus(lane=0, state="starting"),)),
    )
    found = judged((0, begins))
    assert (found.word, found.text) == ("starting", "it waits for Spark to begin lane 0")
    lanes = {lane: LaneStatus(lane=lane, run="old", serving=Serving("native")) for lane in (0, 1)}
    before = view(7, 7, owner=OwnerStatus(run="new"), lanes=lanes)
    assert judged((0, before)).text == "it waits for Spark to begin lanes 0, 1"
    assert judged((0, view(7, 7, owner=OwnerStatus(run="old"), lanes=lanes))).word == "ok"


def test_a_lane_without_a_slot_is_stalled() -> None:
    """Spark began the others: only the lag of some partitions grows."""
    lanes = (
        LaneStatus(lane=0, state="open", serving=Serving("native")),
        LaneStatus(lane=2, state="starting"),
    )
    link = replace(view(7, 7), live=LinkSnapshot(link="a->b", state="running", lanes=lanes))
    assert judged((0, link), (10, link)).word == "ok"
    found = judged((0, link), (66, link))
    assert (found.word, found.text) == ("stalled", "lane 2 waits for a slot: Spark gives 1 of 2 since 66 s")
    assert found.fix


def test_a_lane_that_waits_is_told_by_its_driver_and_lends_its_partitions() -> None:
    """The driver is sure sooner; once other lanes mirror for it, the link keeps up, and still lacks a slot."""

    def with_state(state: str) -> LinkView:
        lanes = (
            LaneStatus(lane=0, state="open", serving=Serving("native")),
            LaneStatus(lane=2, state=state, serving=Serving("native"), lent=state == "lent"),
        )
        return replace(view(7, 7), live=LinkSnapshot(link="a->b", state="running", lanes=lanes))

    # a backoff after a crash, as on any master
    assert judged((0, with_state("waiting"))).text == "caught up"
    found = judged((0, with_state("queued")))
    assert (found.word, found.text) == ("stalled", "lane 2 waits for a slot: Spark gives 1 of 2 since 0 s")
    found = judged((0, with_state("queued")), (4, with_state("lent")))
    assert (found.word, found.text) == (
        "ok",
        "caught up; lane 2 waits for a slot: Spark gives 1 of 2; its partitions are lent to the lanes that run",
    )
    assert found.fix


def test_records_behind_a_long_transaction_are_behind() -> None:
    """They are no lag, since no reader may see them, and a failover loses them."""
    link = view(7, 7)

    def held(seconds: float, *, paused: bool = False) -> LinkView:
        part = replace(link.status.partitions[0], open_records=8_266, open_seconds=seconds, paused=paused)
        return replace(link, status=replace(link.status, partitions=(part,)))

    assert judged((0, held(30.0))).word == "ok"
    assert judged((0, held(113.0, paused=True))).word == "ok", "its lane holds on request"
    found = judged((0, held(113.0)))
    assert (found.word, found.text) == (
        "behind", "a transaction that is open on t-0 for 1 min 53 s holds back 8,266 offsets",
    )  # fmt: skip
    assert "loses at most 8,266 records" in found.failover


def test_a_state_has_a_time() -> None:
    """From its records where they tell it; else that of the change, if it was seen."""
    window = Window()
    assert window.judge(view(1, 1), 0, 1_000).since_ms is None
    assert window.judge(view(1, 1, stopped=(stop("t", timestamp=77),)), 1, 2_000).since_ms == 77
    assert window.judge(view(1, 1), 2, 3_000).since_ms == 3_000
    assert window.judge(view(1, 1), 3, 4_000).since_ms == 3_000
    down = view(1, 1, state="silent", owner=OwnerStatus(run="r", claimed_at=55))
    assert window.judge(down, 4, 5_000).since_ms == 55


def test_an_unknown_lag_is_no_promise() -> None:
    """With a dead source, what a failover loses is not known."""
    found = judged((0, view(1, 1, lag_records=None, lag_seconds=None)))
    assert found.failover.startswith("unknown")


def test_what_lanes_hold_on_request_does_not_stall() -> None:
    """A part of the link is paused: its position stands, and the other part is judged alone."""
    looks = []
    for n in range(4):
        link = view(7 + n, 7 + n)
        held = replace(link.status.partitions[0], topic="held", position=7, lag_records=90, paused=True)
        status = replace(link.status, partitions=(*link.status.partitions, held), lag_records=90)
        looks.append((10.0 * n, replace(link, status=status)))

    assert judged(*looks).word == "ok"
    only = replace(looks[0][1], status=replace(looks[0][1].status, partitions=(held,)))
    assert judged((0, only), (30, only)).word == "ok"


def test_a_problem_of_a_topic_is_named() -> None:
    """The reason of an unknown lag, with what to do, and how many more there are."""
    one = replace(
        view(5, 9).status.partitions[0], problem="t-0: offsets [5, 7) are gone", fix="accept the gap"
    )
    found = judged((0, view(5, 9, lag_records=None, partitions=(one, replace(one, partition=1)))))
    assert (found.word, found.fix) == ("unknown", "accept the gap")
    assert found.text == "t-0: offsets [5, 7) are gone; and 1 more partitions have a problem"


def test_what_a_failover_loses_is_told_for_the_topics_that_are_known() -> None:
    """One topic with a problem does not hide the loss of the others; without the source nothing is known."""
    parts = tuple(
        PartitionStatus(
            topic=topic, partition=0, target_topic=topic, lane=0, position=5, source_lso=9, lag_records=lag,
            lag_seconds=None, records=5, rate=3.0, last_commit=1, problem="" if lag is not None else "torn",
        )
        for topic, lag in (("a", 1_200), ("b", None), ("c", None), ("d", 34))
    )  # fmt: skip
    status = LinkStatus(link="l", state="running", partitions=parts)
    found = Window().judge(LinkView(facts=FACTS, status=status), 0.0)
    assert found.failover == "unknown for topic b and 1 more; of the others it loses at most 1,234 records"
    away = replace(status, problem="the source does not answer")
    assert (
        Window().judge(LinkView(facts=FACTS, status=away), 0.0).failover
        == "unknown: the source, a, does not answer"
    )
    seen = replace(away, known_lost=70, source_seen_seconds=90.0)
    found = Window().judge(LinkView(facts=FACTS, status=seen), 0.0)
    assert found.failover == (
        "loses at least 70 records, and what was written since the source was last read, 1 min 30 s ago"
    )
    assert "if a is lost for good" in found.fix
    none = Window().judge(LinkView(facts=FACTS, status=replace(seen, known_lost=0)), 0.0)
    assert none.failover == "loses what was written since the source was last read, 1 min 30 s ago"


def test_without_the_source_stopped_topics_are_lost_beside_the_known_ends() -> None:
    """Lanes saw ends of the topics that they mirror only."""
    away = view(5, 9, problem="away", known_lost=4, source_seen_seconds=2.0, stopped=(stop("audit"),))
    assert judged((0, away)).failover.endswith(", and what stopped topics lack")


def test_a_loss_without_the_source_has_an_estimate() -> None:
    """By the last rate, with two digits that count: more would look like knowledge."""
    away = view(5, 9, problem="away", known_lost=0, source_seen_seconds=48.0, last_rate=594.3)
    assert "(about 29,000 records, if applications went on at 590 records/s)" in judged((0, away)).failover
    slow = view(5, 9, problem="away", known_lost=0, source_seen_seconds=36_000.0, last_rate=0.1)
    assert "(about 3,600 records, if applications went on at 0.1 records/s)" in judged((0, slow)).failover
    still = view(5, 9, problem="away", known_lost=0, source_seen_seconds=48.0, last_rate=0.0)
    assert "about" not in judged((0, still)).failover


def test_a_link_that_is_down_names_records_that_the_source_is_about_to_delete() -> None:
    """Retention does not wait for a mirror."""
    row = RetentionStatus(topic="t", partition=3, used=0.9, left_seconds=360.0, setting="retention.ms")
    found = judged((0, view(5, 9, state="stopped", retention=(row, replace(row, topic="u")))))
    assert "t-3: the source may delete records that are not mirrored, in 6 min" in found.text
    assert found.text.endswith("(and 1 more)")
    far = judged((0, view(5, 9, state="stopped", retention=(replace(row, used=0.5),))))
    assert "may delete" not in far.text


def test_a_dead_mirror_is_named_with_its_process() -> None:
    """The way back to a running mirror comes first; with a source that is away, a failover is the other way."""
    owner = OwnerStatus(run="r", host="east-1", pid=4711, claim_age_seconds=50.0)
    found = judged((0, view(5, 9, state="silent", owner=owner)))
    assert found.text.startswith("its mirror, process 4711 on host east-1, does not renew its claim")
    assert found.fix == "start the mirror: `eomirror run CONFIG`"
    found = judged((0, view(5, 9, state="silent", owner=owner, problem="cluster a does not answer")))
    assert found.text.endswith("; also: cluster a does not answer")
    assert "`eomirror readiness CONFIG --link" in found.fix
    # without a copy there is nothing to fail over to
    found = judged((0, view(5, 9, state="never ran", problem="cluster a does not answer")))
    assert "failover" not in found.fix


def test_a_link_without_topics_says_so() -> None:
    """It has caught up with nothing."""
    status = LinkStatus(link="l", state="running", lag_records=0, lag_seconds=0.0)
    found = Window().judge(LinkView(facts=FACTS, status=status), 0.0)
    assert (found.word, found.text) == ("ok", "it mirrors no topic yet")
