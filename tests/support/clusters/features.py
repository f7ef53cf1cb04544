"""Feature levels of a cluster, by Kafka's own tool: librdkafka's admin client has no call for them (KIP-584)."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from eomirror.localkafka import jars

if TYPE_CHECKING:
    from eomirror.localkafka.cluster import LocalCluster

__all__ = ["TRANSACTIONS", "finalize_feature", "finalize_release", "finalized_feature"]

TRANSACTIONS = "transaction.version"


def finalized_feature(cluster: LocalCluster, feature: str) -> int:
    """Level of a feature."""
    lines = _command(cluster, "describe").splitlines()
    line = next(line for line in lines if line.split()[1:2] == [feature])
    return int(line.split("FinalizedVersionLevel:")[1].split()[0])


def finalize_feature(cluster: LocalCluster, feature: str, level: int) -> None:
    """Raise or lower a feature to a level."""
    verb = "upgrade" if level > finalized_feature(cluster, feature) else "downgrade"
    _command(cluster, verb, "--feature", f"{feature}={level}")


def finalize_release(cluster: LocalCluster, release: str) -> None:
    """Raise all features to those of a release, such as ``4.3``."""
    _command(cluster, "upgrade", "--release-version", release)


def _command(cluster: LocalCluster, *arguments: str) -> str:
    command = ["java", "-cp", jars.class_path(), "org.apache.kafka.tools.FeatureCommand"]
    command += ["--bootstrap-server", cluster.bootstrap_servers, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout
