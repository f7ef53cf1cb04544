"""Secret text: renders as stars everywhere and is revealed only explicitly. Pure."""

from __future__ import annotations

import re

__all__ = [
    "MASK",
    "OUR_REFERENCE",
    "REFERENCE",
    "Secret",
    "has_reference",
    "is_secret_key",
    "shows_secret",
    "unfilled",
]

MASK = "***"
#: A reference, or with two dollar signs these characters.
REFERENCE = re.compile(r"(\$?)\$\{([^{}]+)\}")
#: What a reference of ours has in its braces.
OUR_REFERENCE = re.compile(r"(env|file):(.*)", re.DOTALL)

# `pem` also matches public certificates: masking those is harmless
_SECRET_KEY = re.compile(
    r"passw|secret|token|jaas|credential|passphrase|keytab|pem$|(^|[._-])key$|account\.key|user\.info|oauthbearer\.config",
    re.IGNORECASE,
)
# a value that contains a secret, such as -Djavax.net.ssl.keyStorePassword=... in Java options, or a URL with a password
_SHOWS = re.compile(
    r"(passw(or)?d|secret|token|credentials?|passphrase)\w*\s*[=:]|://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE
)


class Secret:
    """
    A text that renders as ``***`` in repr, str, format and error messages.

    It can be pickled but not serialized to JSON, so that code which forgot to mask it fails.

    Args:
        text: The secret.
        reference: The setting as written, with ``${env:NAME}`` or ``${file:/path}``; empty if the configuration
            contains the secret itself.
    """

    __slots__ = ("_text", "reference")

    def __init__(self, text: str, reference: str = "") -> None:
        self._text = text
        self.reference = reference

    def reveal(self) -> str:
        """Returns the secret text; only for the properties of a client library."""
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, _: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> tuple[type[Secret], tuple[str, str]]:
        return (Secret, (self._text, self.reference))


def shows_secret(value: str) -> bool:
    """Returns True if a value contains a secret, whatever the name of its property."""
    return _SHOWS.search(value) is not None


def has_reference(text: str) -> bool:
    """Returns True if a text refers to the environment or to a file."""
    return any(not found[1] and OUR_REFERENCE.fullmatch(found[2]) for found in REFERENCE.finditer(text))


def is_secret_key(key: str) -> bool:
    """Returns True if the name of a property says that its value is a secret."""
    return _SECRET_KEY.search(key) is not None


def unfilled(text: str) -> tuple[str, str] | None:
    """
    Returns the first reference of another program in a text, and what to write instead; None without one.

    A template that no program filled in, such as ``${REGION}``, is no host and no user, and must not be sent as one.
    """
    for found in REFERENCE.finditer(text):
        if not found[1] and not OUR_REFERENCE.fullmatch(found[2]):
            name = re.match(r"[A-Za-z_]\w*(?=$|:?[-?=+])", found[2], re.ASCII)
            variable = name[0] if name else "NAME"
            return found[
                0
            ], f"write ${{env:{variable}}} and set that variable; or $${{...}} for these characters"
    return None
