"""The connections that the parts of one process share: made once, closed once, and made again after that."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from eomirror.config import Cluster, Link
from eomirror.errors import UnreachableError
from eomirror.kafka.session import ClusterSession, link_sessions
from support.traffic.records import wait_for

NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


def clients() -> int:
    """Number of librdkafka clients in this process, by their main threads; broker threads begin with that name."""
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except OSError:
            # the thread has ended
            continue
    return names.count("rdk:main")


def test_all_threads_share_one_client() -> None:
    """Each client has a thread per broker, and connections."""
    before, session = clients(), ClusterSession(NOWHERE, client_id="c")
    assert clients() == before
    found = []
    threads = [threading.Thread(target=lambda: found.append(session.admin)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(map(id, found))) == 1
    wait_for(lambda: clients() == before + 1)
    session.close()
    session.close()
    wait_for(lambda: clients() == before)


def test_a_link_that_starts_again_gets_new_clients() -> None:
    """With the credentials of that moment."""
    session = ClusterSession(NOWHERE, client_id="c")
    first = session.admin
    session.close()

    assert session.admin is not first
    session.close()


def test_a_session_that_rests_has_no_client_until_its_next_use() -> None:
    before, session = clients(), ClusterSession(NOWHERE, client_id="c")
    admin = session.admin
    with session.reader():
        wait_for(lambda: clients() == before + 2)
    session.rest()
    wait_for(lambda: clients() == before)
    with pytest.raises(UnreachableError):
        admin.describe_cluster()
    assert session.admin is admin
    wait_for(lambda: clients() == before + 1)
    session.close()
    session.rest()
    wait_for(lambda: clients() == before)


def test_readers_are_lent_in_turn() -> None:
    """A thread that reads has a consumer of its own; one that broke off is not lent again."""
    before, session = clients(), ClusterSession(NOWHERE, client_id="c")
    with session.reader() as first, session.reader() as second, session.reader(uncommitted=True) as third:
        assert len({id(first), id(second), id(third)}) == 3
    with session.reader() as again:
        assert again in {first, second}
    wait_for(lambda: clients() == before + 3)
    with pytest.raises(ValueError, match="broke off"), session.reader(uncommitted=True):
        raise ValueError("broke off")
    wait_for(lambda: clients() == before + 2)
    session.close()
    wait_for(lambda: clients() == before)


def test_a_certificate_that_is_away_is_read_at_the_next_use(tmp_path: Path) -> None:
    """While it is replaced, a link waits; it does not keep the failure."""
    place = tmp_path / "ca.pem"
    properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "ssl.ca.location": str(place)}
    session = ClusterSession(Cluster("west", {**properties, "security.protocol": "ssl"}), client_id="c")
    for _ in range(2):
        with pytest.raises(UnreachableError, match="west"):
            session.admin  # noqa: B018  it connects
    session.close()


def test_a_session_stays_in_its_process() -> None:
    """Threads of librdkafka do not cross a fork: a task that holds one by mistake cannot be sent to a worker."""
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(ClusterSession(NOWHERE, client_id="c"))


def test_brokers_see_link_and_role() -> None:
    """Quotas and logs of brokers tell the links of one process apart."""
    link = Link(name="east->west", source="east", target="west", topics=("t",))
    source, target = link_sessions(link, Cluster("east", {}), NOWHERE, "driver")

    assert source.client_id == target.client_id
    assert source.client_id.endswith(".driver")
