"""Suites run against the Kafka that a run asks for: each cluster of a fault test has the release of its side."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.links.plane import SOURCE_VARIABLE, TARGET_VARIABLE, kafka_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_TESTS = Path(__file__).parents[2]


def clusters(path: Path) -> Iterator[ast.Call]:
    """The cluster specifications in a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ClusterSpec":
            yield node


def test_the_clusters_of_the_rig_have_the_release_of_their_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--target-kafka 3.9`` is about the target behind the proxy as well."""
    monkeypatch.setenv(SOURCE_VARIABLE, "3.3")
    monkeypatch.setenv(TARGET_VARIABLE, "3.9")
    assert [kafka_of(name) for name in ("east", "rig-source", "west", "rig-target")] == [
        "3.3", "3.3", "3.9", "3.9",
    ]  # fmt: skip


@pytest.mark.parametrize("path", sorted(_TESTS.glob("faults/test_*.py")), ids=lambda path: path.stem)
def test_no_fault_is_injected_into_another_release(path: Path) -> None:
    """A cluster without a release is of the newest one, whatever the head of the run says."""
    for call in clusters(path):
        assert "kafka_version" in {keyword.arg for keyword in call.keywords}, f"{path.name}:{call.lineno}"
