"""Logs of a single broker that are put back to an older state, as after a power failure or a restored snapshot."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

__all__ = ["Logs"]


class Logs:
    """The logs of some topics on one broker, as they are at a moment."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        (self._broker,) = cluster.brokers
        self._folder = folder
        self._data = self._broker.folder / "data"

    def save(self, *topics: str) -> None:
        """Stops the broker, copies the logs, and starts it again."""
        self._broker.stop()
        for topic in topics:
            shutil.copytree(self._data / f"{topic}-0", self._folder / f"{topic}-0")
        self._broker.start()

    def restore(self, *topics: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Stops the broker, puts the older logs back, and starts it again."""
        self._broker.stop()
        for topic in topics:
            shutil.rmtree(self._data / f"{topic}-0")
            shutil.copytree(self._folder / f"{topic}-0", self._data / f"{topic}-0")
        meanwhile()
        self._broker.start()
