"""
Changes of a configuration file under a running mirror: `WatchedFile` reads it again, `changes_of` says what it does.

A link goes on with its lanes if only settings have changed that no lane reads (`LIVE`).  Any other change lets the
link begin again in the same process, in the next generation, while the other links go on.  What all links share (the
section `spark`) takes effect at the next start.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eomirror.config.load import load_config
from eomirror.errors import ConfigError, Fault, MirrorError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eomirror.config.model import Cluster, Config, Link

__all__ = ["LIVE", "ConfigChanges", "WatchedFile", "changes_of", "with_live"]

#: Settings of a link that only the discovery of its topics reads.
LIVE = frozenset(
    {
        "topics",
        "exclude",
        "replication_factor",
        "sync_topic_configs",
        "exclude_configs",
        "acls",
        "quotas",
        "deletions",
        "deletion_delay",
    }
)


def with_live(link: Link, given: Link) -> Link:
    """Returns the link with the settings of `LIVE` that ``given`` has."""
    return dataclasses.replace(link, **{name: getattr(given, name) for name in LIVE})


class ConfigChanges(NamedTuple):
    """
    Effect of a changed configuration on the links of a run.

    Attributes:
        begun: Links that begin.
        ended: Links that end.
        again: Links that begin again, with the settings that ask for it; ``cluster`` for a property of a cluster.
        live: Links that go on, with the settings that change.
        later: Sections that take effect at the next start.
    """

    begun: tuple[str, ...]
    ended: tuple[str, ...]
    again: dict[str, tuple[str, ...]]
    live: dict[str, tuple[str, ...]]
    later: tuple[str, ...]

    @property
    def texts(self) -> list[str]:
        """One line for each change."""
        return [
            *(f"link {name} begins" for name in self.begun),
            *(f"link {name} ends" for name in self.ended),
            *(f"link {name} begins again: {', '.join(names)}" for name, names in self.again.items()),
            *(f"link {name} goes on: {', '.join(names)}" for name, names in self.live.items()),
            *(f"section {name} takes effect at the next start" for name in self.later),
        ]


def changes_of(before: Config, after: Config, chosen: Collection[str] = ()) -> ConfigChanges:
    """
    Returns what a changed configuration does.

    Args:
        before: The configuration in force.
        after: The one that replaces it.
        chosen: Names of the links that the run was asked for; empty for all.

    Raises:
        UsageError: ``after`` lacks a link that the run was asked for.
    """
    old = {link.name: link for link in before.chosen(chosen)}
    new = {link.name: link for link in after.chosen(chosen)}
    again: dict[str, tuple[str, ...]] = {}
    live: dict[str, tuple[str, ...]] = {}
    for name in old.keys() & new.keys():
        names = _differing(old[name], new[name])
        if _clusters(before, old[name]) != _clusters(after, new[name]):
            again[name] = (*names, "cluster")
        elif names and (set(names) - LIVE or _reads_all(old[name], new[name])):
            again[name] = names
        elif names:
            live[name] = names
    return ConfigChanges(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        dict(sorted(again.items())),
        dict(sorted(live.items())),
        ("spark",) if before.spark != after.spark else (),
    )


def _differing(one: Link, other: Link) -> tuple[str, ...]:
    """Returns the names of the settings that differ; ``loops`` stands for what the other links of the file imply."""
    return tuple(
        item.name for item in dataclasses.fields(one) if getattr(one, item.name) != getattr(other, item.name)
    )


def _reads_all(before: Link, after: Link) -> bool:
    """Returns True if more than discovery depends on the topics: a query's source, or who writes heartbeats."""
    return before.query is not None or before.beats_on_target != after.beats_on_target


def _clusters(config: Config, link: Link) -> list[Cluster]:
    """Returns the clusters that a link reads or names."""
    return [config.clusters[alias] for alias in (link.source, link.target, *(link.origins or ()))]


class WatchedFile:
    """
    Reads a configuration file again once it has changed.  Not thread-safe.

    A file that is being written is not read: two looks have to find it alike.  Kubernetes replaces a link to the file,
    which a look follows.

    Args:
        path: The file.
        overrides: As of `load_config`.
    """

    def __init__(self, path: str | Path, overrides: Sequence[str] = ()) -> None:
        self._path = Path(path)
        self._overrides = tuple(overrides)
        self._taken = self._last = self._signature()

    def look(self, *, asked: bool = False) -> Config | MirrorError | None:
        """
        Returns the configuration if the file has changed, or the error that it is refused with; None if it has not.

        Args:
            asked: Read it in any case: the environment, or a file that it names, may have changed.
        """
        found = self._signature()
        settled, self._last = found == self._last, found
        if not asked and (found == self._taken or not settled):
            return None
        self._taken = found
        if found is None:
            return ConfigError(
                [Fault("", "the file is gone", "write it again, or end the mirror")], source=str(self._path)
            )
        try:
            return load_config(self._path, overrides=self._overrides)
        except MirrorError as error:
            return error

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
