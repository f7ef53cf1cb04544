"""
Returns to the old source: promotes the link back, then lets the first link mirror again from that cut.

Both halves may be repeated: a link back that is promoted already is only reversed.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import NotReadyError
from eomirror.failover.back_link import back_link
from eomirror.failover.facts import history_of
from eomirror.failover.machine import Verb
from eomirror.failover.orphans import refuse_forgotten
from eomirror.failover.promotion import PromotionOptions, promote
from eomirror.failover.reversal import reverse
from eomirror.kafka.session import ClusterSession
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config, Link
    from eomirror.failover.promotion import PromotionReport
    from eomirror.failover.reversal import ReversalReport
    from eomirror.records.promotion import PromotionHistory

__all__ = ["FailbackReport", "failback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackReport:
    """
    Result of a failback.

    Attributes:
        link: The link that mirrors again.
        back: The link back, which is promoted.
        promotion: Promotion of the link back; None if it was promoted before.
        reversal: Return of the link; None for a dry run, or if the link back was not promoted.
    """

    link: str
    back: str
    promotion: PromotionReport | None
    reversal: ReversalReport | None

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "link": self.link,
            "back": self.back,
            "promotion": None if self.promotion is None else self.promotion.as_dict(),
            "reversal": None if self.reversal is None else self.reversal.as_dict(),
        }


def failback(
    config: Config,
    verb: Verb = Verb.PROMOTE,
    *,
    link: str | None = None,
    options: PromotionOptions | None = None,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> FailbackReport:
    """
    Returns applications to the source of a promoted and reversed link, without loss; the link can run afterwards.

    Args:
        config: Configuration that has both links.
        verb: ``promote`` or ``cutover``, for the link back.
        link: Name of the link that is to mirror again; required if there are several.
        options: Options of the promotion.
        on_event: Receives a short text for each step.

    Raises:
        NotReadyError: The link is not promoted, or not reversed.
        UsageError: The configuration has no link back.
        MirrorError: As for `promote` and `reverse`.
    """
    chosen = config.only_link(link)
    history = _history(config, chosen, clock)
    promotion = history.current
    if promotion is None or promotion.number not in history.reversals:
        state = "mirrors" if promotion is None else "is promoted, but not reversed"
        raise NotReadyError(
            f"link {chosen.name} {state}: there is nothing to return from",
            fix="the order is: failover or promote, reverse, run the link back, failback",
        )
    client_id = LinkNames(chosen.state_name).client_id("failback")
    refuse_forgotten(chosen, config.clusters[chosen.source], history, client_id=client_id, clock=clock)
    back = back_link(config, chosen, promotion)
    promoted = None
    if _history(config, back, clock).current is None:
        promoted = promote(config, verb, link=back.name, options=options, on_event=on_event, clock=clock)
        if promoted.promotion is None:
            return FailbackReport(link=chosen.name, back=back.name, promotion=promoted, reversal=None)
    returned = reverse(
        config,
        link=back.name,
        dry_run=options is not None and options.dry_run,
        on_event=on_event,
        clock=clock,
    )
    return FailbackReport(link=chosen.name, back=back.name, promotion=promoted, reversal=returned)


def _history(config: Config, link: Link, clock: Clock) -> PromotionHistory:
    client_id = LinkNames(link.state_name).client_id("failback")
    with closing(ClusterSession(config.clusters[link.target], client_id=client_id, clock=clock)) as session:
        return history_of(link, session)
