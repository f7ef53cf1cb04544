"""
Whether what came out of JSON has the types that a record's class declares. Pure.

JSON holds what it likes, and a number that is a string ends whoever calculates with it, far from the record that is
to blame.  So every record is compared with its class where it is read.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["checked", "text", "whole"]

Record = TypeVar("Record", bound="DataclassInstance")

# exact types: a bool is no int here, and no float is
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
    The record, if the values of its fields are what its class declares.

    Args:
        record: Its fields are whole numbers, text, truth values, or mappings of text to these.

    Raises:
        TypeError: A field is not; names it.
    """
    for name, allowed, numbers in _declared(type(record)):
        value = getattr(record, name)
        if type(value) not in allowed or (numbers and any(type(one) is not int for one in value.values())):
            raise TypeError(name)
    return record


def text(value: Any) -> str:
    """
    Text.

    Raises:
        TypeError: It is none.
    """
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is no text")
    return value


def whole(value: Any) -> int:
    """
    A whole number from 0.

    Raises:
        ValueError: It is none.
    """
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.40} is no whole number from 0")
    return value


@cache
def _declared(kind: type[DataclassInstance]) -> tuple[tuple[str, tuple[type, ...], bool], ...]:
    return tuple(
        (item.name, _TYPES[str(item.type)], item.type == "Mapping[str, int]") for item in fields(kind)
    )
