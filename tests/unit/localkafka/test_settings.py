"""Broker properties, from a specification and ports: pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from eomirror.errors import UsageError
from eomirror.localkafka.settings import (
    KeyStore,
    NodePorts,
    broker_properties,
    jvm_arguments,
    render_properties,
    zookeeper_properties,
)
from eomirror.localkafka.spec import ClusterSpec, Listener

DATA = Path("/data")


def ports(first: int, **advertised: int) -> NodePorts:
    return NodePorts({"CLIENT": first, "INTERNAL": first + 1, "CONTROLLER": first + 2}, advertised)


def test_single_broker_keeps_one_copy_of_internal_topics() -> None:
    """One broker cannot hold three copies: the first transaction would wait for ever."""
    found = broker_properties(ClusterSpec("one"), {1: ports(15000)}, 1, data=DATA, keys=None)
    names = ("offsets.topic", "transaction.state.log", "default")
    assert [found[f"{name}.replication.factor"] for name in names] == ["1", "1", "1"]
    assert found["transaction.state.log.min.isr"] == found["min.insync.replicas"] == "1"
    assert found["listeners"].split(",")[0] == "CLIENT://127.0.0.1:15000"
    assert "CONTROLLER" not in found["advertised.listeners"]


def test_three_brokers_vote_and_replicate() -> None:
    """All three controllers are voters; two of three copies must acknowledge."""
    nodes = {number: ports(15000 + 10 * number) for number in (1, 2, 3)}
    found = broker_properties(ClusterSpec("trio", brokers=3), nodes, 2, data=DATA, keys=None)
    assert found["controller.quorum.voters"] == "1@127.0.0.1:15012,2@127.0.0.1:15022,3@127.0.0.1:15032"
    assert (found["node.id"], found["default.replication.factor"], found["min.insync.replicas"]) == (
        "2",
        "3",
        "2",
    )


def test_advertised_port_differs_from_the_bound_one() -> None:
    """A listener behind a proxy listens on its own port and names the proxy's."""
    found = broker_properties(ClusterSpec("one"), {1: ports(15000, CLIENT=19000)}, 1, data=DATA, keys=None)
    assert "CLIENT://127.0.0.1:15000" in found["listeners"]
    assert "CLIENT://127.0.0.1:19000" in found["advertised.listeners"]


def test_brokers_before_kafka_3_keep_their_metadata_in_a_zookeeper() -> None:
    """It listens in the place of the first broker's controller, and no broker has the quorum's properties."""
    nodes = {number: ports(15000 + 10 * number) for number in (1, 2)}
    spec = ClusterSpec("old", brokers=2, kafka_version="2.8", authorizer=True)
    found = broker_properties(spec, nodes, 2, data=DATA, keys=None)
    assert (found["broker.id"], found["zookeeper.connect"]) == ("2", "127.0.0.1:15012")
    assert zookeeper_properties(nodes, data=DATA)["clientPort"] == "15012"
    assert found["listeners"] == "CLIENT://127.0.0.1:15020,INTERNAL://127.0.0.1:15021"
    assert not {"process.roles", "node.id", "controller.quorum.voters"} & found.keys()
    assert found["authorizer.class.name"].endswith("AclAuthorizer")
    assert "-Dlog4j.configuration=file:l" in jvm_arguments(spec, Path("l"))


def test_users_of_the_specification_win_over_our_defaults() -> None:
    """A given broker property replaces ours."""
    spec = ClusterSpec("one", properties={"num.partitions": "7"})
    assert broker_properties(spec, {1: ports(15000)}, 1, data=DATA, keys=None)["num.partitions"] == "7"


def test_security_stays_off_the_internal_listener() -> None:
    """Brokers talk in plaintext among themselves, clients over SASL_SSL."""
    keys = KeyStore(Path("/k.p12"), "pw", Path("/ca.pem"))
    spec = ClusterSpec("vault", security="sasl_ssl", authorizer=True)
    found = broker_properties(spec, {1: ports(15000)}, 1, data=DATA, keys=keys)
    protocols = "CLIENT:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    assert found["listener.security.protocol.map"] == protocols
    assert "listener.name.client.scram-sha-512.sasl.jaas.config" in found
    assert found["super.users"] == "User:admin;User:ANONYMOUS"
    assert "pw" not in repr(keys)


def test_backslashes_survive_a_properties_file() -> None:
    """Java reads a backslash as an escape."""
    assert render_properties({"a": "b\\c"}) == "a=b\\\\c\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "a.b"},
        {"name": ""},
        {"name": "x", "brokers": 0},
        {"name": "x", "heap": "lots"},
        {"name": "x", "port": 65536},
        {"name": "x", "kafka_version": "2.7"},
        {"name": "x", "kafka_version": "2.8", "security": "sasl_ssl"},
        {"name": "x", "kafka_version": "2.8", "features": {"transaction.version": 1}},
        {"name": "x", "security": "kerberos"},
        {"name": "x", "ports": (1, 2)},
        {"name": "x", "extra_listeners": (Listener("CLIENT"),)},
        {"name": "x", "brokers": 3, "extra_listeners": (Listener("P", advertised_ports=(1,)),)},
    ],
)
def test_specification_that_cannot_work_is_refused_at_once(wrong: dict[str, object]) -> None:
    """A wrong value is a usage error with a fix, before any process starts."""
    with pytest.raises(UsageError) as caught:
        ClusterSpec(**wrong)  # type: ignore[arg-type]
    assert caught.value.fix


def test_passwords_of_users_are_not_shown() -> None:
    """The representation of a specification may land in a log."""
    assert "hunter2" not in repr(ClusterSpec("x", users={"ana": "hunter2"}))


def test_collector_and_compiler_are_those_of_the_environment_where_it_names_some() -> None:
    """As in Kafka's own scripts: the variable stands in place of their choice, and may hold several words."""
    usual = jvm_arguments(ClusterSpec("east"), Path("log4j2.properties"))
    assert "-XX:+UseG1GC" in usual
    chosen = jvm_arguments(
        ClusterSpec("east"), Path("log4j2.properties"), performance="-XX:+UseSerialGC '-Dname=two words'"
    )
    assert "-XX:+UseG1GC" not in chosen
    assert {"-XX:+UseSerialGC", "-Dname=two words"} <= set(chosen)
