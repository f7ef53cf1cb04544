"""Plan of the creations and changes that a link needs before it can run. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topics.diff import AddPartitions, AlterConfig
from eomirror.topics.entries import EntryPlan
from eomirror.topology.filters import unmatched

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.topics.diff import Change
    from eomirror.topics.state_topics import Drift
    from eomirror.types import SourcePartition

__all__ = ["ChangedSetting", "Plan"]


class ChangedSetting(NamedTuple):
    """
    A setting of an existing topic that a command changes; ``partitions`` is one of them.

    Attributes:
        cluster: Alias of the cluster of the topic.
        before: Present value; None for none.
        after: Value that the command sets.
    """

    cluster: str
    topic: str
    setting: str
    before: str | None
    after: str

    def __str__(self) -> str:
        return f"{self.topic} on {self.cluster}: {self.setting}: {self.before} -> {self.after}"

    def as_dict(self) -> dict[str, str | None]:
        """Returns the fields for ``-o json``."""
        return {
            "cluster": self.cluster,
            "topic": self.topic,
            "setting": self.setting,
            "from": self.before,
            "to": self.after,
        }


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
        partitions: Partitions of the matched source topics; None if they were not listed.
        awaited: Topics that `topics` gives by name and that the source lacks, with the recommended action; the link
            mirrors each when it appears.
        entries: Differences of ACL entries, client quotas, and copies whose topic is gone.
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
    partitions: frozenset[SourcePartition] | None = None
    awaited: Mapping[str, str] = field(default_factory=dict)
    entries: EntryPlan = field(default_factory=EntryPlan)

    @property
    def pending(self) -> bool:
        """True if `eomirror apply`, or a run, would change something."""
        every = (
            *self.state,
            *self.readers,
            *self.readers_on_source,
            *itertools.chain(*self.changes.values()),
        )
        return bool(self.entries.diff.due) or any(
            isinstance(change, CreateTopic | AddPartitions | AlterConfig) for change in every
        )

    def unmatched(self, patterns: Iterable[str]) -> list[str]:
        """Returns the patterns, other than names, that match no topic of the source: neither mirrored nor left out."""
        return unmatched(
            patterns, [*self.targets, *(each for some in self.left_out.values() for each in some)]
        )

    def settings(self, cluster: str) -> tuple[ChangedSetting, ...]:
        """Returns the settings of existing copies that would be changed on ``cluster``, sorted."""
        found: list[ChangedSetting] = []
        for change in (change for each in self.changes.values() for change in each):
            if isinstance(change, AddPartitions):
                grown = "partitions", str(change.before), str(change.total)
                found.append(ChangedSetting(cluster, change.name, *grown))
            elif isinstance(change, AlterConfig):
                found += [
                    ChangedSetting(cluster, change.name, name, change.before[name], value)
                    for name, value in change.values.items()
                ]
        return tuple(sorted(found, key=lambda one: (one.topic, one.setting)))
