"""Checks across several settings of a link, and across links. Pure."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from eomirror.config.nodes import quoted
from eomirror.config.values import duration_text
from eomirror.records.names import LinkNames
from eomirror.topology.covered import covered_text
from eomirror.topology.flow import Flow
from eomirror.topology.graph import topology
from eomirror.topology.naming import MAX_TOPIC_LENGTH, illegal_name
from eomirror.topology.warnings import meeting, own_cluster_fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.config.model import Cluster, Link
    from eomirror.config.nodes import Faults, Map
    from eomirror.config.schemas import SchemaMirror

__all__ = ["check_links"]

_SHORT_EPOCH = 20.0
#: Settings that only lanes obey.
_NOT_OF_QUERIES = (
    "partitions",
    "origin_header",
    "on_unreadable",
    "groups",
    "sync_group_offsets",
    "offset_syncs",
    "on_gap",
    "on_refused",
    "balance",
    "plane",
    "epoch",
    "commit_interval_min",
)  # fmt: skip


def check_links(
    links: Sequence[Link], nodes: Sequence[Map], clusters: Mapping[str, Cluster], faults: Faults
) -> list[Link]:
    """
    Checks links against clusters and each other; returns them with their loop rules.

    Args:
        links: Links in the order of the file.
        nodes: Node of each link in the file.
    """
    before = len(faults.faults)
    for number, (link, node) in enumerate(zip(links, nodes, strict=True)):
        checker = _Checker(f"links[{number}]", node, faults)
        checker.ends(link, clusters)
        checker.times(link)
        checker.refusals(link)
        checker.deletions(link)
        checker.placement(link)
        checker.transform(link)
        checker.schemas(link)
        checker.names(link)
        checker.covered(link)
    _twice(links, nodes, faults)
    # a topology of faulty links would report mistakes that do not exist
    if len(faults.faults) > before or not all(link.topics for link in links) or faults.faults:
        return list(links)
    verdict = topology(links)
    for found, add in ((verdict.faults, faults.add), (verdict.warnings, faults.warn)):
        for fault in found:
            add(
                f"links[{fault.link}].{fault.key}",
                fault.message,
                fault.fix,
                nodes[fault.link].line_of(fault.key),
            )
    checked = [
        _unmapped(dataclasses.replace(link, loops=rules))
        for link, rules in zip(links, verdict.rules, strict=True)
    ]
    _one_way(checked, nodes, faults)
    _without_header(checked, nodes, faults)
    _separate_copies(checked, nodes, faults)
    _placed_alike(checked, nodes, faults)
    _moved_groups(checked, nodes, faults)
    _mixed_copies(checked, nodes, faults)
    return checked


def _unmapped(link: Link) -> Link:
    """Returns a link without what needs an offset map, if it has none: one that places by key, or a query."""
    if link.query is not None:
        # a row may be placed by its key, so no position has one target partition
        link = dataclasses.replace(link, partitions="keyed")
    return dataclasses.replace(link, groups=(), offset_syncs="off") if link.keyed else link


class _Checker:
    """Checks one link."""

    def __init__(self, path: str, node: Map, faults: Faults) -> None:
        self._path = path
        self._node = node
        self._faults = faults

    def _refuse(self, key: str, message: str, fix: str) -> None:
        self._faults.add(f"{self._path}.{key}", message, fix, self._node.line_of(key))

    def ends(self, link: Link, clusters: Mapping[str, Cluster]) -> None:
        """Checks that source and target exist, and that the link does not mirror its own copies."""
        known = ", ".join(clusters)
        for key, alias in (("source", link.source), ("target", link.target)):
            if alias and clusters and alias not in clusters:
                self._refuse(key, f"there is no cluster {quoted(alias)}", f"name one of: {known}")
        for alias in link.forward if isinstance(link.forward, tuple) else ():
            if clusters and alias not in clusters:
                self._refuse("forward", f"there is no cluster {quoted(alias)}", f"name one of: {known}")
        if link.source and link.source == link.target:
            self._own_cluster(link)
            return
        if link.source in clusters and link.target in clusters:
            source, target = (_brokers(clusters[alias]) for alias in (link.source, link.target))
            if source & target:
                self._faults.warn(
                    f"{self._path}.target",
                    f"{link.source} and {link.target} share broker {min(source & target)}: are they one cluster?",
                    "correct bootstrap.servers; or, to copy topics within a cluster, name it once and use one alias as "
                    "source and target",
                    self._node.line_of("target"),
                )

    def covered(self, link: Link) -> None:
        """Warns of patterns that match nothing, because the other list excludes them as a whole."""
        for key, against, include, exclude in (
            ("topics", "exclude", link.topics, link.exclude),
            ("groups", "exclude_groups", link.groups, link.exclude_groups),
        ):
            for pattern in include:
                if not (text := covered_text((pattern,), exclude, against)):
                    continue
                self._faults.warn(
                    f"{self._path}.{key}",
                    text,
                    f"take one of them out (`{against}: []` excludes nothing)",
                    self._node.line_of(key),
                )

    def _own_cluster(self, link: Link) -> None:
        message, fix = own_cluster_fault(link) if link.topics else ("", "")
        if message:
            self._refuse("target", message, fix)
        if link.group_deletions == "delete":
            self._refuse(
                "group_deletions",
                "source and target are the same cluster: the group to delete is the one that is followed",
                "leave group_deletions out",
            )

    def times(self, link: Link) -> None:
        """Checks that the intervals are consistent."""
        if link.commit_interval > link.transaction_timeout / 4:
            self._refuse(
                "commit_interval" if "commit_interval" in self._node.entries else "transaction_timeout",
                f"commit_interval {duration_text(link.commit_interval)} is more than a quarter of "
                f"transaction_timeout {duration_text(link.transaction_timeout)}: a slow commit would be aborted",
                f"set commit_interval to at most {duration_text(link.transaction_timeout / 4)}",
            )
        if link.commit_interval_min > link.commit_interval:
            self._refuse(
                "commit_interval_min",
                f"{duration_text(link.commit_interval_min)} is more than commit_interval, "
                f"{duration_text(link.commit_interval)}",
                f"set it to at most {duration_text(link.commit_interval)}",
            )
        if link.epoch < _SHORT_EPOCH:
            self._faults.warn(
                f"{self._path}.epoch",
                f"{duration_text(link.epoch)} is short: starting tasks so often costs throughput",
                "choose 20s or more",
                self._node.line_of("epoch"),
            )

    def refusals(self, link: Link) -> None:
        """Checks that what happens to refused records agrees with the other settings."""
        if link.raise_limit_to is not None and link.on_refused != "raise-limit":
            self._refuse(
                "raise_limit_to",
                f"on_refused is {link.on_refused}, which raises no limit",
                "set on_refused: raise-limit, or leave raise_limit_to out",
            )
        if link.on_refused == "raise-limit" and link.leaves_config("max.message.bytes"):
            self._refuse(
                "on_refused",
                "raise-limit changes max.message.bytes, which exclude_configs leaves to the target",
                "choose another on_refused, or take max.message.bytes out of exclude_configs",
            )

    def deletions(self, link: Link) -> None:
        """Checks that groups are deleted only by a link that commits their offsets."""
        if link.group_deletions == "delete" and not link.sync_group_offsets:
            self._refuse(
                "group_deletions",
                "sync_group_offsets is false, so the link has no group on the target to delete",
                "set sync_group_offsets: true, or leave group_deletions out",
            )

    def placement(self, link: Link) -> None:
        """Checks that a link which places records by key does not ask for what needs one target partition."""
        if not link.keyed:
            if link.target_partitions is not None:
                self._refuse(
                    "target_partitions",
                    "partitions is preserve, so a target topic has the partitions of its source",
                    "set partitions: keyed, or leave target_partitions out",
                )
            return
        unmapped = "partitions: keyed has no offset map, so offsets of consumer groups cannot be translated"
        if not link.origin_header:
            self._refuse(
                "partitions",
                "keyed needs origin_header: true: only the header tells verify and readers where a record was",
                "set origin_header: true",
            )
        if link.on_refused != "stop":
            self._refuse(
                "on_refused",
                f"{link.on_refused} needs the source partition of a refused record, which its target partition does "
                "not tell with partitions: keyed",
                "set on_refused: stop, or leave it out",
            )
        if link.sync_group_offsets:
            self._refuse("sync_group_offsets", unmapped, "leave sync_group_offsets out")
        if link.groups and "groups" in self._node.entries:
            self._refuse("groups", unmapped, "set groups: [], or leave groups out")
        if link.offset_syncs != "off" and "offset_syncs" in self._node.entries:
            self._refuse("offset_syncs", unmapped, "set offset_syncs: off, or leave it out")

    def transform(self, link: Link) -> None:
        """Checks that no other setting lets out what a rule hides."""
        if not link.transform:
            if "on_unreadable" in self._node.entries and link.on_unreadable != "stop":
                self._refuse(
                    "on_unreadable", "the link has no transform", "write rules, or leave on_unreadable out"
                )
            return
        if link.on_refused == "dead-letter":
            self._refuse(
                "on_refused",
                "dead-letter writes the record to the target, with what the transform hides",
                "set on_refused: stop or raise-limit",
            )
        if link.query is not None:
            self._query(link.query.kind)
        for number, rule in enumerate(link.transform):
            if rule.fields and link.on_unreadable == "keep":
                self._faults.warn(
                    f"{self._path}.transform[{number}]",
                    "with on_unreadable: keep, a record whose value is no JSON reaches the target unmasked",
                    "set on_unreadable: stop or drop",
                    self._node.line_of("transform"),
                )

    def _query(self, kind: str) -> None:
        """Refuses settings that a query does not have."""
        for key in _NOT_OF_QUERIES:
            if key in self._node.entries:
                self._refuse(
                    key,
                    f"a link with transform: {kind} has no such setting: a query of Spark writes its records",
                    f"leave {key} out; or write rules in place of the query",
                )

    def schemas(self, link: Link) -> None:
        """Warns of a link that mirrors the topic of a registry as well."""
        if link.schemas is not None and link.topics and link.mirrors("_schemas"):
            self._faults.warn(
                f"{self._path}.schemas",
                "`topics` matches _schemas as well, the topic of a registry: its copy serves no registry that takes "
                "registrations",
                "exclude: [_schemas]",
                self._node.line_of("schemas"),
            )

    def names(self, link: Link) -> None:
        """Checks that the link's own topics have legal names."""
        names = LinkNames(link.state_name)
        own = (
            names.control_topic,
            names.positions_topic,
            names.offset_map_topic,
            names.dead_letter_topic,
            link.mm2_names.offset_syncs(link.source),
            link.mm2_names.checkpoints(link.source),
        )
        longest = max(own, key=len)
        if len(longest) > MAX_TOPIC_LENGTH:
            self._refuse(
                "name",
                f"a topic of the link would have a name of {len(longest)} characters; Kafka allows {MAX_TOPIC_LENGTH}",
                "shorten the name of the link, or the aliases",
            )
        prefix = f"{link.source}{link.naming.separator}"
        if link.naming.kind == "prefix" and (problem := illegal_name(f"{prefix}x")) and link.source:
            self._refuse("naming", f"prefix {quoted(prefix)}: {problem}", "shorten the alias")


def _brokers(cluster: Cluster) -> set[str]:
    return {broker.strip() for broker in cluster.bootstrap_servers.split(",") if broker.strip()}


def _one_way(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """Checks that links that place records by key need no loop guard."""
    for number, (link, node) in enumerate(zip(links, nodes, strict=True)):
        if link.keyed and (link.guard or link.provenance_header):
            faults.add(
                f"links[{number}].partitions",
                f"keyed serves one way only, and this link adds or reads the provenance header: {link.loops.why}",
                "choose target names that no link mirrors back, with provenance: auto; or set partitions: preserve",
                node.line_of("partitions"),
            )


def _without_header(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """Checks that links with a transform need no loop guard: a copy that changed would be new on the way back."""
    for number, (link, node) in enumerate(zip(links, nodes, strict=True)):
        if link.transform and (link.guard or link.provenance_header):
            faults.add(
                f"links[{number}].transform",
                f"it serves one way only, and this link adds or reads the provenance header: {link.loops.why}",
                "choose target names that no link mirrors back, with provenance: auto; or remove the transform",
                node.line_of("transform"),
            )


def _separate_copies(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """Checks that no link deletes subjects that another one mirrors, and that none come back to their source."""
    for number, link in enumerate(links):
        one = link.schemas
        if one is None:
            continue
        path, line = f"links[{number}].schemas", nodes[number].line_of("schemas")
        for before in links[:number]:
            other = before.schemas
            if other is None or one.context != other.context:
                continue
            same = (one.subjects, one.exclude) == (other.subjects, other.exclude)
            deletes = "delete" in (one.deletions, other.deletions)
            if set(one.target.urls) & set(other.target.urls) and (same or deletes):
                faults.add(
                    path,
                    f"{before.name} mirrors {'the same ' if same else ''}subjects into the same context of the same "
                    "registry"
                    + ("" if same else ", and `deletions: delete` would delete what the other one mirrors"),
                    "give each link a `context` of its own"
                    + (", or different `subjects`" if same else ", or write deletions: report in both"),
                    line,
                )
                break
        if _come_back(one, [each.schemas for each in links[: number + 1] if each.schemas is not None]):
            faults.add(
                path,
                f"subjects of {link.source} come back to its registry, where applications could not register any more",
                "give each direction a `context`, such as the name of its source",
                line,
            )


def _come_back(first: SchemaMirror, mirrors: Sequence[SchemaMirror]) -> bool:
    """Returns True if copies in the default context come back to the source of ``first``."""
    if first.context:
        return False
    reached: set[str] = set(first.target.urls)
    for _ in mirrors:
        for each in mirrors:
            if not each.context and reached & set(each.source.urls):
                reached |= set(each.target.urls)
    return bool(reached & set(first.source.urls))


def _placed_alike(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """Checks that all links into a topic whose records are placed by key place them alike."""
    for number, link in enumerate(links):
        for before in links[:number]:
            if not (link.keyed or before.keyed) or meeting(before, link) is not Flow.YES:
                continue
            for key in ("partitions", "target_partitions"):
                if getattr(link, key) != getattr(before, key):
                    faults.add(
                        f"links[{number}].{key}",
                        f"{before.name} writes topics of the same names on {link.target} with another {key}: records "
                        "of one key would be in several partitions",
                        f"give both links the same {key}",
                        nodes[number].line_of(key),
                    )
                    break


def _moved_groups(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """
    Checks that offsets of a group are committed by one link only.

    If two sources are mirrored to the same target topics, the offset of a group that has read one source is beyond
    records of the other, which the group would skip.  Links with the loop guard commit no group offsets.
    """
    for number, (link, node) in enumerate(zip(links, nodes, strict=True)):
        if link.sync_group_offsets and link.guard:
            faults.warn(
                f"links[{number}].sync_group_offsets",
                f"{link.name} moves no group: {link.loops.why}, so the loop guard decides about each record, and no "
                "single offset of a group is exact",
                "`eomirror cutover` and `failback` move the groups of applications that move, while both clusters "
                "answer; `eomirror offsets export` and `import` move a group alone; or mirror topics that go one way "
                "by a link of their own",
                node.line_of("sync_group_offsets"),
            )
        if not link.sync_group_offsets or link.guard:
            continue
        for other in links:
            found = Flow.NO if _is_twin(link, other) else meeting(link, other)
            if found is Flow.NO:
                continue
            add = faults.add if found is Flow.YES else faults.warn
            add(
                f"links[{number}].sync_group_offsets",
                f"{other.name} writes topics of the same names on {link.target}: a group with translated offsets of "
                f"{link.source} would skip records of {other.source}",
                "leave sync_group_offsets out, or use separate target topics (`naming: prefix`)",
                node.line_of("sync_group_offsets"),
            )
            break


def _is_twin(link: Link, other: Link) -> bool:
    """Returns True if two links are one, or would mirror the same topics, which `_twice` warns of."""
    return link is other or (link.source == other.source and link.naming == other.naming)


def _mixed_copies(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """
    Warns of two sources that are mirrored to the same target topics without being asked for.

    Links with the loop guard, and those with ``aggregate: true``, are meant to be.
    """
    plain = [(n, link) for n, link in enumerate(links) if not link.guard]
    for position, (number, link) in enumerate(plain):
        for _, before in plain[:position]:
            if _is_twin(link, before) or (link.aggregate and before.aggregate):
                continue
            if meeting(before, link) is Flow.YES:
                faults.warn(
                    f"links[{number}].naming",
                    f"{before.name} writes topics of the same names on {link.target}: their records are mixed there, "
                    "each link repeatedly applies the topic settings of its own source, and no target topic equals a "
                    "source topic",
                    "if that is meant, set `aggregate: true` on both links; else use `naming: prefix`",
                    nodes[number].line_of("naming"),
                )
                break


def _twice(links: Sequence[Link], nodes: Sequence[Map], faults: Faults) -> None:
    """Checks that names of links and of state topics are unique, where `.` and `_` count as equal as in Kafka."""
    names: dict[str, int] = {}
    pairs: dict[tuple[str, str], int] = {}
    for number, (link, node) in enumerate(zip(links, nodes, strict=True)):
        if not link.source or not link.target:
            continue
        first = names.setdefault(link.state_name.replace(".", "_"), number)
        if first != number:
            message = f"links[{first}] has the same name"
            if links[first].name != link.name:
                message = f"topics of {link.name} and of {links[first].name} would differ only in '.' and '_'"
            faults.add(f"links[{number}].name", message, "give each link a `name` of its own", node.line)
            continue
        other = pairs.setdefault((link.source, link.target), number)
        if other != number:
            faults.warn(
                f"links[{number}]",
                f"links[{other}] also mirrors from {link.source} to {link.target}",
                "make sure that no topic is mirrored by both",
                node.line,
            )
