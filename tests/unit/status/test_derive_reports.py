"""What status, page and timeline say of restarts, verifications and drills."""

from __future__ import annotations

from dataclasses import replace

from eomirror.records.events import link_events
from eomirror.records.reports import DrillResult, LaneRestarts, Reports, TailComparison, Verification
from eomirror.status.derive import with_reports
from eomirror.status.model import LinkStatus, OwnerStatus, PartitionStatus, as_json

PARTITION = PartitionStatus(
    topic="orders", partition=0, target_topic="a.orders", lane=0, position=50, source_lso=50, lag_records=0,
    lag_seconds=0.0, records=50, rate=0.0, last_commit=1,
)  # fmt: skip
RESTARTS = LaneRestarts(
    lane=1, count=3, endings={"rebuild": 3}, ending="rebuild", reason="<b>", run="now", timestamp=4
)
VERIFIED = Verification(
    topic="orders", outcome="differs", partitions=1, offsets=30, up_to={"0": 30}, differences={"missing": 2},
    timestamp=5,
)  # fmt: skip
TAIL = TailComparison(
    outcome="equal", tail=10_000, topics=2, partitions=3, offsets=500, command="cutover", host="h", timestamp=6
)  # fmt: skip
DRILL = DrillResult(passed=False, rpo_records=0, rto_ms=1500, host="h", timestamp=6)


def status(reports: Reports) -> LinkStatus:
    """Of a link with two partitions, the second of which was never compared, and a parked topic."""
    partitions = (
        PARTITION,
        replace(PARTITION, partition=1, position=7),
        replace(PARTITION, topic="parked", parked=True),
    )
    return with_reports(
        LinkStatus(link="a->b", state="running", owner=OwnerStatus(run="now"), partitions=partitions),
        reports,
        now_ms=30_000,
    )


def test_restarts_are_those_of_the_run_that_owns_the_link() -> None:
    """A lane that was restarted by an earlier run and not since is no news."""
    found = status(Reports(restarts=(RESTARTS, replace(RESTARTS, lane=2, run="before"))))
    assert [(one.lane, one.count, one.reason) for one in found.restarts] == [(1, 3, "<b>")]


def test_a_verification_says_how_much_was_mirrored_since() -> None:
    """With the whole of a partition that it did not compare; of mirrored topics only."""
    found = status(Reports(verifications=(VERIFIED, replace(VERIFIED, topic="parked"))))
    (one,) = found.verifications
    assert (one.result, one.unverified) == (VERIFIED, 20 + 7)


def test_the_last_drill_is_shown() -> None:
    """Also one that failed."""
    assert as_json(status(Reports(drill=DRILL)).drill) == {
        "passed": False, "rpo_records": 0, "rto_seconds": 1.5, "host": "h", "stage": "", "problem": "", "at": 6,
    }  # fmt: skip
    assert status(Reports()).drill is None


def test_a_comparison_of_the_ends_is_shown_as_one() -> None:
    """The results of topics are those of whole comparisons."""
    found = status(Reports(verifications=(VERIFIED,), tail=TAIL))
    assert found.tail == TAIL
    assert [one.result.topic for one in found.verifications] == ["orders"]
    assert status(Reports()).tail is None
    (event,) = link_events([(TAIL.key(), TAIL.value(), 6)], [])
    assert event.text == (
        "only the last 10,000 offsets of each partition were compared with the source, before a cutover: equal, "
        "500 offsets"
    )


def test_a_comparison_of_a_part_says_so() -> None:
    """`verify --since` and `--from-offset`."""
    part = replace(VERIFIED, from_offset=70, since=86_400_000)
    (event,) = link_events([(part.key(), part.value(), 6)], [])
    assert ", from offset 70 on, records since 1970-01-02T00:00:00+00:00, 2 missing" in event.text


def test_what_is_written_every_few_seconds_is_no_event() -> None:
    """It would push out what happened."""
    records = [
        (b'{"kind":"seen"}', b'{"v":1,"timestamp":5}', 5),
        (b'{"kind":"ends","topic":"t"}', b'{"v":1}', 5),
    ]
    paused = (b'{"kind":"pause"}', b'{"v":1,"topics":"t.*","host":"h","timestamp":6}', 6)
    resumed = (b'{"kind":"pause"}', None, 7)
    found = link_events([*records, paused, resumed], [])
    assert [event.text for event in found] == ["h paused t.*", "the link resumes"]


def test_the_timeline_tells_them_in_words() -> None:
    """Foreign text stays text: the page escapes it."""
    records = [(one.key(), one.value(), one.timestamp) for one in (RESTARTS, VERIFIED, DRILL)]
    found = link_events(records, [])
    assert [event.kind for event in found] == ["restarts", "verification", "drill"]
    assert found[0].text == "lane 1 ended early, 3 times in this run: rebuild: <b>"
    assert "differs, 30 offsets, 2 missing" in found[1].text
    assert found[1].topic == "orders"
    assert found[2].text.startswith("a drill failed; repeat it")
    passed = replace(DRILL, passed=True, rpo_records=4)
    (event,) = link_events([(passed.key(), passed.value(), 7)], [])
    assert event.text == "a drill passed: 4 records left behind, all merged later; 1500 ms to the promotion"
