"""Tokens for Amazon MSK with IAM, with a signer that only records its calls."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from eomirror import load_config
from eomirror.aws_msk_iam import token
from eomirror.config.clients import consumer_properties
from eomirror.config.mm2_properties import import_mm2
from eomirror.errors import ClusterError, ConfigError


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The calls of a signer in place of Amazon's."""
    calls: list[tuple[str, ...]] = []

    def recorder(name: str) -> object:
        return lambda *arguments: calls.append((name, *arguments)) or ("signed", 1_700_000_900_000)

    module = ModuleType("aws_msk_iam_sasl_signer")
    names = ("generate_auth_token", "generate_auth_token_from_profile", "generate_auth_token_from_role_arn")
    vars(module)["MSKAuthTokenProvider"] = SimpleNamespace(**{name: recorder(name) for name in names})
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", module)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return calls


@pytest.mark.parametrize(
    ("config", "call"),
    [
        ("region=eu-west-1", ("generate_auth_token", "eu-west-1")),
        ("region=eu-west-1 profile=mirror", ("generate_auth_token_from_profile", "eu-west-1", "mirror")),
        (
            "region=eu-west-1 role_arn=arn:aws:iam::1:role/m",
            ("generate_auth_token_from_role_arn", "eu-west-1", "arn:aws:iam::1:role/m", "eomirror"),
        ),
    ],
)
def test_the_signer_gets_what_the_configuration_says(
    signed: list[tuple[str, ...]], config: str, call: tuple[str, ...]
) -> None:
    """Its expiry time is in milliseconds, that of a token function in seconds."""
    assert token(config) == ("signed", 1_700_000_900.0)
    assert signed == [call]


def test_the_region_comes_from_the_environment(
    signed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Amazon's own tools."""
    monkeypatch.setenv("AWS_REGION", "us-east-2")
    token("")
    assert signed == [("generate_auth_token", "us-east-2")]


@pytest.mark.parametrize(("config", "message"), [("", "no AWS region"), ("zone=a", "'zone' is no option")])
def test_what_is_missing_is_named(signed: list[tuple[str, ...]], config: str, message: str) -> None:
    """Before anything is signed."""
    with pytest.raises(ClusterError, match=message):
        token(config)
    assert signed == []


def test_a_missing_signer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ClusterError, match=r"eomirror\[aws\]"):
        token("region=eu-west-1")


@pytest.mark.parametrize(
    ("broker", "jaas", "words"),
    [
        ("b-1.x.abc.c2.kafka.us-east-1.amazonaws.com:9098", "", "region=us-east-1"),
        ("boot-x.c1.kafka-serverless.eu-west-1.amazonaws.com:9098", "", "region=eu-west-1"),
        ("broker.example.com:9098", "", None),
        ("broker.example.com:9098", 'awsRoleArn="arn:aws:iam::1:role/m"', "role_arn=arn:aws:iam::1:role/m"),
    ],
)
def test_an_import_names_region_and_role(broker: str, jaas: str, words: str | None) -> None:
    """Java's client takes the region from the names of the brokers; without one, the environment decides."""
    module = "software.amazon.msk.auth.iam."
    found = import_mm2(
        f"clusters=a,b\na->b.enabled=true\nb.bootstrap.servers=y:1\na.bootstrap.servers={broker}\n"
        f"a.security.protocol=SASL_SSL\na.sasl.mechanism=AWS_MSK_IAM\n"
        f"a.sasl.jaas.config={module}IAMLoginModule required {jaas};\n"
        f"a.sasl.client.callback.handler.class={module}IAMClientCallbackHandler\n",
        keep_secrets=False,
    )
    assert not any(item.grave for item in found.not_honoured)
    assert found.settings["clusters"]["a"].get("sasl.oauthbearer.config") == words


def test_the_mechanism_of_java_is_refused_with_what_replaces_it() -> None:
    """`check` refuses it; librdkafka would do so only when it connects."""
    cluster = {"bootstrap.servers": "x:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM"}
    settings = {
        "clusters": {"a": cluster, "b": {"bootstrap.servers": "y:1"}},
        "links": [{"source": "a", "target": "b", "topics": ["x"]}],
    }
    with pytest.raises(ConfigError, match=r"oauth_cb: eomirror\.aws_msk_iam:token"):
        load_config(settings)
    cluster |= {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "eomirror.aws_msk_iam:token"}
    loaded = load_config(settings).clusters["a"]
    assert consumer_properties(loaded, client_id="x")["oauth_cb"].name == "eomirror.aws_msk_iam:token"
