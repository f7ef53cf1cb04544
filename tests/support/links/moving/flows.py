"""What is mirrored in a trial: topics of several kinds, each with its copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PARTITIONS", "Flow", "create"]

PARTITIONS = 2

# as fast as a broker rolls and cleans
_COMPACT = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
}


@dataclass(frozen=True, slots=True)
class Flow:
    """
    One topic and its copy.

    Attributes:
        kind: For the report, such as ``prefix, compact``.
        topic: On the source.
        copy: On the target.
        policy: ``delete`` or ``compact``.
        written: ``source``, or ``both`` for equal names that applications write on both clusters.
    """

    kind: str
    topic: str
    copy: str
    policy: str
    written: str = "source"


def create(properties: Mapping[str, Any], topic: str, policy: str) -> None:
    """Make a topic of this policy."""
    create_topic(dict(properties), topic, PARTITIONS, **(_COMPACT if policy == "compact" else {}))
