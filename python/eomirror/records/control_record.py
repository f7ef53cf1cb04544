"""
Declares classes of control records, and parses the control topic for all its readers. Pure.

One declaration, ``@control_record("stopped", key=("topic",))``, gives a class its key, its value, its checked decoding
and its sentence in the timeline.  The key is JSON with the kind and the fields of ``key``; the value is JSON with a
version and all other fields, in the order of the class.  A field without a default is needed; a field that the class
does not have is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import KW_ONLY, MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import orjson

from eomirror.records.json_fields import JSON_TYPES

if TYPE_CHECKING:
    import dataclasses
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.records.json_fields import JsonType

__all__ = [
    "OMITTED",
    "PARTED_VERSION",
    "VERSION",
    "ControlEntry",
    "ControlRecord",
    "FailoverRecord",
    "RecordError",
    "RecordsByClass",
    "SingleRecord",
    "control_record",
    "counted",
    "named",
    "read_field",
]

VERSION = 1
#: Version of a record that has parts.
PARTED_VERSION = 2
#: Metadata of a field that is not written while it has its default.
OMITTED = {"omitted": True}

# topics named in a text
_SHOWN = 3
# class of each kind, from the classes that were declared
_CLASSES: dict[str, type[ControlRecord]] = {}
_Class = TypeVar("_Class", bound="type[ControlRecord]")
_Record = TypeVar("_Record", bound="ControlRecord")
_Value = TypeVar("_Value")


class RecordError(ValueError):
    """A control record is not readable; the message says why."""


class _Field(NamedTuple):
    """
    Field of a control record.  Its metadata may set all but the first two.

    Attributes:
        attribute: Name in the class.
        default: Default; MISSING for none.
        name: Name in JSON.
        json_type: Type; that of its annotation in `JSON_TYPES` if it is not set.
        needed: True if a record must have it; by default if it has no default.
        omitted: True if it is not written while it has its default.
    """

    attribute: str
    default: Any
    name: str
    json_type: JsonType
    needed: bool
    omitted: bool = False


class ControlRecord:
    """A record of the control topic, as `control_record` declares its class."""

    __slots__ = ()
    declaration: ClassVar[control_record]
    key_fields: ClassVar[tuple[_Field, ...]]
    body_fields: ClassVar[tuple[_Field, ...]]

    def key(self) -> bytes:
        """Key of the record."""
        return self.key_of(*(getattr(self, item.attribute) for item in self.key_fields))

    @classmethod
    def key_of(cls, *values: Any) -> bytes:
        """Returns the key of the record with these values of the fields of the key."""
        names = (item.name for item in cls.key_fields)
        return orjson.dumps({"kind": cls.declaration.kind, **dict(zip(names, values, strict=True))})

    def value(self) -> bytes:
        """Value of the record."""
        return orjson.dumps({"v": VERSION, **self.body()})

    def body(self) -> dict[str, Any]:
        """Returns the fields of the value in their JSON form."""
        found = ((item, getattr(self, item.attribute)) for item in self.body_fields)
        return {
            item.name: item.json_type.written(value)
            for item, value in found
            if not (item.omitted and value == item.default)
        }

    @classmethod
    def decoded(cls, name: Mapping[str, Any], body: Mapping[str, Any]) -> Self:
        """
        Returns the record.

        Args:
            name: Its key.
            body: Its value.

        Raises:
            RecordError: A field is missing, or has another type; names the field.
        """
        return cls(
            **{
                attribute: read_field(given, field, json_type.read)
                for given, items in ((name, cls.key_fields), (body, cls.body_fields))
                for attribute, _, field, json_type, needed, _ in items
                if needed or field in given
            }
        )

    def sentence(self) -> str:
        """Returns the text of the record in the timeline, one line."""
        return self.declaration.sentence.format(one=self)


class SingleRecord(ControlRecord):
    """A record of which one stands at a time: its key has the kind only."""

    __slots__ = ()

    @classmethod
    def key(cls) -> bytes:
        """Key of the record."""
        return cls.key_of()


class FailoverRecord(ControlRecord):
    """A record of a promotion, or of what follows it; a command of failover writes it."""

    __slots__ = ()
    number: int


@dataclass(frozen=True, slots=True)
class control_record:  # noqa: N801  a decorator
    """
    Declares a dataclass as one of control records.

    Attributes:
        kind: Kind in the key.
        key: Attributes that are in the key; the others are in the value.
        informative: True if nothing is decided from the record: one that is not readable is skipped.
        silent: True if it is no event of the timeline.
        lasting: True if its event is kept for days (`eomirror.records.events.PastEvent`), also once the next record of
            the same key replaces it.
        dated: True if its key has its time, ``at``, and it is deleted once it is old.
        sentence: Text of the record in the timeline, with its attributes as ``{one.topic}``; a class with a method of
            that name has none.
        deleted: Kind and text of the event of its deletion, after which it stands no more; may name the ``{topic}`` of
            the key.  None for a record that a deletion does not end.
        parts: Name in JSON of the field that may stand in parts, in records before; empty for none.
    """

    kind: str
    _: KW_ONLY
    key: tuple[str, ...] = ()
    informative: bool = False
    silent: bool = False
    lasting: bool = False
    dated: bool = False
    sentence: str = ""
    deleted: tuple[str, str] | None = None
    parts: str = ""

    def __call__(self, cls: _Class) -> _Class:
        """Adds a class to the registry."""
        # a class that decodes its value itself also encodes it
        own = "decoded" in vars(cls)
        items = {item.name: item for item in fields(cls)}  # type: ignore[arg-type] # a dataclass
        cls.declaration = self
        cls.key_fields = tuple(_field(items[name]) for name in self.key)
        cls.body_fields = tuple(
            _field(item) for name, item in items.items() if not own and name not in self.key
        )
        _CLASSES[self.kind] = cls
        return cls


def _field(item: dataclasses.Field[Any]) -> _Field:
    default = item.default if item.default_factory is MISSING else item.default_factory()
    form = {"name": item.name, "needed": default is MISSING, **item.metadata}
    if "json_type" not in form:
        form["json_type"] = JSON_TYPES[str(item.type)]
    return _Field(item.name, default, **form)


def read_field(given: Mapping[str, Any], name: str, read: Callable[[Any], _Value]) -> _Value:
    """
    Returns a field of a key or a value, as ``read`` returns it.

    Raises:
        RecordError: It is missing, or ``read`` refuses it; names the field.
    """
    if name not in given:
        raise RecordError(f"field {name} is missing")
    try:
        return read(given[name])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"field {name}: {error}") from error


class RecordsByClass:
    """Control records, by their classes."""

    def __init__(self, records: Iterable[ControlRecord]) -> None:
        self._found: dict[type[ControlRecord], list[Any]] = defaultdict(list)
        for record in records:
            self._found[type(record)].append(record)

    def all(self, kind: type[_Record]) -> list[_Record]:
        """Returns the records of a class, in order."""
        return self._found[kind]

    def last(self, kind: type[_Record]) -> _Record | None:
        """Returns the last record of a class; None for none."""
        return self._found[kind][-1] if self._found[kind] else None


class ControlEntry(NamedTuple):
    """
    A record of the control topic, of any kind, before it is decoded.

    Attributes:
        kind: Its kind; None if its key is not readable.
        name: Its key; empty if that is not readable.
        body: Its value; empty if that is not readable.
    """

    kind: str | None
    name: Mapping[str, Any]
    body: Mapping[str, Any]

    @classmethod
    def of(cls, key: bytes | None, value: bytes | None) -> ControlEntry:
        """Returns the entry of a key and a value."""
        name = _object(key)
        return cls(str(name["kind"]) if "kind" in name else None, name, _object(value))

    @property
    def declared(self) -> type[ControlRecord] | None:
        """Class of the record; None for a kind that this release does not know."""
        return None if self.kind is None else _CLASSES.get(self.kind)

    @property
    def known_version(self) -> bool:
        """True if this release knows the version of the record."""
        version, declared = self.body.get("v"), self.declared
        parted = declared is not None and bool(declared.declaration.parts)
        return bool(version == VERSION or (parted and version == PARTED_VERSION))

    def record(self) -> ControlRecord:
        """
        Returns the record.

        Raises:
            RecordError: It is not readable, or of a kind or version that this release does not know.
        """
        if (declared := self.declared) is None or not self.known_version:
            raise RecordError("its kind or version is not known")
        return declared.decoded(self.name, self.body)


def _object(data: bytes | None) -> dict[str, Any]:
    try:
        found = orjson.loads(data or b"null")
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def counted(number: int, thing: str) -> str:
    """Returns a number of things in words."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def named(topics: Iterable[str]) -> str:
    """Returns the first names of topics, and how many more there are."""
    names = list(topics)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
