"""Refuses a link that has ended, from its target alone: a source that is away must not hide it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.link.ownership import refuse_copying_back, refuse_handed_over, refuse_promoted
from eomirror.link.state import LinkState
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession

__all__ = ["refuse_ended"]


def refuse_ended(link: Link, target: ClusterSession) -> None:
    """
    Refuses a link that applications, another replicator, or a recreation writes in place of.

    The owner checks that again with the claim in its hands; this comes before the source is asked.

    Raises:
        NotReadyError: The link is promoted, or copies topics back whole.
        StateError: It was handed to another replicator, or a record is not readable.
        MirrorError: The target does not answer.
    """
    # a cluster that is away is named within seconds; a description of topics waits 30 s for it
    target.admin.describe_cluster()
    topic = LinkNames(link.state_name).control_topic
    if target.admin.describe_topics([topic])[topic] is None:
        return
    view = LinkState(link, target).control(wait_for_open=False)
    refuse_handed_over(link.name, view)
    refuse_promoted(link.name, view)
    refuse_copying_back(link.name, view)
