"""The hand-made Metadata request and its answer."""

from __future__ import annotations

import struct

import pytest

from eomirror.localkafka.cluster import new_cluster_id, scram_argument
from eomirror.localkafka.ports import (
    encode_metadata_request,
    free_ports,
    is_free,
    live_brokers,
    parse_metadata_response,
)


def answer(*nodes: int, rack: bytes | None = None) -> bytes:
    rows = b""
    for node in nodes:
        rows += struct.pack(">ih", node, 9) + b"127.0.0.1" + struct.pack(">i", 9092)
        rows += struct.pack(">h", -1) if rack is None else struct.pack(">h", len(rack)) + rack
    return struct.pack(">ii", 7, len(nodes)) + rows + struct.pack(">ii", 1, 0)


def test_request_is_metadata_version_1_for_no_topic() -> None:
    """The bytes are those of the protocol guide."""
    frame = encode_metadata_request()
    assert struct.unpack_from(">ihhi", frame) == (len(frame) - 4, 3, 1, 7)
    assert frame.endswith(struct.pack(">i", 0))


@pytest.mark.parametrize("rack", [None, b"", b"rack-a"])
def test_node_ids_are_read_whatever_the_racks(rack: bytes | None) -> None:
    """Nullable racks do not shift what follows."""
    assert parse_metadata_response(answer(1, 2, 3, rack=rack)) == {1, 2, 3}


@pytest.mark.parametrize("payload", [b"", b"HTTP/1.1 400", answer(1, 2)[:20]])
def test_other_answers_are_refused(payload: bytes) -> None:
    """Another program on the port, or half an answer, is no broker."""
    with pytest.raises(ValueError, match=r"answer|Metadata"):
        parse_metadata_response(payload)


def test_a_port_without_a_listener_means_no_live_brokers() -> None:
    """A refused connection is an answer too."""
    assert live_brokers(free_ports(1)[0]) == frozenset()


def test_free_ports_are_different_and_below_the_lent_range() -> None:
    """The kernel lends none of them to outgoing connections while a broker is down."""
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(15_000 <= port < 32_768 and is_free(port) for port in found)


def test_cluster_ids_look_like_kafkas() -> None:
    """22 characters of URL-safe Base64 that no command line takes for an option."""
    ids = {new_cluster_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(name) == 22 and not name.startswith("-") for name in ids)


def test_scram_argument_does_not_hold_the_password() -> None:
    """Arguments of a process can be read by everybody on the machine."""
    made = scram_argument("ana", "hunter2", b"salt")
    assert "hunter2" not in made
    assert made.startswith("SCRAM-SHA-512=[name=ana,iterations=4096,salt=")
