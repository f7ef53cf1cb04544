"""What librdkafka says is shown without what it repeats of `sasl.oauthbearer.config`; nothing is connected to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import structlog
from confluent_kafka import KafkaError, Producer

from eomirror.config import load_config
from eomirror.errors import MirrorError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.errors import said, to_mirror_error, without_values
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGIN = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "sasl_plaintext",
    "sasl.mechanism": "OAUTHBEARER",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
}
# of each, librdkafka's parser takes the beginning and repeats the rest
VALUES = [
    "principal=ana client_secret=hunter2",
    "hunter2",
    "principal=ana lifeSeconds=hunter2",
]


def cluster(properties: Mapping[str, str]) -> Any:
    links = [{"source": "east", "target": "west", "topics": ["t"]}]
    east = {"bootstrap.servers": "127.0.0.1:2"}
    return load_config({"clusters": {"east": east, "west": dict(properties)}, "links": links}).clusters[
        "west"
    ]


@pytest.mark.parametrize("value", VALUES)
def test_an_error_about_tokens_does_not_show_their_configuration(value: str) -> None:
    """It comes through a callback, before the request that waits for it fails: reason, text, and log are clean."""
    admin = ClusterAdmin(cluster({**LOGIN, "sasl.oauthbearer.config": value}), client_id="test", timeout=1.5)
    try:
        with structlog.testing.capture_logs() as logged, pytest.raises(MirrorError) as raised:
            admin.describe_topics(["t"])
    finally:
        admin.close()
    text = f"{raised.value} {raised.value!r} {logged}"
    assert "hunter2" not in text
    assert "sasl.oauthbearer.config" in str(raised.value), "the property is named"


@pytest.mark.parametrize("value", VALUES)
def test_librdkafka_still_says_what_is_taken_out(value: str) -> None:
    """Else the tests above would show nothing; code that meets its bare text calls `said`."""
    heard: list[KafkaError] = []
    properties = {**LOGIN, "sasl.oauthbearer.config": value, "error_cb": heard.append, "log_level": 0}
    producer = Producer(properties)
    wait_for(lambda: producer.poll(0.1) and heard)
    error = next(one for one in heard if one.code() == KafkaError._AUTHENTICATION)
    assert "hunter2" in error.str()
    assert "hunter2" not in said(error)
    assert "hunter2" not in str(to_mirror_error(error, doing="", cluster="west"))


@pytest.mark.parametrize(
    "text",
    [
        "Failed to acquire SASL OAUTHBEARER token: Invalid sasl.oauthbearer.config: no principal=<value>",
        "Invalid sasl.oauthbearer.config: multiple 'principal=' entries",
        "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused",
        "",
    ],
)
def test_words_without_a_value_stay_as_they_are(text: str) -> None:
    """They say what is to be corrected."""
    assert without_values(text) == text


@pytest.mark.parametrize(
    "count",
    ["", " (after 12ms in state CONNECT)", " (after 0ms in state UP, 236 identical error(s) suppressed)"],
)
def test_two_processes_that_see_one_fault_state_it_in_the_same_words(count: str) -> None:
    fault = "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused"
    assert said(KafkaError(KafkaError._TRANSPORT, fault + count)) == fault
