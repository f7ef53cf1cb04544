"""
Serializable form of a cluster, with references in place of secrets.

A task of a Spark cluster crosses the network and stays in the memory of other processes.  So it carries
``${env:NAME}`` and ``${file:/path}`` as written, and each worker resolves them from its own environment and files.  A
secret that is written in the configuration itself has no reference and is carried as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.config.model import Cluster, FrozenMapping
from eomirror.config.nodes import Faults, Place, Scalar, Sequence
from eomirror.config.references import resolve
from eomirror.config.secret import Secret
from eomirror.config.transform import Rule, check_secret
from eomirror.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.model import Link

__all__ = ["CarriedCluster", "carried_link", "resolved_link", "with_secrets"]

Properties = FrozenMapping[str | Secret]

_FIX = "give every Spark worker the environment variable or the file that the driver has"


@dataclass(frozen=True, slots=True)
class CarriedCluster:
    """
    Cluster without the secrets that have a reference.

    Attributes:
        cluster: The cluster without them.
        references: Section (empty, ``consumer`` or ``producer``), property, and the text with references.
    """

    cluster: Cluster
    references: tuple[tuple[str, str, str], ...]

    @classmethod
    def of(cls, cluster: Cluster) -> CarriedCluster:
        """Returns ``cluster`` in the form that may be sent to another machine."""
        references: list[tuple[str, str, str]] = []
        kept: dict[str, Properties] = {}
        for section, properties in _sections(cluster).items():
            referred = {
                key: value.reference
                for key, value in properties.items()
                if isinstance(value, Secret) and value.reference
            }
            references += [(section, key, text) for key, text in referred.items()]
            kept[section] = FrozenMapping(
                {key: value for key, value in properties.items() if key not in referred}
            )
        return cls(_cluster(cluster.alias, kept), tuple(references))

    def resolve(self, environ: Mapping[str, str]) -> Cluster:
        """
        Returns the cluster with its secrets, resolved in this process.

        Args:
            environ: Environment of this process.

        Raises:
            ConfigError: Variables or files are missing here; names all of them.
        """
        faults = Faults()
        filled = {section: dict(properties) for section, properties in _sections(self.cluster).items()}
        for section, key, text in self.references:
            path = ".".join(filter(None, ("clusters", self.cluster.alias, section, key)))
            resolved = resolve(Place(Scalar(text), path, faults), text, environ)
            if resolved is not None:
                filled[section][key] = Secret(resolved, text)
        if faults.faults:
            raise ConfigError([Fault(one.path, one.message, _FIX) for one in faults.faults])
        return _cluster(
            self.cluster.alias,
            {section: FrozenMapping(properties) for section, properties in filled.items()},
        )


def with_secrets(rules: tuple[Rule, ...], place: Place, environ: Mapping[str, str]) -> tuple[Rule, ...]:
    """
    Returns the rules with the secrets that references name; a reference that cannot be resolved adds a fault.

    Args:
        place: Where the rules stand.
        environ: Variables.
    """
    found = []
    for number, rule in enumerate(rules):
        secret = rule.secret
        if secret is not None and secret.reference:
            line = place.node.items[number].line if isinstance(place.node, Sequence) else place.node.line
            where = place.below(Scalar(secret.reference, line=line), f"[{number}].mask.secret")
            text = resolve(where, secret.reference, environ)
            if text is None:
                continue
            check_secret(where, text)
            rule = rule.with_secret(Secret(text, secret.reference))  # noqa: PLW2901  the rule, complete
        found.append(rule)
    return tuple(found)


def carried_link(link: Link) -> Link:
    """
    Returns a link in the form that may be sent to another machine.

    Its rules lack secrets that have a reference, and it names no schema registries: the driver alone asks them.
    """
    rules = (
        rule
        if rule.secret is None or not rule.secret.reference
        else rule.with_secret(Secret("", rule.secret.reference))
        for rule in link.transform
    )
    return replace(link, transform=tuple(rules), schemas=None)


def resolved_link(link: Link, environ: Mapping[str, str]) -> Link:
    """
    Returns a link with the secrets that `carried_link` has left out, resolved in this process.

    Args:
        environ: Environment of this process.

    Raises:
        ConfigError: Variables or files are missing here; names all of them.
    """
    if all(rule.secret is None or rule.secret.reveal() for rule in link.transform):
        return link
    faults = Faults()
    rules = with_secrets(link.transform, Place(Scalar(""), f"{link.name}.transform", faults), environ)
    if faults.faults:
        raise ConfigError([Fault(one.path, one.message, _FIX) for one in faults.faults])
    return replace(link, transform=rules)


def _sections(cluster: Cluster) -> dict[str, Mapping[str, str | Secret]]:
    return {"": cluster.properties, "consumer": cluster.consumer, "producer": cluster.producer}


def _cluster(alias: str, sections: Mapping[str, Properties]) -> Cluster:
    return Cluster(alias, sections[""], consumer=sections["consumer"], producer=sections["producer"])
