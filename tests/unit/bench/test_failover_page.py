"""The page of a failover: what is wanted stands beside what was measured."""

from __future__ import annotations

from bench.failover import FailoverTimes, failover_markdown

TIMES = FailoverTimes(
    topics=100,
    groups=1000,
    readiness_seconds=2.5,
    readiness_cpu_seconds=1.75,
    failover_seconds=12.0,
    failover_cpu_seconds=4.0,
    failover_steps={"check": 3_000, "take": 400, "groups": 8_000, "switch": 0},
    cutover_seconds=6.0,
    cutover_cpu_seconds=0.5,
    write_pause_seconds=3.0,
    verify_seconds=1.25,
    cutover_steps={"check": 2_000, "drain": 700, "verify": 1_250, "groups": 0},
)


def test_the_write_pause_is_held_against_its_aim_without_the_comparison() -> None:
    """That one grows with the tail that the user asks for."""
    lines = failover_markdown(TIMES).splitlines()
    assert "| readiness, source dead | 2.50 | 5 | 1.75 |" in lines
    assert "| failover, source dead | 12.00 | 30 | 4.00 |" in lines
    (pause,) = [line for line in lines if "write pause" in line]
    assert "| 1.75 | 2 |" in pause


def test_each_step_has_its_time_in_both_commands() -> None:
    """A step that only one of them takes has a gap; one that takes no time has no row."""
    lines = failover_markdown(TIMES).splitlines()
    assert "| check | 3.00 | 2.00 |" in lines
    assert "| take | 0.40 |  |" in lines
    assert "| drain |  | 0.70 |" in lines
    assert not any("switch" in line for line in lines)
