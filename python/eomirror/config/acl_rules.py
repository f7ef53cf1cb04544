"""
The setting ``acls`` of a link: which ACL entries of the source are carried to the target. Pure.

``true`` is MirrorMaker 2's profile.  A list has rules as in KIP-1279: type, name, operation, permission, principal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.config.nodes import Map, Place, Scalar, Sequence, kind_of, quoted
from eomirror.topology.filters import pattern_fault, topic_filter

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ACLS_SCHEMA", "ANY", "AclRule", "parse_acls"]

#: Word for every value of a field.
ANY = "any"
_TYPES = ("topic", "group")
_PATTERNS = ("literal", "prefixed")
_PERMISSIONS = ("allow", "deny")
# as kafka-acls.sh spells the operations on topics and groups; All is an entry for all of them
_OPERATIONS = {
    each.lower(): each
    for each in ("All", "Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs")
}  # fmt: skip
_KEYS = ("type", "name", "pattern", "operation", "permission", "principal")
_MOST_RULES = 200
_EXAMPLE = '{type: topic, name: "pay.*", operation: read, permission: allow, principal: "User:app-.*"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """
    A rule: entries of the source that have all of these fields are carried.

    Attributes:
        type: ``topic`` or ``group``.
        name: Full-match expression of the name of the resource, or of the beginning of names that an entry has.
        pattern: ``literal``, ``prefixed`` or ``any``.
        operations: As kafka-acls.sh spells them; empty for every one.
        permission: ``allow``, ``deny`` or ``any``.
        principal: Full-match expression of the principal, with its type.
    """

    type: str
    name: str
    pattern: str = ANY
    operations: tuple[str, ...] = ()
    permission: str = ANY
    principal: str = ".*"

    def takes(
        self, *, resource: str, pattern: str, name: str, principal: str, operation: str, permission: str
    ) -> bool:
        """Returns True if an entry has all fields of the rule."""
        return (
            resource == self.type
            and self.pattern in (ANY, pattern)
            and self.permission in (ANY, permission)
            and (not self.operations or operation in self.operations)
            and topic_filter((self.name,)).accepts(name)
            and topic_filter((self.principal,)).accepts(principal)
        )

    def written(self) -> dict[str, Any]:
        """Returns the rule in the notation of the file."""
        operations = [each.lower() for each in self.operations]
        told: dict[str, Any] = {"type": self.type, "name": self.name, "operation": operations or ANY}
        more = {"pattern": self.pattern, "permission": self.permission}
        told |= {key: value for key, value in more.items() if value != ANY}
        return told if self.principal == ".*" else {**told, "principal": self.principal}


def parse_acls(place: Place) -> bool | tuple[AclRule, ...] | None:
    """Parses true, false or a list of rules."""
    node = place.node
    fix = f"write true, false, or a list of rules, such as [{_EXAMPLE}]"
    if isinstance(node, Scalar):
        if node.text.lower() in {"true", "false"}:
            return node.text.lower() == "true"
        place.refuse(f"{quoted(node.text)} is not a valid value", fix)
        return None
    if not isinstance(node, Sequence):
        place.refuse(f"this is {kind_of(node)}", fix)
        return None
    if len(node.items) > _MOST_RULES:
        place.refuse(f"there are {len(node.items)} rules", f"write at most {_MOST_RULES}")
        return None
    rules = [_rule(place.below(item, f"[{number}]")) for number, item in enumerate(node.items)]
    return None if None in rules else tuple(rule for rule in rules if rule is not None)


def _rule(place: Place) -> AclRule | None:
    if not isinstance(place.node, Map):
        place.refuse(f"this is {kind_of(place.node)}", f"write {_EXAMPLE}")
        return None
    before, node = len(place.faults.faults), place.node
    for key, value in node.entries.items():
        if key not in _KEYS:
            place.below(value, f".{key}").refuse("unknown key", f"known keys: {', '.join(_KEYS)}")
    for key in ("type", "name", "operation"):
        if key not in node.entries:
            place.refuse(
                f"{key} is missing", f"write {_EXAMPLE}; operation: any takes every operation, also write"
            )

    def inner(key: str) -> Place | None:
        return place.below(node.entries[key], f".{key}") if key in node.entries else None

    found = AclRule(
        type=_word(inner("type"), _TYPES, _TYPES[0]),
        name=_pattern(inner("name")),
        pattern=_word(inner("pattern"), (*_PATTERNS, ANY), ANY),
        operations=_operations(inner("operation")),
        permission=_word(inner("permission"), (*_PERMISSIONS, ANY), ANY),
        principal=_pattern(inner("principal")),
    )
    return None if len(place.faults.faults) > before else found


def _word(place: Place | None, words: Iterable[str], default: str) -> str:
    text = None if place is None else place.text(f"choose one of: {', '.join(words)}")
    if place is None or text is None:
        return default
    if text.lower() not in words:
        place.refuse(f"{quoted(text)} is not a valid value", f"choose one of: {', '.join(words)}")
    return text.lower()


def _pattern(place: Place | None) -> str:
    text = None if place is None else place.text("write a regular expression")
    if place is None or text is None:
        return ".*"
    if not text or (problem := pattern_fault(text)):
        reason = "it is empty" if not text else problem
        place.refuse(f"{quoted(text)} is not a regular expression: {reason}", "correct the expression")
    return text


def _operations(place: Place | None) -> tuple[str, ...]:
    if place is None:
        return ()
    items = place.node.items if isinstance(place.node, Sequence) else [place.node]
    fix = f"choose of: {', '.join(_OPERATIONS)}, any"
    found = []
    for number, item in enumerate(items):
        inner = place if item is place.node else place.below(item, f"[{number}]")
        text = inner.text(fix)
        if text is None:
            continue
        plain = text.lower().replace("_", "").replace("-", "")
        if plain == ANY:
            return ()
        if plain in _OPERATIONS:
            found.append(_OPERATIONS[plain])
        else:
            inner.refuse(f"{quoted(text)} is not an operation", fix)
    if not items:
        place.refuse("an empty list takes no entry", fix)
    return tuple(dict.fromkeys(found))


_TEXT = {"type": "string", "minLength": 1}
_OPERATION = {"type": "string", "pattern": "^[A-Za-z_-]+$"}
ACLS_SCHEMA: dict[str, Any] = {
    "oneOf": [
        {"type": "boolean"},
        {
            "type": "array",
            "maxItems": _MOST_RULES,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "name", "operation"],
                "properties": {
                    "type": {"enum": list(_TYPES)},
                    "name": _TEXT,
                    "pattern": {"enum": [*_PATTERNS, ANY]},
                    "operation": {
                        "oneOf": [_OPERATION, {"type": "array", "items": _OPERATION, "minItems": 1}]
                    },
                    "permission": {"enum": [*_PERMISSIONS, ANY]},
                    "principal": _TEXT,
                },
            },
        },
    ]
}
