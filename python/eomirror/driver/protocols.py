"""Protocols that a link uses (owner, discovery, follower, heartbeats), and values that all links of a run share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from eomirror.errors import TopicError
from eomirror.lane.spec import StoppedTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from eomirror.clock import Clock
    from eomirror.driver.channel import LaneChannel
    from eomirror.errors import MirrorError
    from eomirror.groups.followed_groups import GroupsSnapshot, Mirrored
    from eomirror.lane.spec import AssignedPartition, GroupOffset, LaneReport, LaneSpec
    from eomirror.plane.protocol import MetadataRecord
    from eomirror.records.control import Stopped
    from eomirror.spark.jobs import LaneJobs
    from eomirror.topics.source_contact import SourceContact
    from eomirror.types import SourcePartition

__all__ = [
    "Copies",
    "Discoverer",
    "Engine",
    "Follower",
    "Heart",
    "LinkTools",
    "Owner",
    "PublishedLayout",
    "refuse_left_out",
    "without_lane",
]


class PublishedLayout(Protocol):
    """The parts of `eomirror.link.owner.Layout` that the driver uses."""

    @property
    def generation(self) -> int:
        """Number of the lane layout."""

    @property
    def source_cluster_id(self) -> str:
        """Id of the source cluster."""

    @property
    def target_cluster_id(self) -> str:
        """Id of the target cluster."""

    @property
    def lanes(self) -> dict[int, tuple[AssignedPartition, ...]]:
        """Partitions of each lane."""

    @property
    def provenance_header(self) -> bool:
        """True if lanes add the provenance header to mirrored records."""

    @property
    def stopped(self) -> Sequence[Stopped]:
        """Topics that earlier runs stopped, as control shows them."""


class Owner(Protocol):
    """
    The parts of `eomirror.link.owner.LinkOwner` that the driver uses.

    Attributes:
        published: True once a layout of this owner is committed.
    """

    published: bool

    def acquire(
        self, lanes: int, partitions: Sequence[AssignedPartition], *, stopped: Callable[[], bool]
    ) -> PublishedLayout:
        """Takes the link; raises StoppedError if ``stopped`` returns True before."""

    def extend(self, partitions: Sequence[AssignedPartition]) -> dict[int, tuple[AssignedPartition, ...]]:
        """Publishes a revision with new partitions; returns those of each lane."""

    def check(self) -> None:
        """Raises SupersededError if another mirror owns the link."""

    def renew(self, notes: Sequence[MetadataRecord] = ()) -> None:
        """Renews the claim; ``notes`` are committed with it."""

    def release(self, notes: Sequence[MetadataRecord] = ()) -> None:
        """Releases the link; ``notes`` are committed with it."""

    def close(self) -> None:
        """Closes all clients."""


class Discoverer(Protocol):
    """
    The parts of `eomirror.topics.discovery.Discovery` that the driver uses.

    Attributes:
        contact: Time of the source's last answer.
    """

    contact: SourceContact

    def prepare(self, *, strict: bool = True) -> tuple[AssignedPartition, ...]:
        """Checks and creates topics; returns the partitions to mirror, if not strict without unusable topics."""

    def refresh(self) -> tuple[AssignedPartition, ...]:
        """Returns the partitions to mirror now."""

    def left_out(self) -> Mapping[str, MirrorError]:
        """Returns topics that the last discovery could not prepare, with the reason."""

    def goals(self) -> dict[SourcePartition, int]:
        """Returns the current last stable offsets of the source."""


class Follower(Protocol):
    """The parts of `eomirror.groups.follower.GroupFollower` that the driver uses."""

    def round(self, mirrored: Mirrored) -> float:
        """Reads the groups' offsets and sends them to the lanes; returns the seconds until the next round."""

    def record_answers(self, items: tuple[GroupOffset, ...]) -> None:
        """Records the answers of a lane."""

    def lane_restarted(self, partitions: Collection[SourcePartition]) -> None:
        """The lane of these partitions has a new attempt."""

    def snapshot(self) -> GroupsSnapshot:
        """Returns the state of the followed groups."""

    def waits(self) -> bool:
        """Returns True if the last round failed, or saw an offset that still waits for the mirror."""

    def close(self) -> None:
        """Closes all clients."""


class Heart(Protocol):
    """The parts of `eomirror.link.heartbeats.Heartbeats` that the driver uses."""

    def beat(self) -> None:
        """Sends a heartbeat; never waits."""

    def close(self) -> None:
        """Closes the client."""


@dataclass(frozen=True, slots=True)
class Engine:
    """
    A running Spark context with its channel.

    Attributes:
        jobs: Runs attempts.
        channel: Connects the driver with attempts.
        warm_up: Ends when the workers are ready.
    """

    jobs: LaneJobs
    channel: LaneChannel
    warm_up: threading.Thread


class Copies:
    """
    Tracks the link that mirrors each pair of source and target topic.  Thread-safe.

    Two links of one run with the same pair would write every record twice.  Pairs are topic ids, not names: two aliases
    may mean one cluster, and many sources may share a target topic.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[tuple[str, str], str] = {}

    def take(self, link: str, partitions: Iterable[AssignedPartition]) -> dict[str, str]:
        """Claims pairs for a link; returns the topics that another link mirrors, with that link's name."""
        taken: dict[str, str] = {}
        with self._lock:
            for item in partitions:
                owner = self._links.setdefault((item.topic_id, item.target_topic_id), link)
                if owner != link:
                    taken[item.source.topic] = owner
        return taken


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTools:
    """
    Values and callbacks that all links of a run share.

    Attributes:
        engine: Completes once Spark runs, or with the error of its start.
        on_event: Called with a short text for each step.
        wake: Called when a link's state has changed.
        fail_mirror: Called with an error that ends all links.
        on_report: Called with each spec and report of a lane.
        wants_goals: True if the run ends when it has caught up.
        identify: Returns the id of a cluster, given its alias in the configuration.
        copies: Link that mirrors each pair of source and target topic.
    """

    run: str
    clock: Clock
    engine: Future[Engine]
    on_event: Callable[[str], None]
    wake: Callable[[], None]
    fail_mirror: Callable[[BaseException], None]
    on_report: Callable[[LaneSpec, LaneReport], None] = field(default=lambda _, __: None)
    wants_goals: bool = False
    identify: Callable[[str], str] = str
    copies: Copies = field(default_factory=Copies)


def without_lane(
    wanted: Iterable[SourcePartition], lanes: Mapping[int, Sequence[AssignedPartition]]
) -> dict[str, StoppedTopic]:
    """Returns the topics that the owner gave to no lane, with the reason."""
    served = {item.source for items in lanes.values() for item in items}
    fix = "see topic_left_out in the mirror's log for the reason"
    return {
        source.topic: StoppedTopic(f"topic {source.topic} is skipped: it is not mirrored", fix)
        for source in wanted
        if source not in served
    }


def refuse_left_out(link: str, wanted: Collection[SourcePartition], layout: PublishedLayout) -> None:
    """
    Refuses a run with ``--until caught-up`` if a topic is skipped: it would otherwise report success without it.

    Raises:
        TopicError: The owner has skipped a topic and logged the reason.
    """
    served = {item.source for items in layout.lanes.values() for item in items}
    if missing := sorted(set(wanted) - served):
        raise TopicError(
            f"link {link}: topic {missing[0].topic} is skipped, so the link cannot catch up with all matching topics",
            fix="see topic_left_out in the log for the reason, or `exclude` the topic from the link",
            topic=missing[0].topic,
        )
