"""Links whose records a query of Spark writes, on real brokers: exact after kills, and shown like any link."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import yaml
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from eomirror import Mirror, load_config
from eomirror.demo.mirror_process import ProcessTree
from eomirror.errors import MirrorError, UsageError
from eomirror.localkafka.ports import free_ports
from eomirror.records.names import LinkNames
from eomirror.status.reader import StatusReader
from support.fix_rig import REPEATS
from support.links.mirrors import CommandMirror, running
from support.traffic.records import create_topic, read_committed, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]

_PARTITIONS = 2
_SQL = (
    "SELECT key, regexp_replace(string(value), 'email-[0-9]+', '***') AS value, headers, timestamp FROM records "
    "WHERE get_json_object(string(value), '$.region') = 'eu'"
)

_MODULE = """
import pyarrow.compute as pc


def mask(batches):
    for batch in batches:
        text = batch["value"].cast("string")
        masked = pc.replace_substring_regex(text, pattern="email-[0-9]+", replacement="***")
        rows = batch.set_column(batch.schema.get_field_index("value"), "value", masked)
        yield rows.filter(pc.match_substring(text, '"region": "eu"'))


def fail(batches):
    for batch in batches:
        raise ValueError(f"no number: {batch['value'][0]}")
"""
# a start of Spark on a busy machine
_START_SECONDS = 150.0


@pytest.fixture
def modules(tmp_path: Path) -> dict[str, str]:
    """Variables with which driver and workers find the module `masking`, whose `mask` does what `_SQL` does."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "masking.py").write_text(_MODULE)
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))}


def settings(east: LocalCluster, west: LocalCluster, name: str, **link: Any) -> dict[str, Any]:
    """A link of one topic with a statement."""
    return {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [
            {
                "name": name, "source": "east", "target": "west", "topics": [name], "transform": {"sql": _SQL},
                "lanes": 2, **link,
            }
        ],
    }  # fmt: skip


class Written:
    """Writes records, and knows what the statement makes of them; ``left_out`` is the number of the others."""

    def __init__(self, properties: Mapping[str, Any], topic: str, rng: random.Random) -> None:
        self._producer = Producer({**properties, "enable.idempotence": True, "linger.ms": 5})
        self._topic, self._rng = topic, rng
        self.expected: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
        self.left_out = 0

    def write(self, count: int) -> None:
        """Write records, each with a number of its own."""
        for _ in range(count):
            number = sum(map(len, self.expected.values())) + self.left_out
            partition = self._rng.randrange(_PARTITIONS)
            region = self._rng.choice(("eu", "us"))
            key = f"key-{number}".encode()
            value = json.dumps({"n": number, "region": region, "email": f"email-{number}"})
            headers = [("number", b"%d" % number)]
            self._producer.produce(
                self._topic, value, key, partition, timestamp=1_700_000_000_000 + number, headers=headers
            )
            if region == "us":
                self.left_out += 1
                continue
            masked = value.replace(f"email-{number}", "***").encode()
            self.expected[partition].append((key, masked, 1_700_000_000_000 + number, tuple(headers)))
        assert self._producer.flush(30) == 0

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes while the block runs."""
        over = threading.Event()

        def write() -> None:
            while not over.wait(0.02):
                self.write(10)

        thread = threading.Thread(target=write, name="writer")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def copied(west: LocalCluster, topic: str) -> dict[int, list[Any]]:
    """Records of the copy by partition."""
    found = read_committed(west.client_properties, topic)
    return {number: [tuple(record) for record in found.get(number, [])] for number in range(_PARTITIONS)}


def status(config: Config) -> Any:
    """The status from the topics alone."""
    (link,) = config.links
    reader = StatusReader(link, config.clusters["east"], config.clusters["west"])
    try:
        return reader.read()
    finally:
        reader.close()


def test_a_statement_writes_what_it_selects_and_the_status_counts_the_rest(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    """The copy has the rows in the order and partition of their records, and positions count the records left out."""
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    written.write(200)
    config = load_config(settings(east, west, topic_name))

    with Mirror(config, spark=spark_context) as mirror:
        report = mirror.run(until="caught-up")

    assert report.exit_code == 0
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(config)
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out
    assert sum(item.records for item in found.partitions) == sum(map(len, written.expected.values()))
    assert found.lag_records == 0
    assert found.state == "stopped"


def test_a_running_query_follows_new_records_and_the_next_run_goes_on(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    """Records that come while it runs are copied; a stop leaves positions from which the next run goes on."""
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    config = load_config(settings(east, west, topic_name))
    for _ in range(2):
        with running(Mirror(config, spark=spark_context)):
            written.write(50)
            wait_for(lambda: copied(west, f"east.{topic_name}") == written.expected, 90)
    assert copied(west, f"east.{topic_name}") == written.expected


def test_a_statement_that_looks_at_several_records_fails_the_link(
    east: LocalCluster, west: LocalCluster, topic_name: str, rng: random.Random, spark_context: Any
) -> None:
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    Written(east.client_properties, topic_name, rng).write(10)
    sql = {"sql": "SELECT DISTINCT value FROM records"}
    config = load_config(settings(east, west, topic_name, transform=sql))

    with pytest.raises(UsageError, match="Distinct"), Mirror(config, spark=spark_context) as mirror:
        mirror.run(until=60)
    assert copied(west, f"east.{topic_name}") == {0: [], 1: []}


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", ["lane.claimed", "lane.flushed", "lane.state_written", "lane.state_written:2", "lane.committed"]
)
def test_a_killed_query_goes_on_from_its_positions_without_a_checkpoint(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random, point: str
) -> None:
    """EO-1: the driver dies in the middle of a batch; the next run has no checkpoint of it, and the copy is exact."""
    raw = settings(east, west, topic_name)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    written.write(100)
    flag = tmp_path / "killed"
    mirror = CommandMirror(raw, tmp_path / "first", environment={"EOMIRROR_CRASH_POINT": f"{point}@{flag}"})
    try:
        mirror.start()
        if ":" in point:
            wait_for(lambda: any(copied(west, f"east.{topic_name}").values()), 120)
        written.write(50)
        wait_for(flag.exists, 120)
    finally:
        mirror.close()
    mirror = CommandMirror(raw, tmp_path / "second", "--until", "caught-up")
    try:
        mirror.start()
        assert mirror.await_exit(180) == 0
    finally:
        mirror.close()
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(load_config(raw))
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("transform", [{"sql": _SQL}, {"python": "masking:mask"}], ids=["sql", "python"])
def test_a_query_that_is_killed_at_any_moment_writes_each_row_once(
    east: LocalCluster,
    west: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    rng: random.Random,
    modules: dict[str, str],
    transform: dict[str, str],
) -> None:
    """EO-1, EO-3: driver, JVM and workers get kill -9 while records are written; each start goes on, then one stops."""
    raw = settings(east, west, topic_name, transform=transform)
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    written.write(100)
    mirror = CommandMirror(raw, tmp_path / "mirror", environment=modules)
    before = 0
    with closing(mirror):
        with written.writing():
            for _ in range(REPEATS + 2):
                mirror.start()
                wait_for(lambda before=before: mirror.check() or moved(config) > before, _START_SECONDS)
                time.sleep(rng.uniform(0, 2))
                mirror.kill()
                before = moved(config)
        mirror.start()
        wait_for(
            lambda: mirror.check() or copied(west, f"east.{topic_name}") == written.expected, _START_SECONDS
        )
        mirror.stop()
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(config)
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out
    assert found.state == "stopped"


@pytest.mark.slow
def test_a_query_and_lanes_share_a_mirror_with_one_slot_for_each_lane(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """Lanes occupy their slots for as long as they run, and the query works in the others; both go on after a kill."""
    whole = f"{topic_name}-whole"
    raw = settings(east, west, topic_name)
    raw["links"].append({"name": whole, "source": "east", "target": "west", "topics": [whole], "lanes": 2})
    raw["spark"] = {"spark.master": "local[4]"}
    topics = (topic_name, whole)
    for name in topics:
        create_topic(east.client_properties, name, _PARTITIONS)
    selected, all_of_them = (Written(east.client_properties, name, rng) for name in topics)
    mirror = CommandMirror(raw, tmp_path / "mirror")

    def exact() -> bool:
        query, lanes = (copied(west, f"east.{name}") for name in topics)
        return query == selected.expected and lanes == copied(east, whole)

    with closing(mirror):
        for _ in range(2):
            mirror.start()
            with selected.writing(), all_of_them.writing():
                before = {name: sum(map(len, copied(west, f"east.{name}").values())) for name in topics}
                for name, count in before.items():
                    wait_for(
                        lambda name=name, count=count: (
                            mirror.check() or sum(map(len, copied(west, f"east.{name}").values())) > count
                        ),
                        _START_SECONDS,
                    )
                mirror.kill()
        mirror.start()
        wait_for(lambda: mirror.check() or exact(), _START_SECONDS)
        mirror.stop()
    assert exact()


def moved(config: Config) -> int:
    """Records that the positions count; 0 before the link has any."""
    try:
        return sum(item.records for item in status(config).partitions)
    except MirrorError:
        return 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_stands_by_goes_on_with_a_query(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """EO-10: the owner is killed; another process, which has no file of it, takes the query over, exactly."""
    raw = settings(east, west, topic_name)
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    pair = [CommandMirror(raw, tmp_path / name, "--standby") for name in ("first", "second")]
    owner, other = pair
    try:
        owner.start()
        written.write(50)
        wait_for(
            lambda: owner.check() or copied(west, f"east.{topic_name}") == written.expected, _START_SECONDS
        )
        other.start()
        wait_for(lambda: other.check() or status(config).standbys, _START_SECONDS)
        with written.writing():
            at = sum(map(len, written.expected.values()))
            wait_for(lambda: sum(map(len, copied(west, f"east.{topic_name}").values())) > at, 60)
            owner.kill()
            left = sum(map(len, written.expected.values()))
            wait_for(
                lambda: other.check() or sum(map(len, copied(west, f"east.{topic_name}").values())) > left,
                120,
            )
        wait_for(lambda: other.check() or copied(west, f"east.{topic_name}") == written.expected, 60)
        other.stop()
    finally:
        for mirror in pair:
            mirror.close()
    assert copied(west, f"east.{topic_name}") == written.expected
    found = status(config)
    assert sum(item.dropped.get("query", 0) for item in found.partitions) == written.left_out


def command(path: Path, *words: str, code: int = 0) -> Any:
    """What a command says in JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", words[0], str(path), *words[1:], "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code == 0 else done.stderr + done.stdout


def ask(port: int, path: str) -> str:
    """The body of a page; empty while nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
    except OSError:
        return ""
    finally:
        connection.close()
    return text if answer.status == 200 else ""


def metric(port: int, name: str, link: str, **labels: str) -> float | None:
    """Sum of the samples of a link."""
    found = [
        sample.value
        for family in text_string_to_metric_families(ask(port, "/metrics"))
        for sample in family.samples
        if sample.name == f"eomirror_{name}" and {"link": link, **labels}.items() <= sample.labels.items()
    ]
    return sum(found) if found else None


def test_commands_hold_and_show_a_query_like_any_link(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """`status`, `lag`, metrics and page while it runs; `pause` holds it, `resume` goes on; `verify` refuses by name."""
    raw = settings(east, west, topic_name)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    written = Written(east.client_properties, topic_name, rng)
    (port,) = free_ports(1)
    mirror = CommandMirror(raw, tmp_path / "mirror", "--listen", f"127.0.0.1:{port}")
    path = mirror.folder / "mirror.yaml"

    def link() -> Any:
        return command(path, "status")["links"][0]

    def whole() -> bool:
        mirror.check()
        return copied(west, f"east.{topic_name}") == written.expected

    with closing(mirror):
        mirror.start()
        written.write(100)
        wait_for(whole, _START_SECONDS)
        wait_for(lambda: link()["lag_records"] == 0, 30)
        assert link()["state"] == "running"
        assert "transform: sql" in link()["remark"]
        (row,) = command(path, "lag")["lag"]
        assert (row["topic"], row["lag_records"], row["state"]) == (topic_name, 0, "ok")
        kept = sum(map(len, written.expected.values()))
        wait_for(lambda: metric(port, "records_total", topic_name) == kept, 30)
        dropped = {"rule": "query", "outcome": "dropped"}
        wait_for(
            lambda: metric(port, "transformed_records_total", topic_name, **dropped) == written.left_out, 30
        )
        assert metric(port, "dropped_records_total", topic_name, reason="query") == written.left_out
        page = ask(port, f"/links/{quote(topic_name)}")
        assert "transform: sql" in page
        assert topic_name in ask(port, "/")
        assert "verify does not run the query" in command(path, "verify", code=2)

        command(path, "pause", "--yes")
        wait_for(lambda: mirror.check() or link()["state"] == "paused", 60)
        before = copied(west, f"east.{topic_name}")
        written.write(50)
        wait_for(lambda: link()["lag_records"] == 50, 30)
        assert copied(west, f"east.{topic_name}") == before
        command(path, "resume", "--yes")
        wait_for(whole, 60)
        mirror.stop()
    assert link()["state"] == "stopped"


def test_a_sink_is_shown_beside_a_query_link(
    east: LocalCluster,
    west: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    rng: random.Random,
    spark_context: Any,
) -> None:
    """`status`, `lag` and `serve` show a Spark query that writes through the sink like a link, with its lag."""
    from pyspark.sql import SparkSession

    from eomirror.spark import sink

    raw = settings(east, west, topic_name)
    path = tmp_path / "mirror.yaml"
    path.write_text(yaml.safe_dump(raw))
    path.chmod(0o600)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    create_topic(west.client_properties, f"{topic_name}.of.sink", 1)
    written = Written(east.client_properties, topic_name, rng)
    written.write(60)
    with Mirror(load_config(raw), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    reads = {"kafka.bootstrap.servers": east.client_properties["bootstrap.servers"], "subscribe": topic_name}
    writes = {
        "kafka.bootstrap.servers": west.client_properties["bootstrap.servers"],
        "topic": f"{topic_name}.of.sink",
    }
    query = (
        SparkSession(spark_context).newSession()
        .readStream.format("eomirror").options(**reads, startingOffsets="earliest").load()
        .select("key", "value").writeStream.foreachBatch(sink(topic_name, writes))
        .option("checkpointLocation", f"file://{tmp_path}/checkpoint").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    left_out = written.left_out
    # both wait: no mirror runs, and the query has ended
    written.write(7)

    name = f"sink {topic_name} on west"
    links = {each["link"]: each for each in command(path, "status")["links"]}
    assert set(links) >= {topic_name, name}
    assert (links[topic_name]["lag_records"], links[name]["lag_records"]) == (7, 7), links[name]
    assert "60 rows" in links[name]["remark"]
    lag = {row["link"]: row["lag_records"] for row in command(path, "lag")["lag"]}
    assert (lag[topic_name], lag[name]) == (7, 7)
    assert [each["link"] for each in command(path, "status", "--link", topic_name)["links"]] == [topic_name]

    (port,) = free_ports(1)
    address = ["--listen", f"127.0.0.1:{port}"]
    serve = ProcessTree(
        [sys.executable, "-m", "eomirror", "serve", str(path), *address], log=tmp_path / "serve.log"
    )
    try:
        wait_for(lambda: metric(port, "lag_records", name) == 7, 90)
        wait_for(lambda: metric(port, "lag_records", topic_name) == 7, 30)
        assert metric(port, "transformed_records_total", topic_name, rule="query") == left_out
        assert "60 rows" in ask(port, f"/links/{quote(name)}")
        assert name in ask(port, "/")
        assert json.loads(ask(port, f"/api/v1/links/{quote(name)}"))["lag_records"] == 7
        assert ask(port, "/readyz")
    finally:
        serve.terminate()
    assert "Traceback" not in (tmp_path / "serve.log").read_text()


@pytest.mark.timeout(300)
def test_a_function_that_fails_is_named_by_type_and_place_and_its_message_is_told_nowhere(
    east: LocalCluster,
    west: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    rng: random.Random,
    modules: dict[str, str],
) -> None:
    """A message may quote a record, which must not reach the log or a state topic."""
    raw = settings(east, west, topic_name, transform={"python": "masking:fail"})
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    Written(east.client_properties, topic_name, rng).write(10)
    mirror = CommandMirror(raw, tmp_path / "mirror", environment=modules)
    with closing(mirror):
        mirror.start()
        assert mirror.await_exit(_START_SECONDS) == 1
    text = mirror.log.read_text()
    assert "transform: python fails: ValueError in masking.py, line 15" in text
    control = read_committed(west.client_properties, LinkNames(topic_name).control_topic)
    told = b"".join(value or b"" for records in control.values() for _, value, *_ in records)
    assert b"ValueError in masking.py" in told
    for shown in (text, told.decode()):
        assert "no number" not in shown
        assert "email-" not in shown
