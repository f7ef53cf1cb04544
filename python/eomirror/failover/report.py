"""
Answers questions about a failover of a link, without touching it: is it ready, and where does a group start.

The runbook of a link has every command of failover and return, with the user's own names.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.model import require_mapped
from eomirror.errors import UnreachableError, UsageError
from eomirror.failover.facts import read_facts, source_answers
from eomirror.failover.machine import Verb
from eomirror.failover.promoted_link import back_link_name
from eomirror.failover.promotion import promotion_dict
from eomirror.failover.readiness import assess, with_refusal
from eomirror.failover.verification import verified
from eomirror.kafka.session import ClusterSession
from eomirror.link.state import history_of
from eomirror.records.names import LinkNames
from eomirror.status.model import as_json

if TYPE_CHECKING:
    from eomirror.config import Config, Link
    from eomirror.failover.group_moves import GroupMove
    from eomirror.failover.readiness import Readiness
    from eomirror.records.promotion import PromotionHistory

__all__ = ["LinkHistory", "link_history", "readiness", "runbook", "where_to_start"]


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


def runbook(config: Config, link: Link, path: str) -> str:
    """
    Returns the runbook as Markdown.

    Args:
        path: Path of the configuration file, as commands name it.
    """
    back = next((one for one in config.links if (one.source, one.target) == (link.target, link.source)), None)
    call = f"{quote(path)} --link {quote(link.name)}"
    back_name = back_link_name(link) if back is None else back.name
    back_call = f"{quote(path)} --link {quote(back_name)}"
    target = config.clusters[link.target].bootstrap_servers
    source = config.clusters[link.source].bootstrap_servers
    removed = (
        f"   Once the consumers have caught up on {link.source}, take the entry of {back_name} out of the file, and\n"
        "   restart this mirror: while it is there, groups have no checkpoints, and a failover without the source\n"
        "   moves none of them. Add it again at step 5 of the next time.\n"
        if link.guard or (back is None and link.naming.kind == "identity")
        else ""
    )
    missing = (
        f"The configuration has no link back. Step 5 shows the entry to add, with the name {back_name}. Add it then, "
        "not before: without it the groups have checkpoints, which a failover without the source needs.\n"
        if back is None
        else f"The link back is {back.name}. While both links are in the file, and copy equal names, the groups have "
        f"no checkpoints: a failover without the source cannot move them. While {link.name} mirrors, leave the entry "
        f"of {back.name} out of the file, and add it at step 5.\n"
        if link.guard
        else f"The link back is {back.name}.\n"
    )
    return f"""# Runbook of link {link.name}: {link.source} to {link.target}

{missing}
Commands of failover ask for the name of the link, or take --yes; with --dry-run they only show what they would do.
`eomirror run` stays in the foreground: give it a terminal or a service of its own.

## Every day

    eomirror readiness {call} --verify tail        # READY, READY WITH LOSS n, or NOT READY (exit code 6)

## {link.source} is lost

1. See what is there:           eomirror readiness {call} --source-gone
   READY WITH LOSS n: n counts up to the moment at which {link.source} was last read; what was written there since is
   not known. Decide now if you accept that.
2. Promote the copies:          eomirror failover {call} --source-gone --report failover.json
   Killed or failed: repeat it. Exit code 6: read the reasons.
3. Point the applications to {link.target} ({target}) and the topics of the column COPY. Restart producers;
   consumers of groups that were moved resume by their group id, others start at
   `eomirror.failover.where_to_start(config, group)`. Share groups: docs/disaster-recovery.md.
4. A mirror of {link.name} that still runs ends with exit code 5 within about 30 s: the promotion took the link from it.
   Do not start it again, not with --take-over either: it refuses to run from here on, with exit code 6.

## {link.source} is back

5. Keep applications off {link.source} before you start it, by its listeners or ACLs: what they write there before this
   step is left behind, too (step 7). Start the way back at the cut:
                                eomirror reverse {call}
   If the configuration has no link back, this ends with exit code 2 and the entry to add under `links`. Repeat it then.
   It names the settings of topics on {link.source} that it changes, so that these take what is mirrored back; with
   --dry-run beforehand.
6. Mirror back, and keep it running:
                                eomirror run {back_call}
7. See which records never reached {link.target}:
                                eomirror restore {call} --orphans keep --dry-run
   A transaction that was open when {link.source} was lost hides what stands behind it. The command names it, with its
   transactional.id, partition and offset, and when its coordinator aborts it; without --dry-run it waits for that. If
   nothing aborts it (exit code 6), start its application once, or:
                                kafka-transactions.sh --bootstrap-server {quote(source)} abort --topic TOPIC \\
                                    --partition N --start-offset OFFSET
   If there are orphans, choose one; the link back may run meanwhile:
                                eomirror restore {call} --orphans merge      # each reaches {link.target} once
                                eomirror restore {call} --orphans export --to orphans.jsonl      # or --to-topic
                                eomirror restore {call} --orphans keep       # they stay on {link.source} only
   Exit code 4: {link.source} has deleted some of them meanwhile; --accept-lost goes on with the others.
   Only after merge or export, to have both sides equal record by record: stop the link back, let this delete the
   topics on {link.source} and copy them back, and start the link back again:
                                eomirror restore {call} --orphans recreate

## Return to {link.source}

8. Keep the link back running. Stop the consumers on {link.target}: what they read during the command is read again.
   Stop the producers there, or let `--method acl` do it.
                                eomirror failback {call} --dry-run
                                eomirror failback {call}      # --on-switch COMMAND switches the clients
   Whatever it ended with, repeat it: it takes the steps that are left. It ends the link back.
9. Point the applications to {link.source}, restart producers, and mirror again:
                                eomirror run {call}
{removed}
## A planned move to {link.target}

The mirror runs. Stop the consumers on {link.source}: what they read during the command is read again. Stop the
producers; or `--method acl` denies their writes there, or `--method command --fence-command COMMAND` calls your own
fence. `--method wait` stops no producer: it names the partitions in which records still arrive, and waits.
                                eomirror cutover {call} --method wait --dry-run
                                eomirror cutover {call} --method wait --on-switch COMMAND
A failure before the promotion undoes the fence. Lift an ACL fence before step 5, when the applications have moved:
                                eomirror unfence {call}
Then steps 5, 6, 8 and 9: a planned move leaves no orphans.

## Afterwards

                                eomirror readiness {call} --verify tail      # READY, 0 differences
                                eomirror history {call}      # each promotion, and the state: mirror or promoted
"""
