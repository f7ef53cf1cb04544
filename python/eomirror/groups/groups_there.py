"""Reads states and committed offsets of groups on the side that they move to."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from eomirror.config.rights import Right, lacking, told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.groups.translation import Name
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.consumer_groups import GroupState, Offsets
    from eomirror.kafka.consumer_groups_proxy import ClusterGroups

__all__ = ["GroupsThere", "groups_there", "unreadable_topics"]

_DEAD = "DEAD"


class GroupsThere(NamedTuple):
    """
    Groups on the side that they move to.

    Attributes:
        states: State of each group.
        offsets: Committed offsets of each group that exists there.
        problems: Reason for each group whose offsets there cannot be read.
    """

    states: Mapping[str, GroupState]
    offsets: Mapping[str, Offsets]
    problems: Mapping[str, str] = MappingProxyType({})

    def offset(self, group: str, name: Name) -> int | None:
        """Returns the committed offset of a group in a partition; None for none."""
        found = self.offsets.get(group)
        committed = None if found is None else found.get(name)
        return None if committed is None else committed.offset


def groups_there(groups: ClusterGroups, names: Sequence[str]) -> GroupsThere:
    """
    Reads states, then the offsets of groups that exist: one without members and offsets needs no second request.

    Offsets are read last, because a consumer that starts in between commits them.

    Raises:
        AuthorizationError: A group may not be described.
        ClusterError: A coordinator does not answer.
    """
    states = groups.states(names)
    living = [name for name in names if states[name].name != _DEAD]
    found = groups.committed(living) if living else {}
    return GroupsThere(
        states,
        {name: one for name, one in found.items() if not isinstance(one, str)},
        {
            name: f"its offsets there cannot be read: {one}"
            for name, one in found.items()
            if isinstance(one, str)
        },
    )


def unreadable_topics(admin: ClusterAdmin, topics: Iterable[str]) -> dict[str, str]:
    """
    Returns the topics that we may not read, for which brokers refuse commits, with who lacks the right and the command.

    None where brokers tell no rights.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    rights = admin.topic_rights(sorted({topic for topic in topics if topic}))
    return {
        topic: told(lacking("", admin.account, [Right("Read", "topic", topic)]))
        for topic, operations in rights.items()
        if not operations & {"READ", "ALL"}
    }
