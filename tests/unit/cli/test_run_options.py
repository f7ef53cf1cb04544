"""Values of `eomirror run` that people write by hand: how long, and where a partition resumes."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click
import pytest

from eomirror.cli.app import cli
from eomirror.cli.cutover import unfence
from eomirror.cli.run import parse_offsets, parse_until, run
from eomirror.errors import UsageError
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
