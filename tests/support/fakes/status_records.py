"""Records of a link's status, as tests need them."""

from __future__ import annotations

from typing import Any

from eomirror.records.control import Gap, Stopped
from eomirror.records.promotion import Fence
from eomirror.records.reports import Verification
from eomirror.status.model import VerificationStatus

__all__ = ["fence", "gap", "stop", "verified"]


def fence(method: str = "acl", timestamp: int = 1_600_000_000_000) -> Fence:
    """A fence that stands."""
    topics = ("orders",) if method == "acl" else ()
    return Fence(number=1, method=method, topics=topics, lifted=False, host="h7", timestamp=timestamp)


def stop(topic: str, reason: str = "gone", fix: str = "", **changes: Any) -> Stopped:
    """A topic that lost data."""
    values: dict[str, Any] = {"exit_code": 4, "lane": 0, "run": "r", "timestamp": 0, **changes}
    return Stopped(topic=topic, reason=reason, fix=fix, **values)


def gap(topic: str, start: int, end: int, timestamp: int = 1) -> Gap:
    """A gap that was accepted."""
    return Gap(topic=topic, partition=0, start=start, end=end, reason="?", run="r", timestamp=timestamp)


def verified(
    topic: str, outcome: str = "equal", *, unverified: int = 0, **changes: Any
) -> VerificationStatus:
    """A topic that was compared."""
    values: dict[str, Any] = {"partitions": 1, "offsets": 0, "up_to": {}, "timestamp": 1, **changes}
    return VerificationStatus(Verification(topic=topic, outcome=outcome, **values), unverified)
