"""Progress of a running mirror on stderr: events as log lines, and a live table of links on a terminal."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Self

import structlog
from rich.console import Group
from rich.text import Text

from eomirror.cli.render import (
    human_bytes,
    human_count,
    human_rate,
    human_seconds,
    human_things,
    stdout_console,
    table,
)
from eomirror.log import logs_json, printable
from eomirror.screen import LiveOutput
from eomirror.status.derive import planes_line
from eomirror.status.model import slots_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.status.snapshot import LinkSnapshot, RunReport, Snapshot, TopicSnapshot

__all__ = ["ProgressDisplay", "groups_line", "lanes_line", "progress_line"]

_LINES_EVERY_SECONDS = 10.0
_MOST_TOPICS = 20
# some reasons name their group, so there can be as many as groups
_MOST_REASONS = 4
_ENDS = {"stopping", "done"}


class ProgressDisplay(LiveOutput):
    """
    Shows the progress of a run on stderr; stdout is for results.

    On a terminal, a table below the log lines is redrawn in place.  Elsewhere the progress of each link is logged every
    10 s.
    """

    def __init__(self) -> None:
        super().__init__(line_seconds=_LINES_EVERY_SECONDS)
        self._log = structlog.get_logger(__name__)

    def event(self, text: str) -> None:
        """Logs a line; may be called from several threads."""
        self._log.info(printable(text))

    def update(self, snapshot: Snapshot) -> None:
        """Shows the state of all links."""
        self.show(
            lambda: _draw(snapshot, rows=self.frame.size[1]), lambda: self._log_progress(snapshot.links)
        )

    def _log_progress(self, links: Sequence[LinkSnapshot]) -> None:
        for link in links:
            if logs_json():
                self._log.info("progress", **_fields(link))
                continue
            self.event(progress_line(link))
            for text in (lanes_line(link), groups_line(link)):
                if text:
                    self.event(f"{link.link}: {text}")

    def summary(self, report: RunReport) -> None:
        """Writes the outcome of the run to stdout."""
        console = stdout_console()
        for link in report.links:
            text = (
                f"{link.link}: {link.outcome}; {human_count(link.counters.records)} records "
                f"({human_bytes(link.counters.bytes)}) in {human_count(link.counters.transactions)} transactions"
                f", {human_seconds(report.seconds)}"
            )
            if link.counters.dropped:
                text += f", {human_count(link.counters.dropped)} dropped by configuration"
            if link.counters.copied_headers:
                text += (
                    f", {human_count(link.counters.copied_headers)} with a copied header mirrored as local"
                )
            console.print(printable(text), markup=False)
            for where, offsets in link.behind_open.items():
                # acknowledged records of other producers are among them
                console.print(
                    printable(
                        f"  not mirrored: {human_things(offsets, 'offset')} behind an open transaction of {where}"
                    ),
                    style="yellow",
                    markup=False,
                )
            counters = link.counters
            if link.outcome == "caught up" and not (counters.records or counters.dropped):
                console.print("  nothing was left to copy")
            if link.offsets_left:
                left = human_things(link.offsets_left, "offset")
                console.print(
                    f"  not caught up: {left} left; the next run goes on there", style="yellow", markup=False
                )
            if link.error:
                console.print(printable(f"  not started: {link.error}"), style="red", markup=False)
            for topic, reason in link.stopped_topics.items():
                console.print(printable(f"  {topic} is stopped: {reason}"), style="red", markup=False)

    def __enter__(self) -> Self:
        return self if logs_json() else super().__enter__()


def progress_line(link: LinkSnapshot) -> str:
    """Returns state, records, rate and lag of a link, in one line."""
    stopped = len(link.stopped_topics)
    stops = f", {stopped} {'topic' if stopped == 1 else 'topics'} stopped" if stopped else ""
    unknown = f" (unknown: {link.lag_unknown})" if link.lag_unknown else ""
    goals = f", {link.goals_reached}/{link.goals} partitions caught up{_way(link)}" if link.goals else ""
    return (
        f"{link.link}: {link.state}, {human_count(link.counters.records)} records, "
        f"{human_rate(link.records_per_second)}, lag {human_count(link.lag_records)} records "
        f"{human_seconds(link.lag_seconds)}{unknown}{stops}{goals}"
    )


def _way(link: LinkSnapshot) -> str:
    """Returns what a run that is to catch up has left, and for how long; empty while that is unknown."""
    way = link.goal_progress
    if way is None or not way.left or not way.offsets:
        return ""
    done = 100 * (way.offsets - way.left) // way.offsets
    time = (
        "time left unknown" if way.seconds_left is None else f"about {human_seconds(way.seconds_left)} left"
    )
    return f", {done} % of {human_things(way.offsets, 'offset')}, {time}"


def lanes_line(link: LinkSnapshot) -> str:
    """Returns the planes of a link's lanes and the reasons for delays, in one line; may be empty."""
    line = planes_line(link.lanes)
    throttled = sum(lane.serving.throttled or 0.0 for lane in link.lanes)
    if throttled:
        line += f"; throttled by broker quotas for {human_seconds(throttled)}"
    line += "".join(f"; lane {lane.lane}: {lane.delayed}" for lane in link.lanes if lane.delayed)
    return "; ".join(filter(None, [line, slots_line(link.lanes)]))


def groups_line(link: LinkSnapshot) -> str:
    """Returns how a link follows consumer groups, in one line; may be empty."""
    groups = link.groups
    if groups is None or not (groups.followed or groups.skipped or groups.error):
        return ""
    parts = [
        f"{human_things(groups.followed, 'group')} followed, seen {human_seconds(groups.age_seconds)} ago"
    ]
    parts += _reasons(groups.pending, "offset", ":")
    parts += _reasons(groups.skipped, "group", " left alone:")
    if groups.error:
        parts.append(f"groups cannot be followed: {groups.error}")
    return "; ".join(parts)


def _reasons(counts: Mapping[str, int], thing: str, what: str) -> list[str]:
    """Returns a text per reason with its count, the most frequent reasons first."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{human_things(count, thing)}{what} {why}" for why, count in ranked[:_MOST_REASONS]]
    if others := ranked[_MOST_REASONS:]:
        count = sum(count for _, count in others)
        shown.append(
            f"{human_things(count, thing)}{what.rstrip(':')} for {human_things(len(others), 'other reason')}"
        )
    return shown


def _by_need(topic: TopicSnapshot) -> tuple[bool, bool, int]:
    """Returns a sort key: stopped topics first, then those with unknown lag, then by descending lag."""
    return not topic.stopped, topic.lag_records is not None, -(topic.lag_records or 0)


def _fields(link: LinkSnapshot) -> dict[str, Any]:
    """Returns the fields of the ``progress`` event of a link."""
    way = link.goal_progress
    return {
        "link": link.link,
        "state": link.state,
        "waiting": link.waiting,
        "records": link.counters.records,
        "bytes": link.counters.bytes,
        "transactions": link.counters.transactions,
        "records_per_second": round(link.records_per_second, 1),
        "lag_records": link.lag_records,
        "lag_seconds": link.lag_seconds,
        "lag_unknown": link.lag_unknown,
        **(
            {}
            if way is None
            else {"offsets": way.offsets, "offsets_left": way.left, "seconds_left": way.seconds_left}
        ),
        "stopped_topics": sorted(link.stopped_topics),
        "lanes": lanes_line(link),
        "groups": groups_line(link),
    }


def _lane_states(link: LinkSnapshot) -> str:
    """Returns the number of lanes per state, and the duration of the last commit."""
    states = Counter(lane.state for lane in link.lanes)
    parts = [f"{human_things(count, 'lane')} {state}" for state, count in sorted(states.items())]
    if link.commit_ms:
        parts.append(f"last commit {link.commit_ms:.0f} ms")
    return ", ".join(parts)


def _status_text(link: LinkSnapshot) -> str:
    """Returns the state of a link, without figures that are not known yet."""
    if link.waiting:
        # a link that still waits when the run ends has mirrored nothing
        return f"{'not started' if link.state in _ENDS else link.state}: {link.waiting}"
    if link.lag_records is None and not link.counters.records:
        waits = link.lanes and all(lane.state == "starting" for lane in link.lanes)
        unknown = f", lag unknown: {link.lag_unknown}" if link.lag_unknown and link.state == "running" else ""
        return f"{link.state}, waiting for Spark" if waits else link.state + unknown
    return progress_line(link).partition(": ")[2]


def _draw(snapshot: Snapshot, *, rows: int) -> Group:
    """
    Returns a table for each link.

    Args:
        snapshot: State of all links.
        rows: Rows of the terminal; topics beyond them are only counted.
    """
    parts: list[Any] = []
    # a link has up to four lines, its table three more, and one line counts the topics that are not shown
    room = (rows - 1) // max(1, len(snapshot.links)) - 8
    most = max(1, min(_MOST_TOPICS, room))
    for link in snapshot.links:
        parts.append(Text.assemble((link.link, "bold"), "  ", printable(_status_text(link))))
        details = (_lane_states(link), lanes_line(link), groups_line(link))
        parts += [Text(printable(text), style="dim") for text in details if text]
        topics = [
            {
                "TOPIC": topic.topic,
                "TARGET": topic.target_topic,
                "PARTITIONS": len(topic.partitions),
                "LAG": human_count(topic.lag_records),
                "LAG s": human_seconds(topic.lag_seconds),
                "STATE": "stopped" if topic.stopped else "paused" if topic.paused else "ok",
            }
            for topic in sorted(link.topics, key=_by_need)[:most]
        ]
        if topics:
            right = ("PARTITIONS", "LAG", "LAG s")
            parts.append(
                table(
                    list(topics[0]), topics, right=right, whole=("STATE",), optional=("PARTITIONS", "TARGET")
                )
            )
        if len(link.topics) > most:
            parts.append(Text(f"and {human_things(len(link.topics) - most, 'more topic')}", style="dim"))
    return Group(*parts)
