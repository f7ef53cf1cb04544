"""
Rights (ACLs) that links need, and the command that grants one. Pure.

`needed_rights` is the one list: `plan` looks for what is missing of it, `plan --acls` prints it, and docs/configure.md
is compared with it.  It comes from the configuration alone, so that it can be printed without any right on a cluster.
`lacking` is the one text for a right that is missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from eomirror.errors import AuthorizationError, TopicError
from eomirror.records.names import LinkNames
from eomirror.records.sink_progress import CLAIMS_TOPIC
from eomirror.topology.filters import is_literal, topic_filter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from eomirror.config.model import Cluster, Config, Link
    from eomirror.errors import MirrorError

__all__ = [
    "TOLD_AS",
    "ClusterUser",
    "NeededRight",
    "Right",
    "account_of",
    "lacking",
    "lacking_all",
    "named",
    "needed_rights",
    "told",
]

#: Operation of an ACL, and its name among a broker's authorized operations (KIP-430).
TOLD_AS = {
    "Alter": "ALTER",
    "AlterConfigs": "ALTER_CONFIGS",
    "Create": "CREATE",
    "Delete": "DELETE",
    "Describe": "DESCRIBE",
    "DescribeConfigs": "DESCRIBE_CONFIGS",
    "Read": "READ",
    "Write": "WRITE",
}
# Operations that imply another one, in Kafka's authorizer.
_IMPLIED = {"Describe": {"Read", "Write", "Alter", "Delete"}, "DescribeConfigs": {"AlterConfigs"}}
# The positions topic is created with so many partitions; more lanes grow it.
_LANES = 8
_ANY = "*"
_COMMAND = "kafka-acls.sh"
# how the extension names a partition that may not be read, also with an offset
_DENIED = re.compile(r"(?P<topic>[\w.-]+)-\d+(@\d+)?: .*TOPIC_AUTHORIZATION_FAILED")
# error code of a broker -> resource that it speaks of
_SPOKEN_OF = {
    "TOPIC_AUTHORIZATION_FAILED": "topic",
    "GROUP_AUTHORIZATION_FAILED": "group",
    "CLUSTER_AUTHORIZATION_FAILED": "cluster",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "transactional-id",
}


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """
    The mirror's user on a cluster.

    Attributes:
        cluster: Alias of the cluster.
        servers: Its bootstrap servers; empty if unknown.
        principal: Name of the user, as far as the configuration tells; empty if it does not.
        secured: True if an administrator needs client properties to connect.
    """

    cluster: str
    servers: str = ""
    principal: str = ""
    secured: bool = False

    def __str__(self) -> str:
        return f"{self.cluster} ({self.servers})" if self.servers else self.cluster

    @property
    def who(self) -> str:
        """The user, for messages."""
        return f"User:{self.principal}" if self.principal else "the mirror's principal"


def account_of(cluster: Cluster, principal: str = "") -> ClusterUser:
    """
    Returns the mirror's user on a cluster.

    Args:
        principal: Name of the user where the configuration does not tell it, with or without ``User:``.
    """
    protocol = str(cluster.properties.get("security.protocol", "plaintext")).lower()
    known = cluster.properties.get("sasl.username", "") if "sasl" in protocol else ""
    if protocol == "plaintext":
        known = "ANONYMOUS"
    name = known if isinstance(known, str) and known else principal.removeprefix("User:")
    return ClusterUser(cluster.alias, cluster.bootstrap_servers, name, secured=protocol != "plaintext")


@dataclass(frozen=True, slots=True)
class Right:
    """
    An ACL that a request needs.

    Attributes:
        operation: As kafka-acls.sh spells it, such as ``Create``.
        resource: ``topic``, ``group``, ``transactional-id`` or ``cluster``.
        name: Of the resource, or the beginning of names; ``*`` for all; empty for the cluster.
        prefixed: True if ``name`` is the beginning of names.
    """

    operation: str
    resource: str
    name: str = ""
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}{_ANY if self.prefixed else ''}".rstrip()

    def covers(self, other: Right) -> bool:
        """Returns True if who has this right has the other one as well."""
        operations = {other.operation, *_IMPLIED.get(other.operation, ())}
        if self.resource != other.resource or self.operation not in operations:
            return False
        if self.prefixed:
            return other.name != _ANY and other.name.startswith(self.name)
        return self.name == _ANY or (self.name == other.name and not other.prefixed)

    def acl(self, account: ClusterUser) -> str:
        """Returns the command that grants it."""
        where = f"--{self.resource} '{self.name}'" if self.name else f"--{self.resource}"
        return (
            f"{_COMMAND} --bootstrap-server {account.servers or 'HOST:PORT'} "
            f"{'--command-config ADMIN.properties ' if account.secured else ''}--add "
            f"--allow-principal 'User:{account.principal or 'PRINCIPAL'}' --operation {self.operation} {where}"
            f"{' --resource-pattern-type prefixed' if self.prefixed else ''}"
        )

    def plain(self, account: ClusterUser) -> dict[str, str]:
        """Returns it as plain values, with the command that grants it."""
        return {
            "cluster": account.cluster,
            "principal": f"User:{account.principal}" if account.principal else "",
            "operation": self.operation,
            "resource": self.resource,
            "name": self.name,
            "pattern": "prefixed" if self.prefixed else "literal",
            "command": self.acl(account),
        }


def lacking(
    doing: str, account: ClusterUser, rights: Collection[Right], *, topic: str = ""
) -> AuthorizationError:
    """
    Returns the error for missing rights: principal, operations and resources, and the commands that grant them.

    Args:
        doing: Beginning of the message, with its separator: what is not possible.
        topic: The source topic that it concerns.
    """
    named = ", ".join(map(str, rights))
    error = AuthorizationError(
        f"{doing}{account.who} lacks {named} of cluster {account}",
        fix="\n".join(right.acl(account) for right in rights),
        topic=topic,
    )
    error.missing_rights = tuple(right.plain(account) for right in rights)
    return error


def lacking_all(doing: str, needed: Iterable[NeededRight]) -> AuthorizationError:
    """Returns the error for missing rights of several users, as `lacking`."""
    needed = tuple(needed)
    errors = [
        lacking("", account, [need.right for need in needed if need.account == account])
        for account in dict.fromkeys(need.account for need in needed)
    ]
    error = AuthorizationError(
        doing + "; ".join(error.message for error in errors), fix="\n".join(error.fix for error in errors)
    )
    error.missing_rights = tuple(need.plain for need in needed)
    return error


def told(error: MirrorError) -> str:
    """Returns the message of an error, for a reason that stands in a line; with the commands, if rights are missing."""
    return f"{error.message}: {'; '.join(error.fix.splitlines())}" if error.missing_rights else error.message


def named(error: MirrorError, *accounts: ClusterUser, rights: Iterable[Right] = ()) -> MirrorError:
    """
    Returns an error of the extension for a missing right, with the right and its command; others as they are.

    Args:
        accounts: Users on the clusters that may have answered.
        rights: Rights that the request needs, of which those on what the answer speaks of are named; without one for
            a partition that the error names, Read on its topic.
    """
    code = next((code for code in _SPOKEN_OF if code in error.message), "")
    if not code or error.missing_rights:
        return error
    found = _DENIED.search(error.message)
    wanted = [right for right in dict.fromkeys(rights) if right.resource == _SPOKEN_OF[code]]
    if found is not None:
        topic = found["topic"]
        wanted = [right for right in wanted if right.name == topic] or [Right("Read", "topic", topic)]
    if not wanted:
        return error
    every = [lacking(f"{error.message}; ", account, wanted) for account in accounts]
    made = type(error)(every[0].message, fix="\n".join(each.fix for each in every), topic=error.topic)
    made.missing_rights = tuple(right for each in every for right in each.missing_rights)
    return made


class NeededRight(NamedTuple):
    """
    A right that a link needs.

    Attributes:
        account: Who needs it, and where.
        right: The right.
        purpose: What it is for.
        optional: True if the link runs without it, and reports what it cannot keep alike on its target.
        least: Rights that an optional one implies, and without which the link does not run.
    """

    account: ClusterUser
    right: Right
    purpose: str
    optional: bool = False
    least: tuple[Right, ...] = ()

    @property
    def plain(self) -> dict[str, str]:
        """The right as plain values."""
        return {**self.right.plain(self.account), "purpose": self.purpose}


def needed_rights(config: Config, links: Iterable[Link], *, principal: str = "") -> tuple[NeededRight, ...]:
    """
    Returns the rights that `run`, `verify` and the failover commands need for these links; none implies another.

    Args:
        principal: As of `account_of`.
    """
    accounts = {alias: account_of(cluster, principal) for alias, cluster in config.clusters.items()}
    found = [
        NeededRight(accounts[alias], right, purpose, optional)
        for link in links
        for rights, optional in ((_of_link(link, config.links), False), (_of_entries(link), True))
        for alias, right, purpose in rights
    ]
    kept: list[NeededRight] = []
    for need in found:
        same = [each for each in found if _place(each.account) == _place(need.account)]
        wider = any(each.right.covers(need.right) and not need.right.covers(each.right) for each in same)
        if not wider and not any(
            each.right == need.right and _place(each.account) == _place(need.account) for each in kept
        ):
            least = {one.right: None for one in same if need.right.covers(one.right) and not one.optional}
            kept.append(need._replace(least=tuple(least)) if need.optional else need)
    return tuple(sorted(kept, key=lambda need: list(accounts).index(need.account.cluster)))


def _place(account: ClusterUser) -> ClusterUser:
    # two aliases may name the same cluster
    return replace(account, cluster="") if account.servers else account


def _of_link(link: Link, every: Iterable[Link]) -> Iterator[tuple[str, Right, str]]:
    """Yields the alias of a cluster, a right there, and its purpose."""
    for where in _sources(link):
        yield from _rights(
            link.source, "topic", where, Read="read records", DescribeConfigs="give copies the same settings"
        )
    for where in _copies(link):
        yield from _rights(
            link.target, "topic", where, Create="create copies", Read="verify; find hanging transactions",
            Write="write records", Alter="add partitions",
        )  # fmt: skip
        if link.on_refused == "raise-limit":
            yield from _rights(link.target, "topic", where, AlterConfigs="keep settings the same")
        else:
            yield from _rights(link.target, "topic", where, DescribeConfigs="keep settings the same")
    state = _state(link)
    yield from _rights(
        link.target, "topic", state, Create="create the link's own topics", Read="read positions",
        Write="write positions", DescribeConfigs="refuse settings that lose positions",
    )  # fmt: skip
    if link.producers > _LANES:
        yield from _rights(link.target, "topic", state, Alter="add partitions for lanes")
    yield from _rights(link.target, "transactional-id", state, Write="write in transactions")
    if link.query is not None:
        yield from _rights(
            link.target, "topic", (CLAIMS_TOPIC, False), Create="create the topic of claims of Spark's tasks",
            Read="let one attempt of each of Spark's tasks write", Write="claim one of Spark's tasks",
        )  # fmt: skip
    for each in every:
        if each.target == link.source and each.name != link.name:
            yield from _rights(
                link.source, "topic", _state(each), Read="find records that came from the target"
            )
    yield from _of_readers(link)
    if not link.keyed:
        yield from _of_groups(link)


def _of_entries(link: Link) -> Iterator[tuple[str, Right, str]]:
    """Yields the rights to keep more alike than records need; without one, what it is for is reported."""
    everything = ("", False)
    if link.sync_topic_configs and link.on_refused != "raise-limit":
        for where in _copies(link):
            yield from _rights(link.target, "topic", where, AlterConfigs="keep settings the same")
    if link.acls is not False:
        yield from _rights(link.source, "cluster", everything, Describe="read ACL entries and SCRAM users")
        yield from _rights(link.target, "cluster", everything, Alter="read, add and delete ACL entries")
    if link.quotas:
        yield from _rights(link.source, "cluster", everything, DescribeConfigs="read client quotas")
        yield from _rights(link.target, "cluster", everything, AlterConfigs="read and set client quotas")
    if link.deletions == "delete":
        for where in _copies(link):
            yield from _rights(
                link.target, "topic", where, Delete="delete copies whose topic is gone on the source"
            )


def _of_readers(link: Link) -> Iterator[tuple[str, Right, str]]:
    """Yields the rights on topics for MirrorMaker 2's readers."""
    mm2 = link.mm2_names
    for alias, topic, is_read in (
        (link.target, mm2.offset_syncs(link.source) if link.offset_syncs == "target" else "", True),
        (link.source, mm2.offset_syncs(link.target) if link.offset_syncs == "source" else "", False),
        (link.target, mm2.checkpoints(link.source) if link.groups else "", True),
        (link.target, mm2.remote_heartbeats(link.source) if link.beats_on_target else "", False),
        (link.source, mm2.heartbeats if link.heartbeats == "source" else "", False),
    ):
        if topic:
            yield from _rights(
                alias, "topic", (topic, False), Create="create topics for MirrorMaker 2's readers",
                Write="write for MirrorMaker 2's readers", DescribeConfigs="warn of settings that lose records",
            )  # fmt: skip
            if is_read:
                yield from _rights(
                    alias, "topic", (topic, False), Read="find hanging transactions; move groups"
                )


def _of_groups(link: Link) -> Iterator[tuple[str, Right, str]]:
    for where in sorted({place for pattern in link.groups for place in _places(pattern)}):
        yield from _rights(link.source, "group", where, Describe="follow groups")
        yield from _rights(link.target, "group", where, Read="commit offsets of groups, also at a failover")
        if link.group_deletions == "delete":
            yield from _rights(link.target, "group", where, Delete="delete groups as on the source")


def _state(link: Link) -> tuple[str, bool]:
    return LinkNames(link.state_name).control_topic.removesuffix("control"), True


def _rights(
    alias: str, resource: str, where: tuple[str, bool], **purposes: str
) -> Iterator[tuple[str, Right, str]]:
    for operation, purpose in purposes.items():
        yield alias, Right(operation, resource, *where), purpose


def _sources(link: Link) -> list[tuple[str, bool]]:
    beats = [(link.mm2_names.heartbeats, False)] if link.heartbeats == "source" else []
    return beats + [
        (name, prefixed)
        for pattern in link.topics
        for name, prefixed in _places(pattern)
        if prefixed or name == _ANY or link.mirrors(name)
    ]


def _copies(link: Link) -> list[tuple[str, bool]]:
    """Returns the names, or the beginnings of names, of copies on the target."""
    naming, found = link.target_naming, []
    for name, prefixed in _sources(link):
        if not prefixed and name != _ANY:
            try:
                found.append((naming.target_topic(name), False))
            except TopicError:
                # an error of this topic, which `plan` names
                continue
        elif naming.naming.kind == "map":
            allowed = topic_filter(link.topics, link.exclude)
            found += [(new, False) for old, new in naming.naming.names if allowed.accepts(old)]
        else:
            start = naming.beginning("" if name == _ANY else name)
            found.append((start, True) if start else (_ANY, False))
    return list(dict.fromkeys(found))


def _places(pattern: str) -> list[tuple[str, bool]]:
    """Returns the names that a pattern stands for, each with True if it is only the beginning of names."""
    if is_literal(pattern):
        return [(pattern.replace("\\.", "."), False)]
    starts = [_beginning(each) for each in _alternatives(pattern)]
    return [(start, prefixed) if start else (_ANY, False) for start, prefixed in starts]


def _alternatives(pattern: str) -> list[str]:
    """Splits a pattern at the bars that stand outside of groups and classes."""
    parts, depth, at = [""], 0, 0
    while at < len(pattern):
        step = 2 if pattern[at] == "\\" else 1
        piece = pattern[at : at + step]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(piece, 0)
        if piece == "|" and depth <= 0:
            parts.append("")
        else:
            parts[-1] += piece
        at += step
    return parts


def _beginning(pattern: str) -> tuple[str, bool]:
    """Returns the text with which all names begin that a pattern matches, and True if it matches longer names."""
    text, rest = "", pattern.removeprefix("^")
    while found := re.match(r"([A-Za-z0-9_-]|\\[.\-_])(?![*?{])", rest):
        text += found[1].removeprefix("\\")
        rest = rest[found.end() :]
    return text, rest not in ("", "$")
