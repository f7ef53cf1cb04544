"""
Broker properties and JVM arguments of an embedded broker, from its specification and its ports.

Touches no file and no process.  https://kafka.apache.org/43/configuration/broker-configs/
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.localkafka.ports import HOST
from eomirror.localkafka.spec import ADMIN, CONTROLLER, INTERNAL, ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "USUAL_PERFORMANCE",
    "KeyStore",
    "NodePorts",
    "broker_properties",
    "jvm_arguments",
    "logging_argument",
    "logging_file",
    "render_properties",
    "zookeeper_port",
    "zookeeper_properties",
]

USUAL_PERFORMANCE = ("-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""Collector of Kafka's own scripts, where ``KAFKA_JVM_PERFORMANCE_OPTS`` chooses none."""


@dataclass(frozen=True, slots=True)
class NodePorts:
    """
    Ports of one broker.

    Attributes:
        bound: Port by listener name, INTERNAL and CONTROLLER among them.
        advertised: What clients are told, by listener name, where it differs.
    """

    bound: Mapping[str, int]
    advertised: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A PKCS#12 file with the brokers' key, its password (never shown), and the CA's certificate as PEM."""

    path: Path
    password: str
    ca_pem: Path

    def __repr__(self) -> str:
        return f"KeyStore(path={self.path!r})"


# One broker on a developer's machine: internal topics that fit on it, no waiting for group members, few partitions
# so that the first transaction does not pay for creating fifty of them.
_BASE = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # the broker looks for timed-out transactions every second, not every ten: a test waits for the abort
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "controlled.shutdown.enable": "true",
    # a broker that was killed is let in again only when the session of its former life has ended (default: 9 s)
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # 4 disk and 3 network threads serve two cores; the defaults are made for a server
    "num.io.threads": "4",
    "num.network.threads": "3",
}


_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_ZOOKEEPERS_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def broker_properties(
    spec: ClusterSpec, nodes: Mapping[int, NodePorts], node_id: int, *, data: Path, keys: KeyStore | None
) -> dict[str, str]:
    """
    Complete ``server.properties`` of one broker.

    Args:
        spec: The cluster.
        nodes: Ports of all its brokers, by node id.
        node_id: Which of them.
        data: Folder of its log and metadata.
        keys: The brokers' key, where a listener has TLS.
    """
    ports = nodes[node_id]
    security = {listener.name: listener.security.upper() for listener in spec.listeners}
    security |= {INTERNAL: "PLAINTEXT", CONTROLLER: "PLAINTEXT"}
    copies = min(3, spec.brokers)
    shown = {
        name: ports.advertised.get(name, port) for name, port in ports.bound.items() if name != CONTROLLER
    }
    bound = dict(ports.bound)
    if spec.keeps_metadata_in_zookeeper:
        del bound[CONTROLLER], security[CONTROLLER]
        properties = _BASE | {
            "broker.id": str(node_id),
            "zookeeper.connect": f"{HOST}:{zookeeper_port(nodes)}",
            # as the session of a broker in KRaft, see above
            "zookeeper.session.timeout.ms": "3000",
        }
    else:
        voters = (f"{node}@{HOST}:{there.bound[CONTROLLER]}" for node, there in sorted(nodes.items()))
        properties = _BASE | {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": CONTROLLER,
        }
    properties |= {
        "inter.broker.listener.name": INTERNAL,
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in bound.items()),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in shown.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{word}" for name, word in security.items()),
        "log.dirs": str(data),
        "default.replication.factor": str(copies),
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(max(1, copies - 1)),
        "min.insync.replicas": str(max(1, copies - 1)),
    }
    if not spec.before_kafka_4:
        properties |= {
            "share.coordinator.state.topic.replication.factor": str(copies),
            "share.coordinator.state.topic.min.isr": str(max(1, copies - 1)),
            "share.coordinator.state.topic.num.partitions": "1",
        }
    if keys is not None:
        properties |= {
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(keys.path),
            "ssl.keystore.password": keys.password,
            "ssl.key.password": keys.password,
        }
    if spec.has_sasl:
        properties["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        for name, word in security.items():
            if word.startswith("SASL"):
                properties[f"listener.name.{name.lower()}.scram-sha-512.sasl.jaas.config"] = (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                )
    if spec.authorizer:
        zookeeper = spec.keeps_metadata_in_zookeeper
        properties |= {
            "authorizer.class.name": _ZOOKEEPERS_AUTHORIZER if zookeeper else _AUTHORIZER,
            "super.users": f"User:{ADMIN};User:ANONYMOUS",  # brokers are ANONYMOUS to each other on INTERNAL
        }
    return properties | dict(spec.properties)


def zookeeper_port(nodes: Mapping[int, NodePorts]) -> int:
    """Returns the port of a cluster's ZooKeeper, which takes the place of the first broker's controller."""
    return nodes[min(nodes)].bound[CONTROLLER]


def zookeeper_properties(nodes: Mapping[int, NodePorts], *, data: Path) -> dict[str, str]:
    """
    Complete ``zookeeper.properties``.  https://zookeeper.apache.org/doc/r3.5.9/zookeeperAdmin.html

    Args:
        nodes: Ports of all brokers, by node id.
        data: Folder of its data.
    """
    return {
        "dataDir": str(data),
        "clientPort": str(zookeeper_port(nodes)),
        "clientPortAddress": HOST,
        "maxClientCnxns": "0",
        "admin.enableServer": "false",
        # it grants sessions of 2 to 20 ticks
        "tickTime": "500",
    }


def jvm_arguments(spec: ClusterSpec, logging: Path, *, performance: str | None = None) -> list[str]:
    """
    JVM arguments of one broker.

    Args:
        spec: Of its cluster.
        logging: Its logging configuration.
        performance: ``KAFKA_JVM_PERFORMANCE_OPTS`` of the environment, which chooses collector and compiler in
            Kafka's own scripts; their choice without it.
    """
    return [
        f"-Xmx{spec.heap}",
        *(USUAL_PERFORMANCE if performance is None else shlex.split(performance)),
        "-XX:+ExitOnOutOfMemoryError",
        "-Xshare:auto",
        "-XX:-UsePerfData",  # no mapped file in the temporary folder for each broker that is killed
        "-Djava.awt.headless=true",
        logging_argument(spec, logging),
    ]


def logging_argument(spec: ClusterSpec, logging: Path) -> str:
    """JVM argument that names the logging configuration of a program of this Kafka."""
    logger = "log4j.configuration" if spec.before_kafka_4 else "log4j2.configurationFile"
    return f"-D{logger}=file:{logging}"


def logging_file(spec: ClusterSpec) -> str:
    """Logging configuration: to standard output, warnings, and what the server itself tells."""
    if spec.before_kafka_4:
        return (
            "log4j.rootLogger=WARN, OUT\n"
            "log4j.appender.OUT=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.OUT.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.OUT.layout.ConversionPattern=%d %-5p %c{1} %m%n\n"
            "log4j.logger.kafka.server=INFO\n"
            "log4j.logger.kafka.coordinator.transaction=INFO\n"
        )
    return (
        "rootLogger.level = WARN\n"
        "rootLogger.appenderRef.out.ref = OUT\n"
        "appender.out.type = Console\n"
        "appender.out.name = OUT\n"
        "appender.out.layout.type = PatternLayout\n"
        "appender.out.layout.pattern = %d %-5p %c{1} %m%n\n"
        "logger.server.name = kafka.server\n"
        "logger.server.level = INFO\n"
        "logger.transaction.name = kafka.coordinator.transaction\n"
        "logger.transaction.level = INFO\n"
    )


def render_properties(properties: Mapping[str, str]) -> str:
    """
    A Java properties file.

    Backslashes and line ends are escaped; keys of Kafka need no escapes.
    """
    rows = (
        f"{key}={value}".replace("\\", "\\\\").replace("\n", "\\n") + "\n"
        for key, value in properties.items()
    )
    return "".join(rows)
