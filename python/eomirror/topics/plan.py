"""Plan of the creations and changes that a link needs before it can run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.topology.filters import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.kafka.cluster_metadata import CreateTopic
    from eomirror.topics.diff import AddPartitions, Change
    from eomirror.topics.state_topics import Drift

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """
    Creations and changes that a link needs before it can run.

    Attributes:
        cluster_ids: Ids of source and target.
        targets: Target topic of every matched source topic.
        state: Changes of the link's state topics.
        readers: Topics to create on the target for MM2's readers.
        readers_on_source: Topics to create on the source for MM2's readers.
        drifts: Settings of the link's state topics that were changed.
        changes: Changes for every matched source topic, in order; empty if there are none.
        first_run: True if the link has no control topic yet.
        left_out: Source topics that `topics` matches and whose names keep them from being mirrored, by the reason.
        awaited: Topics that `topics` gives by name and that the source lacks, with the recommended action; the link
            mirrors each when it appears.
    """

    cluster_ids: tuple[str, str]
    targets: Mapping[str, str]
    state: tuple[CreateTopic | AddPartitions, ...]
    readers: tuple[CreateTopic, ...]
    readers_on_source: tuple[CreateTopic, ...]
    drifts: tuple[Drift, ...]
    changes: Mapping[str, tuple[Change, ...]]
    first_run: bool
    left_out: Mapping[str, Sequence[str]] = field(default_factory=dict)
    awaited: Mapping[str, str] = field(default_factory=dict)

    def unmatched(self, patterns: Iterable[str]) -> list[str]:
        """Returns the patterns, other than names, that match no topic of the source: neither mirrored nor left out."""
        return unmatched(
            patterns, [*self.targets, *(each for some in self.left_out.values() for each in some)]
        )
