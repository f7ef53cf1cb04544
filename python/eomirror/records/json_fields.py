"""
Types of JSON fields, by the annotations of a record's class: the check of a value, and its form in JSON. Pure.

JSON has no schema: a number that is a string would fail later, far from the faulty record.  So every record is checked
where it is decoded.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _typeshed import DataclassInstance

__all__ = [
    "JSON_TYPES",
    "MOST_CHARACTERS",
    "Excerpt",
    "JsonType",
    "Whole",
    "by_topic",
    "checked",
    "text",
    "whole",
]

#: An integer from 0.
Whole: TypeAlias = int
#: A text that is written up to `MOST_CHARACTERS`.
Excerpt: TypeAlias = str

#: Every starting lane reads control, so the length of a text of an informative record is limited.
MOST_CHARACTERS = 1_000

Record = TypeVar("Record", bound="DataclassInstance")


def text(value: Any) -> str:
    """
    Returns ``value`` if it is a text.

    Raises:
        TypeError: It is not.
    """
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def whole(value: Any) -> int:
    """
    Returns ``value`` if it is an integer from 0.

    Raises:
        ValueError: It is not.
    """
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is not an integer from 0")
    return value


@dataclass(frozen=True, slots=True)
class JsonType:
    """
    Type of a field.

    Attributes:
        read: Returns the value from its JSON form; raises AttributeError, KeyError, TypeError or ValueError if it has
            another.
        written: Returns the JSON form of a value.
    """

    read: Callable[[Any], Any]
    written: Callable[[Any], Any] = lambda value: value


def by_topic(offsets: Mapping[SourcePartition, Any]) -> dict[str, dict[str, Any]]:
    """Returns the JSON form of values by partition: by topic, and by number as text; sorted."""
    topics: dict[str, dict[str, Any]] = defaultdict(dict)
    for source, offset in sorted(offsets.items()):
        topics[source.topic][str(source.partition)] = offset
    return topics


def checked(record: Record) -> Record:
    """
    Returns the record if its fields have the types that its class declares.

    Args:
        record: Record with fields that are integers, texts, booleans, or mappings of text to these.

    Raises:
        TypeError: A field has another type; names the field.
    """
    for name, read in _declared(type(record)):
        try:
            read(getattr(record, name))
        except (TypeError, ValueError) as error:
            raise TypeError(name) from error
    return record


@cache
def _declared(kind: type[DataclassInstance]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    return tuple((item.name, JSON_TYPES[str(item.type)].read) for item in fields(kind))


def _exactly(*types: type) -> JsonType:
    """Returns the type of values of exactly these types: neither a bool nor a float counts as an int."""

    def read(value: Any) -> Any:
        if type(value) not in types:
            raise TypeError(f"{value!r:.40} is of type {type(value).__name__}")
        return value

    return JsonType(read)


def _counts(value: Any) -> dict[str, int]:
    if type(value) is not dict or any(type(one) is not int for one in value.values()):
        raise TypeError(f"{value!r:.40} is no mapping to integers")
    return value


def _partitions(read: Callable[[Any], Any]) -> JsonType:
    """Returns the type of values by source partition, each of which ``read`` reads."""
    return JsonType(
        lambda topics: {
            SourcePartition(topic, int(partition)): read(value)
            for topic, partitions in topics.items()
            for partition, value in partitions.items()
        },
        by_topic,
    )


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    return whole(first), whole(second)


#: Types of fields, by the text of their annotation.
JSON_TYPES: Mapping[str, JsonType] = {
    "int": _exactly(int),
    "int | None": _exactly(int, type(None)),
    "float | None": _exactly(int, float, type(None)),
    "str": _exactly(str),
    "bool": _exactly(bool),
    "Whole": JsonType(whole),
    "Whole | None": JsonType(lambda value: None if value is None else whole(value)),
    "Excerpt": JsonType(text, lambda value: value[:MOST_CHARACTERS]),
    "tuple[str, ...]": JsonType(lambda value: tuple(text(one) for one in value)),
    "Mapping[str, int]": JsonType(_counts),
    "Mapping[str, Any]": _exactly(dict),
    "Mapping[int, int]": JsonType(
        lambda value: {whole(int(number)): whole(offset) for number, offset in value.items()},
        lambda value: {str(number): offset for number, offset in value.items()},
    ),
    "Mapping[SourcePartition, int]": _partitions(whole),
    "Mapping[SourcePartition, tuple[int, int]]": _partitions(_pair),
    "Mapping[SourcePartition, tuple[tuple[int, int], ...]]": _partitions(
        lambda ranges: tuple(_pair(one) for one in ranges)
    ),
}
