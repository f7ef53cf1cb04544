"""What brokers tell of our rights, and what they do not."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AclOperation

from eomirror.config import Cluster
from eomirror.kafka.admin import ClusterAdmin


class Brokers:
    """Tell the same of every topic."""

    def __init__(self, told: list[AclOperation] | None) -> None:
        self._told = told

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
        found: dict[str, Any] = {name: Future() for name in names.topic_names}
        for future in found.values():
            future.set_result(SimpleNamespace(authorized_operations=self._told))
        return found

    def poll(self, seconds: float) -> int:
        return int(seconds) * 0


@pytest.mark.parametrize(
    ("told", "expected"),
    [([AclOperation.READ], {"t": frozenset({"READ"})}), ([], {}), (None, {})],
)
def test_brokers_that_do_not_tell_of_rights_are_believed_to_grant_them(
    told: list[AclOperation] | None, expected: dict[str, frozenset[str]]
) -> None:
    """Else no link could begin where brokers do not know KIP-430; what is missing shows when it is needed."""
    made = ClusterAdmin(
        Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}), client_id="test"
    )
    made.close()
    made._retrying._client = Brokers(told)

    assert made.topic_rights(["t"]) == expected
