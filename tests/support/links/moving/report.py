"""
The report on trials, from the counts that they left.

    PYTHONPATH=tests python -m support.links.moving.report docs/reports/DATE-moving-consumers.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["markdown"]

_HEADS = (
    "who told", "topics", "consumers", "partitions", "no answer", "skipped: partitions", "records",
    "read twice: partitions", "records", "at most",
)  # fmt: skip

_PREAMBLE = """\
# Moving consumers, {date}

- `{command}`, seed {seed}, at {commit}; {machine}
{notes}- two clusters of one broker; every topic has two partitions and few keys; applications write transactions, a
  quarter of them aborted, and now and then without one; compacted topics roll every 2 s

A consumer is a group that has committed an offset in both partitions: half of them behind a record near the end, a
quarter at the last stable offset, a quarter anywhere. It moves at a random moment, and in about half of the rounds the
mirror's whole process tree is killed (SIGKILL) just before; it is started again only if an answer needs records that
are not mirrored yet. In a round several consumers of each topic move. Then a real consumer reads on from where it
was told. All are judged at the end, against what the application knows that it wrote and what a reader of the copy has
seen since its first record, so that compaction hides nothing: skipped is what the consumer had not read and what lies
before its offset, read twice what it had read and what lies behind. No answer: it has to begin at the beginning.

`library` is `group_offsets`, asked until it knows; `java` is RemoteClusterUtils on our checkpoints, `at once` when the
library had answered, `at the end` with everything mirrored; `mm2` the same on MirrorMaker 2's own, with exactly-once
on and its intervals for groups, checkpoints and synced groups at one second, `at once` five seconds after the copy had
caught up with the group; `synced groups` is what `sync.group.offsets` had committed on the target in the end.

`killed in open transactions`: two one-way links. A proxy before the target keeps the EndTxn of both lanes, behind the
records and the checkpoints of their transactions, and the mirror's process tree is killed; the transactions are
aborted when it is back. `java, mirror dead` is what RemoteClusterUtils says in between. One consumer in four is reset
to an earlier offset meanwhile.

`groups that commit all the time`: two one-way links that move groups. Each consumer commits a few times a second, near
the end, until it stops; in about half of the rounds the mirror is killed then. `at once` is what the target knows of
the group at that moment, `mirror back` where the mirror has put it once it could.
"""


def markdown(document: dict[str, Any], *, date: str) -> str:
    """The report's text."""
    notes = "".join(f"- {note}\n" for note in document.get("notes", ()))
    text = [_PREAMBLE.format(**{**document, "date": date, "notes": notes})]
    for run in document["runs"]:
        text += [
            f"## {run['name']}",
            "",
            f"{run['records']:,} committed records, {run['aborted']:,} aborted transactions, {run['kills']} kills.",
            "",
            "| " + " | ".join(_HEADS) + " |",
            "|---" * len(_HEADS) + "|",
        ]
        for one in run["counts"]:
            cells = [
                one["by"], one["kind"], one["consumers"], one["places"], one["unanswered"], one["skipping"],
                one["skipped"], one["repeating"], one["again"], one["most"],
            ]  # fmt: skip
            text.append(
                "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells) + " |"
            )
        beyond = sum(one["beyond"] for one in run["counts"] if one["by"] == "library")
        if any(one["by"] == "library" for one in run["counts"]):
            text += ["", f"More was read twice than was announced: in {beyond} partitions."]
        text.append("")
    return "\n".join(text)


if __name__ == "__main__":
    source = Path(sys.argv[1])
    found = json.loads(source.read_text("ascii"))
    source.with_suffix(".md").write_text(markdown(found, date=source.name[:10]), encoding="ascii")
