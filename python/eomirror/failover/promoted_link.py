"""Connects to a link that was promoted, and records in its control topic what a command does about it."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.config.model import require_untransformed
from eomirror.errors import NotReadyError, TopicError, UsageError
from eomirror.failover.orphan_reader import OrphanReader
from eomirror.kafka.session import link_sessions
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.hanging import target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.state import LinkState, control_of
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion, Restoration, Reversal
    from eomirror.records.recreation import CopyBack, Recreation
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

__all__ = [
    "PromotedLink",
    "back_link",
    "back_link_name",
    "begins",
    "by_topic",
    "merged",
    "returns",
    "whole_link",
]


def back_link(config: Config, link: Link, promotion: Promotion) -> Link:
    """
    Returns the link of the configuration that mirrors the copies of a link back to its source topics.

    A topic that the source had no more at the promotion may be missing there: what was deleted need not come back.

    Args:
        link: The promoted link.
        promotion: Its promotion, which names the topics.

    Raises:
        UsageError: No link does; the fix is the entry to add.
    """
    topics = {cut.target_topic: cut.topic for cut in promotion.cuts if not cut.gone}
    there = [other for other in config.links if (other.source, other.target) == (link.target, link.source)]
    for other in there:
        if all(_returns(other, copy, topic) for copy, topic in topics.items()):
            return other
    missing = sorted(
        copy for copy, topic in topics.items() if not any(_returns(other, copy, topic) for other in there)
    )
    raise UsageError(
        f"no link of the configuration mirrors {', '.join(missing[:3]) or 'the copies'} from {link.target} back to "
        f"{link.source}",
        fix=f"add this entry under `links`, then repeat the command: {_entry(link, topics)}",
    )


def begins(promotion: Promotion, back: Link | None = None) -> dict[SourcePartition, int]:
    """
    Returns the offset at which the link back begins in each copy: the end at the cut.

    So of a topic that was deleted on the source, only what applications write after the cut comes back, and nothing if
    the link back leaves it out.

    Args:
        back: The link back; None if it leaves out nothing.
    """
    return {
        cut.copy: cut.target_end
        for cut in promotion.cuts
        if not cut.gone or back is None or _returns(back, cut.target_topic, cut.topic)
    }


def whole_link(back: Link, copies: Collection[str] | None = None) -> Link:
    """
    Returns the link back without its loop guard, to bring back what the old source once wrote and has lost.

    Args:
        copies: Only these topics, and nothing but their records; None for the link as it is.
    """
    whole = replace(back, loops=replace(back.loops, whole=True))
    if copies is None:
        return whole
    return replace(
        whole,
        topics=tuple(re.escape(copy) for copy in sorted(copies)),
        exclude=(),
        groups=(),
        sync_group_offsets=False,
        heartbeats="off",
    )


def merged(promotion: Promotion, positions: Mapping[SourcePartition, Position]) -> dict[SourcePartition, int]:
    """
    Returns the offset up to which a promoted link has mirrored its orphans, of partitions in which it has.

    Only a merge writes positions while the link is promoted, and does so with a lane layout of its own.
    """
    return {source: one.offset for source, one in positions.items() if one.generation > promotion.generation}


def returns(promotion: Promotion, reached: Mapping[SourcePartition, int]) -> dict[SourcePartition, int]:
    """
    Returns the offset at which a link mirrors again after its link back was promoted.

    That is the end of the copy at the cut, unless a merge has mirrored on behind it: then where the merge has ended,
    because each record is mirrored once.

    Args:
        promotion: Promotion of the link back.
        reached: Offset up to which a merge has mirrored, of partitions in which one has.
    """
    return {source: max(begin, reached.get(source, 0)) for source, begin in begins(promotion).items()}


def back_link_name(link: Link) -> str:
    """Returns the name that the entry of a missing link back has."""
    return f"{link.state_name.replace('.', '-')}-back"


def _returns(link: Link, copy: str, topic: str) -> bool:
    try:
        return link.mirrors(copy) and link.target_topic(copy) == topic
    except TopicError:
        return False


def _entry(link: Link, topics: dict[str, str]) -> str:
    """Returns the link back in YAML, on one line."""
    head = f"{{name: {back_link_name(link)}, source: {link.target}, target: {link.source}"
    if link.naming.kind == "identity":
        patterns = ", ".join(f'"{_quoted(pattern)}"' for pattern in link.topics)
        mark = link.naming.separator
        same = "identity" if mark == "." else f'{{policy: identity, separator: "{mark}"}}'
        return f"{head}, topics: [{patterns}], naming: {same}}}"
    if link.naming.kind == "prefix":
        prefix = _quoted(f"{link.source}{link.naming.separator}".replace(".", "\\."))
        patterns = ", ".join(f'"{prefix}({_quoted(pattern)})"' for pattern in link.topics)
        return f'{head}, topics: [{patterns}], naming: {{match: "{prefix}(.*)", to: "$1"}}}}'
    names = ", ".join(f"{copy}: {topic}" for copy, topic in sorted(topics.items()))
    escaped = [copy.replace(".", "\\.") for copy in sorted(topics)]
    patterns = ", ".join(f'"{_quoted(copy)}"' for copy in escaped)
    return f"{head}, topics: [{patterns}], naming: {{map: {{{names}}}}}}}"


def by_topic(offsets: Mapping[SourcePartition, int]) -> dict[str, dict[str, int]]:
    """Returns offsets by topic and number of the partition, as records hold them."""
    topics: dict[str, dict[str, int]] = {}
    for source, offset in offsets.items():
        topics.setdefault(source.topic, {})[str(source.partition)] = offset
    return topics


def _quoted(pattern: str) -> str:
    return pattern.replace("\\", "\\\\").replace('"', '\\"')


#: Commands that compare copies with originals, and write over these.
_ON_ORIGINALS = ("reverse", "restore")


class PromotedLink:
    """
    A promoted link that a command works on.

    Args:
        config: Configuration that has both links.
        link: Name of the promoted link; None if there is one only.
        command: Name of the command, for claims and client ids.
        dry_run: Only inspect.
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
        dry_run: bool = False,
        on_event: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.config, self.link, self.dry_run = config, config.mapped_link(link), dry_run
        if command in _ON_ORIGINALS:
            require_untransformed(self.link, f"`{command}`")
        self.tell, self.clock = on_event or (lambda _: None), clock
        self.run_id = new_run_id()
        self._command = command
        self._opened = ExitStack()
        self.sessions = self.connect(self.link)

    def close(self) -> None:
        """Closes all connections."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def positions(
        self, link: Link | None = None, sessions: LinkSessions | None = None
    ) -> Mapping[SourcePartition, Position]:
        """
        Returns the positions of the promoted link, or of another one.

        Raises:
            StateError: A position is not readable.
            ClusterError: The target does not answer.
        """
        state = LinkState(link or self.link, (sessions or self.sessions).target)
        return state.positions(wait_for_open=False, overruled=())

    def copy_ends(
        self,
        positions: Iterable[Position],
        control: ControlView,
        link: Link | None = None,
        sessions: LinkSessions | None = None,
    ) -> Mapping[SourcePartition, CopyEnd]:
        """
        Returns how far the copies of a link that has run hold what its positions say.

        Raises:
            ClusterError: The target does not answer.
        """
        assert control.generation is not None, "it has run"  # noqa: S101  for the type checker
        ends = CopyEnds(link or self.link, (sessions or self.sessions).target)
        return ends.read(list(positions), highest_lane=control.generation.highest_lane)

    def reader(self, cluster: str) -> OrphanReader:
        """Returns the reader of records of a cluster, given its alias."""
        client_id = LinkNames(self.link.state_name).client_id(self._command)
        return OrphanReader(self.config.clusters[cluster], client_id, self.clock)

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
            until = by_topic(
                {each: one.offset for each, one in positions.items() if back.mirrors(each.topic)}
            )
            owner.note(
                replace(order, done=True, until=until, run=self.run_id, timestamp=self.clock.wall_ms())
            )
            owner.release()

    def take(
        self, link: Link, sessions: LinkSessions, partitions: Sequence[AssignedPartition], **options: Any
    ) -> None:
        """
        Publishes a lane layout of a link with the positions that ``adopt`` sets, and releases the link.

        Args:
            options: Further options of `LinkOwner`.

        Raises:
            SupersededError: A mirror, or another command, holds the link.
            MirrorError: A cluster refuses the request.
        """
        with closing(self.owner(link, sessions, **options)) as owner:
            owner.acquire(link.lanes, partitions)
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
