"""
Collects settings of other forms as keys of MirrorMaker 2's property file, and converts these. Pure.

Every key remembers how the user wrote it, so that a refusal names ``spec.mirrors[0].sourceConnector.config.transforms``
in place of ``a->b.transforms``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.config.jaas import JaasFaultError, parse_jaas
from eomirror.config.mm2_clients import NotHonoured, broker_list
from eomirror.config.mm2_properties import Imported, import_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["FlatFile", "GivenSetting", "meaning"]

_LISTS = re.compile(r"(^|\.)(topics|groups|config\.properties)(\.(exclude|blacklist))?$")
_WORDS = re.compile(r"security\.protocol$|sasl\.mechanism$|store\.type$|identification\.algorithm$")


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """
    A setting as the user wrote it.

    Attributes:
        key: Name with its place; empty for a setting that only follows from others.
        value: Value as text.  Hidden from repr: it may be a secret.
        line: Line in the file; 0 if unknown.
    """

    key: str
    value: str
    line: int = 0

    def __repr__(self) -> str:
        return f"Setting({self.key!r}, line={self.line})"


class FlatFile:
    """A property file of MirrorMaker 2 in the making."""

    def __init__(self) -> None:
        self._settings: dict[str, GivenSetting] = {}
        self._taken: dict[str, str] = {}
        self._findings: list[NotHonoured] = []

    def put(self, flat: str, setting: GivenSetting) -> None:
        """Adds a setting under its key in the property file; refuses a second one with another value."""
        before = self._settings.setdefault(flat, setting)
        if before is setting:
            return
        one, other = meaning(flat, before.value), meaning(flat, setting.value)
        if one == other:
            self.take(setting, flat)
        elif flat.endswith("bootstrap.servers") and (one < other or other < one):
            # some of a cluster's brokers name it as well as all
            more, fewer = (setting, before) if one < other else (before, setting)
            self._settings[flat] = more
            self.note(
                fewer, f"{more.key} names more brokers of the same cluster; all of them are used", "look"
            )
        else:
            self.refuse(
                setting,
                f"{before.key} sets another value, and both apply to the same cluster or flow; write one value in both",
            )

    def extend(self, flat: str, items: Iterable[str]) -> None:
        """Adds items to a list."""
        before = self._settings.get(flat, GivenSetting("", "")).value
        listed = dict.fromkeys([*filter(None, before.split(", ")), *items])
        self._settings[flat] = GivenSetting("", ", ".join(listed))

    def take(self, setting: GivenSetting, place: str) -> None:
        """Records that a setting is carried over by other means."""
        if setting.key:
            self._taken[setting.key] = place

    def note(self, setting: GivenSetting, reason: str, weight: str = "harmless") -> None:
        """Reports a setting without a counterpart that changes no record."""
        self._findings.append(NotHonoured(setting.key, reason, setting.line, weight))

    def refuse(self, setting: GivenSetting, reason: str) -> None:
        """Reports a setting without which other records would be mirrored, or a cluster could not be reached."""
        self._findings.append(NotHonoured(setting.key, reason, setting.line, "refused"))

    def convert(self, *, keep_secrets: bool = False) -> Imported:
        """Returns the configuration, with every key as the user wrote it."""
        given = {flat: (each.value, each.line) for flat, each in self._settings.items()}
        found = import_entries(given, keep_secrets=keep_secrets)
        written = {flat: each.key for flat, each in self._settings.items()}
        honoured = {written[flat]: place for flat, place in found.honoured.items() if written[flat]}
        reported = [
            replace(
                each,
                key=written.get(each.key, each.key),
                reason=each.reason.replace(f"{each.key} = ", f"{_name(written.get(each.key, each.key))} = "),
            )
            for each in found.not_honoured
            if written.get(each.key, each.key)
        ]
        order = sorted([*self._findings, *reported], key=_place)
        return Imported(
            found.settings,
            {**honoured, **self._taken},
            tuple(order),
            {name: _written(key, written) for name, key in found.variables.items()},
            {place: _written(key, written) for place, key in found.places.items()},
            {_written(flat, written): each.line for flat, each in self._settings.items()},
        )


def meaning(flat: str, text: str) -> Any:
    """Returns what a value means, however it is written."""
    value = text.strip()
    name = flat.rpartition("->")[2]
    if name.endswith("bootstrap.servers"):
        return frozenset(broker.lower() for broker in broker_list(value)[0])
    if _LISTS.search(name):
        return frozenset(filter(None, (part.strip() for part in value.split(","))))
    if name.endswith("sasl.jaas.config"):
        try:
            return parse_jaas(value)
        except JaasFaultError:
            return value
    return value.lower() if _WORDS.search(name) or value.lower() in ("true", "false") else value


def _place(item: NotHonoured) -> tuple[bool, str, int]:
    """Returns the place of an item in a report: by file or connector, then by line."""
    return item.line == 0, item.key.partition(": ")[0] if ": " in item.key else "", item.line


def _name(key: str) -> str:
    """Returns a setting's name without the connector that has it."""
    return key.rpartition(": ")[2]


def _written(key: str, written: Mapping[str, str]) -> str:
    return written.get(key) or key
