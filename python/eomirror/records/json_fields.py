"""
Checks values from JSON against the types that a record's class declares. Pure.

JSON has no schema: a number that is a string would fail later, far from the faulty record.  So every record is checked
where it is decoded.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["checked", "text", "whole"]

Record = TypeVar("Record", bound="DataclassInstance")

# exact types: neither a bool nor a float counts as an int
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
    "bool": (bool,),
    "Mapping[str, int]": (dict,),
    "Mapping[str, Any]": (dict,),
}


def checked(record: Record) -> Record:
    """
    Returns the record if its fields have the types that its class declares.

    Args:
        record: Record with fields that are integers, texts, booleans, or mappings of text to these.

    Raises:
        TypeError: A field has another type; names the field.
    """
    for name, allowed, numbers in _declared(type(record)):
        value = getattr(record, name)
        if type(value) not in allowed or (numbers and any(type(one) is not int for one in value.values())):
            raise TypeError(name)
    return record


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


@cache
def _declared(kind: type[DataclassInstance]) -> tuple[tuple[str, tuple[type, ...], bool], ...]:
    return tuple(
        (item.name, _TYPES[str(item.type)], item.type == "Mapping[str, int]") for item in fields(kind)
    )
