"""What systemd is told about a running mirror."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from eomirror.cli.run import ServiceManager, is_ready, status_line
from eomirror.status.snapshot import LinkSnapshot, Snapshot

if TYPE_CHECKING:
    from pathlib import Path


def snapshot(*states: str, lag: int | None = 0) -> Snapshot:
    """A mirror whose links are in these states."""
    links = (
        LinkSnapshot(link=f"l{number}", state=state, lag_records=lag) for number, state in enumerate(states)
    )
    return Snapshot(seconds=1.0, links=tuple(links))


def test_a_service_is_ready_once_no_link_prepares() -> None:
    """A link that waits for its cluster does not hold up the start of the service; one that prepares does."""
    assert not is_ready(snapshot())
    assert not is_ready(snapshot("running", "preparing"))
    assert not is_ready(snapshot("acquiring"))
    assert is_ready(snapshot("running", "waiting", "failed"))


def test_the_status_line_counts_links_and_names_the_lag() -> None:
    """States in the order of the configuration; an unknown lag is not shown as 0."""
    assert (
        status_line(snapshot("running", "waiting", "running", lag=4))
        == "2 running, 1 waiting; lag 12 records"
    )
    assert status_line(snapshot("waiting", lag=None)) == "1 waiting; lag unknown"


def test_ready_and_stopping_are_sent_once_and_the_watchdog_each_time(tmp_path: Path) -> None:
    """Each report is one datagram; a line that has not changed is not repeated."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(path)
        channel.settimeout(5)
        service = ServiceManager({"NOTIFY_SOCKET": path})
        service.alive(snapshot("preparing", lag=None))
        service.alive(snapshot("running"))
        service.alive(snapshot("running"))
        service.alive(snapshot("stopping"), stopping=True)
        service.alive(snapshot("stopping"), stopping=True)
        received = [channel.recv(4096).decode().split("\n") for _ in range(5)]
    assert received == [
        ["WATCHDOG=1", "STATUS=1 preparing; lag unknown"],
        ["WATCHDOG=1", "READY=1", "STATUS=1 running; lag 0 records"],
        ["WATCHDOG=1"],
        ["WATCHDOG=1", "STOPPING=1", "STATUS=1 stopping; lag 0 records"],
        ["WATCHDOG=1"],
    ]


def test_an_abstract_socket_is_reached() -> None:
    """An address that begins with @ is an abstract one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind("")
        channel.settimeout(5)
        name = channel.getsockname()
        ServiceManager({"NOTIFY_SOCKET": "@" + name[1:].decode()}).alive(snapshot("running"))
        assert b"READY=1" in channel.recv(4096)


def test_no_service_manager_and_a_lost_one_change_nothing(tmp_path: Path) -> None:
    """Without the variable nothing is sent; a socket that is gone raises no error."""
    ServiceManager({}).alive(snapshot("running"))
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).alive(snapshot("running"))
