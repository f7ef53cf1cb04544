"""`eomirror status` of several links, one of which cannot be looked at; readers are played."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.cli.app import main
from eomirror.errors import UnreachableError
from eomirror.records.reports import TailComparison
from eomirror.status import repeated_reader
from eomirror.status.model import LinkStatus, RetentionStatus, SchemasStatus
from eomirror.status.repeated_reader import more_seconds
from support.fakes.status_records import verified
from support.links.two_links import TWO_LINKS

if TYPE_CHECKING:
    from pathlib import Path


class Reader:
    """Reads a link on east; north does not answer."""

    def __init__(self, link: Any, *_: Any, **__: Any) -> None:
        self._link = link

    def read(self) -> LinkStatus:
        if self._link.target == "north":
            raise UnreachableError("no way to cluster north", fix="check bootstrap.servers")
        return LinkStatus(link=self._link.name, state="running")

    def close(self) -> None:
        pass


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration, whose links are read by `Reader`."""
    monkeypatch.setattr(repeated_reader, "StatusReader", Reader)
    file = tmp_path / "mirror.yaml"
    file.write_text(TWO_LINKS)
    return str(file)


def exit_code(*arguments: str) -> Any:
    """Of the command."""
    with pytest.raises(SystemExit) as ended:
        main(["status", *arguments])
    return ended.value.code


def test_one_link_that_cannot_be_read_hides_no_other(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is unknown, with the reason, and the exit code says that not all is told."""
    assert exit_code(path, "-o", "json") == 1
    links = json.loads(capsys.readouterr().out)["links"]
    assert [(each["link"], each["state"], each["problem"]) for each in links] == [
        ("west->north", "unknown", "no way to cluster north"),
        ("west->east", "running", ""),
    ]

    assert exit_code(path, "-o", "table") == 1
    assert "west->north  TARGET AWAY  no way to cluster north" in capsys.readouterr().out


def test_what_the_source_may_delete_soon_is_told(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest topic, with what to do; a topic with time left is in the JSON only."""
    row = RetentionStatus(
        topic="or<b>ders", partition=3, used=0.9, left_seconds=7200.0, setting="retention.ms"
    )
    rows = (row, replace(row, topic="b", used=0.8), replace(row, topic="c", used=0.79))
    monkeypatch.setattr(
        Reader, "read", lambda _: LinkStatus(link="west->east", state="stopped", retention=rows)
    )
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "at risk: or<b>ders-3: the source may delete records that are not mirrored, in 2 h 0 min" in told
    assert "(retention.ms); so for 1 more topic fix: have the mirror catch up" in told
    monkeypatch.setattr(
        Reader, "read", lambda _: LinkStatus(link="west->east", state="stopped", retention=rows[2:])
    )
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    assert "at risk" not in capsys.readouterr().out
    assert exit_code(path, "--link", "west->east", "-o", "json") == 0
    (link,) = json.loads(capsys.readouterr().out)["links"]
    assert [each["topic"] for each in link["retention"]] == ["c"]


def test_the_mirror_of_schemas_is_told(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state, its age and the first of what stands against it; a link without registries has none."""
    schemas = SchemasStatus(
        state="conflict",
        subjects=4,
        versions=9,
        pending=1,
        conflicts=2,
        age_seconds=7.0,
        problem="a[b]: why",
        fix="do",
    )
    found = LinkStatus(link="west->east", state="running", schemas=schemas)
    monkeypatch.setattr(Reader, "read", lambda _: found)
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "schemas conflict: 4 subjects, 9 versions, 1 change to make, as of" in told
    assert "a[b]: why; so for 1 more subject fix: do" in told
    assert exit_code(path, "--link", "west->east", "-o", "json") == 0
    (link,) = json.loads(capsys.readouterr().out)["links"]
    assert (link["schemas"]["state"], link["schemas"]["age_seconds"]) == ("conflict", 7.0)
    monkeypatch.setattr(Reader, "read", lambda _: replace(found, schemas=None))
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    assert "schemas" not in capsys.readouterr().out


def test_a_comparison_of_a_part_is_called_one(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify --since`, and the ends that a planned promotion compares."""
    one = verified("a", unverified=3)
    tail = TailComparison(
        outcome="equal", tail=10_000, topics=1, partitions=1, offsets=1, command="cutover", timestamp=1
    )
    part = verified("b", unverified=3, since=9)
    found = LinkStatus(link="west->east", state="running", verifications=(one, part), tail=tail)
    monkeypatch.setattr(Reader, "read", lambda _: found)
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "6 offsets were mirrored since; of 1 topic only a part" in told
    assert "only the last 10,000 offsets of each partition were compared before a cutover" in told
    monkeypatch.setattr(Reader, "read", lambda _: replace(found, verifications=(one,), tail=None))
    assert exit_code(path, "--link", "west->east", "-o", "table") == 0
    assert "only" not in capsys.readouterr().out


def test_a_link_alone_fails_as_ever(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With what to do on stderr; and one that is known exits 0."""
    assert exit_code(path, "--link", "west->north") == 1
    assert "fix: check bootstrap.servers" in capsys.readouterr().err
    assert exit_code(path, "--link", "west->east") == 0


def test_a_link_that_is_watched_may_go_away(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that restarts ends no `--watch`; one that cannot be read when it begins does."""
    looks = iter([LinkStatus(link="west->east", state="running"), None, None])

    def read(_: Reader) -> LinkStatus:
        found = next(looks, None)
        if found is None:
            raise UnreachableError("no way to cluster east")
        return found

    def sleep(_: float) -> None:
        if next(rounds) == 1:
            raise KeyboardInterrupt

    rounds = iter(range(9))
    monkeypatch.setattr(Reader, "read", read)
    monkeypatch.setattr("eomirror.clock.SystemClock.sleep", lambda _, seconds: sleep(seconds))
    assert exit_code(path, "--link", "west->east", "--watch", "-o", "json") == 130
    assert capsys.readouterr().out.count('"state": "unknown"') == 1


@pytest.mark.parametrize(("links", "seconds"), [(1, 0.0), (8, 0.0), (18, 2.0), (48, 8.0), (500, 8.0)])
def test_a_cluster_may_take_longer_when_many_links_are_read(links: int, seconds: float) -> None:
    """The clients of fifty links made a busy broker look silent; a bound is left, as the command is used in need."""
    assert more_seconds(links) == pytest.approx(seconds)
