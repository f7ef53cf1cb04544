"""``eomirror verify``: whether the copy is the original."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.render import output_option, print_structured, wants_table
from eomirror.cli.run import parse_conf
from eomirror.cli.verify_transactions import audit_transactions
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

    from eomirror.cli.verify_tables import VerifyDisplay
    from eomirror.clock import Clock
    from eomirror.config import Config, Link
    from eomirror.spark.context import SparkEngine
    from eomirror.verify.runner import Elsewhere, Spread, Verifier
    from eomirror.verify.scope import Bound
    from eomirror.verify.verdict import LinkVerdict, Scope

__all__ = ["parse_since", "rest", "verify"]

_FOLLOW_SECONDS = 1.0
# who follows rests for so many times as long as it took to see what there is to compare: a large offset map, which is
# read from its beginning once retention has cut a log, is not to be read without a break
_REST_SHARE = 2.0
# below this, one core is done before a JVM has started and imported what tasks need
_SPARK_PARTITIONS = 64
_SPARK_OFFSETS = 20_000_000
_AGO = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_since(text: str, *, now_ms: int) -> int:
    """
    A time as ms since 1970: so long ago (``90s``, ``30m``, ``2h``, ``7d``), or ISO 8601 with a zone, or UTC.

    Raises:
        UsageError: It is neither.
    """
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now_ms - int(min(float(ago["number"]) * _UNITS[ago["unit"]] * 1000, float(now_ms)))
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text}: not a time",
            fix="say how long ago, as in 2h, or when, as in 2026-01-31T12:00:00Z",
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0, int(moment.timestamp() * 1000))


@click.command(epilog="Example: eomirror verify mirror.yaml --topic 'orders.*' -o json")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option("--link", "links", multiple=True, help="Only this link; may be repeated.")
@click.option("--topic", "topics", metavar="RE", help="Only source topics that this pattern matches whole.")
@click.option("--from-offset", type=click.IntRange(0), help="Only from this source offset on.")
@click.option("--since", metavar="AGO|TIME", help="Only from here on, such as 2h or 2026-01-31T12:00:00Z.")
@click.option("--show", type=click.IntRange(0, 1000), default=10, help="Differences shown per partition.")
@click.option(
    "--resume",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep there what is compared; go on where a run with the same file ended or was interrupted.",
)
@click.option("--master", help="Compare on Spark: spark://..., k8s://..., yarn, local[N].")
@click.option("--spark-conf", multiple=True, metavar="K=V", help="A Spark setting; may be repeated.")
@click.option("--follow", is_flag=True, help="Go on with what is mirrored meanwhile, until a signal.")
@click.option(
    "--plane", type=click.Choice(["auto", "client"]), default="auto", help="client: read through librdkafka."
)
@click.option(
    "--transactions", is_flag=True, help="Audit the link's transactions on the target instead of comparing."
)
@click.option("--at-rest", is_flag=True, help="With --transactions: no mirror runs, so nothing may be open.")
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@output_option
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
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Compare what is mirrored with its source: missing, duplicate, reordered, altered, foreign.

    Compares up to the positions that are committed when it starts; what lies behind them is lag.  Reads keys, values,
    headers and timestamps of every record on both sides, and needs no running mirror.  Compacted topics are
    compared by the last record of every key.  Ends with 3 if anything differs; SIGINT or SIGTERM end --follow with
    the exit code of what was found, anything else with 128 + the signal.

    One process compares all, unless --master is given, or there are at least 64 partitions with 20,000,000 offsets and
    two cores: then a Spark job does, on all cores of this machine if no master is given.

    With --transactions it reads the target alone, uncommitted and with markers, and shows transaction by
    transaction that records, positions and offset map were decided together, that the positions form one chain, and
    (--at-rest) that nothing is left open.  Ends with 3 if it is not clean.
    """
    from eomirror.clock import SYSTEM_CLOCK
    from eomirror.config import load_config
    from eomirror.kafka.reachability import clusters_of, refuse_away
    from eomirror.verify.origins import with_origins
    from eomirror.verify.scope import Bound

    if at_rest and not transactions:
        raise UsageError("--at-rest is about transactions", fix="give --transactions with it")
    given = (topics, from_offset, since, resume, master)
    if transactions and (any(each is not None for each in given) or spark_conf or follow or plane != "auto"):
        raise UsageError(
            "--transactions looks at a whole link, with the native client",
            fix="leave out --topic, --from-offset, --since, --resume, --follow, --master and --plane",
        )
    if resume is not None and follow:
        raise UsageError(
            "--follow counts on by itself", fix="leave out --resume, or run with --resume again and again"
        )
    if (resume is not None or follow) and (master or spark_conf):
        raise UsageError(
            "--resume and --follow are for one process", fix="leave out --master and --spark-conf, or these"
        )
    loaded = load_config(config, overrides=overrides)
    chosen = [loaded.link(name) for name in links] if links else list(loaded.links)
    if transactions:
        refuse_away(loaded.clusters[link.target] for link in chosen)
        return audit_transactions(loaded, chosen, at_rest=at_rest, output=output)
    since_ms = None if since is None else parse_since(since, now_ms=SYSTEM_CLOCK.wall_ms())
    refuse_away(clusters_of(loaded, chosen))
    bound = Bound(topics=topics, from_offset=from_offset, since_ms=since_ms)
    run = _Run(
        loaded,
        [with_origins(link, loaded.clusters) for link in chosen],
        bound,
        show=show,
        native=plane == "auto",
        resume=resume,
        asked={"topic": topics, "from_offset": from_offset, "since": since},
        spark=_Spark(loaded, master, parse_conf(spark_conf)),
    )
    with _signals() as caught:
        verdicts = run.follow(caught) if follow else run.once(caught)
    if wants_table(output):
        from eomirror.cli.verify_tables import draw_verdicts

        draw_verdicts(verdicts)
    else:
        print_structured({"links": [verdict.as_dict() for verdict in verdicts]}, output)
    # one that follows ends on a signal, with what it found if it got once through everything
    if caught and not (follow and _settled(verdicts)):
        return 128 + caught[0]
    return 3 if any(verdict.differs for verdict in verdicts) else 0


def _settled(verdicts: Sequence[LinkVerdict]) -> bool:
    """Whether there is something to be said: a difference, or that all was compared."""
    whole = bool(verdicts) and all(verdict.whole for verdict in verdicts)
    return whole or any(verdict.differs for verdict in verdicts)


def rest(looked_seconds: float, caught: Sequence[int], clock: Clock) -> None:
    """
    Wait before the next round of ``--follow``; not for long once a signal was caught.

    Args:
        looked_seconds: How long it took, in the last round, to see what there was to compare.
        caught: Signals that were caught.
        clock: Where time comes from.
    """
    from eomirror.clock import Deadline

    deadline = Deadline(max(_FOLLOW_SECONDS, _REST_SHARE * looked_seconds), clock)
    while not (caught or deadline.passed):
        clock.sleep(min(_FOLLOW_SECONDS, deadline.remaining()))


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Notes SIGINT and SIGTERM, so that what was compared is told; a second one ends at once."""
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


class _Run:
    """One call of the command, for all its links."""

    def __init__(
        self,
        config: Config,
        links: list[Link],
        bound: Bound,
        *,
        show: int,
        native: bool,
        resume: Path | None,
        asked: dict[str, Any],
        spark: _Spark,
    ) -> None:
        from eomirror.verify.resume import ResumeFile

        self._config = config
        self._links = links
        self._bound = bound
        self._show = show
        self._native = native
        self._spark = spark
        self._file = None if resume is None else ResumeFile(resume, asked)

    def once(self, caught: list[int]) -> list[LinkVerdict]:
        """Compare what is there now."""
        from eomirror.cli.verify_tables import VerifyDisplay

        verdicts = []
        try:
            with VerifyDisplay() as display:
                for link in self._links:
                    verifier = self._verifier(link, display)
                    try:
                        verdicts.append(
                            verifier.run(
                                bound=self._bound,
                                progress=display.update,
                                stopped=lambda: bool(caught),
                                spread=self._spread(link, verifier, display),
                            )
                        )
                    finally:
                        verifier.close()
        finally:
            self._spark.close()
            if self._file is not None:
                self._file.save()
        if self._bound.topics and not any(verdict.partitions or verdict.waiting for verdict in verdicts):
            raise UsageError(
                f"--topic {self._bound.topics}: {', '.join(link.name for link in self._links)} mirrors no such topic",
                fix="name a source topic that the link mirrors, or give a pattern such as orders.*",
            )
        return verdicts

    def follow(self, caught: list[int]) -> list[LinkVerdict]:
        """Compare until a signal; says every partition that begins to differ."""
        from eomirror.cli.verify_tables import VerifyDisplay
        from eomirror.clock import SYSTEM_CLOCK

        verifiers: list[Verifier] = []
        verdicts: list[LinkVerdict] = []
        told: set[tuple[str, str, int]] = set()
        try:
            with VerifyDisplay() as display:
                verifiers += [self._verifier(link, display) for link in self._links]
                while not caught:
                    verdicts = [
                        verifier.run(
                            bound=self._bound,
                            progress=display.update,
                            stopped=lambda: bool(caught),
                            follows=True,
                        )
                        for verifier in verifiers
                    ]
                    for verdict in verdicts:
                        _tell(verdict, told, display)
                    looked = sum(verifier.looked_seconds for verifier in verifiers)
                    rest(looked, caught, SYSTEM_CLOCK)
        finally:
            for verifier in verifiers:
                verifier.close()
        return verdicts

    def _spread(self, link: Link, verifier: Verifier, display: VerifyDisplay) -> Spread | None:
        """Spark, where that was asked for or is worth its start."""
        if self._file is not None:
            return None

        def spread(scopes: Sequence[Scope]) -> Elsewhere | None:
            if not self._spark.wanted(scopes):
                return None
            from eomirror.spark.verify import SparkComparison
            from eomirror.verify.partition import MOST_KEYS

            clusters = self._config.clusters
            comparison = SparkComparison(
                self._spark.context(),
                link,
                clusters[link.source],
                clusters[link.target],
                verifier.ids,
                show=self._show,
                most_keys=MOST_KEYS,
                native=not verifier.reason,
            )
            display.say(f"{link.name}: {len(scopes)} partitions on {comparison.description}")
            return comparison

        return spread

    def _verifier(self, link: Link, display: VerifyDisplay) -> Verifier:
        from eomirror.verify.runner import Verifier

        clusters = self._config.clusters
        verifier = Verifier(
            link, clusters[link.source], clusters[link.target], show=self._show, native=self._native
        )
        if self._file is not None:
            verifier.resume = self._file.link(link.name, verifier.ids)
        if verifier.plane == "client":
            display.say(f"{link.name}: reading through librdkafka, which is slower: {verifier.reason}")
        return verifier


class _Spark:
    """The context of this command, started when it is wanted."""

    def __init__(self, config: Config, master: str | None, given: Mapping[str, str]) -> None:
        self._config = config
        self._master = master
        self._given = given
        self._engine: SparkEngine | None = None

    def wanted(self, scopes: Sequence[Scope]) -> bool:
        """Whether Spark shall compare these."""
        if self._master or "spark.master" in self._given or self._engine is not None:
            return True
        offsets = sum(one.source.tail - one.source.start for one in scopes)
        worth = len(scopes) >= _SPARK_PARTITIONS and offsets >= _SPARK_OFFSETS
        return worth and (os.cpu_count() or 1) > 1

    def context(self) -> Any:
        """
        The SparkContext.

        Raises:
            MirrorError: It does not start.
        """
        if self._engine is None:
            from eomirror import __version__
            from eomirror.spark.context import engine_settings, open_engine

            settings = engine_settings(
                # a lane waits most of the time, but a comparison works: no more of them than cores
                master=self._master
                or (None if "spark.master" in {**self._config.spark, **self._given} else "local[*]"),
                configured=self._config.spark,
                given=self._given,
                version=__version__,
            )
            self._engine = open_engine(None, settings, lanes=1)
        return self._engine.context

    def close(self) -> None:
        """End it."""
        if self._engine is not None:
            self._engine.close()


def _tell(verdict: LinkVerdict, told: set[tuple[str, str, int]], display: VerifyDisplay) -> None:
    for partition in verdict.partitions:
        one = partition.scope
        where = (verdict.link, one.source.topic, one.source.partition)
        if partition.differs and where not in told:
            told.add(where)
            words = one.problem or ", ".join(
                f"{n:,} {kind}" for kind, n in partition.differences.items() if n
            )
            display.say(f"{verdict.link}: {one.source.topic}-{one.source.partition} differs: {words}")
