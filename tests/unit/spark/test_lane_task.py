"""What travels to a worker: no client, no word of a password, and never through a file."""

from __future__ import annotations

import pickle
import pickletools
import random
import socket
import subprocess
import sys
import zlib
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.serializers import CloudPickleSerializer

from eomirror import __version__
from eomirror.config import Cluster, Link, Secret, load_config
from eomirror.lane.spec import AssignedPartition, Ending, LaneSpec
from eomirror.recovery.corrupt_batches import Damage
from eomirror.spark.attempt import run_lane
from eomirror.spark.jobs import LaneJobs
from eomirror.spark.task import LaneTask, LaneTasks, WarmUpTask, pack_spec, unpack_spec
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from pathlib import Path

_PASSWORD = "a-password-that-must-not-show"  # noqa: S105  no real secret
# PySpark's own limit above which a closure becomes a broadcast variable, and with it a file
_LIMIT = 1 << 20


def spec(topics: int, partitions: int = 1) -> LaneSpec:
    """A lane of so many topics; ids are as random as a broker's."""
    rng = random.Random(7)

    def topic_id() -> str:
        return "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", k=22))

    assigned = []
    for topic in range(topics):
        name, ids = f"team-{topic % 50}.orders.v{topic}.events", (topic_id(), topic_id())
        assigned += [
            AssignedPartition(SourcePartition(name, number), ids[0], f"east.{name}", ids[1])
            for number in range(partitions)
        ]
    clusters = [
        Cluster(alias, {"bootstrap.servers": "127.0.0.1:1", "sasl.password": Secret(_PASSWORD)})
        for alias in ("east", "west")
    ]
    return LaneSpec(
        link=Link(name="east->west", source="east", target="west", topics=(".*",)), source=clusters[0],
        target=clusters[1], source_cluster_id="S", target_cluster_id="T", run="r", generation=1, lane=3,
        epoch=5, attempt=2, seconds=300.0, partitions=tuple(assigned),
    )  # fmt: skip


def task(made: LaneSpec, **changes: Any) -> LaneTask:
    """The task of a lane."""
    given = LaneTask(
        packed=pack_spec(made), number=(made.lane, made.epoch, made.attempt), host="127.0.0.1", port=1,
        token="t" * 64, version=__version__, log_level="info", lane=run_lane,
    )  # fmt: skip
    return replace(given, **changes)


def names_in(pickled: bytes) -> set[str]:
    """Every module that unpickling imports from."""
    texts: list[str] = []
    found = set()
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "GLOBAL":
            found.add(str(argument).split()[0])
        elif operation.name == "STACK_GLOBAL":
            # the last two texts on the stack are module and name; memoized ones were texts before
            found |= set(texts)
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def test_a_task_arrives_as_it_was_sent() -> None:
    """Through PySpark's own serializer, which is not Python's."""
    made = spec(3, 4)
    serializer = CloudPickleSerializer()

    arrived = serializer.loads(serializer.dumps(task(made)))

    assert arrived == task(made)
    assert unpack_spec(arrived.packed, {}) == made


def test_a_task_holds_plain_values_and_no_client() -> None:
    """What a worker unpickles names our own values, and neither clients, threads, sockets nor Spark."""
    pickled = CloudPickleSerializer().dumps(task(spec(2)))
    modules = names_in(pickled) | names_in(pickle.dumps(spec(2)))

    assert "eomirror.lane.spec" in modules
    foreign = (
        "confluent_kafka",
        "threading",
        "socket",
        "py4j",
        "pyspark",
        "eomirror.kafka",
        "eomirror._native",
    )
    assert not [name for name in modules if name.startswith(foreign)]


def test_a_task_that_is_shown_shows_no_secret() -> None:
    """A task's text stands in tracebacks, and in Spark's own log."""
    assert _PASSWORD not in repr(task(spec(2)))
    assert "t" * 64 not in repr(task(spec(2)))


def referred(tmp_path: Path) -> tuple[LaneSpec, dict[str, str]]:
    """A lane whose secrets are referred to in every section, as a configuration gives it, and the environment."""
    kept = tmp_path / "secret"
    kept.write_text(f"{_PASSWORD}-in-a-file\n")
    kept.chmod(0o600)
    environ = {"EAST": f"{_PASSWORD}-of-east", "WEST": f"{_PASSWORD}-of-west"}
    east = {
        "bootstrap.servers": "127.0.0.1:1",
        "sasl.password": "${env:EAST}",
        "consumer": {"ssl.key.password": f"${{file:{kept}}}"},
    }
    west = {
        "bootstrap.servers": "127.0.0.1:2",
        "sasl.oauthbearer.config": "principal=x extension_key=${env:WEST}",
        "producer": {"ssl.keystore.password": "${env:WEST}"},
    }
    links = [{"source": "east", "target": "west", "topics": [".*"]}]
    config = load_config({"clusters": {"east": east, "west": west}, "links": links}, environ=environ)
    made = replace(spec(1), source=config.clusters["east"], target=config.clusters["west"])
    return made, environ


def test_a_task_for_another_machine_carries_references(tmp_path: Path) -> None:
    """Neither the environment's secrets nor a file's are in the closure; the worker finds both."""
    made, environ = referred(tmp_path)
    packed = pack_spec(made, remote=True)

    pickled = zlib.decompress(packed)
    assert _PASSWORD.encode() not in pickled
    assert b"${env:EAST}" in pickled
    assert unpack_spec(packed, environ) == made


def test_a_worker_uses_its_own_secret(tmp_path: Path) -> None:
    """Another machine may keep another value under the same name, and a value that was replaced is read anew."""
    made, environ = referred(tmp_path)
    packed = pack_spec(made, remote=True)
    (tmp_path / "secret").write_text("replaced")

    there = unpack_spec(packed, {**environ, "EAST": "of the worker"})

    assert there.source.properties["sasl.password"] == Secret("of the worker")
    assert there.source.consumer["ssl.key.password"] == Secret("replaced")
    assert there.target == made.target


def test_a_task_for_this_machine_carries_the_text(tmp_path: Path) -> None:
    """Workers of a local master may have an environment that is older than the driver's variable."""
    made, _ = referred(tmp_path)
    (tmp_path / "secret").unlink()
    assert unpack_spec(pack_spec(made), {}) == made


def test_a_secret_of_the_configuration_itself_is_carried() -> None:
    """There is nothing that the worker could look up."""
    assert unpack_spec(pack_spec(spec(2), remote=True), {}) == spec(2)


def test_a_worker_that_lacks_secrets_names_them_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By property, variable and file; the attempt is repeated, for they may still arrive, and no value is shown."""
    made, _ = referred(tmp_path)
    (tmp_path / "secret").unlink()
    monkeypatch.delenv("EAST", raising=False)
    monkeypatch.setenv("WEST", "there")

    (report,) = task(made, packed=pack_spec(made, remote=True))([])

    assert (report.ending, report.lane, report.epoch, report.attempt) == (Ending.UNAUTHORIZED, 3, 5, 2)
    assert socket.gethostname() in str(report.error)
    assert "clusters.east.sasl.password: environment variable EAST is not set" in str(report.error)
    assert "clusters.east.consumer.ssl.key.password" in str(report.error)
    assert str(tmp_path)[:40] in str(report.error)
    assert "cannot be read: No such file or directory" in str(report.error)
    assert "every Spark worker" in str(report.error)
    assert _PASSWORD not in str(report.error)


@pytest.mark.parametrize(
    ("master", "found"), [("local[4]", True), ("spark://h:7077", False), ("yarn", False)]
)
def test_the_master_decides_whether_secrets_are_carried(master: str, found: bool, tmp_path: Path) -> None:
    """The closure that Spark gets under each of them, whole."""
    sent: list[bytes] = []

    class Job:
        def mapPartitions(self, function: Any) -> Any:  # noqa: N802  Spark's name
            sent.append(CloudPickleSerializer().dumps(function))
            return SimpleNamespace(collect=lambda: [None])

    class Context(FakeContext):
        def parallelize(self, *_: Any) -> Job:
            return Job()

        def setLocalProperty(self, *_: Any) -> None:  # noqa: N802  Spark's name
            pass

        setJobGroup = setLocalProperty  # noqa: N815  Spark's name

    context = Context(_LIMIT)
    context.master = master
    jobs = LaneJobs(
        context, LaneTasks(host="h", port=1, token="", version="1", log_level="info", lane=run_lane)
    )
    made, _ = referred(tmp_path)

    report = jobs.run(made)
    assert (report.ending, report.reason) == (Ending.TASK_RAISED, "the lane returned NoneType, not a report")

    (closure,) = sent
    arrived = CloudPickleSerializer().loads(closure)
    assert (_PASSWORD.encode() in zlib.decompress(arrived.packed)) is found
    assert _PASSWORD.encode() not in closure


@pytest.mark.parametrize(("topics", "partitions"), [(10_000, 1), (1, 100_000), (500, 100)])
def test_very_many_partitions_travel_in_memory(topics: int, partitions: int) -> None:
    """A context of the user's own has PySpark's limit; above it passwords would pass through a file."""
    closure = CloudPickleSerializer().dumps((task(spec(topics, partitions)), None, None, None))

    assert len(closure) < _LIMIT - (64 << 10)


class FakeContext:
    """A Spark context that must not be asked for a job."""

    def __init__(self, limit: int) -> None:
        self._jsc = object()
        self.master = "local[2]"
        self._jvm = SimpleNamespace(PythonUtils=SimpleNamespace(getBroadcastThreshold=lambda _: limit))


def test_a_task_that_would_pass_through_a_file_is_refused() -> None:
    """Before Spark sees it; the report says how large it is and what to set."""
    jobs = LaneJobs(
        FakeContext(100_000),
        LaneTasks(host="h", port=1, token="", version="1", log_level="info", lane=run_lane),
    )

    report = jobs.run(spec(5_000))

    assert report.ending is Ending.FAILED
    assert (report.lane, report.epoch, report.attempt) == (3, 5, 2)
    assert "lane 3 has 5000 partitions" in str(report.error)
    assert "spark.broadcast.UDFCompressionThreshold=" in str(report.error)


@pytest.mark.parametrize(("stopped", "ending"), [(False, Ending.WORKER_DIED), (True, Ending.ENGINE_GONE)])
def test_a_job_that_fails_is_an_ending_of_its_attempt(*, stopped: bool, ending: Ending) -> None:
    """What earlier attempts could not read is not forgotten over it; that Spark has stopped is told to the user."""

    class Context(FakeContext):
        def setLocalProperty(self, *_: Any) -> None:  # noqa: N802  Spark's name
            raise RuntimeError("Python worker exited unexpectedly (crashed)")

    context = Context(_LIMIT)
    context._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: stopped))
    jobs = LaneJobs(
        context, LaneTasks(host="h", port=1, token="", version="1", log_level="info", lane=run_lane)
    )
    damaged = (Damage(source=SourcePartition("orders", 0), position=7, times=1),)

    report = jobs.run(replace(spec(1), damaged=damaged))

    assert (report.ending, report.damaged) == (ending, damaged)
    assert ending.crashed
    assert (report.error is not None) is stopped


def test_a_worker_of_another_release_says_so_before_it_reads_the_spec() -> None:
    """What the spec looks like in that release is not known."""
    wrong = task(spec(1), version="0.0.0", packed=b"of another release")

    (report,) = wrong([])

    assert (report.ending, report.lane, report.epoch, report.attempt) == (Ending.FAILED, 3, 5, 2)
    assert "the driver 0.0.0" in str(report.error)


@pytest.mark.parametrize("modules", [("eomirror",), ("eomirror.spark.task", *WarmUpTask().modules)])
def test_an_import_starts_no_thread_and_loads_no_client(modules: tuple[str, ...]) -> None:
    """A process that has imported the library, or PySpark's daemon for a lane, may fork as it likes."""
    program = (
        "import importlib, os, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "threads = os.listdir('/proc/self/task')\n"
        "loaded = [name for name in sys.modules if name.startswith(('confluent_kafka', 'pyspark', 'py4j'))]\n"
        "mapped = 'rdkafka' in open('/proc/self/maps').read()\n"
        "print(len(threads), loaded, mapped)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.strip() == "1 [] False", done.stderr
