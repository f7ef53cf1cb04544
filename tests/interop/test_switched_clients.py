"""
What applications see while their cluster is lost and they are moved by an address that leads to the other one.

The clients keep running.  Their `bootstrap.servers` is a port that led to the source and leads to the target after the
failover; names of topics are equal.  What each sees is printed, and is the table in docs/disaster-recovery.md.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from eomirror.localkafka.cluster import ClusterSpec
from support.disaster import Disaster
from support.moving.java import java_gateway
from support.switched_clients import Address, JavaApplication, LibrdkafkaApplication, seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.switched_clients import Application

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_MOVED_SECONDS = 90.0


@pytest.mark.timeout(600)
def test_clients_that_rebootstrap_move_without_a_restart(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """Consumers of Java 4 and librdkafka read on at their own record; Java 3.9 and Java's producers need a restart."""
    lost = start_cluster(ClusterSpec("lost", heap="384m"))
    scene = Disaster(
        lost.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True, partitions=1, back=False,
    )  # fmt: skip
    scene.write("east", 20)
    seen: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        address = Address(_port(lost))
        stack.callback(address.close)
        servers = f"127.0.0.1:{address.port}"
        applications: list[Application] = [
            JavaApplication(
                stack.enter_context(java_gateway(version)),
                version,
                servers,
                scene.topic,
                f"{scene.name}-{version}",
            )
            for version in ("4.3", "3.9")
        ]
        version = confluent_kafka.libversion()[0]
        applications.append(LibrdkafkaApplication(version, servers, scene.topic, f"{scene.name}-librdkafka"))
        for one in applications:
            stack.callback(one.close)
            seen[one.name] = {"read": set()}
            read: set[str] = seen[one.name]["read"]
            assert seconds_until(lambda one=one, read=read: read.update(one.poll()) or len(read) >= 18, 60)
            assert one.send(f"{one.name} before") == ""
        for one in applications:
            read = seen[one.name]["read"]
            seconds_until(lambda one=one, read=read: read.update(one.poll()) or len(read) >= 21, 10)
        scene.catch_up()
        scene.follow(len(applications))
        for broker in lost.brokers:
            broker.kill()
        for one in applications:
            seen[one.name]["dead"] = (_polled(one), one.send(f"{one.name} dead"))
        code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
        assert code == 0, said
        mirrored = {
            (record[1] or b"").decode() for records in scene.read("west").values() for record in records
        }
        address.upstream = _port(west)
        scene.write("west", 10)
        for one in applications:
            again: list[str] = []
            seen[one.name]["moved"] = seconds_until(
                lambda one=one, again=again: any(
                    value.startswith("west-") for value in again.extend(_polled(one)) or again
                ),
                _MOVED_SECONDS if "3.9" not in one.name else 20.0,
            )
            before = {*seen[one.name]["read"], *seen[one.name]["dead"][0]}
            seen[one.name]["read again"] = len(set(again) & before)
            seen[one.name]["missed"] = sorted(mirrored - before - set(again))
            seen[one.name]["sent"] = [one.send(f"{one.name} after {n}") for n in range(3)]
        there = {(record[1] or b"").decode() for records in scene.read("west").values() for record in records}
    for name, what in seen.items():
        print(name, {key: value for key, value in what.items() if key != "read"})  # noqa: T201  the table
        print("  on the target:", sorted(value for value in there if value.startswith(name)))  # noqa: T201  as above
    java, old, other = (seen[one.name] for one in applications)
    assert java["moved"] is not None
    assert other["moved"] is not None
    assert old["moved"] is None
    # what was read behind the last checkpoint is read again; nothing is skipped
    assert java["missed"] == other["missed"] == []
    # producer ids of two clusters collide: an idempotent producer has to be restarted
    assert all("InvalidProducerEpoch" in error for error in java["sent"] if error)
    assert other["sent"] == ["", "", ""]


def _polled(one: Application) -> list[str]:
    try:
        return one.poll()
    except Exception as error:  # noqa: BLE001  it is a part of what the application sees
        return [f"raised {error}"[:200]]


def _port(cluster: Any) -> int:
    return int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])
