"""Values of `eomirror run` that people write by hand: how long, and where a partition resumes."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Self

import click
import pytest

from eomirror.cli.app import cli
from eomirror.cli.backfill import backfill
from eomirror.cli.cutover import unfence
from eomirror.cli.run import parse_offsets, parse_until, run
from eomirror.errors import UsageError
from eomirror.status.snapshot import LinkReport, RunReport
from eomirror.types import RunOptions, SourcePartition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "where", "offset"),
    [("orders-3=1200", ("orders", 3), 1200), ("a.b-c-0=0", ("a.b-c", 0), 0), ("x=y-1=5", ("x=y", 1), 5)],
)
def test_a_resume_offset_names_topic_and_partition(text: str, where: tuple[str, int], offset: int) -> None:
    """The last hyphen divides: names of topics may contain it."""
    assert parse_offsets("--resume-at", (text,)) == {SourcePartition(*where): offset}


@pytest.mark.parametrize("text", ["t0", "t-0", "t-0=", "t-0=-1", "t-=5", "-0=5", "t-0=1.5", "t-0=latest", ""])
def test_another_form_of_a_resume_offset_is_refused_with_an_example(text: str) -> None:
    """A negative offset, a missing partition, a word in place of the number."""
    with pytest.raises(UsageError, match=r"--resume-at .*not of the form TOPIC-PARTITION=OFFSET") as refused:
        parse_offsets("--resume-at", ("good-0=1", text))
    assert "orders-3=1200" in refused.value.fix
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"), [(None, None), ("caught-up", "caught-up"), ("30s", 30.0), ("5m", 300.0)]
)
def test_a_run_ends_when_caught_up_or_after_a_duration(text: str | None, expected: object) -> None:
    """Without the option it runs until it is stopped."""
    assert parse_until(text) == expected


def test_the_old_name_of_resume_at_works_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options of the user reach the links as one value; of two offsets of a partition that of the new name counts."""
    made: list[RunOptions] = []

    def mirror(*_: Any, **options: Any) -> None:
        names = {each.name for each in fields(RunOptions)}
        made.append(RunOptions(**{name: value for name, value in options.items() if name in names}))
        raise LookupError("seen enough")

    monkeypatch.setattr("eomirror.mirror.Mirror", mirror)
    # a log that another test has made JSON would hold the error
    monkeypatch.setattr("eomirror.log.logs_json", lambda: False)
    path = tmp_path / "mirror.yaml"
    clusters = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("east", "west")}
    path.write_text(
        json.dumps({"clusters": clusters, "links": [{"source": "east", "target": "west", "topics": ["t"]}]})
    )
    words = ["--take-over", "--adopt", "t-0=7", "--adopt", "t-1=8", "--resume-at", "t-1=9"]
    with pytest.raises(LookupError, match="seen enough"):
        run.main([str(path), *words], standalone_mode=False)
    offsets = {SourcePartition("t", 0): 7, SourcePartition("t", 1): 9}
    assert made == [RunOptions(take_over=True, adopt=offsets)]
    shown = run.get_help(click.Context(run))
    assert "--resume-at" in shown
    assert "--adopt" not in shown


class Backfilled:
    """A mirror that ends at once: the links that it was given, and its orders."""

    outcome, exit_code = "caught up", 0
    made: list[Backfilled]

    def __init__(self, config: Any, **options: Any) -> None:
        self.lanes = {link.name: link.lanes for link in config.links}
        self.options = options
        type(self).made = [self]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def stop(self) -> None:
        """Nothing to stop."""

    def run(self, until: str, on_progress: Any) -> RunReport:
        """Ends at once."""
        assert until == "caught-up"
        del on_progress
        link = LinkReport(link="a", outcome=self.outcome, offsets_left=7)
        return RunReport(run="r", seconds=1, exit_code=self.exit_code, links=(link,))


@pytest.fixture
def backfilled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A file of two links with 2 and 5 lanes, on a machine of 8 CPUs that mirrors nothing."""
    monkeypatch.setattr("eomirror.mirror.Mirror", Backfilled)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    path = tmp_path / "mirror.yaml"
    clusters = {name: {"bootstrap.servers": f"{name}:9092"} for name in ("east", "west")}
    links = [
        {"name": name, "source": "east", "target": "west", "topics": [name], "lanes": lanes}
        for name, lanes in (("two", 2), ("five", 5))
    ]
    path.write_text(json.dumps({"clusters": clusters, "links": links}))
    return str(path)


@pytest.mark.parametrize(
    ("words", "lanes"),
    [
        ([], {"two": 4, "five": 5}),
        (["--link", "two"], {"two": 8, "five": 5}),
        (["--lanes", "1"], {"two": 1, "five": 1}),
        (["--link", "five", "--lanes", "3"], {"two": 2, "five": 3}),
        (["--master", "spark://h:1"], {"two": 2, "five": 5}),
        (["--master", "spark://h:1", "--spark-conf", "spark.cores.max=30"], {"two": 15, "five": 15}),
    ],
)
def test_a_backfill_has_lanes_for_the_cores_there_are(
    backfilled: str, words: list[str], lanes: dict[str, int]
) -> None:
    """Links share the cores; the link's own number is the least, unless the user gives one."""
    assert backfill.main([backfilled, "--take-over", *words], standalone_mode=False) == 0
    (mirror,) = Backfilled.made
    assert mirror.lanes == lanes
    assert (mirror.options["by_backlog"], mirror.options["take_over"]) == (True, True)


@pytest.mark.parametrize(
    ("outcome", "code", "expected"), [("stopped", 0, 3), ("stopped", 4, 4), ("failed", 1, 1)]
)
def test_a_backfill_that_was_stopped_is_not_complete(
    monkeypatch: pytest.MonkeyPatch, backfilled: str, outcome: str, code: int, expected: int
) -> None:
    """A scheduler must not start what needs the past; data loss counts more."""
    monkeypatch.setattr(Backfilled, "outcome", outcome)
    monkeypatch.setattr(Backfilled, "exit_code", code)
    assert backfill.main([backfilled], standalone_mode=False) == expected


def test_unfence_takes_its_method_from_the_record() -> None:
    """The option that chose nothing is accepted, so that old calls work, and is not shown."""
    context = unfence.make_context("unfence", ["mirror.yaml", "--method", "acl"])
    assert "method" not in context.params
    shown = unfence.get_help(context)
    assert "--method" not in shown
    assert "--fence-command" in shown


def test_another_end_of_a_run_is_refused() -> None:
    """A number without a unit is none."""
    with pytest.raises(UsageError, match="not a duration"):
        parse_until("30")


def test_a_misspelled_command_gets_the_one_it_may_have_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """As a misspelled option does; what resembles no command gets no suggestion."""
    for word, near in (("staus", "'status'"), ("fail-over", "'failover'"), ("readyness", "'readiness'")):
        with pytest.raises(SystemExit) as ended:
            cli([word])
        error = capsys.readouterr().err
        assert ended.value.code == 2
        assert "Did you mean" in error
        assert near in error
    with pytest.raises(SystemExit):
        cli(["zzz"])
    assert "Did you mean" not in capsys.readouterr().err
