"""What a person sees while a mirror runs: events as lines, and a live table of links on a terminal."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from rich.console import Console
from rich.live import Live

from eomirror.cli.render import human_bytes, human_count, human_rate, human_seconds, human_things, table
from eomirror.log import LossyStream
from eomirror.status import planes_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from eomirror.progress import LinkSnapshot, RunReport, Snapshot, TopicSnapshot

__all__ = ["ProgressDisplay", "groups_line", "lanes_line", "progress_line"]

_LINES_EVERY_SECONDS = 10.0
_MOST_TOPICS = 20
# some reasons name their group, and then there are as many as groups
_MOST_REASONS = 4


class ProgressDisplay:
    """
    Draws on stderr, so that stdout stays for results.

    On a terminal, a table that is redrawn in place; elsewhere a line every 10 s.
    """

    def __init__(self) -> None:
        # what cannot be shown must not end what is done
        self._console = Console(file=cast("TextIO", LossyStream(sys.stderr)))
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._last_line = float("-inf")

    def event(self, text: str) -> None:
        """Say in a line what is being done; may be called from several threads."""
        with self._lock:
            self._console.print(text, style="dim", highlight=False, markup=False, soft_wrap=True)

    def update(self, snapshot: Snapshot) -> None:
        """Show where the mirror stands."""
        if self._live is not None:
            self._live.update(_draw(snapshot), refresh=True)
        elif snapshot.seconds - self._last_line >= _LINES_EVERY_SECONDS:
            self._last_line = snapshot.seconds
            for link in snapshot.links:
                self.event(progress_line(link))
                if text := lanes_line(link):
                    self.event(f"{link.link}: {text}")
                if text := groups_line(link):
                    self.event(f"{link.link}: {text}")

    def summary(self, report: RunReport) -> None:
        """Say how the run ended."""
        for link in report.links:
            text = (
                f"{link.link}: {link.outcome}; {human_count(link.counters.records)} records "
                f"({human_bytes(link.counters.bytes)}) in {human_count(link.counters.transactions)} transactions"
                f", {human_seconds(report.seconds)}"
            )
            if link.counters.dropped:
                text += f", {human_count(link.counters.dropped)} dropped on purpose"
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
            for topic, reason in link.stopped_topics.items():
                self._console.print(
                    f"  {topic} is stopped: {reason}",
                    style="red",
                    highlight=False,
                    markup=False,
                    soft_wrap=True,
                )

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def progress_line(link: LinkSnapshot) -> str:
    """Where a link stands, in a line."""
    stopped = len(link.stopped_topics)
    stops = f", {stopped} {'topic' if stopped == 1 else 'topics'} stopped" if stopped else ""
    goals = f", {link.goals_reached}/{link.goals} partitions caught up" if link.goals else ""
    return (
        f"{link.link}: {link.state}, {human_count(link.counters.records)} records, "
        f"{human_rate(link.records_per_second)}, lag {human_count(link.lag_records)} records "
        f"{human_seconds(link.lag_seconds)}{stops}{goals}"
    )


def lanes_line(link: LinkSnapshot) -> str:
    """Which planes serve a link, and what holds it back; empty where there is nothing to say."""
    line = planes_line((lane.lane, lane.plane, lane.plane_reason) for lane in link.lanes)
    throttled = sum(lane.throttled_seconds or 0.0 for lane in link.lanes)
    if throttled:
        line += f"; held back by brokers' quotas for {human_seconds(throttled)}"
    return line + "".join(f"; lane {lane.lane}: {lane.delayed}" for lane in link.lanes if lane.delayed)


def groups_line(link: LinkSnapshot) -> str:
    """How a link follows consumer groups, in a line; empty where there is nothing to say."""
    groups = link.groups
    if groups is None or not (groups.followed or groups.skipped or groups.error):
        return ""
    parts = [
        f"{human_things(groups.followed, 'group')} followed, seen {human_seconds(groups.age_seconds)} ago"
    ]
    parts += _reasons(groups.pending, "offset", ":")
    parts += _reasons(groups.skipped, "group", " left alone:")
    if groups.error:
        parts.append(f"not followed now: {groups.error}")
    return "; ".join(parts)


def _reasons(counts: Mapping[str, int], thing: str, what: str) -> list[str]:
    """How many things for each reason, the most frequent ones."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{human_things(count, thing)}{what} {why}" for why, count in ranked[:_MOST_REASONS]]
    if others := ranked[_MOST_REASONS:]:
        count = sum(count for _, count in others)
        shown.append(
            f"{human_things(count, thing)}{what.rstrip(':')} for {human_things(len(others), 'other reason')}"
        )
    return shown


def _by_need(topic: TopicSnapshot) -> tuple[bool, bool, int]:
    """What a person should see comes first: what is stopped, of what nothing is known, what lags most."""
    return not topic.stopped, topic.lag_records is not None, -(topic.lag_records or 0)


def _draw(snapshot: Snapshot) -> Any:
    from rich.console import Group
    from rich.markup import escape

    from eomirror.log import printable

    parts: list[Any] = []
    for link in snapshot.links:
        lanes = "  ".join(f"lane {lane.lane}: {lane.state}" for lane in link.lanes)
        parts.append(f"[bold]{link.link}[/bold]  {progress_line(link).partition(': ')[2]}")
        parts.append(f"[dim]{lanes}  last commit {link.commit_ms:.0f} ms[/dim]")
        said = [text for text in (lanes_line(link), groups_line(link)) if text]
        parts += [f"[dim]{escape(printable(text))}[/dim]" for text in said]
        rows = [
            {
                "TOPIC": topic.topic,
                "TARGET": topic.target_topic,
                "PARTITIONS": len(topic.partitions),
                "LAG": human_count(topic.lag_records),
                "LAG s": human_seconds(topic.lag_seconds),
                "STATE": "stopped" if topic.stopped else "mirrored",
            }
            for topic in sorted(link.topics, key=_by_need)[:_MOST_TOPICS]
        ]
        if rows:
            parts.append(table(list(rows[0]), rows, right=("PARTITIONS", "LAG", "LAG s")))
        if len(link.topics) > _MOST_TOPICS:
            parts.append(f"[dim]and {len(link.topics) - _MOST_TOPICS} more topics[/dim]")
    return Group(*parts)
