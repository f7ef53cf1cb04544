"""
Creates librdkafka's clients, and translates a refusal for the user.

A client reads its certificates and keys on creation.  So a running mirror may meet a missing or incomplete file while
it is being replaced.  That is retriable (`eomirror.kafka.errors.classify_creation`).

Without a logger, librdkafka writes to stderr, between the JSON lines that programs read there.  Its lines are details:
every relevant failure is also raised by a call or reported to a callback.

librdkafka connects lazily.  The first metadata answer comes through the bootstrap connection, which is then replaced by
one to the broker's real identity.  An operation that starts meanwhile finds no usable broker and waits for a timer: 500
ms for a transaction coordinator, up to a second for a partition's leader (measured: an epoch change took 0.6 s for the
one and 0.7 s for the other).  A second request is answered by the real broker.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from confluent_kafka import KafkaException

from eomirror.config import Secret
from eomirror.errors import ClusterError, UnreachableError
from eomirror.kafka.errors import Action, classify_creation, said, without_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.config import Cluster

__all__ = ["ClientLog", "connect", "create_client", "holds_secret", "secret_finder", "secret_hider"]

log = structlog.get_logger(__name__)

# more topics than this are asked for in one request for all that the cluster has
_MOST_TOPICS = 16


def connect(client: Any, topics: Sequence[str], *, seconds: float = 5.0) -> None:
    """
    Connects, and learns the leaders of ``topics``.  Never raises: the client's next operation fails in the same way.

    Args:
        client: A Producer or Consumer.
        topics: Topics that exist.
        seconds: Timeout of one request.
    """
    try:
        if len(topics) > _MOST_TOPICS:
            client.list_topics(timeout=seconds)
        else:
            for topic in topics:
                client.list_topics(topic, timeout=seconds)
        if topics:
            client.list_topics(topics[0], timeout=seconds)
    except KafkaException as raised:
        log.debug("not_connected_yet", error=said(raised.args[0]))


# a connection that was usable, and that the broker closed at once
_CLOSED = re.compile(r"\(after \d{1,3}ms in state UP\)")
# a coordinator leaves out all partitions of a request where one is denied, and only this line names that one
_DENIED = re.compile(
    r'Failed to add partition "([^"]+)" \[\d+\] to transaction: Broker: Topic authorization failed'
)


class ClientLog:
    """
    Logger for confluent-kafka, which calls `log` as of `logging.Logger`.

    Args:
        names: Context of the lines, such as the client's role.

    Attributes:
        closed: Connections that a broker closed less than a second after they became usable, which librdkafka tells
            its log alone.
        denied: Topic that a coordinator last refused to add to a transaction; empty if it refused none.
    """

    def __init__(self, **names: str) -> None:
        self.closed = 0
        self.denied = ""
        self._log = structlog.get_logger(__name__).bind(**names)

    def log(self, level: int, template: str, *arguments: Any) -> None:
        """Logs one line of librdkafka."""
        line = template % arguments if arguments else template
        if _CLOSED.search(line):
            self.closed += 1
        if found := _DENIED.search(line):
            self.denied = found[1]
        self._log.debug("librdkafka", level=level, line=without_values(line))


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
