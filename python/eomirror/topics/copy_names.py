"""The names of a link's copies: collisions, and copies that the link would mirror again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import ConfigError, Fault, MirrorError, TopicError
from eomirror.topology.naming import collisions

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["copy_names", "goes_round", "mirrored_again", "refuse_same_cluster"]


def copy_names(
    link: Link, target: ClusterAdmin, matched: Sequence[str], mirrored: Collection[str]
) -> tuple[dict[str, str], dict[str, MirrorError]]:
    """
    Returns the names of copies, and the error of each topic that cannot have one.

    Args:
        target: Admin client of the target.
        matched: Source topics.
        mirrored: Source topics that have a copy.
    """
    targets: dict[str, str] = {}
    refused: dict[str, MirrorError] = {}
    for topic in matched:
        try:
            targets[topic] = link.target_topic(topic)
        except TopicError as error:
            refused[topic] = error
    for collision in collisions(matched, link.target_naming):
        # The topic that was mirrored first stays; the new one waits for a person.
        staying = _staying(collision.sources, targets, target, mirrored)
        for topic in collision.sources:
            if topic not in staying and targets.pop(topic, None) is not None:
                refused[topic] = collision.error(f"link {link.name}", link.target)
    return targets, refused


def refuse_same_cluster(
    link: Link, source: ClusterAdmin, target: ClusterAdmin, cluster_id: str, targets: Mapping[str, str]
) -> None:
    """
    Refuses a link within one cluster that would mirror its own copies.

    Raises:
        ConfigError: No topic is renamed; or two aliases are the same cluster.
        TopicError: A copy is a source topic of the link as well.
    """
    culprit = next((topic for topic, name in targets.items() if goes_round(link, topic, name)), None)
    if culprit is None and link.naming.kind != "identity":
        return
    if culprit is not None and link.source == link.target:
        raise mirrored_again(f"link {link.name}: topic {culprit}", targets[culprit], culprit)
    what = f"topic {culprit} would be written to {targets[culprit]}" if culprit else "no topic is renamed"
    raise ConfigError(
        [
            Fault(
                f"links.{link.name}",
                f"source {source.name} and target {target.name} are the same cluster "
                f"(id {cluster_id}), and {what}, which the link would mirror again",
                "correct bootstrap.servers of one cluster; or, to copy topics within a cluster, rename every "
                "topic to a name that the link's `topics` do not match",
            )
        ]
    )


def goes_round(link: Link, topic: str, name: str) -> bool:
    """Returns True if a copy on the same cluster is a source topic of the link as well."""
    return topic == name or link.filter.accepts(name)


def mirrored_again(what: str, name: str, topic: str) -> TopicError:
    """Returns the error of a topic whose copy on the same cluster is a source topic of the link as well."""
    return TopicError(
        f"{what} would be written to {name}, and mirrored again and again: source and target are the same cluster",
        fix="put it under the link's `exclude`",
        topic=topic,
    )


def _staying(
    sources: Sequence[str], targets: Mapping[str, str], target: ClusterAdmin, mirrored: Collection[str]
) -> set[str]:
    """Returns the colliding topics that are mirrored already: by this link, or because their copy exists."""
    if staying := {topic for topic in sources if topic in mirrored}:
        return staying
    names = {topic: targets[topic] for topic in sources if topic in targets}
    found, _ = target.visible_topics(sorted(set(names.values())))
    existing = {topic for topic, name in names.items() if found.get(name) is not None}
    # If several would share a copy, its owner is unknown.
    return existing if len(existing) == 1 else set()
