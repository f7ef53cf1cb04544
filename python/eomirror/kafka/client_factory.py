"""
Creates librdkafka's clients, and translates a refusal for the user.

A client reads its certificates and keys on creation.  So a running mirror may meet a missing or incomplete file while
it is being replaced.  That is retriable (`eomirror.kafka.errors.classify_creation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaException

from eomirror.config import Secret
from eomirror.errors import ClusterError, UnreachableError
from eomirror.kafka.client_log import ClientLog
from eomirror.kafka.error_text import said
from eomirror.kafka.errors import Action, classify_creation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.config import Cluster

__all__ = ["create_client", "holds_secret", "secret_finder", "secret_hider"]

Client = TypeVar("Client")

_HIDDEN = "hidden, because it contains a secret"


def create_client(
    kind: Callable[[dict[str, Any]], Client], cluster: Cluster, properties: Mapping[str, Any]
) -> Client:
    """
    Returns a client of one cluster; nothing is sent yet.  librdkafka logs to our log, not to stderr.

    Args:
        kind: ``Consumer``, ``Producer`` or ``AdminClient``.
        cluster: Owner of the properties, for messages.
        properties: From `eomirror.config.clients`, with the caller's additions.

    Raises:
        UnreachableError: A certificate or key cannot be read now.
        ClusterError: librdkafka does not take the properties.
    """
    try:
        return kind({"logger": ClientLog(client=properties.get("client.id", cluster.alias)), **properties})
    except KafkaException as raised:
        error = raised.args[0]
        text = said(error)
        if holds_secret(cluster, text):
            text = "(the reason is left out, for it shows a secret)"
        verdict = classify_creation(error)
        if verdict.action is Action.UNREACHABLE:
            raise UnreachableError(
                f"cluster {cluster.alias}: {verdict.reason}: {text}",
                fix="put the file of that property back; a running mirror retries automatically",
            ) from None
        raise ClusterError(
            f"cluster {cluster.alias}: librdkafka does not take its properties: {text}",
            fix=f"correct them under clusters.{cluster.alias}; `eomirror check` names each one",
        ) from None


def holds_secret(cluster: Cluster, text: str) -> bool:
    """Returns whether a text shows the value of a secret property of the cluster."""
    return secret_finder([cluster])(text)


def secret_finder(clusters: Iterable[Cluster]) -> Callable[[str], bool]:
    """Returns a function that tells if a text shows the value of a secret property of any of the clusters."""
    secrets = {
        value.reveal()
        for cluster in clusters
        for properties in (cluster.properties, cluster.consumer, cluster.producer)
        for value in properties.values()
        if isinstance(value, Secret) and value.reveal()
    }
    return lambda text: any(secret in text for secret in secrets)


def secret_hider(clusters: Iterable[Cluster]) -> Callable[[str], str]:
    """Returns a function that returns a text as it is, or a remark in place of one that shows such a value."""
    shows = secret_finder(clusters)
    return lambda text: _HIDDEN if shows(text) else text
