"""
Rounds of disaster: logs lose their ends, applications write where they should not, and the link returns.

One drawn round for each link of a batch (`Round`), printed with the seed that repeats it.  The batch shares its
clusters, its mirrors and the one stop in which the logs are cut.  Its driver knows what the texts of refusals say.

The judges are Java's own consumer and what the producers know to be acknowledged.  Each such record ends on both sides,
once, unless the product has named it before: as lost, in the report of the failover; or as exported, or kept.
"""

from __future__ import annotations

import base64
import json
import random
import re
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from eomirror import Mirror, load_config
from eomirror.errors import MirrorError, NotReadyError
from eomirror.failover import (
    PromotionOptions,
    Verb,
    failback,
    link_history,
    promote,
    readiness,
    restore,
    reverse,
)
from support.clusters.older_logs import cut_log
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.traffic.records import produce, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.failover import RestorationReport, ReversalReport
    from eomirror.localkafka.cluster import LocalCluster
    from eomirror.records.promotion import Promotion
    from support.judges.java_judge import JavaJudge

    # offset and value
    Log = list[tuple[int, str]]

__all__ = ["Round", "Rounds", "drawn_round"]

_PARTITIONS = 2
_TRIES = 6
_KINDS = ("transactional", "idempotent", "plain")
_FEWER, _MORE = 5, 150
_ACTIONS = ("merge", "merge", "export", "keep")
# A lane reports the ends within so many milliseconds, and a busy machine later.
_REPORT_MS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """
    One round.

    Attributes:
        number: Of the round.
        equal_names: ``naming: identity``.
        written: Records that are mirrored, in two parts.
        between: Records of a forgotten producer in the copy, between those of the link.
        pending: Records of a transaction that is open while the mirror runs, and is committed behind its end.
        late: Records on the source that the mirror does not see.
        cuts: Share of its log that a partition keeps, by side and number.
        refilled: Records that applications write behind the cuts, by side; of ``west`` before the failover.
        kind: Of their producer.
        early: Records of a forgotten producer in the copies before the failover.
        restored: What ``restore`` is asked for before ``reverse``; empty for nothing.
        action: What ``restore`` is asked for behind it.
        beside: Records of a forgotten producer on the source behind ``reverse``.
        again: Sides on which an application emits a record again, with the header of the copy.
        hasty: Calls of ``failback`` before there is anything to return from.
        twice: Every command is repeated.
        verified: ``verify`` is called for both links in the end.
        crashes: Crash point by command; empty for none.
    """

    number: int
    equal_names: bool
    written: tuple[int, int]
    between: int
    pending: int
    late: int
    cuts: dict[str, dict[int, float]]
    refilled: dict[str, int]
    kind: str
    early: int
    restored: str
    action: str
    beside: int
    again: tuple[str, ...]
    hasty: bool
    twice: bool
    verified: bool
    crashes: dict[str, str]


def drawn_round(seed: int, number: int) -> Round:
    """The round of a seed and a number."""
    rng = random.Random(f"rounds/{seed}/{number}")
    cuts = {
        side: {
            partition: rng.choice((0.0, rng.random(), rng.random(), rng.uniform(0.7, 1)))
            for partition in rng.choice(((0,), (1,), (0, 1)))
        }
        for side in rng.choice(((), ("east",), ("east",), ("west",), ("west",), ("east", "west")))
    }
    return Round(
        number=number,
        equal_names=rng.random() < 0.5,
        written=(rng.randint(20, 80), rng.randint(20, 80)),
        between=0 if "west" in cuts else rng.choice((0, 0, 7)),
        pending=rng.choice((0, 0, 8)),
        late=rng.choice((0, 15, 30)),
        cuts=cuts,
        refilled={side: rng.choice((0, _FEWER, _MORE)) for side in cuts},
        kind=rng.choice(_KINDS),
        early=rng.choice((0, 0, 4)),
        restored=rng.choice(("", "", "", *_ACTIONS)),
        action=rng.choice(_ACTIONS),
        beside=rng.choice((0, 0, 3)),
        again=tuple(side for side in ("east", "west") if rng.random() < 0.3),
        hasty=rng.random() < 0.3,
        twice=rng.random() < 0.3,
        verified=rng.random() < 0.4,
        crashes={
            "failover": rng.choice(("", "", "", "failover.taken", "failover.ended", "failover.recorded")),
            "reverse": rng.choice(
                ("", "", "failover.reversal_noted", "failover.reversed", "failover.copied_back")
            ),
            "restore": rng.choice(("", "", "failover.orphans_written", "failover.restored")),
            "failback": rng.choice(("", "", "", "failover.taken", "failover.recorded", "failover.reversed")),
        },
    )


@dataclass(slots=True)
class _Link:
    """One link of a batch: its round, and what the oracle knows."""

    round: Round
    scene: Disaster
    # value to time of its acknowledgement, of every record of each partition
    written: dict[int, dict[str, int]] = field(default_factory=lambda: {n: {} for n in range(_PARTITIONS)})
    pending: tuple[Producer, dict[int, list[str]]] | None = None
    promotion: Promotion | None = None
    # source offsets and values that no log holds behind the disaster
    lost: dict[int, Log] = field(default_factory=lambda: {n: [] for n in range(_PARTITIONS)})
    kept: dict[int, set[str]] = field(default_factory=lambda: {n: set() for n in range(_PARTITIONS)})
    exported: set[str] = field(default_factory=set)
    files: int = 0
    # records of others among those of the link, which the copies keep for themselves
    foreign: dict[int, set[str]] = field(default_factory=lambda: {n: set() for n in range(_PARTITIONS)})
    said: list[str] = field(default_factory=list)


class Rounds:
    """
    A batch of rounds; see the module's docstring.

    Args:
        east: Cluster of the sources, of one broker.
        west: Cluster of the targets, of one broker.
        name: Prefix of links and topics.
        folder: For configurations and files.
        spark: Context of the mirrors.
        rounds: One for each link.
        judge: Java's consumer.
    """

    def __init__(
        self, east: LocalCluster, west: LocalCluster, name: str, folder: Path, spark: Any,
        rounds: Sequence[Round], judge: JavaJudge,
    ) -> None:  # fmt: skip
        self._clusters = {"east": east, "west": west}
        self._spark, self._judge = spark, judge
        self._links: list[_Link] = []
        self._failed: list[Exception] = []
        for each in rounds:
            place = folder / str(each.number)
            place.mkdir()
            scene = Disaster(
                east.client_properties, west.client_properties, f"{name}-{each.number}", place, spark,
                equal_names=each.equal_names, partitions=_PARTITIONS,
            )  # fmt: skip
            self._links.append(_Link(each, scene))

    def run(self) -> None:
        """Let all of it happen, and judge it."""
        self._each(self._mirrored_first)
        with running(
            Mirror(self._config(), spark=self._spark, links=[one.scene.name for one in self._links])
        ):
            self._each(self._mirrored_then)
            self._each(self._mirrored)
            self._each(self._written_between)
            self._each(self._mirrored)
            self._each(self._left_open)
            time.sleep(2 * _REPORT_MS / 1000)
        self._each(self._written_late)
        self._disaster()
        self._each(self._fail_over)
        self._start("east")
        self._each(self._turn)
        self._mirror("back")
        self._each(self._beside)
        self._mirror("back")
        self._each(self._return)
        self._mirror("there")
        self._each(self._judge_end)
        for one in self._links:
            print(f"{one.round.number}: {'; '.join(one.said)}")  # noqa: T201  which ways were taken
        if self._failed:
            raise ExceptionGroup("rounds", self._failed)

    def _each(self, step: Callable[[_Link], None]) -> None:
        """One step of all links; one that fails takes no further part, and is told with its round in the end."""
        for one in list(self._links):
            try:
                step(one)
            except Exception as error:  # noqa: BLE001  raised in the end
                error.add_note(f"in {step.__name__}: {one.round}\n{'; '.join(one.said)}")
                self._failed.append(error)
                self._links.remove(one)

    # -- before ------------------------------------------------------------------------------------

    def _mirrored_first(self, one: _Link) -> None:
        self._write(one, "east", one.round.written[0], "transactional")

    def _mirrored_then(self, one: _Link) -> None:
        one.scene.await_ends()

    def _mirrored(self, one: _Link) -> None:
        others = sum(value.startswith("between-") for some in one.written.values() for value in some)
        wait_for(lambda: one.scene.count("west") == one.scene.count("east") + others, 120)

    def _written_between(self, one: _Link) -> None:
        if one.round.between:
            self._write(one, "west", one.round.between, one.round.kind, of="between")
        self._write(one, "east", one.round.written[1], "transactional")

    def _left_open(self, one: _Link) -> None:
        """Records that stand behind the last stable offset: the mirror sees the end of the log only."""
        if not one.round.pending:
            return
        scene = one.scene
        producer = Producer({**scene.east, "transactional.id": f"{scene.name}-pending"})
        producer.init_transactions(30)
        producer.begin_transaction()
        values: dict[int, list[str]] = {n: [] for n in range(_PARTITIONS)}
        for at in range(one.round.pending):
            value = self._value(one, "pending")
            values[at % _PARTITIONS].append(value)
            producer.produce(scene.topic, value, b"pending", at % _PARTITIONS)
        producer.flush(30)
        one.pending = producer, values

    def _written_late(self, one: _Link) -> None:
        if one.pending is not None:
            producer, values = one.pending
            producer.commit_transaction(30)
            for number, some in values.items():
                # Written before the mirror had ended: its bound counts them.
                one.written[number] |= dict.fromkeys(some, 0)
        self._write(one, "east", one.round.late, "transactional")

    # -- the disaster ------------------------------------------------------------------------------

    def _disaster(self) -> None:
        """Both clusters go down, and the target comes back; some logs without their ends."""
        before = [self._read(one) for one in self._links]
        for cluster in self._clusters.values():
            cluster.brokers[0].stop()
        for one, (here, there) in zip(self._links, before, strict=True):
            ends = {
                (side, number): cut_log(
                    self._clusters[side], one.scene.topic if side == "east" else one.scene.copy, number, share
                )
                for side, some in one.round.cuts.items()
                for number, share in some.items()
            }
            one.said.append(f"cut to {ends}")
            for number in range(_PARTITIONS):
                left = {
                    value
                    for side, log in (("east", here), ("west", there))
                    for offset, value in log[number]
                    if (side, number) not in ends or offset < ends[side, number]
                }
                one.lost[number] = [each for each in here[number] if each[1] not in left]
        self._start("west")
        for one in self._links:
            self._write(one, "west", one.round.refilled.get("west", 0), one.round.kind, of="refilled")
            self._write(one, "west", one.round.early, "plain", of="early")

    def _start(self, side: str) -> None:
        self._clusters[side].brokers[0].start()
        for one in self._links:
            wait_for(partial(_serves, one.scene, side), 60)
        if side == "east":
            for one in self._links:
                self._write(one, "east", one.round.refilled.get("east", 0), one.round.kind, of="refilled")

    def _fail_over(self, one: _Link) -> None:
        scene = one.scene
        seen = readiness(scene.config(lost=True), link=scene.name, source_gone=True)
        if point := one.round.crashes["failover"]:
            self._crashes(one, "failover", "--source-gone", point=point, lost=True)
        options = PromotionOptions(source_gone=True)
        report = promote(scene.config(lost=True), Verb.FAILOVER, link=scene.name, options=options)
        if report.promotion is None:
            assert point == "failover.recorded", f"not promoted: {report.error}"
        found = self._current(one)
        assert found is not None
        one.promotion = found
        if seen.lost is not None and found.lost is not None:
            assert seen.lost == found.lost, f"readiness says {seen.lost}, the promotion {found.lost}"
        self._judge_lost(one, found)
        self._write(one, "west", 20, "transactional", of="promoted")

    def _current(self, one: _Link) -> Promotion | None:
        """The promotion in force, from the target alone."""
        return link_history(one.scene.config(lost=True), link=one.scene.name).history.current

    def _judge_lost(self, one: _Link, promotion: Promotion) -> None:
        """Every record that no log holds was counted, or written behind the time as of which the count is."""
        cuts = {cut.partition: cut for cut in promotion.cuts}
        for number, log in one.lost.items():
            cut = cuts.get(number)
            if cut is None or cut.source_end is None or not cut.proven or promotion.ends_at is None:
                continue
            for offset, value in log:
                counted = cut.position <= offset < cut.source_end
                written = one.written[number][value]
                assert counted or written > promotion.ends_at - _REPORT_MS, (
                    f"{value} at offset {offset} of {number} is lost and was not counted: {cut}"
                )

    # -- the way back ------------------------------------------------------------------------------

    def _turn(self, one: _Link) -> None:
        if one.round.hasty:
            self._refused(one, lambda: failback(one.scene.config(), link=one.scene.name))
        if one.round.restored:
            # A source that is not what was mirrored refuses a merge.
            self._refused(one, lambda: self._restore(one, one.round.restored), may_pass=True)
        if "west" in one.round.again:
            self._emit_again(one, "west")
        self._reverse(one)
        if one.round.twice:
            self._reverse(one)
        self._write(one, "west", 10, "transactional", of="reversed")

    def _reverse(self, one: _Link) -> None:
        scene, accepted = one.scene, False
        for _ in range(_TRIES):
            if accepted:
                # Some records of others in the copies stay there; the command names them.
                self._named(one, self._reversed(one, accepted=True, dry_run=True))
            more = ("--from-common-end",) if accepted else ()
            if (point := one.round.crashes["reverse"]) and not (scene.folder / point).exists():
                self._crashes(one, "reverse", *more, point=point)
            try:
                self._reversed(one, accepted=accepted)
            except NotReadyError as error:
                one.said.append(f"reverse: {error}")
                _expect("refused again" if accepted else "--from-common-end", error)
                accepted = True
            else:
                return
        raise AssertionError("reverse does not end")

    def _reversed(self, one: _Link, *, accepted: bool, dry_run: bool = False) -> ReversalReport:
        return reverse(
            one.scene.config(), link=one.scene.name, from_common_end=accepted, mirror=self._mirrors(),
            dry_run=dry_run,
        )  # fmt: skip

    def _named(self, one: _Link, found: ReversalReport) -> None:
        there = self._judge.read(one.scene.west, one.scene.copy)
        for text in found.foreign:
            number, start, end = map(int, re.findall(r"-(\d+) \[(\d+), (\d+)\)", text)[0])
            one.foreign[number] |= {
                value for at, value in there[number] if start <= at < end and value.startswith("between-")
            }
            one.said.append(f"foreign: {text}")

    def _beside(self, one: _Link) -> None:
        if one.round.hasty:
            options = PromotionOptions(patience=3)
            self._refused(
                one, lambda: failback(one.scene.config(), link=one.scene.name, options=options), may_pass=True
            )
        if self._returned(one):
            return
        if "east" in one.round.again:
            self._emit_again(one, "east")
        self._restore(one, one.round.action)
        self._write(one, "east", one.round.beside, "plain", of="beside")
        if one.round.twice:
            self._restore(one, one.round.action)

    def _returned(self, one: _Link) -> bool:
        return self._current(one) is None

    def _restore(self, one: _Link, action: str) -> None:
        """Deals with the orphans; what is exported or kept is noted as the product names it."""
        scene = one.scene
        one.files += 1
        path = scene.folder / f"orphans-{one.files}.jsonl"
        to = ("--to", str(path)) if action == "export" else ()
        if point := one.round.crashes["restore"]:
            self._crashes(one, "restore", "--orphans", action, *to, point=point)
        found = restore(
            scene.config(),
            action,
            link=scene.name,
            to=path if to else None,
            merge=self._mirrors(),
        )
        self._note(one, found, path)

    def _note(self, one: _Link, found: RestorationReport, path: Path) -> None:
        one.said.append(f"restore {found.orphans}: {found.records}")
        if path.exists():
            some = [json.loads(line) for line in path.read_text().splitlines()]
            one.exported |= {base64.b64decode(each["value"]).decode() for each in some}
        here = self._judge.read(one.scene.east, one.scene.topic)
        # A killed call may have recorded it.
        history = link_history(one.scene.config(), link=one.scene.name).history
        for source, ranges in history.dealt(found.number).items():
            for each in ranges:
                if each.action == "keep":
                    one.kept[source.partition] |= {
                        value for at, value in here[source.partition] if each.start <= at < each.end
                    }

    def _return(self, one: _Link) -> None:
        scene = one.scene
        options = PromotionOptions(patience=20)
        for _ in range(_TRIES):
            if self._returned(one):
                break
            if (point := one.round.crashes["failback"]) and not (scene.folder / point).exists():
                self._crashes(one, "failback", point=point)
            try:
                found = failback(scene.config(), link=scene.name, options=options)
            except NotReadyError as error:
                one.said.append(f"failback: {error}")
                if "has returned already" in str(error):
                    break
                _expect("eomirror restore", error)
                self._restore_or(one)
                self._mirror("back", [one])
            else:
                if found.promotion is not None and found.promotion.error is not None:
                    one.said.append(f"failback: {found.promotion.error}")
                    self._mirror("back", [one])
        assert self._returned(one), "failback does not end"
        self._write(one, "east", 10, "transactional", of="returned")

    def _restore_or(self, one: _Link) -> None:
        """As the text of a refusal says: merge, or if that is refused, export."""
        try:
            self._restore(one, one.round.action)
        except NotReadyError as error:
            one.said.append(f"restore: {error}")
            _expect("export", error)
            self._restore(one, "export")

    # -- the judges --------------------------------------------------------------------------------

    def _read(self, one: _Link) -> tuple[dict[int, Log], dict[int, Log]]:
        scene = one.scene
        return self._judge.read(scene.east, scene.topic), self._judge.read(scene.west, scene.copy)

    def _judge_end(self, one: _Link) -> None:
        """Every record is on both sides once, or was named."""
        here, there = self._read(one)
        wrong = []
        for number in range(_PARTITIONS):
            lost = {value for _, value in one.lost[number]}
            named = one.exported | one.kept[number]
            wanted = one.written[number].keys() - lost
            for side, log in (("east", here[number]), ("west", there[number])):
                found = Counter(value for _, value in log)
                # What is exported or kept stands where it was written.
                may_lack = named if side == "west" else one.foreign[number]
                wrong += [
                    f"{side} {number}: {what}: {len(some)}: {sorted(some)[:5]}"
                    for what, some in (
                        ("twice", {value for value, count in found.items() if count > 1}),
                        ("missing", wanted - found.keys() - may_lack),
                        ("from nowhere", found.keys() - wanted),
                    )
                    if some
                ]
        assert not wrong, wrong
        if one.round.verified:
            for link in (one.scene.name, one.scene.back):
                code, found_there, said = one.scene.command("verify", link=link)
                assert code == 0, f"verify of {link}: {said} {found_there}"

    # -- tools -------------------------------------------------------------------------------------

    def _config(self, links: Iterable[_Link] = ()) -> Config:
        settings = self._links[0].scene.settings()
        settings["links"] = [link for one in (links or self._links) for link in one.scene.settings()["links"]]
        settings["defaults"] |= {"groups": [], "lanes": 1}
        return load_config(settings)

    def _mirror(self, way: str, links: Sequence[_Link] = ()) -> None:
        """All links in one direction at once, until they have caught up."""
        there = links or [one for one in self._links if way != "back" or not self._returned(one)]
        if not there:
            return
        names = [one.scene.back if way == "back" else one.scene.name for one in there]
        with Mirror(self._config(there), spark=self._spark, links=names) as mirror:
            report = mirror.run(until="caught-up")
        assert report.exit_code == 0, f"{[one.round for one in there]}: {report}"

    def _mirrors(self) -> Callable[[Config], None]:
        def mirror(config: Config) -> None:
            with Mirror(config, spark=self._spark, although_promoted=True) as made:
                ended = made.run(until="caught-up")
            if ended.exit_code:
                raise NotReadyError(f"not everything was mirrored: {ended}", fix="")

        return mirror

    def _crashes(self, one: _Link, verb: str, *arguments: str, point: str, lost: bool = False) -> None:
        """The command is killed at the point, or ends before it."""
        code, _, said = one.scene.command(verb, "--yes", *arguments, crash=point, lost=lost, timeout=240)
        one.said.append(f"{verb} {' '.join(arguments)} killed at {point}: {code}")
        assert code in {-9, 0, 1, 4, 6}, f"{verb}: {code}: {said}"

    def _refused(self, one: _Link, call: Callable[[], object], *, may_pass: bool = False) -> None:
        """A call that comes too early."""
        try:
            call()
        except MirrorError as error:
            one.said.append(str(error))
        else:
            assert may_pass, "not refused"

    def _value(self, one: _Link, of: str) -> str:
        one.scene._numbers += 1
        return f"{of}-{one.scene._numbers}"

    def _write(self, one: _Link, side: str, count: int, kind: str, *, of: str = "") -> None:
        """Write to both partitions; notes what was acknowledged."""
        if not count:
            return
        scene = one.scene
        properties, topic = (scene.east, scene.topic) if side == "east" else (scene.west, scene.copy)
        values = [self._value(one, of or side) for _ in range(count)]
        if kind == "transactional":
            done = produce(
                properties, topic, _PARTITIONS, [(b"k", value.encode(), 1_600_000_000_000, ()) for value in values],
                transactional_id=f"{scene.name}-{side}", per_transaction=10,
            )  # fmt: skip
            found = {number: [(one[1] or b"").decode() for one in some] for number, some in done.items()}
        else:
            producer = Producer({**properties, "enable.idempotence": kind == "idempotent", "linger.ms": 1})
            for at, value in enumerate(values):
                producer.produce(topic, value, b"k", at % _PARTITIONS)
                producer.poll(0)
            assert producer.flush(60) == 0
            found = {number: values[number::_PARTITIONS] for number in range(_PARTITIONS)}
        now = time.time_ns() // 1_000_000
        for number, some in found.items():
            one.written[number] |= dict.fromkeys(some, now)

    def _emit_again(self, one: _Link, side: str) -> None:
        """An application writes what it has read, headers and all, with a value of its own."""
        scene = one.scene
        properties, topic = (scene.east, scene.topic) if side == "east" else (scene.west, scene.copy)
        consumer = Consumer(
            {
                **properties, "group.id": "again", "isolation.level": "read_committed",
                "enable.partition.eof": True, "auto.offset.reset": "earliest",
            }
        )  # fmt: skip
        consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
        ended, found = 0, None
        while ended < _PARTITIONS and found is None:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                ended += 1
            elif "eomirror.hops" in dict(message.headers() or ()):
                found = message
        consumer.close()
        if found is None:
            return
        value = self._value(one, "again")
        producer = Producer(properties)
        producer.produce(topic, value, b"k", found.partition(), headers=found.headers())
        assert producer.flush(30) == 0
        one.written[found.partition()][value] = time.time_ns() // 1_000_000


def _expect(way: str, error: MirrorError) -> None:
    """Fails unless a refusal names this way on."""
    if way not in error.fix:
        raise AssertionError(f"no way on: {error}; {error.fix}") from error


def _serves(scene: Disaster, side: str) -> bool:
    """True if all partitions have a leader that answers."""
    try:
        return all(scene.end(side, number) >= 0 for number in range(_PARTITIONS))
    except KafkaException:
        return False
