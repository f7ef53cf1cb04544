"""Text that must never be seen: it renders as stars everywhere, and is read only on purpose. Pure."""

from __future__ import annotations

import re

__all__ = ["MASK", "Secret", "is_secret_key", "shows_secret"]

MASK = "***"

# public certificates match `pem` too: masking one too many costs nothing
_SECRET_KEY = re.compile(
    r"passw|secret|token|jaas|credential|passphrase|keytab|pem$|(^|[._-])key$|account\.key|oauthbearer\.config",
    re.IGNORECASE,
)
# a value that names a secret itself, as -Djavax.net.ssl.keyStorePassword=... among Java options, or a URL with one
_SHOWS = re.compile(
    r"(passw(or)?d|secret|token|credentials?|passphrase)\w*\s*[=:]|://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE
)


class Secret:
    """
    A text that renders as ``***`` in repr, str, format and error messages.

    It can be pickled; it cannot be turned into JSON, so that a place which forgot to mask fails loudly.

    Args:
        text: The secret.
        reference: The setting as it was written, with ``${env:NAME}`` or ``${file:/path}`` in it; empty when the
            secret itself stands in the configuration.
    """

    __slots__ = ("_text", "reference")

    def __init__(self, text: str, reference: str = "") -> None:
        self._text = text
        self.reference = reference

    def reveal(self) -> str:
        """The text itself: only for the dictionary that a client library gets."""
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
    """Whether a value holds a secret by what it says, whatever its property is called."""
    return _SHOWS.search(value) is not None


def is_secret_key(key: str) -> bool:
    """Whether the value of a property is a secret by the property's name."""
    return _SECRET_KEY.search(key) is not None
