"""The library's surface, as far as it can be seen without Spark and Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import eomirror
from eomirror import Mirror, SourcePartition, UsageError
from eomirror.config import Cluster, Config, Link
from eomirror.errors import AuthorizationError, ClusterError, HandshakeError, UnreachableError

if TYPE_CHECKING:
    from eomirror.errors import MirrorError


def config() -> Config:
    """Two links between two clusters."""
    links = [Link(name=name, source="a", target="b", topics=(".*",)) for name in ("one", "two")]
    return Config({alias: Cluster(alias, {}) for alias in "ab"}, tuple(links))


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`import eomirror` is free: Spark, Kafka client and core wait until a name needs them."""
    program = (
        "import sys, json, eomirror, eomirror.mirror;"
        "print(json.dumps([n for n in ('pyspark','confluent_kafka','eomirror._core','rich') if n in sys.modules]))"
    )
    python = str(Path(eomirror.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, env={"PYTHONPATH": python}
    )
    assert json.loads(done.stdout) == []


def test_every_exported_name_exists() -> None:
    """What __all__ promises can be imported."""
    assert all(getattr(eomirror, name) is not None for name in eomirror.__all__)
    with pytest.raises(AttributeError):
        eomirror.no_such_name  # noqa: B018  the access is the test


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"links": ["three"]}, "three"),
        ({"adopt": {SourcePartition("t", 0): 5}}, "adopted"),
        ({"spark": object(), "master": "local[2]"}, "given Spark context"),
        ({"spark": object(), "spark_conf": {"a": "b"}}, "given Spark context"),
    ],
)
def test_contradicting_options_are_refused(options: dict[str, Any], word: str) -> None:
    """Before anything is touched, with what to do."""
    with pytest.raises(UsageError, match=word) as caught:
        Mirror(config(), **options)
    assert caught.value.fix


def test_an_unknown_end_is_refused() -> None:
    """A typo in ``until`` must not run for ever."""
    with Mirror(config()) as mirror, pytest.raises(UsageError, match="caughtup"):
        mirror.run(until="caughtup")


@pytest.mark.parametrize(
    ("new", "old", "taken"),
    [
        (None, None, True),
        # it may be what the change mends
        (UnreachableError("away"), UnreachableError("away"), True),
        (UnreachableError("no such port"), None, False),
        (AuthorizationError("the credentials are refused"), AuthorizationError("these too"), False),
        (HandshakeError("the certificate is not trusted"), UnreachableError("away"), False),
    ],
)
def test_changed_properties_that_their_cluster_refuses_are_not_taken(
    monkeypatch: pytest.MonkeyPatch, new: MirrorError | None, old: MirrorError | None, *, taken: bool
) -> None:
    """The links of a running mirror would end, or wait, and the mirror with them."""
    asked: list[str] = []

    def identify(cluster: Cluster, *, client_id: str) -> str:
        assert client_id
        asked.append(cluster.alias)
        error = new if cluster.properties else old
        if error is not None:
            raise error
        return "id"

    monkeypatch.setattr("eomirror.kafka.reachability.identify", identify)
    before = config()
    mirror, changes = Mirror(before), []
    driver: Any = SimpleNamespace(
        reconfigure=lambda _links, found, **_: changes.append(found), refuse_configuration=lambda _: None
    )
    after = Config(before.clusters | {"b": Cluster("b", {"sasl.password": "new"})}, before.links)
    mirror.reconfigure(before)
    assert asked == [], "it does not run yet"
    mirror._driver = driver
    if taken:
        mirror.reconfigure(after)
    else:
        with pytest.raises(ClusterError):
            mirror.reconfigure(after)
    assert (len(changes), mirror._config is after) == (int(taken), taken)
    asked.clear()
    mirror.reconfigure(after if taken else before)
    assert asked == [], "nothing has changed"
