"""
Disasters, ten to a batch: one mirror of ten links under transactional load, and a drawn fate for each link.

What is drawn for each link is printed with the seed that repeats it (`Fate`).  The batch shares its clusters and its
mirror, so that ten disasters cost ten failovers and not ten Spark contexts.  The judges are Java's own consumer and
what the producers know to be committed; none of the mirror's code takes part.
"""

from __future__ import annotations

import random
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException

from eomirror import Mirror, load_config
from eomirror.failover import PromotionOptions, Verb, link_history, promote, restore, reverse
from support.links.disaster import Disaster
from support.links.mirrors import CommandMirror

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.failover.group_moves import GroupMove
    from eomirror.records.promotion import Promotion
    from support.judges.java_judge import JavaJudge

__all__ = ["Batch", "Fate", "drawn"]

POINTS = (
    "owner.initialized", "owner.published", "owner.fenced_some", "owner.fenced_all", "failover.checked",
    "failover.taken", "failover.ended", "failover.read", "failover.group_moved", "failover.groups_moved",
    "failover.recorded",
)  # fmt: skip
_AFTER = ("", "", "failover.reversal_noted", "failover.reversed")
_MERGED = ("", "", "failover.orphans_written", "failover.restored")
_CALLS = 5
_PARTITIONS = 2
# lanes report the ends within so many milliseconds, and a busy machine later
_REPORT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """
    One disaster.

    Attributes:
        number: Of the disaster.
        equal_names: ``naming: identity``.
        points: Crash points of the first calls of `failover`; the call after them is not killed.
        operators: Calls at the same time.
        mirror: ``lives``, or ``killed`` (kill -9 of all its processes) just before the failover.
        broker: ``""``, ``source`` (kill -9 before the failover, which finds that out), or ``target`` (kill -9 while
            the failover runs); it is started again.
        broker_after: Seconds from the start of the command to the death of the broker.
        reversing: Crash point of `reverse`; empty for none.
        merging: Crash point of `restore`.
        reads: Share of the source that the group ``still`` has read.
    """

    number: int
    equal_names: bool
    points: tuple[str, ...]
    operators: int
    mirror: str
    broker: str
    broker_after: float
    reversing: str
    merging: str
    reads: float


def drawn(seed: int, number: int) -> Fate:
    """The disaster of a seed and a number."""
    rng = random.Random(f"{seed}/{number}")
    return Fate(
        number=number,
        equal_names=rng.random() < 0.5,
        points=tuple(rng.sample(POINTS, rng.choice((0, 1, 1, 2)))),
        operators=2 if rng.random() < 0.2 else 1,
        mirror="killed" if rng.random() < 0.3 else "lives",
        broker=rng.choice(("", "", "", "", "", "", "", "source", "target", "target")),
        broker_after=rng.uniform(0.3, 2.5),
        reversing=rng.choice(_AFTER),
        merging=rng.choice(_MERGED),
        reads=rng.random(),
    )


@dataclass(slots=True)
class _Link:
    """One link of a batch: its fate, and what is known of it."""

    fate: Fate
    scene: Disaster
    written: dict[int, list[str]] = field(default_factory=lambda: {n: [] for n in range(_PARTITIONS)})
    later: dict[int, list[str]] = field(default_factory=dict)
    moves: Sequence[GroupMove] = ()
    orphans: int = 0
    # wall clock after the commit of each record, ms
    times: dict[str, int] = field(default_factory=dict)


class Batch:
    """
    Ten disasters, or so; see the module's docstring.

    Args:
        east: Cluster of the sources.
        west: Cluster of the targets.
        name: Prefix of links and topics.
        folder: For configurations and logs.
        spark: A Spark context for the mirrors of the way back.
        fates: One for each link.
        judge: Java's consumer.
    """

    def __init__(
        self, east: Any, west: Any, name: str, folder: Path, spark: Any, fates: Sequence[Fate], judge: JavaJudge
    ) -> None:  # fmt: skip
        self._clusters = {"source": east, "target": west}
        self._folder, self._spark, self._judge = folder, spark, judge
        self._links = []
        for fate in fates:
            place = folder / str(fate.number)
            place.mkdir()
            scene = Disaster(
                east.client_properties, west.client_properties, f"{name}-{fate.number}", place, spark,
                equal_names=fate.equal_names, partitions=_PARTITIONS, back=False,
            )  # fmt: skip
            self._links.append(_Link(fate, scene))
        self._load: _Load | None = None
        self._mirrors: list[CommandMirror] = []

    def run(self) -> None:
        """Let all of it happen, and judge it."""
        try:
            self._load = _Load(self._links)
            for each in self._links:
                self._load.write(each, 60)
                self._commit_still(each)
            self._start_mirror(self._links)
            self._load.start()
            for each in self._links:
                each.scene.await_checkpoints(_PARTITIONS, 240)
                each.scene.await_ends()
            for at, each in enumerate(self._links):
                self._fail_over(each, self._links[at + 1 :])
        finally:
            if self._load is not None:
                self._load.finish()
            for mirror in self._mirrors:
                mirror.close()
        for each in self._links:
            self._judge_cut(each)
        for each in self._links:
            self._reverse(each)
        self._mirror_back()
        for each in self._links:
            self._merge(each)
        self._mirror_back()
        for each in self._links:
            self._judge_end(each)

    # -- before ------------------------------------------------------------------------------------

    def _commit_still(self, each: _Link) -> None:
        """A group that does not move: its checkpoint is exact, and so is what it must read next."""
        offsets = {n: int(each.scene.end("east", n) * each.fate.reads) for n in range(_PARTITIONS)}
        each.scene.commit("east", "still", offsets)

    def _start_mirror(self, links: Sequence[_Link]) -> None:
        settings = links[0].scene.settings()
        settings["links"] = [link for each in links for link in each.scene.settings()["links"]]
        settings["defaults"]["groups"] = [".*-still"]
        settings["defaults"]["lanes"] = 1
        mirror = CommandMirror(settings, self._folder / f"mirror-{len(self._mirrors)}")
        self._mirrors.append(mirror)
        mirror.start()

    # -- the disaster ------------------------------------------------------------------------------

    def _fail_over(self, each: _Link, rest: Sequence[_Link]) -> None:
        fate, scene = each.fate, each.scene
        if fate.mirror == "killed":
            self._mirrors[-1].kill()
        if fate.broker == "source":
            self._kill_source()
        # a source that is dead is found out by the command; one that lives is out of its reach
        lost = fate.broker != "source"
        arguments = ("--yes", *(("--source-gone",) if lost else ()))
        points = list(fate.points)
        for call in range(_CALLS):
            point = points.pop(0) if points else ""
            if call == 0 and fate.broker == "target":
                self._with_broker_killed(each, point, arguments)
            elif call == 0 and fate.operators > 1:
                self._both(each, arguments)
            elif point:
                code, _, said = scene.command("failover", *arguments, lost=lost, crash=point)
                assert code in {-9, 6}, f"{fate}: {point}: {code}: {said}"
            elif self._promote(each, lost=lost):
                break
        assert self._state(each) == "promoted", f"{fate}: not promoted after {_CALLS} calls"
        if fate.broker == "source":
            self._clusters["source"].brokers[0].start()
            self._load_of().resume()
        if fate.mirror == "killed" and rest:
            self._start_mirror(rest)

    def _kill_source(self) -> None:
        """
        Kill -9 of the source, between two transactions of the load.

        A coordinator that is killed before it has written all markers may leave some out for good (docs/adr/0012): no
        reader would ever see the committed records behind, which is the source's loss and not the link's.
        """
        self._load_of().pause()
        for each in self._links:
            self._judge.await_markers(each.scene.east, each.scene.topic)
        self._clusters["source"].brokers[0].kill()

    def _promote(self, each: _Link, *, lost: bool) -> bool:
        """One call as a library, for its report; True if the link is promoted."""
        report = promote(
            each.scene.config(lost=lost), Verb.FAILOVER, link=each.scene.name,
            options=PromotionOptions(source_gone=lost),
        )  # fmt: skip
        if report.promoted:
            each.moves = report.groups
        elif report.error is not None and "promoted already" not in report.error.message:
            # a broker that comes back takes a moment
            time.sleep(1)
            return False
        return True

    def _both(self, each: _Link, arguments: tuple[str, ...]) -> None:
        """Two operators at once: each call ends, and at most one promotion is there."""
        ended: list[tuple[int, dict[str, Any], str]] = []
        lost = "--source-gone" in arguments
        calls = [
            threading.Thread(
                target=lambda: ended.append(each.scene.command("failover", *arguments, lost=lost))
            )
            for _ in range(each.fate.operators)
        ]  # fmt: skip
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        assert len(ended) == len(calls)
        codes = sorted(code for code, _, _ in ended)
        assert codes.count(0) <= 1, f"{each.fate}: {ended}"
        assert set(codes) <= {0, 1, 5, 6}, f"{each.fate}: {ended}"

    def _with_broker_killed(self, each: _Link, point: str, arguments: tuple[str, ...]) -> None:
        broker = self._clusters["target"].brokers[0]

        def call() -> None:
            try:
                each.scene.command(
                    "failover", *arguments, lost="--source-gone" in arguments, crash=point, timeout=240
                )
            except subprocess.TimeoutExpired as error:
                hung.append(error)

        hung: list[subprocess.TimeoutExpired] = []
        thread = threading.Thread(target=call)
        thread.start()
        time.sleep(each.fate.broker_after)
        broker.kill()
        broker.start()
        thread.join()
        assert not hung, f"{each.fate}: the command hangs: {hung}"

    def _state(self, each: _Link) -> str:
        return link_history(each.scene.config(lost=True), link=each.scene.name).state

    # -- the way back ------------------------------------------------------------------------------

    def _reverse(self, each: _Link) -> None:
        each.scene.with_back = True
        each.later = {n: texts(found) for n, found in each.scene.write("west", 30).items()}
        if each.fate.reversing:
            code, _, said = each.scene.command("reverse", "--yes", crash=each.fate.reversing)
            assert code == -9, f"{each.fate}: {said}"
        reverse(each.scene.config(), link=each.scene.name)

    def _mirror_back(self) -> None:
        """All links back at once, until they have caught up."""
        settings = self._links[0].scene.settings()
        settings["links"] = [link for each in self._links for link in each.scene.settings()["links"]]
        settings["defaults"] |= {"groups": [], "lanes": 1}
        names = [each.scene.back for each in self._links]
        with Mirror(load_config(settings), spark=self._spark, links=names) as mirror:
            report = mirror.run(until="caught-up")
        assert report.exit_code == 0, report

    def _merge(self, each: _Link) -> None:
        fate = each.fate

        def merge(config: Config) -> None:
            with Mirror(config, spark=self._spark, although_promoted=True) as mirror:
                assert mirror.run(until="caught-up").exit_code == 0

        if fate.merging:
            code, _, said = each.scene.command("restore", "--orphans", "merge", "--yes", crash=fate.merging)
            assert code == -9, f"{fate}: {said}"
        found = restore(each.scene.config(), "merge", link=each.scene.name, merge=merge)
        # a call that was killed behind its record has left nothing to do
        left = 0 if fate.merging == "failover.restored" else each.orphans
        assert found.records == left, f"{fate}: {found.records} orphans found, {left} are there"
        (noted,) = link_history(each.scene.config(), link=each.scene.name).history.restorations.values()
        assert noted.records == each.orphans, (
            f"{fate}: {noted.records} orphans noted, {each.orphans} are there"
        )

    # -- the judges --------------------------------------------------------------------------------

    def _judge_cut(self, each: _Link) -> None:
        """West is a prefix of what was committed on east; groups stand at the record that they read next."""
        scene, fate = each.scene, each.fate
        there = self._judge.read(scene.west, scene.copy)
        here = self._judge.read(scene.east, scene.topic)
        (promotion,) = link_history(scene.config(lost=True), link=scene.name).history.promotions.values()
        for number in range(_PARTITIONS):
            values = [value for _, value in there[number]]
            source = [value for _, value in here[number]]
            known = each.written[number]
            odd = set(source) ^ set(known)
            assert source == known, (
                f"{fate}: the producers know {len(known)} records, Java reads {len(source)}: {odd}"
            )
            assert values == source[: len(values)], f"{fate}: partition {number} is not a prefix"
            (cut,) = [one for one in promotion.cuts if one.partition == number]
            before = [value for offset, value in here[number] if offset < cut.position]
            assert values == before, f"{fate}: the cut of {number} is not what was mirrored"
            self._judge_bound(each, number, promotion, here[number])
            each.orphans += len(source) - len(values)
            self._judge_group(each, number, here[number], there[number])

    def _judge_bound(
        self, each: _Link, number: int, promotion: Promotion, here: Sequence[tuple[int, str]]
    ) -> None:
        """An orphan that the stated bound does not count was written after the time that the bound names."""
        assert promotion.ends_at is not None, f"{each.fate}: no bound is stated"
        (cut,) = [one for one in promotion.cuts if one.partition == number]
        assert cut.source_end is not None
        for offset, value in here:
            if offset >= max(cut.position, cut.source_end):
                late = each.times[value] - promotion.ends_at
                assert late > -_REPORT_MS, (
                    f"{each.fate}: {value} is beyond the bound, {late} ms after its time"
                )

    def _judge_group(
        self, each: _Link, number: int, here: Sequence[tuple[int, str]], there: Sequence[tuple[int, str]]
    ) -> None:
        """The group reads next what it would have read next on the source."""
        scene, fate, group = each.scene, each.fate, f"{each.scene.name}-still"
        on_east = self._judge.committed(scene.east, group, scene.topic, number)
        on_west = self._judge.committed(scene.west, group, scene.copy, number)
        assert on_east is not None
        assert on_west is not None, f"{fate}: group has no offset in partition {number}"
        wanted = next((value for offset, value in here if offset >= on_east), None)
        got = next((value for offset, value in there if offset >= on_west), None)
        assert got == wanted, f"{fate}: the group reads {got} next, not {wanted}"
        for move in each.moves:
            if (move.group, move.partition) == (group, number):
                assert move.to_offset == on_west, f"{fate}: the report says {move}"

    def _judge_end(self, each: _Link) -> None:
        """Both sides hold the same records, each once: nothing is lost, nothing doubled."""
        scene = each.scene
        everything = {n: sorted(each.written[n] + each.later[n]) for n in range(_PARTITIONS)}
        for properties, topic in ((scene.east, scene.topic), (scene.west, scene.copy)):
            found = self._judge.read(properties, topic)
            values = {n: sorted(value for _, value in records) for n, records in found.items()}
            assert values == everything, f"{each.fate}: {topic} holds other records"

    def _load_of(self) -> _Load:
        assert self._load is not None
        return self._load


class _Load(threading.Thread):
    """Transactions on the source of every link in turn, one in ten aborted, until the end is asked for."""

    def __init__(self, links: Sequence[_Link]) -> None:
        super().__init__(daemon=True)
        self._links = links
        self._over = threading.Event()
        self._running = threading.Event()
        self._running.set()
        self._idle = threading.Lock()
        self._failed: BaseException | None = None

    def write(self, each: _Link, count: int) -> None:
        """Write records of one link."""
        for number, records in each.scene.write("east", count).items():
            each.written[number] += texts(records)
            each.times |= dict.fromkeys(texts(records), time.time_ns() // 1_000_000)

    def run(self) -> None:
        """Write until the end."""
        try:
            while not self._over.is_set():
                for each in self._links:
                    self._running.wait(1)
                    with self._idle:
                        if self._running.is_set() and not self._over.is_set():
                            self.write(each, 20)
        except (KafkaException, AssertionError) as error:
            self._failed = error

    def pause(self) -> None:
        """No transaction is open when this returns."""
        self._running.clear()
        with self._idle:
            pass

    def resume(self) -> None:
        """Write again."""
        self._running.set()

    def finish(self) -> None:
        """End; raises what ended it early."""
        self._over.set()
        self._running.set()
        if self.ident is not None:
            self.join(90)
            assert not self.is_alive(), "the load does not end"
        if self._failed is not None:
            raise AssertionError(f"the load ended: {self._failed}") from self._failed


def texts(records: Sequence[Any]) -> list[str]:
    """Values of records as text."""
    return [(record[1] or b"").decode() for record in records]
