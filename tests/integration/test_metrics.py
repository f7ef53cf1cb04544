"""A running mirror is scraped while it copies, and `serve` tells of it when it is gone; no secret is shown."""

from __future__ import annotations

import http.client
import math
import os
import signal
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from eomirror import Mirror, load_config
from eomirror.serve.http import Address, HttpServer
from eomirror.serve.polled import PolledEndpoints
from eomirror.serve.running import RunningEndpoints
from eomirror.status.live import LinkFacts
from eomirror.status.reader import StatusReader
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# librdkafka takes them and does not use them on a plain connection
SECRETS = {
    "sasl.username": "planted-user",
    "sasl.password": "planted-sasl-secret",
    "sasl.oauthbearer.client.secret": "planted-client-secret",
}


def ask(port: int, path: str) -> tuple[int, bytes]:
    """Status and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def samples(port: int) -> Callable[..., float]:
    """Returns a look-up in one scrape: the sum over all samples with these labels."""
    found = [
        sample
        for family in text_string_to_metric_families(ask(port, "/metrics")[1].decode())
        for sample in family.samples
    ]

    def value(name: str, **labels: str) -> float:
        values = [
            each.value
            for each in found
            if each.name == f"eomirror_{name}" and labels.items() <= each.labels.items()
        ]
        return math.fsum(values) if values else math.nan

    return value


def commit_group(properties: dict[str, str], group: str, topic: str) -> None:
    """Commits an offset of a group."""
    consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_a_mirror_is_scraped_while_it_copies(  # noqa: PLR0915  one run, looked at from all sides
    east: Any, west: Any, topic_name: str, spark_context: Any
) -> None:
    """Counters equal what was written, lag returns to 0, and the planted secrets are nowhere."""
    topic = f"{topic_name}.orders"
    create_topic(east.client_properties, topic, 3)
    config = load_config(
        {
            "clusters": {
                "east": {**east.client_properties, **SECRETS},
                "west": {**west.client_properties, **SECRETS},
            },
            "links": [
                {"name": topic_name, "source": "east", "target": "west", "topics": [f"{topic_name}\\..*"]}
            ],
            "defaults": {"lanes": 2, "plane": plane_under_test()},
        }
    )
    endpoints = RunningEndpoints(
        config.links,
        version="test",
        readers={topic_name: lambda: reader(config)},
        per_partition=True,
        per_group=True,
    )
    server = HttpServer(Address("127.0.0.1", 0), endpoints.answer)
    mirror = Mirror(config, spark=spark_context)
    try:
        assert ask(server.port, "/readyz")[0] == 503
        with running(mirror, endpoints.update):
            wait_for(lambda: ask(server.port, "/readyz")[0] == 200)
            # from here on, so that the first read finds the topics
            endpoints.start()
            records = some_records(5, 3_000)
            committed_there = produce(east.client_properties, topic, 3, records, transactional_id=topic_name)
            written = sum(map(len, committed_there.values()))

            commit_group(east.client_properties, f"<script>{topic_name}", topic)

            def caught_up() -> bool:
                value = samples(server.port)
                done = value("records_total") == written and value("lag_records") == 0
                # the group's checkpoint is committed
                return (
                    done and value("groups", state="followed") >= 1 and value("groups", state="pending") == 0
                )

            wait_for(caught_up)
            value = samples(server.port)
            assert value("lag_seconds", topic=topic) == 0
            assert value("link_state", state="running") == 1
            assert value("bytes_total", topic=topic) > written
            committed = value("transactions_total", outcome="committed")
            assert committed >= 1
            assert value("transaction_duration_seconds_count") == committed
            assert value("transaction_records_count") == committed
            assert value("transaction_records_sum") == written
            # these records claim to be years old
            assert value("replication_latency_seconds_count") == 0
            assert value("replication_latency_left_out_total") >= 3
            assert value("lanes", plane=plane_under_test()) == 2
            assert value("source_unreachable_seconds") == 0
            assert value("partition_lag_records", topic=topic, partition="2") == 0
            assert 0 <= value("owner_claim_age_seconds") < 30
            # what only the topics hold, read in the background
            wait_for(lambda: samples(server.port)("link_read_seconds") > 0)
            value = samples(server.port)
            assert (value("problem_partitions"), value("verified_topics", outcome="never")) == (0, 1)
            # the read before may have seen a transaction of the producer while it was open
            wait_for(lambda: samples(server.port)("readiness", verb="promote") == 1)
            assert value("lane_memory_bytes", lane="1") > 1_000_000
            assert value("spark_jobs") == 2
            status, alive = ask(server.port, "/livez")
            assert (status, orjson.loads(alive)["alive"]) == (200, True)
            no_secret(server.port, topic_name)
            kill_worker(config)
            wait_for(lambda: samples(server.port)("lane_restarts_total") >= 1)
            # the driver writes it to the target with the next renewal of its claim
            with closing(reader(config)) as target:
                wait_for(lambda: target.read().restarts)
    finally:
        endpoints.close()
        server.close()
    check_served(config, topic, written)


def kill_worker(config: Any) -> None:
    """Kills the worker of lane 0."""
    with closing(reader(config)) as target:
        os.kill(target.read().lanes[0].pid, signal.SIGKILL)


def check_served(config: Any, topic: str, written: int) -> None:
    """Checks what `serve` tells of the link, whose mirror has ended."""
    link = config.links[0]
    served = PolledEndpoints({LinkFacts.of(link): lambda: reader(config)}, version="test")
    server = HttpServer(Address("127.0.0.1", 0), served.answer)
    try:
        served.start()
        wait_for(lambda: ask(server.port, "/readyz")[0] == 200)
        value = samples(server.port)
        assert value("link_state", state="stopped") == 1
        assert value("records_total", topic=topic) == written
        assert value("lag_seconds", topic=topic) == 0
        body = orjson.loads(ask(server.port, f"/api/v1/links/{link.name}")[1])
        assert body["failover"] == "yes: nothing would be lost"
        (restart,) = body["restarts"]
        assert (restart["count"] >= 1, restart["ending"]) == (True, "worker died")
        assert {"owner", "released", "generation", "lane", "restarts"} <= {
            event["kind"] for event in body["events"]
        }
        page = ask(server.port, f"/links/{link.name}")[1].decode()
        assert "&lt;script&gt;" in page
        assert "<script>" not in page
        no_secret(server.port, link.name)
    finally:
        served.close()
        server.close()


def no_secret(port: int, link: str) -> None:
    """Checks every endpoint."""
    for path in (
        "/",
        f"/links/{link}",
        "/api/v1/links",
        f"/api/v1/links/{link}",
        "/metrics",
        "/livez",
        "/readyz",
    ):
        body = ask(port, path)[1]
        assert not [secret for secret in SECRETS.values() if secret.encode() in body], path


def reader(config: Any) -> StatusReader:
    """Reads the only link of a configuration."""
    link = config.links[0]
    return StatusReader(link, config.clusters[link.source], config.clusters[link.target])
