"""Tokens for the native plane: asked for as librdkafka asks, and never shown."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from eomirror._native import PlaneReader
from eomirror.errors import ClusterError, UnreachableError
from eomirror.plane.native.oauth import ClientCredentials, with_tokens
from support.clusters.token_endpoint import TokenEndpoint, token_endpoint, unsigned_token

if TYPE_CHECKING:
    from collections.abc import Iterator

CANARY = "canary-Zq+/"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    """A token endpoint in a thread."""
    with token_endpoint() as server:
        yield server


def oidc(url: str, **more: str) -> dict[str, str]:
    """Properties as a cluster's section has them."""
    return {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "mirror",
        "sasl.oauthbearer.client.secret": CANARY,
        "sasl.oauthbearer.token.endpoint.url": url,
        **more,
    }


def source_of(properties: dict[str, str]) -> ClientCredentials:
    """The source of tokens that these properties make."""
    _, tokens = with_tokens(properties)
    assert tokens is not None
    return tokens


def test_a_token_is_asked_for_with_client_credentials(endpoint: TokenEndpoint) -> None:
    """RFC 6749, 4.4: grant and scope in the form, identity and secret in the header; the expiry is the token's own."""
    given = unsigned_token(sub="mirror", exp=2_000_000_000)
    endpoint.says(200, json.dumps({"access_token": given, "expires_in": 5}).encode())
    scoped = {"sasl.oauthbearer.scope": "read write", "sasl.oauthbearer.extensions": "logicalCluster=lkc,x=y"}

    answer = source_of(oidc(endpoint.url, **scoped))("")

    assert answer == (given, 2_000_000_000.0, "", {"logicalCluster": "lkc", "x": "y"})
    ((headers, form),) = endpoint.asked
    assert form == "grant_type=client_credentials&scope=read+write"
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"mirror:{CANARY}"


def test_a_token_that_is_no_jwt_lives_as_long_as_the_server_says(endpoint: TokenEndpoint) -> None:
    """Brokers read tokens, we only plan by their expiry."""
    endpoint.says(200, b'{"access_token": "opaque", "expires_in": 60}')
    source = source_of(oidc(endpoint.url))
    assert source("")[1] == pytest.approx(source.clock.wall_ms() / 1000 + 60, abs=30)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b'{"error": "canary-Zq"}', "refuses with status 401"),
        (302, b"", "refuses with status 302"),
        (200, b"canary-Zq", "answered without a JSON object"),
        (200, b'{"expires_in": 60}', "gave no access_token"),
        (200, b'{"access_token": "canary-Zq"}', "does not say when its token expires"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_named_and_not_quoted(
    endpoint: TokenEndpoint, status: int, body: bytes, words: str
) -> None:
    """Neither the secret nor what came back stands in the error; a redirection is not followed."""
    endpoint.says(status, body, Location=endpoint.url)
    source = source_of(oidc(endpoint.url))
    with pytest.raises(UnreachableError, match=words) as raised:
        source("")
    assert f"127.0.0.1:{endpoint.server_address[1]}" in raised.value.message
    assert "canary" not in str(raised.value) + repr(raised.value) + repr(source)
    assert len(endpoint.asked) == 1


def test_no_server_behind_the_url_is_an_error_of_ours(endpoint: TokenEndpoint) -> None:
    """The name of what went wrong is enough."""
    source = source_of(oidc(endpoint.url.replace("/token", "").replace("127.0.0.1", "127.0.0.2")))
    with pytest.raises(UnreachableError, match=r"does not answer \(ConnectionRefusedError\)"):
        source("")


@pytest.mark.parametrize(
    "more",
    [
        {"sasl.oauthbearer.grant.type": "urn:ietf:params:oauth:grant-type:jwt-bearer"},
        {"sasl.oauthbearer.metadata.authentication.type": "azure_imds"},
        {"sasl.oauthbearer.client.secret": ""},
    ],
)
def test_another_grant_is_left_to_the_client_plane(more: dict[str, str]) -> None:
    """The extension says what it lacks; librdkafka has it."""
    properties, tokens = with_tokens(oidc("https://login.invalid/token", **more))
    assert tokens is None
    ((name, reason),) = PlaneReader.unsupported_properties(properties, tokens)
    assert name == "sasl.oauthbearer.method"
    assert "HTTPS" in reason


def test_the_authorities_of_the_endpoint_are_no_property_of_the_extension() -> None:
    """They are honoured where the token is asked for."""
    properties = oidc("https://login.invalid/token", **{"https.ca.location": "/ca.pem"})
    assert PlaneReader.unsupported_properties(*with_tokens(properties)) == []
    source = source_of(properties)
    assert source.authorities == "/ca.pem"


def test_a_cluster_without_oidc_needs_no_endpoint() -> None:
    """Passwords and unsecured tokens are the extension's own."""
    for properties in ({"bootstrap.servers": "a:1"}, {**oidc("x"), "sasl.oauthbearer.method": "default"}):
        assert with_tokens(properties) == (properties, None)


def test_a_url_that_names_a_file_is_refused() -> None:
    """It would be read, and its first line might be shown."""
    with pytest.raises(ClusterError, match="not an http or https URL"):
        with_tokens(oidc("file:///etc/passwd"))
