r"""
Parses ``sasl.jaas.config`` as Kafka does. Pure.

Source: Apache Kafka 4.3, common/security/JaasConfig.java and JaasContext.java: one login module, its flag, options and
a semicolon, in the tokens of java.io.StreamTokenizer.  A bare ``/`` begins a comment, a value that begins with a digit
is a number and no text, and in quotation marks ``\$`` is ``$``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JaasFaultError", "LoginModule", "parse_jaas", "unescaped"]

_FLAGS = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_TOKEN = re.compile(
    r"""
      (?P<skip> [\x00-\x20]+ | /\*.*?(?:\*/|\Z) | //[^\r\n]* | /[^/*]?[^\r\n]* )
    | (?P<number> -?(?=[0-9.]) [0-9]* (?:\.[0-9]*)? )
    | (?P<word> [A-Za-z_$\x80-\U0010ffff] [A-Za-z0-9_$.\x80-\U0010ffff-]* )
    | (?P<quote> ["'])
    | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)


class JaasFaultError(ValueError):
    """Kafka's client would not start with this text; the message never quotes a value."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """
    The login module of a client.

    Attributes:
        name: Name of its class.
        options: Options by name; hidden from repr, because they hold passwords.
    """

    name: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def simple_name(self) -> str:
        """Name of the class without its package."""
        return self.name.rpartition(".")[2]


def parse_jaas(text: str) -> LoginModule:
    """
    Returns the login module of a client's ``sasl.jaas.config``.

    Raises:
        JaasFaultError: Kafka's client would not start with it.
    """
    tokens = _tokens(text)
    kind, name = next(tokens, ("end", ""))
    if kind != "text":
        raise JaasFaultError("it names no login module")
    kind, flag = next(tokens, ("end", ""))
    if kind != "text" or flag.upper() not in _FLAGS:
        raise JaasFaultError("`required` does not follow the login module")
    options: dict[str, str] = {}
    for kind, key in tokens:
        if (kind, key) == ("mark", ";"):
            break
        if kind != "text" or next(tokens, None) != ("mark", "="):
            shown = f"option {key}" if kind == "text" and re.fullmatch(r"[\w.$-]{1,60}", key) else "an option"
            raise JaasFaultError(
                f"{shown} has no `=`: a value with blanks, '/' or quotation marks is put in quotes"
            )
        read, value = next(tokens, ("end", ""))
        if read != "text":
            raise JaasFaultError(
                f"the value of {key} is no text for Kafka: put a value that begins with a digit or a sign in quotes"
            )
        options[key] = value
    else:
        raise JaasFaultError("there is no semicolon at its end")
    if next(tokens, None) is not None:
        raise JaasFaultError("it names more than one login module")
    return LoginModule(name, options)


def unescaped(text: str) -> str:
    """Returns a text in quotation marks as java.io.StreamTokenizer reads it."""

    def one(found: re.Match[str]) -> str:
        escape = found[1]
        return chr(int(escape, 8)) if escape[0] in "01234567" else _NAMED.get(escape, escape)

    return _ESCAPE.sub(one, text)


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yields kind and text of each token; the kinds are text, number and mark."""
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        assert found is not None  # noqa: S101  one alternative takes any character
        at = found.end()
        if found["quote"]:
            inner = re.compile(rf"(?:\\.|[^\\{found['quote']}\r\n])*", re.DOTALL).match(text, at)
            assert inner is not None  # noqa: S101  it matches an empty text
            at = inner.end() + (text[inner.end() : inner.end() + 1] == found["quote"])
            yield "text", unescaped(inner[0])
        elif found["number"]:
            yield "number", found["number"]
        elif found["word"]:
            yield "text", found["word"]
        elif found["other"]:
            yield "mark", found["other"]
