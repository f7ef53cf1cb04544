"""Spark's own Kafka connector: its jars, pinned as those of Kafka are."""

from __future__ import annotations

from pathlib import Path

from eomirror.localkafka.jars import jar_folder, parse_lock
from eomirror.localkafka.progress import OnProgress, quiet

__all__ = ["CONNECTOR_RELEASE", "connector_jars"]

#: Release of the connector: the newest on Maven Central, where that of Spark 4.3 is missing.
CONNECTOR_RELEASE = "4.2.0"
_LOCK = Path(__file__).with_name("spark_connector.lock")


def connector_jars(*, on_progress: OnProgress = quiet) -> str:
    """
    Returns the jars for the setting ``spark.jars``; fetches them if the cache does not hold them yet.

    Raises:
        MirrorError: No Java, no network, or a jar that is not the pinned one.
    """
    jars = parse_lock(_LOCK.read_text("utf-8"))
    title = f"Spark's Kafka connector {CONNECTOR_RELEASE}"
    folder = jar_folder(f"spark-connector-{CONNECTOR_RELEASE}", title, jars, on_progress=on_progress)
    return ",".join(str(folder / jar.file_name) for jar in jars)
