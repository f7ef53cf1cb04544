"""Answers of brokers, in the shape that confluent-kafka gives them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError

__all__ = ["metadata"]


def metadata(
    leaders: Mapping[str, Mapping[int, int]], *, errors: Mapping[str, KafkaError] | None = None
) -> SimpleNamespace:
    """
    What ``list_topics`` answers; broker 1 is the cluster's only one.

    Args:
        leaders: The broker that leads each partition of each topic; -1 for none.
        errors: Topics that cannot be told about, and why.
    """
    topics: dict[str, Any] = {
        name: SimpleNamespace(
            error=None, partitions={number: SimpleNamespace(leader=leader) for number, leader in each.items()}
        )
        for name, each in leaders.items()
    }
    for name, error in (errors or {}).items():
        topics[name] = SimpleNamespace(error=error, partitions={})
    return SimpleNamespace(topics=topics, brokers={1: None})
