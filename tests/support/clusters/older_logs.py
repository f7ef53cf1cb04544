"""Logs of a single broker that are put back to an older state, as after a power failure or a restored snapshot."""

from __future__ import annotations

import shutil
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

__all__ = ["Logs", "cut_log", "cut_marker"]

# Of a record batch, by offset in it: base offset, length of what follows; attributes, last offset delta; producer id.
_HEAD, _ATTRIBUTES, _PRODUCER = (0, ">qi"), (21, ">hi"), (43, ">q")
_HEAD_BYTES = 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_CLEAN = ".kafka_cleanshutdown"


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


def cut_log(cluster: LocalCluster, topic: str, number: int, share: float) -> int:
    """
    Cuts the log of a partition as a power failure does; the broker must be down.

    The log ends between two batches where no transaction is open.

    Args:
        share: Of such places to keep; 0 empties the log.

    Returns:
        The end of the log.
    """
    (broker,) = cluster.brokers
    data = broker.folder / "data"
    folder = data / f"{topic}-{number}"
    segments = sorted(folder.glob("*.log"))
    places, opened = [(segments[0], 0, int(segments[0].stem))], set[int]()
    for segment in segments:
        held, at = segment.read_bytes(), 0
        while at < len(held):
            base, length = struct.unpack_from(_HEAD[1], held, at + _HEAD[0])
            attributes, delta = struct.unpack_from(_ATTRIBUTES[1], held, at + _ATTRIBUTES[0])
            (producer,) = struct.unpack_from(_PRODUCER[1], held, at + _PRODUCER[0])
            if attributes & _CONTROL:
                opened.discard(producer)
            elif attributes & _TRANSACTIONAL:
                opened.add(producer)
            at += _HEAD_BYTES + length
            if not opened:
                places.append((segment, at, base + delta + 1))
    last, size, end = places[int(share * (len(places) - 1))]
    last.write_bytes(last.read_bytes()[:size])
    for segment in segments[segments.index(last) + 1 :]:
        segment.unlink()
    _forget_order(data, folder)
    return end


def cut_marker(cluster: LocalCluster, topic: str, number: int) -> None:
    """
    Cuts the last batch of a partition, which is the marker of a transaction; the broker must be down.

    The transaction is open then, and its coordinator knows it as ended.
    """
    (broker,) = cluster.brokers
    data = broker.folder / "data"
    folder = data / f"{topic}-{number}"
    last = max(one for one in folder.glob("*.log") if one.stat().st_size)
    held, at, end = last.read_bytes(), 0, 0
    attributes = 0
    while end < len(held):
        at = end
        _, length = struct.unpack_from(_HEAD[1], held, at + _HEAD[0])
        attributes, _ = struct.unpack_from(_ATTRIBUTES[1], held, at + _ATTRIBUTES[0])
        end = at + _HEAD_BYTES + length
    assert attributes & _CONTROL, "the last batch is a marker"
    last.write_bytes(held[:at])
    _forget_order(data, folder)


def _forget_order(data: Path, folder: Path) -> None:
    """Deletes what a broker derives from a log; one that ended in order reads no log at its start."""
    for suffix in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
        for each in folder.glob(suffix):
            each.unlink()
    (data / _CLEAN).unlink(missing_ok=True)
