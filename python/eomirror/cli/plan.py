"""``eomirror plan``: shows what `run` and `apply` would create, change and delete; changes nothing."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from eomirror.cli import options
from eomirror.cli.render import (
    escape,
    human_bytes,
    human_count,
    print_result,
    print_table,
    stdout_console,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eomirror.config import Config, Link
    from eomirror.config.rights import NeededRight
    from eomirror.errors import MirrorError
    from eomirror.kafka.session import LinkSessions
    from eomirror.registry.diff import RegistryPlan
    from eomirror.topics.diff import Change
    from eomirror.topics.discovery import Discovery
    from eomirror.topics.entries import EntryChange
    from eomirror.topics.expected_copy import ExpectedCopy
    from eomirror.topics.plan import Plan

__all__ = ["Planned", "change_row", "draw_stands", "plan", "planned", "stands"]

_TOPICS_SHOWN = 30
_DIFFERS = 3
_ACTIONS = {"+": "add", "~": "change", "-": "delete", "=": "leave"}
_SCHEMAS_SHOWN = 40


@click.command(epilog="Example: eomirror plan mirror.yaml -o json")
@options.config
@options.links
@click.option("--settings", is_flag=True, help="Show every setting of topics that would be created.")
@click.option("--acls", is_flag=True, help="Print the rights that the links need, as kafka-acls.sh commands.")
@click.option("--principal", default="", help="The mirror's user, where CONFIG does not tell it; for --acls.")
@options.overrides
@options.output()
def plan(
    config: str,
    links: tuple[str, ...],
    settings: bool,
    acls: bool,
    principal: str,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Connect to the clusters of CONFIG and show what `run`, or `apply`, would create (+), change (~) and delete (-).

    Of topics, partitions and settings, and with the settings acls, quotas and deletions of ACL entries, client quotas
    and copies whose topic is gone on the source.  What another hand has made on the target stays.  With `schemas`, also
    of both registries; ! is a conflict of ids or versions, which is left alone.

    Also lets the brokers validate names and settings, and names all rights that `run`, `verify` and the failover
    commands lack.  Creates and changes nothing.  A link that cannot run is shown with the reason, beside the others.
    --acls prints the least rights that the links need, for an administrator to run, and does not connect.

    A topic that the link mirrors and that CONFIG no longer takes has a line with a minus.  Of the others it says how
    much a run would copy, and from which offset.  Records are an upper bound, because markers and aborted records have
    offsets, too; bytes are an estimate by the size of the logs on the source's disks.

    Exit codes: 0 there is nothing to change, 3 there is, or schemas have a conflict, 1 a link cannot run, or a registry
    does not answer, 78 the configuration is refused.
    """
    from eomirror.config import load_config
    from eomirror.config.rights import needed_rights
    from eomirror.errors import MirrorError

    loaded = load_config(config, overrides=overrides)
    chosen = loaded.chosen(links)
    if acls:
        return _print_rights(needed_rights(loaded, chosen, principal=principal), output)
    unused = loaded.unused_clusters
    plans = list(planned(loaded, chosen, lambda discovery, _: discovery.plan(), copy=True))
    schemas = {link.name: _schemas(link) for link in chosen if link.schemas is not None}
    structured = [_of_link(link, found, schemas.get(link.name)) for link, found in plans]

    alone = plans[0][1] if len(plans) == 1 else None

    def draw() -> None:
        for link, found in plans:
            if found is alone and isinstance(found, MirrorError):
                # said on stderr
                return
            if isinstance(found, MirrorError):
                _draw_problem(link, found)
            else:
                _draw(link, found.plan, found.copy, settings=settings)
                draw_stands(found)
            if link.name in schemas:
                _draw_schemas(schemas[link.name])
        for alias in unused:
            stdout_console().print(f"note: no link uses cluster {escape(alias)}")

    print_result(output, {"links": structured, "unused_clusters": list(unused)}, draw)
    if isinstance(alone, MirrorError):
        raise alone
    results = (*(found for _, found in plans), *schemas.values())
    codes = [found.exit_code for found in results if isinstance(found, MirrorError)]
    if codes:
        return max(codes)
    return _DIFFERS if any(row["differs"] for row in structured) else 0


class Planned(NamedTuple):
    """
    Plan of a link.

    Attributes:
        copy: Topics that a run would copy; None if that is not asked for.
        lacking: Missing rights without which the link runs.
    """

    plan: Plan
    copy: ExpectedCopy | None = None
    lacking: Sequence[NeededRight] = ()


def planned(
    config: Config,
    chosen: Sequence[Link],
    ask: Callable[[Discovery, LinkSessions], Plan],
    *,
    copy: bool = False,
) -> Iterator[tuple[Link, Planned | MirrorError]]:
    """
    Yields each link with its plan, or with the error that keeps it from running.

    Args:
        ask: Returns the plan of a discovery, with the connections of the link.
        copy: True to look for the topics that a run would copy.
    """
    from eomirror.errors import MirrorError
    from eomirror.kafka.reachability import clusters_of, unreachable_clusters

    # one concurrent check of all clusters: else each link would wait for the same unreachable one
    unreachable = unreachable_clusters(clusters_of(config, chosen))
    for link in chosen:
        try:
            for alias in (link.source, link.target):
                if alias in unreachable:
                    raise unreachable[alias]
            yield link, _plan_of(config, link, ask, copy=copy)
        except MirrorError as error:
            yield link, error


def _plan_of(
    config: Config, link: Link, ask: Callable[[Discovery, LinkSessions], Plan], *, copy: bool
) -> Planned:
    from eomirror.kafka.session import link_sessions
    from eomirror.link.planned_copy import planned_copy
    from eomirror.link.state import link_discovery
    from eomirror.topics.rights import refuse_missing_rights

    source, target = config.clusters[link.source], config.clusters[link.target]
    with closing(link_sessions(link, source, target, "plan")) as sessions:
        lacking = refuse_missing_rights(config, link, sessions)
        found = ask(link_discovery(link, *sessions, clusters=config.clusters), sessions)
        return Planned(found, planned_copy(link, found, sessions) if copy else None, lacking)


def _schemas(link: Link) -> RegistryPlan | MirrorError:
    """Returns what a run would change in the target's schema registry, or the error of a registry."""
    from eomirror.errors import RegistryError
    from eomirror.registry.diff import RegistryPlan
    from eomirror.registry.mirror import planned_schemas

    try:
        return planned_schemas(link) or RegistryPlan()
    except RegistryError as error:
        return error


def _of_link(
    link: Link, found: Planned | MirrorError, schemas: RegistryPlan | MirrorError | None
) -> dict[str, Any]:
    """Returns the plans of a link and of its registries as plain values."""
    from eomirror.errors import MirrorError

    row = _problem(link, found) if isinstance(found, MirrorError) else _structured(link, found)
    if schemas is None:
        return row
    differs = not isinstance(schemas, MirrorError) and schemas.differs
    return {**row, "differs": row.get("differs", False) or differs, "schemas": schemas.as_dict()}


def _draw_schemas(found: RegistryPlan | MirrorError) -> None:
    """Draws what a run would change in the target's schema registry: + ~ -, and ! for a conflict."""
    from eomirror.errors import MirrorError

    console = stdout_console()
    if isinstance(found, MirrorError):
        console.print(f"schemas: [red]not known[/]: {escape(str(found))}", highlight=False)
        return
    console.print(
        f"schemas: {len(found.operations)} changes, {len(found.conflicts)} conflicts", highlight=False
    )
    for line in found.lines[:_SCHEMAS_SHOWN]:
        console.print(escape(line), highlight=False, soft_wrap=True)
    if (more := len(found.lines) - _SCHEMAS_SHOWN) > 0:
        console.print(f"... {more} more: -o json")
    for fix in dict.fromkeys(one.fix for one in found.conflicts):
        console.print(escape(f"  fix: {fix}"), highlight=False, soft_wrap=True)


def _print_rights(needed: Sequence[NeededRight], output: str | None) -> int:
    # lines to paste, also into a file or a pipe
    rows = [need.plain for need in needed]
    print_result(
        output or "table", {"rights": rows}, lambda: click.echo("\n".join(row["command"] for row in rows))
    )
    return 0


def _problem(link: Link, error: MirrorError) -> dict[str, Any]:
    return {
        "name": link.name,
        "source": {"cluster": link.source},
        "target": {"cluster": link.target},
        **error.as_dict(),
    }


def _structured(link: Link, found: Planned) -> dict[str, Any]:
    plan_, copy = found.plan, found.copy
    return {
        "name": link.name,
        "source": {"cluster": link.source, "id": plan_.cluster_ids[0]},
        "target": {"cluster": link.target, "id": plan_.cluster_ids[1]},
        "first_run": plan_.first_run,
        "partitions": link.partitions,
        "remark": link.remark or None,
        "topics": dict(sorted(plan_.targets.items())),
        "dropped": [] if copy is None else [one.as_dict() for one in copy.dropped],
        "copy": None if copy is None else copy.as_dict(),
        "differs": plan_.pending,
        "changes": [
            *(_row(*each)[0] for each in _all_changes(plan_)),
            *(change_row(each) for each in plan_.entries.diff.changes),
        ],
        **stands(found),
        "unmatched_patterns": plan_.unmatched(link.topics),
        "awaited": [{"topic": topic, "fix": fix} for topic, fix in plan_.awaited.items()],
        "left_out": [{"reason": reason, "topics": list(topics)} for reason, topics in plan_.left_out.items()],
        "warnings": [
            {"topic": drift.topic, "setting": drift.setting, "wanted": drift.wanted, "found": drift.found}
            for drift in plan_.drifts
        ],
    }


def stands(found: Planned) -> dict[str, Any]:
    """Returns what stands in the way of keeping the target alike, as plain values."""
    entries = found.plan.entries
    return {
        "problems": [{"what": what, **error.as_dict()} for what, error in sorted(entries.problems.items())],
        "lacking_rights": [need.plain for need in found.lacking],
        "missing_users": [user._asdict() for user in entries.users],
    }


def change_row(change: EntryChange) -> dict[str, Any]:
    """Returns the difference of an entry as plain values."""
    from eomirror.topics.entries import entry_kind

    entry: dict[str, Any] = change.entry._asdict()
    if "entity" in entry:
        entry["entity"] = dict(entry["entity"])
    return {
        "sign": change.sign,
        "action": _ACTIONS[change.sign],
        "what": entry_kind(change.entry),
        "entry": entry,
        "value": change.value,
        "before": change.before,
        "due": change.due,
        "reason": change.reason or None,
    }


def _all_changes(plan_: Plan) -> Iterator[tuple[str | None, Change]]:
    """Yields each change with its source topic; None for the link's own topics."""
    for own in (*plan_.state, *plan_.readers, *plan_.readers_on_source):
        yield None, own
    for topic, changes in sorted(plan_.changes.items()):
        for change in changes:
            yield topic, change


def _row(source: str | None, change: Change) -> tuple[dict[str, Any], str]:
    """Returns a change as plain values, and its description."""
    from eomirror.kafka.cluster_metadata import CreateTopic
    from eomirror.topics.diff import AddPartitions, AlterConfig, Differs, Surplus

    if isinstance(change, CreateTopic):
        copies = "replica" if change.replication_factor == 1 else "replicas"
        parts = [_partitions(change.partitions), f"{change.replication_factor} {copies}"]
        what = ", ".join(filter(None, (*parts, change.configs.get("cleanup.policy"))))
        action, more = (
            "create",
            {
                "partitions": change.partitions,
                "replication_factor": change.replication_factor,
                "configs": dict(sorted(change.configs.items())),
            },
        )
    elif isinstance(change, AddPartitions):
        what = f"from {change.before} to {_partitions(change.total)}"
        action, more = "grow", {"before": change.before, "partitions": change.total}
    elif isinstance(change, AlterConfig):
        what = "; ".join(f"{key}: {change.before[key]} -> {value}" for key, value in change.values.items())
        action, more = "configure", {"before": dict(change.before), "configs": dict(change.values)}
    elif isinstance(change, Differs):
        texts = (f"{key}: {change.found[key]}, not {value}" for key, value in change.wanted.items())
        what = f"left to the target: {'; '.join(texts)}"
        action, more = "leave", {"found": dict(change.found), "wanted": dict(change.wanted)}
    elif isinstance(change, Surplus):
        what = f"{_partitions(change.partitions)}, the source has {change.source_partitions}; the others stay empty"
        action, more = (
            "keep",
            {"partitions": change.partitions, "source_partitions": change.source_partitions},
        )
    else:
        what = f"not mirrored: {change.reason}; fix: {change.fix}"
        refusal = {
            "sign": "!",
            "action": "refuse",
            "what": "topic",
            "source": source,
            "reason": change.reason,
            "fix": change.fix,
        }
        return refusal, what
    sign = {"create": "+", "leave": "=", "keep": "="}.get(action, "~")
    return {
        "sign": sign,
        "action": action,
        "what": "topic",
        "source": source,
        "topic": change.name,
        **more,
    }, what


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


def _draw_problem(link: Link, error: MirrorError) -> None:
    stdout_console().print(f"[bold]{escape(link.name)}[/]: [red]cannot run[/]: {escape(str(error))}")


def _settings(plan_: Plan) -> dict[str, list[str]]:
    """Returns the topics to create, grouped by their settings."""
    from eomirror.kafka.cluster_metadata import CreateTopic

    found: dict[str, list[str]] = {}
    for _, change in _all_changes(plan_):
        if isinstance(change, CreateTopic):
            text = "\n".join(f"  {key}={value}" for key, value in sorted(change.configs.items()))
            found.setdefault(text, []).append(change.name)
    return found


def _draw_copy(copy: ExpectedCopy) -> None:
    """Draws what leaves, and how much a run would copy."""
    console = stdout_console()
    for one in copy.dropped:
        console.print(
            f"[red]-[/red] {escape(one.topic)}: would no longer be mirrored ({human_count(one.records)} so far)"
            + (f": {escape(one.reason)}" if one.reason else ""),
            highlight=False,
            soft_wrap=True,
        )
    if copy.problem:
        console.print(f"how much would be copied is not known: {escape(copy.problem)}")
        return
    left = [one for one in copy.topics if one.records != 0]
    rows = [
        {
            "topic": one.topic,
            "copy": "begins" if one.is_new else "goes on",
            "from offset": _span([each.begins for each in one.partitions]),
            "records": "not known" if one.records is None else f"at most {human_count(one.records)}",
            "bytes": "not known" if one.bytes is None else f"about {human_bytes(one.bytes)}",
        }
        for one in left[:_TOPICS_SHOWN]
    ]
    print_table(console, rows, right=("from offset", "records", "bytes"))
    if len(left) > _TOPICS_SHOWN:
        console.print(f"... {len(left) - _TOPICS_SHOWN} more topics: -o json")
    records = "an unknown number of" if copy.records is None else f"at most {human_count(copy.records)}"
    size = "bytes not known" if copy.bytes is None else f"about {human_bytes(copy.bytes)}"
    reason = f": {copy.bytes_problem}" if copy.bytes is None and copy.bytes_problem else ""
    text = f"to copy: {records} records, {size}{reason}" if left else "to copy: nothing more at the moment"
    console.print(escape(text), highlight=False, soft_wrap=True)


def _span(offsets: Sequence[int | None]) -> str:
    """Returns the offset, or the smallest and the largest of several partitions."""
    known = [one for one in offsets if one is not None]
    if not known:
        return "not known"
    low, high = min(known), max(known)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _draw_not_mirrored(link: Link, plan_: Plan) -> None:
    console = stdout_console()
    for reason, topics in plan_.left_out.items():
        what = "topic is" if len(topics) == 1 else "topics are"
        names = ", ".join(map(escape, topics))
        console.print(f"{len(topics)} {what} not mirrored: {escape(reason)}: {names}", highlight=False)
    for pattern in plan_.unmatched(link.topics):
        console.print(
            f"[yellow]warning[/]: pattern {escape(pattern)} matches no topic of {escape(link.source)} yet; "
            "patterns are regular expressions: pay.*, not pay*"
        )
    for topic, fix in plan_.awaited.items():
        console.print(
            f"[yellow]warning[/]: topic {escape(topic)} does not exist on {escape(link.source)} and is waited for\n"
            f"  fix: {escape(fix)}",
            highlight=False,
        )


def draw_stands(found: Planned) -> None:
    """Draws what stands in the way of keeping the target alike."""
    console, entries = stdout_console(), found.plan.entries
    lines = [(f"{what}: {error.message}", error.fix) for what, error in sorted(entries.problems.items())]
    lines += [
        (f"{need.right} of cluster {need.account} is missing, to {need.purpose}", need.plain["command"])
        for need in found.lacking
        if not any(need.plain["command"] in error.fix for error in entries.problems.values())
    ]
    for text, fix in lines:
        console.print(
            f"[yellow]not kept alike[/]: {escape(text)}" + (f"\n  fix: {escape(fix)}" if fix else ""),
            highlight=False,
            soft_wrap=True,
        )
    if entries.users:
        users = ", ".join(
            f"{user.name} ({user.mechanism}, {user.iterations} iterations)" for user in entries.users
        )
        console.print(
            f"[yellow]missing users[/]: {escape(users)}; no request tells their passwords: create them on the target "
            "with kafka-configs.sh --alter --add-config SCRAM-SHA-256=[password=...]",
            highlight=False,
            soft_wrap=True,
        )


def _draw(link: Link, plan_: Plan, copy: ExpectedCopy | None = None, *, settings: bool) -> None:
    from eomirror.topics.entries import entry_kind

    console = stdout_console()
    count = len(plan_.targets)
    console.print(
        f"[bold]{escape(link.name)}[/]: {count} {'topic' if count == 1 else 'topics'} to mirror, from cluster id "
        f"{plan_.cluster_ids[0]} to {plan_.cluster_ids[1]}"
    )
    if link.remark:
        console.print(escape(link.remark))
    rows = [
        {
            "action": f"{row['sign']} {row['action']}",
            "topic": row.get("topic", source or ""),
            "source": source or "-",
            "what": what,
        }
        for source, change in _all_changes(plan_)
        for row, what in [_row(source, change)]
    ]
    rows += [
        {
            "action": f"{change.sign} {_ACTIONS[change.sign]}",
            "topic": entry_kind(change.entry),
            "source": "-",
            "what": change.text,
        }
        for change in plan_.entries.diff.changes
    ]
    print_table(console, rows, whole=["action"], optional=["source"], words=["what"])
    if not rows:
        console.print("nothing to create or change")
    if copy is not None:
        _draw_copy(copy)
    _draw_not_mirrored(link, plan_)
    created = _settings(plan_)
    if settings:
        for text, topics in created.items():
            console.print(escape(", ".join(topics)))
            console.print(escape(text))
    elif created:
        console.print("settings of new topics: eomirror plan --settings, or -o json", style="dim")
    for drift in plan_.drifts:
        console.print(
            f"[yellow]warning[/]: {escape(drift.topic)} has {drift.setting}={drift.found}, "
            f"not {drift.wanted}, with which eomirror creates it"
        )
