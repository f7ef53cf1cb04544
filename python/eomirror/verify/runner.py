"""Runs `eomirror verify` in one process: finds the scopes of a link and compares its partitions one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Protocol

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import UsageError
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.kafka.session import link_sessions
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.source_comparison import changed_sources
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition
from eomirror.verify.partition import MOST_KEYS, Comparer, plane_refusal
from eomirror.verify.scope import ComparableScopes, RequestedRange, ScopeFinder
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, Range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster, Link
    from eomirror.records.position import Position
    from eomirror.verify.counts import PartitionCounts
    from eomirror.verify.partition import Progress
    from eomirror.verify.resume import LinkResume
    from eomirror.verify.verdict import Scope

__all__ = ["LastVerdicts", "RemoteComparison", "Spread", "Verifier"]


class LastVerdicts:
    """
    Tracks the last whole verdict of each partition.

    A signal ends a round at any partition.  The verdicts of earlier rounds about the partitions that it did not reach
    remain valid, above all their differences.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str, int], PartitionVerdict] = {}

    def merge(self, now: PartitionVerdict) -> PartitionVerdict:
        """Returns the verdict to report, given the verdict of this round."""
        one = now.scope
        where = (one.source.topic, one.source.partition, one.target.topic, one.target.partition)
        if now.whole:
            self._last[where] = now
        return now if now.whole or now.differs else self._last.get(where, now)


Compare = Callable[[Sequence["Scope"]], list[PartitionVerdict]]


class RemoteComparison(Protocol):
    """Compares scopes outside this process, such as `eomirror.spark.verify.SparkComparison`."""

    def __call__(self, scopes: Sequence[Scope]) -> list[PartitionVerdict]:
        """Returns the verdicts, in the order of their scopes."""

    @property
    def description(self) -> str:
        """The place of the comparison, for people."""


Spread = Callable[[Sequence["Scope"]], RemoteComparison | None]

# Of all followed partitions together, about 100 MB; a duplicate of an older record counts as foreign.
_KEPT_RECORDS = 1 << 20
_LEAST_KEPT, _MOST_KEPT = 1024, 65_536


class Verifier:
    """
    Compares a link's copies with their source.

    Args:
        show: Number of differences of a partition whose records are fetched.
        most_keys: Keys of a compacted partition that are kept in memory.
        native: True if the native plane may read; it does if it can.

    Attributes:
        ids: Ids of source and target cluster.
        resume: Saved state of the comparison; None at first.
        looked_seconds: Duration of the last look for scopes; the offset map is read from its beginning if logs begin
            later than at 0.

    Raises:
        MirrorError: A cluster cannot be reached or refuses the request.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        *,
        show: int = 10,
        most_keys: int = MOST_KEYS,
        native: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        if link.query is not None:
            raise UsageError(
                f"link {link.name}: its records are rows of a query (transform: {link.query.kind}), and verify "
                "does not run the query",
                fix="name the other links with --link; compare the rows with a query of your own on both clusters",
            )
        self._link = link
        self._show = show
        self.resume: LinkResume | None = None
        self.looked_seconds = 0.0
        self._clock = clock
        self._reason = plane_refusal(link, source, target) if native else "librdkafka was requested"
        if link.keyed:
            self._reason = self._reason or "records are placed by key"
        self._sessions = link_sessions(link, source, target, "verify", clock=clock)
        self._survey = ScopeFinder(link, *self._sessions, clock=clock)
        self.ids = self._survey.cluster_ids()
        self._begun: set[tuple[SourcePartition, tuple[str, str]]] = set()
        self._last = LastVerdicts()
        self._comparer = Comparer(
            link,
            source,
            target,
            self.ids,
            show=show,
            most_keys=most_keys,
            native=not self._reason,
            clock=clock,
        )

    @property
    def plane(self) -> str:
        """The plane that reads: ``native`` or ``client``."""
        return "client" if self._reason else "native"

    @property
    def reason(self) -> str:
        """Reason that the native plane does not read; empty if it does."""
        return self._reason

    def find_scopes(self, bound: RequestedRange, *, thorough: bool = False) -> ComparableScopes:
        """
        Returns the scopes to compare.

        Raises:
            DifferenceError: The link never ran.
        """
        return self._survey.find(bound, thorough=thorough)

    def run(
        self,
        *,
        bound: RequestedRange | None = None,
        progress: Progress | None = None,
        stopped: Callable[[], bool] = lambda: False,
        follows: bool = False,
        spread: Spread | None = None,
    ) -> LinkVerdict:
        """
        Compares all committed records.

        Args:
            bound: Offsets to compare; None for all.
            progress: Called during the comparison of a partition, at most every 0.1 s.
            stopped: Returns True to stop, called as often; the verdict marks the rest.
            follows: Resume at the end of the last such run, and add to its counts.
            spread: Returns another comparer for these scopes, or None to compare in this process; called once.

        Raises:
            DifferenceError: The link never ran.
            UsageError: The saved state of an earlier run does not fit.
            MirrorError: A partition could not be read.
        """
        bound = bound or RequestedRange()
        began = self._clock.monotonic()
        # Saved counts cannot be taken back, so their beginning has to be known first.
        found = self.find_scopes(bound, thorough=self.resume is not None or (follows and not self._begun))
        if follows and not self._begun.issuperset(found.topic_ids.items()):
            if self._begun:
                found = self.find_scopes(bound, thorough=True)
            self._begun.update(found.topic_ids.items())
        self.looked_seconds = self._clock.monotonic() - began
        keep = 0
        if follows:
            share = _KEPT_RECORDS // max(1, len(found.scopes))
            keep = min(_MOST_KEPT, max(_LEAST_KEPT, share))
        there = [one for one in found.scopes if not one.gone]
        other = None if spread is None else spread(there)

        def compare(scopes: Sequence[Scope]) -> list[PartitionVerdict]:
            if other is not None:
                return other(scopes)
            return [self._compare(one, found, progress, stopped, keep) for one in scopes]

        verdicts = compare(there)
        # A copy that begins with an earlier topic of the source's name, or that other links write too, seems to have
        # foreign records, and one that is older than its header seems to lack them.  Only the offset maps tell, and
        # they are read only if that is needed.
        if any(map(self._may_be_excused, verdicts)) and self.resume is None and not follows:
            verdicts = self._compare_again(bound, verdicts, compare)
        # In the order of the scopes, with what the source has no more.
        compared = iter(verdicts)
        verdicts = [PartitionVerdict(scope=one) if one.gone else next(compared) for one in found.scopes]
        if follows:
            verdicts = [self._last.merge(verdict) for verdict in verdicts]
        else:
            verdicts = self._with_changed(verdicts, found.positions)
        return LinkVerdict(
            link=self._link.name,
            plane=self.plane,
            reason=self._reason,
            partitions=tuple(verdicts),
            waiting=tuple(found.waiting),
            spark="" if other is None else other.description,
        )

    def close(self) -> None:
        """Closes all connections."""
        self._comparer.close()
        self._sessions.close()

    def _with_changed(
        self, verdicts: Sequence[PartitionVerdict], positions: Mapping[SourcePartition, Position]
    ) -> list[PartitionVerdict]:
        """
        Returns the verdicts with what the logs of both sides are not, though the positions say so, and the way on.

        Whatever range was compared: the difference may stand before it or behind it.
        """
        link = self._link
        copies = CopyEnds(link, self._sessions.target).problems(positions.values())
        sources = changed_sources(link, self._sessions.source, positions.values())
        told = {source: str(each) for source, each in sources.items() if each.parts} | copies
        if not told:
            return list(verdicts)
        control = control_view(
            CompactedTopicReader(self._sessions.target).records(
                LinkNames(link.state_name).control_topic, wait_for_open=False
            )
        )
        verb = "run" if control.history.current is None else "reverse"
        way_on = f"`eomirror {verb} CONFIG --link {quote(link.name)}` names the ways on"
        return [
            each if not found or each.scope.gone else replace(each, changed=f"{found}; {way_on}")
            for each in verdicts
            for found in (told.get(SourcePartition(each.scope.source.topic, each.scope.source.partition)),)
        ]

    def _compare(
        self,
        one: Scope,
        found: ComparableScopes,
        progress: Progress | None,
        stopped: Callable[[], bool],
        keep: int,
    ) -> PartitionVerdict:
        if stopped():
            return PartitionVerdict(scope=one, whole=False)
        source = SourcePartition(one.source.topic, one.source.partition)
        ids = found.topic_ids.get(source)
        if self.resume is None or one.problem or one.by_key or one.placed or ids is None:
            counts = self._comparer.compare(
                one, progress=progress, stopped=stopped, keep=keep, ids=ids or ("", "")
            )
            return self._comparer.verdict(one, counts)
        resume = self.resume
        before = resume.before(one, ids)
        rest = one if before is None else _rest(one, before)

        def note(scope: Scope, counts: PartitionCounts) -> None:
            so_far = counts if before is None else before.plus(counts, show=self._show)
            resume.record(one, ids, so_far)
            if progress is not None:
                progress(scope, so_far)

        counts = self._comparer.compare(rest, progress=note, stopped=stopped)
        if before is not None:
            counts = before.plus(counts, show=self._show)
        resume.record(one, ids, counts)
        return self._comparer.verdict(one, counts)

    def _may_be_excused(self, verdict: PartitionVerdict) -> bool:
        """Returns True if the offset maps may explain differences."""
        differs = verdict.differences
        if self._link.keyed:
            return False
        return bool(differs.get("foreign") or (self._link.guard and any(differs.values())))

    def _compare_again(
        self, bound: RequestedRange, verdicts: list[PartitionVerdict], compare: Compare
    ) -> list[PartitionVerdict]:
        now = {
            (one.source.topic, one.source.partition): one
            for one in self.find_scopes(bound, thorough=True).scopes
        }
        again: dict[int, Scope] = {}
        for place, verdict in enumerate(verdicts):
            was = verdict.scope
            one = now.get((was.source.topic, was.source.partition))
            if one is None or one.gone or not self._may_be_excused(verdict):
                continue
            begins = (one.source.start, one.target.start)
            maps = (one.others, one.own, one.returned)
            if begins != (was.source.start, was.target.start) or maps != (was.others, was.own, was.returned):
                again[place] = one
        found = dict(zip(again, compare(list(again.values())), strict=True))
        return [found.get(place, verdict) for place, verdict in enumerate(verdicts)]


def _rest(one: Scope, before: PartitionCounts) -> Scope:
    """Returns the scope that is left after the counted part, unless retention has advanced further on either side."""
    if before.at is None:
        return one
    source, target = before.at
    start = max(source, one.source.start), max(target, one.target.start)
    return replace(
        one,
        source=Range(
            one.source.topic, one.source.partition, start[0], max(one.source.end, start[0]), one.source.tail
        ),
        target=Range(
            one.target.topic, one.target.partition, start[1], max(one.target.end, start[1]), one.target.tail
        ),
    )
