"""A running mirror is scraped while it copies: its metrics say what it did, and no secret."""

from __future__ import annotations

import http.client
import math
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from eomirror import Mirror, load_config
from eomirror.serve.address import Address
from eomirror.serve.http import HttpServer
from eomirror.serve.running import RunningEndpoints
from support.mirrors import running
from support.plane import plane_under_test
from support.records import create_topic, produce, some_records, wait_for

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


def test_a_mirror_is_scraped_while_it_copies(
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
    endpoints = RunningEndpoints(config.links, version="test", per_partition=True)
    server = HttpServer(Address("127.0.0.1", 0), endpoints.answer)
    mirror = Mirror(config, spark=spark_context)
    try:
        assert ask(server.port, "/readyz")[0] == 503
        with running(mirror, endpoints.update):
            wait_for(lambda: ask(server.port, "/readyz")[0] == 200)
            records = some_records(5, 3_000)
            committed_there = produce(east.client_properties, topic, 3, records, transactional_id=topic_name)
            written = sum(map(len, committed_there.values()))

            def caught_up() -> bool:
                value = samples(server.port)
                return value("records_total") == written and value("lag_records") == 0

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
            assert value("replication_latency_seconds_count") >= 3
            assert value("lanes", plane=plane_under_test()) == 2
            assert value("source_unreachable_seconds") == 0
            assert value("partition_lag_records", topic=topic, partition="2") == 0
            assert 0 <= value("owner_claim_age_seconds") < 30
            status, alive = ask(server.port, "/livez")
            assert (status, orjson.loads(alive)["alive"]) == (200, True)
            bodies = b"".join(ask(server.port, path)[1] for path in ("/metrics", "/livez", "/readyz", "/"))
            assert not [secret for secret in SECRETS.values() if secret.encode() in bodies]
    finally:
        server.close()
