"""Checks the rights that a link needs before it creates anything (KIP-430)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.config.rights import TOLD_AS, Right, lacking
from eomirror.topics.diff import AddPartitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.topics.diff import Change, TopicPair

__all__ = ["check_source_rights", "check_target_rights", "need"]


def check_source_rights(link: Link, source: ClusterAdmin, topics: Sequence[str]) -> None:
    """
    Refuses to begin if a source topic may not be read.

    Raises:
        AuthorizationError: Names the first such topic in its ``topic``.
        ClusterError: The source cannot be reached.
    """
    for topic, rights in source.topic_rights(topics).items():
        need(link, source, rights, Right("Read", "topic", topic), "read it", topic=topic)


def check_target_rights(
    link: Link, target: ClusterAdmin, changes: Iterable[Change], pairs: Mapping[str, TopicPair]
) -> None:
    """
    Refuses to begin if an existing copy may not be written or grown; a refused setting is reported when it is set.

    Raises:
        AuthorizationError: Names the source topic of the first such copy in its ``topic``.
        ClusterError: The target cannot be reached.
    """
    existing = {pair.name for pair in pairs.values() if pair.target is not None}
    growing = [change.name for change in changes if isinstance(change, AddPartitions)]
    rights = target.topic_rights(sorted(existing | set(growing)))
    for name in sorted(existing & rights.keys()):
        need(link, target, rights[name], Right("Write", "topic", name), "write it")
    for name in growing:
        if name in rights:
            need(link, target, rights[name], Right("Alter", "topic", name), "keep it in sync")


def need(
    link: Link, admin: ClusterAdmin, rights: frozenset[str], right: Right, purpose: str, *, topic: str = ""
) -> None:
    """
    Raises if a right is missing, with the command that grants it.

    Args:
        link: The link that needs the right.
        admin: Admin client of the cluster that reported the rights.
        rights: Authorized operations on the resource, as the brokers name them.
        right: The required right.
        purpose: Reason, after "the mirror must".
        topic: The source topic that it concerns.

    Raises:
        AuthorizationError: The right is not among them.
    """
    if TOLD_AS[right.operation] not in rights:
        raise lacking(f"link {link.name}: the mirror must {purpose}: ", admin.account, [right], topic=topic)
