"""Values that all links of a run share."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from eomirror.errors import MirrorError, TopicError
from eomirror.lane.spec import StoppedTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.driver.channel import LaneChannel
    from eomirror.errors import AuthorizationError
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import AssignedPartition, LaneReport, LaneSpec
    from eomirror.link.assignment import Layout
    from eomirror.link.start_checks import Refused
    from eomirror.spark.jobs import LaneJobs
    from eomirror.spark.local_lanes import MovingJobs
    from eomirror.types import SourcePartition

    AllMissing = Callable[[AuthorizationError, Link, LinkSessions], MirrorError]

__all__ = [
    "Claimed",
    "Copies",
    "Engine",
    "LinkTools",
    "refuse_left_out",
    "same_error",
    "served_by",
    "without_lane",
]


@dataclass(frozen=True, slots=True)
class Engine:
    """
    Runs the lanes.

    Attributes:
        jobs: Runs attempts.
        channel: Connects the driver with attempts.
        warm_up: Ends when the workers of Spark are ready; None if lanes do not wait for them.
        elastic: True if workers may be lost for good: the lanes that have a slot then mirror for the others.
    """

    jobs: LaneJobs | MovingJobs
    channel: LaneChannel
    warm_up: threading.Thread | None = None
    elastic: bool = False


class Claimed(NamedTuple):
    """
    Claims of a link on pairs of source and target topic.

    Attributes:
        others: Topics that another link mirrors, with its name.
        leaving: Of these, those that the other link is to mirror no more.
        given_up: Topics that another link had until now, with its state name.
    """

    others: dict[str, str]
    leaving: set[str]
    given_up: dict[str, str]


class Copies:
    """
    Tracks the link that mirrors each pair of source and target topic.  Thread-safe.

    Two links of one run with the same pair would write every record twice.  Pairs are topic ids, not names: two aliases
    may mean one cluster, and many sources may share a target topic.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # with the name of the source topic
        self._links: dict[tuple[str, str], tuple[str, str]] = {}
        # the link that has given up a pair, of which no lane writes any more
        self._given_up: dict[tuple[str, str], Link] = {}
        self._given: dict[str, Link] = {}
        # by state name, links of which no lane writes but those that this run has begun, or none
        self._owned: dict[str, Link] = {}
        # by state name, links whose thread has ended
        self._over: set[str] = set()

    def configure(self, links: Iterable[Link]) -> None:
        """Takes the links of the newest configuration: one that mirrors a topic no more is about to release it."""
        with self._lock:
            self._given = {link.name: link for link in links}

    def take(self, link: str, partitions: Iterable[AssignedPartition]) -> Claimed:
        """Claims pairs for a link, those that no other has."""
        found = Claimed({}, set(), {})
        with self._lock:
            for item in partitions:
                pair, topic = (item.topic_id, item.target_topic_id), item.source.topic
                owner, had = self._links.setdefault(pair, (link, topic))
                if owner != link:
                    found.others[topic] = owner
                    if not self._mirrors(owner, had):
                        found.leaving.add(topic)
                elif (giver := self._given_up.get(pair)) is not None and giver.name != link:
                    found.given_up[topic] = giver.state_name
        return found

    def of(self, link: str) -> set[str]:
        """Returns the topics that a link has claimed."""
        with self._lock:
            return {topic for owner, topic in self._links.values() if owner == link}

    def own(self, link: Link) -> None:
        """Records that the run has taken a link, and fenced all lanes that it ever had."""
        with self._lock:
            self._owned[link.state_name] = link
            self._over.discard(link.state_name)

    def ended(self, link: Link) -> None:
        """Records that a link does not run any more: no other one waits until it is taken."""
        with self._lock:
            self._over.add(link.state_name)

    def awaits(self, state_name: str, topic: str) -> bool:
        """Returns True if the run is about to take a link that does not mirror a topic any more."""
        with self._lock:
            if state_name in self._owned or state_name in self._over:
                return False
            return any(
                link.state_name == state_name and not self._mirrors(name, topic)
                for name, link in self._given.items()
            )

    def given_up(self, state_name: str, topic: str) -> bool:
        """Returns True if the run has taken a link that does not mirror a topic any more."""
        with self._lock:
            link = self._owned.get(state_name)
            # one that is to mirror it no more has given up the copies, or claims them still
            return link is not None and not self._mirrors(link.name, topic)

    def release(self, link: Link, topics: Collection[str] | None = None, *, proved: bool = False) -> None:
        """
        Releases the pairs that a link has claimed.

        Args:
            link: The link.
            topics: Their topics; None for all.
            proved: True if none of its lanes can write them any more: another link may go on at its positions.
        """
        with self._lock:
            left = self._pairs(link.name, topics)
            self._links = {pair: one for pair, one in self._links.items() if pair not in left}
            if proved:
                # one that has not gone on with a pair leaves it to the next one, as it was given
                self._given_up = dict.fromkeys(left, link) | self._given_up
                return
            # what it has given up before, and had again since
            again = {pair for pair in left & self._given_up.keys() if self._given_up[pair].name == link.name}
            self._given_up = {pair: one for pair, one in self._given_up.items() if pair not in again}
            if topics is None:
                self._owned.pop(link.state_name, None)

    def carried_on(self, link: str, topics: Collection[str]) -> None:
        """Records that a link goes on with topics that another one has given up: its positions are the newest."""
        with self._lock:
            done = self._pairs(link, topics)
            self._given_up = {pair: one for pair, one in self._given_up.items() if pair not in done}

    # -- inside, under the lock ------------------------------------------------------------------

    def _mirrors(self, link: str, topic: str) -> bool:
        """Returns True if a link mirrors a topic by the newest configuration."""
        given = self._given.get(link)
        return given is not None and given.mirrors(topic)

    def _pairs(self, link: str, topics: Collection[str] | None) -> set[tuple[str, str]]:
        """Returns the pairs of these topics that a link has claimed; None for all."""
        return {
            pair
            for pair, (owner, topic) in self._links.items()
            if owner == link and (topics is None or topic in topics)
        }


def same_error(error: AuthorizationError, *_: object) -> AuthorizationError:
    """Returns the error, for a run that knows no other rights."""
    return error


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTools:
    """
    Values and callbacks that all links of a run share.

    Attributes:
        engine: Completes once lanes can run, or with the error of Spark's start.
        context: Completes with the Spark context once Spark is up; queries wait for it, lanes may begin before.
        on_event: Called with a short text for each step.
        wake: Called when a link's state has changed.
        fail_mirror: Called with an error that ends all links.
        on_report: Called with each spec and report of a lane.
        wants_goals: True if the run ends when it has caught up.
        standby: True if a link waits until its owner is gone, before it is taken.
        identify: Returns the id of a cluster, given its alias in the configuration.
        copies: Link that mirrors each pair of source and target topic.
        stop_seconds: Time for lanes to end, beyond that of a run with few lanes.
        all_missing: Returns the error of a start that lacks a right with all that are missing.
    """

    clock: Clock
    engine: Future[Engine]
    on_event: Callable[[str], None]
    wake: Callable[[], None]
    fail_mirror: Callable[[BaseException], None]
    on_report: Callable[[LaneSpec, LaneReport], None] = field(default=lambda _, __: None)
    wants_goals: bool = False
    standby: bool = False
    identify: Callable[[str], str] = str
    copies: Copies = field(default_factory=Copies)
    stop_seconds: float = 0.0
    all_missing: AllMissing = same_error
    context: Future[Any] = field(default_factory=Future)


def served_by(lanes: Mapping[int, Sequence[AssignedPartition]]) -> set[SourcePartition]:
    """Returns the partitions that a lane has."""
    return {item.source for items in lanes.values() for item in items}


def without_lane(
    wanted: Iterable[SourcePartition],
    lanes: Mapping[int, Sequence[AssignedPartition]],
    refused: Mapping[str, Refused],
) -> dict[str, StoppedTopic]:
    """
    Returns the topics that the owner gave to no lane, with the reason.

    Args:
        wanted: Partitions that the link mirrors.
        lanes: Partitions of each lane.
        refused: Topics that a check of the owner has left out.
    """
    served = served_by(lanes)
    fix = "see topic_left_out in the mirror's log for the reason"
    return {
        source.topic: StoppedTopic.of(refused[source.topic].error)
        if source.topic in refused
        else StoppedTopic(f"topic {source.topic} is skipped: it is not mirrored", fix)
        for source in wanted
        if source not in served
    }


def refuse_left_out(link: str, wanted: Collection[SourcePartition], layout: Layout) -> None:
    """
    Refuses a run with ``--until caught-up`` if a topic is skipped: it would otherwise report success without it.

    Raises:
        TopicError: The owner has skipped a topic and logged the reason.
    """
    if missing := sorted(set(wanted) - served_by(layout.lanes)):
        raise TopicError(
            f"link {link}: topic {missing[0].topic} is skipped, so the link cannot catch up with all matching topics",
            fix="see topic_left_out in the log for the reason, or `exclude` the topic from the link",
            topic=missing[0].topic,
        )
