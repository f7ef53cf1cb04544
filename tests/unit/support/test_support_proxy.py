"""The proxy on sockets, before a broker that answers every frame with its correlation id."""

from __future__ import annotations

import gc
import socket
import struct
import threading
import time
import warnings
from typing import TYPE_CHECKING

import pytest

from eomirror.localkafka.ports import free_ports
from support.clusters.apart import proxy_apart
from support.clusters.frames import Api, FrameSplitter
from support.clusters.proxy import FaultProxy
from support.clusters.rules import CutAfter, Delay, DropAnswers, HalfOpen, Hold, Lifetimes, Match

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH = Match(api_key=Api.FETCH)


class Broker(threading.Thread):
    """Answers frames in order, and remembers their correlation ids."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got: list[int] = []
        self.start()

    def run(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        splitter = FrameSplitter()
        with client:
            while data := receive(client):
                for frame in splitter.feed(data):
                    (correlation,) = struct.unpack_from(">i", frame, 8)
                    self.got.append(correlation)
                    client.sendall(struct.pack(">ii", 4, correlation))

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join()


def receive(client: socket.socket, most: int = 4096) -> bytes:
    try:
        return client.recv(most)
    except ConnectionError:
        return b""


class Client:
    """Sends requests, reads answers."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)

    def send(self, correlation: int, api_key: int = Api.FETCH) -> None:
        self.socket.sendall(struct.pack(">ihhih", 10, api_key, 0, correlation, -1))

    def answer(self) -> int | None:
        """The next answer's correlation id; None when the connection is broken."""
        data = b""
        while len(data) < 8:
            part = receive(self.socket, 8 - len(data))
            if not part:
                return None
            data += part
        return int(struct.unpack_from(">i", data, 4)[0])

    def ask(self, correlation: int, api_key: int = Api.FETCH) -> int | None:
        self.send(correlation, api_key)
        return self.answer()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.close()


@pytest.fixture
def proxy(broker: Broker) -> Iterator[FaultProxy]:
    made = FaultProxy(free_ports(1)[0], broker.port, seed=1)
    yield made
    made.close()


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[Client]:
    made = Client(proxy.port)
    yield made
    made.socket.close()


def test_frames_pass_in_both_directions(client: Client, proxy: FaultProxy, broker: Broker) -> None:
    """And are counted on the way."""
    assert [client.ask(number) for number in range(1, 4)] == [1, 2, 3]
    assert broker.got == [1, 2, 3]
    assert (proxy.requests(Api.FETCH), proxy.answers(Api.FETCH), proxy.connections()) == (3, 3, 1)


def test_a_held_request_reaches_the_broker_after_its_client_is_gone(
    client: Client, proxy: FaultProxy, broker: Broker
) -> None:
    """Over the connection that is still open: a straggler."""
    proxy.arm("late", Hold(match=FETCH, nth=2))
    assert client.ask(1) == 1
    assert client.ask(2) is None
    proxy.await_event("held", "late")
    other = Client(proxy.port)
    assert other.ask(3) == 3
    assert broker.got == [1, 3]
    proxy.release("late")
    event = proxy.await_event("late answer", "late")
    other.socket.close()

    assert event.request is not None
    assert (event.request.correlation_id, broker.got) == (2, [1, 3, 2])


def test_a_held_request_blocks_its_connection_only(client: Client, proxy: FaultProxy, broker: Broker) -> None:
    """Its answers come, in order, after the release."""
    proxy.arm("late", Hold(match=FETCH, cut=False))
    client.send(1)
    client.send(2)
    proxy.await_event("behind", "late")
    assert broker.got == []
    proxy.release("late")

    assert [client.answer() for _ in range(2)] == [1, 2]
    assert client.ask(3) == 3


def test_a_request_reaches_the_broker_and_its_answer_does_not(
    client: Client, proxy: FaultProxy, broker: Broker
) -> None:
    """The connection is cut between the two."""
    proxy.arm("cut", CutAfter(match=FETCH))

    assert client.ask(1) is None
    proxy.await_event("lost answer")
    assert broker.got == [1]


def test_a_dropped_answer_leaves_the_connection_open(client: Client, proxy: FaultProxy) -> None:
    """The next answer comes."""
    proxy.arm("drop", DropAnswers(match=FETCH, times=1))
    client.send(1)
    proxy.await_event("dropped", "drop")

    assert client.ask(2) == 2


def test_a_cut_breaks_what_is_and_refuses_what_comes(client: Client, proxy: FaultProxy) -> None:
    """Until the time is over."""
    assert client.ask(1) == 1
    proxy.cut(refuse_seconds=0.2)
    assert client.answer() is None
    refused = Client(proxy.port)
    assert refused.ask(2) is None
    refused.socket.close()
    time.sleep(0.2)
    healed = Client(proxy.port)
    assert healed.ask(3) == 3
    healed.socket.close()


def test_a_half_open_connection_stays_silent(client: Client, proxy: FaultProxy, broker: Broker) -> None:
    """The socket is open, the broker hears nothing, and a new connection lives after healing."""
    assert client.ask(1) == 1
    proxy.arm("dead", HalfOpen())
    client.send(2)
    proxy.await_event("swallowed")
    proxy.disarm("dead")
    client.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.ask(3)
    healed = Client(proxy.port)
    assert healed.ask(4) == 4
    healed.socket.close()
    assert broker.got == [1, 4]


def test_connections_die_at_their_age(proxy: FaultProxy) -> None:
    """Neither at once nor never."""
    proxy.arm("young", Lifetimes(shortest=0.1, longest=0.2))
    client = Client(proxy.port)
    began = time.monotonic()
    assert client.ask(1) == 1
    assert client.answer() is None
    assert 0.05 < time.monotonic() - began < 2.0
    client.socket.close()


def test_a_delay_is_kept(client: Client, proxy: FaultProxy) -> None:
    """Once for the request, once for the answer."""
    proxy.arm("slow", Delay(seconds=0.05))
    began = time.monotonic()

    assert client.ask(1) == 1
    assert time.monotonic() - began >= 0.1


def test_a_broker_that_is_gone_breaks_its_clients(client: Client, proxy: FaultProxy) -> None:
    """As it would without a proxy in between."""
    assert client.ask(1) == 1
    proxy._upstream_port = free_ports(1)[0]
    late = Client(proxy.port)
    assert late.answer() is None
    late.socket.close()
    assert proxy.trouble() == []


def test_a_client_that_speaks_something_else_is_named(client: Client, proxy: FaultProxy) -> None:
    """Trouble of the rig itself does not look like a fault of the mirror."""
    client.socket.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")

    assert client.answer() is None
    assert "FrameError" in proxy.trouble()[0]


def test_waiting_in_vain_names_what_happened(client: Client, proxy: FaultProxy) -> None:
    """A failed test shows the last events."""
    assert client.ask(1) == 1
    with pytest.raises(
        AssertionError, match=r"no event 1 'held' 'late' within 0.05 s; last events:\n.*connected"
    ):
        proxy.await_event("held", "late", seconds=0.05)


def test_a_proxy_that_closes_leaves_no_socket_of_clients_it_just_accepted(broker: Broker) -> None:
    """A socket left behind warns in the midst of a later test, or after the last one."""
    (port,) = free_ports(1)
    proxy = FaultProxy(port, broker.port, seed=1)
    # the loop stands still while clients connect and the proxy closes: it meets both in the same turn
    proxy._loop.call_soon_threadsafe(time.sleep, 0.2)
    clients = [Client(port) for _ in range(20)]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        proxy.close()
        del proxy
        gc.collect()
    for each in clients:
        each.socket.close()
    assert [str(warning.message) for warning in warned] == []


def test_a_proxy_in_a_process_of_its_own_does_the_same(broker: Broker) -> None:
    """Rules go there, events come back, failures as well."""
    (port,) = free_ports(1)
    with proxy_apart(port, broker.port, seed=1) as proxy:
        proxy.arm("late", Hold(match=FETCH))
        client = Client(port)
        client.send(1)
        assert proxy.await_event("held", "late").rule == "late"
        proxy.release("late")
        assert proxy.await_event("late answer", "late").kind == "late answer"
        with pytest.raises(AssertionError, match="no event"):
            proxy.await_event("refused", seconds=0.01)
        client.socket.close()
    assert broker.got == [1]
