"""
Takes a link over from MirrorMaker 2, in place: its next record becomes the link's first.

The order of the steps makes it exact:

1. refuse while MM2 runs: its workers are members of their group, its topics grow;
2. with exactly-once, fence its transactional ids: its open transactions are aborted, and it cannot write any more;
3. read its committed offsets, and compare the ends of both logs of every partition (`eomirror.mm2.resume_offset`);
4. check again that no topic has grown since 1;
5. publish the link's first generation with all first positions, the origin of each, and the ranges that the comparison
   found for the offset map, in one transaction (`eomirror.link.owner`).  A link that was handed back to MM2 gets a new
   generation; its positions, and the mark that it may run again, are committed together after that.

A link that has run gets a new generation too, with first positions of the partitions that it has none of; the others
keep theirs.  So topics can be taken over in groups, and every topic has exactly one replicator at any time.

Positions are committed only if every partition is certain, or its offset was given by hand.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline, new_run_id
from eomirror.config.model import require_untransformed
from eomirror.errors import DifferenceError, StateError, SupersededError
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.kafka.record_digests import RecordDigestReader
from eomirror.kafka.session import link_sessions
from eomirror.link.first_positions import Predecessor
from eomirror.link.hanging import target_hanging_client
from eomirror.link.owner import LinkOwner
from eomirror.link.ownership import refuse_promoted
from eomirror.link.state import link_discovery
from eomirror.mm2.resume_offset import (
    Alignment,
    Mm2PartitionFacts,
    PartitionAdoption,
    align,
    furthest_sync,
    judge,
    refuse_unknown,
)
from eomirror.mm2.state import Mm2State
from eomirror.records.connect_offsets import Mm2Flow
from eomirror.records.control import Adopted
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Cluster, Config, Link
    from eomirror.kafka.record_digests import RecordDigest
    from eomirror.mm2.state import MirroredOffsets
    from eomirror.records.mm2 import OffsetSync

__all__ = ["Adoption", "PartitionAdoption", "adopt_mm2"]

#: A worker that was killed stays a member of its group for its session timeout: 10 s by default.
PATIENCE_SECONDS = 20.0

#: MM2's topics must not grow for this time, which is longer than the interval of its heartbeats.
WATCH_SECONDS = 3.0

_LOOK_SECONDS = 0.5
# Records of the copy to compare: ten times as many while the result is ambiguous.
_DEPTHS = (2_000, 20_000, 200_000, 2_000_000)
# Source records before the committed one that are compared as well.
_CONTEXT = 200
_FURTHEST = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """
    Result of an adoption.

    Attributes:
        place: Topic in which MM2 kept its source offsets.
        transactional: True if MM2 committed them in the transactions of the records.
        partitions: Every partition of the link that MM2 knows, or whose copy has records.
        left_out: Partitions that MM2 has mirrored and the link does not mirror.
        passed_over: Records in MM2's topics that are not its own: location and error.
        generation: Generation with which the positions were committed; None if they were not.
    """

    link: str
    place: str
    transactional: bool
    partitions: tuple[PartitionAdoption, ...]
    left_out: tuple[SourcePartition, ...] = ()
    passed_over: tuple[str, ...] = ()
    generation: int | None = None

    @property
    def problems(self) -> tuple[PartitionAdoption, ...]:
        """Partitions whose resume offset is unknown."""
        return tuple(each for each in self.partitions if each.problem)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "link": self.link,
            "place": self.place,
            "transactional": self.transactional,
            "committed": self.generation is not None,
            "generation": self.generation,
            "partitions": [each.as_dict() for each in self.partitions],
            "left_out": [str(each) for each in self.left_out],
            "passed_over": list(self.passed_over),
        }


def adopt_mm2(
    config: Config,
    *,
    link: str | None = None,
    flow: Mm2Flow | None = None,
    at: Mapping[SourcePartition, int] | None = None,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Adoption:
    """
    Makes MM2's next records the next records of a link, in the partitions of which it has no position of its own.

    These are all partitions of a link that never ran or that was handed back to MM2.

    Args:
        config: Configuration that the mirror will run with.
        link: Name of the link; required if there are several.
        flow: Names of MM2's topics and group; by default those of its dedicated mode, with the link's aliases.
        at: Resume offsets on the source, which overrule MM2's.
        dry_run: Only inspect: fences nothing, creates nothing, commits nothing.
        on_event: Receives a short text for each step.

    Returns:
        The result.  It was committed if ``generation`` is set: with ``dry_run``, or if a partition has a
        problem, it was not.

    Raises:
        UsageError: The configuration has several links and none was named, or ``at`` names a partition that the link
            does not mirror, or has a position of.
        DifferenceError: MM2 still runs, or wrote during the adoption.
        SupersededError: A mirror runs the link.
        NotReadyError: The link is promoted.
        StateError: The link has positions of all partitions, or MM2's state is not readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    chosen = config.mapped_link(link)
    require_untransformed(chosen, "`adopt`")
    look = _AdoptionReader(
        chosen,
        config.clusters[chosen.source],
        config.clusters[chosen.target],
        flow or Mm2Flow.dedicated(chosen.source, chosen.target),
        at or {},
        on_event=on_event or (lambda _: None),
        clock=clock,
    )
    try:
        return look.run(dry_run=dry_run)
    finally:
        look.close()


class _AdoptionReader:
    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        flow: Mm2Flow,
        at: Mapping[SourcePartition, int],
        *,
        on_event: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._sessions = link_sessions(link, source, target, "adopt", clock=clock)
        self._flow = flow
        self._at = dict(at)
        self._on_event = on_event
        self._clock = clock
        self._names = LinkNames(link.state_name)
        self._discovery = link_discovery(link, *self._sessions, clock=clock)
        self._source, self._target = (session.admin for session in self._sessions)
        self._state = Mm2State(link, flow, *self._sessions)
        self._control = CompactedTopicReader(self._sessions.target)
        self._tails = {
            "source": RecordDigestReader(self._sessions.source),
            "uncommitted": RecordDigestReader(self._sessions.source, uncommitted=True),
            "target": RecordDigestReader(self._sessions.target),
        }

    def run(self, *, dry_run: bool) -> Adoption:
        plan = self._discovery.plan()
        positioned = self._positioned()
        targets = dict(plan.targets)
        existing = self._partitions(targets, self._copies(targets.values()))
        partitions = [source for source in existing if source not in positioned]
        if positioned and not partitions:
            raise self._has_run()
        refuse_unknown(self._at, targets, partitions, positioned)
        copies = {targets[source.topic] for source in partitions}
        # With equal names, applications may write to the copies as well.
        own = () if self._link.naming.kind == "identity" else tuple(sorted(copies))
        before = self._refuse_running(own)
        tasks = self._state.tasks()
        if tasks and not dry_run:
            self._on_event(f"fencing {tasks} transactional ids of MirrorMaker 2")
            self._state.fence(tasks)
            # Its open transactions were aborted, which added markers to the same logs.
            before = self._state.signs(own)
        committed = self._state.committed()
        adoption = self._judged(
            targets, positioned, partitions, committed, transactional=bool(tasks) and committed.transactional
        )
        if not adoption.problems and all(each.resume is None for each in adoption.partitions):
            raise self._nothing(committed)
        if dry_run or adoption.problems:
            return adoption
        if self._state.signs(own) != before:
            raise self._running("its topics have grown while they were read")
        return self._commit(adoption, positioned, own, before)

    def close(self) -> None:
        self._sessions.close()

    # -- may it be taken? ------------------------------------------------------------------------

    def _positioned(self) -> frozenset[SourcePartition]:
        """Returns the partitions with a valid position of the link: none if it was handed back."""
        view = control_view(self._control.records(self._names.control_topic, wait_for_open=False))
        refuse_promoted(self._link.name, view)
        if view.generation is None or view.handed_over is not None:
            return frozenset()
        return view.generation.assignment.known

    def _has_run(self) -> StateError:
        return StateError(
            f"link {self._link.name} has positions of its own of every partition that it mirrors and that has a copy: "
            "it has run, or adopted before",
            fix="run it: `eomirror run CONFIG`; to move single partitions, `eomirror run CONFIG --resume-at "
            "TOPIC-PARTITION=OFFSET`",
        )

    def _refuse_running(self, copies: Sequence[str]) -> dict[tuple[str, int], int]:
        """Waits until MM2's group is empty, then watches its topics; returns their log ends."""
        deadline = Deadline(PATIENCE_SECONDS, self._clock)
        while True:
            group = self._state.group()
            if not group.members:
                break
            if deadline.passed:
                raise self._running(f"in its group {self._flow.group}: {', '.join(group.members)}")
            self._on_event(f"waiting for {', '.join(group.members)} to leave the group {self._flow.group}")
            self._clock.sleep(_LOOK_SECONDS)
        self._on_event(f"watching for {WATCH_SECONDS:g} s for writes of MirrorMaker 2")
        before = self._state.signs(copies)
        watched = Deadline(WATCH_SECONDS, self._clock)
        while not watched.passed:
            self._clock.sleep(_LOOK_SECONDS)
            after = self._state.signs(copies)
            if after != before:
                grown = sorted(where for where, end in after.items() if before.get(where) != end)
                raise self._running(f"{grown[0][0]}-{grown[0][1]} grows")
        return before

    def _running(self, sign: str) -> DifferenceError:
        return DifferenceError(
            f"link {self._link.name}: MirrorMaker 2 still mirrors {self._flow.source} to {self._flow.target}: {sign}",
            fix="stop all of its workers, then repeat this; two replicators would write every record twice",
        )

    def _nothing(self, committed: MirroredOffsets) -> DifferenceError:
        known = ", ".join(map(str, sorted(committed.offsets)[:5]))
        return DifferenceError(
            f"link {self._link.name}: MirrorMaker 2 has mirrored nothing that this link mirrors; "
            f"{self._flow.offsets_topic} knows {known or 'no partition'}",
            fix="compare the link's topics and naming with MM2's, and its alias of the source: --mm2-source ALIAS; to "
            "begin from the start instead, just run the link",
        )

    # -- resume offsets -------------------------------------------------------------------------

    def _copies(self, targets: Collection[str]) -> dict[str, int]:
        """Returns the partition counts of the target topics that exist."""
        found = self._target.describe_topics(sorted(set(targets)))
        return {name: facts.partitions for name, facts in found.items() if facts is not None}

    def _partitions(self, targets: Mapping[str, str], copies: Mapping[str, int]) -> list[SourcePartition]:
        """Returns the partitions of the source that have a copy."""
        sources = {
            topic: facts.partitions
            for topic, facts in self._source.describe_topics(sorted(targets)).items()
            if facts is not None
        }
        return [
            SourcePartition(topic, number)
            for topic, count in sorted(sources.items())
            for number in range(min(count, copies.get(targets[topic], 0)))
        ]

    def _judged(
        self,
        targets: Mapping[str, str],
        positioned: Collection[SourcePartition],
        partitions: Sequence[SourcePartition],
        committed: MirroredOffsets,
        *,
        transactional: bool,
    ) -> Adoption:
        here = [(targets[source.topic], source.partition) for source in partitions]
        starts = self._source.offsets(partitions, at="earliest", read_committed=False) if partitions else {}
        ends = self._source.offsets(partitions, at="latest", read_committed=False) if partitions else {}
        stables = self._source.offsets(partitions, at="latest", read_committed=True) if partitions else {}
        copy_starts = self._target.offsets(here, at="earliest", read_committed=False) if here else {}
        copy_ends = self._target.offsets(here, at="latest", read_committed=True) if here else {}
        kept = self._target.topic_configs(sorted({topic for topic, _ in here}))
        synced = self._state.synced()
        found = []
        for number, source in enumerate(partitions):
            self._on_event(f"comparing {source}: {number + 1} of {len(partitions)}")
            target = targets[source.topic], source.partition
            offset = committed.offsets.get(source)
            stamp = kept[target[0]].get("message.timestamp.type")
            facts = self._facts(
                source,
                target,
                offset,
                (starts[source], stables[source], ends[source]),
                (copy_starts[target], copy_ends[target]),
                timestamps=stamp is None or stamp.value != "LogAppendTime",
                contradicted=source in committed.contradictions,
                transactional=transactional,
                syncs=synced.get(source, ()),
            )
            found.append(judge(facts))
        known = {*partitions, *positioned}
        return Adoption(
            link=self._link.name,
            place=self._flow.offsets_topic,
            transactional=transactional,
            partitions=tuple(found),
            left_out=tuple(
                sorted(
                    source
                    for source, offset in committed.offsets.items()
                    if source not in known and offset is not None
                )
            ),
            passed_over=tuple(self._state.passed_over),
        )

    def _facts(
        self,
        source: SourcePartition,
        target: tuple[str, int],
        committed: int | None,
        source_ends: tuple[int, int, int],
        target_ends: tuple[int, int],
        *,
        timestamps: bool,
        contradicted: bool,
        transactional: bool,
        syncs: Sequence[OffsetSync],
    ) -> Mm2PartitionFacts:
        start, stable, end = source_ends
        copy_start, copy_end = target_ends
        chosen = self._at.get(source)
        alignment, last, has_committed = Alignment(()), None, False
        copy: list[RecordDigest] = []
        log: list[RecordDigest] = []
        # An offset chosen by hand needs no proof; a short comparison fills the offset map if it can.
        for depth in _DEPTHS if chosen is None else _DEPTHS[:1]:
            first = max(copy_start, copy_end - depth)
            copy = self._tails["target"].read(*target, first, copy_end, timestamps=timestamps)
            last = copy[-1].offset if copy else None
            to_end = False
            # Further back if the result is ambiguous: three in four of the source's offsets may be markers.
            for context in dict.fromkeys((_CONTEXT, min(4 * len(copy) + _CONTEXT, _FURTHEST))):
                low = start if committed is None else max(start, min(committed + 1, end) - context)
                for name, high in (("source", stable), ("uncommitted", end)):
                    most = depth + context + 1
                    log = self._tails[name].read(*source, low, high, most=most, timestamps=timestamps)
                    to_end = len(log) < most
                    has_committed = has_committed or any(record.offset == committed for record in log)
                    alignment = align(
                        log, copy, committed, from_start=first == copy_start == 0, to_end=to_end
                    )
                    if alignment.candidates:
                        break
                if alignment.candidates or low == start:
                    break
            if alignment.candidates or not copy or (to_end and first == copy_start):
                break
        return Mm2PartitionFacts(
            source=source,
            target_topic=target[0],
            committed=committed,
            contradicted=contradicted,
            transactional=transactional,
            synced=furthest_sync(syncs, log, copy) if len(alignment.candidates) > 1 else None,
            source_start=start,
            source_end=end,
            has_committed=has_committed,
            target_end=copy_end,
            last=last,
            alignment=alignment,
            chosen=chosen,
        )

    # -- going on --------------------------------------------------------------------------------

    def _commit(
        self,
        adoption: Adoption,
        positioned: Collection[SourcePartition],
        own: Sequence[str],
        before: Mapping[tuple[str, int], int],
    ) -> Adoption:
        run = new_run_id()
        now = self._clock.wall_ms()
        resumed = {each.source: each for each in adoption.partitions if each.resume is not None}
        predecessors = {
            source: Predecessor(
                Adopted(
                    topic=source.topic,
                    partition=source.partition,
                    offset=_known(each.resume),
                    target_offset=each.target_offset,
                    replicator="mm2",
                    place=adoption.place,
                    committed=each.committed,
                    evidence=each.evidence,
                    run=run,
                    timestamp=now,
                ),
                each.ranges,
            )
            for source, each in resumed.items()
        }
        self._on_event("creating the link's own topics")
        partitions = self._discovery.prepare()
        owner = LinkOwner(
            self._link,
            *self._sessions,
            run=run,
            clock=self._clock,
            # A link that has run is not taken back: if it was handed back during this adoption, that was not requested.
            take_back=not positioned,
            adopt={source: _known(each.resume) for source, each in resumed.items()},
            predecessors=predecessors,
            on_event=self._on_event,
            hanging_client=target_hanging_client,
            command="adopt",
        )
        try:
            # The last check before the positions are committed.
            if {where: end for where, end in self._state.signs(own).items() if where in before} != before:
                raise self._running("its topics have grown since they were read")
            if self._positioned() != positioned:
                raise StateError(
                    f"link {self._link.name} has run in the meantime, or was handed back",
                    fix="nothing was committed; see `eomirror status CONFIG`, and repeat this",
                )
            layout = owner.acquire(self._link.lanes, partitions)
            owner.release()
        except SupersededError as error:
            if positioned:
                raise
            raise StateError(
                f"link {self._link.name} was taken by another mirror in the meantime: {error.message}",
                fix="stop that mirror; it began without what MirrorMaker 2 left",
            ) from error
        finally:
            owner.close()
        return replace(adoption, generation=layout.generation)


def _known(offset: int | None) -> int:
    if offset is None:
        raise AssertionError("only partitions with an offset are adopted")
    return offset
