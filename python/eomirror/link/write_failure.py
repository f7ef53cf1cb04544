"""
Finds the reason why a link's owner cannot write the link's state topics.

librdkafka reports a transaction on a topic without the WRITE right like one that failed for another reason, and the
owner would suspect the coordinator.  The brokers report the authorized operations of a topic (KIP-430).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.config.rights import Right, lacking
from eomirror.errors import MirrorError, UnreachableError
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["given_up", "refuse_unwritable"]


def refuse_unwritable(link: Link, admin: ClusterAdmin) -> None:
    """
    Raises if the owner lacks the right to write; called after a write has failed.

    Args:
        admin: Admin client of the link's target.

    Raises:
        AuthorizationError: A topic may not be written; names it, with the command that grants the right.
    """
    names = LinkNames(link.state_name)
    topics = (names.control_topic, names.positions_topic)
    try:
        rights = admin.topic_rights(topics)
    except MirrorError:
        # The cluster does not answer: the original failure is reported.
        return
    for topic in topics:
        if topic in rights and "WRITE" not in rights[topic]:
            right = Right("Write", "topic", topic)
            raise lacking(f"link {link.name}: the mirror keeps its state there: ", admin.account, [right])


def given_up(link: Link, admin: ClusterAdmin, doing: str, tries: int) -> UnreachableError:
    """
    Returns the error for a write that failed repeatedly for retriable reasons.

    Args:
        admin: Admin client of the link's target.
        doing: The attempted action, as an infinitive.
        tries: Number of attempts.
    """
    return UnreachableError(
        f"link {link.name}: could not {doing} on cluster {admin.name} in {tries} tries",
        fix="see the log for what each try met; the target's transaction coordinator may be unavailable",
    )
