"""``eomirror status``: shows position, lag, owner and problems of every link, without a running mirror."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.render import (
    escape,
    human_count,
    human_rate,
    human_seconds,
    human_things,
    print_table,
    verdict_lines,
)
from eomirror.cli.watch import View, judge, watched
from eomirror.errors import NotReadyError
from eomirror.records.promotion import standing_fence
from eomirror.status.lag import topic_state
from eomirror.status.retention import RETENTION_FIX, retention_text, risky_rows

if TYPE_CHECKING:
    from rich.console import Console

    from eomirror.metrics.verdict import Verdict
    from eomirror.status.lag import LagRow
    from eomirror.status.model import GroupsStatus, LinkStatus, PartitionStatus

__all__ = ["status"]


@click.command(epilog="Example: eomirror status mirror.yaml --watch")
@options.config
@options.links
@click.option(
    "--watch", is_flag=True, help="Redraw every 2 s until q or Ctrl-C; arrows and Page Down scroll."
)
@click.option("--partitions", is_flag=True, help="One row for each partition, not for each topic.")
@click.option("--exit-code", is_flag=True, help="Exit with 6 if a link needs an action, for cron and Nagios.")
@options.overrides
@options.output()
def status(
    config: str,
    links: tuple[str, ...],
    watch: bool,
    partitions: bool,
    exit_code: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show verdict, position, lag in records and seconds, rate, owner and last commit of every link.

    Reads the target's eomirror topics and the source's end offsets; needs no running mirror.  A dash means unknown.
    Lag in seconds is the age of the oldest record that is not mirrored yet.

    A topic that was deleted, recreated or truncated on either side is shown with its problem and the fix, without a
    lag.  A topic that the mirror has stopped is shown with reason and fix until it resumes, also after the mirror
    has ended.  An owner with an old claim is watched for 7 s before it is called silent, because either clock may be
    wrong.

    Without --link, Spark queries that write to a cluster of the configuration through eomirror's sink are shown like
    links, as "sink NAME".  Their position is the progress record of the sink; nothing tells if they run.

    Links are read concurrently; an unreachable cluster is retried for 2.5 s, with more than 8 links for up to 10.5 s.
    With several links, or with --watch, a link whose target does not answer is shown as unknown.

    Exit codes: 0 done, also if a topic has a problem; 1 a link is unknown; 6 with --exit-code: a link needs an action.
    """
    from eomirror.config import load_config
    from eomirror.metrics.verdict import NO_ACTION

    loaded = load_config(config, overrides=overrides)
    verdict_of = judge(loaded)
    judged: list[tuple[LinkStatus, Verdict]] = []

    def view(found: list[LinkStatus]) -> View:
        judged[:] = [(item, verdict_of(item)) for item in found]
        return View(
            body=lambda: {"links": [_body(*each) for each in judged]},
            draw=lambda console, _: _draw(judged, console, partitions=partitions),
        )

    found = watched(loaded, links, view, output, watch=watch, sinks=not links)
    if any(item.unread for item in found):
        return 1
    ours = {link.name for link in loaded.links}
    # a Spark query that writes through a sink runs when its owner wants
    acts = any(item.link in ours and verdict.word not in NO_ACTION for item, verdict in judged)
    return NotReadyError.exit_code if exit_code and found and acts else 0


def _body(item: LinkStatus, verdict: Verdict) -> dict[str, Any]:
    from eomirror.clock import utc

    return {
        **item.as_dict(),
        "verdict": verdict.word,
        "since": None if verdict.since_ms is None else utc(verdict.since_ms),
        "reason": verdict.text,
        "fix": item.fix or verdict.fix,
        "failover": verdict.failover,
    }


def _draw(found: list[tuple[LinkStatus, Verdict]], console: Console, *, partitions: bool) -> None:
    from eomirror.status.derive import planes_line
    from eomirror.status.lag import lag_rows
    from eomirror.status.model import rule_counts, slots_line

    for item, verdict in found:
        _draw_head(console, item, verdict)
        if text := planes_line(item.lanes.values()):
            console.print(escape(text))
        if text := slots_line(item.lanes.values()):
            console.print(escape(text))
        if item.remark:
            console.print(escape(item.remark))
        if copied := sum(partition.copied_headers for partition in item.partitions):
            console.print(f"{human_count(copied)} records carried a copied header and were mirrored as local")
        for topic, rule, dropped, changed in rule_counts(item.partitions):
            text = f"{topic}: {rule} left out {human_count(dropped)} records"
            # how many a query changed is not known
            console.print(escape(text if rule == "query" else f"{text} and changed {human_count(changed)}"))
        _draw_reports(console, item)
        if item.groups is not None:
            _draw_groups(console, item.groups, item.clock_offset_seconds)
        rows = [_row(partition, ended=item.ended) for partition in item.partitions]
        if not partitions:
            rows = [_topic_row(row) for row in lag_rows([item], partitions=False, parked=True)]
        print_table(
            console,
            rows,
            right=("P", "PARTS", "LANE", "POSITION", "LAG", "LAG s", "RATE", "RECORDS"),
            optional=("RECORDS", "TARGET", "LANE", "RATE"),
        )
        _draw_problems(console, item)


def _draw_head(console: Console, item: LinkStatus, verdict: Verdict) -> None:
    """Draws the verdict on a link, its owner, and a problem with reading it."""
    for line in verdict_lines(item, verdict):
        console.print(line)
    _draw_owner(console, item)
    if item.paused is not None:
        console.print(
            f"[yellow]paused[/yellow]: topics {escape(item.paused.pattern)}, by {escape(item.paused.host)}; to go "
            f"on: eomirror resume CONFIG --link {escape(quote(item.link))}"
        )
    if item.fence is not None:
        text, fix = standing_fence(item.link, item.fence)
        console.print(f"[yellow]fenced[/yellow]: {escape(text)}\n  fix: {escape(fix)}")
    if item.clock_offset_seconds:
        how = "ahead of" if item.clock_offset_seconds > 0 else "behind"
        far = human_seconds(abs(item.clock_offset_seconds))
        console.print(
            f"[yellow]clocks disagree[/yellow]: the owner's clock is {far} {how} this machine's, "
            "so lag in seconds is unknown"
        )
    if item.problem and item.problem not in verdict.text:
        what = "cannot be read" if item.unread else "source cannot be read"
        console.print(f"[red]{what}[/red]: {escape(item.problem)}")
        if item.fix:
            console.print(f"  fix: {escape(item.fix)}")
    if item.known_lost is not None:
        console.print(
            f"not mirrored of what the mirror had seen of the source {human_seconds(item.source_seen_seconds)} ago: "
            + human_things(item.known_lost, "offset")
        )
    _draw_orphans(console, item)
    for drifted in item.drifted:
        console.print(f"[red]problem[/red]: {escape(drifted)}")
    _draw_retention(console, item)


def _draw_owner(console: Console, item: LinkStatus) -> None:
    """Draws the owner of the link, the last move that balanced its lanes, and the processes that stand by."""
    from eomirror.clock import utc

    if owner := item.owner:
        console.print(f"owner {owner.host}/{owner.pid} run {owner.run}", markup=False, style="dim")
    for move in [each for each in item.events if each.kind == "balance"][-1:]:
        text = f"lanes balanced at {utc(move.at)}: {move.text}"
        console.print(text, markup=False, style="dim", soft_wrap=True)
    for one in item.standbys:
        line = f"standby {one.host}/{one.pid} run {one.run} since {utc(one.since)}"
        console.print(line, markup=False, style="dim")


def _draw_orphans(console: Console, item: LinkStatus) -> None:
    """Draws what others wrote behind the link, and what a promotion left on the old source."""
    for one in item.foreign:
        console.print(
            f"[yellow]foreign[/yellow]: other producers have written behind the link: {escape(one.target_topic)}-"
            f"{one.partition} [{one.start}, {one.end})"
        )
    if (found := item.orphans) is None:
        return
    if found.offsets:
        first = found.ranges[0]
        more = f" and {len(found.ranges) - 1} more" if len(found.ranges) > 1 else ""
        console.print(
            f"[yellow]orphans[/yellow]: {'at least ' if found.at_least else ''}"
            f"{human_things(found.offsets, 'offset')} beyond the cut have no copy: "
            f"{escape(first.topic)}-{first.partition} [{first.start}, {first.end}){more}",
            highlight=False,
        )
        look = f"eomirror restore CONFIG --link {escape(quote(item.link))} --dry-run"
        console.print(f"  fix: {look} shows each way to deal with them")
    if found.decided:
        texts = (f"{human_count(records)} by {action}" for action, records in sorted(found.decided.items()))
        console.print(f"orphans that were dealt with: {', '.join(texts)}")


def _draw_retention(console: Console, item: LinkStatus) -> None:
    """Draws the topics whose records the source may delete before they are mirrored."""
    if near := risky_rows(item.retention):
        more = f"; so for {human_things(len(near) - 1, 'more topic')}" if len(near) > 1 else ""
        console.print(f"[red]at risk[/red]: {escape(retention_text(near[0]))}{more}")
        console.print(f"  fix: {RETENTION_FIX}")


def _draw_reports(console: Console, item: LinkStatus) -> None:
    """Draws restarts of lanes, the last comparisons in sum, and the last drill."""
    from eomirror.clock import SYSTEM_CLOCK

    now_ms = SYSTEM_CLOCK.wall_ms()
    for one in item.restarts:
        console.print(
            f"lane {one.lane} ended early {human_things(one.count, 'time')}, last {_ago(one.timestamp, now_ms)}: "
            + escape(f"{one.ending}: {one.reason}")
        )
    for group, reason in ({} if item.left_groups is None else item.left_groups.groups).items():
        console.print(f"[yellow]group {escape(group)} is left alone[/]: {escape(reason)}")
    if (schemas := item.schemas) is not None:
        colour = (
            "green" if schemas.state == "mirrored" else "yellow" if schemas.state == "conflict" else "red"
        )
        seen = "" if schemas.age_seconds is None else f", as of {human_seconds(schemas.age_seconds)} ago"
        pending = f", {human_things(schemas.pending, 'change')} to make" if schemas.pending else ""
        console.print(
            f"schemas [{colour}]{schemas.state}[/{colour}]: {human_things(schemas.subjects, 'subject')}, "
            f"{human_things(schemas.versions, 'version')}{pending}{seen}",
            highlight=False,
        )
        if schemas.problem:
            more = (
                f"; so for {human_things(schemas.conflicts - 1, 'more subject')}"
                if schemas.conflicts > 1
                else ""
            )
            console.print(escape(f"  {schemas.problem}{more}"), highlight=False)
            console.print(escape(f"  fix: {schemas.fix}"), highlight=False)
    if item.verifications:
        compared = [one.result for one in item.verifications]
        differ = [one.topic for one in compared if one.outcome == "differs"]
        since = sum(one.unverified for one in item.verifications)
        oldest = min(one.timestamp for one in compared)
        # `verify --since` and --from-offset
        part = sum(bool(one.from_offset or one.since) for one in compared)
        console.print(
            f"{human_things(len(compared), 'topic')} compared with the source, the oldest {_ago(oldest, now_ms)}; "
            f"{human_count(since)} offsets were mirrored since"
            + (f"; of {human_things(part, 'topic')} only a part" if part else "")
        )
        if differ:
            more = f" and {len(differ) - 1} more" if len(differ) > 1 else ""
            console.print(f"[red]differs[/red]: {escape(differ[0])}{more}")
            console.print(
                "  fix: eomirror verify CONFIG shows the records; see the runbook of EomirrorVerifyDiffers"
            )
    if (refused := item.refused_configuration) is not None:
        console.print(
            f"[yellow]the changed configuration is refused[/], {_ago(refused.timestamp, now_ms)}; the one of before "
            f"stays in force: {escape(refused.reason)}",
            soft_wrap=True,
        )
    _draw_alike(console, item, now_ms)
    if (tail := item.tail) is not None:
        colour = "green" if tail.outcome == "equal" else "red"
        console.print(
            f"only the last {tail.tail:,} offsets of each partition were compared before a "
            f"{escape(tail.command)}, {_ago(tail.timestamp, now_ms)}: [{colour}]{escape(tail.outcome)}[/{colour}]"
        )
    if (drill := item.drill) is not None:
        result = "passed" if drill.passed else "[red]failed[/red]"
        where = f" at the stage {escape(drill.stage)}" if drill.stage else ""
        console.print(f"the last drill {result}{where}, {_ago(drill.timestamp, now_ms)}")


def _draw_alike(console: Console, item: LinkStatus, now_ms: int) -> None:
    """Draws what was changed on the target last, and what stands."""
    if (alike := item.comparison) is None:
        return
    for what, reason in sorted(alike.problems.items()):
        console.print(f"[yellow]not kept alike[/]: {escape(f'{what}: {reason}')}", soft_wrap=True)
    if alike.standing:
        console.print(
            f"{human_things(alike.standing, 'difference')} of ACL entries, quotas or copies on the target: "
            "eomirror plan CONFIG"
        )
    if alike.changed_at:
        signs = ", ".join(f"{sign} {human_count(count)}" for sign, count in sorted(alike.changed.items()))
        console.print(
            f"the target was last changed {_ago(alike.changed_at, now_ms)}: {signs}", highlight=False
        )


def _ago(at: int, now_ms: int) -> str:
    return f"{human_seconds(max(0.0, (now_ms - at) / 1000))} ago"


def _draw_problems(console: Console, item: LinkStatus) -> None:
    if item.awaited:
        console.print(
            f"[yellow]waits[/yellow] for topics that the source lacks: {escape(', '.join(item.awaited))}",
            highlight=False,
        )
    for stop in item.stopped:
        console.print(f"[red]stopped[/red]: {escape(stop.topic)}: {escape(stop.reason)}")
        if stop.fix:
            console.print(f"  fix: {escape(stop.fix)}")
    # a stop is shown once per topic, not per partition, and so is a problem whose fix is that of the topic
    shown = {(stop.topic, stop.reason) for stop in item.stopped}
    mended = {(stop.topic, stop.fix) for stop in item.stopped if stop.fix}
    problems = [("", one.problem, one.fix) for one in item.hanging]
    problems += [
        (one.topic, one.problem, one.fix)
        for one in item.partitions
        if one.problem and (one.topic, one.problem) not in shown and (one.topic, one.fix) not in mended
    ]
    # a hanging transaction on a target partition is also the problem of that partition
    listed: dict[tuple[str, str], list[str]] = {}
    for topic, problem, fix in dict.fromkeys(problems):
        if problem not in listed.get(("", fix), ()):
            listed.setdefault((topic, fix), []).append(problem)
    for (_, fix), alike in listed.items():
        more = f"; so for {human_things(len(alike) - 1, 'more partition')}" if len(alike) > 1 else ""
        console.print(f"[red]problem[/red]: {escape(alike[0])}{more}")
        console.print(f"  fix: {escape(fix)}")


def _draw_groups(console: Console, groups: GroupsStatus, clock_offset_seconds: float) -> None:
    from eomirror.clock import SYSTEM_CLOCK

    text = f"{human_things(groups.followed, 'group')} followed, {human_things(groups.offsets, 'checkpoint')}"
    if groups.last_checkpoint is not None:
        since = (SYSTEM_CLOCK.wall_ms() - groups.last_checkpoint) / 1000
        text += f", the newest {human_seconds(max(0.0, since + clock_offset_seconds))} old"
    console.print(text)
    if groups.unreadable:
        console.print(
            f"{human_count(groups.unreadable)} records are not valid checkpoints and are skipped; the first: "
            + escape(groups.first_unreadable)
        )


def _row(partition: PartitionStatus, *, ended: bool) -> dict[str, object]:
    # what the link back of a promoted link writes would look like a lag that grows
    lag, seconds = (None, None) if ended else (partition.lag_records, partition.lag_seconds)
    return {
        "TOPIC": partition.topic,
        "P": partition.partition,
        "TARGET": partition.target_topic,
        "LANE": partition.lane,
        "POSITION": human_count(partition.position),
        "LAG": human_count(lag),
        "LAG s": human_seconds(seconds),
        "RATE": human_rate(partition.rate),
        "RECORDS": human_count(partition.records),
        "STATE": topic_state([partition]),
    }


def _topic_row(row: LagRow) -> dict[str, object]:
    return {
        "TOPIC": row.topic,
        "PARTS": row.partitions,
        "TARGET": row.target_topic,
        "LAG": human_count(row.lag_records),
        "LAG s": human_seconds(row.lag_seconds),
        "RATE": human_rate(row.rate),
        "RECORDS": human_count(row.records),
        "STATE": row.state,
    }
