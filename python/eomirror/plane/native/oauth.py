"""
OAUTHBEARER tokens for the native plane: from the user's function, or requested as librdkafka does.

The extension talks to brokers only, so it calls Python for a token whenever it opens a connection without a fresh one
(KIP-255, KIP-768).  A function that ``oauth_cb`` names is called as it is.  For ``sasl.oauthbearer.method: oidc`` one
grant is supported: client credentials (RFC 6749, section 4.4), with identity and secret in the ``Authorization``
header.  A cluster with another grant (JWT bearer, cloud metadata) uses the client plane, because librdkafka supports
it.

Errors never contain request or response data: no secret, no token, no response body.
"""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib import error, parse, request

import orjson

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.token_function import OAUTH_CB, TokenFunction
from eomirror.errors import ClusterError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClientCredentials", "as_text", "with_tokens"]

_SECONDS = 10.0
_LARGEST_ANSWER = 256 * 1024

_FAMILY: Final = "sasl.oauthbearer."
# properties of the grant; two names each, as in librdkafka
_IDENTITY = (f"{_FAMILY}client.credentials.client.id", f"{_FAMILY}client.id")
_SECRET = (f"{_FAMILY}client.credentials.client.secret", f"{_FAMILY}client.secret")
_AUTHORITIES = ("https.ca.location", "https.ca.pem")
_GRANTS = ("", "client_credentials")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """
    Requests access tokens from a token endpoint; a callable of ``sasl.oauthbearer.config`` for the extension.

    Attributes:
        header: ``Authorization`` header with identity and secret.
        scope: Scope of the token; empty for the server's default.
        extensions: SASL extensions (KIP-342) that go to brokers with each token.
        authorities: Certificate authorities for https: a file or a folder; empty for the system's.
        authorities_pem: The same, as text.
    """

    url: str
    header: str
    scope: str
    extensions: Mapping[str, str]
    authorities: str
    authorities_pem: str
    clock: Clock

    def __repr__(self) -> str:
        return f"ClientCredentials({self._host})"

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """
        Returns a new token, its expiry in seconds since 1970, no principal, and SASL extensions.

        Raises:
            UnreachableError: The endpoint does not answer, or not with a token.
        """
        del config
        answer = self._answer()
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise self._failed("gave no access_token")
        return token, self._expiry(token, answer), "", dict(self.extensions)

    @property
    def _host(self) -> str:
        parts = parse.urlsplit(self.url)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    def _failed(self, what: str) -> UnreachableError:
        return UnreachableError(
            f"token endpoint {self._host} {what}",
            fix="check sasl.oauthbearer.token.endpoint.url, client id and secret, and the server's log",
        )

    def _answer(self) -> Mapping[str, Any]:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        asked = request.Request(  # noqa: S310  `with_tokens` takes http and https only
            self.url,
            data=parse.urlencode(form).encode(),
            headers={
                "Authorization": self.header,
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
            },
        )
        try:
            with self._opener().open(asked, timeout=_SECONDS) as answered:
                status, body = answered.status, answered.read(_LARGEST_ANSWER)
        except (OSError, ValueError) as raised:
            reason = raised.reason if isinstance(raised, error.URLError) else raised
            raise self._failed(f"does not answer ({type(reason).__name__})") from None
        if status != 200:  # noqa: PLR2004  HTTP's "OK"
            raise self._failed(f"refuses with status {status}")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise self._failed("answered without a JSON object")
        return answer

    def _opener(self) -> request.OpenerDirector:
        # made by hand: the usual one follows redirects, with the secret, and opens files
        opener = request.OpenerDirector()
        opener.add_handler(request.ProxyHandler())
        opener.add_handler(request.HTTPHandler())
        if self.url.startswith("https:"):
            opener.add_handler(request.HTTPSHandler(context=self._trust()))
        return opener

    def _trust(self) -> ssl.SSLContext:
        where = self.authorities if self.authorities != "probe" else ""
        if where.endswith("/"):
            return ssl.create_default_context(capath=where, cadata=self.authorities_pem or None)
        return ssl.create_default_context(cafile=where or None, cadata=self.authorities_pem or None)

    def _expiry(self, token: str, answer: Mapping[str, Any]) -> float:
        """Returns the expiry of the token (RFC 7519, section 4.1.4), or else the server's."""
        said = _claims(token).get("exp")
        if isinstance(said, int | float):
            return float(said)
        lifetime = answer.get("expires_in")
        if isinstance(lifetime, int | float):
            return self.clock.wall_ms() / 1000 + lifetime
        raise self._failed("does not say when its token expires")


def as_text(properties: Mapping[str, Any]) -> dict[str, str]:
    """Returns properties as text, as in librdkafka's own files, without values for programs."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in properties.items()
        if isinstance(value, str | bool | int | float | TokenFunction)
    }


def with_tokens(
    properties: Mapping[str, str], clock: Clock = SYSTEM_CLOCK
) -> tuple[dict[str, str], ClientCredentials | TokenFunction | None]:
    """
    Returns properties for the extension, and its token source; None if it needs none, or the grant is unsupported.

    Args:
        properties: librdkafka's, as text.

    Raises:
        ClusterError: The endpoint's URL is invalid, or a function cannot be imported.
    """
    given = dict(properties)
    function = given.pop(OAUTH_CB, "")
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or ""
    if function and mechanism.upper() == "OAUTHBEARER":
        return given, TokenFunction.load(function)
    grant = given.get(f"{_FAMILY}grant.type", "")
    identity, secret = (_first(given, names) for names in (_IDENTITY, _SECRET))
    url = given.get(f"{_FAMILY}token.endpoint.url", "")
    asks = (
        mechanism.upper() == "OAUTHBEARER"
        and given.get(f"{_FAMILY}method", "").lower() == "oidc"
        and given.get(f"{_FAMILY}metadata.authentication.type", "none") == "none"
    )
    if not (asks and grant in _GRANTS and identity and secret and url):
        return given, None
    if parse.urlsplit(url).scheme not in {"http", "https"}:
        raise ClusterError(
            "sasl.oauthbearer.token.endpoint.url is not an http or https URL",
            fix="write the URL of the token endpoint, such as https://login.example.org/token",
        )
    tokens = ClientCredentials(
        url=url,
        header="Basic " + base64.b64encode(f"{identity}:{secret}".encode()).decode(),
        scope=given.get(f"{_FAMILY}scope", ""),
        extensions=_extensions(given.get(f"{_FAMILY}extensions", "")),
        authorities=given.get("https.ca.location", ""),
        authorities_pem=given.get("https.ca.pem", ""),
        clock=clock,
    )
    # honoured here, and nothing that the extension could honour
    return {name: value for name, value in given.items() if name not in _AUTHORITIES}, tokens


def _first(given: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((given[name] for name in names if given.get(name)), "")


def _extensions(text: str) -> dict[str, str]:
    """Returns comma-separated pairs ``name=value``."""
    return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)


def _claims(token: str) -> Mapping[str, Any]:
    """Returns the claims of a JWT; empty for another kind of token.  Brokers verify it; it only serves for planning."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004  header, claims, signature
        return {}
    try:
        claims = orjson.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}
