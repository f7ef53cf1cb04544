"""Pauses and resumes a link: its lanes hold at the end of a transaction, until they may go on."""

from __future__ import annotations

import re
import socket
from contextlib import closing
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import NotReadyError, UsageError
from eomirror.failover.facts import control_of
from eomirror.kafka.session import ClusterSession
from eomirror.link.ownership import refuse_handed_over, refuse_promoted
from eomirror.link.pause import write_control
from eomirror.records.control import Pause
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.records.control import ControlView

__all__ = ["PauseReport", "pause", "resume"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseReport:
    """
    Result of `pause` or `resume`.

    Attributes:
        link: Name of the link.
        paused: True if topics are held from now on.
        topics: Full-match regular expression of these; ``.*`` for all, empty after `resume`.
        matching: Source topics with a lane that the pause holds, or held.
        before: Expression of the pause that stood before; empty for none.
        committed: False for a dry run, and if nothing was to be changed.
    """

    link: str
    paused: bool
    topics: str
    matching: tuple[str, ...]
    before: str
    committed: bool

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return asdict(self)


def pause(
    config: Config,
    *,
    link: str | None = None,
    topics: str = "",
    dry_run: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> PauseReport:
    """
    Has the lanes of a link hold; a mirror that runs obeys within seconds, at the end of a transaction.

    The request stands until `resume`, also over restarts of the mirror.  A second call replaces it.

    Args:
        config: Configuration of the mirror.
        link: Name of the link; required if there are several.
        topics: Full-match regular expression of source topics; empty for all.
        dry_run: Only inspect.

    Raises:
        UsageError: ``topics`` is not a regular expression, or matches no topic of the link.
        NotReadyError: The link never ran, or is promoted.
        NotReadyError: It was handed to another replicator.
        StateError: A record is not readable.
        ClusterError: The target does not answer.
    """
    try:
        pattern = re.compile(topics or ".*")
    except re.error as error:
        raise UsageError(
            f"topics {topics}: not a regular expression: {error}",
            fix="name a topic, or give a pattern such as orders.*",
        ) from error
    wanted = "" if pattern.pattern == ".*" else topics
    return _change(config, link, wanted, paused=True, dry_run=dry_run, clock=clock)


def resume(
    config: Config, *, link: str | None = None, dry_run: bool = False, clock: Clock = SYSTEM_CLOCK
) -> PauseReport:
    """
    Has the lanes of a paused link go on at their positions.

    Args:
        config: Configuration of the mirror.
        link: Name of the link; required if there are several.
        dry_run: Only inspect.

    Raises:
        NotReadyError: The link never ran, or is promoted.
        NotReadyError: It was handed to another replicator.
        StateError: A record is not readable.
        ClusterError: The target does not answer.
    """
    return _change(config, link, "", paused=False, dry_run=dry_run, clock=clock)


def _change(
    config: Config, name: str | None, topics: str, *, paused: bool, dry_run: bool, clock: Clock
) -> PauseReport:
    chosen = config.only_link(name)
    target = config.clusters[chosen.target]
    client_id = LinkNames(chosen.state_name).client_id("pause")
    with closing(ClusterSession(target, client_id=client_id, clock=clock)) as session:
        control = control_of(chosen, session)
    report = _planned(chosen.name, control, topics, paused=paused, dry_run=dry_run)
    if report.committed:
        made = Pause(topics=topics, host=socket.gethostname(), timestamp=clock.wall_ms())
        value = made.value() if paused else None
        write_control(chosen, target, [(Pause.key(), value)], role="pause", clock=clock)
    return report


def _planned(link: str, control: ControlView, topics: str, *, paused: bool, dry_run: bool) -> PauseReport:
    """Returns what the command does; pure."""
    if control.generation is None:
        raise NotReadyError(
            f"link {link} never ran: there is nothing to hold",
            fix="compare the name of the link with that of the run",
        )
    refuse_handed_over(link, control)
    refuse_promoted(link, control)
    before = control.pause
    asked = Pause(topics=topics, host="", timestamp=0) if paused else before
    known = sorted({source.topic for source in control.generation.assignment.partitions})
    matching = tuple(topic for topic in known if asked is not None and asked.holds(topic))
    if paused and topics and not matching:
        raise UsageError(
            f"link {link}: no topic that it mirrors matches {topics}",
            fix=f"`eomirror status CONFIG --link {quote(link)}` lists them",
        )
    same = (before is not None and before.topics == topics) if paused else before is None
    return PauseReport(
        link=link,
        paused=paused,
        topics=(topics or ".*") if paused else "",
        matching=matching,
        before="" if before is None else before.pattern,
        committed=not dry_run and not same,
    )
