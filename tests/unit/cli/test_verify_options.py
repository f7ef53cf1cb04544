"""Options of `eomirror verify` that mean a time, or exclude each other."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from eomirror.cli.verify import parse_since, verify, wait_for_round
from eomirror.errors import UsageError
from support.fakes.clocks import PlayedClock

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", NOW - 90_000),
        ("1.5m", NOW - 90_000),
        ("2h", NOW - 7_200_000),
        ("7d", NOW - 7 * 86_400_000),
        ("99999d", 0),
        ("9" * 400 + "d", 0),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-02", 86_400_000),
    ],
)
def test_since_is_so_long_ago_or_a_moment(text: str, expected: int) -> None:
    """A moment without a zone is UTC, and nothing is older than 1970."""
    assert parse_since(text, now_ms=NOW) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "5", "-3h", "2 h", "2026-13-01"])
def test_since_that_means_nothing_is_refused(text: str) -> None:
    """With an example of either form."""
    with pytest.raises(UsageError, match="neither an age nor a time") as refused:
        parse_since(text, now_ms=NOW)
    assert "2h" in refused.value.fix


@pytest.mark.parametrize(
    "arguments",
    [
        ["--at-rest"],
        ["--transactions", "--topic", "t"],
        ["--transactions", "--since", "2h"],
        ["--transactions", "--follow"],
        ["--transactions", "--from-offset", "0"],
        ["--follow", "--resume", "file"],
        ["--follow", "--master", "local[2]"],
        ["--resume", "file", "--spark-conf", "a=b"],
    ],
)
def test_options_that_exclude_each_other_are_refused(arguments: list[str]) -> None:
    """Before the configuration is read."""
    done = CliRunner().invoke(verify, ["none.yaml", *arguments])
    assert isinstance(done.exception, UsageError), done.output
    assert done.exception.fix


@pytest.mark.parametrize(("looked", "rested"), [(0.0, 1.0), (0.3, 1.0), (2.0, 4.0), (60.0, 120.0)])
def test_who_follows_rests_longer_than_it_looks(looked: float, rested: float) -> None:
    """An offset map of gigabytes is not read from its beginning second after second."""
    clock = PlayedClock()
    wait_for_round(looked, [], clock)
    assert clock.now == pytest.approx(rested)


def test_a_signal_ends_a_long_rest_within_a_second() -> None:
    """It is caught by a handler, after which a sleep goes on."""
    caught: list[int] = []

    class Interrupted(PlayedClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            caught.append(15)

    clock = Interrupted()
    wait_for_round(60.0, caught, clock)
    assert clock.now <= 1.0
