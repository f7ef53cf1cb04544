"""
The mirror's counterpart in the demo: a child process that copies a topic with exactly-once off.

``python -m eomirror.demo.at_least_once FILE`` with a JSON file of `CopierSpec`.  It commits its positions into
a file once a second, after the target has acknowledged everything before them, and runs until it is stopped.  It is
not reachable from ``eomirror run``.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["CopierSpec", "main"]


@dataclass(frozen=True, slots=True)
class CopierSpec:
    """
    Clusters, topics and files of a copier.

    Attributes:
        target_topic: Target topic, with as many partitions.
        positions: File of the committed positions.
        every: Seconds between two commits of positions.
    """

    source: dict[str, str]
    target: dict[str, str]
    topic: str
    target_topic: str
    partitions: int
    positions: str
    every: float = 1.0

    def write(self, path: Path) -> None:
        """Write the file that `main` reads; it may hold credentials."""
        path.touch(mode=0o600)
        path.write_bytes(orjson.dumps(asdict(self)))


def main(path: str) -> None:
    """Copy until killed; SIGTERM commits the positions first."""
    from eomirror.demo.clients import AtLeastOnceCopier

    spec = CopierSpec(**orjson.loads(Path(path).read_bytes()))
    positions = Path(spec.positions)
    asked: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        asked.append(number)

    signal.signal(signal.SIGTERM, stop)
    copier = AtLeastOnceCopier(
        spec.source,
        spec.target,
        topic=spec.topic,
        target_topic=spec.target_topic,
        positions=read_positions(positions, spec.partitions),
    )
    while not asked:
        copier.copy(spec.every)
        write_positions(positions, copier.acknowledged())


def read_positions(path: Path, partitions: int) -> dict[int, int]:
    """The committed positions; the beginning of every partition if there are none."""
    if not path.is_file():
        return dict.fromkeys(range(partitions), 0)
    return {int(number): offset for number, offset in orjson.loads(path.read_bytes()).items()}


def write_positions(path: Path, positions: dict[int, int]) -> None:
    """Replace the committed positions in one step: a kill leaves the old or the new ones, never half."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(orjson.dumps({str(number): offset for number, offset in positions.items()}))
    fresh.replace(path)


if __name__ == "__main__":
    main(sys.argv[1])
