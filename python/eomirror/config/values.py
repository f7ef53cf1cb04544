"""
Settings of a link and their kinds of values: parser, JSON Schema, default and description in one place. Pure.

A kind is a `Setting` without its description; the fields of `eomirror.config.model.Link` add it.  A parser takes a
`Place`, which has the node and its path.  It returns a typed value, or adds a fault and returns None.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eomirror.config.acl_rules import ACLS_SCHEMA, AclRule, parse_acls
from eomirror.config.nodes import Map, Place, Scalar, Sequence, kind_of, quoted
from eomirror.config.transform import RULES_SCHEMA, Rule, parse_rules, written_rule
from eomirror.topology.filters import pattern_fault
from eomirror.topology.naming import Naming, naming_fault

__all__ = [
    "ACLS",
    "ALIAS",
    "FLAG",
    "FLAG_ON",
    "FORWARD",
    "LINK_NAME",
    "NAMING",
    "START",
    "TRANSFORM",
    "Setting",
    "choice",
    "duration",
    "duration_text",
    "foreign_sign",
    "integer",
    "patterns",
    "seconds_of",
    "setting",
    "settings_of",
    "without_look_around",
    "written",
]

Parser = Callable[[Place], Any]

_DURATION = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_SCHEMA = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)$"}
# a name with a * behind a letter, and nothing else that only a regular expression has
_GLOB = re.compile(r"[A-Za-z0-9._*-]*?([A-Za-z0-9_-])\*[A-Za-z0-9._*-]*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
# an escape, a class, or any other character of an expression
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|.", re.DOTALL)
# repetitions, and the beginnings of groups
_MARKUP = re.compile(r"\{\d+(?:,\d*)?\}|(?<=\()\?(?:P?<\w+>|[a-zA-Z-]*:?)|\\[pP]\{[^}]*\}|\\x\{[^}]*\}")
_SIGNS = frozenset(".^$*+?{}[]|()")
_TEXT = {"type": "string", "minLength": 1}
# 1973: seconds since 1970, and dates without dashes, are smaller numbers
_FIRST_PLAIN_MS = 100_000_000_000
#: 9999-12-31, the last year that ISO 8601 writes with four digits
_LAST_TIMESTAMP_MS = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Setting:
    """
    A setting of a link, or a kind of value if it has no description.

    Attributes:
        parse: Returns the value of a node, or adds a fault and returns None.
        schema: JSON Schema of the value.
        default: Value if the file does not have the setting.
        shown: The default as a user would write it; empty if the setting is required.
        text: Description for users.
        shareable: True if the setting is allowed under ``defaults``.
    """

    parse: Parser
    schema: Mapping[str, Any]
    default: Any = None
    shown: str = ""
    text: str = ""
    shareable: bool = True


def setting(kind: Setting, text: str) -> Any:
    """Returns a dataclass field with the default of its kind."""
    return field(default=kind.default, metadata=described(kind, text))


def described(kind: Setting, text: str, *, shareable: bool = True) -> dict[str, Setting]:
    """Returns the metadata of a dataclass field that callers must always give."""
    return {"setting": dataclasses.replace(kind, text=text, shareable=shareable)}


def settings_of(owner: type) -> dict[str, Setting]:
    """Returns the settings of a dataclass by name, in the order of its fields."""
    return {each.name: each.metadata["setting"] for each in dataclasses.fields(owner) if each.metadata}


def written(value: Any) -> Any:
    """Returns the value of a setting in the notation of the file, as plain values."""
    if isinstance(value, float):
        return duration_text(value)
    if isinstance(value, Naming):
        return _written_naming(value)
    if isinstance(value, Rule):
        return written_rule(value)
    if isinstance(value, AclRule):
        return value.written()
    if isinstance(value, tuple) and value and isinstance(value[0], Rule) and value[0].query:
        return written_rule(value[0])
    return [written(each) for each in value] if isinstance(value, tuple) else value


def duration(default: str, least: float, most: float) -> Setting:
    """Returns the kind of durations with a unit (ms, s, m, h), in seconds."""

    def parse(place: Place) -> float | None:
        fix = f"write a number with ms, s, m or h, such as {default}"
        text = place.text(fix)
        if text is None:
            return None
        seconds = seconds_of(text)
        if seconds is None:
            unit = " has no unit" if re.fullmatch(r"\d+(\.\d+)?", text) else " is not a duration"
            place.refuse(f"{quoted(text)}{unit}", fix)
            return None
        if not least <= seconds <= most:
            place.refuse(
                f"{quoted(text)} is out of range",
                f"choose between {duration_text(least)} and {duration_text(most)}",
            )
            return None
        return seconds

    return Setting(parse, _DURATION_SCHEMA, seconds_of(default), default)


def seconds_of(text: str) -> float | None:
    """Returns the seconds of a duration such as ``100ms``; None for any other text."""
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNITS[found[2]] if found else None


def duration_text(seconds: float) -> str:
    """Returns seconds in the notation of the file, such as ``100ms``."""
    milliseconds = round(seconds * 1000)
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"


def integer(default: int | None, least: int, most: int) -> Setting:
    """Returns the kind of whole numbers."""

    def parse(place: Place) -> int | None:
        fix = f"write a whole number from {least} to {most}"
        text = place.text(fix)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,20}", text) or not least <= int(text) <= most:
            place.refuse(f"{quoted(text)} is not in range", fix)
            return None
        return int(text)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Setting(parse, schema, default, "unset" if default is None else str(default))


def choice(*words: str) -> Setting:
    """Returns the kind of one of ``words``, the first by default; ``on`` and ``off`` are words, not booleans."""

    def parse(place: Place) -> str | None:
        fix = f"choose one of: {', '.join(words)}"
        text = place.text(fix)
        if text is not None and text not in words:
            place.refuse(f"{quoted(text)} is not a valid value", fix)
            return None
        return text

    return Setting(parse, {"enum": list(words)}, words[0], words[0])


def _flag(place: Place) -> bool | None:
    """Parses a boolean."""
    fix = "write true or false"
    text = place.text(fix)
    if text is not None and text.lower() not in {"true", "false"}:
        place.refuse(f"{quoted(text)} is not a boolean", fix)
        return None
    return None if text is None else text.lower() == "true"


def _word(place: Place) -> str | None:
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


def patterns(default: list[str] | None = None, *, of: str = "topic") -> Setting:
    """
    Returns the kind of lists of full-match regular expressions; without a default the list cannot be empty.

    Args:
        default: The default.
        of: What has the names: ``topic``, ``group`` or ``setting``.
    """

    def parse(place: Place) -> tuple[str, ...] | None:
        texts = _texts(place, 'write a list of regular expressions, such as ["orders", "pay.*"]')
        if texts is None:
            return None
        for inner, text in texts:
            _check_pattern(inner, text, of)
        if default is None and isinstance(place.node, Sequence) and not place.node.items:
            place.refuse("an empty list matches nothing", 'write [".*"] for all topics')
        return tuple(text for _, text in texts)

    schema = {"oneOf": [{"type": "array", "items": _TEXT}, _TEXT]}
    return Setting(parse, schema, tuple(default or ()), "" if default is None else json.dumps(default))


def _check_pattern(place: Place, text: str, of: str) -> None:
    if not text:
        place.refuse("an empty expression matches nothing", "remove it")
    elif problem := pattern_fault(text):
        fix = "correct the regular expression"
        if "(?=" in text or "(?!" in text or "(?<" in text:
            other = {"topic": "`exclude`", "group": "`exclude_groups`"}.get(of, "names")
            fix = f"look-around is not supported (matching takes linear time); use {other} instead"
            if parts := without_look_around(text):
                fix += f": write {quoted(parts[0])}, and {', '.join(map(quoted, parts[1]))} there"
        elif text.startswith("*"):
            fix = f"write {quoted(_of_glob(text))}: these are regular expressions, not file patterns"
        place.refuse(f"{quoted(text)} is not a regular expression: {problem}", fix)
    elif "," in text and "{" not in text:
        place.refuse(
            f"{quoted(text)} contains a comma, which names do not have", "write a list: [first, second]"
        )
    elif sign := foreign_sign(text, of):
        meant = re.sub(r"\s[#!].*", "", text).strip().rstrip(";").strip("\"'` ").replace('\\"', "")
        place.faults.warn(
            place.path,
            f"{quoted(text)} has {quoted(sign)}, which no {of}'s name has, so it matches none",
            f"write {quoted(meant)}" if meant and not foreign_sign(meant, of) else "remove it",
            place.node.line,
        )
    elif found := _GLOB.fullmatch(text):
        place.faults.warn(
            place.path,
            f"{quoted(text)} is a regular expression: its * repeats the {quoted(found[1])} before it",
            f"write {quoted(_of_glob(text))} if anything may stand there",
            place.node.line,
        )


def foreign_sign(pattern: str, of: str) -> str:
    """
    Returns the first literal character of an expression that no name can have; empty if there is none.

    A group's name may have any character: there only blanks and quotation marks at its ends, a remark, and a semicolon
    at the end are taken for slips.
    """
    if of == "group":
        found = re.search(r"^\s|\s$|;$|\s#|^([\"']).*\1$", pattern)
        return found[0][:1] if found else ""
    for token in _TOKEN.findall(_MARKUP.sub("", pattern)):
        sign = token.removeprefix("\\")
        if token.startswith("[") or (token.startswith("\\") and sign.isalnum()) or token in _SIGNS:
            continue
        if not re.fullmatch(r"[A-Za-z0-9._-]", sign):
            return str(sign)
    return ""


def without_look_around(pattern: str) -> tuple[str, list[str]] | None:
    """
    Returns an expression without negative look-ahead at its start or look-behind at its end, and what it leaves out.

    Returns None if it has none, or other look-around.
    """
    rest, excluded = pattern.removeprefix("^"), []
    while rest.startswith("(?!") and (end := _closing(rest)):
        inner, rest = rest[3:end], rest[end + 1 :]
        whole = inner.endswith("$") and not inner.endswith("\\$")
        text = f"({inner.removesuffix('$')})" if "|" in inner else inner.removesuffix("$")
        excluded.append(text if whole or text.endswith(".*") else f"{text}.*")
    if found := re.fullmatch(r"(.*)\(\?<!([^()]+)\)\$?", rest):
        rest = found[1]
        excluded.append(f".*({found[2]})" if "|" in found[2] else f".*{found[2]}")
    if not excluded or not rest or any(pattern_fault(each) for each in (rest, *excluded)):
        return None
    return rest, excluded


def _closing(text: str) -> int:
    """Returns the index of the parenthesis that closes the one at the start; 0 if there is none."""
    depth = at = 0
    for sign in _TOKEN.findall(text):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if depth == 0:
            return at
        at += len(sign)
    return 0


def _of_glob(text: str) -> str:
    """Returns the regular expression that a file pattern such as ``pay*`` was meant to be."""
    return re.sub(r"(?<!\.)\*", ".*", text)


_NAMING_FIX = (
    "write prefix, identity, {pattern: ...}, {match: ..., to: ...}, {map: {old: new}}, or {separator: ...} for another "
    "text than '.' between alias and topic"
)
_SEPARATOR_KEYS = frozenset({"policy", "separator", "separator_for_internal"})


def _naming(place: Place) -> Naming | None:
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
    if "separator" in keys <= _SEPARATOR_KEYS:
        return _separated(place, node)
    names = node.entries.get("map")
    if keys == {"map"} and isinstance(names, Map) and names.entries:
        pairs = [
            (old, place.below(new, f".map.{old}").text("write the target's topic name"))
            for old, new in names.entries.items()
        ]
        return Naming("map", names=tuple((old, new) for old, new in pairs if new is not None))
    place.refuse("this mapping is not a naming policy", _NAMING_FIX)
    return None


def _separated(place: Place, node: Map) -> Naming | None:
    """Parses a policy of MirrorMaker 2 with another separator than the dot."""
    text = place.below(node.entries["separator"], ".separator").text("write a text such as _ in quotes")
    policy: str | None = "prefix"
    if given := node.entries.get("policy"):
        policy = choice("prefix", "identity").parse(place.below(given, ".policy"))
    internal: bool | None = True
    if given := node.entries.get("separator_for_internal"):
        internal = _flag(place.below(given, ".separator_for_internal"))
    if text is None or policy is None or internal is None:
        return None
    return Naming(policy, separator=text, separator_for_internal=internal)


def _forward(place: Place) -> str | tuple[str, ...] | None:
    """Parses ``auto``, ``local`` or a list of aliases."""
    fix = "write auto, local, or a list of aliases"
    if isinstance(place.node, Scalar):
        return choice("auto", "local").parse(place)  # type: ignore[no-any-return]  # a parser of words
    texts = _texts(place, fix)
    if texts is None:
        return None
    if not texts:
        place.refuse("an empty list forwards nothing", fix)
        return None
    return tuple(dict.fromkeys(text for _, text in texts))


def _start(place: Place) -> str | int | None:
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


def _written_naming(naming: Naming) -> Any:
    if naming.kind == "pattern":
        return {"pattern": naming.pattern}
    if naming.kind == "match":
        return {"match": naming.match, "to": naming.to}
    if naming.kind == "map":
        return {"map": dict(naming.names)}
    if naming.separator == ".":
        return naming.kind
    written_: dict[str, Any] = {} if naming.kind == "prefix" else {"policy": naming.kind}
    written_["separator"] = naming.separator
    return written_ if naming.separator_for_internal else {**written_, "separator_for_internal": False}


def _object(
    *, optional: Mapping[str, Any] | None = None, **properties: Mapping[str, Any]
) -> Mapping[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


_ANY_TEXT = {"type": "string"}

#: Alias of a cluster.
ALIAS = Setting(_word, {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"})
LINK_NAME = Setting(
    _word,
    {"type": "string", "pattern": "^([A-Za-z0-9_-]+|[A-Za-z0-9_-]+->[A-Za-z0-9_-]+)$"},
    shown="source->target",
)
FLAG = Setting(_flag, {"type": "boolean"}, default=False, shown="false")
#: A boolean that is true by default.
FLAG_ON = dataclasses.replace(FLAG, default=True, shown="true")
FORWARD = Setting(
    _forward,
    {"oneOf": [{"enum": ["auto", "local"]}, {"type": "array", "items": ALIAS.schema, "minItems": 1}]},
    "auto",
    "auto",
)
#: Start of the first run: a word, or milliseconds since 1970.
START = Setting(
    _start, {"oneOf": [_ANY_TEXT, {"type": "integer", "minimum": _FIRST_PLAIN_MS}]}, "earliest", "earliest"
)
#: ACL entries to carry: MirrorMaker 2's profile, or rules.
ACLS = Setting(parse_acls, ACLS_SCHEMA, default=False, shown="false")
TRANSFORM = Setting(parse_rules, RULES_SCHEMA, (), "[]")
NAMING = Setting(
    _naming,
    {
        "oneOf": [
            {"enum": ["prefix", "identity"]},
            _object(pattern={"type": "string", "pattern": r"\{topic\}"}),
            _object(match=_ANY_TEXT, to=_ANY_TEXT),
            _object(
                separator={"type": "string", "pattern": "^[A-Za-z0-9._-]+$"},
                optional={
                    "policy": {"enum": ["prefix", "identity"]},
                    "separator_for_internal": {"type": "boolean"},
                },
            ),
            _object(map={"type": "object", "minProperties": 1, "additionalProperties": _ANY_TEXT}),
        ]
    },
    Naming(),
    "prefix",
)
