"""Options of the source: what is taken, and what is refused with its name."""

from __future__ import annotations

import json

import pytest

from eomirror.config.model import Cluster, FrozenMapping
from eomirror.config.secret import Secret
from eomirror.dataframe.options import SourceOptions, kafka_cluster, source_schema
from eomirror.dataframe.query import source_options
from eomirror.errors import UsageError
from eomirror.types import SourcePartition

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders, pay"}


def parse(*, streaming: bool = True, **more: str) -> SourceOptions:
    return SourceOptions.parse({**BASE, **more}, streaming=streaming)


def test_defaults_are_those_of_sparks_connector() -> None:
    """A job that changes its format keeps its first and last offsets."""
    assert (parse().start.at, parse(streaming=False).start.at, parse(streaming=False).end.at) == (
        "latest", "earliest", "latest",
    )  # fmt: skip
    assert parse().topics == ("orders", "pay")
    assert parse().fail_on_data_loss


def test_names_have_no_case_and_times_come_first() -> None:
    """Spark compares option names without case; a time counts more than offsets."""
    found = parse(STARTINGOFFSETS="earliest", startingtimestamp="1700000000000")
    assert found.start.at == 1_700_000_000_000


def test_offsets_of_each_partition() -> None:
    """-1 and -2 are the end and the beginning, as in Spark."""
    found = parse(startingOffsets='{"orders": {"0": 7, "1": -2}, "pay": {"0": -1}}')
    assert found.start.offsets == {("orders", 0): 7, ("orders", 1): -2, ("pay", 0): -1}


@pytest.mark.parametrize("password", ["plain", "a${x}b", "${env:HOME}", "$${x}", " p ", 'a\\b;c="d"', "é"])
def test_the_properties_of_a_link_are_taken_as_they_are(password: str) -> None:
    """They are resolved; what looks like a reference of Java's files is the password itself."""
    secrets = {"sasl.password": password, "ssl.key.password": password}
    given = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
    }
    cluster = Cluster(
        "east",
        FrozenMapping({**given, **{name: Secret(value) for name, value in secrets.items()}}),
        consumer=FrozenMapping({"fetch.min.bytes": "1"}),
    )
    options = source_options(cluster, {SourcePartition("orders", 1): 7})
    found = SourceOptions.parse(options, streaming=True)

    assert found.start.offsets == {("orders", 1): 7}
    shown = {name: value for name, value in found.cluster.properties.items() if isinstance(value, str)}
    assert shown == {**given, "fetch.min.bytes": "1"}
    hidden = {name: value for name, value in found.cluster.properties.items() if isinstance(value, Secret)}
    assert {name: value.reveal() for name, value in hidden.items()} == secrets
    # Spark hides the options that begin so in its plans
    assert all(
        name.startswith("kafka.") for name, value in options.items() if json.dumps(password)[1:-1] in value
    )


@pytest.mark.parametrize(
    ("streaming", "options", "words"),
    [
        (True, {"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        (True, {"endingOffsets": "latest"}, "batch query only"),
        (False, {"maxOffsetsPerTrigger": "5"}, "streaming query only"),
        (False, {"startingOffsets": "latest"}, "cannot begin at the end"),
        (False, {"endingOffsets": '{"orders": {"0": -2}}'}, "cannot end at the beginning"),
        (True, {"assign": '{"orders": [0]}'}, "exclude each other"),
        (True, {"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets has the value"),
        (True, {"startingOffsets": "first"}, "startingOffsets has the value"),
        (True, {"maxBytesPerTrigger": "0"}, "number above 0"),
        (True, {"failOnDataLoss": "maybe"}, "true or false"),
        (True, {"kafka.group.id": "g"}, "groupId"),
        (True, {"kafka.isolation.level": "read_uncommitted"}, "kafka.isolation.level"),
        (True, {"minOffsetsPerTrigger": "5"}, "is not supported"),
    ],
)
def test_a_refusal_names_the_option(streaming: bool, options: dict[str, str], words: str) -> None:
    """An option without effect would be taken for one that has it."""
    with pytest.raises(UsageError, match=words):
        parse(streaming=streaming, **options)


def test_java_properties_become_librdkafkas() -> None:
    """A job's login is written for Java's client."""
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
    cluster = kafka_cluster(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": jaas,
        }
    )
    assert cluster.properties["sasl.username"] == "u"
    assert "p" not in repr(cluster.properties["sasl.password"])


def test_no_cluster_is_an_error_with_its_option() -> None:
    """The first thing that a new user forgets."""
    with pytest.raises(UsageError, match="no cluster is named"):
        SourceOptions.parse({"subscribe": "orders"}, streaming=True)


def test_headers_are_a_column_on_demand() -> None:
    """As in Spark's connector."""
    assert "headers" not in source_schema(BASE)
    assert source_schema({**BASE, "includeheaders": "true"}).endswith("value: BINARY>>")
