"""``eomirror verify``: compares mirrored records with their source, and shows progress and verdicts."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.completion import complete_topics
from eomirror.cli.render import escape, human_count, print_message, print_result, print_table, stdout_console
from eomirror.cli.run import parse_conf
from eomirror.cli.verify_transactions import audit_transactions
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from rich.console import Console

    from eomirror.clock import Clock
    from eomirror.config import Config, Link
    from eomirror.failover import LeftOrphans
    from eomirror.screen import LiveOutput
    from eomirror.spark.context import SparkEngine
    from eomirror.verify.counts import PartitionCounts
    from eomirror.verify.resume import ResumeFile
    from eomirror.verify.runner import RemoteComparison, Spread, Verifier
    from eomirror.verify.scope import RequestedRange
    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Scope

__all__ = ["draw_verdicts", "parse_since", "verify", "wait_for_round"]

_FOLLOW_SECONDS = 1.0
# --follow waits this many times as long as the last round took to determine its scope: a large offset map, which is
# read from its beginning once retention has cut a log, must not be read without a break
_WAIT_SHARE = 2.0
# between two records of --follow on the target
_RECORD_SECONDS = 60.0
# below this, one core finishes before a JVM has started and its tasks have imported their modules
_SPARK_PARTITIONS = 64
_SPARK_OFFSETS = 20_000_000
_AGO = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_since(text: str, *, now_ms: int) -> int:
    """
    Parses an age (``90s``, ``30m``, ``2h``, ``7d``) or an ISO 8601 time (UTC without a zone) to ms since 1970.

    Raises:
        UsageError: The text is neither.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(min(float(ago["number"]) * _UNITS[ago["unit"]] * 1000, float(now_ms)))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text}: neither an age nor a time",
            fix="use an age such as 2h, or a time such as 2026-01-31T12:00:00Z",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0, int(moment.timestamp() * 1000))


@click.command(epilog="Example: eomirror verify mirror.yaml --topic 'orders.*' -o json")
@options.config
@options.links
@click.option(
    "--topic",
    "topics",
    metavar="RE",
    shell_complete=complete_topics,
    help="Only source topics whose whole name matches this pattern.",
)
@click.option("--from-offset", type=click.IntRange(0), help="Only records from this source offset on.")
@click.option(
    "--since", metavar="AGO|TIME", help="Only newer records: an age such as 2h, or 2026-01-31T12:00:00Z."
)
@click.option("--show", type=click.IntRange(0, 1000), default=10, help="Differences shown per partition.")
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Save the progress in FILE, and resume an earlier comparison with the same FILE.",
)
@click.option("--master", help="Compare on Spark: spark://..., k8s://..., yarn, local[N].")
@options.spark_conf
@click.option("--follow", is_flag=True, help="Keep comparing newly mirrored records, until a signal.")
@click.option(
    "--plane",
    type=click.Choice(["auto", "client"]),
    default="auto",
    help="client: read through librdkafka; auto: the native client where it is supported.",
)
@click.option(
    "--transactions", is_flag=True, help="Audit the link's transactions on the target instead of comparing."
)
@click.option(
    "--at-rest", is_flag=True, help="With --transactions: no mirror runs, so an open transaction is a fault."
)
@click.option(
    "--schemas",
    is_flag=True,
    help="Compare what the schema ids in copied records stand for at both registries.",
)
@click.option(
    "--record/--no-record",
    default=True,
    show_default=True,
    help="Record the result on the target, for status, metrics and events.",
)
@options.overrides
@options.output()
def verify(
    config: str,
    links: tuple[str, ...],
    topics: str | None,
    from_offset: int | None,
    since: str | None,
    show: int,
    resume: Path | None,
    master: str | None,
    spark_conf: tuple[str, ...],
    follow: bool,
    plane: str,
    transactions: bool,
    at_rest: bool,
    schemas: bool,
    record: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Compare mirrored records with their source: missing, duplicate, reordered, altered, foreign.

    Compares up to the positions that are committed at the start; later records are lag.  Compares key, value, headers
    and timestamp of every record; needs no running mirror.  Compacted topics are compared by the last record of each
    key.  Exits 3 if anything differs.  SIGINT or SIGTERM end --follow with the exit code of the result so far, and any
    other comparison with 128 + the signal.

    One process compares all partitions.  A Spark job does if --master is given, or for at least 64 partitions with
    20,000,000 offsets on a machine with two cores or more; without --master it uses all local cores.

    Of a link that was promoted, it also names the source offsets beyond the cut that have no copy (orphans), and what
    `eomirror restore` was asked to do with them; they are no difference.

    The result of each topic is recorded in the link's control topic, where `status` and metrics show it: outcome, time,
    and the offsets that it was compared up to. This needs the right to write to that topic; without it a line on stderr
    says so. --no-record writes nothing.

    --transactions reads the target only, uncommitted and with control batches.  It audits that records, positions and
    offset map of each transaction were committed or aborted together, that the positions form one chain and, with
    --at-rest, that no transaction is open.  Exits 3 if a fault is found.

    --schemas reads all copied records and looks every schema id that they carry up at both registries of `schemas`.
    Exits 3 if an id that the source's registry knows is missing or stands for another schema on the target.
    """
    from eomirror.cli.verify_schemas import verify_schemas
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.failover import left_orphans
    from eomirror.kafka.reachability import clusters_of, require_reachable
    from eomirror.verify.resume import ResumeFile
    from eomirror.verify.scope import RequestedRange, with_origins

    if at_rest and not transactions:
        raise UsageError("--at-rest requires --transactions", fix="add --transactions")
    given = (topics, from_offset, since, resume, master)
    if transactions and (any(each is not None for each in given) or spark_conf or follow or plane != "auto"):
        raise UsageError(
            "--transactions audits a whole link, with the native client",
            fix="leave out --topic, --from-offset, --since, --resume, --follow, --master and --plane",
        )
    if schemas and (transactions or any(each is not None for each in given[1:]) or spark_conf or follow):
        raise UsageError(
            "--schemas reads all copied records in one process",
            fix="leave out --from-offset, --since, --resume, --follow, --master and --transactions; --topic is taken",
        )
    if resume is not None and follow:
        raise UsageError(
            "--follow and --resume cannot be combined",
            fix="leave out --resume, or repeat `verify --resume FILE` instead of --follow",
        )
    if (resume is not None or follow) and (master or spark_conf):
        raise UsageError(
            "--resume and --follow compare in one process, not on Spark",
            fix="leave out --master and --spark-conf, or --resume and --follow",
        )
    loaded = load_config(config, overrides=overrides)
    chosen = loaded.chosen(links)
    if transactions:
        require_reachable(loaded.clusters[link.target] for link in chosen)
        return audit_transactions(loaded, chosen, at_rest=at_rest, output=output)
    if schemas:
        require_reachable(clusters_of(loaded, chosen))
        return verify_schemas(loaded, chosen, topics=topics, output=output)
    since_ms = None if since is None else parse_since(since, now_ms=SYSTEM_CLOCK.wall_ms())
    require_reachable(clusters_of(loaded, chosen))
    asked = {"topic": topics, "from_offset": from_offset, "since": since}
    run = _VerifyRun(
        config=loaded,
        links=[with_origins(link, loaded.clusters) for link in chosen],
        bound=RequestedRange(topics=topics, from_offset=from_offset, since_ms=since_ms),
        show=show,
        native=plane == "auto",
        file=None if resume is None else ResumeFile(resume, asked),
        spark=_Spark(loaded, master, parse_conf(spark_conf)),
        record=record,
    )
    with _signals() as caught:
        verdicts = run.follow(caught) if follow else run.once(caught)
    orphans = {link.name: left_orphans(loaded, link=link.name) for link in chosen}
    result = {
        "links": [
            {**verdict.as_dict(), "orphans": [each.as_dict() for each in orphans[verdict.link]]}
            for verdict in verdicts
        ]
    }
    print_result(output, result, lambda: draw_verdicts(verdicts, orphans))
    # a signal ends --follow with its result, if it has one
    if caught and not (follow and _settled(verdicts)):
        return 128 + caught[0]
    return 3 if any(verdict.differs for verdict in verdicts) else 0


def _settled(verdicts: Sequence[LinkVerdict]) -> bool:
    """Returns True if the result is final: a difference was found, or all was compared."""
    whole = bool(verdicts) and all(verdict.whole for verdict in verdicts)
    return whole or any(verdict.differs for verdict in verdicts)


def wait_for_round(looked_seconds: float, caught: Sequence[int], clock: Clock) -> None:
    """
    Waits before the next round of ``--follow``; returns within a second of a signal.

    Args:
        looked_seconds: Time that the last round took to determine its scope.
        caught: Signals caught so far; grows while this waits.
    """
    from eomirror.clock import Deadline

    deadline = Deadline(max(_FOLLOW_SECONDS, _WAIT_SHARE * looked_seconds), clock)
    while not (caught or deadline.passed):
        clock.sleep(min(_FOLLOW_SECONDS, deadline.remaining()))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Records SIGINT and SIGTERM, so that the result is still shown; a second signal ends the process."""
    caught: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        if caught:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class _VerifyRun:
    """Comparison of all links of one command call."""

    config: Config
    links: list[Link]
    bound: RequestedRange
    show: int
    native: bool
    spark: _Spark
    file: ResumeFile | None
    record: bool

    def once(self, caught: list[int]) -> list[LinkVerdict]:
        """Compares up to the positions that are committed at the start."""
        verdicts = []
        try:
            with _display() as display:
                for link in self.links:
                    verifier = self._verifier(link)
                    try:
                        verdicts.append(
                            verifier.run(
                                bound=self.bound,
                                progress=lambda *at: display.show_line(partial(_line, *at)),
                                stopped=lambda: bool(caught),
                                spread=self._spread(link, verifier),
                            )
                        )
                    finally:
                        verifier.close()
        finally:
            self.spark.close()
            if self.file is not None:
                self.file.save()
        self._write(verdicts)
        if self.bound.topics and not any(verdict.partitions or verdict.waiting for verdict in verdicts):
            raise UsageError(
                f"--topic {self.bound.topics}: {', '.join(link.name for link in self.links)} mirrors no such topic",
                fix="name a source topic that the link mirrors, or use a pattern such as orders.*",
            )
        return verdicts

    def follow(self, caught: list[int]) -> list[LinkVerdict]:
        """Compares round after round until a signal; reports each partition once when it begins to differ."""
        from eomirror.clock import SYSTEM_CLOCK

        verifiers: list[Verifier] = []
        verdicts: list[LinkVerdict] = []
        reported: set[tuple[str, str, int]] = set()
        written = SYSTEM_CLOCK.monotonic()
        try:
            with _display() as display:
                verifiers += [self._verifier(link) for link in self.links]
                while not caught:
                    verdicts = [
                        verifier.run(
                            bound=self.bound,
                            progress=lambda *at: display.show_line(partial(_line, *at)),
                            stopped=lambda: bool(caught),
                            follows=True,
                        )
                        for verifier in verifiers
                    ]
                    for verdict in verdicts:
                        _report(verdict, reported)
                    if SYSTEM_CLOCK.monotonic() - written >= _RECORD_SECONDS:
                        self._write(verdicts)
                        written = SYSTEM_CLOCK.monotonic()
                    looked = sum(verifier.looked_seconds for verifier in verifiers)
                    wait_for_round(looked, caught, SYSTEM_CLOCK)
        finally:
            for verifier in verifiers:
                verifier.close()
        self._write(verdicts)
        return verdicts

    def _write(self, verdicts: Sequence[LinkVerdict]) -> None:
        """Records the results on the target; a result that cannot be recorded is a line on stderr, no failure."""
        if not self.record:
            return
        import socket

        from eomirror.clock import SYSTEM_CLOCK
        from eomirror.verify.report import record, verifications

        host, now_ms = socket.gethostname(), SYSTEM_CLOCK.wall_ms()
        for link, verdict in zip(self.links, verdicts, strict=False):
            found = verifications(verdict, self.bound, host=host, now_ms=now_ms)
            failed = record(self.config, link, found) if found else ""
            if failed:
                print_message(
                    f"{link.name}: the result is not recorded on the target: {failed}, or use --no-record"
                )

    def _spread(self, link: Link, verifier: Verifier) -> Spread | None:
        """Returns a function that chooses Spark if it was requested or is worth its start; None for one process."""
        if self.file is not None:
            return None

        def spread(scopes: Sequence[Scope]) -> RemoteComparison | None:
            if not self.spark.wanted(scopes):
                return None
            from eomirror.spark.verify import SparkComparison
            from eomirror.verify.partition import MOST_KEYS

            clusters = self.config.clusters
            comparison = SparkComparison(
                self.spark.context(),
                link,
                clusters[link.source],
                clusters[link.target],
                verifier.ids,
                show=self.show,
                most_keys=MOST_KEYS,
                native=not verifier.reason,
            )
            print_message(f"{link.name}: {len(scopes)} partitions on {comparison.description}")
            return comparison

        return spread

    def _verifier(self, link: Link) -> Verifier:
        from eomirror.verify.runner import Verifier

        clusters = self.config.clusters
        verifier = Verifier(
            link, clusters[link.source], clusters[link.target], show=self.show, native=self.native
        )
        if self.file is not None:
            verifier.resume = self.file.link(link.name, verifier.ids)
        if verifier.plane == "client":
            print_message(f"{link.name}: reading through librdkafka, which is slower: {verifier.reason}")
        return verifier


@dataclass
class _Spark:
    """SparkContext of this command, started on first use."""

    config: Config
    master: str | None
    given: Mapping[str, str]
    _engine: SparkEngine | None = None

    def wanted(self, scopes: Sequence[Scope]) -> bool:
        """Returns True if Spark is to compare these partitions."""
        if self.master or "spark.master" in self.given or self._engine is not None:
            return True
        offsets = sum(one.source.tail - one.source.start for one in scopes)
        worth = len(scopes) >= _SPARK_PARTITIONS and offsets >= _SPARK_OFFSETS
        return worth and (os.cpu_count() or 1) > 1

    def context(self) -> Any:
        """
        Returns the SparkContext; starts it on first use.

        Raises:
            MirrorError: It does not start.
        """
        if self._engine is None:
            from eomirror import __version__
            from eomirror.spark.context import engine_settings, open_engine

            settings = engine_settings(
                # a comparison uses a core all the time, unlike a lane: not more tasks than cores
                master=self.master
                or (None if "spark.master" in {**self.config.spark, **self.given} else "local[*]"),
                configured=self.config.spark,
                given=self.given,
                version=__version__,
            )
            self._engine = open_engine(None, settings, lanes=1)
        return self._engine.context

    def close(self) -> None:
        """Stops the SparkContext, if it was started."""
        if self._engine is not None:
            self._engine.close()


def _report(verdict: LinkVerdict, reported: set[tuple[str, str, int]]) -> None:
    for partition in verdict.partitions:
        one = partition.scope
        where = (verdict.link, one.source.topic, one.source.partition)
        if partition.differs and where not in reported:
            reported.add(where)
            counts = (f"{n:,} {kind}" for kind, n in partition.differences.items() if n)
            words = ", ".join(filter(None, (one.problem, *counts, partition.changed)))
            print_message(f"{verdict.link}: {one.source.topic}-{one.source.partition} differs: {words}")


_LINES_EVERY_SECONDS = 10.0
_REDRAWN_EVERY_SECONDS = 0.25
_PERCENT = 100.0
_COLOURS = {"differs": "red", "equal": "green", "not compared": "yellow"}
_SHOWN_GONE = 20


def _display() -> LiveOutput:
    """Returns a display of one line, which a comparison that takes less than 10 s does not write to a file."""
    from eomirror.screen import LiveOutput

    return LiveOutput(draw_seconds=_REDRAWN_EVERY_SECONDS, line_seconds=_LINES_EVERY_SECONDS, at_once=False)


def _line(one: Scope, counts: PartitionCounts) -> str:
    at = counts.source.get("position", one.source.start)
    offsets = one.source.end - one.source.start
    share = _PERCENT * (at - one.source.start) / offsets if offsets > 0 else _PERCENT
    text = f"{one.source.topic}-{one.source.partition}: at {at:,} of {one.source.end:,} ({share:.0f} %)"
    differences = sum(counts.differences.values())
    return f"{text}, {counts.matched:,} equal" + (f", {differences:,} differ" if differences else "")


def draw_verdicts(
    verdicts: Sequence[LinkVerdict], orphans: Mapping[str, Sequence[LeftOrphans]] | None = None
) -> None:
    """
    Writes the verdicts to stdout, as tables.

    Args:
        orphans: By link: source records that a promotion left without a copy.
    """
    console = stdout_console()
    for verdict in verdicts:
        colour = _COLOURS[verdict.word]
        rest = "" if verdict.whole else "  [yellow]not all of it was compared[/yellow]"
        console.print(f"[bold]{escape(verdict.link)}[/bold]  [{colour}]{verdict.word}[/{colour}]{rest}")
        rows = [_row(partition) for partition in verdict.partitions]
        print_table(
            console,
            rows,
            right=("P", "FROM", "EQUAL", "LAG"),
            optional=("FROM", "TARGET"),
            words=("DIFFER",),
        )
        for topic in verdict.waiting:
            console.print(f"not mirrored yet: {escape(topic)}")
        gone = [partition.scope for partition in verdict.partitions if partition.word == "gone"]
        for one in gone[:_SHOWN_GONE]:
            where = escape(f"{one.source.topic}-{one.source.partition}")
            console.print(f"{where}: gone on the source, not compared: {escape(one.gone)}")
        if len(gone) > _SHOWN_GONE:
            console.print(
                f"{len(gone) - _SHOWN_GONE} more partitions are gone on the source (-o json names them)"
            )
        for partition in verdict.partitions:
            _draw_differences(console, partition)
        for each in (orphans or {}).get(verdict.link, ()):
            decided = (
                f"{each.decided} {escape(each.place)}".strip() if each.decided else "nothing was decided yet"
            )
            console.print(
                f"[yellow]{escape(each.topic)}-{each.partition}[/yellow]: {human_count(each.records)} records in "
                f"\\[{each.start}, {each.end}) have no copy: orphans of promotion {each.number}, {decided}"
            )


def _draw_differences(console: Console, partition: PartitionVerdict) -> None:
    where = escape(f"{partition.scope.source.topic}-{partition.scope.source.partition}")
    if partition.scope.problem:
        console.print(f"[red]{where}[/red]: {escape(partition.scope.problem)}")
    if partition.changed:
        console.print(f"[red]{where}[/red]: {escape(partition.changed)}")
    for start, end in partition.holes:
        console.print(
            f"[yellow]{where}[/yellow]: the source has no batch for offsets \\[{start}, {end}), although the topic is "
            "not compacted: the source has lost a part of its log"
        )
    for shown in partition.shown:
        parts = f" ({', '.join(shown.parts)})" if shown.parts else ""
        console.print(f"[red]{where}[/red]: {shown.kind}{parts}")
        for side in ("source", "target"):
            offset, record = getattr(shown, f"{side}_offset"), getattr(shown, side)
            if offset is not None:
                where = (
                    f"-{shown.target_partition}"
                    if side == "target" and shown.target_partition is not None
                    else ""
                )
                console.print(f"  {side}{where} @{offset}: {escape(str(record))}")


def _row(partition: PartitionVerdict) -> dict[str, Any]:
    one = partition.scope
    return {
        "TOPIC": one.source.topic,
        "P": one.source.partition,
        "TARGET": one.target.topic,
        # earlier offsets are not compared: retention, `start`, or the options exclude them
        "FROM": human_count(one.not_comparable[0]),
        "EQUAL": human_count(partition.matched),
        "DIFFER": ", ".join(f"{n:,} {kind}" for kind, n in partition.differences.items() if n) or "0",
        "LAG": human_count(one.lag),
        "VERDICT": partition.word,
    }
