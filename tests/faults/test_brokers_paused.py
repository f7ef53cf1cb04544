"""
Brokers that stand still, and disks that are full (faults F11, F28).

SIGSTOP leaves a broker's connections open, so clients see nothing; a full disk ends it, as Kafka does when its last
log folder fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.rig import Bare, Pair
from support.fix_rig import RECORDS
from support.links.plane import kafka_of
from support.links.scene import Scene

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.clusters.rig import Rig
    from support.judges.ledger import Entry

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip

MEGABYTE = 1024 * 1024


@pytest.mark.fault("F11")
@pytest.mark.parametrize("seconds", [5.0, 45.0])
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_stands_still_is_waited_for(scene: Scene, side: str, seconds: float) -> None:
    """F11: shorter and longer than the transaction timeout; no alarm of data loss, and the flow is back in seconds."""
    scene.start()
    (broker,) = getattr(scene, side).cluster.brokers
    with scene.traffic.held() if side == "source" else contextlib.nullcontext():
        if side == "target":
            # a broker that stands still does not say what is open, so ask before
            scene.wait(scene.has_open_transaction, 30, "no transaction is seen open")
        broker.pause()
        scene.entry.injected()
        try:
            time.sleep(seconds)
        finally:
            broker.resume()
    scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in memory; skips where this user may not mount one."""
    folder.mkdir()
    options = f"size={megabytes}m,mode=700"
    done = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"a small file system needs the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, *, leave: int) -> Path:
    """Write a file that leaves so many bytes of a file system free."""
    stat = os.statvfs(folder)
    path = folder / "filler"
    # others write as well, so the last bytes may be gone before we have them
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        left = stat.f_bavail * stat.f_frsize - leave
        while left > 0:
            left -= file.write(b"\0" * min(left, MEGABYTE))
    return path


@pytest.fixture
def cramped(
    east: LocalCluster, tmp_path: Path, topic_name: str, spark_context: Any, rng: random.Random, entry: Entry
) -> Iterator[Scene]:
    """A link into a cluster whose file system has 256 MiB."""
    with small_disk(tmp_path / "disk", 256) as disk:
        spec = ClusterSpec("cramped", data_dir=disk / "cluster", heap="384m", kafka_version=kafka_of("west"))
        with LocalCluster.start(spec) as target:
            made = Scene(
                Pair(Bare(east), Bare(target)),
                topic_name,
                seed=rng.getrandbits(32),
                entry=entry,
                folder=tmp_path,
                spark=spark_context,
            )
            yield made
            made.close()


@pytest.mark.fault("F28")
def test_a_target_whose_disk_is_full_is_waited_for(cramped: Scene) -> None:
    """F28: the target's file system fills up under a running mirror; with space again and the broker up, it goes on."""
    scene = cramped
    (broker,) = scene.target.cluster.brokers
    disk = scene.target.cluster.folder.parent
    scene.start()
    filler = fill(disk, leave=256 * 1024)
    scene.entry.injected()
    scene.traffic.write(5_000)
    scene.wait(lambda: not broker.running, 60, "the broker lives on a full disk")
    scene.rest(3.0)
    filler.unlink()
    broker.start()
    scene.heal()
    scene.write_for(RECORDS)
    scene.catch_up()

    scene.judge()


@pytest.fixture
def cramped_mirror(
    rig: Rig, tmp_path: Path, topic_name: str, rng: random.Random, entry: Entry
) -> Iterator[Scene]:
    """A link whose mirror keeps its logs, temporary files and Spark's folders on a file system of 64 MiB."""
    with small_disk(tmp_path / "own", 64) as disk:
        made = Scene(rig, topic_name, seed=rng.getrandbits(32), entry=entry, folder=disk)
        yield made
        made.close()


@pytest.mark.fault("F28")
def test_a_mirror_whose_own_disk_is_full_goes_on(cramped_mirror: Scene, tmp_path: Path) -> None:
    """F28: nothing that counts lies there; epochs of 5 s make Spark start tasks while it is full."""
    scene = cramped_mirror
    mirror = scene.command(link={"epoch": "5s"}, proxied=False)
    scene.start(mirror)
    scene.write_for(500)
    filler = fill(tmp_path / "own", leave=0)
    scene.entry.injected()
    for _ in range(4):
        scene.rest(3.0)
        scene.await_news()
    filler.unlink()
    scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
