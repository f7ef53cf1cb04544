"""
Synchronizes settings of topics that are carried in both directions under equal names. Pure.

Each of two such links wants the settings of its source on its copy, which is the other's source.  If each set every
difference, then after a user's change on A::

    B->A compares first       it reverts the change without a trace
    both compare at once      A gets B's value and B gets A's, and a minute later the reverse, for ever

So the later change wins.  A link carries a setting if its source's was changed since the last look, and leaves a
copy alone that another party changed: the reverse link carries that change.  If both were changed, or at the first
look, the cluster whose alias sorts first wins.  Limits of a record's size, which are only ever raised, and timestamp
settings, which are the same everywhere, are exempt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topics.diff import TIMESTAMPS, AlterConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.topics.diff import Change, TopicPair
    from eomirror.topology.filters import TopicFilter

__all__ = ["BidirectionalConfigs"]

_ALWAYS = frozenset({*TIMESTAMPS, "max.message.bytes"})


class BidirectionalConfigs:
    """
    One link's knowledge of the settings on both sides at its last look.

    Args:
        onward: Topics of the reverse links, which bring the settings of copies back; changes of other topics all pass.
        goes_first: True if this link's source wins where the later change is unknown.
    """

    def __init__(self, onward: Sequence[TopicFilter], *, goes_first: bool) -> None:
        self._onward = onward
        self._goes_first = goes_first
        self._seen: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def carried(self, pair: TopicPair, changes: Iterable[Change]) -> tuple[Change, ...]:
        """
        Returns the changes without those that belong to the reverse link.

        Args:
            pair: The topic and its copy.
            changes: Result of `topic_changes`.
        """
        if not any(each.matches(pair.name) for each in self._onward):
            return tuple(changes)
        kept: list[Change] = []
        for change in changes:
            if not isinstance(change, AlterConfig):
                kept.append(change)
                continue
            values = {
                name: value
                for name, value in change.values.items()
                if name in _ALWAYS or self._is_ours(pair, name, change.before[name])
            }
            if values:
                before = {name: change.before[name] for name in values}
                kept.append(replace(change, values=values, before=before))
        return tuple(kept)

    def record(self, pair: TopicPair, applied: Iterable[Change]) -> None:
        """
        Records the settings of both sides.

        Args:
            pair: The topic and its copy, as they were found.
            applied: Changes that were applied since.
        """
        if not self._onward:
            return
        found = {name: entry.value for name, entry in (pair.target_configs or {}).items()}
        for change in applied:
            if isinstance(change, AlterConfig):
                found.update(change.values)
            elif isinstance(change, CreateTopic):
                found.update(change.configs)
        for name, entry in pair.source_configs.items():
            if name in found:
                self._seen[pair.source.name, name] = entry.value, found[name]

    def _is_ours(self, pair: TopicPair, name: str, on_copy: str | None) -> bool:
        seen = self._seen.get((pair.source.name, name))
        if seen is None:
            return self._goes_first
        source_moved = pair.source_configs[name].value != seen[0]
        return source_moved and (self._goes_first or on_copy == seen[1])
