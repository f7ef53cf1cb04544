"""Answers questions about a failover of a link, without touching it: is it ready, and where does a group start."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.model import require_mapped
from eomirror.errors import UnreachableError, UsageError
from eomirror.failover.facts import history_of, read_facts, source_answers
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import promotion_dict
from eomirror.failover.readiness import assess, with_refusal
from eomirror.failover.verification import verified
from eomirror.kafka.session import ClusterSession
from eomirror.records.names import LinkNames
from eomirror.status.model import as_json

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.failover.group_moves import GroupMove
    from eomirror.failover.readiness import Readiness
    from eomirror.records.promotion import PromotionHistory

__all__ = ["LinkHistory", "link_history", "readiness", "where_to_start"]


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
        fence = as_json(self.history.fence)
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


def readiness(
    config: Config,
    *,
    link: str | None = None,
    source_gone: bool = False,
    tail: int | None = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> Readiness:
    """
    Returns what a failover of a link would find and lose at this moment; writes nothing.

    A link that places records by key cannot fail over: the other checks are made, and one says so.

    Args:
        link: Name of the link; required if there are several.
        source_gone: Do not ask the source, which takes seconds if it does not answer.
        tail: Compare so many source offsets of each partition with their copies; None for all, 0 for none.

    Raises:
        UsageError: The configuration has several links and none was named.
        StateError: A record in the link's topics is not readable.
        ClusterError: The target does not answer.
    """
    chosen = config.only_link(link)
    answers = not source_gone and source_answers(config, chosen)
    facts = read_facts(config, chosen, answers=answers, clock=clock)
    if answers and tail != 0 and facts.status.state != "never ran":
        facts = replace(facts, verified=verified(config, chosen, tail=tail, clock=clock))
    found = assess(facts, Verb.FAILOVER, force=True)
    try:
        require_mapped([chosen])
    except UsageError as error:
        return with_refusal(found, "offset map", error)
    return found


def where_to_start(
    config: Config,
    group: str,
    *,
    link: str | None = None,
    source_gone: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> list[GroupMove]:
    """
    Returns where a consumer of a group starts on the target, for consumers that seek by hand.

    Args:
        group: The consumer group.
        link: Name of the link; required if there are several.
        source_gone: Do not ask the source, which takes seconds if it does not answer.

    Returns:
        One per partition in which the group has an offset; ``to_offset`` is None where it is unknown.

    Raises:
        UsageError: The configuration has several links and none was named.
        UnreachableError: The source does not answer, and there are no checkpoints; or the target does not.
        ClusterError: A cluster cannot be asked.
    """
    chosen = config.mapped_link(link)
    answers = not source_gone and source_answers(config, chosen)
    facts = read_facts(config, chosen, answers=answers, clock=clock)
    if facts.groups_problem:
        raise UnreachableError(
            facts.groups_problem,
            fix="start at the offsets of an `eomirror offsets export` file, or from `earliest`",
        )
    return [move for move in facts.groups if move.group == group]
