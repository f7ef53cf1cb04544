"""Reads the promotions of a link from its control topic."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.failover.facts import history_of
from eomirror.failover.promotion import promotion_dict
from eomirror.kafka.session import ClusterSession
from eomirror.records.names import LinkNames
from eomirror.status.standing_fence import fence_dict

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.records.promotion import PromotionHistory

__all__ = ["LinkHistory", "link_history"]


@dataclass(frozen=True, slots=True)
class LinkHistory:
    """
    Promotions of one link.

    Attributes:
        history: Its records.
    """

    link: str
    history: PromotionHistory

    @property
    def state(self) -> str:
        """``mirror``, ``promoted`` or ``reversed``."""
        current = self.history.current
        if current is None:
            return "mirror"
        return "reversed" if current.number in self.history.reversals else "promoted"

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        events = []
        for number, promotion in sorted(self.history.promotions.items()):
            event = promotion_dict(promotion)
            if reversal := self.history.reversals.get(number):
                event["reversed"] = {"at": reversal.timestamp, "link": reversal.link, "run": reversal.run}
            if restoration := self.history.restorations.get(number):
                event["restored"] = {
                    "at": restoration.timestamp,
                    "orphans": restoration.orphans,
                    "records": restoration.records,
                    "place": restoration.place,
                    "lost": [
                        {"topic": source.topic, "partition": source.partition, "from": start, "to": end}
                        for source, ranges in sorted(restoration.lost.items())
                        for start, end in ranges
                    ],
                }
            if resumption := self.history.resumptions.get(number):
                event["resumed"] = {"at": resumption.timestamp, "link": resumption.link}
            events.append(event)
        fence = fence_dict(self.history.fence)
        return {"link": self.link, "state": self.state, "fence": fence, "promotions": events}


def link_history(config: Config, *, link: str | None = None, clock: Clock = SYSTEM_CLOCK) -> LinkHistory:
    """
    Returns the promotions of a link; asks the target only.

    Args:
        link: Name of the link; required if there are several.

    Raises:
        UsageError: The configuration has several links and none was named.
        StateError: A record is not readable.
        ClusterError: The target does not answer.
    """
    chosen = config.only_link(link)
    client_id = LinkNames(chosen.state_name).client_id("history")
    with closing(ClusterSession(config.clusters[chosen.target], client_id=client_id, clock=clock)) as session:
        return LinkHistory(chosen.name, history_of(chosen, session))
