"""
Spark fails under the mirror (fault F32): the truth is in the target, and what Spark keeps is a cache.

The mirror is the real command; what is killed are its Python workers, PySpark's daemon, executors, workers of a cluster
and the JVM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import time
from functools import partial
from typing import TYPE_CHECKING

import psutil
import pytest
from bench.peers.standalone import StandaloneCluster, driver_settings

from support.fix_rig import REPEATS
from support.links.scene import HEAL_SECONDS

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(900),
]  # fmt: skip


def below(mirror: CommandMirror, words: str) -> list[psutil.Process]:
    """Processes of a mirror whose command line contains these words."""
    found = []
    for process in mirror.tree.processes():
        # one that has just ended is none of them
        with contextlib.suppress(psutil.Error):
            if process.pid != mirror.tree.pid and words in " ".join(process.cmdline()):
                found.append(process)
    return found


def await_readers_go_on(scene: Scene) -> None:
    """Wait until what lies in the copy now holds no reader back any more, and note how long that took."""
    written = scene.offsets.ends(scene.copy, scene.partitions, committed=False)
    began = time.monotonic()

    def free() -> bool:
        stable = scene.offsets.ends(scene.copy, scene.partitions, committed=True)
        return all(stable[number] >= end for number, end in written.items())

    scene.wait(free, HEAL_SECONDS, "a transaction of the dead lane holds readers back")
    seconds = round(time.monotonic() - began, 2)
    scene.entry.notes["readers_held_back_s"] = max(seconds, scene.entry.notes.get("readers_held_back_s", 0.0))


@pytest.mark.fault("F32")
@pytest.mark.parametrize("what", ["worker", "daemon"])
def test_python_workers_that_are_killed(command_scene: Scene, what: str) -> None:
    """F32: kill -9 of a lane's worker, or of the daemon that forks them, while the driver lives."""
    scene = command_scene
    mirror = scene.command(link={"epoch": "5s"} if what == "daemon" else {}, proxied=False)
    scene.start(mirror)
    for _ in range(REPEATS):
        scene.write_for(500)
        workers = scene.wait(mirror.workers, 30, "no worker runs a lane")
        if what == "worker":
            # the lanes die with uncommitted data; frozen first, so that it is still open then
            freeze, thaw = partial(mirror.tree.freeze, workers), partial(mirror.tree.thaw, workers)
            scene.freeze_in_transaction(freeze, thaw)
            for worker in workers:
                worker.kill()
        else:
            daemon = workers[0].parent()
            assert daemon is not None
            daemon.kill()
            scene.entry.injected()
        await_readers_go_on(scene)
        scene.heal()
        if what == "daemon":
            # orphans go on, epoch after epoch, as Spark uses its workers again; without them it needs a new daemon
            for worker in workers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
            scene.entry.injected()
            scene.heal()
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
def test_tasks_that_spark_repeats_by_itself(command_scene: Scene, rng: random.Random) -> None:
    """F32: a master that repeats failed tasks; the repeated one is refused, and the driver's own attempt goes on."""
    scene = command_scene
    mirror = scene.command("--master", "local[16,4]", proxied=False)
    scene.start(mirror)
    for _ in range(REPEATS):
        scene.write_for(500)
        rng.choice(scene.wait(mirror.workers, 30, "no worker runs a lane")).kill()
        scene.entry.injected()
        scene.heal()
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
def test_an_executor_that_is_killed(command_scene: Scene, rng: random.Random) -> None:
    """F32: two executors, each with its own JVM; one dies with its lanes, and they go on in another."""
    scene = command_scene
    settings = (
        "spark.executor.memory=512m",
        "spark.driver.memory=512m",
        "spark.executor.cores=2",
        "spark.authenticate=true",
        "spark.authenticate.secret=of-the-tests-cluster",
        "spark.network.crypto.enabled=true",
    )
    arguments = [word for setting in settings for word in ("--spark-conf", setting)]
    mirror = scene.command("--master", "local-cluster[2,2,1024]", *arguments, proxied=False)
    scene.start(mirror)
    for _ in range(REPEATS):
        scene.write_for(500)
        executors = below(mirror, "CoarseGrainedExecutorBackend")
        assert executors, "no executor runs"
        rng.choice([process for process in executors if process.children()] or executors).kill()
        scene.entry.injected()
        scene.heal(120.0)
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
def test_a_jvm_that_is_killed_and_folders_that_are_gone(command_scene: Scene) -> None:
    """F32: without its JVM the mirror ends with an error; another, without anything of the first one's, goes on."""
    scene = command_scene
    first = scene.command(proxied=False)
    scene.start(first)
    scene.write_for(500)
    scene.watch_over(None)
    (jvm,) = below(first, "org.apache.spark.deploy.SparkSubmit")
    jvm.kill()
    scene.entry.injected()
    assert first.await_exit(60.0) == 1, first.tree.last_lines()
    shutil.rmtree(first.folder / "spark", ignore_errors=True)
    second = scene.command(proxied=False)
    scene.entry.recovered(scene.start(second))
    # folders that vanish while it runs: no record is ever in them
    shutil.rmtree(second.folder / "spark", ignore_errors=True)
    scene.entry.injected()
    scene.write_for(1_000)
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A standalone cluster of three workers of one core each."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = StandaloneCluster(folder, 3)
    yield made
    made.close()


class ClusterMirror:
    """
    The mirror of a scene, with lanes on a standalone cluster.

    Args:
        scene: The scene.
        cluster: The cluster.
        lanes: Number of lanes.
        crash: Crash point of the driver; empty for none.

    Attributes:
        passed: Exists once the driver has died there.
    """

    def __init__(self, scene: Scene, cluster: StandaloneCluster, lanes: int, *, crash: str = "") -> None:
        self.port = free_port()
        self._scene = scene
        self._cluster = cluster
        spark = {**driver_settings(cluster.url), "spark.eomirror.channel.port": str(self.port)}
        self.passed = cluster.folder / f"passed-{crash}"
        environment = {"EOMIRROR_CRASH_POINT": f"{crash}@{self.passed}"} if crash else {}
        self._mirror = scene.command(lanes=lanes, spark=spark, proxied=False, environment=environment)
        log.info("load before the start: %s", os.getloadavg())
        seconds = scene.start(self._mirror)
        log.info("first record after %.1f s, load %s", seconds, os.getloadavg())
        scene.entry.notes["first_record_s"] = round(seconds, 1)
        scene.wait(lambda: len(self.busy()) == lanes, 120, f"{lanes} workers do not run lanes")

    def busy(self) -> list[int]:
        """Workers that run a lane."""
        return [number for number in self._cluster.workers if self._cluster.lanes_of(number, self.port)]

    def said(self, words: str) -> int:
        """How often the log has these words."""
        return self._mirror.log.read_text(errors="replace").count(words)

    def await_death(self) -> None:
        """Waits until the driver has died at its crash point."""
        assert self._mirror.await_exit(60.0), self._mirror.tree.last_lines()
        assert self.passed.exists(), self._mirror.tree.last_lines()

    def lose_worker(self, rng: random.Random) -> int:
        """Kills a worker that runs a lane; each partition goes on."""
        scene = self._scene
        lost = rng.choice(self.busy())
        # the kill returns when the last of its processes is gone, seconds later
        began = time.monotonic()
        number = self._cluster.kill_worker(rng, lost)
        scene.entry.injected()
        # of each partition, as the other lanes go on all the time
        written = [count + 50 for count in scene.traffic.ledger.sequences]

        def mirrored() -> bool:
            shown = [len(scene.watcher.histories[number].offsets) for number in range(scene.partitions)]
            return all(count >= least for count, least in zip(shown, written, strict=True))

        scene.wait(mirrored, 120, "a partition is not mirrored again")
        seconds = scene.entry.recovered(time.monotonic() - began)
        log.info("worker lost: all partitions go on after %.1f s, load %s", seconds, os.getloadavg())
        return number


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.fault("F32")
def test_a_lane_of_a_lost_worker_goes_on_in_a_free_slot(
    command_scene: Scene, spark_cluster: StandaloneCluster, rng: random.Random
) -> None:
    """F32: a worker of a cluster is lost with its lane, and another one has a free core."""
    scene = command_scene
    mirror = ClusterMirror(scene, spark_cluster, 2)
    for _ in range(REPEATS):
        scene.write_for(500)
        lost = mirror.lose_worker(rng)
        # on a busy machine its partitions may be lent before, and return
        scene.wait(lambda: len(mirror.busy()) == 2, 120, "the lane does not run in the free slot")
        spark_cluster.start_worker(lost)
        scene.rest(10)
    log.info("partitions were lent %d times", mirror.said("partitions_lent"))
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
def test_partitions_of_a_lane_without_a_slot_are_lent_and_return(
    command_scene: Scene, spark_cluster: StandaloneCluster, rng: random.Random
) -> None:
    """F32: no other worker has a free core; the lanes that run mirror for the third, until it has a slot again."""
    scene = command_scene
    mirror = ClusterMirror(scene, spark_cluster, 3)
    for number in range(1, 1 + REPEATS):
        scene.write_for(500)
        lost = mirror.lose_worker(rng)
        assert mirror.said("partitions_lent") == number
        assert mirror.said("waits for a slot: Spark gives 2 of 3")
        scene.write_for(500)
        scene.heal()
        spark_cluster.start_worker(lost)
        scene.wait(lambda number=number: mirror.said("lane_has_slot") == number, 120, "no slot is found")
        scene.wait(lambda: len(mirror.busy()) == 3, 60, "the lane does not run again")
        scene.write_for(500)
        scene.heal()
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
@pytest.mark.parametrize("point", ["owner.move_published", "owner.move_fenced"])
def test_a_driver_that_dies_within_a_move(
    command_scene: Scene, spark_cluster: StandaloneCluster, rng: random.Random, point: str
) -> None:
    """F1: control has the layout of the move, and no lane has the partitions; the next run spreads and mirrors them."""
    scene = command_scene
    first = ClusterMirror(scene, spark_cluster, 3, crash=point)
    scene.write_for(500)
    scene.watch_over(None)
    lost = spark_cluster.kill_worker(rng, rng.choice(first.busy()))
    scene.entry.injected()
    first.await_death()
    spark_cluster.start_worker(lost)

    second = ClusterMirror(scene, spark_cluster, 3)
    scene.write_for(500)
    scene.heal()
    assert second.said('"epoch":1,"attempt":1,"partitions":1,') == 3, "each lane begins with its share again"
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F32")
@pytest.mark.timeout(1_800)
def test_workers_that_are_killed_again_and_again(
    command_scene: Scene, spark_cluster: StandaloneCluster, rng: random.Random
) -> None:
    """F32: ten kills of workers, executors and tasks; workers return at any time, also in the midst of a move."""
    scene = command_scene
    mirror = ClusterMirror(scene, spark_cluster, 3)
    lost: list[int] = []
    for _ in range(10):
        scene.write_for(300)
        kind = rng.choice(["worker", "worker", "executor", "task"])
        if kind == "worker" and len(spark_cluster.workers) > 1:
            lost.append(spark_cluster.kill_worker(rng))
        elif kind == "executor":
            spark_cluster.kill_executor(rng)
        else:
            spark_cluster.kill_task(rng)
        scene.entry.injected()
        scene.rest(rng.uniform(0, 20))
        while lost and (len(spark_cluster.workers) == 1 or rng.random() < 0.5):
            spark_cluster.start_worker(lost.pop())
        log.info("%s killed, %s workers run", kind, len(spark_cluster.workers))
    scene.heal(180.0)
    log.info("partitions were moved %d times", mirror.said("partitions_moved"))
    scene.catch_up()

    scene.judge()
    scene.check_generations()
