"""
Fails a link over, promotes it, and returns.

::

    from eomirror import load_config
    from eomirror.failover import Verb, promote

    report = promote(load_config("mirror.yaml"), Verb.FAILOVER, link="east->west")
    print(report.promotion.number, report.promotion.lost)

The commands of ``eomirror`` with these names are a thin layer over this package.
"""

from __future__ import annotations

from eomirror.failover.failback import FailbackReport, failback
from eomirror.failover.machine import Verb
from eomirror.failover.orphans import LeftOrphans, left_orphans
from eomirror.failover.promotion import PromotionOptions, PromotionReport, promote
from eomirror.failover.readiness import Readiness
from eomirror.failover.recreation import Recreated, RecreatedTopic, recreate, unchecked_exports
from eomirror.failover.report import LinkHistory, link_history, readiness, where_to_start
from eomirror.failover.restoration import RestorationReport, restore
from eomirror.failover.reversal import ReversalReport, reverse
from eomirror.failover.verification import CopyComparison, verify_copies
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence, run_command
from eomirror.link.pause import PauseReport, pause, resume

__all__ = [
    "CopyComparison",
    "FailbackReport",
    "FenceMethod",
    "LeftOrphans",
    "LinkHistory",
    "LinkWriterFence",
    "PauseReport",
    "PromotionOptions",
    "PromotionReport",
    "Readiness",
    "Recreated",
    "RecreatedTopic",
    "RestorationReport",
    "ReversalReport",
    "Verb",
    "failback",
    "left_orphans",
    "link_history",
    "pause",
    "promote",
    "readiness",
    "recreate",
    "restore",
    "resume",
    "reverse",
    "run_command",
    "unchecked_exports",
    "verify_copies",
    "where_to_start",
]
