"""The history of a link: an hour in fine steps, a day in coarse ones, bounds, and gaps where nothing is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from eomirror.serve.history import MOST_TOPICS, PERIODS, LinkSeries, Series, topics_each
from eomirror.status.model import LinkStatus

if TYPE_CHECKING:
    from collections.abc import Mapping


def body(
    lag: int | None, topics: Mapping[str, int | None] | None = None, state: str = "running", rate: float = 7.0
) -> Any:
    """A link, as far as the history reads it; one that cannot be read has no times of commits."""
    rows = [
        SimpleNamespace(topic=name, lag_records=each, lag_seconds=1.0, rate=5.0)
        for name, each in (topics or {}).items()
    ]
    status = LinkStatus(link="l", state=state, lag_records=lag, lag_seconds=0.5, rate=rate)
    work = None if status.unread else SimpleNamespace(commit_seconds=0.02)
    return SimpleNamespace(status=status, work=work, topic_rows=rows)


def test_an_hour_is_fine_and_a_day_is_coarse() -> None:
    """A day of samples ends as 360 and 288 values; of lags the largest of a step counts, rates are averaged."""
    series = Series(4)
    for at in range(0, 86_400 + 600, 3):
        series.put(1_000_000 + at, (at, None, 10.0 if at % 2 else 20.0, 0.1))
    found = series.lines(1_000_000 + 86_400 + 599)
    assert {name: len(lines["lag_records"]) for name, lines in found.items()} == {"hour": 360, "day": 288}
    assert found["hour"]["lag_records"][-1] == 86_400 + 597
    assert PERIODS["day"][0] == 300
    assert set(found["day"]["lag_seconds"]) == {None}
    assert all(abs(rate - 15.0) < 3 for rate in found["day"]["rate"])
    assert found["hour"]["commit_seconds"][0] == 0.1


def test_a_time_without_a_sample_is_a_gap() -> None:
    """It is known for some seconds after a sample, then unknown, also up to now; a week overwrites all."""
    history = LinkSeries(10)
    history.add(body(5), 1_000)
    history.add(body(None), 1_010)
    history.add(body(7), 1_100)
    hour = history.link(1_115)["hour"]
    assert hour["lag_records"] == [5, *[None] * 9, 7, 7]
    assert hour["rate"] == [*[7] * 6, *[None] * 4, 7, 7]
    history.add(body(2), 1_116)
    assert history.link(1_116)["hour"]["lag_records"][-2:] == [7, 2]
    assert history.link(1_000_000)["day"]["lag_records"] == []
    history.add(body(9), 1_000_000)
    assert history.link(1_000_000)["day"]["lag_records"] == [9]


def test_what_cannot_be_read_is_unknown_and_not_zero() -> None:
    """A rate of 0 would look like a link that stands still; a commit that was not heard of has no time."""
    history = LinkSeries(10)
    history.add(body(None, {"t": None}, state="unknown", rate=0.0), 50)
    history.add(body(1, {"t": 1}), 60)
    hour = history.link(60)["hour"]
    assert (hour["rate"], hour["commit_seconds"]) == ([None, 7], [None, 0.02])
    topic = history.topic("t", 60)
    assert topic is not None
    assert topic["hour"]["rate"] == [None, 5]
    assert "commit_seconds" not in topic["hour"]


def test_the_topics_with_most_lag_are_kept() -> None:
    """The bound holds; a topic that lags more than a kept one did takes its place, and small lags push none out."""
    history = LinkSeries(3)
    history.add(body(1, {f"t{number}": number for number in range(6)}), 0)
    assert [history.topic(f"t{number}", 0) is not None for number in range(6)] == [False] * 3 + [True] * 3
    for at in range(10, 100, 10):
        history.add(body(1, {f"t{number}": (at + number) % 3 for number in range(6)}), at)
    assert history.topic("t3", 100) is not None
    history.add(body(1, {"t0": 1_000, "t4": 0, "t5": 0, "t3": 0}), 110)
    assert history.topic("t0", 110) is not None
    assert history.topic("t3", 110) is None
    assert history.topic("t5", 110) is not None


def test_the_memory_of_many_links_has_a_bound() -> None:
    """One link keeps 200 topics; fifty keep what one process may; a topic takes 8 kB."""
    assert topics_each(1) == 200
    assert topics_each(50) * 50 <= MOST_TOPICS
    assert sum(slots for _, slots in PERIODS.values()) * 3 * 4 < 8_192
