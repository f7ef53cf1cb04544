"""Schema ids that records carry, in the forms of the known serializers, and what they stand for."""

from __future__ import annotations

from contextlib import ExitStack, closing

from eomirror.config.schemas import RegistryEndpoint
from eomirror.registry.client import RegistryClient
from eomirror.verify.schemas import schema_ids, schema_outcome
from support.clusters.schema_registry import SchemaRegistry


def test_ids_before_the_data() -> None:
    """A zero byte and four bytes, in key and value; shorter data and other first bytes carry none."""
    assert list(schema_ids(b"\0\0\0\0\x07k", b"\0\0\x01\0\0")) == [7, 65_536]
    assert list(schema_ids(b"\0\0\0\7", b"\1\0\0\0\7")) == []
    assert list(schema_ids(None, b"")) == []


def test_ids_in_headers() -> None:
    """An id, or a GUID of 16 bytes behind a one; other headers, and other forms of these, carry none."""
    guid = bytes(range(16))
    headers = [
        ("__value_schema_id", b"\1" + guid),
        ("__key_schema_id", b"\0\0\0\0\7"),
        ("__value_schema_id", b"\1abc"),
        ("__value_schema_id", None),
        ("other", b"\0\0\0\0\7"),
    ]
    assert list(schema_ids(None, b"{}", headers)) == ["00010203-0405-0607-0809-0a0b0c0d0e0f", 7]


def test_what_an_id_stands_for_includes_its_references() -> None:
    """Equal text that refers to another schema has another meaning; an id of the target alone is unknown."""
    source, target = SchemaRegistry(), SchemaRegistry()
    uses = [{"name": "x", "subject": "base", "version": 1}]
    with ExitStack() as opened:
        clients = []
        for registry, base in ((source, '"int"'), (target, '"bytes"')):
            opened.callback(registry.close)
            registry.add("equal", '"float"')
            registry.add("base", base)
            registry.add("user", "{}", references=uses)
            made = RegistryClient(RegistryEndpoint((("url", registry.url),)), name="registry")
            clients.append(opened.enter_context(closing(made)))
        source.add("more", '"double"')
        assert [schema_outcome(one, *clients) for one in (1, 2, 3, 4, 5)] == [
            "equal", "differs", "differs", "missing", "unknown",
        ]  # fmt: skip
