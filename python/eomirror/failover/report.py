"""Answers whether a link could fail over at this moment, without touching it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.failover.facts import read_facts, source_answers
from eomirror.failover.machine import Verb
from eomirror.failover.readiness import assess

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.failover.readiness import Readiness

__all__ = ["readiness"]


def readiness(
    config: Config,
    *,
    link: str | None = None,
    source_gone: bool = False,
    clock: Clock = SYSTEM_CLOCK,
) -> Readiness:
    """
    Returns what a failover of a link would find and lose at this moment; writes nothing.

    Args:
        config: Configuration of the mirror.
        link: Name of the link; required if there are several.
        source_gone: Do not ask the source, which takes seconds if it does not answer.

    Raises:
        UsageError: The configuration has several links and none was named.
        StateError: A record in the link's topics is not readable.
        ClusterError: The target does not answer.
    """
    chosen = config.only_link(link)
    answers = not source_gone and source_answers(config, chosen)
    facts = read_facts(config, chosen, answers=answers, clock=clock)
    return assess(facts, Verb.FAILOVER, force=True)
