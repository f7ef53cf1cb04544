"""
The setting ``schemas``: schema registries at both ends of a link, and what is mirrored between them. Pure.

The properties of a registry have the names of Confluent's clients.  No lane and no Spark task needs them, so
`eomirror.config.carried` leaves the setting out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from eomirror.config.nodes import Map, Place, Scalar, key_name, quoted
from eomirror.config.rules import is_sent_in_clear
from eomirror.config.secret import Secret, has_reference, is_secret_key
from eomirror.config.values import Setting, choice, duration, patterns, written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Resolve = Callable[[Place, str], str | None]

__all__ = ["SCHEMAS", "RegistryEndpoint", "SchemaMirror", "parse_schemas", "written_schemas"]

_FIX = "write {source: URL, target: URL}"
_CONTEXT = re.compile(r"[A-Za-z0-9_-]+")
_OAUTH = "bearer.auth.issuer.endpoint.url"
#: Properties that make a login, the first of each kind.
_LOGINS = ("basic.auth.user.info", "bearer.auth.token", _OAUTH)

#: Property of a registry -> its meaning; docs/schemas.md names them.
PROPERTIES: Mapping[str, str] = {
    "url": "address of the registry; several, with commas between them, are tried in turn",
    "basic.auth.user.info": "USER:PASSWORD of a basic login",
    "bearer.auth.token": "token of a bearer login",
    _OAUTH: "token endpoint of an OAuth login with client credentials",
    "bearer.auth.client.id": "client of the OAuth login",
    "bearer.auth.client.secret": "secret of that client",
    "bearer.auth.scope": "scope of the token",
    "bearer.auth.logical.cluster": "sent as target-sr-cluster (Confluent Cloud)",
    "bearer.auth.identity.pool.id": "sent as Confluent-Identity-Pool-Id (Confluent Cloud)",
    "ssl.ca.location": "PEM file of the authorities that sign the registry's certificate",
    "ssl.certificate.location": "PEM file of our certificate (mutual TLS)",
    "ssl.key.location": "PEM file of its key",
    "ssl.key.password": "password of that key",
}


@dataclass(frozen=True, slots=True)
class RegistryEndpoint:
    """
    A schema registry.

    Attributes:
        properties: Its properties; secrets are `Secret`.
    """

    properties: tuple[tuple[str, str | Secret], ...]

    def get(self, key: str) -> str:
        """Returns a property, revealed if it is a secret; empty if it is not set."""
        value = dict(self.properties).get(key, "")
        return value.reveal() if isinstance(value, Secret) else value

    @property
    def urls(self) -> tuple[str, ...]:
        """Its addresses."""
        return tuple(url.strip().rstrip("/") for url in self.get("url").split(",") if url.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaMirror:
    """
    Subjects that are mirrored between two registries, and how.

    Attributes:
        source: Registry of the source.
        target: Registry of the target.
        subjects: Full-match regular expressions of subjects in the default context of the source.
        exclude: Subjects that are not mirrored.
        context: Context of the copies on the target, such as ``east`` for ``:.east:orders-value``; empty for the
            default context.
        interval: Seconds between two looks.
        deletions: ``report``, ``delete`` or ``ignore``: reaction to what was deleted permanently on the source.
    """

    source: RegistryEndpoint
    target: RegistryEndpoint
    subjects: tuple[str, ...] = (".*",)
    exclude: tuple[str, ...] = ()
    context: str = ""
    interval: float = 10.0
    deletions: str = "report"


_KINDS: dict[str, Setting] = {
    "subjects": patterns([".*"], of="subject"),
    "exclude": patterns([], of="subject"),
    "interval": duration("10s", 0.1, 86_400),
    "deletions": choice("report", "delete", "ignore"),
}


def written_schemas(mirror: SchemaMirror | None) -> Any:
    """Returns the setting in the notation of the file, without secrets."""
    if mirror is None:
        return False
    told: dict[str, Any] = {
        end: {key: str(value) for key, value in each.properties}
        for end, each in (("source", mirror.source), ("target", mirror.target))
    }
    told |= {name: written(getattr(mirror, name)) for name in _KINDS}
    return {**told, "context": mirror.context} if mirror.context else told


def parse_schemas(place: Place, resolved: Resolve = lambda _, text: text) -> SchemaMirror | None:
    """
    Parses the setting; returns None for ``false``, and after a fault.

    Args:
        place: Where it stands.
        resolved: Returns a text with its references replaced; adds a fault and returns None if that is not possible.
    """
    node = place.node
    if isinstance(node, Scalar) and node.text.lower() == "false":
        return None
    if not isinstance(node, Map):
        place.refuse(
            "this names no registry",
            f"{_FIX}; or mirror the registry's topic: add _schemas to `topics` (docs/schemas.md)",
        )
        return None
    before = len(place.faults.faults)
    found = _entries(place, node, resolved)
    if len(place.faults.faults) > before:
        return None
    mirror = SchemaMirror(**found)
    if set(mirror.source.urls) & set(mirror.target.urls) and not mirror.context:
        place.refuse(
            "source and target are the same registry",
            "write two registries; or `context`, to copy the subjects into a context of the same one",
        )
        return None
    return mirror


def _entries(place: Place, node: Map, resolved: Resolve) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.entries.items():
        inner = place.below(value, f".{key_name(key)}")
        if key in ("source", "target"):
            found[key] = _endpoint(inner, resolved)
        elif key == "context":
            found[key] = _context(inner)
        elif key in _KINDS:
            found[key] = _KINDS[key].parse(inner)
        else:
            inner.refuse("unknown key", f"known keys: source, target, context, {', '.join(_KINDS)}")
    for key in ("source", "target"):
        if key not in found:
            place.refuse(f"`{key}` is missing", _FIX)
    return found


def _context(place: Place) -> str:
    text = place.text("write the name of a context, such as east")
    name = (text or "").removeprefix(".")
    if text is not None and not _CONTEXT.fullmatch(name):
        place.refuse(f"{quoted(text)} is not the name of a context", "use letters, digits, '_' and '-'")
    return name


def _endpoint(place: Place, resolved: Resolve) -> RegistryEndpoint:
    node = place.node if isinstance(place.node, Map) else Map({"url": place.node}, place.node.line)
    found: dict[str, str | Secret] = {}
    for key, value in node.entries.items():
        inner = place.below(value, f".{key_name(key)}" if isinstance(place.node, Map) else "")
        if key not in PROPERTIES:
            inner.refuse("unknown property of a registry", f"known properties: {', '.join(PROPERTIES)}")
            continue
        text = inner.text("write a single value")
        filled = None if text is None else resolved(inner, text)
        if text is None or filled is None:
            continue
        if not filled or re.search(r"[\0\r\n]", filled):
            inner.refuse("the value is empty, or has more than one line", "correct it")
            continue
        if key.startswith("bearer.auth.") and not filled.isascii():
            inner.refuse("the value has characters that no header of HTTP can carry", "correct it")
            continue
        found[key] = Secret(filled, text if has_reference(text) else "") if is_secret_key(key) else filled
    endpoint = RegistryEndpoint(tuple(found.items()))
    _check_urls(place, endpoint)
    _check_login(place, endpoint, found)
    return endpoint


def _check_urls(place: Place, endpoint: RegistryEndpoint) -> None:
    if not endpoint.urls:
        place.refuse("`url` is missing", "write url: https://HOST:8081")
    for key in ("url", _OAUTH):
        for url in endpoint.urls if key == "url" else filter(None, [endpoint.get(key)]):
            try:
                parts = urlsplit(url)
                legal = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
            except ValueError:
                legal, parts = False, urlsplit("")
            if not legal:
                place.refuse(f"{key} is no address of a server", "write https://HOST:8081")
            elif parts.username is not None or parts.password is not None:
                place.refuse(
                    f"{key} contains a login", "write basic.auth.user.info: ${env:NAME}, and no login in url"
                )
            elif key == "url" and (parts.query or parts.fragment or "/contexts/" in f"{parts.path}/"):
                place.refuse(
                    "url is the address of more than a registry",
                    "leave out contexts, parameters and anchors: the default context of the source is mirrored, into "
                    "`context` of the target",
                )


def _check_login(place: Place, endpoint: RegistryEndpoint, found: Mapping[str, str | Secret]) -> None:
    logins = [key for key in _LOGINS if key in found]
    if len(logins) > 1:
        place.refuse(f"{logins[0]} and {logins[1]} are two logins", "remove one of them")
    if "basic.auth.user.info" in found and ":" not in endpoint.get("basic.auth.user.info"):
        place.refuse("basic.auth.user.info has no colon", "write USER:PASSWORD")
    oauth = ("bearer.auth.client.id", "bearer.auth.client.secret")
    if any(key in found for key in (_OAUTH, *oauth, "bearer.auth.scope")):
        for key in (_OAUTH, *oauth):
            if key not in found:
                place.refuse(f"{key} is missing", f"an OAuth login needs {_OAUTH}, {' and '.join(oauth)}")
    if ("ssl.key.location" in found) != ("ssl.certificate.location" in found):
        place.refuse(
            "a certificate and its key belong together",
            "write both ssl.certificate.location and ssl.key.location",
        )
    if logins and any(map(is_sent_in_clear, (*endpoint.urls, endpoint.get(_OAUTH)))):
        place.faults.warn(place.path, "the login is sent unencrypted", "use https://", place.node.line)


_TEXT = {"type": "string"}
_REGISTRY = {
    "oneOf": [
        {"type": "string", "pattern": "^https?://"},
        {
            "type": "object",
            "properties": {key: {**_TEXT, "description": text} for key, text in PROPERTIES.items()},
            "required": ["url"],
            "additionalProperties": False,
        },
    ]
}

#: The kind of the setting; its references are resolved by `eomirror.config.load`.
SCHEMAS = Setting(
    parse_schemas,
    {
        "oneOf": [
            {"const": False},
            {
                "type": "object",
                "properties": {
                    "source": _REGISTRY,
                    "target": _REGISTRY,
                    "context": _TEXT,
                    **{name: kind.schema for name, kind in _KINDS.items()},
                },
                "required": ["source", "target"],
                "additionalProperties": False,
            },
        ]
    },
    None,
    "false",
)
