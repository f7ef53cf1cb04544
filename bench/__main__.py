"""
``python -m bench``: this mirror beside MirrorMaker 2; see README.md.

Exit codes: 0 every figure asked for is there; 1 a mirror failed; 2 usage; 3 a copy was wrong.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.enough import Supply
from bench.failover import failover_markdown, measure_failover
from bench.following import following_markdown, measure_following
from bench.idle import IDLE, alone_markdown, idle_markdown, measure_alone, measure_idle
from bench.latency import LatencyPlan, measure_latency
from bench.machine import describe_machine, load_average
from bench.overhead import measure_overhead, overhead_markdown
from bench.peers.eomirror import Mirror
from bench.peers.mm2 import MirrorMaker, mm2_release
from bench.peers.process import MirrorEndedError, Site
from bench.relay import measure_relay, relay_markdown
from bench.report import RESULTS, Comparison, keep, markdown, table, without_results
from bench.restart import measure_restart, restart_markdown
from bench.scaling import measure_scaling, measure_workers, scaling_markdown
from bench.scrape import measure_scrape, scrape_markdown
from bench.spark import VARIANTS, Job, measure_job, spark_markdown
from bench.stamped import BURST_MS
from bench.start import measure_starts, start_markdown
from bench.throughput import Timing, prepare
from bench.topics import Topics
from bench.translation import measure_translation, translation_markdown
from bench.verifier import measure_verify, verify_markdown
from bench.verify import WrongCopyError
from bench.witness import measure_witness, witness_markdown
from bench.workloads import SMALL, WORKLOADS
from eomirror.errors import MirrorError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import DEFAULT_KAFKA, exact_version
from eomirror.localkafka.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.idle import IdleCost
    from bench.peers.process import Peer
    from bench.throughput import Figures
    from bench.workloads import Workload

FAILED, DIFFERS = 1, 3
_PEERS: dict[str, Peer] = {
    "eomirror": Mirror(),
    "eomirror-native": Mirror(plane="native"),
    "mm2-eos": MirrorMaker(exactly_once=True),
    "mm2-eos-default": MirrorMaker(exactly_once=True, tuned=False),
    "mm2-alo": MirrorMaker(exactly_once=False),
}
_IDLE_SECONDS = 30.0
_SMALL_TIMING = Timing(warm_up=0.0, seconds=1.5, spare=0.0, whole=True)
_SMALL_PEERS = ("eomirror", "eomirror-native", "mm2-eos")
# CI asks whether the copies are right; so few records keep it under three minutes
_SMALL_SHARE = 0.12
# brokers are not what is measured: room enough that they do not collect garbage all the time
_BROKER_HEAP = "1g"


class _Session:
    """
    One invocation: its clusters, what it found, and what it leaves behind.

    Args:
        kind: Of the results' file names.
        output: ``table`` or ``json``.
        folder: For the results; None to keep none.
    """

    def __init__(self, kind: str, output: str, folder: Path | None) -> None:
        self.kind = kind
        self.output = output
        self.folder = folder
        self.code = 0
        self.document: dict[str, Any] = {
            "kind": kind,
            "date": dt.datetime.now(tz=dt.UTC).strftime("%Y-%m-%d %H:%M"),
            "command": shlex.join(["python", "-m", "bench", *without_results(sys.argv[1:])]),
            "machine": describe_machine(),
            "load_average": load_average(),
        }

    def say(self, text: str) -> None:
        """Progress and tables: on standard output only when that is for people."""
        print(text, file=sys.stderr if self.output == "json" else sys.stdout, flush=True)

    def fail(self, error: Exception) -> str:
        """Note that a figure is missing; a wrong copy outweighs everything else."""
        wrong = isinstance(error, WrongCopyError)
        self.code = DIFFERS if wrong else self.code or FAILED
        return str(error) if wrong else f"{type(error).__name__}: {error}"

    def tell(self, found: Any, text: str) -> int:
        """End an invocation that has measured one thing; return the exit code."""
        self.document[self.kind] = found
        self.say(text)
        return self.end(extra=[text])

    def give_up(self, error: Exception) -> int:
        """End an invocation whose one measurement failed; return the exit code."""
        self.say(f"NO FIGURE: {self.fail(error)}")
        return self.end()

    def end(self, comparisons: Sequence[Comparison] = (), extra: Sequence[str] = ()) -> int:
        """Keep and print what was found; return the exit code."""
        self.document["workloads"] = [comparison.as_dict() for comparison in comparisons]
        self.document["exit_code"] = self.code
        if self.output == "json":
            print(json.dumps(self.document, indent=2))
        if self.folder is not None and (any(one.figures for one in comparisons) or extra):
            path = keep(self.folder, self.document, markdown(self.document, comparisons, extra))
            self.say(f"kept: {path.name} and its JSON")
        return self.code


@contextlib.contextmanager
def _clusters(target_kafka: str = DEFAULT_KAFKA) -> Iterator[Site]:
    """Two clusters and a folder, gone afterwards."""
    with contextlib.ExitStack() as stack:
        on_progress = stack.enter_context(show_progress())
        source, target = (
            stack.enter_context(
                LocalCluster.start(
                    ClusterSpec(name, heap=_BROKER_HEAP, kafka_version=version), on_progress=on_progress
                )
            )
            for name, version in (("source", DEFAULT_KAFKA), ("target", target_kafka))
        )
        folder = Path(tempfile.mkdtemp(prefix="eomirror-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        pids = ([broker.pid for broker in cluster.brokers] for cluster in (source, target))
        brokers = dict(zip(("source", "target"), pids, strict=True))
        yield Site(source.bootstrap_servers, target.bootstrap_servers, folder, brokers, target_kafka)


def _compare(
    session: _Session,
    site: Site,
    workload: Workload,
    peers: Sequence[Peer],
    *,
    timing: Timing,
    share: float,
    rounds: int,
) -> list[Comparison]:
    """All mirrors in turn on one workload, once in each round, each on a target without the others' topics."""
    source = None
    if not workload.paced:
        session.say(f"{workload.title}: loading")
        source = prepare(site, workload, timing, share)
    supply = Supply(site, workload, timing, source)
    comparisons = []
    for number in range(1, rounds + 1):
        title = f"{workload.title}, round {number}" if rounds > 1 else workload.title
        comparisons.append(_round(session, supply, peers, title))
    Topics(site.source).delete_all(but=())
    return comparisons


def _round(session: _Session, supply: Supply, peers: Sequence[Peer], title: str) -> Comparison:
    site, workload = supply.site, supply.workload
    figures: list[Figures] = []
    failures = {}

    def clean(why: str = "") -> None:
        if why:
            session.say(f"  {why}")
        Topics(site.target).delete_all(but=())
        Topics(site.source).delete_all(but=(workload.topic,))

    for peer in peers:
        if workload.paced:
            prepare(site, workload, supply.timing)
        session.say(f"{title}: {peer.title}")
        try:
            figures.append(supply.measure(peer, again=clean))
        except (WrongCopyError, MirrorEndedError, TimeoutError) as error:
            failures[peer.title] = session.fail(error)
        clean()
    comparison = Comparison(
        workload=workload.name, title=title, paced=workload.paced, figures=figures, failures=failures
    )
    session.say(table(comparison))
    return comparison


def _idle(session: _Session, site: Site, peers: Sequence[Peer]) -> list[IdleCost]:
    costs = []
    for peer in peers:
        session.say(f"no traffic: {peer.title}")
        try:
            costs.append(measure_idle(site, peer, seconds=_IDLE_SECONDS))
            session.say(f"  {costs[-1].percent_of_core:.1f} % of one core, {costs[-1].memory['total']} MiB")
        except (MirrorEndedError, TimeoutError) as error:
            session.say(f"  NO FIGURE: {session.fail(error)}")
        Topics(site.target).delete_all(but=())
        Topics(site.source).delete_all(but=(IDLE.topic,))
    session.document["idle"] = [cost.as_dict() for cost in costs]
    return costs


_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
_keep = click.option(
    "--results",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Where to keep the results.  [default: bench/results; none with --small]",
)
_mirrors = click.option(
    "--peer", "names", type=click.Choice([*_PEERS]), multiple=True, help="Only this mirror; may be repeated."
)


@click.group(invoke_without_command=True)
@click.option(
    "--small", is_flag=True, help="For CI: two workloads, few records, both planes and MM2 exactly-once."
)
@click.option(
    "--workload",
    "workloads",
    type=click.Choice([*WORKLOADS, IDLE.name]),
    multiple=True,
    help="Only this workload; may be repeated.",
)
@click.option(
    "--seconds", type=click.FloatRange(2), default=15.0, show_default=True, help="Length of the steady state."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 10),
    default=1,
    show_default=True,
    help="How often all mirrors take turns: brokers are warmer in the second, and noise shows.",
)
@_mirrors
@click.option(
    "--against",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="A built checkout of another commit, whose native plane takes turns with this one's.",
)
@click.option(
    "--target-kafka",
    default=DEFAULT_KAFKA,
    show_default=True,
    help="Release of the target and of MM2, such as 3.9.",
)
@_output
@_keep
@click.pass_context
def main(
    context: click.Context,
    *,
    small: bool,
    workloads: tuple[str, ...],
    seconds: float,
    rounds: int,
    names: tuple[str, ...],
    against: Path | None,
    target_kafka: str,
    output: str,
    results: Path | None,
) -> None:
    """Throughput, CPU per record and memory of this mirror and of MirrorMaker 2, copies verified first."""
    if context.invoked_subcommand is not None:
        return
    chosen = workloads or (SMALL if small else (*WORKLOADS, IDLE.name))
    peers = [_PEERS[name] for name in names or (_SMALL_PEERS if small else _PEERS)]
    if against is not None:
        peers.insert(0, Mirror("native", checkout=against))
    timing = _SMALL_TIMING if small else Timing(seconds=seconds)
    session = _Session("small" if small else "throughput", output, results or (None if small else RESULTS))
    comparisons, extra = [], []
    if target_kafka != DEFAULT_KAFKA:
        mm2 = exact_version(mm2_release(target_kafka))
        extra.append(f"The target is of Apache Kafka {exact_version(target_kafka)}, MirrorMaker 2 of {mm2}.")
    with _clusters(target_kafka) as site:
        for name in chosen:
            if name == IDLE.name:
                extra.append(idle_markdown(_idle(session, site, peers)))
            else:
                share = _SMALL_SHARE if small else 1.0
                comparisons += _compare(
                    session, site, WORKLOADS[name], peers, timing=timing, share=share, rounds=rounds
                )
    context.exit(session.end(comparisons, extra))


@main.command()
@click.option("--seconds", type=click.FloatRange(10), default=600.0, show_default=True)
@click.option("--rate", type=click.IntRange(1, 20_000), default=1000, show_default=True, help="Records/s.")
@click.option("--epoch", default="", help="Of this mirror's lanes, such as 60s.  [default: the mirror's own]")
@click.option("--plane", type=click.Choice(["native", "client"]), default="native", show_default=True)
@click.option(
    "--warm-up", type=click.FloatRange(5), default=120.0, show_default=True, help="Seconds that do not count."
)
@click.option("--turns", is_flag=True, help="Records for one mirror after the other, 20 s each.")
@click.option(
    "--burst-ms",
    type=click.FloatRange(0, 100),
    default=BURST_MS,
    show_default=True,
    help="The records of so many ms go together and to one partition; 0: each on its own.",
)
@_output
@_keep
@click.pass_context
def latency(context: click.Context, /, *, output: str, results: Path | None, **plan: Any) -> None:
    """End-to-end latency beside MM2 with exactly-once and a direct produce and consume, epoch changes included."""
    session = _Session("latency", output, results or RESULTS)
    extra = []
    with _clusters() as site:
        wanted = LatencyPlan(**plan)
        session.say(
            f"latency: {wanted.rate:,} records/s for {wanted.seconds:g} s behind {wanted.warm_up:g} s"
        )
        try:
            found = measure_latency(site, wanted)
        except (WrongCopyError, MirrorEndedError, TimeoutError) as error:
            session.say(f"NO FIGURE: {session.fail(error)}")
        else:
            session.document["latency"] = found.as_dict()
            extra.append(found.markdown())
            session.say(found.markdown())
            if found.failures:
                session.code = DIFFERS  # each of them is a record missing, twice or out of order
    context.exit(session.end(extra=extra))


@main.command()
@click.option("--transactions", type=click.IntRange(1000), default=1_000_000, show_default=True)
@click.option("--partitions", type=click.IntRange(2, 2000), default=200, show_default=True)
@_output
@_keep
@click.pass_context
def restart(
    context: click.Context, *, transactions: int, partitions: int, output: str, results: Path | None
) -> None:
    """How long a restart reads control and positions after very many transactions; about an hour."""
    session = _Session("restart", output, results or RESULTS)
    with _clusters() as site:
        try:
            found = measure_restart(site, transactions=transactions, partitions=partitions, say=session.say)
        except (MirrorEndedError, TimeoutError, RuntimeError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell(found.as_dict(), restart_markdown(found)))


@main.command()
@click.option("--rounds", type=click.IntRange(0), default=5, show_default=True, help="Starts of each kind.")
@click.option(
    "--standby-rounds", type=click.IntRange(0), default=5, show_default=True, help="Kills with a standby."
)
@click.option(
    "--mm2-standby-rounds",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="Kills of one of two workers of MM2, each of which may take five minutes.",
)
@_output
@_keep
@click.pass_context
def start(
    context: click.Context,
    *,
    rounds: int,
    standby_rounds: int,
    mm2_standby_rounds: int,
    output: str,
    results: Path | None,
) -> None:
    """The time to the first record after a start, after kill -9, and with a standby, beside MM2 as shipped."""
    session = _Session("start", output, results or RESULTS)
    with _clusters() as site:
        try:
            found = measure_starts(
                site,
                Mirror(plane="native"),
                MirrorMaker(exactly_once=True, tuned=False),
                rounds=rounds,
                standby_rounds=standby_rounds,
                their_standby_rounds=mm2_standby_rounds,
                say=session.say,
            )
        except (WrongCopyError, MirrorEndedError, TimeoutError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell(found.as_dict(), start_markdown(found)))


@main.command()
@_output
@_keep
@click.pass_context
def witness(context: click.Context, *, output: str, results: Path | None) -> None:
    """What the commit witness costs a clean transaction."""
    session = _Session("witness", output, results or RESULTS)
    with _clusters() as site:
        found = measure_witness(site)
    context.exit(session.tell(found.as_dict(), witness_markdown(found)))


@main.command()
@_output
@_keep
@click.pass_context
def relay(context: click.Context, *, output: str, results: Path | None) -> None:
    """The physical limit: what moving bytes from socket to socket takes, without reading them."""
    session = _Session("relay", output, results or RESULTS)
    found = measure_relay()
    measured = {name: limit.as_dict() for name, limit in found.items()}
    context.exit(session.tell(measured, relay_markdown(found)))


@main.command()
@click.option("--seconds", type=click.FloatRange(2), default=8.0, show_default=True, help="At each point.")
@click.option("--plane", type=click.Choice(["native", "client"]), default="native", show_default=True)
@click.option("--workers", is_flag=True, help="1 to 3 workers of a standalone Spark cluster instead.")
@_output
@_keep
@click.pass_context
def scaling(
    context: click.Context, *, seconds: float, plane: str, workers: bool, output: str, results: Path | None
) -> None:
    """Throughput, CPU and memory of this mirror with 1 to 4 lanes and 1 to 1,000 partitions."""
    session = _Session("scaling", output, results or RESULTS)
    with _clusters() as site:
        try:
            take = measure_workers if workers else measure_scaling
            found = take(site, plane=plane, seconds=seconds, say=session.say)
        except (WrongCopyError, MirrorEndedError, TimeoutError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell(found.as_dict(), scaling_markdown(found)))


@main.command()
@click.option(
    "--topics", type=click.IntRange(2, 5_000), default=1_000, show_default=True, help="Of the large link."
)
@click.option(
    "--partitions", type=click.IntRange(1, 100), default=3, show_default=True, help="Of each topic."
)
@click.option("--seconds", type=click.FloatRange(5), default=60.0, show_default=True, help="Of idleness.")
@click.option("--plane", type=click.Choice(["auto", "native", "client"]), default="auto", show_default=True)
@_output
@_keep
@click.pass_context
def idle(
    context: click.Context,
    *,
    topics: int,
    partitions: int,
    seconds: float,
    plane: str,
    output: str,
    results: Path | None,
) -> None:
    """CPU and memory of an idle link with 2 topics and with many, its starts, and the way of a setting."""
    session = _Session("idle", output, results or RESULTS)
    with _clusters() as site:
        try:
            costs = [
                measure_alone(
                    site, topics=count, partitions=partitions, seconds=seconds, plane=plane, say=session.say
                )
                for count in (2, topics)
            ]
        except (MirrorEndedError, TimeoutError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell([cost.as_dict() for cost in costs], alone_markdown(costs)))


@main.command()
@click.option("--records", type=click.IntRange(1000), default=2_000_000, show_default=True)
@_output
@_keep
@click.pass_context
def verify(context: click.Context, *, records: int, output: str, results: Path | None) -> None:
    """Records that `eomirror verify` compares per CPU-second, and its memory, result checked."""
    session = _Session("verify", output, results or RESULTS)
    with _clusters() as site:
        session.say(f"verify: {records:,} records are loaded, mirrored and compared")
        try:
            found = measure_verify(site, records=records)
        except (WrongCopyError, RuntimeError, TimeoutError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell([cost.as_dict() for cost in found], verify_markdown(found)))


@main.command()
@click.option("--groups", type=click.IntRange(1), default=10_000, show_default=True, help="Consumer groups.")
@click.option(
    "--ranges", type=click.IntRange(10_000), default=10_000_000, show_default=True, help="Of the map."
)
@_output
@_keep
@click.pass_context
def translation(
    context: click.Context, *, groups: int, ranges: int, output: str, results: Path | None
) -> None:
    """What translating offsets costs: many groups at once, one lookup, and the map itself."""
    session = _Session("translation", output, results or RESULTS)
    with _clusters() as site:
        found = measure_translation(site, groups=groups, partitions=10, ranges=ranges, say=session.say)
    context.exit(session.tell(found.as_dict(), translation_markdown(found)))


@main.command()
@click.option("--seconds", type=click.FloatRange(2), default=20.0, show_default=True)
@click.option("--partitions", type=click.IntRange(1, 100), default=2, show_default=True)
@click.option(
    "--rate", type=click.IntRange(1_000), default=1_000_000, show_default=True, help="Bytes/s of each."
)
@click.option(
    "--commit-interval", type=click.IntRange(1), default=100, show_default=True, help="Milliseconds."
)
@click.option("--plane", type=click.Choice(["native", "client"]), default="native", show_default=True)
@_output
@_keep
@click.pass_context
def overhead(
    context: click.Context,
    *,
    seconds: float,
    partitions: int,
    rate: int,
    commit_interval: int,
    plane: str,
    output: str,
    results: Path | None,
) -> None:
    """Bytes that a link keeps on the target besides the records: positions, offset map, MM2's records."""
    session = _Session("overhead", output, results or RESULTS)
    with contextlib.ExitStack() as stack:
        source, target = (
            stack.enter_context(LocalCluster.start(ClusterSpec(name))) for name in ("source", "target")
        )
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eomirror-bench-")))
        found = measure_overhead(
            source, target, folder, plane=plane, partitions=partitions, seconds=seconds, rate=rate,
            commit_interval_ms=commit_interval, say=session.say,
        )  # fmt: skip
    session.document["overhead"] = found.as_dict()
    session.say(overhead_markdown(found))
    context.exit(session.end(extra=[overhead_markdown(found)]))


@main.command()
@click.option("--groups", type=click.IntRange(1), default=1_000, show_default=True, help="Consumer groups.")
@click.option("--rounds", type=click.IntRange(1), default=20, show_default=True, help="Looks to measure.")
@_output
@_keep
@click.pass_context
def following(context: click.Context, *, groups: int, rounds: int, output: str, results: Path | None) -> None:
    """What following consumer groups costs the driver: CPU of one look at all of them."""
    session = _Session("following", output, results or RESULTS)
    with _clusters() as site:
        found = measure_following(site, groups=groups, partitions=10, rounds=rounds, say=session.say)
    context.exit(session.tell(found.as_dict(), following_markdown(found)))


@main.command()
@click.option("--topics", type=click.IntRange(1), default=100, show_default=True, help="Topics.")
@click.option(
    "--groups", type=click.IntRange(1), default=1_000, show_default=True, help="Groups in each topic."
)
@_output
@_keep
@click.pass_context
def failover(context: click.Context, *, topics: int, groups: int, output: str, results: Path | None) -> None:
    """The time of readiness, failover and cutover; exits with 3 if a group does not stand at its record."""
    session = _Session("failover", output, results or RESULTS)
    with _clusters() as site:
        try:
            found = measure_failover(site, topics=topics, groups=groups, say=session.say)
        except WrongCopyError as error:
            context.exit(session.give_up(error))
    context.exit(session.tell(found.as_dict(), failover_markdown(found)))


@main.command()
@click.option("--partitions", type=click.IntRange(1, 5_000), default=1_000, show_default=True)
@click.option("--topics", type=click.IntRange(1, 5_000), default=100, show_default=True)
@click.option("--plane", type=click.Choice(["native", "client"]), default="native", show_default=True)
@click.option("--scrapes", type=click.IntRange(10), default=120, show_default=True, help="To measure.")
@_output
@_keep
@click.pass_context
def scrape(context: click.Context, /, *, output: str, results: Path | None, **plan: Any) -> None:
    """What a scrape of `/metrics` costs the driver of a running mirror."""
    session = _Session("scrape", output, results or RESULTS)
    with _clusters() as site:
        try:
            found = measure_scrape(site, say=session.say, **plan)
        except (MirrorEndedError, TimeoutError) as error:
            context.exit(session.give_up(error))
    context.exit(session.tell(found.as_dict(), scrape_markdown(found)))


@main.command()
@click.option(
    "--rows",
    type=(click.IntRange(60), click.IntRange(60)),
    default=(10_000_000, 3_000_000),
    show_default=True,
    help="Rows of 100 B, and of 1 kB.",
)
@click.option("--small", is_flag=True, help="A smoke test: 120,000 and 60,000 rows, nothing kept.")
@click.option(
    "--rounds", type=click.IntRange(1, 10), default=1, show_default=True, help="Turns of each variant."
)
@click.option(
    "--variant",
    "names",
    type=click.Choice([*VARIANTS]),
    multiple=True,
    help="Only this variant; may be repeated.  [default: spark, source, sink, both]",
)
@_output
@_keep
@click.pass_context
def spark(
    context: click.Context,
    *,
    rows: tuple[int, int],
    small: bool,
    rounds: int,
    names: tuple[str, ...],
    output: str,
    results: Path | None,
) -> None:
    """The same Spark job, Kafka to Kafka with a filter, with Spark's own connector and with ours."""
    session = _Session("spark", output, results or (None if small else RESULTS))
    counts = (120_000, 60_000) if small else rows
    chosen = names or ("spark", "source", "sink", "both")
    told, pages = {}, []
    with _clusters() as site:
        for size, count in zip((100, 1000), counts, strict=True):
            job = Job(size, count - count % 6)
            try:
                found = measure_job(site, job, chosen, rounds=rounds, say=session.say)
            except (WrongCopyError, MirrorEndedError, TimeoutError) as error:
                pages.append(f"{job.workload.title}: no figure: {session.fail(error)}")
                continue
            told[job.workload.name] = [one.as_dict() for one in found]
            pages.append(spark_markdown(job, found))
    context.exit(session.tell(told, "\n\n".join(pages)))


def run() -> None:
    """Turn our own errors into a line and an exit code."""
    try:
        main(prog_name="python -m bench")
    except MirrorError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    run()
