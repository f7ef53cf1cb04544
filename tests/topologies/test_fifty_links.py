"""Fifty links in one process: those that cannot run, or that break while they run, never stall another."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.mirrors import CommandMirror, memory_of
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

_LINKS = 50
_RECORDS = 40
_START_SECONDS = 500.0
# a link that has caught up commits within some milliseconds; the rest is two busy cores and 50 workers
_ARRIVAL_SECONDS = 60.0
_IDLE_SECONDS = 20.0
_STOP_SECONDS = 10.0
# `status` gives a cluster 10 s to answer; reading 50 links takes some seconds more
_STATUS_SECONDS = 60.0
_CHECK_SECONDS = 20.0


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """Accepts every connection and never answers; yields its port."""
    held: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    held.append(server.accept()[0])

        threading.Thread(target=accept, name="silent", daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for connection in held:
                connection.close()


class Fifty:
    """
    Fifty links, each with a topic of its own.

    Attributes:
        MUTE: The link with a source that accepts connections and never answers.
        DEAF: The link with such a target.
        FRAIL: The link with a source that dies while it runs.
    """

    MUTE, DEAF, FRAIL = 7, 8, 11

    def __init__(self, name: str, clusters: Mapping[str, Mapping[str, Any]]) -> None:
        self.clusters = clusters
        self.written: dict[int, dict[int, list[Any]]] = {}
        self._name = name
        self._seeds = iter(range(1, 10_000))

    def ends(self, number: int) -> tuple[str, str]:
        """Source and target of a link."""
        if number == self.MUTE:
            return "silent", "west"
        if number == self.DEAF:
            return "east", "silent"
        if number == self.FRAIL:
            return "frail", "west"
        return [("east", "west"), ("west", "east")][number % 2]

    def link(self, number: int) -> str:
        """Name of a link; its topic is called the same."""
        return f"{self._name}-{number:02}"

    @property
    def sound(self) -> list[int]:
        """Links whose clusters live all the time."""
        return [number for number in range(_LINKS) if number not in {self.MUTE, self.DEAF, self.FRAIL}]

    def settings(self) -> dict[str, Any]:
        """The configuration of all links."""
        return {
            "clusters": {alias: dict(properties) for alias, properties in self.clusters.items()},
            "links": [
                {
                    "name": self.link(number),
                    "source": self.ends(number)[0],
                    "target": self.ends(number)[1],
                    "topics": [self.link(number)],
                }
                for number in range(_LINKS)
            ],
            "defaults": {"lanes": 1, "plane": plane_under_test()},
        }

    def create(self) -> None:
        """Creates the topics of all sources that live."""
        for number in (*self.sound, self.FRAIL):
            create_topic(self.clusters[self.ends(number)[0]], self.link(number))
            self.written[number] = {0: []}

    def write(self, numbers: list[int]) -> None:
        """Writes to the topics of these links."""
        for number in numbers:
            source, _ = self.ends(number)
            records = some_records(next(self._seeds), _RECORDS)
            done = produce(
                self.clusters[source], self.link(number), 1, records, transactional_id=self.link(number)
            )
            self.written[number][0] += done[0]

    def late(self, numbers: list[int]) -> list[int]:
        """Those of the links whose copy lacks something."""
        return [number for number in numbers if not self._whole(number)]

    def _whole(self, number: int) -> bool:
        source, target = self.ends(number)
        try:
            found = read_committed(self.clusters[target], f"{source}.{self.link(number)}")
        except KeyError:
            return False  # not created yet
        # a topic that is just being created has no partition
        copy = found.get(0, [])
        assert len(copy) <= len(self.written[number][0])
        return copy == self.written[number][0]

    def await_copies(self, mirror: CommandMirror, numbers: list[int], seconds: float) -> None:
        """Waits until the copies of these links are what was written."""
        left = list(numbers)

        def all_whole() -> bool:
            mirror.check()
            left[:] = self.late(left)
            return not left

        try:
            wait_for(all_whole, seconds)
        except AssertionError as error:
            raise AssertionError(f"links without a whole copy after {seconds:g} s: {left}") from error


def command(mirror: CommandMirror, *words: str) -> Any:
    """The JSON output of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *words, str(mirror.folder / "mirror.yaml"), "-o", "json"],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def tree_of(mirror: CommandMirror) -> list[psutil.Process]:
    """The mirror, Spark's JVM and its workers."""
    root = psutil.Process(mirror.tree.pid)
    return [root, *root.children(recursive=True)]


def spent(processes: Sequence[psutil.Process]) -> float:
    """CPU seconds of these processes so far."""
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


class Figures(dict[str, float]):
    """Measured values by name."""

    @contextlib.contextmanager
    def seconds(self, name: str) -> Iterator[None]:
        """Measures the block."""
        began = time.monotonic()
        yield
        self[name] = time.monotonic() - began

    def idle(self, mirror: CommandMirror) -> None:
        """Measures a mirror that has nothing to do: memory, threads and CPU."""
        processes = tree_of(mirror)
        began, before, of_driver = time.monotonic(), spent(processes), spent(processes[:1])
        time.sleep(_IDLE_SECONDS)
        seconds = time.monotonic() - began
        self["idle cores"] = (spent(processes) - before) / seconds
        self["idle cores of the driver"] = (spent(processes[:1]) - of_driver) / seconds
        self["MB"] = memory_of(processes) / 1e6
        self["MB of the driver"] = memory_of(processes[:1]) / 1e6
        self["processes"] = len(processes)
        self["threads"] = sum(process.num_threads() for process in processes)
        self["threads of the driver"] = processes[0].num_threads()


def test_fifty_links_run_in_one_process_and_none_stalls_another(
    topic_name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """
    48 copies are whole though a source and a target never answer; 47 go on while another source is dead.

    The dead source comes back, and its link catches up.  `check`, `status` and Ctrl-C keep their times.  Memory,
    threads and CPU are printed.
    """
    figures = Figures()
    with (
        silent_server() as port,
        LocalCluster.start(ClusterSpec("east")) as east,
        LocalCluster.start(ClusterSpec("west")) as west,
        LocalCluster.start(ClusterSpec("frail", heap="256m")) as frail,
    ):
        fifty = Fifty(
            topic_name[:20],
            {
                "east": east.client_properties,
                "west": west.client_properties,
                "frail": frail.client_properties,
                "silent": {"bootstrap.servers": f"127.0.0.1:{port}"},
            },
        )
        fifty.create()
        alive = [*fifty.sound, fifty.FRAIL]
        fifty.write(alive)
        mirror = CommandMirror(fifty.settings(), tmp_path / "mirror")
        try:
            with figures.seconds("check"):
                assert len(command(mirror, "check")["links"]) == _LINKS
            mirror.start()
            with figures.seconds("start"):
                fifty.await_copies(mirror, alive, _START_SECONDS)
            figures["CPU seconds of the start"] = spent(tree_of(mirror))
            with figures.seconds("status"):
                links = {link["link"]: link for link in command(mirror, "status")["links"]}
            for number in (fifty.MUTE, fifty.DEAF):
                told = links.pop(fifty.link(number))
                assert told["state"] not in {"running", "ok"}
                assert "silent" in json.dumps(told["problem"])
            idle = {name: link["problem"] for name, link in links.items() if link["state"] != "running"}
            assert idle == {}
            assert mirror.said("waiting_for_cluster") > 0
            figures.idle(mirror)

            frail.brokers[0].kill()
            fifty.write(fifty.sound)
            with figures.seconds("arrival beside a dead source"):
                fifty.await_copies(mirror, fifty.sound, _ARRIVAL_SECONDS)
            frail.brokers[0].start()
            fifty.write([fifty.FRAIL])
            with figures.seconds("return"):
                fifty.await_copies(mirror, [fifty.FRAIL], _ARRIVAL_SECONDS)
            with figures.seconds("stop"):
                os.kill(mirror.tree.pid, signal.SIGINT)
                wait_for(lambda: mirror.tree.exit_code is not None, 60)
            # lanes that miss their time on a busy machine abort, which 130 tells
            assert mirror.await_exit(60) in {0, 128 + signal.SIGINT}
        finally:
            mirror.close()
            print({name: round(value, 2) for name, value in figures.items()})  # noqa: T201  figures to read with -s
        assert fifty.late(alive) == []
    for name, value in figures.items():
        record_property(name, round(value, 2))
    assert figures["stop"] < _STOP_SECONDS
    assert figures["status"] < _STATUS_SECONDS
    assert figures["check"] < _CHECK_SECONDS
