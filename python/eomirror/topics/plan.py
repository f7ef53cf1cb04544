"""What must happen before a link can run, for people to look at and for the mirror to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.cluster_metadata import CreateTopic
    from eomirror.topics.diff import AddPartitions, Change
    from eomirror.topics.state_topics import Drift

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What must happen before a link can run.

    Attributes:
        cluster_ids: Of source and target.
        targets: Target topic of every matched source topic.
        state: Changes of the link's own topics.
        readers: Topics to create on the target for MM2's readers.
        readers_on_source: The same on the source.
        drifts: Settings of the link's own topics that somebody changed.
        changes: Changes for every matched source topic, in order; empty where all is well.
        first_run: Whether the link has no control topic yet.
    """

    cluster_ids: tuple[str, str]
    targets: Mapping[str, str]
    state: tuple[CreateTopic | AddPartitions, ...]
    readers: tuple[CreateTopic, ...]
    readers_on_source: tuple[CreateTopic, ...]
    drifts: tuple[Drift, ...]
    changes: Mapping[str, tuple[Change, ...]]
    first_run: bool
