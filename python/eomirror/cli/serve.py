"""``eomirror serve``: a page, data and metrics of links, from their topics alone."""

from __future__ import annotations

import signal
import threading
from functools import partial
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.serve.http import parse_listen

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from eomirror.serve.http import Address
    from eomirror.status.live import LinkFacts
    from eomirror.status.repeated_reader import Reader
    from eomirror.status.sinks import SinkReader

__all__ = ["serve"]

_DEFAULT = "127.0.0.1:9465"


@click.command(epilog="Example: eomirror serve mirror.yaml --listen 127.0.0.1:9465")
@options.config
@options.links
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default=_DEFAULT,
    show_default=True,
    help="Address to serve on, without authentication.",
)
@options.per_partition
@options.per_group
@options.overrides
def serve(
    config: str,
    links: tuple[str, ...],
    listen: str,
    metrics_per_partition: bool,
    metrics_per_group: bool,
    overrides: tuple[str, ...],
) -> int:
    """
    Serve a page, data (/api/v1) and metrics of links, read from the target's topics.

    Keeps no state and needs no running mirror: it works while the mirror or the source is dead, and several may run. It
    only reads. It serves until SIGTERM or Ctrl-C; an unreachable cluster is retried.

    There is no authentication: every client that can connect may read names of topics and groups.

    Exit codes: 0 stopped, 1 the address cannot be bound, 2 it is not one.
    """
    address = parse_listen(listen)
    stopped = threading.Event()

    def stop(_: int, __: FrameType | None) -> None:
        stopped.set()

    # first, because reading the configuration takes time
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _serve(
            config,
            links,
            address,
            stopped,
            overrides=overrides,
            per_partition=metrics_per_partition,
            per_group=metrics_per_group,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _serve(
    config: str,
    links: tuple[str, ...],
    address: Address,
    stopped: threading.Event,
    *,
    overrides: tuple[str, ...],
    per_partition: bool,
    per_group: bool,
) -> None:
    """Serves until ``stopped`` is set."""
    import structlog

    from eomirror import __version__
    from eomirror.config import load_config
    from eomirror.kafka.client_factory import secret_finder
    from eomirror.serve.http import HttpServer
    from eomirror.serve.polled import PolledEndpoints
    from eomirror.serve.queries import LinkQueries
    from eomirror.status.hanging import HangingTransactions
    from eomirror.status.live import LinkFacts
    from eomirror.status.reader import StatusReader
    from eomirror.status.repeated_reader import record_outages
    from eomirror.status.sinks import SinkReader

    loaded = load_config(config, overrides=overrides)
    chosen = loaded.chosen(links)
    sinks = SinkReader(loaded.clusters)
    endpoints = PolledEndpoints(
        {
            LinkFacts.of(link): partial(
                StatusReader,
                link,
                loaded.clusters[link.source],
                loaded.clusters[link.target],
                hanging=HangingTransactions,
            )
            for link in chosen
        },
        sinks=dict if links else partial(_sinks, sinks),
        version=__version__,
        per_partition=per_partition,
        per_group=per_group,
        holds_secret=secret_finder(loaded.clusters.values()),
        queries=LinkQueries(loaded),
        record=partial(record_outages, loaded),
    )
    server = HttpServer(address, endpoints.answer)
    structlog.get_logger(__name__).info("listening", url=server.url)
    endpoints.start()
    try:
        stopped.wait()
    finally:
        endpoints.close()
        server.close()


def _sinks(reader: SinkReader) -> dict[LinkFacts, Callable[[], Reader]]:
    """Returns facts and reader of each sink of a Spark query that the clusters know now."""
    from eomirror.status.sinks import OneSink, sink_facts

    return {sink_facts(one.link): partial(OneSink, reader, one.link) for one in reader.recent()}
