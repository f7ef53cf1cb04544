"""
Converts Connect's transformations (SMTs) of MirrorMaker 2's source connector to rules of `transform`. Pure.

Source: Apache Kafka 4.3, connect/transforms (Filter, InsertHeader, DropHeaders and the predicates), and MirrorMaker 2's
MirrorMakerConfig.java: keys, values and headers are bytes (ByteArrayConverter), so a transformation of fields fails on
each record.  Transformations see the topic's name on the target.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ConvertedRules", "convert_transforms"]

_TRANSFORMS = "org.apache.kafka.connect.transforms."
_PREDICATES = f"{_TRANSFORMS}predicates."
_OF_FIELDS = (
    "it changes fields of Connect's structures; MirrorMaker 2's keys and values are bytes, on which it fails, so it "
    "cannot have worked here"
)
_HOW_TO_MASK = "for JSON write `transform: [{mask: {fields: [...], with: ...}}]`"
#: Transformations that are refused, by name, and why.
_REFUSED: Mapping[str, str] = {
    "MaskField": f"{_OF_FIELDS}; {_HOW_TO_MASK}",
    "ReplaceField": f"{_OF_FIELDS}; {_HOW_TO_MASK}",
    "InsertField": f"{_OF_FIELDS}; the place of a record is in the header of `origin_header: true`",
    "RegexRouter": "it names the copies: write it as `naming: {match: ..., to: ...}`, which sees the source's names",
    "TimestampRouter": "records of one topic would go to topics by their time, and each topic has one copy, in which "
    "order and offsets are kept",
    "HeaderFrom": _OF_FIELDS,
    "ValueToKey": _OF_FIELDS,
    "ExtractField": _OF_FIELDS,
    "HoistField": _OF_FIELDS,
    "Flatten": _OF_FIELDS,
    "Cast": _OF_FIELDS,
    "TimestampConverter": _OF_FIELDS,
    "DropNull": _OF_FIELDS,
    "SetSchemaMetadata": "records that are bytes have no schema",
}
_UNKNOWN = "it is no transformation of Apache Kafka's own, and a link runs no Java"
_SOURCE_NAMES = (
    "its predicate matches names of copies, and rules match those of the source; write the rule yourself"
)


@dataclass(slots=True)
class ConvertedRules:
    """
    Transformations of a flow.

    Attributes:
        rules: Rules of `transform`, as plain values.
        exclude: Expressions of topics that are left out as a whole.
        honoured: Names that are carried over, without ``transforms.``, such as ``first.type``.
        refused: Reason of each name that is not.
    """

    rules: list[dict[str, Any]] = field(default_factory=list)
    exclude: list[str] = field(default_factory=list)
    honoured: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def convert_transforms(given: Mapping[str, str], beginning: str) -> ConvertedRules:
    """
    Converts the transformations of a flow.

    Args:
        given: Value of each key of the flow that begins with ``transforms`` or ``predicates``.
        beginning: Text with which names of copies begin, before that of the source's topic.
    """
    found = ConvertedRules()
    for name in _listed(given.get("transforms", "")):
        own = f"transforms.{name}."
        settings = {key.removeprefix(own): value for key, value in given.items() if key.startswith(own)}
        type_, _, part = settings.get("type", "").removeprefix(_TRANSFORMS).partition("$")
        reason = _REFUSED.get(type_, "")
        if type_ in ("Filter", "InsertHeader", "DropHeaders"):
            reason = _add(found, type_, settings, given, beginning)
        elif not reason:
            reason = _UNKNOWN
        shown = f"{type_}${part}" if part else type_
        keys = [f"{own}{key}" for key in settings]
        if reason:
            found.refused |= dict.fromkeys(keys or ["transforms"], f"{shown or name}: {reason}")
            continue
        found.honoured += keys
        predicate = settings.get("predicate", "")
        found.honoured += [key for key in given if predicate and key.startswith(f"predicates.{predicate}.")]
    return found


def _add(
    found: ConvertedRules,
    type_: str,
    settings: Mapping[str, str],
    given: Mapping[str, str],
    beginning: str,
) -> str:
    """Adds the rule of a transformation; returns why there is none, else an empty text."""
    name = settings.get("predicate", "")
    negate = settings.get("negate", "false").lower() == "true"
    predicate = given.get(f"predicates.{name}.type", "").removeprefix(_PREDICATES)
    topics: list[str] = []
    if predicate == "TopicNameMatches":
        pattern = _of_source(given.get(f"predicates.{name}.pattern", ""), beginning)
        if pattern is None or negate:
            return _SOURCE_NAMES
        topics = [pattern]
    if type_ == "Filter":
        return _filter(found, predicate, given.get(f"predicates.{name}.name", ""), topics, negate=negate)
    if name and not topics:
        return "a rule that changes headers goes by topics only, and its predicate looks at records"
    if type_ == "DropHeaders":
        body: dict[str, Any] = {"headers": _listed(settings.get("headers", ""))}
        kind = "remove"
    else:
        body = {"headers": {settings.get("header", ""): settings.get("value.literal", "")}}
        kind = "add"
    found.rules.append({kind: ({"topics": topics} if topics else {}) | body})
    return ""


def _filter(found: ConvertedRules, predicate: str, header: str, topics: list[str], *, negate: bool) -> str:
    if topics:
        found.exclude += topics
    elif predicate == "HasHeaderKey" and header:
        found.rules.append({"keep" if negate else "drop": {"where": {"header": header}}})
    elif predicate == "RecordIsTombstone":
        found.rules.append({"drop": {"where": {"tombstone": not negate}}})
    elif not predicate:
        return "without a predicate it drops every record"
    else:
        return "its predicate is none of Apache Kafka's own"
    return ""


def _of_source(pattern: str, beginning: str) -> str | None:
    """Returns the expression of the source's names for one of the copies' names; None if it cannot be told."""
    if not beginning:
        return pattern or None
    if pattern.startswith(".*"):
        return pattern
    for start in (re.escape(beginning), beginning):
        if pattern.startswith(start) and len(pattern) > len(start):
            return pattern.removeprefix(start)
    return None


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
