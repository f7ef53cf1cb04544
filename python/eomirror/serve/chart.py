"""Turns the values of a history into lines of a picture, with their figures in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.clock import utc
from eomirror.serve.history import PERIODS, SAMPLE_SECONDS
from eomirror.serve.markup import count, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.serve.history import Lines

__all__ = ["HEIGHT", "Chart", "charts"]

#: Height of a picture in its own units; its width is the number of values of the period.
HEIGHT = 100

_TITLES: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "lag_records": ("Lag, records", count),
    "lag_seconds": ("Lag, time", seconds),
    "rate": ("Records per second", count),
    "commit_seconds": ("Time of a commit", seconds),
}
# the line keeps off the upper end, which would cut it
_TOP = 4


@dataclass(frozen=True, slots=True)
class Chart:
    """
    One line over one period.

    Attributes:
        title: Its name.
        label: The picture in words.
        last: Newest value; empty where it is the largest or mean of minutes, which is not the present.
        low: Smallest value.
        high: Largest value.
        path: The line, as data of an SVG path.
        area: The area below it.
        width: Width of the picture in its own units.
        begin: Time at the left end.
        end: Time at the right end.
    """

    title: str
    label: str
    last: str
    low: str
    high: str
    path: str
    area: str
    width: int
    begin: str
    end: str


def charts(history: Lines, wall_ms: int) -> list[tuple[str, list[Chart]]]:
    """
    Returns the charts of each period that has a known value.

    Args:
        history: Lines of a link or topic (`eomirror.serve.history.Series.lines`).
        wall_ms: Time of the newest value.
    """
    found = []
    for period, lines in history.items():
        made = [
            _chart(title, shown, lines[line], period, wall_ms)
            for line, (title, shown) in _TITLES.items()
            if any(value is not None for value in lines.get(line, ()))
        ]
        if made:
            found.append((period, made))
    return found


def _chart(
    title: str,
    shown: Callable[[float | None], str],
    values: Sequence[float | None],
    period: str,
    wall_ms: int,
) -> Chart:
    step, slots = PERIODS[period]
    known = [value for value in values if value is not None]
    low, high = min(known), max(known)
    path, area = _paths(values, slots, high)
    last = shown(values[-1])
    # the newest value changes before the words do: a reader of the screen is told the range
    return Chart(
        title=title,
        label=f"{title}, last {period}: {last} at the end, between {shown(low)} and {shown(high)}",
        last="" if step > SAMPLE_SECONDS else last,
        low=shown(low),
        high=shown(high),
        path=path,
        area=area,
        width=slots - 1,
        begin=_clock(wall_ms - step * slots * 1000, dated=step > SAMPLE_SECONDS),
        end=_clock(wall_ms),
    )


def _clock(wall_ms: int, *, dated: bool = False) -> str:
    shown = utc(wall_ms).replace("T", " ")
    return shown[5:16] if dated else shown[11:16]


def _paths(values: Sequence[float | None], slots: int, high: float) -> tuple[str, str]:
    """Returns line and area; a time without a value is a gap in both."""
    first = slots - len(values)
    line, area = [], []
    run: list[tuple[int, int]] = []
    for at, value in enumerate([*values, None]):
        if value is not None:
            share = value / high if high else 0.0
            run.append((first + at, HEIGHT - round(share * (HEIGHT - _TOP))))
        elif run:
            points = _corners(run)
            line.append("M" + "L".join(f"{x} {y}" for x, y in points) + ("h.01" if len(points) == 1 else ""))
            area.append(
                f"M{points[0][0]} {HEIGHT}L" + "L".join(f"{x} {y}" for x, y in points) + f"V{HEIGHT}z"
            )
            run = []
    return "".join(line), "".join(area)


def _corners(run: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns the points of a line without those between two at the same height."""
    return [
        point
        for at, point in enumerate(run)
        if not (0 < at < len(run) - 1 and run[at - 1][1] == point[1] == run[at + 1][1])
    ]
