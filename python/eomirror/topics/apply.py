"""Applies changes to the target's topics and waits until they can be written."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import AuthorizationError, ClusterError, QuotaError, TopicError, UnreachableError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topics.diff import (
    TIMESTAMPS,
    AddPartitions,
    AlterConfig,
    Differs,
    Refuse,
    Surplus,
    before_kafka_3_6,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.errors import MirrorError
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.topics.diff import Change

__all__ = ["TargetTopics"]

log = structlog.get_logger(__name__)

_SETTLE_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
_SHOWN = 3
# as brokers refuse a setting that they do not have
_UNKNOWN = "Unknown topic config name: message.timestamp."


class TargetTopics:
    """
    Creates, grows and configures topics of one cluster.

    Args:
        admin: Admin client of the target.
        link: Name of the link, for the log.
        keyed: True if records are placed by key: a topic that another process created keeps its partition count.

    Attributes:
        changed: Signs and texts of changes that were carried out, until the caller takes them.
        lacking: Errors of copies whose settings may not be changed, by the copy.
    """

    def __init__(
        self, admin: ClusterAdmin, *, link: str, keyed: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.changed: list[tuple[str, str]] = []
        self.lacking: dict[str, MirrorError] = {}
        self._admin = admin
        self._log = log.bind(link=link)
        self._keyed = keyed
        self._clock = clock
        self._logged: set[Surplus | Differs] = set()
        self._refused: set[tuple[str, str, str]] = set()

    def refused(self, changes: Iterable[Change], *, spare_settings: bool = False) -> list[MirrorError]:
        """
        Lets the brokers validate rights, names, policies and settings of new topics.  Creates nothing.

        Args:
            changes: Changes, of which only new topics count.
            spare_settings: As for `_create`.

        Returns:
            The error of each refused topic, which its ``topic`` names: a name, a setting or a policy.

        Raises:
            AuthorizationError: A topic may not be created.
            ClusterError: The cluster cannot be reached.
        """
        wanted = [change for change in changes if isinstance(change, CreateTopic)]
        return self._create(wanted, validate_only=True, spare_settings=spare_settings)

    def has_records(self, topic: str) -> bool:
        """
        Returns True if the first partition of a topic has committed records.

        Raises:
            ClusterError: The cluster does not answer.
        """
        first = (topic, 0)
        return self._admin.offsets([first], at="latest", read_committed=True)[first] > 0

    def apply(
        self, changes: Sequence[Change], *, refused: list[MirrorError] | None = None
    ) -> dict[str, TopicFacts]:
        """
        Applies changes in order, then waits until every partition has a leader.

        Args:
            changes: Changes.
            refused: Receives the errors of topics that are not created or grown, which are then not raised; their
                ``topic`` is the target's.  A new topic is then created without a setting that is refused.

        Returns:
            The topics that were created or grown, as they are afterwards.

        Raises:
            TopicError: A topic cannot be mirrored.
            QuotaError: A quota delays a change.
            ClusterError: The cluster refuses, or does not get ready in time.
        """
        # One request for all topics: a link's first run may have hundreds.
        wanted = [change for change in changes if isinstance(change, CreateTopic)]
        errors = self._create(wanted, spare_settings=refused is not None)
        if refused is None and errors:
            raise errors[0]
        lacking = {error.topic for error in errors}
        expected: dict[str, int] = {}
        for change in changes:
            if isinstance(change, CreateTopic | AddPartitions):
                if change.name in lacking:
                    continue
                if isinstance(change, CreateTopic):
                    expected[change.name] = change.partitions
                    self._log_created(change)
                elif (late := self._late(change)) is None:
                    expected[change.name] = change.total
                elif refused is None:
                    raise late
                else:
                    errors.append(late)
            elif isinstance(change, Refuse):
                raise TopicError(change.reason, fix=change.fix, topic=change.topic)
            else:
                self._set_or_log(change)
        if refused is not None:
            refused += errors
        grown = {change.name for change in changes if isinstance(change, AddPartitions)}
        return self.settle(expected, grown=grown)

    def _late(self, change: AddPartitions) -> QuotaError | None:
        """Grows a topic; returns the error of a quota that delays it."""
        try:
            self._grow(change.name, change.before, change.total)
        except QuotaError as error:
            return error
        return None

    def _set_or_log(self, change: AlterConfig | Surplus | Differs) -> None:
        if isinstance(change, AlterConfig):
            self._configure(change)
        elif isinstance(change, Surplus):
            self._log_surplus(change)
        else:
            self._log_differs(change)

    def _log_created(self, change: CreateTopic) -> None:
        self.changed.append(("+", f"topic {change.name}: {change.partitions} partitions"))
        self._log.info(
            "topic_created",
            topic=change.name,
            partitions=change.partitions,
            replication_factor=change.replication_factor,
        )

    def _create(
        self, topics: Sequence[CreateTopic], *, validate_only: bool = False, spare_settings: bool
    ) -> list[MirrorError]:
        """
        Creates topics; returns the errors of those that the brokers refuse, or that wait for a quota.

        Args:
            topics: Topics to create.
            validate_only: Create nothing.
            spare_settings: Create a topic without a setting that the refusal names, and log that.
        """
        errors: list[MirrorError] = []
        self._admin.create_topics(topics, validate_only=validate_only, refused=errors)
        # brokers before Kafka 3.6 show their settings with the first topic only
        unknown = {error.topic for error in errors if _UNKNOWN in error.message}
        if unknown:
            topics = [replace(topic, configs=before_kafka_3_6(topic.configs)) for topic in topics]
            errors = [error for error in errors if error.topic not in unknown]
            again = [topic for topic in topics if topic.name in unknown]
            self._admin.create_topics(again, validate_only=validate_only, refused=errors)
        if not spare_settings:
            return errors
        given = {topic.name: topic for topic in topics}
        lasting: list[MirrorError] = []
        spared: dict[str, list[tuple[str, MirrorError]]] = {}
        while errors:
            less: list[CreateTopic] = []
            for error in errors:
                topic = given[error.topic]
                if not (named := _named_settings(topic, error)):
                    lasting.append(error)
                    spared.pop(topic.name, None)
                    continue
                left = {name: value for name, value in topic.configs.items() if name not in named}
                given[topic.name] = replace(topic, configs=left)
                less.append(given[topic.name])
                spared.setdefault(topic.name, []).extend((name, error) for name in named)
            errors = []
            self._admin.create_topics(less, validate_only=validate_only, refused=errors)
        values = {topic.name: topic.configs for topic in topics}
        for name, settings in spared.items():
            for setting, error in settings:
                self._log_refused(name, setting, values[name][setting], None, error)
        return lasting

    def settle(self, expected: Mapping[str, int], *, grown: Collection[str] = ()) -> dict[str, TopicFacts]:
        """
        Waits until topics have at least the expected partition count, each partition with a leader.

        A created topic is known to the controller first; until brokers have caught up, a producer would
        get the error that the topic does not exist.  A topic that another link of the same aggregate created at the
        same moment, with fewer partitions, is grown.

        Args:
            expected: Partition count by topic.
            grown: Topics whose growth was requested already.

        Raises:
            UnreachableError: No topic made progress for 30 s: brokers are down, or busy with many new topics.
        """
        deadline = Deadline(_SETTLE_SECONDS, self._clock)
        ready: dict[str, TopicFacts] = {}
        asked = set(grown)
        while late := sorted(expected.keys() - ready.keys()):
            began = self._clock.monotonic()
            found = {
                name: facts
                for name, facts in self._admin.describe_topics(late).items()
                if facts is not None and not facts.leaderless
            }
            fresh = {name: facts for name, facts in found.items() if facts.partitions >= expected[name]}
            if self._keyed:
                # another link's number counts: a topic that grows after the first records splits their keys
                fresh = found
            for name in found.keys() - fresh.keys() - asked:
                self._grow(name, found[name].partitions, expected[name])
                asked.add(name)
            ready.update(fresh)
            if len(fresh) == len(late):
                break
            if fresh:
                # A thousand topics take longer than one.
                deadline = Deadline(_SETTLE_SECONDS, self._clock)
            elif deadline.passed:
                more = f" and {len(late) - _SHOWN} more" if len(late) > _SHOWN else ""
                raise UnreachableError(
                    f"topics {', '.join(late[:_SHOWN])}{more} were created on cluster {self._admin.name}, but not "
                    f"all of their partitions have a leader after {_SETTLE_SECONDS:g} s",
                    fix="check that all of the target's brokers are alive; a mirror retries",
                )
            # brokers that create thousands of logs need the CPU that descriptions of thousands of topics take
            self._clock.sleep(max(_PAUSE_SECONDS, 2 * (self._clock.monotonic() - began)))
        return ready

    def _grow(self, topic: str, before: int, total: int) -> None:
        self._admin.create_partitions(topic, total)
        self.changed.append(("~", f"topic {topic}: partitions: {before} -> {total}"))
        self._log.info("topic_grown", topic=topic, before=before, partitions=total)

    def _configure(self, change: AlterConfig) -> None:
        """Sets settings of a copy; one that the brokers refuse is logged by name, and the others are set."""
        try:
            self._admin.alter_configs(change.name, change.values)
        except UnreachableError:
            raise
        except AuthorizationError as error:
            if change.name not in self.lacking:
                self._log.warning(
                    "target_not_kept_alike",
                    what=f"settings of {change.name}",
                    reason=error.message,
                    fix=error.fix,
                )
            self.lacking[change.name] = error
        except ClusterError as error:
            if len(change.values) > 1:
                for name, value in change.values.items():
                    self._configure(replace(change, values={name: value}))
                return
            (setting,) = change.values
            self._log_refused(change.name, setting, change.values[setting], change.before.get(setting), error)
        else:
            self.lacking.pop(change.name, None)
            texts = (f"{name}: {change.before.get(name)} -> {value}" for name, value in change.values.items())
            self.changed.append(("~", f"topic {change.name}: {', '.join(texts)}"))
            self._log.info("topic_configured", topic=change.name, settings=dict(change.values))

    def _log_refused(
        self, topic: str, setting: str, wanted: str, found: str | None, error: MirrorError
    ) -> None:
        # Refused at the creation of a copy, it is refused again when settings are compared.
        if (topic, setting, wanted) not in self._refused:
            self._refused.add((topic, setting, wanted))
            self._log.warning(
                "topic_setting_refused",
                topic=topic,
                setting=setting,
                wanted=wanted,
                found=found,
                reason=error.message,
                fix=f"the topic is mirrored without it, and the target's value applies: allow {setting}={wanted} in "
                "the cluster's policy; or leave the setting to the target: put it under the link's `exclude_configs`",
            )

    def _log_surplus(self, change: Surplus) -> None:
        if change not in self._logged:
            self._logged.add(change)
            self._log.warning(
                "target_has_more_partitions",
                topic=change.name,
                partitions=change.partitions,
                source_partitions=change.source_partitions,
                meaning="records keep their partition; the others stay empty",
            )

    def _log_differs(self, change: Differs) -> None:
        if change in self._logged:
            return
        self._logged.add(change)
        alters = change.wanted.keys() & TIMESTAMPS.keys()
        write = self._log.warning if alters else self._log.info
        write(
            "topic_settings_left",
            topic=change.name,
            settings=dict(change.found),
            wanted=dict(change.wanted),
            meaning="the configuration leaves them to the target"
            + ("; the copy's brokers change or refuse timestamps of the source" if alters else ""),
        )


def _named_settings(topic: CreateTopic, error: MirrorError) -> list[str]:
    """Returns the settings of a new topic that a refusal names; none if it says nothing about a setting."""
    if isinstance(error, QuotaError):
        return []
    # A topic may have the name of a setting.
    words = error.message.replace(f"create topic {topic.name} ", "")
    return [
        name for name in topic.configs if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", words)
    ]
