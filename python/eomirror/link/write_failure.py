"""
Finds out why a link's owner cannot write the link's own topics.

librdkafka says of a transaction that met a topic without the right to write it what it says of one that broke off for
another reason, and its owner would look for the coordinator.  The brokers tell what we may do on a topic (KIP-430).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.kafka.errors import Right
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["given_up", "refuse_unwritable"]


def refuse_unwritable(link: Link, admin: ClusterAdmin) -> None:
    """
    Return if nothing shows that the owner may not write; asked after a write has failed.

    Args:
        link: The link.
        admin: Of its target cluster.

    Raises:
        AuthorizationError: A topic may not be written; names it, with the line that grants the right.
    """
    names = LinkNames(link.state_name)
    topics = (names.control_topic, names.positions_topic)
    try:
        told = admin.topic_rights(topics)
    except MirrorError:
        # the cluster does not answer: what failed is told as it was
        return
    for topic in topics:
        if topic in told and "WRITE" not in told[topic]:
            right = Right("Write", "topic", topic)
            who = f"User:{admin.principal}" if admin.principal else "the mirror's principal"
            raise AuthorizationError(
                f"link {link.name}: {who} lacks {right} of cluster {admin.name}; the mirror keeps its state there",
                fix=right.acl(admin.principal),
            )


def given_up(link: Link, admin: ClusterAdmin, doing: str, tries: int) -> UnreachableError:
    """
    Return the error for a write that failed again and again for reasons that pass.

    Args:
        link: The link.
        admin: Of its target cluster.
        doing: What was tried, as an infinitive.
        tries: How often.
    """
    return UnreachableError(
        f"link {link.name}: could not {doing} on cluster {admin.name} in {tries} tries",
        fix="see the log for what each try met; the target's transaction coordinator may be unavailable",
    )
