"""MirrorMaker 2's own client, RemoteClusterUtils, in a JVM of its own: what a Java consumer is told."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from eomirror.jvm import find_java
from eomirror.localkafka import jars

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JavaClient", "java_client", "java_gateway"]


class JavaClient:
    """
    ``RemoteClusterUtils.translateOffsets`` (KIP-382, by pattern KIP-1239); it always reads uncommitted.

    Args:
        gateway: The JVM.
    """

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm

    def translate(
        self, properties: Mapping[str, Any], alias: str, pattern: str
    ) -> dict[str, dict[tuple[str, int], int]]:
        """By group: where each goes on on the cluster whose properties these are."""
        settings = {"bootstrap.servers": properties["bootstrap.servers"]}
        found = self._jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils.translateOffsets(
            settings,
            alias,
            self._jvm.java.util.regex.Pattern.compile(pattern),
            self._jvm.java.time.Duration.ofSeconds(30),
        )
        return {
            str(group): {
                (str(where.topic()), int(where.partition())): int(offsets[where].offset())
                for where in offsets
            }
            for group, offsets in found.items()
        }


@contextmanager
def java_client() -> Iterator[JavaClient]:
    """MirrorMaker 2's client while the block runs."""
    with java_gateway() as gateway:
        yield JavaClient(gateway)


@contextmanager
def java_gateway(version: str = "4.3", *, class_path: str = "") -> Iterator[Any]:
    """
    A JVM with the Kafka jars while the block runs; py4j comes with Spark, so that nothing is compiled.

    Args:
        version: Of Kafka, such as ``3.9``.
        class_path: Other jars in place of those of a version.
    """
    # py4j writes what the JVM prints to a file object; the DEVNULL of subprocess is a number
    path = class_path or jars.class_path(version)
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, _launched(path, nowhere) as gateway:
        yield gateway


@contextmanager
def _launched(class_path: str, output: Any) -> Iterator[Any]:
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(bridge),
        classpath=class_path,
        java_path=str(find_java()),
        javaopts=["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        die_on_exit=True,
        redirect_stdout=output,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)
