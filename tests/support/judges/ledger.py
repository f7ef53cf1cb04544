"""
What fault tests did and found, one line of JSON for each test, written as it ends: a broken run still reports.

``EOMIRROR_FAULT_LEDGER`` names the file; without it nothing is written.  `scripts/faults_long.py` makes a table of it.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eomirror.demo.compare import Comparison, Revision

__all__ = ["LEDGER_VARIABLE", "Entry", "append_entry"]

LEDGER_VARIABLE = "EOMIRROR_FAULT_LEDGER"


@dataclass(slots=True, kw_only=True)
class Entry:
    """
    One run of one test.

    Attributes:
        faults: Ids of the faults that it injects, such as ``F3``.
        test: Its node id.
        seed: Repeats it.
        outcome: ``passed``, ``failed``, ``xfailed``, ``skipped``; ``broken`` when it did not come so far.
        seconds: How long it took.
        injections: How many times something was broken.
        records: Committed records of the source that were compared with their copies.
        missing: Of these, how many the copy lacked.
        duplicate: How many times one was there again.
        reordered: How many stood at another place.
        altered: How many had other content.
        foreign: Records of the copy that the source never committed.
        retracted: Records that a concurrent reader saw, and that were not what lay there in the end.
        recoveries: Seconds from the end of a fault until a reader saw something new.
        notes: Other figures, by name.
    """

    faults: tuple[str, ...]
    test: str
    seed: int
    outcome: str = "broken"
    seconds: float = 0.0
    injections: int = 0
    records: int = 0
    missing: int = 0
    duplicate: int = 0
    reordered: int = 0
    altered: int = 0
    foreign: int = 0
    retracted: int = 0
    recoveries: list[float] = field(default_factory=list)
    notes: dict[str, float] = field(default_factory=dict)

    def injected(self, times: int = 1) -> None:
        """Something was broken."""
        self.injections += times

    def recovered(self, seconds: float) -> float:
        """So long it took until records arrived again; gives the seconds back."""
        self.recoveries.append(round(seconds, 3))
        return seconds

    def compared(self, comparison: Comparison, revision: Revision | None = None) -> None:
        """Count what a comparison found, before anything is asserted about it."""
        self.records += comparison.source
        self.missing += comparison.missing
        self.duplicate += comparison.duplicate
        self.reordered += comparison.reordered
        self.altered += comparison.altered
        self.foreign += comparison.foreign
        if revision is not None:
            self.retracted += revision.retracted + revision.changed + revision.inserted

    def line(self, *, at: float) -> str:
        """As one line of JSON; ``at`` is the end of the test in seconds since 1970."""
        return json.dumps({"at": round(at, 1), **asdict(self)}, separators=(",", ":"))


def append_entry(entry: Entry) -> None:
    """Add a line to the file that the environment names, if it names one."""
    if path := os.environ.get(LEDGER_VARIABLE):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(entry.line(at=time.time()) + "\n")
