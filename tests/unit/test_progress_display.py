"""What a person sees of very many topics and groups while a mirror runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.console import Console

from eomirror.cli.progress import ProgressDisplay, _draw, _fields, groups_line
from eomirror.cli.render import print_message
from eomirror.groups.followed_groups import GroupsSnapshot
from eomirror.lane.spec import StoppedTopic
from eomirror.log import configure_logging
from eomirror.screen import LiveOutput
from eomirror.status.snapshot import Counters, LinkReport, LinkSnapshot, RunReport, Snapshot, TopicSnapshot

if TYPE_CHECKING:
    import pytest


def topic(name: str, lag: int | None, stopped: str = "") -> TopicSnapshot:
    return TopicSnapshot(
        topic=name,
        target_topic=f"a.{name}",
        partitions=(),
        lag_records=lag,
        lag_seconds=None,
        stopped=StoppedTopic(stopped) if stopped else None,
    )


def test_topics_that_are_stopped_or_not_known_are_shown_before_those_that_lag() -> None:
    """There is room for some only, and a topic of which nothing is known does not lag less than the others."""
    busy = [topic(f"busy-{number}", number) for number in range(1, 40)]
    link = LinkSnapshot(
        link="a->b", state="running", topics=(topic("silent", None), *busy, topic("gone", 0, "recreated"))
    )
    console = Console(width=120, force_terminal=False)
    with console.capture() as shown:
        console.print(_draw(Snapshot(seconds=1, links=(link,)), rows=50))
    lines = [line.split() for line in shown.get().splitlines()]
    names = [words[0] for words in lines if words and len(words) > 1 and words[1] == f"a.{words[0]}"]
    assert names[:4] == ["gone", "silent", "busy-39", "busy-38"]
    assert len(names) == 20
    assert ["and", "21", "more", "topics"] in lines


def test_a_line_about_groups_stays_a_line_with_a_reason_for_each_of_thousands() -> None:
    """A missing right names its group; the most frequent reasons are shown, and how many there are besides."""
    skipped = {f"no right to describe group {number}": 1 for number in range(3000)}
    skipped["it has members on the target (state stable)"] = 7
    line = groups_line(
        LinkSnapshot(
            link="a->b",
            state="running",
            groups=GroupsSnapshot(
                followed=4000, age_seconds=0.5, pending={"waiting for the mirror": 1}, skipped=skipped
            ),
        )
    )
    assert line.startswith(
        "4,000 groups followed, seen 0.5 s ago; 1 offset: waiting for the mirror; 7 groups left alone: it"
    )
    assert line.endswith("; 2,997 groups left alone for 2,997 other reasons")
    assert len(line) < 500


def test_a_line_in_a_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A file has no width: a search for a topic or a reason finds both in one place."""
    reason = "its source was created anew since it was mirrored, and " + "so on " * 40
    link = LinkSnapshot(link="a->b", state="running", topics=(topic("orders", 0, reason),))
    configure_logging()
    with ProgressDisplay() as display:
        display.event("word " * 60 + "end")
        display.update(Snapshot(seconds=1, links=(link,)))
        display.summary(
            RunReport(
                run="r",
                seconds=1,
                links=(LinkReport(link="a->b", outcome="stopped", stopped_topics={"orders": reason}),),
            )
        )
    written = capsys.readouterr()
    said, progress = [json.loads(line) for line in written.err.splitlines()]
    assert said["event"].endswith("word end")
    assert progress["stopped_topics"] == ["orders"]
    assert [line.rstrip() for line in written.out.splitlines()][1:] == [
        f"  orders is stopped: {reason}".rstrip()
    ]


def test_a_report_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing, for a link that had caught up before, but not where a filter dropped all; or offsets behind a stop."""
    links = (
        LinkReport(link="again", outcome="caught up", offsets_left=0),
        LinkReport(link="filtered", outcome="caught up", offsets_left=0, counters=Counters(dropped=7)),
        LinkReport(link="stopped", outcome="stopped", offsets_left=1_200),
    )
    ProgressDisplay().summary(RunReport(run="r", seconds=1, links=links))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [(line.partition(":")[0] if line[0] != " " else line) for line in lines] == [
        "again",
        "  nothing was left to copy",
        "filtered",
        "stopped",
        "  not caught up: 1,200 offsets left; the next run goes on there",
    ]


def test_what_verify_says_in_a_log_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The same for `eomirror verify 2>log`: the name of a topic must not decide whether "1 foreign" is found in it."""
    text = f"a->b: {'orders.' * 20}-0 differs: 1 foreign"
    with LiveOutput() as display:
        print_message(text)
        display.show_line(lambda: text)
    assert capsys.readouterr().err == f"{text}\n" * 2


def test_a_link_that_waits_for_a_cluster_names_it() -> None:
    """On a terminal and in the log: what it waits for, with the address."""
    reason = "no way to cluster east (127.0.0.1:1): Connection refused"
    link = LinkSnapshot(link="a->b", state="waiting", waiting=reason)
    console = Console(width=120, force_terminal=False)
    with console.capture() as shown:
        console.print(_draw(Snapshot(seconds=1, links=(link,)), rows=50))
    assert f"a->b  waiting: {reason}" in shown.get()
    assert _fields(link)["waiting"] == reason


def test_a_link_that_still_waits_when_the_run_ends_has_not_started() -> None:
    """The last table names the failure; "done" would read as a success."""
    reason = "no way to cluster east (127.0.0.1:1): Connection refused"
    for state in ("stopping", "done"):
        link = LinkSnapshot(link="a->b", state=state, waiting=reason)
        console = Console(width=120, force_terminal=False)
        with console.capture() as shown:
            console.print(_draw(Snapshot(seconds=1, links=(link,)), rows=50))
        assert f"a->b  not started: {reason}" in shown.get()
