"""``eomirror backfill``: copies the past of links with many lanes, then leaves them to ``eomirror run``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.run import Signals, failure_in_one_format, mirror_links, parse_conf
from eomirror.serve.http import parse_listen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Config

__all__ = ["NOT_CAUGHT_UP", "backfill", "with_lanes"]

#: Exit code of a backfill that was stopped before the end.
NOT_CAUGHT_UP = 3


@click.command(epilog="Example: eomirror backfill mirror.yaml && eomirror run mirror.yaml")
@options.config
@options.links
@click.option(
    "--lanes",
    type=click.IntRange(1, 256),
    help="Lanes of each link.  [default: the CPUs of this machine, or the cores that the Spark settings ask for, "
    "divided by the links; not fewer than the link's]",
)
@options.master
@options.spark_conf
@options.overrides
@options.take_over
@options.into_filled
@options.listen
@options.output()
def backfill(
    config: str,
    links: tuple[str, ...],
    lanes: int | None,
    master: str | None,
    spark_conf: tuple[str, ...],
    overrides: tuple[str, ...],
    listen: str | None,
    output: str | None,
    **ordered: bool,
) -> int:
    """
    Copy what the source holds at the start, as fast as many lanes can, and release the links.

    All partitions are assigned to the lanes by what each has left to copy.  Order, positions, offset map and
    translation of groups are those of `run`, which goes on at the positions with its own lanes.  Records that are
    written meanwhile are mirrored too; the backfill does not wait for them.

    Started again after a kill or a stop, it resumes at the positions.  Progress and time left are shown on stderr.

    A link that another mirror owns is refused; --take-over takes it, and `run --standby` takes it back at the end.

    Exit codes: 0 all ends of the start are reached, 1 failed, 3 stopped before that, 4 data loss, 5 another mirror owns
    the link, 6 the link is promoted, 78 the configuration is refused.
    """
    with Signals() as signals, failure_in_one_format():
        confs = parse_conf(spark_conf)
        address = None if listen is None else parse_listen(listen)

        from eomirror.config import load_config

        loaded = load_config(config, overrides=overrides)
        report = mirror_links(
            with_lanes(loaded, links, lanes or _slots(loaded, master, confs), least=lanes is None),
            signals,
            until="caught-up",
            links=links,
            watched=None,
            output=output,
            address=address,
            master=master,
            spark_conf=confs,
            by_backlog=True,
            **ordered,
        )
        if report.exit_code or all(link.outcome == "caught up" for link in report.links):
            return report.exit_code
        return NOT_CAUGHT_UP


def with_lanes(loaded: Config, names: tuple[str, ...], lanes: int, *, least: bool) -> Config:
    """
    Returns the configuration with other numbers of lanes.

    Args:
        loaded: The configuration.
        names: Links to change; empty for all.
        lanes: Lanes of each link, or with ``least`` of all links together.
        least: Each link keeps at least its own lanes.
    """
    chosen = {loaded.link(name).name for name in names} or {link.name for link in loaded.links}
    shares = {
        link.name: max(link.lanes, lanes // len(chosen)) if least else lanes
        for link in loaded.links
        if link.name in chosen
    }
    changed = (replace(link, lanes=shares.get(link.name, link.lanes)) for link in loaded.links)
    return replace(loaded, links=tuple(changed))


def _slots(loaded: Config, master: str | None, confs: Mapping[str, str]) -> int:
    """Returns the tasks that Spark can run at the same time, as far as its settings tell; else 1."""
    from eomirror import __version__
    from eomirror.spark.context import engine_settings
    from eomirror.spark.transport import slots

    settings: Any = engine_settings(master=master, configured=loaded.spark, given=confs, version=__version__)
    return min(256, slots(settings) or 1)
