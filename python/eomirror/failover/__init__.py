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

from eomirror.failover.history import LinkHistory, link_history
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import PromotionOptions, PromotionReport, promote
from eomirror.failover.readiness import Readiness
from eomirror.failover.report import readiness

__all__ = [
    "LinkHistory",
    "PromotionOptions",
    "PromotionReport",
    "Readiness",
    "Verb",
    "link_history",
    "promote",
    "readiness",
]
