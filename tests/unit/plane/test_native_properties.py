"""Every property of librdkafka is honoured by the native plane, does no harm, or is named as a reason against it."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka
import pytest

from eomirror._native import PlaneReader
from eomirror.errors import ClusterError

UNKNOWN = "it does not know this property"


def reasons(name: str, value: str = "x") -> list[str]:
    """Why the native plane cannot serve with this property; a value that no client takes is no such reason."""
    try:
        refused = PlaneReader.unsupported_properties({"bootstrap.servers": "host:1", name: value})
    except ClusterError:
        return []
    return [reason for refusal, reason in refused if refusal == name]


def librdkafka_names(page: Path) -> list[str]:
    """The library's own list, which is its CONFIGURATION.md."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka*"))
    if not libraries:
        pytest.skip("this build of confluent-kafka does not bundle librdkafka")
    library = ctypes.CDLL(str(libraries[0]))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fopen(str(page).encode(), b"w"))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    rows = [line.split("|") for line in page.read_text().splitlines()]
    return [row[0].strip() for row in rows if len(row) > 5 and row[1].strip() in ("*", "C", "P")]


def test_no_property_of_librdkafka_is_overlooked(tmp_path: Path) -> None:
    """A property that a new release brings has to be put somewhere before this passes again."""
    names = librdkafka_names(tmp_path / "properties")
    assert len(names) > 150
    assert [name for name in names if UNKNOWN in reasons(name)] == []


def test_an_unknown_property_is_a_reason() -> None:
    """It may be one of a newer librdkafka, which the client plane would honour."""
    assert reasons("made.up") == [UNKNOWN]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.keystore.location", "PKCS#12"),
        ("ssl.key.password", "encrypted"),
        ("ssl.crl.location", "revocation"),
        ("plugin.library.paths", "foreign code"),
        ("error_cb", "program"),
    ],
)
def test_what_only_librdkafka_can_do_is_named(name: str, reason: str) -> None:
    """`plane: auto` shows these words."""
    (said,) = reasons(name)
    assert reason in said
