"""What a link needs of others: its owner and its discovery, the engine, and what all links of a run share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from eomirror.errors import TopicError

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
    """What `eomirror.link.owner.Layout` says."""

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
        """Whether lanes mark what they copy."""

    @property
    def stopped(self) -> Sequence[Stopped]:
        """Topics that control shows as stopped, by earlier runs."""


class Owner(Protocol):
    """
    What the driver needs of `eomirror.link.owner.LinkOwner`.

    Attributes:
        published: Whether a layout of this owner was committed.
    """

    published: bool

    def acquire(
        self, lanes: int, partitions: Sequence[AssignedPartition], *, stopped: Callable[[], bool]
    ) -> PublishedLayout:
        """Take the link; raise StoppedError if it is stopped before."""

    def extend(self, partitions: Sequence[AssignedPartition]) -> dict[int, tuple[AssignedPartition, ...]]:
        """Publish a revision."""

    def check(self) -> None:
        """Raise SupersededError if another mirror owns the link."""

    def renew(self, notes: Sequence[MetadataRecord] = ()) -> None:
        """Renew the claim; ``notes`` are committed with it."""

    def release(self, notes: Sequence[MetadataRecord] = ()) -> None:
        """Give the link up, with ``notes``."""

    def close(self) -> None:
        """Close all clients."""


class Discoverer(Protocol):
    """What the driver needs of `eomirror.topics.discovery.Discovery`."""

    def prepare(self, *, strict: bool = True) -> tuple[AssignedPartition, ...]:
        """Check, create, and list what to mirror; unless it is strict, without topics that cannot be served."""

    def refresh(self) -> tuple[AssignedPartition, ...]:
        """List what to mirror now."""

    def left_out(self) -> Mapping[str, MirrorError]:
        """Topics that could not be prepared when they were last looked at, and why."""

    def goals(self) -> dict[SourcePartition, int]:
        """The source's last stable offsets now."""

    def close(self) -> None:
        """Close all clients."""


class Follower(Protocol):
    """What the driver needs of `eomirror.groups.follower.GroupFollower`."""

    def round(self, mirrored: Mirrored) -> float:
        """Look where groups stand and tell lanes; gives the seconds until the next round."""

    def heard(self, items: tuple[GroupOffset, ...]) -> None:
        """What a lane answers."""

    def begun_anew(self, partitions: Collection[SourcePartition]) -> None:
        """The lane of these partitions has a new attempt."""

    def snapshot(self) -> GroupsSnapshot:
        """Where following stands."""

    def waits(self) -> bool:
        """Whether the last round failed, or saw an offset that only waits for the mirror."""

    def close(self) -> None:
        """Close all clients."""


class Heart(Protocol):
    """What the driver needs of `eomirror.link.heartbeats.Heartbeats`."""

    def beat(self) -> None:
        """Give a sign of life; never waits."""

    def close(self) -> None:
        """Close the client."""


@dataclass(frozen=True, slots=True)
class Engine:
    """
    What exists once Spark runs.

    Attributes:
        jobs: Runs attempts.
        channel: Speaks to them.
        warm_up: Ends when workers are ready.
    """

    jobs: LaneJobs
    channel: LaneChannel
    warm_up: threading.Thread


class Copies:
    """
    Which link makes which copy: two links of one run that make the same would write every record twice.  Thread-safe.

    Ids, not names: two aliases may mean one cluster, and many sources may share a target topic.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._links: dict[tuple[str, str], str] = {}

    def take(self, link: str, partitions: Iterable[AssignedPartition]) -> dict[str, str]:
        """Take these copies for a link; gives the topics whose copy another link makes, and that link's name."""
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
    What all links of a run share.

    Attributes:
        run: Id of the run.
        clock: Where time comes from.
        engine: Done once Spark runs, or cannot.
        tell: Told in words what is being done.
        wake: Called when a link's state changed.
        fail_mirror: Called with an error that ends all links.
        on_report: Told every report of a lane and its spec.
        wants_goals: Whether the run ends when it has caught up.
        identify: Asks a cluster of the configuration, by alias, for its id.
        copies: Which link makes the copy of a source topic in a target topic, by the ids of both.
    """

    run: str
    clock: Clock
    engine: Future[Engine]
    tell: Callable[[str], None]
    wake: Callable[[], None]
    fail_mirror: Callable[[BaseException], None]
    on_report: Callable[[LaneSpec, LaneReport | None], None] = field(default=lambda _, __: None)
    wants_goals: bool = False
    identify: Callable[[str], str] = str
    copies: Copies = field(default_factory=Copies)


def without_lane(
    wanted: Iterable[SourcePartition], lanes: Mapping[int, Sequence[AssignedPartition]]
) -> dict[str, tuple[int, str]]:
    """Return the topics that the owner gave to no lane, with the exit code and text of an error for each."""
    served = {item.source for items in lanes.values() for item in items}
    text = "is left out: it is not mirrored\n  fix: see topic_left_out in the mirror's log"
    return {source.topic: (1, f"topic {source.topic} {text}") for source in wanted if source not in served}


def refuse_left_out(link: str, wanted: Collection[SourcePartition], layout: PublishedLayout) -> None:
    """
    Whoever waits for everything to be mirrored must not be told that it is, without some of it.

    Raises:
        TopicError: The owner left a topic out, and has said in the log why.
    """
    served = {item.source for items in layout.lanes.values() for item in items}
    if missing := sorted(set(wanted) - served):
        raise TopicError(
            f"link {link}: topic {missing[0].topic} is left out, so it would not catch up with all that it matches",
            fix="see topic_left_out in the log; `exclude` the topic to go on without it",
            topic=missing[0].topic,
        )
