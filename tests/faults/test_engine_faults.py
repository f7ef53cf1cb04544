"""
Spark fails under the mirror (fault F32): the truth is in the target, and what Spark keeps is a cache.

The mirror is the real command; what is killed are its Python workers, PySpark's daemon, executors and the JVM.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING

import psutil
import pytest

from support.fix_rig import REPEATS
from support.links.scene import HEAL_SECONDS

if TYPE_CHECKING:
    import random

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
