"""A user's own function for tokens: named in a file, handed over by a program, imported where it is needed."""

from __future__ import annotations

import pickle
import textwrap
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from eomirror._native import PlaneReader
from eomirror.config import inspect_config, load_config, masked
from eomirror.config.clients import admin_properties, consumer_properties
from eomirror.config.token_function import TokenFunction
from eomirror.errors import ClusterError
from eomirror.kafka.client_check import property_faults
from eomirror.plane.native.oauth import as_text, with_tokens

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config import Config

OAUTH = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the user's, importable in this process."""
    (tmp_path / "my_logins.py").write_text(
        textwrap.dedent("""
            def short(config):
                return f"token-{config}", 2_000_000_000

            def long(config):
                return "token", 2_000_000_000.5, "me", {"logicalCluster": "lkc"}

            class Vault:
                @staticmethod
                def token(config):
                    return "vault", 1.0, None, None

            nothing = 1
        """)
    )
    (tmp_path / "my_broken.py").write_text("raise RuntimeError('canary-Zq')\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def config(**properties: object) -> Config:
    """Two clusters, the first with these properties."""
    return load_config(document(**properties))


def document(**properties: object) -> dict[str, object]:
    return {
        "clusters": {
            "a": {"bootstrap.servers": "127.0.0.1:1", **OAUTH, **properties},
            "b": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"source": "a", "target": "b", "topics": ["t"]}],
    }


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("my_logins:short", ("token-x", 2e9, "", {})),
        ("my_logins:long", ("token", 2_000_000_000.5, "me", {"logicalCluster": "lkc"})),
        ("my_logins:Vault.token", ("vault", 1.0, "", {})),
    ],
)
def test_a_function_is_called_as_confluent_kafka_calls_it(name: str, answer: object) -> None:
    """It gets sasl.oauthbearer.config; principal and extensions are its choice."""
    assert TokenFunction.load(name)("x") == answer


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_logins:gone", r"my_logins:gone cannot be imported \(AttributeError\)"),
        ("no_such_module:f", r"no_such_module:f cannot be imported \(ModuleNotFoundError\)"),
        ("my_broken:f", r"my_broken:f cannot be imported \(RuntimeError\)"),
        ("my_logins:nothing", "my_logins:nothing is a int, not a function"),
    ],
)
def test_a_function_that_is_not_there_is_named_with_the_way_to_provide_it(name: str, words: str) -> None:
    """At `check` and before a run, at its place in the file; the module's own words are not repeated."""
    with pytest.raises(ClusterError, match=words) as raised:
        TokenFunction.load(name)
    assert "--py-files" in raised.value.fix
    assert "canary" not in str(raised.value)

    found = inspect_config(document(oauth_cb=name))
    (fault,) = property_faults(found.clusters, found.lines)
    assert (fault.path, fault.message) == ("clusters.a.oauth_cb", raised.value.message)


def test_a_program_may_hand_over_the_function_itself() -> None:
    """The configuration keeps its name, so that it survives pickling, comparing and showing."""
    import my_logins  # type: ignore[import-not-found]  # made by the fixture

    given = config(oauth_cb=my_logins.short)

    assert given == config(oauth_cb="my_logins:short")
    assert pickle.loads(pickle.dumps(given)).clusters["a"] == given.clusters["a"]  # noqa: S301  our own
    assert masked(given)["clusters"]["a"]["oauth_cb"] == "my_logins:short"


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda _: ("t", 1.0), "other processes cannot import this function"),
        ("short", "not of the form MODULE:FUNCTION"),
    ],
)
def test_a_function_that_workers_could_not_find_is_refused(function: object, words: str) -> None:
    """A lambda has no name, and a name needs its module."""
    fault = inspect_config(document(oauth_cb=function)).faults[0]
    assert fault.path == "clusters.a.oauth_cb"
    assert words in fault.message
    assert fault.fix


@pytest.mark.parametrize(
    "other", [{"sasl.oauthbearer.method": "OIDC"}, {"enable.sasl.oauthbearer.unsecure.jwt": "true"}]
)
def test_tokens_come_from_one_place(other: dict[str, str]) -> None:
    """A function beside another source of tokens would be used by no plane, or by one only."""
    (fault,) = inspect_config(document(oauth_cb="my_logins:short", **other)).faults
    assert fault.path == "clusters.a.oauth_cb"
    assert next(iter(other)) in fault.message


def test_both_planes_get_the_function() -> None:
    """Clients of librdkafka take it as it is; the extension honours the rest, and calls it."""
    cluster = config(oauth_cb="my_logins:short", **{"sasl.oauthbearer.config": "x"}).clusters["a"]
    for given in (consumer_properties(cluster, client_id="c"), admin_properties(cluster, client_id="c")):
        assert given["oauth_cb"](given["sasl.oauthbearer.config"])[0] == "token-x"

    properties, tokens = with_tokens(as_text(consumer_properties(cluster, client_id="c")))

    assert PlaneReader.unsupported_properties(properties, tokens) == []
    assert isinstance(tokens, TokenFunction)
    assert tokens("y")[0] == "token-y"


def test_librdkafka_asks_the_function() -> None:
    """A client that is made of these properties has its token from it, without a broker."""
    asked = []

    def function(config: str) -> tuple[str, float]:
        asked.append(config)
        return "token", 2e9

    cluster = config(**{"sasl.oauthbearer.config": "x"}).clusters["a"]
    given = admin_properties(cluster, client_id="c") | {
        "oauth_cb": TokenFunction("f", function),
        "log_level": 0,
    }
    producer = Producer(given)
    for _ in range(200):
        if asked:
            break
        producer.poll(0.1)
    assert asked[:1] == ["x"]


def test_without_the_mechanism_a_function_is_not_used() -> None:
    """As librdkafka has it: a cluster that logs in with a password asks for no tokens."""
    given = {"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN", "oauth_cb": "my_logins:short"}
    assert with_tokens(given) == ({"bootstrap.servers": "a:1", "sasl.mechanism": "PLAIN"}, None)
