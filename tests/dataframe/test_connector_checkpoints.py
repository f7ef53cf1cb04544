"""A job of Spark's own Kafka connector that moves, to our source or to another cluster, with its checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bench import spark as bench_spark
from bench.peers.spark_connector import connector_jars
from frames import settled
from pyspark.errors import PySparkException
from source_rig import Query, as_record

from eomirror import load_config
from eomirror.dataframe.checkpoint import translate_checkpoint
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.links.link import TestLink
    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_JOB = Path(bench_spark.__file__).with_name("spark_job.py")


class ConnectorJob:
    """A job of Spark's connector, from Kafka to Kafka; each `run` is a program that reads what there is."""

    def __init__(self, folder: Path, source: Mapping[str, Any], target: Mapping[str, Any], out: str) -> None:
        self.checkpoint = folder / "c"
        self._target, self._out = target, out
        self.read = {
            "kafka.bootstrap.servers": str(source["bootstrap.servers"]),
            "kafka.isolation.level": "read_committed",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "150",
        }

    def run(self, topic: str, **options: str) -> None:
        """Runs the job over a topic to the end of what is there."""
        given = {
            "name": "connector",
            "source": "kafka",
            "sink": "kafka",
            "read": self.read | options | {"subscribe": topic},
            "write": {"kafka.bootstrap.servers": str(self._target["bootstrap.servers"]), "topic": self._out},
            "where": "true",
            "checkpoint": str(self.checkpoint),
            "spark": bench_spark.SETTINGS | {"spark.driver.memory": "700m", "spark.jars": connector_jars()},
        }
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, "-P", str(_JOB), json.dumps(given)]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=200
        )
        assert ended.returncode == 0, ended.stderr[-6_000:]

    def undo_commit(self) -> None:
        """Makes the last batch one that was not completed, as after a kill in it."""
        commits = self.checkpoint / "commits"
        last = max(int(one.name) for one in commits.iterdir() if one.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)

    def batch(self, number: int) -> dict[str, dict[str, int]]:
        """Offsets at the end of a micro-batch."""
        *_, line = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
        return dict(json.loads(line))

    def last(self) -> int:
        """Number of the newest batch."""
        return max(int(one.name) for one in (self.checkpoint / "offsets").iterdir() if one.name.isdecimal())


def contents(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, sorted: each connector writes timestamps of its own."""
    return sorted(((key, value) for key, value, *_ in records), key=repr)


def written(link: TestLink) -> list[tuple[bytes | None, bytes | None]]:
    return contents([record for each in link.written["orders"].values() for record in each])


def arrived(cluster: Any, topic: str) -> list[Record]:
    return [record for each in settled(cluster, topic).values() for record in each]


@pytest.fixture
def job(link: TestLink, west: Any, topic_name: str, tmp_path: Path) -> ConnectorJob:
    """A job that has read a topic of the link's source in several batches."""
    link.create("orders", partitions=2)
    link.write("orders", 400)
    create_topic(west.client_properties, topic_name, 2)
    made = ConnectorJob(tmp_path, link.east, link.west, topic_name)
    made.run(link.topic("orders"))
    assert made.last() > 1
    return made


@pytest.mark.parametrize("completed", [True, False])
def test_a_job_moves_by_changing_the_format(
    link: TestLink, west: Any, job: ConnectorJob, spark_session: Any, topic_name: str, *, completed: bool
) -> None:
    """Our source goes on in the connector's checkpoint, with the batch that it did not complete."""
    before = arrived(west, topic_name)
    assert contents(before) == written(link)
    # of the connector's last batch; our query adds others
    (topic,) = job.batch(0)
    begin, end = (job.batch(number)[topic] for number in (job.last() - 1, job.last()))
    if not completed:
        job.undo_commit()
    link.write("orders", 200)
    query = Query(
        spark_session,
        job.checkpoint,
        link.east,
        subscribe=link.topic("orders"),
        includeHeaders="true",
        startingOffsets="earliest",
    ).run()
    ours = contents([as_record(row) for row in query.rows])
    if completed:
        assert sorted(contents(before) + ours, key=repr) == written(link)
        return
    # the same rows as the connector's last batch, which were written once before
    assert query.batches[0]
    for row in query.batches[0]:
        at = str(row["partition"])
        assert begin[at] <= row["offset"] < end[at]
    assert set(contents(before)) | set(ours) == set(written(link))
    assert len(query.batches[0]) + len(written(link)) == len(before) + len(ours)


def test_a_first_batch_that_the_connector_did_not_complete_is_refused_at_latest(
    link: TestLink, job: ConnectorJob, spark_session: Any
) -> None:
    """Only the connector knows where it began: our source would begin at the end of today, and skip the batch."""
    for folder in ("offsets", "commits"):
        for file in (job.checkpoint / folder).iterdir():
            if folder == "commits" or file.name not in {"0", ".0.crc"}:
                file.unlink()
    topic = link.topic("orders")
    with pytest.raises(PySparkException, match="sources/0/0"):
        Query(spark_session, job.checkpoint, link.east, subscribe=topic, includeHeaders="true").run()
    *_, begun = (job.checkpoint / "sources" / "0" / "0").read_text().splitlines()
    query = Query(
        spark_session,
        job.checkpoint,
        link.east,
        subscribe=topic,
        includeHeaders="true",
        startingOffsets=begun,
    ).run()
    assert contents([as_record(row) for row in query.rows]) == written(link)


def test_a_checkpoint_is_translated_for_the_connector(
    link: TestLink, west: Any, job: ConnectorJob, topic_name: str
) -> None:
    """The same job on the copy, with Spark's connector on both sides: every row once."""
    link.write("orders", 200)
    link.catch_up()
    config = load_config(link.path)
    found = translate_checkpoint(job.checkpoint, config, config.links[0])
    assert not found.repeats
    assert {one.kind for one in found.offsets} <= {"exact", "next"}
    job.read["kafka.bootstrap.servers"] = str(link.west["bootstrap.servers"])
    job.run(link.copy("orders"))
    assert contents(arrived(west, topic_name)) == written(link)


def test_a_checkpoint_is_translated_for_our_source(
    link: TestLink, west: Any, job: ConnectorJob, spark_session: Any, topic_name: str
) -> None:
    """The cluster and the format change at once; the batch that was not completed is repeated from the copy."""
    before = contents(arrived(west, topic_name))
    job.undo_commit()
    link.write("orders", 200)
    link.catch_up()
    config = load_config(link.path)
    assert translate_checkpoint(job.checkpoint, config, config.links[0]).repeats
    query = Query(
        spark_session, job.checkpoint, link.west, subscribe=link.copy("orders"), includeHeaders="true"
    ).run()
    ours = contents([as_record(row) for row in query.rows])
    assert set(before) | set(ours) == set(written(link))
    assert len(query.batches[0]) + len(written(link)) == len(before) + len(ours)
