"""
State of a schema registry, as far as a mirror compares it. Pure.

Names are those of the default context: a copy in the context ``east`` has ``:.east:`` before its subject, which
`qualified` adds and `unqualified` removes.  A reference without a context means the context of its schema, so that
references need no change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "IMPORT",
    "READWRITE",
    "Reference",
    "RegisteredVersion",
    "RegistryState",
    "SchemaContent",
    "SubjectState",
    "prefix_of",
    "qualified",
    "unqualified",
]

#: Mode in which a registry takes ids and versions, and refuses registrations of applications.
IMPORT = "IMPORT"
READWRITE = "READWRITE"
_AVRO = "AVRO"


def prefix_of(context: str) -> str:
    """Returns what stands before the subjects of a context; empty for the default one."""
    return f":.{context}:" if context else ""


def qualified(subject: str, context: str) -> str:
    """Returns a subject as requests name it."""
    return prefix_of(context) + subject


def unqualified(name: str, context: str) -> str | None:
    """Returns the subject that a registry lists by this name; None if it belongs to another context."""
    name = name.removeprefix(":.:")
    prefix = prefix_of(context)
    if not name.startswith(prefix) or (not context and name.startswith(":.")):
        return None
    return name[len(prefix) :]


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """
    A schema that another one uses.

    Attributes:
        name: Name by which the other one uses it.
        subject: Its subject.
        version: Its version.
    """

    name: str
    subject: str
    version: int

    def plain(self) -> dict[str, Any]:
        """Returns the reference as requests carry it."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True, slots=True)
class SchemaContent:
    """
    Content of a schema: what an id stands for.  Two texts of equal JSON are equal.

    Attributes:
        kind: ``AVRO``, ``JSON``, ``PROTOBUF`` or another one.
        meaning: Text in a form that is compared.
        references: Schemas that it uses.
        more: ``metadata`` and ``ruleSet``, as JSON; empty for none.
        text: Text as registered.
    """

    kind: str
    meaning: str
    references: tuple[Reference, ...]
    more: str
    text: str = field(compare=False)

    @classmethod
    def of(cls, answer: Mapping[str, Any], context: str = "") -> Self:
        """
        Returns the content of an answer of a registry.

        Args:
            answer: Answer about a version or an id.
            context: Context of the copies.

        Raises:
            ValueError: It is no content of a schema.
        """
        text, kind = answer.get("schema"), answer.get("schemaType") or _AVRO
        if not isinstance(text, str) or not isinstance(kind, str):
            raise ValueError("the answer has no schema")  # noqa: TRY004  as every other fault of an answer
        try:
            references = tuple(
                sorted(
                    Reference(
                        str(one["name"]),
                        unqualified(str(one["subject"]), context) or str(one["subject"]),
                        int(one["version"]),
                    )
                    for one in answer.get("references") or ()
                )
            )
        except (KeyError, TypeError) as error:
            raise ValueError("the answer has an incomplete reference") from error
        told = {key: answer[key] for key in ("metadata", "ruleSet") if answer.get(key)}
        return cls(kind, _meaning(kind, text), references, _canonical(told) if told else "", text)

    def plain(self) -> dict[str, Any]:
        """Returns the content as a registration carries it."""
        told: dict[str, Any] = {"schema": self.text, "schemaType": self.kind}
        if self.references:
            told["references"] = [one.plain() for one in self.references]
        return {**told, **(json.loads(self.more) if self.more else {})}


def _meaning(kind: str, text: str) -> str:
    if kind not in (_AVRO, "JSON"):
        return text.strip()
    try:
        return _canonical(json.loads(text))
    except (ValueError, RecursionError):
        # an Avro type alone, such as string without quotes
        return text.strip()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """
    A version of a subject.

    Attributes:
        schema_id: Id that records carry.
        content: What it stands for.
        deleted: True if it is soft-deleted: it keeps its id, and is listed on request only.
    """

    schema_id: int
    content: SchemaContent
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class SubjectState:
    """
    A subject.

    Attributes:
        versions: Its versions by number, soft-deleted ones included.
        level: Its own compatibility level; None if it has that of its context.
        mode: Its own mode; None if it has that of its context.
    """

    versions: Mapping[int, RegisteredVersion] = field(default_factory=dict)
    level: str | None = None
    mode: str | None = None

    @property
    def lives(self) -> bool:
        """True if a version is not deleted."""
        return any(not one.deleted for one in self.versions.values())


@dataclass(frozen=True, slots=True)
class RegistryState:
    """
    One context of a registry.

    Attributes:
        subjects: Its subjects by name.
        level: Compatibility level of subjects without their own.
        mode: Mode of subjects without their own.
        ids: Content of ids beside those of ``subjects``, such as those of subjects that the login must not list.
    """

    subjects: Mapping[str, SubjectState] = field(default_factory=dict)
    level: str = "BACKWARD"
    mode: str = READWRITE
    ids: Mapping[int, SchemaContent] = field(default_factory=dict)

    def versions(self) -> Iterator[tuple[str, int, RegisteredVersion]]:
        """Yields subject, number and version of all."""
        for subject, state in self.subjects.items():
            for number, version in state.versions.items():
                yield subject, number, version

    @property
    def contents(self) -> dict[int, SchemaContent]:
        """Content of each known id."""
        return {**self.ids, **{one.schema_id: one.content for _, _, one in self.versions()}}
