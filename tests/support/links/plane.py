"""Plane and clusters of the mirrors of tests: one suite serves all (``pytest --plane native --target-kafka 3.9``)."""

from __future__ import annotations

import os

from eomirror.localkafka.jars import DEFAULT_KAFKA

__all__ = ["PLANES", "SOURCE_VARIABLE", "TARGET_VARIABLE", "VARIABLE", "kafka_of", "plane_under_test"]

PLANES = ("client", "native")
# also for tests that start programs, and for a whole run: EOMIRROR_TEST_PLANE=native just faults
VARIABLE = "EOMIRROR_TEST_PLANE"
#: Kafka of the clusters that links write to; those before 4.0 have transactions of protocol V1.
TARGET_VARIABLE = "EOMIRROR_TEST_TARGET_KAFKA"
#: Kafka of the clusters that links read from.
SOURCE_VARIABLE = "EOMIRROR_TEST_SOURCE_KAFKA"
_VARIABLES = {
    "east": SOURCE_VARIABLE, "rig-source": SOURCE_VARIABLE, "west": TARGET_VARIABLE, "rig-target": TARGET_VARIABLE,
}  # fmt: skip


def plane_under_test() -> str:
    """``client``, unless this run asks for ``native``."""
    return os.environ.get(VARIABLE, PLANES[0])


def kafka_of(cluster: str) -> str:
    """The Kafka of a cluster of this name, or with its part: links read from ``east`` and write to ``west``."""
    return os.environ.get(_VARIABLES.get(cluster, ""), DEFAULT_KAFKA)
