"""A registry of other people: it serves as a source, and as a target it is refused by name."""

from __future__ import annotations

import json
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config.schemas import RegistryEndpoint, SchemaMirror
from eomirror.registry.client import RegistryClient
from eomirror.registry.mirror import RegistryMirror
from support.clusters.apicurio import apicurio
from support.clusters.schema_registry import SchemaRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# the archive has 158 MB, and starts in half a minute
pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of Apicurio's Confluent layer."""
    work: Path = tmp_path_factory.mktemp("apicurio")
    with apicurio(work) as address:
        yield address


@pytest.fixture
def ours() -> Iterator[SchemaRegistry]:
    """A registry with the published rules."""
    made = SchemaRegistry()
    yield made
    made.close()


def mirror(source: str, target: str, **settings: Any) -> RegistryMirror:
    ends = [RegistryEndpoint((("url", url),)) for url in (source, target)]
    given = SchemaMirror(source=ends[0], target=ends[1], **settings)
    return RegistryMirror(
        given,
        RegistryClient(given.source, name="source"),
        RegistryClient(given.target, name="target", context=given.context),
    )


def register(address: str, subject: str, **body: Any) -> int:
    """Registers as an application does."""
    request = urllib.request.Request(  # noqa: S310  of this machine
        f"{address}/subjects/{subject}/versions",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        method="POST",
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310  of this machine
        return int(json.loads(answer.read())["id"])


def record(*fields: str) -> str:
    """An Avro record with optional fields."""
    return json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": one, "type": ["null", "string"], "default": None} for one in fields],
        }
    )


def test_it_serves_as_a_source(stranger: str, ours: SchemaRegistry) -> None:
    """Its subjects, versions and ids arrive; ids are those that its clients write into records."""
    ids = [
        register(stranger, "orders-value", schema=record("a")),
        register(stranger, "orders-value", schema=record("a", "b")),
    ]
    ids.append(register(stranger, "other", schema=record("other")))
    with closing(mirror(stranger, ours.url, subjects=("orders-value", "other"))) as one:
        found = one.round()
        assert (found.state, found.subjects, found.versions) == ("mirrored", 2, 3), found
        assert one.round().state == "mirrored"
    shown = ours.shown()
    assert [shown["orders-value"][1][0], shown["orders-value"][2][0], shown["other"][1][0]] == ids


def test_it_is_refused_as_a_target(stranger: str, ours: SchemaRegistry) -> None:
    """It answers 200 to a registration with id and version, and keeps neither: the read-back says so."""
    register(stranger, "first", schema='"int"')
    ours.add("before", '"long"')
    for number in range(70):
        ours.add("before", record(f"f{number}"))
    ours.add("mine", record("mine"))
    with closing(mirror(ours.url, stranger, subjects=("mine",))) as one:
        found = one.round()
        assert found.state == "refused", found
        assert stranger in found.problem
        assert "does not keep ids and versions" in found.fix
        assert one._target.versions("mine") == []
