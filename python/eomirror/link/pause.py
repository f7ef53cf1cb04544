"""
Pauses a link, and resumes it: a record in its control topic, which the owner of the link obeys.

The command may run on any host.  It writes the record with a producer of its own, because the mirror owns the link and
keeps it: it renews its claim, holds its lanes, and goes on at their positions.  A mirror that starts finds the record.

Lanes hold at the end of a transaction.
"""

from __future__ import annotations

import re
import socket
from contextlib import closing
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import LaneError, NotReadyError, UnreachableError, UsageError
from eomirror.kafka.session import ClusterSession
from eomirror.link.ownership import refuse_handed_over, refuse_promoted
from eomirror.link.state import control_of
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import Pause
from eomirror.records.events import lasting_events
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Cluster, Config, Link
    from eomirror.records.control import ControlView

__all__ = ["PauseReport", "pause", "paused_error", "resume", "write_control"]


def paused_error(link: str, pause: Pause) -> NotReadyError:
    """Returns the error for what a paused link cannot do."""
    topics = f"topics {pause.topics}" if pause.topics else "all topics"
    return NotReadyError(
        f"link {link} is paused ({topics}, by {pause.host}): it does not catch up",
        fix=f"resume it first: `eomirror resume CONFIG --link {quote(link)}`",
    )


def write_control(
    link: Link, target: Cluster, records: Sequence[tuple[bytes, bytes | None]], *, role: str, clock: Clock
) -> None:
    """
    Commits records to the control topic of a link, beside its owner.

    Args:
        link: The link.
        target: Its target.
        records: Key and value of each; None deletes.
        role: Names the client and its transactional id, so that two commands of a kind follow each other.

    Raises:
        AuthorizationError: Control may not be written.
        UnreachableError: The records are not committed, or that is not known.
    """
    names = LinkNames(link.state_name)
    topic = names.control_topic
    producer = TransactionalProducer(
        target,
        client_id=names.client_id(role),
        transactional_id=f"{names.control_transactional_id}.{role}",
        transaction_timeout=link.transaction_timeout,
        known_topic=topic,
        clock=clock,
    )
    with closing(producer):
        try:
            producer.init()
            producer.begin()
            events, _ = lasting_events(records, owner=None, now_ms=clock.wall_ms())
            written = [*records, *((event.key(), event.value()) for event in events)]
            producer.write([MetadataRecord(topic, 0, key, value) for key, value in written])
            producer.flush(link.transaction_timeout)
            producer.commit()
        except LaneError as error:
            raise UnreachableError(
                f"cannot write {topic} on {link.target}: {error}",
                fix="repeat this when the target is healthy",
            ) from error


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
