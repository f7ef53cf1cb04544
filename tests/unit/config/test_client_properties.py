"""librdkafka itself is asked about properties, without a broker and without a trace of secrets."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka
import pytest

from eomirror.config import inspect_config
from eomirror.config.clients import CONSUMER_ONLY, PRODUCER_ONLY
from eomirror.kafka.client_check import property_faults

if TYPE_CHECKING:
    from eomirror.errors import Fault


def faults_of(**properties: object) -> list[Fault]:
    """What librdkafka says against a cluster with these properties."""
    found = inspect_config(
        {
            "clusters": {"a": {"bootstrap.servers": "h:1", **properties}, "b": {"bootstrap.servers": "h:2"}},
            "links": [{"source": "a", "target": "b", "topics": ["t"]}],
        }
    )
    assert found.faults == ()
    return property_faults(found.clusters, found.lines)


def test_ordinary_properties_pass() -> None:
    """A realistic cluster raises no objection, and nothing connects."""
    assert (
        faults_of(
            **{
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "u",
                "sasl.password": "p",
                "linger.ms": 5,
                "fetch.min.bytes": 1,
                "compression.type": "zstd",
                "consumer": {"client.rack": "r"},
            }
        )
        == []
    )


@pytest.mark.parametrize(
    ("properties", "path", "text"),
    [
        ({"no.such.thing": 1}, "clusters.a.no.such.thing", "does not know"),
        ({"consumer": {"no.such.thing": 1}}, "clusters.a.consumer.no.such.thing", "does not know"),
        ({"linger.ms": "soon"}, "clusters.a.linger.ms", "does not take"),
        ({"compression.type": "rar"}, "clusters.a.compression.type", "does not take"),
        ({"fetch.min.bytes": 0}, "clusters.a.fetch.min.bytes", "outside allowed range"),
        ({"max.in.flight": 20}, "clusters.a.max.in.flight", "max.in.flight"),
        (
            {"security.protocol": "ssl", "ssl.ca.location": "/no/ca.pem"},
            "clusters.a.ssl.ca.location",
            "not exist",
        ),
    ],
)
def test_a_property_that_librdkafka_refuses_is_a_fault(
    properties: dict[str, object], path: str, text: str
) -> None:
    """Unknown names, wrong values, ranges and combinations are told before anything runs."""
    found = faults_of(**properties)
    assert [fault.path for fault in found] == [path]
    assert text in found[0].message


@pytest.mark.parametrize("key", ["ssl.ca.location", "ssl.certificate.location", "ssl.keystore.location"])
@pytest.mark.parametrize("role", ["", "consumer"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, key: str, role: str) -> None:
    """Not by OpenSSL's words; neither is a file that is there, but is no certificate, called missing."""
    missing = tmp_path / "such.pem"
    given: dict[str, object] = {key: str(missing)}
    (found,) = faults_of(**{"security.protocol": "ssl"} | ({role: given} if role else given))
    assert found.path == ".".join(["clusters.a", *([role] if role else []), key])
    assert found.message == f"{missing} does not exist"
    missing.write_text("no certificate")
    (found,) = faults_of(**{"security.protocol": "ssl"} | ({role: given} if role else given))
    assert "does not exist" not in found.message


def test_a_file_behind_a_reference_is_looked_for_and_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path may be a secret; one that is there is not called missing."""
    missing = tmp_path / "such.pem"
    monkeypatch.setenv("CA_FILE", str(missing))
    given: dict[str, object] = {"security.protocol": "ssl", "ssl.ca.location": "${env:CA_FILE}"}
    (found,) = faults_of(**given)
    assert (found.path, found.message) == (
        "clusters.a.ssl.ca.location", "the file of this reference does not exist",
    )  # fmt: skip
    assert str(missing) not in repr(found)
    missing.write_text("no certificate")
    (found,) = faults_of(**given)
    assert "does not exist" not in found.message


@pytest.mark.parametrize("key", ["ssl.key.pem", "ssl.key.password", "sasl.oauthbearer.method"])
def test_a_refused_secret_is_not_repeated(key: str) -> None:
    """A broken key must not be quoted back."""
    found = faults_of(**{"security.protocol": "ssl", "ssl.key.pem": "x", key: "canary-Zq"})
    assert found
    assert "canary-Zq" not in repr(found)


def test_properties_are_routed_as_librdkafka_sorts_them(tmp_path: Path) -> None:
    """Our two lists are the library's own columns; a new release shows up here."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    libraries = sorted(folder.glob("librdkafka*"))
    if not libraries:
        pytest.skip("this build of confluent-kafka does not bundle librdkafka")
    library = ctypes.CDLL(str(libraries[0]))
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    page = tmp_path / "properties"
    stream = ctypes.c_void_p(libc.fopen(str(page).encode(), b"w"))
    library.rd_kafka_conf_properties_show(stream)
    libc.fclose(stream)
    roles: dict[str, set[str]] = {"C": set(), "P": set()}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        # callbacks are for programs, and refused before they could be routed
        if len(cells) > 3 and cells[1] in roles and not cells[0].endswith("_cb"):
            roles[cells[1]].add(cells[0])
    assert roles["C"] == CONSUMER_ONLY
    # "compression.codec" and the like are global and per topic; both are the producer's
    assert roles["P"] == PRODUCER_ONLY
