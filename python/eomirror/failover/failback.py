"""
Returns to the old source: promotes the link back, then lets the first link mirror again from that cut.

The promotion may fence the applications, verify, and switch them, like every planned one.  A fence is lifted between
the two halves: it would also stop the link that mirrors again.  Each half may be repeated: a link back that is
promoted already is only reversed.

What the second half needs is checked before the first begins.  The clients are switched between the two: the promotion
of the link back has recorded where the first link begins, so that what they write to the old source from then on is
mirrored, whenever the second half is taken.  The fence is lifted behind the switch, because clients that still write to
the copies would write what no link mirrors.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, utc
from eomirror.config.model import require_untransformed
from eomirror.errors import NotReadyError
from eomirror.failover.machine import Verb
from eomirror.failover.orphans import refuse_forgotten
from eomirror.failover.promoted_link import back_link
from eomirror.failover.promotion import PromotionOptions, promote
from eomirror.failover.recreation import refuse_recreated
from eomirror.failover.reversal import refuse_no_return, reverse
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.link.state import control_of
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config, Link
    from eomirror.failover.promotion import PromotionReport
    from eomirror.failover.reversal import ReversalReport
    from eomirror.records.control import ControlView
    from eomirror.topics.plan import ChangedSetting

__all__ = ["FailbackReport", "failback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackReport:
    """
    Result of a failback.

    Attributes:
        link: The link that mirrors again.
        back: The link back, which is promoted.
        promotion: Promotion of the link back; None if it was promoted before.
        reversal: Return of the link; None for a dry run, or if the link back was not promoted or clients not switched.
        unfenced: True if the fence of the applications was lifted.
        settings: Settings of existing topics that the return would change, for a dry run; else the reversal has them.
    """

    link: str
    back: str
    promotion: PromotionReport | None
    reversal: ReversalReport | None
    unfenced: bool = False
    settings: tuple[ChangedSetting, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "link": self.link,
            "back": self.back,
            "promotion": None if self.promotion is None else self.promotion.as_dict(),
            "reversal": None if self.reversal is None else self.reversal.as_dict(),
            "unfenced": self.unfenced,
            "settings": [each.as_dict() for each in self.settings],
        }


def failback(
    config: Config,
    *,
    link: str | None = None,
    method: FenceMethod | None = None,
    verify: Callable[[Link], None] | None = None,
    options: PromotionOptions | None = None,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> FailbackReport:
    """
    Returns applications to the source of a promoted and reversed link, without loss; the link can run afterwards.

    Args:
        config: Configuration that has both links.
        link: Name of the link that is to mirror again; required if there are several.
        method: Stops the applications that write to the copies; None, or ``wait``, if the user has.
        verify: Compares what the link back has mirrored, given that link; raises if it differs.  None to skip it.
        options: Other options of the promotion: its ``fence``, ``verify`` and ``check`` are set here.
        on_event: Receives a short text for each step.

    Raises:
        NotReadyError: The link is not promoted, or not reversed.
        UsageError: The configuration has no link back.
        MirrorError: As for `promote` and `reverse`.
    """
    chosen = config.mapped_link(link)
    require_untransformed(chosen, "`failback`")
    control = _control(config, chosen, clock)
    history = control.history
    promotion = history.current
    if promotion is None or promotion.number not in history.reversals:
        last = history.last
        if promotion is None and last is not None:
            since = utc(history.resumptions[last.number].timestamp)
            raise NotReadyError(
                f"link {chosen.name} has returned already, at {since}",
                fix=f"run it: `eomirror run CONFIG --link {quote(chosen.name)}`",
            )
        state = "mirrors" if promotion is None else "is promoted, but not reversed"
        raise NotReadyError(
            f"link {chosen.name} {state}: there is nothing to return from",
            fix="the order is: failover or promote, reverse, run the link back, failback",
        )
    refuse_recreated(chosen, control, promotion, unfinished=True)
    client_id = LinkNames(chosen.state_name).client_id("failback")
    back = back_link(config, chosen, promotion)
    clusters = config.clusters[chosen.source], config.clusters[chosen.target]
    with closing(link_sessions(chosen, *clusters, "failback", clock=clock)) as sessions:
        refuse_forgotten(chosen, sessions, control, client_id=client_id, clock=clock, back=back)
    tell = on_event or (lambda _: None)
    fence = LinkWriterFence(config, back, method or FenceMethod(), clock=clock)
    fences = method is not None and method.name != "wait"
    settings: list[ChangedSetting] = []
    options = replace(
        options or PromotionOptions(),
        fence=fence if fences else None,
        verify=None if verify is None else lambda: verify(back),
        check=lambda: settings.extend(refuse_no_return(config, back.name, to=chosen.name, clock=clock)),
    )
    promoted = None
    if _control(config, back, clock).history.current is None:
        verb = Verb.CUTOVER if fences else Verb.PROMOTE
        promoted = promote(config, verb, link=back.name, options=options, on_event=on_event, clock=clock)
        if promoted.promotion is None or promoted.switched is False or promoted.error is not None:
            # Applications that were not switched stay fenced, or would write what the link that returns does not know.
            return FailbackReport(
                link=chosen.name,
                back=back.name,
                promotion=promoted,
                reversal=None,
                settings=tuple(settings) if options.dry_run else (),
            )
    elif options.confirm is not None:
        # nothing is left to be judged, and the second half also changes both links
        options.confirm(None)
    unfenced = False
    if not options.dry_run and _control(config, back, clock).history.fence is not None:
        tell(f"lifting the fence of {back.source}")
        unfenced = fence.lift() is not None
    returned = reverse(config, link=back.name, dry_run=options.dry_run, on_event=on_event, clock=clock)
    return FailbackReport(
        link=chosen.name, back=back.name, promotion=promoted, reversal=returned, unfenced=unfenced
    )


def _control(config: Config, link: Link, clock: Clock) -> ControlView:
    client_id = LinkNames(link.state_name).client_id("failback")
    with closing(ClusterSession(config.clusters[link.target], client_id=client_id, clock=clock)) as session:
        return control_of(link, session)
