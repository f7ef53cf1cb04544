"""Writes the runbook of a link: every command of failover and return, with the user's own names."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from eomirror.failover.promoted_link import back_link_name

if TYPE_CHECKING:
    from eomirror.config import Config, Link

__all__ = ["runbook"]


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
