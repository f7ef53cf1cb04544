"""Schema ids that records carry, in the forms of the known serializers."""

from __future__ import annotations

from eomirror.verify.schemas import schema_ids


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
