"""Answers of brokers, in the shape that confluent-kafka gives them."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError

__all__ = ["described"]


def described(
    leaders: Mapping[str, Mapping[int, int]], *, errors: Mapping[str, KafkaError] | None = None
) -> dict[str, Any]:
    """
    What ``describe_topics`` answers; broker 1 is the cluster's only one.

    Args:
        leaders: The broker that leads each partition of each topic; -1 for none.
        errors: Topics that cannot be told about, and why.
    """
    found: dict[str, Any] = {name: Future() for name in (*leaders, *(errors or {}))}
    for name, each in leaders.items():
        partitions = [
            SimpleNamespace(id=number, leader=_node(leader), replicas=[1], isr=[1])
            for number, leader in each.items()
        ]
        found[name].set_result(SimpleNamespace(name=name, topic_id="id", partitions=partitions))
    for name, error in (errors or {}).items():
        found[name].set_exception(KafkaException(error))
    return found


def _node(broker: int) -> Any:
    if broker < 0:
        return None
    # librdkafka knows nothing but the number of one that is not in the cluster
    return SimpleNamespace(id=broker, host="b1" if broker == 1 else None)
