"""No secret is ever seen: 20 canaries at all the places where one could stand."""

from __future__ import annotations

import json
import pickle
import textwrap
import traceback
from typing import TYPE_CHECKING

import orjson
import pytest

from eomirror.cli.run import parse_conf
from eomirror.config import Config, Secret, inspect_config, load_config, masked
from eomirror.config.clients import consumer_properties
from eomirror.config.secret import is_secret_key
from eomirror.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

CANARIES = [f"canary-{number:02d}-Zq" for number in range(20)]

PLACES = [
    "sasl.password",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A configuration that holds all canaries."""
    secret = tmp_path / "secret"
    secret.write_text(CANARIES[18] + "\n")
    secret.chmod(0o600)
    rows = "\n".join(f'    {key}: "{canary}"' for key, canary in zip(PLACES, CANARIES, strict=False))
    text = f"""\
clusters:
  east:
    bootstrap.servers: "127.0.0.1:1"
{rows}
    consumer: {{sasl.password: {CANARIES[9]}, some.token: {CANARIES[10]}}}
    producer: {{ssl.key.password: {CANARIES[11]}, sasl.username: "${{env:USER_NAME}}"}}
  west:
    bootstrap.servers: "127.0.0.1:2"
    sasl.username: "${{env:WEST_USER}}"
    sasl.password: "x${{env:WEST_PASSWORD}}y"
    sasl.oauthbearer.client.secret: ${{file:{secret}}}
links:
  - {{source: east, target: west, topics: [a]}}
spark:
  spark.hadoop.fs.s3a.secret.key: {CANARIES[15]}
  spark.ssl.keyPassword: {CANARIES[16]}
  spark.app.id: "${{env:APP}}"
"""
    path = tmp_path / "mirror.yaml"
    path.write_text(text)
    environ = {
        "USER_NAME": CANARIES[12],
        "WEST_USER": CANARIES[13],
        "WEST_PASSWORD": CANARIES[14],
        "APP": CANARIES[17],
    }
    return load_config(path, environ=environ, overrides=[f"clusters.east.other.secret={CANARIES[19]}"])


def seen_in(text: str) -> list[str]:
    """Canaries in a text."""
    return [canary for canary in CANARIES if canary in text]


def test_every_canary_is_in_the_configuration(config: Config) -> None:
    """The other tests would prove nothing about a secret that was lost on the way."""
    revealed = [
        value.reveal()
        for cluster in config.clusters.values()
        for properties in (cluster.properties, cluster.consumer, cluster.producer)
        for value in properties.values()
        if isinstance(value, Secret)
    ]
    text = "\n".join([*revealed, *config.spark.values()])
    assert seen_in(text) == CANARIES


def test_no_canary_is_seen_in_repr_str_or_masked_json(config: Config) -> None:
    """However a configuration is written out, secrets are stars."""
    shown = masked(config)
    link = config.links[0]
    texts = [
        repr(config),
        str(config),
        f"{config.clusters}",
        repr(config.clusters["east"].properties),
        f"{config.clusters['west'].properties['sasl.password']:>40}",
        json.dumps(shown),
        orjson.dumps(shown).decode(),
        repr(link),
        repr(config.warnings),
    ]
    assert seen_in("\n".join(texts)) == []
    assert shown["clusters"]["west"]["sasl.password"] == "***"
    assert shown["clusters"]["west"]["bootstrap.servers"] == "127.0.0.1:2"


def test_a_secret_refuses_to_become_json(config: Config) -> None:
    """A place that forgot to mask fails loudly instead of writing the secret."""
    value = config.clusters["west"].properties["sasl.password"]
    for dump in (json.dumps, orjson.dumps):
        with pytest.raises(TypeError):
            dump({"x": value})


def test_a_pickled_cluster_still_works_and_still_hides(config: Config) -> None:
    """Spark tasks get clusters by pickle: the secret arrives, and is still masked there."""
    cluster = pickle.loads(pickle.dumps(config.clusters["west"]))  # noqa: S301  our own bytes
    assert cluster == config.clusters["west"]
    assert consumer_properties(cluster, client_id="x")["sasl.password"] == f"x{CANARIES[14]}y"
    assert seen_in(repr(cluster)) == []


BROKEN = [
    "sasl.password: [{0}]",
    "sasl.password: {{{0}: {0}}}",
    "sasl.password: *{0}",
    "sasl.password: &{0}",
    "sasl.password: !{0} x",
    "sasl.password: !{0}!x y",
    'sasl.password: "{0}',
    "sasl.password: '{0}' {0}",
    "sasl.password: {0}: {0}",
    "sasl.password: '{0}'\n    acks: 0",
    "acks: ${{env:LEAK}}",
    "debug: ${{env:LEAK}}",
    "sasl.password: '{0}\0'",
    "sasl.password: ${{file:FOLDER/binary}}",
    "sasl.password: '${{env:{0}-x}}x'\n    ssl.key.password: {0}",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_no_canary_is_seen_in_a_fault(tmp_path: Path, broken: str) -> None:
    """What stands at a broken place may be a password: faults, tracebacks and their pickles do not hold it."""
    canary = CANARIES[0]
    (tmp_path / "binary").write_bytes(canary.encode() + b"\xff")
    line = broken.format(canary).replace("FOLDER", str(tmp_path))
    if f"env:{canary}" in line:
        line = line.replace(f"env:{canary}-x", "env:NOT_SET")
    text = (
        f"clusters:\n  east:\n    bootstrap.servers: h:1\n    {line}\n  west: {{bootstrap.servers: 'h:2'}}\n"
    )
    text += "links: [{source: east, target: west, topics: [a]}]\n"
    path = tmp_path / "mirror.yaml"
    path.write_bytes(text.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(path, environ={"LEAK": canary})
    error = caught.value
    texts = [str(error), repr(error.faults), "".join(traceback.format_exception(error))]
    assert seen_in("\n".join(texts)) == []
    assert canary.encode() not in pickle.dumps(error.faults)
    assert canary.encode() not in pickle.dumps(error)


def test_a_secret_at_a_wrong_place_is_not_repeated(tmp_path: Path) -> None:
    """A password under a link, by wrong indentation, is an unknown key: the key is named, not the value."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        textwrap.dedent(
            f"""\
            clusters: {{east: {{bootstrap.servers: "user:{CANARIES[0]}@h:1x"}}, west: {{bootstrap.servers: "h:2"}}}}
            links: [{{source: east, target: west, topics: [a], sasl.password: {CANARIES[1]}}}]
            sasl.password: {CANARIES[2]}
            """
        )
    )
    found = inspect_config(path)
    assert len(found.faults) == 3
    assert seen_in(repr(found.faults)) == []


def test_a_secret_file_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    """Mode 0644 works, as it does for mounted secrets, but is said."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\r\n")
    secret.chmod(0o644)
    config = load_config(
        {
            "clusters": {
                "a": {
                    "bootstrap.servers": "h:1",
                    "sasl.password": f"${{file:{secret}}}",
                    "security.protocol": "SASL_SSL",
                },
                "b": {"bootstrap.servers": ["h:2", "h:3"]},
            },
            "links": [{"source": "a", "target": "b", "topics": "t"}],
        }
    )
    assert [warning.path for warning in config.warnings] == ["clusters.a.sasl.password"]
    assert "0644" in config.warnings[0].message
    value = config.clusters["a"].properties["sasl.password"]
    assert isinstance(value, Secret)
    assert value.reveal() == "s3cret"
    assert config.clusters["b"].bootstrap_servers == "h:2,h:3"


def test_a_mark_at_the_beginning_of_a_secret_file_is_no_part_of_it(tmp_path: Path) -> None:
    """Some editors write one (EF BB BF), and the login would be refused for an invisible mark."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"\xef\xbb\xbfs3cret\r\n")
    secret.chmod(0o600)
    config = load_config(
        {
            "clusters": {
                "a": {"bootstrap.servers": "h:1", "sasl.password": f"${{file:{secret}}}"},
                "b": {"bootstrap.servers": "h:2"},
            },
            "links": [{"source": "a", "target": "b", "topics": "t"}],
        }
    )
    value = config.clusters["a"].properties["sasl.password"]
    assert isinstance(value, Secret)
    assert value.reveal() == "s3cret"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("-Dfile.encoding=UTF-8 -Djavax.net.ssl.keyStorePassword=s3cret", "***"),
        ("https://user:s3cret@repository.example/maven", "***"),
        ("-Dfile.encoding=UTF-8", "-Dfile.encoding=UTF-8"),
        ("http://host:8080/a@b", "http://host:8080/a@b"),
    ],
)
def test_a_value_that_says_that_it_holds_a_secret_is_hidden(value: str, shown: str) -> None:
    """Java options and URLs hold what their property's name does not tell."""
    config = load_config(
        {
            "clusters": {"a": {"bootstrap.servers": "h:1"}, "b": {"bootstrap.servers": "h:2"}},
            "links": [{"source": "a", "target": "b", "topics": "t"}],
            "spark": {"spark.driver.extraJavaOptions": value},
        }
    )
    assert masked(config)["spark"] == {"spark.driver.extraJavaOptions": shown}
    assert config.spark["spark.driver.extraJavaOptions"] == value


@pytest.mark.parametrize("override", ["clusters.a.sasl.password:s3cret", "clusters.a.sasl.password s3cret"])
def test_an_override_that_is_none_does_not_show_what_it_was_to_set(override: str) -> None:
    """Standard error is kept by the process that started us."""
    with pytest.raises(UsageError, match=r"clusters\.a\.sasl\.password") as raised:
        load_config({}, overrides=[override])
    assert "s3cret" not in str(raised.value)
    with pytest.raises(UsageError, match=r"spark\.password") as raised:
        parse_conf((override.replace("clusters.a.sasl", "spark"),))
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        ("sasl.password", True),
        ("spark.hadoop.fs.azure.account.key.name.blob.example", True),
        ("sasl.jaas.config", True),
        ("ssl.key.pem", True),
        ("ssl.key.password", True),
        ("sasl.username", False),
        ("ssl.key.location", False),
        ("bootstrap.servers", False),
        ("linger.ms", False),
    ],
)
def test_secrets_are_known_by_the_names_of_their_properties(key: str, secret: bool) -> None:
    """A value is hidden by its key, wherever it came from."""
    assert is_secret_key(key) is secret
