"""Finds all rights that a link needs and its users lack; changes nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from eomirror._native import lacking_rights
from eomirror.config.rights import Right, lacking_all, needed_rights
from eomirror.errors import ClusterError, MirrorError, TopicError
from eomirror.records.names import LinkNames
from eomirror.topics.native_admin import native_properties
from eomirror.topics.state_topics import state_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.config.rights import NeededRight
    from eomirror.errors import AuthorizationError
    from eomirror.kafka.session import ClusterSession, LinkSessions

__all__ = ["missing_rights", "refuse_missing_rights", "with_all_missing"]

log = structlog.get_logger(__name__)

# Groups that are asked about, of those that a pattern matches: each is a request.
_GROUPS = 20
_SECONDS = 30.0


def refuse_missing_rights(config: Config, link: Link, sessions: LinkSessions) -> tuple[NeededRight, ...]:
    """
    Raises if a right is missing without which the link does not run; the error names all that are missing.

    Returns:
        The missing rights without which it runs.

    Raises:
        AuthorizationError: Rights are missing.
        ClusterError: A cluster cannot be reached.
    """
    missing = missing_rights(config, link, sessions)
    if not all(need.optional for need in missing):
        raise lacking_all(f"link {link.name}: ", missing)
    return missing


def with_all_missing(
    config: Config, error: AuthorizationError, link: Link, sessions: LinkSessions
) -> AuthorizationError:
    """Returns the error of a start that was refused for one right with all that are missing, as `plan` names them."""
    try:
        missing = missing_rights(config, link, sessions) if error.missing_rights else ()
    except MirrorError as failed:
        log.warning("rights_not_checked", link=link.name, reason=failed.message, fix=failed.fix)
        return error
    commands = {need.plain["command"] for need in missing}
    if commands <= {right["command"] for right in error.missing_rights}:
        return error
    every = lacking_all(f"{error.message}; in all ", missing)
    others = [right for right in error.missing_rights if not _covered(right, missing)]
    every.missing_rights += tuple(others)
    every.fix = "\n".join(right["command"] for right in every.missing_rights)
    return every


def _covered(right: Mapping[str, str], missing: Iterable[NeededRight]) -> bool:
    one = Right(right["operation"], right["resource"], right["name"], prefixed=right["pattern"] == "prefixed")
    return any(need.account.cluster == right["cluster"] and need.right.covers(one) for need in missing)


def missing_rights(config: Config, link: Link, sessions: LinkSessions) -> tuple[NeededRight, ...]:
    """
    Returns the rights that the link needs and that its users lack, all of them; changes nothing.

    A right on many names is asked for the names that the link has.  Where it has none, or none is visible, it is asked
    for one that begins like them.

    Raises:
        ClusterError: A cluster cannot be reached.
    """
    source = sessions.source.admin
    mirrored = [topic for topic in source.topic_names() if link.mirrors(topic)]
    copies = []
    for topic in mirrored:
        with suppress(TopicError):
            copies.append(link.target_topic(topic))
    names = LinkNames(link.state_name)
    own = [topic.name for topic in state_topics(
        names, lanes=link.producers, brokers=1, dead_letters=link.on_refused == "dead-letter"
    )]  # fmt: skip
    ids = [names.control_transactional_id, *map(names.transactional_id, range(link.producers))]
    groups = [group for group in source.visible_groups() if link.follows(group)][:_GROUPS]
    known = {
        link.source: {"topic": mirrored, "group": groups},
        link.target: {"topic": [*copies, *own], "group": groups, "transactional-id": ids},
    }
    needed = needed_rights(config, [link])
    missing: set[tuple[NeededRight, Right]] = set()
    for alias, session in ((link.source, sessions.source), (link.target, sessions.target)):
        asked: dict[Right, tuple[NeededRight, Right]] = {}
        for need in needed:
            if need.account.cluster != alias:
                continue
            for wanted in (*need.least, need.right):
                for name in _asked_names(wanted, known[alias].get(wanted.resource, [])):
                    asked[Right(wanted.operation, wanted.resource, name)] = need, wanted
        lacked, others = session.admin.missing_rights(list(asked))
        missing |= {asked[right] for right in lacked | _lacked(session, others)}
    return tuple(
        need._replace(optional=False) if any((need, one) in missing for one in need.least) else need
        for need in needed
        if (need, need.right) in missing
    )


def _lacked(session: ClusterSession, rights: Sequence[Right]) -> set[Right]:
    """Returns the missing ones of rights that only the extension's client has requests for."""
    try:
        properties, tokens = native_properties(session)
    except ClusterError as error:
        log.warning(
            "rights_not_checked",
            cluster=session.cluster.alias,
            rights=[str(right) for right in rights],
            reason=error.message,
            fix="compare them with `eomirror plan CONFIG --acls`",
        )
        return set()
    asked = {(right.operation, right.resource, right.name): right for right in rights}
    return (
        {asked[found] for found in lacking_rights(properties, tokens, list(asked), _SECONDS)}
        if asked
        else set()
    )


def _asked_names(right: Right, known: Sequence[str]) -> list[str]:
    if not right.prefixed and right.name != "*":
        return [right.name]
    start = right.name if right.prefixed else ""
    return [name for name in known if name.startswith(start)] or [start or "any"]
