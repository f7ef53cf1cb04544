"""Configurations of other programs, given where ours is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror import load_config
from eomirror.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

STRIMZI = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: mm}
spec:
  clusters: [{alias: a, bootstrapServers: "a:9092"}]
  mirrors: [{sourceCluster: a, targetCluster: b}]
"""
CONNECTOR = (
    '{"name": "x", "config": {"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector"}}'
)


@pytest.mark.parametrize(
    ("name", "text", "message", "fix"),
    [
        ("mm.yaml", STRIMZI, "a Kubernetes resource, KafkaMirrorMaker2", "eomirror import FILE"),
        ("mm.yaml", f"---\n{STRIMZI}", "a Kubernetes resource, KafkaMirrorMaker2", "eomirror import FILE"),
        (
            "list.yaml",
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: kafka.strimzi.io/v1\n  kind: KafkaConnector\n",
            "a Kubernetes resource, KafkaConnector",
            "eomirror import FILE",
        ),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\n", "a Kubernetes resource, Pod", "`clusters:` and `links:`"),
        ("c.json", CONNECTOR, "a connector of Kafka Connect", "eomirror import FILE"),
        ("c.json", f"[{CONNECTOR}]", "a connector of Kafka Connect", "eomirror import FILE"),
        ("c.properties", "connector.class=x\nname=y", "a connector of Kafka Connect", "eomirror import FILE"),
        (
            "consumer.properties",
            "bootstrap.servers=x:1\ngroup.id=y",
            "`clusters` is missing",
            "eomirror import",
        ),
    ],
)
def test_a_file_of_another_program_is_refused_with_the_way_to_convert_it(
    tmp_path: Path, name: str, text: str, message: str, fix: str
) -> None:
    """One fault says whose file it is, in place of one for each key that eomirror does not know."""
    path = tmp_path / name
    path.write_text(text)

    with pytest.raises(ConfigError) as refused:
        load_config(path)

    (fault,) = refused.value.faults
    assert message in fault.message
    assert fix in fault.fix


def test_a_file_with_links_is_ours_whatever_else_it_has(tmp_path: Path) -> None:
    """A key of Kubernetes in our own file is an unknown key."""
    path = tmp_path / "mirror.yaml"
    path.write_text("kind: x\nclusters: {a: {bootstrap.servers: 'a:1'}}\nlinks: []\n")

    with pytest.raises(ConfigError, match="kind"):
        load_config(path)
