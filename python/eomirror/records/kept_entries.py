"""
Control records about what a link keeps alike on its target: entries that it has added, and the last comparison. Pure.

Keys:

* ``{"kind":"own","of","entry"}`` -> `OwnEntry`: an ACL entry or a client quota that the link has added to the target,
  or a copy whose source topic is gone.  Written before the entry is added; deleted with it, or once
  the link has forgotten the topic of the copy.
* ``{"kind":"alike"}`` -> `TargetComparison`: result of the last comparison, where it differs from the one before.

What may be deleted on the target is decided from the first.  It is informative nevertheless: an entry whose record is
lost, or not readable, counts as made by another hand, and stays.  `eomirror apply` writes both with a plain producer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.records.control_record import ControlRecord, SingleRecord, control_record
from eomirror.records.json_fields import JSON_TYPES, MOST_CHARACTERS, JsonType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.json_fields import Whole

__all__ = ["OwnEntry", "TargetComparison"]

_MOST_PROBLEMS = 20


def _problems(found: Mapping[str, str]) -> dict[str, str]:
    return {name: reason[:MOST_CHARACTERS] for name, reason in sorted(found.items())[:_MOST_PROBLEMS]}


_PROBLEMS = JsonType(JSON_TYPES["Mapping[str, Any]"].read, _problems)


@control_record("own", key=("of", "entry"), informative=True, silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEntry(ControlRecord):
    """
    An entry on the target that the link has added.

    Attributes:
        of: ``acl``, ``quota`` or ``topic``.
        entry: The entry, as JSON.
        values: Values of a quota that are the link's: the one that it sets, and the one that it replaces.
        gone_since: Time since which the source lacks it, ms since the epoch; 0 while the source has it.
        timestamp: Time of the record, ms since the epoch.
    """

    of: str
    entry: str
    values: tuple[str, ...] = ()
    gone_since: Whole = 0
    timestamp: int


@control_record("alike", informative=True, silent=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class TargetComparison(SingleRecord):
    """
    Result of the last comparison of the target with the source.

    Attributes:
        standing: Number of differences that stand: refused, not due yet, or reported only.
        problems: Operation that failed, such as ``acls`` -> reason, with the command that grants a missing right.
        changed: Number of the changes that were carried out at the last time that there were some, by sign.
        changed_at: That time, ms since the epoch; 0 for none.
        command: ``run`` or ``apply``.
        timestamp: Time of the record, ms since the epoch.
    """

    standing: Whole
    problems: Mapping[str, Any] = field(default_factory=dict, metadata={"json_type": _PROBLEMS})
    changed: Mapping[str, int] = field(default_factory=dict)
    changed_at: Whole = 0
    command: str
    timestamp: int
