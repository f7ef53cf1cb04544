"""An operation that waits for a cluster says so once, one that is answered says nothing; clusters are asked at once."""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
import structlog

from eomirror.config import Cluster
from eomirror.errors import UnreachableError
from eomirror.kafka import admin_client
from eomirror.kafka.admin_client import waiting_for
from eomirror.kafka.reachability import require_reachable, unreachable_clusters

if TYPE_CHECKING:
    from collections.abc import Iterator

EAST = Cluster("east", {"bootstrap.servers": "127.0.0.1:9092"})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was announced yet, and a tenth of a second is long."""
    monkeypatch.setattr(admin_client, "NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(admin_client, "_notices", admin_client._Notices())


def test_a_wait_is_announced_once_with_alias_and_address() -> None:
    """Whichever of several operations waits first; another cluster is announced as well."""
    with structlog.testing.capture_logs() as logs:
        for cluster in (EAST, EAST, Cluster("west", {"bootstrap.servers": "127.0.0.1:9093"})):
            with waiting_for(cluster):
                time.sleep(0.3)
    assert [(each["event"], each["cluster"], each["servers"]) for each in logs] == [
        ("waiting_for_cluster", "east", "127.0.0.1:9092"),
        ("waiting_for_cluster", "west", "127.0.0.1:9093"),
    ]
    assert logs[0]["seconds"] >= 0.1


def test_an_answer_in_time_is_not_announced() -> None:
    """And all operations share one thread."""
    before = set(threading.enumerate())
    with structlog.testing.capture_logs() as logs:
        for _ in range(20):
            with waiting_for(EAST):
                pass
        time.sleep(0.3)
    assert logs == []
    # those of earlier tests may end meanwhile
    assert [one.name for one in set(threading.enumerate()) - before] == ["slow-operations"]


@pytest.fixture
def silent() -> Iterator[str]:
    """Address of a socket that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield "{}:{}".format(*listening.getsockname()[:2])


def test_clusters_that_are_away_are_asked_at_the_same_time(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told with its alias and address; they share one deadline."""
    monkeypatch.setattr(admin_client, "_CONNECT_SECONDS", 1.0)
    clusters = [
        Cluster(f"c{number}", {"bootstrap.servers": silent, "log_level": "0"}) for number in range(12)
    ]
    began = time.monotonic()
    with structlog.testing.capture_logs():
        found = unreachable_clusters(clusters)
    seconds = time.monotonic() - began

    assert set(found) == {cluster.alias for cluster in clusters}
    assert all(isinstance(error, UnreachableError) for error in found.values())
    assert f"c3 ({silent})" in found["c3"].message
    assert seconds < 12
    assert unreachable_clusters([]) == {}
    with structlog.testing.capture_logs(), pytest.raises(UnreachableError, match="c0"):
        require_reachable(clusters[:1])
