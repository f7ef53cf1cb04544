r"""
Parses Java property files into keys and values with line numbers.

The format is that of java.util.Properties.load: ``=``, ``:`` or blanks between key and value, ``#`` and ``!``
begin comments, a backslash at the end continues a line, and ``\t \n \f \r \uXXXX`` are escapes.  Of a duplicate key the
last value counts.
"""

from __future__ import annotations

import re

__all__ = ["decode_properties", "parse_properties"]

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "f": "\f", "r": "\r"}
_KEY = re.compile(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*", re.DOTALL)


def decode_properties(data: bytes) -> str:
    """Decodes a file: java.util.Properties reads Latin-1, Kafka's tools the platform's encoding, usually UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> dict[str, tuple[str, int]]:
    """Returns, by key, the value and the number of its first line, from 1."""
    found: dict[str, tuple[str, int]] = {}
    whole, began = "", 0
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        part = line.lstrip(" \t\f")
        if not whole:
            if not part or part[0] in "#!":
                continue
            began = number
        if (len(part) - len(part.rstrip("\\"))) % 2:
            whole += part[:-1]
            continue
        _enter(found, whole + part, began)
        whole = ""
    if whole:
        _enter(found, whole, began)
    return found


def _enter(found: dict[str, tuple[str, int]], line: str, number: int) -> None:
    match = _KEY.match(line)
    key = match[1] if match else ""
    value = line[match.end() :] if match else line
    found[_unescaped(key)] = (_unescaped(value).rstrip(" \t\f\r\n"), number)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(
        lambda escape: (
            chr(int(escape[1][1:], 16)) if len(escape[1]) > 1 else _NAMED.get(escape[1], escape[1])
        ),
        text,
    )
