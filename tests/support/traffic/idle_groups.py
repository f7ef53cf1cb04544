"""Consumer groups without members that stand now here, now there: what checkpoints are written for."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["IdleGroups"]

_GROUPS = 3
_SECONDS = 10.0


class IdleGroups(WorkerThread):
    """
    Groups that commit an offset of one partition now and then, most of them near its end.

    Args:
        properties: Of the source cluster.
        topic: Where they stand; also the beginning of their names.
        partitions: Of the topic.
        seed: What they commit follows from it, and from how far the topic has come.
        pause: Seconds between two commits.
    """

    def __init__(
        self, properties: Mapping[str, Any], topic: str, partitions: int, *, seed: int, pause: float = 0.7
    ) -> None:
        super().__init__(f"groups of {topic}")
        self._topic, self._partitions, self._pause = topic, partitions, pause
        self._rng = random.Random(f"{seed}/groups")
        self._properties = {**properties, "log_level": 0, "enable.auto.commit": False}
        self._admin = AdminClient({**properties, "log_level": 0})
        # an AdminClient that commits for groups may end this process when a coordinator moves
        # (eomirror.kafka.consumer_groups_proxy); a consumer does not
        self._groups: dict[str, Consumer] = {}

    def work(self) -> None:
        """Stand here and there until asked to stop; a cluster that does not answer is left alone for once."""
        while not self.asked.wait(self._pause):
            with contextlib.suppress(KafkaException, TimeoutError):
                self._stand()
        for consumer in self._groups.values():
            consumer.close()

    def _stand(self) -> None:
        where = TopicPartition(self._topic, self._rng.randrange(self._partitions))
        (answer,) = self._admin.list_offsets(
            {where: OffsetSpec.latest()},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_SECONDS,
        ).values()
        end = answer.result(_SECONDS).offset
        if end < 0:
            # of a partition whose leader is just changing
            return
        back = (
            int(self._rng.expovariate(1 / 100)) if self._rng.random() < 0.7 else self._rng.randrange(end + 1)
        )
        where.offset = max(0, end - back)
        group = f"{self._topic}.app-{self._rng.randrange(_GROUPS)}"
        if group not in self._groups:
            self._groups[group] = Consumer({**self._properties, "group.id": group})
        self._groups[group].commit(offsets=[where], asynchronous=False)
