"""
Saves the state of a comparison to a file, from which an interrupted comparison resumes.

The file is replaced atomically, every few seconds and at the end, so that it is complete whenever the program dies.  It
counts everything since the first run that wrote it: found differences stay found.  A run that reached its
end leaves the file behind too; the next one resumes with the records that were mirrored since.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import UsageError
from eomirror.verify.counts import KINDS, PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.verify.verdict import Scope

__all__ = ["LinkResume", "ResumeFile"]

_VERSION = 1
_SAVE_SECONDS = 5.0


class ResumeFile:
    """
    The resume file.

    Args:
        path: Its path; need not exist.
        asked: Scope of the command beside its configuration: a file with another scope is refused.

    Raises:
        UsageError: It cannot be read, is not a resume file, or has another scope.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._path = path
        self._asked = dict(asked)
        self._clock = clock
        self._links: dict[str, dict[str, Any]] = {}
        self._due = Deadline(_SAVE_SECONDS, clock)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._refused(f"cannot be read: {error.strerror}") from error
        try:
            body = orjson.loads(content)
            version, was, links = body["v"], body["asked"], dict(body["links"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise self._refused("is not the file of a comparison") from error
        if version != _VERSION:
            raise self._refused(f"has version {version}, this release knows {_VERSION}")
        if was != self._asked:
            raise self._refused(f"is about {_words(was)}, and this command about {_words(self._asked)}")
        self._links = links

    def link(self, name: str, ids: tuple[str, str]) -> LinkResume:
        """
        Returns the part of one link.

        Args:
            ids: Ids of its source and target cluster.

        Raises:
            UsageError: The file is about a link of this name between other clusters.
        """
        held: Any = self._links.setdefault(name, {"source": ids[0], "target": ids[1], "partitions": {}})
        partitions = held.get("partitions") if isinstance(held, dict) else None
        if not isinstance(partitions, dict):
            raise self._refused(f"does not say what was compared of link {name}")
        if (held.get("source"), held.get("target")) != ids:
            raise self._refused(f"is about other clusters that link {name} was between")
        return LinkResume(self, name, partitions)

    def save(self, *, now: bool = True) -> None:
        """
        Writes the file; unless ``now``, at most every 5 s.

        Raises:
            UsageError: It cannot be written.
        """
        if not now and not self._due.passed:
            return
        self._due = Deadline(_SAVE_SECONDS, self._clock)
        body = orjson.dumps(
            {"v": _VERSION, "asked": self._asked, "links": self._links}, option=orjson.OPT_INDENT_2
        )
        try:
            _replace(self._path, body)
        except OSError as error:
            raise UsageError(
                f"--resume {self._path}: {error.strerror}", fix="name a file in a folder that you may write"
            ) from error

    def _refused(self, why: str) -> UsageError:
        return UsageError(
            f"--resume {self._path}: {why}", fix="name another file, or remove this one to start over"
        )

    def refuse(self, why: str) -> UsageError:
        """Returns the error for a file that does not fit."""
        return self._refused(why)


class LinkResume:
    """The part of one link: see `ResumeFile.link`."""

    def __init__(self, file: ResumeFile, name: str, partitions: dict[str, dict[str, Any]]) -> None:
        self._file = file
        self._name = name
        self._partitions = partitions

    def before(self, one: Scope, ids: tuple[str, str]) -> PartitionCounts | None:
        """
        Returns the counts of a partition; None if there are none.

        Args:
            one: Scope of its next comparison.
            ids: Ids of source and target topic.

        Raises:
            UsageError: They are about other topics, or are ahead of the mirror.
        """
        held = self._partitions.get(_key(one))
        if held is None:
            return None
        try:
            about = (held["topic_id"], held["target_topic"], held["target_topic_id"])
            counts = _counts(held["tally"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._file.refuse(f"does not say what was compared of {_key(one)}") from error
        if about != (ids[0], one.target.topic, ids[1]):
            raise self._file.refuse(
                f"is about a topic {one.source.topic} or its copy that was recreated since"
            )
        if counts.at is None or counts.at[0] > one.source.end:
            raise self._file.refuse(
                f"is further in {_key(one)} than the mirror, whose position is {one.source.end}"
            )
        return counts

    def record(self, one: Scope, ids: tuple[str, str], counts: PartitionCounts) -> None:
        """
        Records the counts of a partition if a comparison can resume there; writes the file now and then.

        Raises:
            UsageError: It cannot be written.
        """
        if counts.at is not None:
            self._partitions[_key(one)] = {
                "topic_id": ids[0],
                "target_topic": one.target.topic,
                "target_topic_id": ids[1],
                "tally": asdict(counts),
            }
        self._file.save(now=False)


def _replace(path: Path, content: bytes) -> None:
    """
    Replaces a file atomically.

    The new content is written to a new file beside it that only its owner can read: in a folder where others can write
    too, a symbolic link that they placed there is never followed.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    beside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def _key(one: Scope) -> str:
    return f"{one.source.topic}-{one.source.partition}"


def _counts(held: dict[str, Any]) -> PartitionCounts:
    source, target = held["at"]
    differences = {kind: int(held["differences"][kind]) for kind in KINDS}
    return PartitionCounts(
        matched=int(held["matched"]),
        differences=differences,
        source={str(name): int(count) for name, count in held["source"].items()},
        target={str(name): int(count) for name, count in held["target"].items()},
        found=tuple((str(kind), _offset(one), _offset(other)) for kind, one, other in held["found"]),
        at=(int(source), int(target)),
        whole=bool(held["whole"]),
        holes=tuple((int(start), int(end)) for start, end in held.get("holes", ())),
    )


def _offset(held: Any) -> int | None:
    return None if held is None else int(held)


def _words(asked: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in asked.items() if value is not None) or "everything"
