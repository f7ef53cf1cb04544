"""Rights that a link needs, asked for before anything is created (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import AuthorizationError
from eomirror.kafka.errors import Right
from eomirror.topics.diff import AddPartitions, AlterConfig

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.topics.diff import Change, TopicPair

__all__ = ["check_source_rights", "check_target_rights", "need"]

# operation of an ACL -> what a broker calls it among authorized operations
_TOLD_AS = {
    "Read": "READ",
    "Write": "WRITE",
    "Alter": "ALTER",
    "AlterConfigs": "ALTER_CONFIGS",
}


def check_source_rights(link: Link, source: ClusterAdmin, topics: Sequence[str]) -> None:
    """
    Refuse to begin where a source topic may not be read.

    Raises:
        AuthorizationError: One may not; its ``topic`` says which.
        ClusterError: The source cannot be reached.
    """
    for topic, rights in source.topic_rights(topics).items():
        need(link, source, rights, Right("Read", "topic", topic), "read it", topic=topic)


def check_target_rights(
    link: Link, target: ClusterAdmin, changes: Iterable[Change], pairs: Mapping[str, TopicPair]
) -> None:
    """
    Refuse to begin where a copy that exists may not be written, or not be kept in step.

    Raises:
        AuthorizationError: Likewise.
        ClusterError: The target cannot be reached.
    """
    existing = {pair.name for pair in pairs.values() if pair.target is not None}
    altering = [
        (change.name, "AlterConfigs" if isinstance(change, AlterConfig) else "Alter")
        for change in changes
        if isinstance(change, AddPartitions | AlterConfig)
    ]
    told = target.topic_rights(sorted(existing | {name for name, _ in altering}))
    for name in sorted(existing & told.keys()):
        need(link, target, told[name], Right("Write", "topic", name), "write it")
    for name, operation in altering:
        if name in told:
            need(link, target, told[name], Right(operation, "topic", name), "keep it in step")


def need(
    link: Link, admin: ClusterAdmin, rights: frozenset[str], right: Right, purpose: str, *, topic: str = ""
) -> None:
    """
    Raise where a right is missing, with the line that grants it.

    Args:
        link: Whose mirror it is.
        admin: The cluster that told of our rights.
        rights: What we may do on the resource, as the brokers name it.
        right: What is needed.
        purpose: What for, after "the mirror must".
        topic: The source topic that it concerns.

    Raises:
        AuthorizationError: It is not among them.
    """
    if _TOLD_AS[right.operation] in rights:
        return
    who = f"User:{admin.principal}" if admin.principal else "the mirror's principal"
    raise AuthorizationError(
        f"link {link.name}: {who} lacks {right} of cluster {admin.name}; the mirror must {purpose}",
        fix=right.acl(admin.principal),
        topic=topic,
    )
