"""Class paths of Java clients that no broker of ours has: an older KafkaConsumer, and Kafka Streams."""

from __future__ import annotations

import os
from pathlib import Path

from eomirror.localkafka import jars

__all__ = ["old_clients", "streams"]

_OLD = jars.parse_lock(
    "org.apache.kafka:kafka-clients:3.4.1 9d0a9058c8ede79db6e54ae378ed16fe8d1bead2894635a4aa6aa0b7981668c6"
)
_STREAMS = jars.parse_lock(
    "org.apache.kafka:kafka-streams:4.3.1 bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b"
)
# what a client needs besides its own jar
_LIBRARIES = ("slf4j-api-", "lz4-java-", "snappy-java-", "zstd-jni-")


def old_clients() -> str:
    """Class path of the clients of Kafka 3.4, which never rebootstrap."""
    libraries = [path for path in _broker().split(os.pathsep) if Path(path).name.startswith(_LIBRARIES)]
    return os.pathsep.join([str(_folder(_OLD) / _OLD[0].file_name), *libraries])


def streams() -> str:
    """Class path of Kafka Streams 4.3; without RocksDB, so stores are in memory."""
    return os.pathsep.join([_broker(), str(_folder(_STREAMS) / _STREAMS[0].file_name)])


def _broker() -> str:
    return jars.class_path("4.3")


def _folder(wanted: tuple[jars.Jar, ...]) -> Path:
    """The folder of jars beside those of the brokers; fetches them once."""
    (jar,) = wanted
    name = f"{jar.artifact}-{jar.version}"
    return jars.jar_folder(name, name, wanted)
