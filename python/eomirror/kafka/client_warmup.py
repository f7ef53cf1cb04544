"""
Connects a librdkafka client before its first use, so that the first operation does not wait for a timer.

librdkafka connects lazily.  The first metadata answer comes through the bootstrap connection, which is then replaced by
one to the broker's real identity.  An operation that starts meanwhile finds no usable broker and waits for a timer: 500
ms for a transaction coordinator, up to a second for a partition's leader (measured: an epoch change took 0.6 s for the
one and 0.7 s for the other).  A second request is answered by the real broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaException

from eomirror.kafka.error_text import said

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["connect"]

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
