"""
Applications that are moved from one cluster to another without a restart, and the address that moves them.

An application has a consumer and a producer.  It tells what it reads, what is acknowledged, and which errors it sees; a
test asks how it fares at each stage of a failover.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, Producer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Address", "Application", "JavaApplication", "LibrdkafkaApplication", "seconds_until"]

_CHUNK = 65_536


class Address:
    """
    A name that leads to one broker and later to another, as a DNS entry does: a port that forwards connections.

    Args:
        upstream: Port of the broker.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Listen no more."""
        self._server.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self.upstream), timeout=5)
                except OSError:
                    client.close()
                    continue
                for one, other in ((client, broker), (broker, client)):
                    threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        one.settimeout(None)
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                other.sendall(data)
        for each in (one, other):
            each.close()


class Application(Protocol):
    """A consumer and a producer."""

    name: str

    def poll(self) -> list[str]:
        """Values read within a moment; raises what the client raises."""

    def send(self, value: str) -> str:
        """Writes a record; returns an empty text, or the error, within some seconds."""

    def close(self) -> None:
        """Ends both."""

    def restart(self) -> None:
        """Creates both anew; after `close`."""


class JavaApplication:
    """
    ``KafkaConsumer`` and ``KafkaProducer`` with the defaults of their version.

    Args:
        gateway: A JVM with the jars of that version.
        name: Of the client, such as ``Java 4.3``.
        settings: Settings of both clients that are not the defaults.
    """

    def __init__(
        self, gateway: Any, name: str, servers: str, topic: str, group: str,
        *, settings: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self._jvm, self._topic = gateway.jvm, topic
        self._servers, self._group, self._more = servers, group, dict(settings or {})
        self.restart()

    def restart(self) -> None:
        """Creates both clients anew, as a start of the application does."""
        kafka = self._jvm.org.apache.kafka
        text = "org.apache.kafka.common.serialization.String"
        self._consumer = kafka.clients.consumer.KafkaConsumer(
            self._settings(
                {
                    "bootstrap.servers": self._servers, "group.id": self._group, "auto.offset.reset": "earliest",
                    "key.deserializer": f"{text}Deserializer", "value.deserializer": f"{text}Deserializer",
                    "isolation.level": "read_committed", "auto.commit.interval.ms": "200", **self._more,
                }
            )
        )  # fmt: skip
        self._consumer.subscribe(self._jvm.java.util.Collections.singletonList(self._topic))
        self._producer = kafka.clients.producer.KafkaProducer(
            self._settings(
                {
                    "bootstrap.servers": self._servers, "key.serializer": f"{text}Serializer",
                    "value.serializer": f"{text}Serializer", "max.block.ms": "5000", **self._more,
                }
            )
        )  # fmt: skip

    def poll(self) -> list[str]:
        found = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(300))
        records, values = found.iterator(), []
        while records.hasNext():
            values.append(str(records.next().value()))
        return values

    def send(self, value: str, *, seconds: int = 6) -> str:
        record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(self._topic, value)
        try:
            self._producer.send(record).get(seconds, self._jvm.java.util.concurrent.TimeUnit.SECONDS)
        except Exception as error:  # noqa: BLE001  whatever Java throws is what is asked for
            return str(getattr(error, "java_exception", error)).splitlines()[0][:200]
        return ""

    def close(self) -> None:
        zero = self._jvm.java.time.Duration.ZERO
        self._producer.close(zero)
        self._consumer.close(zero)

    def _settings(self, values: dict[str, str]) -> Any:
        found = self._jvm.java.util.Properties()
        for name, value in values.items():
            found.setProperty(name, value)
        return found


class LibrdkafkaApplication:
    """librdkafka's clients with their defaults."""

    def __init__(self, version: str, servers: str, topic: str, group: str) -> None:
        self.name = f"librdkafka {version}"
        self._servers, self._topic, self._group = servers, topic, group
        self.restart()

    def restart(self) -> None:
        """Creates both clients anew, as a start of the application does."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": self._servers, "group.id": self._group, "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200, "log_level": 0,
            }
        )  # fmt: skip
        self._consumer.subscribe([self._topic])
        self._producer = Producer({"bootstrap.servers": self._servers, "log_level": 0})

    def poll(self) -> list[str]:
        return [
            (message.value() or b"").decode()
            for message in self._consumer.consume(100, 0.3)
            if message.error() is None
        ]

    def send(self, value: str) -> str:
        errors: list[str] = []
        self._producer.produce(
            self._topic, value.encode(), on_delivery=lambda error, _: errors.append(str(error or ""))
        )
        self._producer.flush(6)
        return errors[0] if errors else "not acknowledged within 6 s"

    def close(self) -> None:
        self._producer.purge()
        self._consumer.close()


def seconds_until(holds: Callable[[], bool], patience: float) -> float | None:
    """Seconds until something holds; None if it does not within that time."""
    began = time.monotonic()
    while time.monotonic() - began < patience:
        if holds():
            return time.monotonic() - began
    return None
