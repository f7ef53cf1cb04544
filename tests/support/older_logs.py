"""The logs of some partitions on a cluster of one broker, put back to what they were, as after a lost disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

__all__ = ["OlderLogs"]


class OlderLogs:
    """
    Keeps copies of logs.

    Args:
        cluster: A cluster of one broker.
        folder: For the copies.
    """

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        (self._broker,) = cluster.brokers
        self._folder = folder
        self._data = self._broker.folder / "data"

    def save(self, *partitions: str) -> None:
        """Stop the broker, copy the logs, and start it again."""
        self._broker.stop()
        for each in partitions:
            shutil.copytree(self._data / each, self._folder / each)
        self._broker.start()

    def restore(self, *partitions: str) -> None:
        """Stop the broker, put the older logs back, and start it again."""
        self._broker.stop()
        for each in partitions:
            shutil.rmtree(self._data / each)
            shutil.copytree(self._folder / each, self._data / each)
        self._broker.start()
