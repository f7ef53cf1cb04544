"""Connects to a link that was promoted, and records in its control topic what a command does about it."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import Clock, new_run_id
from eomirror.errors import NotReadyError
from eomirror.failover.facts import control_of
from eomirror.kafka.session import link_sessions
from eomirror.link.hanging_state_topics import target_hanging_client
from eomirror.link.owner import LinkOwner

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config, Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.control import ControlView
    from eomirror.records.promotion import Promotion, Restoration, Reversal
    from eomirror.records.recreation import CopyBack, Recreation

__all__ = ["PromotedLink"]


class PromotedLink:
    """
    A promoted link that a command works on.

    Args:
        config: Configuration that has both links.
        link: Name of the promoted link; None if there is one only.
        command: Name of the command, for claims and client ids.
        on_event: Receives a short text for each step.

    Attributes:
        link: The promoted link.
        run_id: Id of this call.
        sessions: Connections to both clusters.
    """

    def __init__(
        self,
        config: Config,
        link: str | None,
        command: str,
        *,
        on_event: Callable[[str], None] | None,
        clock: Clock,
    ) -> None:
        self.config, self.link = config, config.mapped_link(link)
        self.tell, self.clock = on_event or (lambda _: None), clock
        self.run_id = new_run_id()
        self._command = command
        self._opened = ExitStack()
        self.sessions = self.connect(self.link)

    def close(self) -> None:
        """Closes all connections."""
        self._opened.close()

    def connect(self, link: Link) -> LinkSessions:
        """Returns connections to both clusters of a link, until `close`."""
        clusters = self.config.clusters[link.source], self.config.clusters[link.target]
        sessions = link_sessions(link, *clusters, self._command, clock=self.clock)
        self._opened.callback(sessions.close)
        return sessions

    def in_force(self) -> tuple[ControlView, Promotion]:
        """
        Returns the control topic of the link, and its promotion.

        Raises:
            NotReadyError: The link is not promoted.
            StateError: A record is not readable.
            ClusterError: The target does not answer.
        """
        control = control_of(self.link, self.sessions.target)
        promotion = control.history.current
        if promotion is None:
            state = "never ran" if control.generation is None else "is not promoted: it mirrors"
            raise NotReadyError(
                f"link {self.link.name} {state}",
                fix="name the link that was promoted, not the link back; or promote it first: `eomirror cutover`, "
                f"`promote` or `failover`; `eomirror history CONFIG --link {quote(self.link.name)}` shows what was",
            )
        return control, promotion

    def ask_source(self) -> None:
        """
        Asks the source for its id, because it is about to be read: other requests wait 30 s for a cluster that is away.

        Raises:
            ClusterError: The source does not answer.
        """
        self.sessions.source.admin.describe_cluster()

    def owner(self, link: Link, sessions: LinkSessions, **options: Any) -> LinkOwner:
        """Returns an owner of this link, or of the link back, with further options of `LinkOwner`."""
        given = {"on_event": self.tell, **options}
        return LinkOwner(
            link,
            *sessions,
            run=self.run_id,
            clock=self.clock,
            hanging_client=target_hanging_client,
            command=self._command,
            **given,
        )

    def finish_copy_back(self, back: Link, sessions: LinkSessions, order: CopyBack) -> None:
        """
        Ends an order that topics are copied back whole: the link back may run.

        Args:
            back: The link back for these topics alone.
            order: The order, which stands.

        Raises:
            SupersededError: Another command holds the link back.
            MirrorError: Its target refuses the request.
        """
        with closing(self.owner(back, sessions)) as owner:
            _, positions = owner.retake()
            until: dict[str, dict[str, int]] = {}
            for source, one in positions.items():
                if back.mirrors(source.topic):
                    until.setdefault(source.topic, {})[str(source.partition)] = one.offset
            owner.note(
                replace(order, done=True, until=until, run=self.run_id, timestamp=self.clock.wall_ms())
            )
            owner.release()

    def note(self, record: Reversal | Restoration | Recreation) -> None:
        """
        Commits a record to the control topic of the promoted link.

        Raises:
            SupersededError: Another command holds the link.
            MirrorError: The target refuses the request.
        """
        with closing(self.owner(self.link, self.sessions, although_promoted=True, on_event=None)) as owner:
            owner.retake()
            owner.note(record)
            owner.release()
