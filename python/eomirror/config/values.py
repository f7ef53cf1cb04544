"""
Parsers of single settings: each returns a typed value, or adds a fault and returns None.

Each parser takes a `Place`, which has the node and its path.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eomirror.config.document import Faults, Map, Node, Scalar, Sequence, kind_of
from eomirror.topology.filters import pattern_fault
from eomirror.topology.naming import Naming, naming_fault

__all__ = [
    "Parser",
    "Place",
    "choice",
    "duration",
    "duration_text",
    "forward",
    "integer",
    "naming",
    "patterns",
    "quoted",
    "start",
    "word",
]

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_SHOWN = 60
_WORD = re.compile(r"[A-Za-z0-9_-]+")
# 1973: seconds since 1970, and dates without dashes, are smaller numbers
_FIRST_PLAIN_MS = 100_000_000_000
#: 9999-12-31, the last year that ISO 8601 writes with four digits
_LAST_TIMESTAMP_MS = 253_402_300_799_999


def quoted(text: str) -> str:
    """Returns a value for messages: short, ASCII, control characters escaped."""
    return ascii(text if len(text) <= _SHOWN else f"{text[:50]}...")


@dataclass(frozen=True, slots=True)
class Place:
    """A node with its path, and the collector of its faults."""

    node: Node
    path: str
    faults: Faults

    def refuse(self, message: str, fix: str = "") -> None:
        """Adds a fault at this node."""
        self.faults.add(self.path, message, fix, self.node.line)

    def below(self, node: Node, step: str) -> Place:
        """Returns the place of a child node."""
        return Place(node, f"{self.path}{step}", self.faults)

    def text(self, fix: str) -> str | None:
        """Returns the text of a single value; adds a fault for any other node."""
        if isinstance(self.node, Scalar) and not self.node.is_null:
            return self.node.text
        self.refuse(f"this is {kind_of(self.node)}", fix)
        return None


Parser = Callable[[Place], Any]


def duration(*, least: float, most: float, example: str) -> Parser:
    """Returns a parser of durations with a unit (ms, s, m, h) into seconds."""

    def parse(place: Place) -> float | None:
        fix = f"write a number with ms, s, m or h, such as {example}"
        text = place.text(fix)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.strip())
        if not found:
            unit = " has no unit" if re.fullmatch(r"\d+(\.\d+)?", text) else " is not a duration"
            place.refuse(f"{quoted(text)}{unit}", fix)
            return None
        seconds = float(found[1]) * _UNITS[found[2]]
        if not least <= seconds <= most:
            place.refuse(
                f"{quoted(text)} is out of range",
                f"choose between {duration_text(least)} and {duration_text(most)}",
            )
            return None
        return seconds

    return parse


def duration_text(seconds: float) -> str:
    """Returns seconds in the notation of the file, such as ``100ms``."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def integer(*, least: int, most: int) -> Parser:
    """Returns a parser of whole numbers."""

    def parse(place: Place) -> int | None:
        fix = f"write a whole number from {least} to {most}"
        text = place.text(fix)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,20}", text) or not least <= int(text) <= most:
            place.refuse(f"{quoted(text)} is not in range", fix)
            return None
        return int(text)

    return parse


def choice(*words: str) -> Parser:
    """Returns a parser of one of ``words``; ``on`` and ``off`` are words, not booleans."""

    def parse(place: Place) -> str | None:
        fix = f"choose one of: {', '.join(words)}"
        text = place.text(fix)
        if text is not None and text not in words:
            place.refuse(f"{quoted(text)} is not a valid value", fix)
            return None
        return text

    return parse


def flag(place: Place) -> bool | None:
    """Parses a boolean."""
    fix = "write true or false"
    text = place.text(fix)
    if text is not None and text.lower() not in {"true", "false"}:
        place.refuse(f"{quoted(text)} is not a boolean", fix)
        return None
    return None if text is None else text.lower() == "true"


def word(place: Place) -> str | None:
    """Parses an alias or a link's name: part of topic names, without a dot."""
    fix = "use letters, digits, '_' and '-'"
    text = place.text(fix)
    if text is not None and not _WORD.fullmatch(text):
        place.refuse(f"{quoted(text)} cannot be part of a topic's name", fix)
        return None
    return text


def _texts(place: Place, fix: str) -> list[tuple[Place, str]] | None:
    """Returns the texts of a list; a single value counts as a list of one."""
    if isinstance(place.node, Scalar) and not place.node.is_null:
        return [(place, place.node.text)]
    if not isinstance(place.node, Sequence):
        place.refuse(f"this is {kind_of(place.node)}", fix)
        return None
    found = []
    for number, item in enumerate(place.node.items):
        inner = place.below(item, f"[{number}]")
        if (text := inner.text("write a text")) is not None:
            found.append((inner, text))
    return found


def patterns(*, may_be_empty: bool) -> Parser:
    """Returns a parser of full-match regular expressions."""

    def parse(place: Place) -> tuple[str, ...] | None:
        texts = _texts(place, 'write a list of regular expressions, such as ["orders", "pay.*"]')
        if texts is None:
            return None
        for inner, text in texts:
            _check_pattern(inner, text)
        if not may_be_empty and isinstance(place.node, Sequence) and not place.node.items:
            place.refuse("an empty list matches nothing", 'write [".*"] for all topics')
        return tuple(text for _, text in texts)

    return parse


def _check_pattern(place: Place, text: str) -> None:
    if not text:
        place.refuse("an empty expression matches nothing", "remove it")
    elif problem := pattern_fault(text):
        fix = "correct the regular expression"
        if "(?=" in text or "(?!" in text or "(?<" in text:
            fix = "look-around is not supported (matching takes linear time); use `exclude` instead"
        elif text.startswith("*"):
            fix = f"write {quoted('.' + text)}: these are regular expressions, not file patterns"
        place.refuse(f"{quoted(text)} is not a regular expression: {problem}", fix)
    elif "," in text and "{" not in text:
        place.refuse(
            f"{quoted(text)} contains a comma, which names do not have", "write a list: [first, second]"
        )


_NAMING_FIX = "write prefix, identity, {pattern: ...}, {match: ..., to: ...} or {map: {old: new}}"


def naming(place: Place) -> Naming | None:
    """Parses the naming policy."""
    node = place.node
    if isinstance(node, Scalar):
        if node.text in ("prefix", "identity"):
            return Naming(node.text)
        place.refuse(f"{quoted(node.text)} is not a naming policy", _NAMING_FIX)
        return None
    policy = _naming_of(place, node) if isinstance(node, Map) else None
    if policy is None:
        if not isinstance(node, Map):
            place.refuse(f"this is {kind_of(node)}", _NAMING_FIX)
        return None
    message, fix = naming_fault(policy)
    if not message and policy.kind == "match" and (problem := pattern_fault(policy.match)):
        message, fix = f"`match` is not a regular expression: {problem}", "correct the expression"
    if message:
        place.refuse(message, fix)
        return None
    return policy


def _naming_of(place: Place, node: Map) -> Naming | None:
    keys = set(node.entries)
    if keys == {"pattern"}:
        text = place.below(node.entries["pattern"], ".pattern").text("write a text with {topic}")
        return Naming("pattern", pattern=text) if text is not None else None
    if keys == {"match", "to"}:
        match = place.below(node.entries["match"], ".match").text("write a regular expression")
        to = place.below(node.entries["to"], ".to").text("write a topic name with $1")
        return Naming("match", match=match, to=to) if match is not None and to is not None else None
    names = node.entries.get("map")
    if keys == {"map"} and isinstance(names, Map) and names.entries:
        pairs = [
            (old, place.below(new, f".map.{old}").text("write the target's topic name"))
            for old, new in names.entries.items()
        ]
        return Naming("map", names=tuple((old, new) for old, new in pairs if new is not None))
    place.refuse("this mapping is not a naming policy", _NAMING_FIX)
    return None


def forward(place: Place) -> str | tuple[str, ...] | None:
    """Parses ``auto``, ``local`` or a list of aliases."""
    fix = "write auto, local, or a list of aliases"
    if isinstance(place.node, Scalar):
        return choice("auto", "local")(place)  # type: ignore[no-any-return]  # a parser of words
    texts = _texts(place, fix)
    if texts is None:
        return None
    if not texts:
        place.refuse("an empty list forwards nothing", fix)
        return None
    return tuple(dict.fromkeys(text for _, text in texts))


def start(place: Place) -> str | int | None:
    """Parses ``earliest``, ``latest``, milliseconds since 1970, or an ISO 8601 time with its offset from UTC."""
    fix = "write earliest, latest, 2026-01-31T12:00:00Z, or milliseconds since 1970"
    text = place.text(fix)
    if text is None or text in ("earliest", "latest"):
        return text
    moment: int | None = None
    if re.fullmatch(r"[0-9]{1,18}", text):
        moment = int(text)
        if 0 < moment < _FIRST_PLAIN_MS:
            place.refuse(
                f"{quoted(text)} would be {dt.datetime.fromtimestamp(moment / 1000, dt.UTC):%Y-%m-%d}: "
                "a number is milliseconds since 1970",
                fix,
            )
            return None
    else:
        try:
            when = dt.datetime.fromisoformat(text)
        except ValueError:
            when = None
        if when is not None and when.tzinfo is None:
            place.refuse(f"{quoted(text)} has no time zone", f"append Z for UTC: {quoted(text + 'Z')}")
            return None
        if when is not None:
            moment = round(when.timestamp() * 1000)
    if moment is None or not 0 < moment <= _LAST_TIMESTAMP_MS:
        place.refuse(f"{quoted(text)} is not a valid time", fix)
        return None
    return moment
