"""
Checks properties of a configuration with librdkafka's own parser, without connecting.

So no copy of its property list can become outdated.  Each property is set together with one that no version can know.
Properties are processed in order, so a complaint about the second one means that the first was accepted, and no client
is created.  Checks that run on creation (ranges, exclusive properties, certificates) use a client without brokers,
which is destroyed at once.
"""

from __future__ import annotations

import difflib
import os
import re
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer

from eomirror.config import Cluster, Secret
from eomirror.config.clients import CONSUMER_ONLY, PRODUCER_ONLY, consumer_properties, producer_properties
from eomirror.config.token_function import OAUTH_CB, TokenFunction
from eomirror.errors import ClusterError, Fault
from eomirror.kafka.client_factory import holds_secret
from eomirror.kafka.errors import said

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["property_faults"]

_SENTINEL = "eomirror.no.such.property"

#: properties of both roles that users set most, for suggestions
_COMMON = frozenset(
    {
        "bootstrap.servers",
        "client.rack",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)

# creating a client with these starts what talks to others: a token request, kinit, a broker connection
_CONNECTS = re.compile(r"^(sasl\.|oauth_cb$|bootstrap\.servers$|security\.protocol$|https\.|ssl\.engine)")


#: names that a misspelled one may have meant
_SUGGESTED = CONSUMER_ONLY | PRODUCER_ONLY | _COMMON


def property_faults(clusters: Iterable[Cluster], lines: Mapping[str, int] | None = None) -> list[Fault]:
    """
    Returns client properties that librdkafka does not know, or whose values it refuses.

    Values never reach a fault: librdkafka's own text is shown only if it cannot hold a secret.

    Args:
        clusters: Clusters of a configuration.
        lines: Line of every property by its path (`eomirror.config.Inspection.lines`).
    """
    found = []
    for cluster in clusters:
        unknown = [
            *_unknown(f"clusters.{cluster.alias}", cluster.properties, lines or {}),
            *_unknown(f"clusters.{cluster.alias}.consumer", cluster.consumer, lines or {}),
            *_unknown(f"clusters.{cluster.alias}.producer", cluster.producer, lines or {}),
        ]
        found += unknown or _refused_together(cluster, lines or {})
    return found


def _unknown(path: str, properties: Mapping[str, str | Secret], lines: Mapping[str, int]) -> Iterator[Fault]:
    for key, value in properties.items():
        text = value.reveal() if isinstance(value, Secret) else value
        if key == OAUTH_CB:
            try:
                TokenFunction.load(text)
            except ClusterError as error:
                yield Fault(f"{path}.{key}", error.message, error.fix, lines.get(f"{path}.{key}", 0))
            continue
        complaint = _complaint(Producer, {key: text, _SENTINEL: ""})
        if _SENTINEL in complaint:
            continue
        what, fix = "librdkafka does not take this value", "see what it allows in its CONFIGURATION.md"
        if "No such configuration property" in complaint:
            what = "librdkafka does not know this property"
            fix = "look it up in librdkafka's CONFIGURATION.md; names of the Java client differ"
            dotted = key.replace("_", ".")
            if near := difflib.get_close_matches(key, _SUGGESTED, n=1, cutoff=0.8):
                fix = f"did you mean {near[0]}?"
            if dotted != key and _SENTINEL in _complaint(Producer, {dotted: text, _SENTINEL: ""}):
                fix = f"did you mean {dotted}?"
        yield Fault(f"{path}.{key}", what, fix, lines.get(f"{path}.{key}", 0))


def _refused_together(cluster: Cluster, lines: Mapping[str, int]) -> list[Fault]:
    consumer = consumer_properties(cluster, client_id="check")
    producer = producer_properties(
        cluster, client_id="check", transactional_id="check", transaction_timeout_ms=15_000
    )
    found = []
    for role, kind, properties in (("consumer", Consumer, consumer), ("producer", Producer, producer)):
        offline = {key: value for key, value in properties.items() if not _CONNECTS.match(key)}
        offline["log_level"] = 0
        if str(properties.get("security.protocol", "")).lower() in ("ssl", "sasl_ssl"):
            offline["security.protocol"] = "ssl"  # loads certificates and keys, still without a broker
        if complaint := _complaint(kind, offline):
            if missing := _missing_file(cluster, role, lines):
                found.append(missing)
                continue
            path = _guilty(cluster, role, complaint)
            shown = f": {complaint}" if not holds_secret(cluster, complaint) else ""
            fix = "correct these properties" if shown else "check certificates, keys and their passwords"
            found.append(Fault(path, f"no {role} can be made of this{shown}", fix, lines.get(path, 0)))
    # what is wrong for both roles is wrong once
    return found[:1] if len({fault.path for fault in found}) == 1 else found


def _of_role(cluster: Cluster, role: str) -> Mapping[str, str | Secret]:
    """Returns the properties that only consumers, or only producers, have."""
    return cluster.consumer if role == "consumer" else cluster.producer


def _missing_file(cluster: Cluster, role: str, lines: Mapping[str, int]) -> Fault | None:
    """Returns the fault of the first file that the properties name and that cannot be read; None if all can be."""
    for path, properties in (
        (f"clusters.{cluster.alias}.{role}", _of_role(cluster, role)),
        (f"clusters.{cluster.alias}", cluster.properties),
    ):
        for key, value in properties.items():
            file = value.reveal() if isinstance(value, Secret) else value
            # `probe` lets librdkafka look for the system's certificates
            if not key.endswith(".location") or file == "probe" or os.access(file, os.R_OK):
                continue
            # what a reference resolves to is not shown
            named = "the file of this reference" if isinstance(value, Secret) else file
            what = f"{named} {'cannot be read by this user' if os.path.lexists(file) else 'does not exist'}"
            fix = "name a file that is there on each machine that runs the mirror, and that its user may read"
            return Fault(f"{path}.{key}", what, fix, lines.get(f"{path}.{key}", 0))
    return None


def _guilty(cluster: Cluster, role: str, complaint: str) -> str:
    """Returns the path of the first property that a complaint names, or of the cluster."""
    path = f"clusters.{cluster.alias}"
    own = _of_role(cluster, role)
    named = [(complaint.find(key), key) for key in (*cluster.properties, *own) if key in complaint]
    if not named:
        return path
    key = min(named)[1]
    return f"{path}.{role}.{key}" if key in own else f"{path}.{key}"


def _complaint(kind: Callable[[dict[str, Any]], Any], properties: dict[str, Any]) -> str:
    """Returns librdkafka's complaint about these properties; empty if it creates a client."""
    try:
        client = kind(properties)
    except KafkaException as error:
        return said(error.args[0])
    except (TypeError, ValueError) as error:
        return str(error)
    if kind is Consumer:
        client.close()
    return ""
