"""`eomirror lag`, `top` and `events`: the worst first, unknown is not 0, foreign text is harmless; played readers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from eomirror.cli.app import main
from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import UnreachableError
from eomirror.records.events import LinkEvent
from eomirror.status import repeated_reader
from eomirror.status.lag import lag_rows
from eomirror.status.model import LinkStatus, PartitionStatus
from support.links.two_links import TWO_LINKS

if TYPE_CHECKING:
    from pathlib import Path


def partition(topic: str, number: int, lag: int | None, **changes: Any) -> PartitionStatus:
    """A partition with this lag."""
    seconds = None if lag is None else lag / 10
    made = PartitionStatus(
        topic=topic, partition=number, target_topic=f"west.{topic}", lane=0, position=5, source_lso=9,
        lag_records=lag, lag_seconds=seconds, records=5, rate=1.5, last_commit=1,
    )  # fmt: skip
    return replace(made, **changes)


STATUS = LinkStatus(
    link="west->east",
    state="running",
    partitions=(
        partition("calm", 0, 0),
        partition("busy", 0, 3),
        partition("busy", 1, 40),
        partition("gone", 0, None, problem="the topic is gone", fix="do this"),
        partition("halt", 0, 7, stopped=True, problem="stopped", fix="do that"),
        partition("away", 0, None),
        partition("parked", 0, None, parked=True),
    ),
    events=(
        LinkEvent(1_000, "generation", "generation 1"),
        LinkEvent(SYSTEM_CLOCK.wall_ms(), "stopped", "topic x is stopped: \x1b[31mred\nline", "x"),
    ),
)


class Reader:
    """Reads a link on east; north does not answer."""

    def __init__(self, link: Any, *_: Any, **__: Any) -> None:
        self._link = link

    def read(self) -> LinkStatus:
        if self._link.target == "north":
            raise UnreachableError("no way to cluster north", fix="check bootstrap.servers")
        return STATUS

    def close(self) -> None:
        pass


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A configuration, whose links are read by `Reader`."""
    monkeypatch.setattr(repeated_reader, "StatusReader", Reader)
    file = tmp_path / "mirror.yaml"
    file.write_text(TWO_LINKS)
    return str(file)


def run(*arguments: str) -> Any:
    """Exit code of the command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    # the command has configured a log on a stderr that ends with this test
    structlog.reset_defaults()
    return ended.value.code


def test_topics_stand_by_lag_and_unknown_ones_first() -> None:
    """A topic sums its partitions; a parked one that is not mirrored any more has no row."""
    rows = lag_rows([STATUS], partitions=False)
    assert [(row.topic, row.lag_records, row.state) for row in rows] == [
        ("away", None, "unknown"),
        ("gone", None, "problem"),
        ("busy", 43, "ok"),
        ("halt", 7, "stopped"),
        ("calm", 0, "ok"),
    ]
    assert rows[2].lag_seconds == 4.0
    assert rows[1].fix == "do this"


def test_topics_of_a_link_that_has_ended_stand_last_and_without_lag() -> None:
    """What the link back writes to the source of a promoted link would look like a lag that grows."""
    ended = replace(STATUS, link="before", state="promoted")
    rows = lag_rows([ended, STATUS], partitions=False)
    assert [row.link for row in rows] == ["west->east"] * 5 + ["before"] * 5
    assert {(row.state, row.lag_records, row.lag_seconds) for row in rows[5:]} == {("promoted", None, None)}


def test_no_command_shows_a_lag_of_a_promoted_link(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in its head nor in its rows."""
    monkeypatch.setattr(Reader, "read", lambda _: replace(STATUS, state="promoted", lag_records=50))
    for command in ("status", "top"):
        run(command, path, "--link", "west->east", "-o", "table")
        out = capsys.readouterr().out
        assert "no lag: it no longer mirrors" in out
        assert "43" not in out


@pytest.mark.parametrize("command", ["status", "lag", "top"])
def test_what_stands_behind_an_open_transaction_is_told_beside_a_lag_of_0(
    command: str, path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lag counts to the last stable offset; Kafka has acknowledged the records behind it as well."""
    calm = partition("calm", 0, 0)

    def shown(held: int) -> str:
        found = replace(STATUS, lag_records=0, partitions=(replace(calm, open_records=held),))
        monkeypatch.setattr(Reader, "read", lambda _: found)
        assert run(command, path, "--link", "west->east", "-o", "table") == 0
        return " ".join(capsys.readouterr().out.split())

    assert "5,011" in shown(5_011)
    assert "behind open" not in shown(0).lower()
    assert lag_rows([replace(STATUS, partitions=(calm,))], partitions=False)[0].open_records is None


def test_partitions_have_rows_on_request() -> None:
    """The worst partition of a topic stands above the others."""
    rows = lag_rows([STATUS], partitions=True)
    assert [row.partition for row in rows if row.topic == "busy"] == [1, 0]


def test_lag_names_a_link_that_cannot_be_read(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, its reason on stderr, and the other link on stdout."""
    assert run("lag", path, "-o", "json") == 1
    out = capsys.readouterr()
    assert {row["link"] for row in json.loads(out.out)["lag"]} == {"west->east"}
    assert "west->north: no way to cluster north" in out.err
    assert run("lag", path, "--link", "west->east", "-o", "table") == 0
    assert "busy" in capsys.readouterr().out


def test_top_prints_one_look_without_a_terminal(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Verdict of each link, then topics by lag; a link that cannot be read is one of them."""
    assert run("top", path, "-o", "json") == 1
    found = json.loads(capsys.readouterr().out)
    assert {each["link"]: each["verdict"] for each in found["links"]} == {
        "west->north": "target away",
        "west->east": "unknown",
    }
    assert [row["topic"] for row in found["topics"]][:3] == ["away", "gone", "busy"]
    assert run("top", path, "--link", "west->east", "-o", "table") == 0
    table = capsys.readouterr().out
    assert "UNKNOWN  the topic is gone; and 1 more partitions have a problem" in table
    assert "fix: do this" in table
    assert "busy" in table


def test_without_the_source_status_and_top_bound_the_loss(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the ends that the lanes saw last, with their age."""
    away = replace(
        STATUS, problem="no way to west", fix="check it", known_lost=1_500, source_seen_seconds=42.0
    )
    monkeypatch.setattr(Reader, "read", lambda _: away)
    assert run("status", path, "--link", "west->east", "-o", "table") == 0
    assert "had seen of the source 42.0 s ago: 1,500 offsets" in " ".join(capsys.readouterr().out.split())
    assert run("top", path, "--link", "west->east", "-o", "table") == 0
    assert "failover: loses at least 1,500 records, and" in " ".join(capsys.readouterr().out.split())


def test_events_are_told_since_a_time(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As data with the exact time; as a table without control characters."""
    assert run("events", path, "--link", "west->east", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)["events"]
    assert [row["kind"] for row in rows] == ["generation", "stopped"]
    assert rows[0]["time"] == "1970-01-01T00:00:01Z"
    assert run("events", path, "--link", "west->east", "--since", "1h", "-o", "table") == 0
    table = capsys.readouterr().out
    assert "generation 1" not in table
    assert "\x1b[31m" not in table
    assert "topic x is stopped" in table
    assert run("events", path, "--since", "soon") == 2
    assert "--since soon: not a duration" in capsys.readouterr().err


def test_a_topic_of_a_link_that_cannot_be_read_is_no_wrong_name(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be the unread link that mirrors it; a name that no link of several has is refused."""
    assert run("lag", path, "--topic", "orders", "-o", "json") == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {"lag": []}
    assert "no way to cluster north" in told.err

    assert run("lag", path, "--link", "west->east", "--topic", "orders") == 2
    assert "no link mirrors it" in capsys.readouterr().err
    assert run("lag", path, "--link", "west->east", "--topic", "busy", "--topic", "calm", "-o", "json") == 0
    assert [row["topic"] for row in json.loads(capsys.readouterr().out)["lag"]] == ["busy", "calm"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"state": "promoted"}, 0),
        ({"state": "silent"}, 6),
        ({"state": "stopped"}, 6),
        ({"state": "paused"}, 6),
    ],
)
def test_status_is_a_check_for_cron_on_request(
    changes: dict[str, Any], code: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that needs an action is exit code 6, as one that cannot be read is 1; without the option it is told."""
    well = replace(STATUS, partitions=(partition("calm", 0, 0),), lag_records=0, lag_seconds=0.0, **changes)
    monkeypatch.setattr(Reader, "read", lambda _: well)
    assert run("status", path, "--link", "west->east", "-o", "json") == 0
    assert run("status", path, "--link", "west->east", "--exit-code", "-o", "json") == code


def test_status_shows_the_last_move_that_balanced_lanes(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none of a link whose lanes keep their partitions."""
    assert run("status", path, "--link", "west->east", "-o", "table") == 0
    assert "balanced" not in capsys.readouterr().out
    moves = (LinkEvent(at, "balance", f"lane {at} is behind [b]") for at in (3_000, 4_000))
    monkeypatch.setattr(Reader, "read", lambda _: replace(STATUS, events=(*moves, *STATUS.events)))
    assert run("status", path, "--link", "west->east", "-o", "table") == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "balanced" in line]
    assert shown == ["lanes balanced at 1970-01-01T00:00:04Z: lane 4000 is behind [b]"]


def test_a_long_list_is_cut_on_request(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each topic unless partitions are wanted; of the lag, the largest."""

    def rows(*arguments: str) -> int:
        assert run(*arguments, "--link", "west->east", "-o", "table") == 0
        return sum(line.split()[:1] == ["busy"] for line in capsys.readouterr().out.splitlines())

    assert (rows("status", path), rows("status", path, "--partitions")) == (1, 2)
    assert run("lag", path, "--link", "west->east", "--top", "2", "-o", "json") == 0
    assert [row["topic"] for row in json.loads(capsys.readouterr().out)["lag"]] == ["away", "gone"]
