"""
Checks a link's state topics on the target when the mirror starts and once a minute while it runs.

Positions and control are the mirror's state.  A tool that deletes and recreates them under a running mirror removes
the positions of every idle partition, and often leaves a policy that deletes the others in time.  So the id
of each topic is compared with the one at the start, and its ``cleanup.policy`` with the last one seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.config.rights import Right
from eomirror.errors import StateError
from eomirror.records.names import LinkNames
from eomirror.topics.acls import need
from eomirror.topics.state_topics import policy_fix, state_changes, state_drift, state_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import ConfigValue, CreateTopic, TopicFacts
    from eomirror.topics.diff import AddPartitions
    from eomirror.topics.state_topics import Drift

__all__ = ["CHECK_SECONDS", "StateTopicsCheck"]

log = structlog.get_logger(__name__)

#: Seconds between two checks of ids and policies.
CHECK_SECONDS = 60.0

_COMPACT = "compact"


class StateTopicsCheck:
    """
    Checks the state topics of one link.

    Args:
        target: Admin client of the target.
        learn: Receives the settings of each existing topic.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterAdmin,
        *,
        learn: Callable[[Mapping[str, ConfigValue]], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._target = target
        self._learn = learn
        self._clock = clock
        names = LinkNames(link.state_name)
        # Without these the mirror does not know its positions; the others serve readers.
        self._memory = (names.control_topic, names.positions_topic)
        self._control = names.control_topic
        self._known: dict[str, TopicFacts] = {}
        self._policies: dict[str, str | None] = {}
        self._suspected: dict[str, str] = {}
        self._checked = clock.monotonic()

    def look(
        self, *, brokers: int
    ) -> tuple[tuple[CreateTopic | AddPartitions, ...], tuple[Drift, ...], bool]:
        """
        Returns pending changes of the state topics, their drift, and True if this is a first run.

        Args:
            brokers: Broker count of the target.

        Raises:
            StateError: A topic is damaged.
            AuthorizationError: A right is missing.
            ClusterError: The target does not answer.
        """
        wanted = state_topics(
            LinkNames(self._link.state_name),
            lanes=self._link.lanes,
            brokers=brokers,
            replication_factor=self._link.replication_factor,
            dead_letters=self._link.on_refused == "dead-letter",
        )
        found = self._target.describe_topics([topic.name for topic in wanted])
        existing = [topic for topic in wanted if found[topic.name] is not None]
        configs = self._target.topic_configs([topic.name for topic in existing])
        drifts: list[Drift] = []
        for topic in existing:
            self._learn(configs[topic.name])
            values = {key: entry.value for key, entry in configs[topic.name].items()}
            drifts += state_drift(topic, values)
        for name, rights in self._target.topic_rights([topic.name for topic in existing]).items():
            for operation in ("Read", "Write"):
                need(
                    self._link, self._target, rights, Right(operation, "topic", name), "keep its state there"
                )
        self._known = {name: facts for name, facts in found.items() if facts is not None}
        self._policies = dict.fromkeys((topic.name for topic in wanted), _COMPACT)
        return state_changes(wanted, found), tuple(drifts), found[self._control] is None

    def created(self, topics: Mapping[str, TopicFacts]) -> None:
        """Records the topics that were created or grown since the look."""
        self._known.update({name: facts for name, facts in topics.items() if name in self._policies})

    def check(self) -> None:
        """
        Compares ids and policies with the recorded ones, at most once in `CHECK_SECONDS`.

        A deviating id counts only after a second look: a broker that has just come back may describe an old state of
        the cluster.

        Raises:
            StateError: Control or positions were deleted or recreated.
            ClusterError: The target does not answer.
        """
        now = self._clock.monotonic()
        if not self._known or (now - self._checked < CHECK_SECONDS and not self._suspected):
            return
        self._checked = now
        found, refused = self._target.visible_topics(sorted(self._known))
        deviating = {
            name: "" if facts is None else facts.topic_id
            for name, facts in found.items()
            if name not in refused and (facts is None or facts.topic_id != self._known[name].topic_id)
        }
        certain = {
            name: topic_id for name, topic_id in deviating.items() if self._suspected.get(name) == topic_id
        }
        self._suspected = {name: topic_id for name, topic_id in deviating.items() if name not in certain}
        for name, topic_id in sorted(certain.items()):
            error = self._replaced(name, topic_id)
            if name in self._memory:
                raise error
            log.error(
                "state_topic_replaced", link=self._link.name, topic=name, reason=error.message, fix=error.fix
            )
            # Logged once for each topic of this name.
            facts = found[name]
            if facts is None:
                del self._known[name]
            else:
                self._known[name] = facts
        self._check_policies([name for name, facts in found.items() if facts is not None])

    def _check_policies(self, names: list[str]) -> None:
        for name, configs in self._target.topic_configs(names).items():
            entry = configs.get("cleanup.policy")
            policy = None if entry is None else entry.value
            before, self._policies[name] = self._policies.get(name, _COMPACT), policy
            if policy == before:
                continue
            if policy == _COMPACT:
                log.info("state_topic_in_order", link=self._link.name, topic=name, setting="cleanup.policy")
                continue
            log.error(
                "state_topic_drifted",
                link=self._link.name,
                topic=name,
                setting="cleanup.policy",
                wanted=_COMPACT,
                found=policy,
                reason="retention deletes the mirror's state",
                fix=policy_fix(name),
            )

    def _replaced(self, name: str, topic_id: str) -> StateError:
        was = self._known[name].topic_id
        what = f"recreated (id {topic_id}, it was {was})" if topic_id else f"deleted (its id was {was})"
        if name in self._memory:
            return StateError(
                f"link {self._link.name}: topic {name} was {what} under the running mirror: what it held is lost",
                fix="find out which tool did it; restore the eomirror.* topics of the link together, or delete all of "
                "them and choose each partition's resume offset: `eomirror run CONFIG --adopt TOPIC-PARTITION=OFFSET`; "
                "`eomirror verify CONFIG` shows how far the copies are",
            )
        return StateError(
            f"topic {name} was {what} under the running mirror",
            fix="its records about mirrored data are lost; it covers only records that follow",
        )
