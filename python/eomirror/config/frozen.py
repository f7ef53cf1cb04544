"""Immutable mapping that can be pickled, unlike `types.MappingProxyType`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

__all__ = ["FrozenMapping"]

Value = TypeVar("Value")


class FrozenMapping(Mapping[str, Value], Generic[Value]):
    """Immutable mapping from text, in insertion order."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, Value] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def __hash__(self) -> int:
        return hash(tuple(sorted((key, hash(value)) for key, value in self._items.items())))

    def __reduce__(self) -> tuple[type[FrozenMapping[Value]], tuple[dict[str, Value]]]:
        return (type(self), (self._items,))
