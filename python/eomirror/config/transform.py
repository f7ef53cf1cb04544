"""
Rules of a link that leave records out and change others, or a query: the setting ``transform``. Pure.

A rule is parsed here and compiled by the extension (`eomirror._native.Transform`), which refuses expressions and paths
that are none.  A query is a single rule of kind ``sql`` or ``python``, which Spark runs (`eomirror.dataframe.query`).
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from eomirror._native import Transform
from eomirror.config.nodes import Map, Place, Scalar, Sequence, kind_of, quoted
from eomirror.config.secret import MASK, Secret, has_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["RULES_SCHEMA", "Rule", "Where", "check_secret", "parse_rules", "transform_of", "written_rule"]

#: As many as the extension counts records of (`MOST_RULES`).
_MOST_RULES = 32
_MOST_FIELDS = 64
_MOST_CHARACTERS = 1_000_000
#: Below it a hash of few possible texts is found by trying secrets.
_SHORT_SECRET = 16
#: Headers of eomirror itself.
_OURS = "eomirror."

_KINDS = ("keep", "drop", "mask", "rename", "remove", "add")
_QUERIES = ("sql", "python")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_QUERY_FIX = 'write {sql: "SELECT key, value, headers FROM records WHERE ..."} or {python: "module:function"}'
_SUBJECTS = ("header", "key", "field", "timestamp", "tombstone")
_TESTS = ("equals", "in", "matches")
_EXAMPLE = "{keep: {topics: [orders], where: {header: region, equals: eu}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """
    Condition on a record.

    Attributes:
        subject: What is looked at: ``header``, ``key``, ``field``, ``timestamp`` or ``tombstone``.
        name: Name of the header, or path of the field; else empty.
        texts: Texts of which it is one; None for any.
        matches: Regular expression that its whole text matches; None for any.
        after: Earliest timestamp, ms; None for any.
        before: First later timestamp, ms; None for any.
        tombstone: Whether the record has no value.
    """

    subject: str
    name: str = ""
    texts: tuple[str, ...] | None = None
    matches: str | None = None
    after: int | None = None
    before: int | None = None
    tombstone: bool = True

    def plain(self) -> dict[str, Any]:
        """Returns the condition as the extension takes it."""
        told: dict[str, Any] = {"in": self.texts, "matches": self.matches}
        if self.subject in ("header", "field"):
            told[self.subject] = self.name
        if self.subject == "timestamp":
            told["timestamp"] = (self.after, self.before)
        if self.subject == "tombstone":
            told["tombstone"] = self.tombstone
        return told

    def written(self) -> dict[str, Any]:
        """Returns the condition in the notation of the file."""
        if self.subject == "timestamp":
            ends = (("after", self.after), ("before", self.before))
            return {"timestamp": {name: each for name, each in ends if each is not None}}
        told: dict[str, Any] = {self.subject: self.name or True}
        if self.subject == "tombstone":
            told["tombstone"] = self.tombstone
        if self.texts is not None:
            told["in"] = list(self.texts)
        if self.matches is not None:
            told["matches"] = self.matches
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """
    A rule.

    Attributes:
        kind: ``keep``, ``drop``, ``mask``, ``rename``, ``remove`` or ``add``; or of a query, ``sql`` or ``python``.
        topics: Full-match expressions of the source topics that it applies to; empty for all.
        where: Condition of ``keep`` and ``drop``.
        tombstones: ``keep``: records without a value are kept, too.
        fields: ``mask``: paths of JSON fields.
        headers: ``mask`` and ``remove``: names of headers.
        record_key: ``mask``: the key of the record, too.
        secret: ``mask``: key of the hash; None for another way to hide.
        truncate: ``mask``: number of characters that are left; None for another way to hide.
        pairs: ``rename``: old and new name; ``add``: name and value.
        query: Text of a query: the statement, or module and function.
    """

    kind: str
    topics: tuple[str, ...] = ()
    where: Where | None = None
    tombstones: bool = False
    fields: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    record_key: bool = False
    secret: Secret | None = None
    truncate: int | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    query: str = ""

    @property
    def drops(self) -> bool:
        """True if it leaves records out."""
        return self.kind in ("keep", "drop")

    @property
    def reads_fields(self) -> bool:
        """True if it reads JSON."""
        return bool(self.fields) or (self.where is not None and self.where.subject == "field")

    def plain(self) -> dict[str, Any]:
        """Returns the rule as the extension takes it, with its secret."""
        told: dict[str, Any] = {
            "kind": self.kind if self.kind in ("keep", "drop", "mask") else "headers",
            "topics": list(self.topics) or None,
        }
        if self.where is not None:
            told |= self.where.plain() | {"tombstones": self.tombstones}
        if self.kind == "mask":
            told |= {
                "fields": list(self.fields),
                "headers": list(self.headers),
                "record_key": self.record_key,
                "secret": None if self.secret is None else self.secret.reveal(),
                "truncate": self.truncate,
            }
        if self.kind == "remove":
            told["remove"] = list(self.headers)
        if self.pairs:
            told[self.kind] = list(self.pairs)
        return told

    def with_secret(self, secret: Secret) -> Self:
        """Returns the rule with another secret."""
        return replace(self, secret=secret)


def transform_of(rules: Iterable[Rule], on_unreadable: str) -> Transform | None:
    """Returns the compiled rules; None if there are none, or a query in their place."""
    plain = [rule.plain() for rule in rules if not rule.query]
    return Transform(plain, on_unreadable) if plain else None


def written_rule(rule: Rule) -> dict[str, Any]:
    """Returns a rule in the notation of the file, without its secret."""
    if rule.query:
        return {rule.kind: rule.query}
    told: dict[str, Any] = {"topics": list(rule.topics)} if rule.topics else {}
    if rule.where is not None:
        told["where"] = rule.where.written()
    if rule.tombstones:
        told["tombstones"] = True
    if rule.kind == "mask":
        if rule.fields:
            told["fields"] = list(rule.fields)
        if rule.record_key:
            told["record_key"] = True
        if rule.secret is not None:
            told |= {"with": "hash", "secret": MASK}
        else:
            told["with"] = "null" if rule.truncate is None else {"truncate": rule.truncate}
    if rule.headers:
        told["headers"] = list(rule.headers)
    if rule.pairs:
        told["headers"] = dict(rule.pairs)
    return {rule.kind: told}


def parse_rules(place: Place) -> tuple[Rule, ...] | None:
    """Parses a list of rules, or a query; secrets with a reference are not resolved yet."""
    if isinstance(place.node, Map):
        return _query(place, place.node)
    if not isinstance(place.node, Sequence):
        place.refuse(f"this is {kind_of(place.node)}", f"write a list of rules, such as [{_EXAMPLE}]")
        return None
    if len(place.node.items) > _MOST_RULES:
        place.refuse(f"there are {len(place.node.items)} rules", f"write at most {_MOST_RULES}")
        return None
    faults = len(place.faults.faults)
    rules = [_rule(place.below(node, f"[{number}]")) for number, node in enumerate(place.node.items)]
    if len(place.faults.faults) > faults:
        return None
    return tuple(rule for rule in rules if rule is not None)


def _query(place: Place, node: Map) -> tuple[Rule, ...] | None:
    if len(node.entries) != 1 or next(iter(node.entries)) not in _QUERIES:
        place.refuse("a transform is a list of rules, or a mapping with one of: sql, python", _QUERY_FIX)
        return None
    ((kind, body),) = node.entries.items()
    inner = place.below(body, f".{kind}")
    text = inner.text(_QUERY_FIX)
    if text is None:
        return None
    text = text.strip()
    if kind == "python" and not _FUNCTION.fullmatch(text):
        inner.refuse(
            f"{quoted(text)} is not MODULE:FUNCTION", 'write such as python: "masking:mask_customers"'
        )
        return None
    if kind == "sql" and not re.match(r"(?is)select\b.*\bfrom\b", text):
        inner.refuse("this is no SELECT ... FROM records", _QUERY_FIX)
        return None
    return (Rule(kind=kind, query=text),)


def _rule(place: Place) -> Rule | None:
    node = place.node
    if not isinstance(node, Map) or len(node.entries) != 1 or next(iter(node.entries)) not in _KINDS:
        place.refuse("a rule is a mapping with one of: " + ", ".join(_KINDS), f"write {_EXAMPLE}")
        return None
    ((kind, body),) = node.entries.items()
    inner = place.below(body, f".{kind}")
    parser = _RuleParser(kind, inner)
    rule = parser.rule()
    if rule is None or parser.refused:
        return None
    try:
        # the secret is not resolved yet, and no expression depends on it
        transform_of([rule], "stop")
    except ValueError as error:
        inner.refuse(str(error), "correct it")
        return None
    return rule


class _RuleParser:
    """
    Parses one rule.

    Args:
        kind: Its kind.
        place: Its settings.
    """

    def __init__(self, kind: str, place: Place) -> None:
        self._kind = kind
        self._place = place
        self._node = place.node if isinstance(place.node, Map) else Map(line=place.node.line)
        self._before = len(place.faults.faults)

    @property
    def refused(self) -> bool:
        """True if the rule has a fault."""
        return len(self._place.faults.faults) > self._before

    def rule(self) -> Rule | None:
        """Returns the rule; None if it has no form of one."""
        if not isinstance(self._place.node, Map):
            self._place.entries(f"write a mapping, as in {_EXAMPLE}")
            return None
        known = {
            "keep": ("topics", "where", "tombstones"),
            "drop": ("topics", "where"),
            "mask": ("topics", "fields", "headers", "record_key", "with", "secret"),
        }.get(self._kind, ("topics", "headers"))
        for key, value in self._node.entries.items():
            if key not in known:
                fix = f"known keys: {', '.join(known)}"
                self._place.below(value, f".{key}").refuse("unknown key", fix)
            elif key != "secret" and any(map(has_reference, _texts_in(value))):
                self._place.below(value, f".{key}").refuse(
                    "only `secret` of a mask may refer to the environment or a file", "write the value here"
                )
        rule = Rule(kind=self._kind, topics=self._names("topics"))
        if rule.drops:
            return replace(rule, where=self._where(), tombstones=self._flag("tombstones"))
        if self._kind == "mask":
            return self._mask(rule)
        if self._kind == "remove":
            return replace(rule, headers=self._names("headers", needed=True))
        return replace(rule, pairs=self._pairs())

    def _at(self, key: str) -> Place | None:
        node = self._node.entries.get(key)
        return None if node is None else self._place.below(node, f".{key}")

    def _refuse(self, key: str, message: str, fix: str) -> None:
        (self._at(key) or self._place.below(Scalar("", line=self._node.line), f".{key}")).refuse(message, fix)

    def _names(self, key: str, *, needed: bool = False) -> tuple[str, ...]:
        place = self._at(key)
        if place is None:
            if needed:
                self._refuse(key, "is missing", "write a list of names")
            return ()
        nodes = place.node.items if isinstance(place.node, Sequence) else [place.node]
        found = [place.below(node, f"[{n}]").text("write a list of texts") for n, node in enumerate(nodes)]
        names = tuple(text for text in found if text is not None)
        if not names and isinstance(place.node, Sequence):
            place.refuse("an empty list has no effect", "remove it, or write a list of texts")
        for name in names if key == "headers" else ():
            if name.startswith(_OURS):
                place.refuse(f"{quoted(name)} is a header of eomirror itself", "choose another header")
        return names

    def _flag(self, key: str) -> bool:
        place = self._at(key)
        text = None if place is None else place.text("write true or false")
        return place is not None and text is not None and bool(_flag(place, text, ("true", "false")))

    def _where(self) -> Where | None:
        place = self._at("where")
        if place is None:
            self._refuse("where", "is missing", "write a condition, or exclude the topic with `exclude`")
            return None
        if not isinstance(place.node, Map):
            place.entries("write a condition, such as {header: region, equals: eu}")
            return None
        keys = list(place.node.entries)
        subjects = [key for key in keys if key in _SUBJECTS]
        tests = [key for key in keys if key in _TESTS]
        if len(subjects) != 1 or len(tests) > 1 or len(keys) != len(subjects) + len(tests):
            place.refuse(
                "a condition names one of "
                + ", ".join(_SUBJECTS)
                + ", and at most one of "
                + ", ".join(_TESTS),
                "write such as {header: region, equals: eu} or {field: $.type, in: [a, b]}; several rules make "
                "several conditions",
            )
            return None
        return _condition(place, place.node, subjects[0], tests[0] if tests else "")

    def _mask(self, rule: Rule) -> Rule:
        rule = replace(
            rule,
            fields=self._names("fields"),
            headers=self._names("headers"),
            record_key=self._flag("record_key"),
        )
        if not (rule.fields or rule.headers or rule.record_key):
            self._place.refuse("it hides nothing", "write fields, headers or record_key: true")
        if len(rule.fields) > _MOST_FIELDS:
            self._refuse(
                "fields", f"there are {len(rule.fields)} fields", f"write at most {_MOST_FIELDS} a rule"
            )
        place = self._at("with")
        fix = "write `hash` with a secret, `null`, or {truncate: 4}"
        if place is None:
            self._refuse("with", "is missing", fix)
            return rule
        node = place.node
        secret = self._secret()
        if isinstance(node, Scalar) and node.text == "hash":
            if secret is None and not self.refused:
                self._refuse(
                    "secret",
                    "is missing: without one, every reader finds the text by trying",
                    "write secret: ${env:NAME}",
                )
            return replace(rule, secret=secret)
        if secret is not None:
            self._refuse("secret", "only `with: hash` has a secret", "remove it")
        if isinstance(node, Scalar) and (node.is_null or node.text == "null"):
            return rule
        if isinstance(node, Map) and set(node.entries) == {"truncate"}:
            text = place.below(node.entries["truncate"], ".truncate").text("write a number of characters")
            if text is not None and re.fullmatch(r"[0-9]{1,7}", text) and int(text) <= _MOST_CHARACTERS:
                return replace(rule, truncate=int(text))
        place.refuse("this is no way to hide a text", fix)
        return rule

    def _secret(self) -> Secret | None:
        place = self._at("secret")
        text = None if place is None else place.text("write secret: ${env:NAME}")
        if place is None or text is None:
            return None
        if has_reference(text):
            return Secret(text, text)
        check_secret(place, text)
        return Secret(text)

    def _pairs(self) -> tuple[tuple[str, str], ...]:
        place = self._at("headers")
        fix = "write headers: {old: new}" if self._kind == "rename" else "write headers: {name: value}"
        if place is None or not isinstance(place.node, Map) or not place.node.entries:
            self._refuse("headers", "is no mapping of names", fix)
            return ()
        found = []
        for name, node in place.node.entries.items():
            inner = place.below(node, f".{name}")
            text = inner.text(fix)
            if name.startswith(_OURS) or (self._kind == "rename" and (text or "").startswith(_OURS)):
                inner.refuse("this is a header of eomirror itself", "choose another header")
            if text is not None:
                found.append((name, text))
        return tuple(found)


def _condition(place: Place, node: Map, subject: str, test: str) -> Where | None:
    inner = place.below(node.entries[subject], f".{subject}")
    if subject == "timestamp":
        return _times(inner, test)
    text = inner.text("write a single value")
    if text is None:
        return None
    if subject == "tombstone":
        if test:
            place.refuse("a tombstone is compared with nothing", f"remove {test}")
        flag = _flag(inner, text, ("true", "false"))
        return None if flag is None else Where(subject=subject, tombstone=flag)
    if subject == "key" and _flag(inner, text, ("true",)) is None:
        return None
    where = Where(subject=subject, name="" if subject == "key" else text)
    return _tested(where, place.below(node.entries[test], f".{test}"), test) if test else where


def _flag(place: Place, text: str, words: tuple[str, ...]) -> bool | None:
    if text.lower() not in words:
        place.refuse(f"{quoted(text)} is not {' or '.join(words)}", f"write {words[0]}")
        return None
    return text.lower() == "true"


def _tested(where: Where, given: Place, test: str) -> Where | None:
    if test == "in":
        if not isinstance(given.node, Sequence) or not given.node.items:
            given.refuse("this is no list of texts", "write in: [a, b]")
            return None
        texts = [given.below(item, f"[{n}]").text("write a text") for n, item in enumerate(given.node.items)]
        return replace(where, texts=tuple(each for each in texts if each is not None))
    value = given.text("write a text")
    if value is None:
        return None
    return replace(where, matches=value) if test == "matches" else replace(where, texts=(value,))


def _times(place: Place, test: str) -> Where | None:
    fix = "write timestamp: {after: 2026-01-31T00:00:00Z}, with `before`, or both"
    node = place.node
    if test or not isinstance(node, Map) or not node.entries or set(node.entries) - {"after", "before"}:
        place.refuse("this is no range of times", fix)
        return None
    found: dict[str, int] = {}
    for key, value in node.entries.items():
        inner = place.below(value, f".{key}")
        text = inner.text(fix)
        moment = None if text is None else _moment(text)
        if moment is None:
            inner.refuse("this is no time", "write 2026-01-31T12:00:00Z, or milliseconds since 1970")
            return None
        found[key] = moment
    return Where(subject="timestamp", after=found.get("after"), before=found.get("before"))


def _moment(text: str) -> int | None:
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        when = dt.datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if when.tzinfo is None else round(when.timestamp() * 1000)


def check_secret(place: Place, text: str) -> None:
    """Refuses an empty secret, and warns of a short one."""
    if not text:
        place.refuse("the secret is empty", "use at least 16 random characters")
    elif len(text) < _SHORT_SECRET:
        place.faults.warn(
            place.path,
            "the secret is short, so that texts are found by trying secrets",
            f"use at least {_SHORT_SECRET} random characters",
            place.node.line,
        )


def _texts_in(node: Map | Scalar | Sequence) -> list[str]:
    if isinstance(node, Scalar):
        return [node.text]
    inner = node.items if isinstance(node, Sequence) else list(node.entries.values())
    return [text for each in inner for text in _texts_in(each)]


def _object(needed: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    told = {"type": "object", "additionalProperties": False, "properties": properties}
    return {**told, "required": list(needed)} if needed else told


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT, "minItems": 1}
_FLAG = {"type": "boolean"}
_TIME = {"type": ["string", "integer"]}
_SCALAR = {"type": ["string", "number", "boolean"]}
_WHERE = _object(
    header=_TEXT,
    key={"const": True},
    field={"type": "string", "pattern": r"^\$"},
    timestamp=_object(after=_TIME, before=_TIME),
    tombstone=_FLAG,
    equals=_SCALAR,
    matches=_TEXT,
    **{"in": {"type": "array", "items": _SCALAR, "minItems": 1}},
)
_NAMES = {"type": "object", "minProperties": 1, "additionalProperties": _TEXT}
_WAY = {
    "oneOf": [
        {"enum": ["hash", "null", None]},
        _object(("truncate",), truncate={"type": "integer", "minimum": 0, "maximum": _MOST_CHARACTERS}),
    ]
}

_LIST: dict[str, Any] = {
    "type": "array",
    "maxItems": _MOST_RULES,
    "items": {
        "oneOf": [
            _object((kind,), **{kind: body})
            for kind, body in (
                ("keep", _object(("where",), topics=_TEXTS, where=_WHERE, tombstones=_FLAG)),
                ("drop", _object(("where",), topics=_TEXTS, where=_WHERE)),
                (
                    "mask",
                    _object(
                        ("with",),
                        topics=_TEXTS,
                        fields={**_TEXTS, "maxItems": _MOST_FIELDS},
                        headers=_TEXTS,
                        record_key=_FLAG,
                        secret=_TEXT,
                        **{"with": _WAY},
                    ),
                ),
                ("rename", _object(("headers",), topics=_TEXTS, headers=_NAMES)),
                ("remove", _object(("headers",), topics=_TEXTS, headers=_TEXTS)),
                ("add", _object(("headers",), topics=_TEXTS, headers=_NAMES)),
            )
        ]
    },
}

#: JSON Schema of the setting.
RULES_SCHEMA: dict[str, Any] = {
    "oneOf": [
        _LIST,
        _object(("sql",), sql=_TEXT),
        _object(("python",), python={"type": "string", "pattern": f"^{_FUNCTION.pattern}$"}),
    ]
}
