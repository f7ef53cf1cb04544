"""Specification of an embedded cluster: names and values only, checked when they are made."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from eomirror.errors import UsageError
from eomirror.localkafka.jars import DEFAULT_KAFKA, exact_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["ADMIN", "CLIENT", "CONTROLLER", "INTERNAL", "ClusterSpec", "Listener", "Security"]

Security = Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]

ADMIN = "admin"
"""The SCRAM user that every cluster with SASL has; a super user where rights are checked."""

CLIENT, INTERNAL, CONTROLLER = "CLIENT", "INTERNAL", "CONTROLLER"
"""Listeners of every broker: for applications, between brokers (plaintext), and of the quorum; or of ZooKeeper."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LISTENER_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_FIRST_WITH_KRAFT, _FIRST_WITH_LOG4J2 = 3, 4
_HEAP = re.compile(r"[1-9][0-9]*[kmg]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Listener:
    """
    One more listener of every broker.

    Attributes:
        name: Upper case; not one of the three that every broker has.
        security: How clients talk to it.
        ports: Port of each broker, in the order of brokers; empty for free ones.
        advertised_ports: What brokers tell clients to connect to, in the same order; empty for the
            listener's own ports.  A test puts a proxy there.
    """

    name: str
    security: Security = "plaintext"
    ports: tuple[int, ...] = ()
    advertised_ports: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """
    One embedded cluster.

    Attributes:
        name: Letters, digits, ``_`` and ``-``: also good as an alias in a configuration.
        brokers: How many processes; each is broker and controller.
        kafka_version: A line of `eomirror.localkafka.jars.KAFKA_VERSIONS`, such as ``4.3``.
        heap: Of each broker, in Java's notation.
        data_dir: Where everything is written; None for a temporary folder that goes with the cluster.
            A folder that holds a cluster already is started as it is.
        port: Of the first broker's CLIENT listener, the others count up from it; 0 for free ports.
        ports: Of the CLIENT listener of each broker; wins over ``port``.
        properties: Broker properties that win over ours.
        features: Feature levels set when the storage is formatted, such as ``{"transaction.version": 1}``.
        security: Of the CLIENT listener.
        extra_listeners: Listeners besides CLIENT.
        users: SCRAM-SHA-512 users and their passwords, besides `ADMIN` (which may be here too, to choose
            its password).
        authorizer: Check rights (ACLs).  `ADMIN` and the INTERNAL listener may do everything, others nothing
            until it is granted.
        classes: Jars and folders that follow Kafka's own on the class path, such as with a policy that ``properties``
            name.

    Raises:
        UsageError: A value that cannot work.
    """

    name: str
    brokers: int = 1
    kafka_version: str = DEFAULT_KAFKA
    heap: str = "512m"
    data_dir: Path | None = None
    port: int = 0
    ports: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    security: Security = "plaintext"
    extra_listeners: tuple[Listener, ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    authorizer: bool = False
    classes: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"cluster name {self.name!r} is no alias",
                fix="use letters, digits, '_' and '-', at most 63 of them",
            )
        if self.brokers < 1:
            raise UsageError(f"cluster {self.name}: {self.brokers} brokers", fix="use at least 1 broker")
        if not _HEAP.fullmatch(self.heap):
            raise UsageError(
                f"cluster {self.name}: heap {self.heap!r}", fix="write it as Java does, such as 512m or 1g"
            )
        if self.port and not 0 < self.port <= 65_536 - self.brokers:
            raise UsageError(f"cluster {self.name}: port {self.port}", fix="use a port between 1 and 65535")
        exact_version(self.kafka_version)
        if self.keeps_metadata_in_zookeeper and (self.has_sasl or self.features):
            raise UsageError(
                f"cluster {self.name}: Kafka {self.kafka_version} cannot be started with SASL or features here",
                fix="use Kafka 3.9 or newer",
            )
        for listener in self.extra_listeners:
            self._check_name(listener)
        for listener in self.listeners:
            self._check_ports(listener)
        for word in (self.security, *(listener.security for listener in self.extra_listeners)):
            if word not in get_args(Security):
                raise UsageError(
                    f"cluster {self.name}: security {word!r}",
                    fix=f"use one of {', '.join(get_args(Security))}",
                )

    def _check_name(self, listener: Listener) -> None:
        if not _LISTENER_NAME.fullmatch(listener.name) or listener.name in (CLIENT, INTERNAL, CONTROLLER):
            raise UsageError(
                f"cluster {self.name}: listener name {listener.name!r}",
                fix=f"use upper case letters and digits, and none of {CLIENT}, {INTERNAL}, {CONTROLLER}",
            )

    def _check_ports(self, listener: Listener) -> None:
        for ports in (listener.ports, listener.advertised_ports):
            if len(ports) not in (0, self.brokers):
                raise UsageError(
                    f"cluster {self.name}: listener {listener.name} has {len(ports)} ports for {self.brokers} brokers",
                    fix="give one port for each broker, or none",
                )

    @property
    def before_kafka_4(self) -> bool:
        """True if the brokers log with log4j 1 and know no property of Kafka 4."""
        return int(self.kafka_version.partition(".")[0]) < _FIRST_WITH_LOG4J2

    @property
    def keeps_metadata_in_zookeeper(self) -> bool:
        """True before Kafka 3: KRaft of those releases has no transactions."""
        return int(self.kafka_version.partition(".")[0]) < _FIRST_WITH_KRAFT

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """All listeners for clients: CLIENT first, then the extra ones."""
        counted = tuple(range(self.port, self.port + self.brokers)) if self.port else ()
        return (Listener(CLIENT, self.security, self.ports or counted), *self.extra_listeners)

    @property
    def has_tls(self) -> bool:
        """Returns true if a listener needs a certificate."""
        return any(listener.security.endswith("ssl") for listener in self.listeners)

    @property
    def has_sasl(self) -> bool:
        """Returns true if a listener needs users."""
        return any(listener.security.startswith("sasl") for listener in self.listeners)
