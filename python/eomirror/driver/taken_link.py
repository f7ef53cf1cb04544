"""Takes one link: prepares its topics, makes the owner, and adds partitions that discovery finds later."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.config.changes import with_live
from eomirror.driver.link_tools import served_by, without_lane
from eomirror.errors import AuthorizationError, StoppedError, TopicError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.driver.claim_renewal import LinkRecords
    from eomirror.driver.link_tools import LinkTools
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import AssignedPartition, LaneSpec
    from eomirror.link.assignment import Layout
    from eomirror.link.owner import LinkOwner
    from eomirror.link.standby import Standby
    from eomirror.link.start_checks import Refused
    from eomirror.plane.protocol import MetadataRecord
    from eomirror.records.control import Generation
    from eomirror.topics.discovery import Discovery
    from eomirror.types import SourcePartition

__all__ = ["TakenLink"]

log = structlog.get_logger(__name__)

# between two looks for other links of the run, which are taken within seconds
_OTHERS_SECONDS = 0.1


class TakenLink:
    """
    Takes one link on behalf of the run.

    Args:
        spec: Spec of the link's lanes.
        sessions: Connections to both clusters.
        discovery: Creates the link's discovery.
        owner: Creates the link's owner; False: it must not take the link over again.
        tools: Shared by all links of the run.
        standby: Waits until the owner of the link is gone; None to take the link at once.

    Attributes:
        owner: Owner of the link; None before and after.
        known: Partitions that the link mirrors or has refused.
        given: Changed settings that are not in force yet; None for none.
        released: True once the owner has released the link: no other has taken it until then.
        alone: True if the link ends while its run goes on.
        waiting: Topics that another link mirrors to the same copies, with the reason.
    """

    def __init__(
        self,
        spec: LaneSpec,
        sessions: LinkSessions,
        discovery: Callable[[Link], Discovery],
        owner: Callable[[bool], LinkOwner],
        tools: LinkTools,
        *,
        standby: Standby | None = None,
    ) -> None:
        self.owner: LinkOwner | None = None
        self.known: set[SourcePartition] = set()
        self.given: Link | None = None
        self.released = self.alone = False
        # partitions that a check has refused, and that no other link was asked for since; with the link that has their
        # copies, or an empty name
        self._left_out: dict[SourcePartition, str] = {}
        self.waiting: dict[str, TopicError] = {}
        self._link = spec.link
        self._sessions = sessions
        self._make_discovery = discovery
        self._make_owner = owner
        self._tools = tools
        self._standby = standby
        self._published = False
        self._discovery: Discovery | None = None

    @property
    def refused(self) -> Mapping[str, Refused]:
        """Topics that a check of the owner leaves out."""
        return {} if self.owner is None else self.owner.refused

    @property
    def discovery(self) -> Discovery:
        """Discovery of the link, from the first try to take it on."""
        if self._discovery is None:
            raise AssertionError("the link is taken first")
        return self._discovery

    def take(self, stopped: Callable[[], bool], enter: Callable[[str], None]) -> Layout:
        """
        Prepares the topics and takes the link; each retry starts from the beginning, like a restarted mirror.

        Args:
            stopped: Returns True if the run was asked to stop.
            enter: Sets the state of the link.

        Raises:
            AuthorizationError: Names all rights that are missing, so that one round of grants suffices.
        """
        try:
            return self._take(stopped, enter)
        except AuthorizationError as error:
            raise self._tools.all_missing(error, self._link, self._sessions) from error

    def _take(self, stopped: Callable[[], bool], enter: Callable[[str], None]) -> Layout:
        # a claim of an earlier try belongs to this run, so it needs no release
        self.close()
        stood = None
        if self._standby is not None and not self._published:
            stood = self._standby.wait(stopped, lambda: enter("standby"))
            self._refuse_stopped(stopped)
        self._discovery = self._make_discovery(self._link)
        # a run with until="caught-up" must not end successfully without some of the topics
        partitions = self._discovery.prepare(strict=self._tools.wants_goals, patient=False)
        claimed = self._tools.copies.take(self._link.name, partitions)
        for topic, other in claimed.others.items():
            if topic not in claimed.leaving:
                raise TopicError(
                    f"link {self._link.name}: link {other} already mirrors topic {topic} to the same target topic; "
                    "every record would be written twice",
                    fix="exclude the topic from one of the two links",
                )
        # what another link of the run has, or had until now, is added later, at that link's positions
        later = claimed.others.keys() | claimed.given_up.keys()
        partitions = tuple(item for item in partitions if item.source.topic not in later)
        self._refuse_stopped(stopped)
        enter("acquiring")
        # a try that published has taken the link over; a mirror that owns it since then did so later (EO-10)
        self.owner = self._make_owner(not self._published)
        watched = {} if stood is None else {"stood": stood}
        layout = self.owner.acquire(self._link.producers, partitions, stopped=stopped, **watched)
        self._tools.copies.own(self._link)
        self.known = {item.source for item in partitions}
        self._left_out = dict.fromkeys(self.known - served_by(layout.lanes), "")
        return layout

    def _refuse_stopped(self, stopped: Callable[[], bool]) -> None:
        if stopped():
            raise StoppedError(f"link {self._link.name}: stopped before it mirrored")

    def extend(
        self,
        records: LinkRecords,
        stopped: Callable[[], bool],
        needs: Mapping[SourcePartition, float],
    ) -> Mapping[int, Sequence[AssignedPartition]]:
        """
        Discovers topics, and adds new partitions to the layout; returns those that each lane gets.

        Args:
            records: Records of the link.
            stopped: Returns True if the run was asked to stop.
            needs: As of `LinkOwner.extend`.
        """
        released = {
            topic: twin for topic, twin in self._twins().items() if self._tools.copies.given_up(twin, topic)
        }
        new, given_up = self._new(self.discovery.refresh(), released)
        if new and (stopped() or self.owner is None):
            return {}
        by_lane = {} if not new or self.owner is None else self.owner.extend(new, needs, given_up=given_up)
        served = served_by(by_lane)
        # not before: a round that failed is repeated
        asked = {item.source for item in new}
        self._left_out = {source: twin for source, twin in self._left_out.items() if source not in asked} | {
            source: "" for source in asked if source not in served and source.topic not in released
        }
        if done := given_up.keys() & {source.topic for source in served}:
            self._tools.copies.carried_on(self._link.name, done)
            # one that was refused at first
            records.stops.tried_again(done, served)
            log.info("topics_carried_on", link=self._link.name, topics=sorted(done))
        # Behind the publication: until the layout has a topic, nothing else says that its records are missing.
        records.stops.left_out({**self.discovery.left_out(), **self.waiting})
        records.stops.stopped(without_lane((item.source for item in new), by_lane, self.refused), None)
        self.known.update(item.source for item in new)
        return by_lane

    def completed(self, layout: Layout, records: LinkRecords, stopped: Callable[[], bool]) -> Layout:
        """Returns the layout with refused topics that other links of the run give up, once those are taken."""
        if not (twins := self._twins()):
            return layout
        while any(self._tools.copies.awaits(twin, topic) for topic, twin in twins.items()):
            self._refuse_stopped(stopped)
            self._tools.clock.sleep(_OTHERS_SECONDS)
        added = self.extend(records, stopped, {})
        self._refuse_stopped(stopped)
        lanes = {
            lane: (*layout.lanes.get(lane, ()), *added.get(lane, ())) for lane in {*layout.lanes, *added}
        }
        return replace(layout, lanes=lanes)

    def _twins(self) -> dict[str, str]:
        """Returns the links that have written the copies of topics that are left out."""
        for source in self._left_out:
            # kept: the owner forgets a refusal when it checks the topic again, and that round may fail
            if source.topic in self.refused and (twin := self.refused[source.topic].twin):
                self._left_out[source] = twin
        return {source.topic: twin for source, twin in self._left_out.items() if twin}

    def reconfigure(self) -> tuple[Link, set[str]]:
        """
        Finds topics by the changed settings from now on, of which those in `eomirror.config.changes.LIVE` count.

        Returns:
            The link with its new settings, and the topics that it mirrors no more.

        Raises:
            MirrorError: As of `Discovery.prepare`; the settings of before stay in force, and these are due again.
        """
        given = self.given
        link = self._link if given is None else with_live(self._link, given)
        discovery = self._make_discovery(link)
        discovery.prepare(strict=False, patient=False)
        self._link, self._discovery = link, discovery
        if self.owner is not None:
            self.owner.reconfigure(link)
        # also what no round has added yet
        gone = {topic for topic in self._tools.copies.of(link.name) if not link.mirrors(topic)}
        self._forget(gone)
        if self.given is given:
            self.given = None
        return link, gone

    def parked(self, topics: Collection[str], *, proved: bool = True) -> None:
        """Lets another link have topics that this one mirrors no more; ``proved``: no lane can write them."""
        self._tools.copies.release(self._link, topics, proved=proved)

    def forget(self, topics: Mapping[str, bytes]) -> None:
        """Forgets topics that leave the link with their copies, as `LinkOwner.forget`."""
        if self.owner is None:
            raise StoppedError(f"link {self._link.name}: stopped")
        self.owner.forget(topics)
        self.discovery.forget(topics)
        self._forget(topics)

    def _forget(self, topics: Collection[str]) -> None:
        self.known = {source for source in self.known if source.topic not in topics}
        self._left_out = {source: twin for source, twin in self._left_out.items() if source in self.known}

    def _new(
        self, found: Sequence[AssignedPartition], released: Mapping[str, str]
    ) -> tuple[list[AssignedPartition], dict[str, str]]:
        """
        Returns the partitions to add, and their topics that another link has given up.

        A topic that another link mirrors to the same copy waits, and is asked for again: that link may release it.

        Args:
            found: What discovery has found.
            released: Refused topics that another link has given up since.
        """
        again = {source for source in self._left_out if source.topic in released}
        new = [item for item in found if item.source not in self.known or item.source in again]
        claimed = self._tools.copies.take(self._link.name, new)
        before, self.waiting = self.waiting, {}
        for topic, other in claimed.others.items():
            reason = f"topic {topic} is left out: link {other} already mirrors to the same target topic"
            fix = "exclude the topic from one of the two links"
            if topic in claimed.leaving:
                reason, fix = f"topic {topic} waits until link {other} has released it", ""
            self.waiting[topic] = TopicError(reason, fix=fix, topic=topic)
            if topic not in before or before[topic].message != reason:
                log.warning("topic_left_out", link=self._link.name, topic=topic, reason=reason, fix=fix)
        # the last link that had it may have had no lane for it: what a check has found is further
        given_up = {**claimed.given_up, **{source.topic: released[source.topic] for source in again}}
        return [item for item in new if item.source.topic not in claimed.others], given_up

    def move(
        self, lanes: Mapping[SourcePartition, int | None], givers: Collection[int], *, fence: bool
    ) -> Generation:
        """Moves partitions to other lanes, as `LinkOwner.move`."""
        if self.owner is None:
            raise StoppedError(f"link {self._link.name}: stopped")
        return self.owner.move(lanes, givers, fence=fence)

    def release(self, notes: Sequence[MetadataRecord] = ()) -> None:
        """Releases the link, if it is owned, as `LinkOwner.release`."""
        self.released = self.owner is not None and self.owner.release(notes, alone=self.alone)

    def check(self) -> None:
        """Raises SupersededError if another mirror has fenced a lane."""
        if self.owner is not None:
            self.owner.check()

    def source_age(self) -> float | None:
        """Returns the seconds since the source's last answer; None before the first."""
        contact = None if self._discovery is None else self._discovery.contact
        return None if contact is None else contact.age(self._tools.clock.monotonic())

    def failing_seconds(self) -> float:
        """Returns the seconds for which the source has not answered; 0 while it does."""
        contact = None if self._discovery is None else self._discovery.contact
        return 0.0 if contact is None else contact.failing(self._tools.clock.monotonic())

    def close(self) -> None:
        """Closes the owner and the connections."""
        if self.owner is not None:
            self._published = self._published or self.owner.published
            self.owner.close()
            self.owner = None
        self._sessions.close()
