"""
Settings of topics that are carried there and back under equal names (pure).

Each of two such links wants the settings of its source on its copy, which is the other's source.  If each set what
differs, then of a change that somebody made on A::

    B->A compares first       it sets back what was changed, and nobody learns of it
    both compare at once      A gets what B had and B what A has, and a minute later the other way round, for ever

So the later change counts.  A link carries a setting when its source's was changed since it last looked, and leaves a
copy alone that was changed by somebody else: the link that comes back carries that.  Where both were changed, or
nobody has looked before, the cluster whose alias sorts first has its way.  Limits of a record's size, which are only
ever raised, and timestamps, which are the same everywhere, are not meant.
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

__all__ = ["BothWays"]

_ALWAYS = frozenset({*TIMESTAMPS, "max.message.bytes"})


class BothWays:
    """
    What one link knows of the settings on both sides, from the last time that it looked.

    Args:
        onward: What the links mirror that bring its copies' settings back; of all other topics nothing is left out.
        goes_first: Whether its source has its way where nobody can say whose change is later.
    """

    def __init__(self, onward: Sequence[TopicFilter], *, goes_first: bool) -> None:
        self._onward = onward
        self._goes_first = goes_first
        self._seen: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def carried(self, pair: TopicPair, changes: Iterable[Change]) -> tuple[Change, ...]:
        """
        The changes without what belongs to the link that comes back.

        Args:
            pair: The topic and its copy.
            changes: What `topic_changes` makes of them.
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

    def note(self, pair: TopicPair, applied: Iterable[Change]) -> None:
        """
        Remember both sides as they are now.

        Args:
            pair: The topic and its copy, as they were found.
            applied: What was changed since.
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
