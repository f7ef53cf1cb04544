"""Options of a sink."""

from __future__ import annotations

import pickle

import pytest

from eomirror.dataframe.settings import SinkSettings
from eomirror.errors import UsageError

SERVERS = {"kafka.bootstrap.servers": "here:1"}


def test_options_of_the_connector_and_ours_are_read() -> None:
    """Names in any case, as Spark hands them over."""
    given = {
        **SERVERS,
        "Topic": "orders",
        "GROUPID": "g",
        "sourceColumns": "t, p,o",
        "kafka.transaction.timeout.ms": "90000",
        "kafka.compression.type": "zstd",
        "kafka.security.protocol": "PLAINTEXT",
        "checkpointLocation": "/c",
        "queryName": "q",
    }
    settings = SinkSettings.parse("out", given)
    assert (settings.topic, settings.group, settings.source_columns) == ("orders", "g", ("t", "p", "o"))
    assert (settings.timeout_ms, settings.codec, settings.attempts) == (90_000, "zstd", 3)
    assert settings.transactional_id == "eomirror.sink.out"
    assert settings.cluster.properties["security.protocol"] == "PLAINTEXT"
    assert "transaction.timeout.ms" not in settings.cluster.properties
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301  our own bytes


def test_logins_in_javas_form_are_converted() -> None:
    """sasl.jaas.config becomes user and password, and the password is hidden."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="planted";'
    given = {**SERVERS, "kafka.sasl.jaas.config": jaas, "kafka.sasl.mechanism": "PLAIN"}
    cluster = SinkSettings.parse("out", given).cluster
    assert cluster.properties["sasl.username"] == "u"
    assert "planted" not in repr(cluster)
    assert cluster.properties["sasl.password"].reveal() == "planted"  # type: ignore[union-attr]
    assert "sasl.jaas.config" not in cluster.properties


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("a b", SERVERS, "no name of a sink"),
        ("a", {}, "no cluster is named"),
        ("a", {**SERVERS, "toppic": "x"}, "option toppic is unknown\n  fix: did you mean topic"),
        ("a", {**SERVERS, "newQeury": "append"}, "did you mean newQuery"),
        ("a", {**SERVERS, "path": "orders"}, "option path is not supported"),
        ("a", {**SERVERS, "kafka.group.id": "g"}, "groupId"),
        ("a", {**SERVERS, "kafka.acks": "1"}, "option kafka.acks"),
        ("a", {**SERVERS, "kafka.enable.idempotence": "false"}, "option kafka.enable.idempotence"),
        ("a", {**SERVERS, "kafka.sasl.jaas.config": "none"}, "option kafka.sasl.jaas.config"),
        ("a", {**SERVERS, "newQuery": "maybe"}, "newQuery is maybe"),
        ("a", {**SERVERS, "sourceColumns": "a,b"}, "names 2 columns"),
        ("a", {**SERVERS, "attempts": "0"}, "whole number from 1"),
        ("a", {**SERVERS, "kafka.compression.type": "brotli"}, "one of none, gzip"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, options: dict[str, str], words: str) -> None:
    """With the option and a value that it may have."""
    with pytest.raises(UsageError, match=words):
        SinkSettings.parse(name, options)
