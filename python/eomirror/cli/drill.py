"""``eomirror drill``: a disaster and the return from it, on throw-away clusters or your own, with evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from eomirror.cli import options
from eomirror.cli.options import terminable
from eomirror.cli.render import print_message, print_result, print_table, stdout_console

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config
    from eomirror.demo.drill import DrillReport
    from eomirror.records.reports import DrillResult

__all__ = ["drill"]

# a target that takes no records must not hold up the result
_WRITE_SECONDS = 10.0


@click.command(epilog="Example: eomirror drill --report evidence.json --record mirror.yaml")
@click.option(
    "--records", type=click.IntRange(100), default=2_000, show_default=True, help="Records of each stage."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the evidence to FILE as JSON, and as Markdown beside it.",
)
@click.option(
    "--on",
    metavar="CONFIG",
    help="Run it on the two clusters of one link of this file, with topics of its own (drill-*), which it deletes.",
)
@click.option(
    "--record",
    metavar="CONFIG",
    help="Record the result on the targets of this file's links, for status, metrics and events.",
)
@options.links
@options.output()
def drill(
    records: int,
    report: Path | None,
    on: str | None,
    record: str | None,
    links: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Lose a source, fail over, and return, on two local clusters that this command starts and removes.

    Each stage is timed.  Plain clients compare both clusters: the copies are what was mirrored, every record that the
    failover left behind is found and merged, and both sides hold the same records at the end.  The evidence names date,
    host, version, configuration without secrets, cut, hashes, RPO and RTO; it moves no consumer group, so the RTO is
    without the time that groups take.

    With --on CONFIG it runs on the clusters of your link.  It kills nothing there: its commands do not ask the source
    while that counts as lost.  It writes to a topic of its own and to topics eomirror.drill-*, moves no group, and
    deletes these topics at the end.  It refuses to start if a link of CONFIG would mirror its topic; other mirrors may
    do so.

    Without --on the drill touches none of your clusters. --record CONFIG notes its result in the control topic of each
    link that has run, or of those of --link, so that it is known when the team last practised.  A drill that fails, or
    that a signal ends, is noted as failed, with its stage.

    Exit codes: 0 passed, 1 a stage failed, 3 the records differ.
    """
    from eomirror.config import load_config
    from eomirror.demo.drill import Drill, OwnClusters
    from eomirror.errors import UsageError
    from eomirror.kafka.client_factory import secret_hider

    if links and record is None and on is None:
        raise UsageError("--link requires --on or --record", fix="add --on CONFIG, or leave out --link")
    if on is not None and len(links) > 1:
        raise UsageError("--on takes one link", fix="give --link once")
    clusters, own = None, None if on is None else load_config(on)
    if own is not None:
        clusters = OwnClusters(own, own.only_link(links[0] if links else None))
    # first, so that a faulty file is refused before minutes of drill
    loaded = None if record is None else load_config(record)
    if loaded is not None:
        for name in links:
            loaded.link(name)
    made = Drill(clusters=clusters, records=records, on_event=print_message)
    try:
        # SIGTERM as well: the clusters and topics of the drill must not stay, and a drill that was ended has not passed
        with terminable():
            found = made.run()
    except BaseException as error:
        if loaded is not None:
            hide = secret_hider(
                cluster for each in (own, loaded) if each is not None for cluster in each.clusters.values()
            )
            _note(loaded, links, _failed(made.stage, error, hide))
        raise
    if loaded is not None:
        _note(loaded, links, _passed(found))
    if report is not None:
        report.write_bytes(orjson.dumps(found.as_dict(), option=orjson.OPT_INDENT_2) + b"\n")
        report.with_suffix(".md").write_text(found.markdown(), encoding="utf-8")
    print_result(output, found.as_dict(), lambda: _draw(found))
    return 0


def _passed(found: DrillReport) -> DrillResult:
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.records.reports import DrillResult

    return DrillResult(
        passed=found.passed,
        rpo_records=found.rpo_records,
        rto_ms=round(found.rto_seconds * 1000),
        host=found.host,
        timestamp=SYSTEM_CLOCK.wall_ms(),
    )


def _failed(stage: str, error: BaseException, hide: Callable[[str], str]) -> DrillResult:
    """
    Returns the result of a drill that failed.

    Args:
        stage: Stage that ran.
        error: Reason.
        hide: Removes a text that shows a secret: every reader of the control topic sees the reason.
    """
    import socket

    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.errors import MirrorError
    from eomirror.records.reports import DrillResult

    if isinstance(error, MirrorError):
        problem = error.message
    elif isinstance(error, Exception):
        problem = f"{type(error).__name__}: {error}"
    else:
        problem = "ended by a signal"
    return DrillResult(
        passed=False,
        rpo_records=0,
        rto_ms=0,
        host=socket.gethostname(),
        timestamp=SYSTEM_CLOCK.wall_ms(),
        stage=stage,
        problem=" ".join(hide(problem).split()),
    )


def _note(config: Config, links: tuple[str, ...], result: DrillResult) -> None:
    """Records the result of a drill in the control topics of links that have run."""
    from contextlib import closing

    from eomirror.errors import MirrorError
    from eomirror.kafka.plain_producer import write_records
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.names import LinkNames

    for link in config.chosen(links):
        names, target = LinkNames(link.state_name), config.clusters[link.target]
        client_id = names.client_id("drill")
        try:
            # a producer would create the topic where brokers create topics on request
            with closing(ClusterSession(target, client_id=client_id, timeout=_WRITE_SECONDS)) as session:
                ran = session.admin.describe_topics([names.control_topic])[names.control_topic] is not None
            failed = "the link never ran"
            if ran:
                failed = write_records(
                    target,
                    names.control_topic,
                    [(result.key(), result.value())],
                    client_id=client_id,
                    seconds=_WRITE_SECONDS,
                )
        except MirrorError as error:
            failed = error.message
        print_message(
            f"{link.name}: the drill is {f'not recorded: {failed}' if failed else 'recorded on the target'}"
        )


def _draw(found: DrillReport) -> None:
    console = stdout_console()
    print_table(
        console,
        [
            {
                "STAGE": stage.name,
                "SECONDS": f"{stage.seconds:.1f}",
                "RESULT": stage.result,
                "RECORDS": ", ".join(f"{side} {count}" for side, count in stage.records.items()) or "-",
                "SHA-256": next(iter(stage.hashes.values()), "-")[:16],
            }
            for stage in found.stages
        ],
        right=("SECONDS",),
        words=("RESULT",),
        optional=("SHA-256",),
    )
    console.print(
        f"passed: {found.rpo_records} records were left behind and merged later; {found.rto_seconds:.1f} s from the "
        f"loss to the promotion, {found.switches[-1].rto_seconds:.1f} s for the return",
        style="green",
    )
    console.print(f"these times cover {found.rto_scope}")
