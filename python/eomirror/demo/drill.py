"""
The drill: a disaster and the return from it, on two throw-away clusters, each stage timed and compared.

The story uses the commands' own library (`eomirror.failover`), and the judge plain clients that share no code with it::

    traffic on east -> mirror -> more traffic that is not mirrored -> the brokers of east are killed
    readiness, failover -> west is what was mirrored -> traffic on west -> east is started again
    reverse, mirror back, restore (merge) -> both sides hold the same records -> failback -> traffic on east -> mirror
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config import load_config
from eomirror.demo.clients import Offsets, TrafficProducer, create_topic, read_partition
from eomirror.demo.traffic import Record, Transaction
from eomirror.errors import DifferenceError
from eomirror.failover import PromotionOptions, Verb, failback, promote, readiness, restore, reverse
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config

__all__ = ["Drill", "DrillReport", "DrillStage"]

_TOPIC, _COPY = "orders", "east.orders"
_THERE, _BACK = "drill", "drill-back"
_PER_TRANSACTION = 50
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillStage:
    """
    One stage.

    Attributes:
        name: Name of the stage.
        seconds: Duration.
        result: Result in words.
        hashes: Cluster -> SHA-256 of its committed records, sorted by partition and content; empty if not compared.
        records: Cluster -> committed records.
    """

    name: str
    seconds: float
    result: str
    hashes: Mapping[str, str] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    """
    Evidence of a drill.

    Attributes:
        passed: True if every comparison held.
        rpo_records: Records that the failover left behind, all of which were merged later.
        rto_seconds: Time from the loss of the source to the promotion: readiness and failover.
        cuts: The cut of each partition.
        stages: All stages.
    """

    passed: bool
    rpo_records: int
    rto_seconds: float
    cuts: tuple[dict[str, Any], ...]
    stages: tuple[DrillStage, ...]

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return asdict(self)

    def markdown(self) -> str:
        """Returns the evidence as Markdown."""
        result = (
            f"Result: {'passed' if self.passed else 'FAILED'}. Left behind by the failover (RPO): {self.rpo_records} "
            f"records, all merged later. From the loss to the promotion (RTO): {self.rto_seconds:.1f} s."
        )
        head = [
            "# Failover drill",
            "",
            result,
            "",
            "| stage | seconds | result | records | SHA-256 |",
            "|---|---|---|---|---|",
        ]
        rows = [
            f"| {stage.name} | {stage.seconds:.1f} | {stage.result} | "
            f"{', '.join(f'{side} {count}' for side, count in stage.records.items())} | "
            f"{', '.join(f'{side} {value[:16]}' for side, value in stage.hashes.items())} |"
            for stage in self.stages
        ]
        cuts = [
            "",
            "| topic | partition | mirrored to | copy starts at |",
            "|---|---|---|---|",
            *(
                f"| {cut['topic']} | {cut['partition']} | {cut['position']} | {cut['target_end']} |"
                for cut in self.cuts
            ),
        ]
        return "\n".join([*head, *rows, *cuts, ""])


class Drill:
    """
    Runs the drill.

    Args:
        records: Records that each side writes in each stage.
        partitions: Partitions of the topic.
        on_event: Receives a short text for each step.
    """

    def __init__(
        self,
        *,
        records: int = 2_000,
        partitions: int = 3,
        on_event: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._records, self._partitions = records, partitions
        self._on_event = on_event or (lambda _: None)
        self._clock = clock
        self._number = 0
        self._stages: list[DrillStage] = []
        self._clusters: dict[str, LocalCluster] = {}

    def run(self) -> DrillReport:
        """
        Runs all stages; the clusters are removed at the end.

        Raises:
            DifferenceError: A comparison does not hold.
            MirrorError: A stage failed.
        """
        with ExitStack() as stack:
            self._stage("start two clusters", lambda: self._start(stack))
            self._stage("write and mirror", self._mirror_first)
            mirrored = self._count("east")
            self._stage("write what is not mirrored", lambda: self._write("east", self._records // 4))
            orphans = self._count("east") - mirrored
            self._stage("lose the source", lambda: self._end_brokers("east"))
            before = sum(stage.seconds for stage in self._stages)
            self._stage("readiness", self._readiness)
            cuts = self._stage("failover", self._failover)
            rto = sum(stage.seconds for stage in self._stages) - before
            self._expect("west", mirrored)
            self._stage("write on the target", lambda: self._write("west", self._records))
            self._stage("start the source again", lambda: self._start_brokers("east"))
            self._stage(
                "reverse", lambda: f"{reverse(self._config(), link=_THERE).orphans} offsets are orphans"
            )
            self._stage("mirror back", lambda: self._mirror(_BACK))
            self._stage("restore", lambda: self._restore(orphans))
            self._stage("mirror back the rest", lambda: self._mirror(_BACK), compare=True)
            self._stage("failback", self._failback)
            self._stage("write on the source", lambda: self._write("east", self._records))
            self._stage("mirror again", lambda: self._mirror(_THERE), compare=True)
        return DrillReport(
            passed=True, rpo_records=orphans, rto_seconds=rto, cuts=tuple(cuts), stages=tuple(self._stages)
        )

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, name: str, act: Callable[[], Any], *, compare: bool = False) -> Any:
        self._on_event(name)
        began = self._clock.monotonic()
        found = act()
        seconds = self._clock.monotonic() - began
        hashes: dict[str, str] = {}
        counts: dict[str, int] = {}
        if compare:
            for side in ("east", "west"):
                counts[side], hashes[side] = self._fingerprint(side)
            if hashes["east"] != hashes["west"]:
                raise DifferenceError(
                    f"drill: after {name!r} the sides differ: east has {counts['east']} records, west {counts['west']}",
                    fix="report this, with the output of the drill",
                )
        result = found if isinstance(found, str) else "done"
        self._stages.append(
            DrillStage(name=name, seconds=seconds, result=result, hashes=hashes, records=counts)
        )
        return found

    def _start(self, stack: ExitStack) -> str:
        with ThreadPoolExecutor(2, thread_name_prefix="drill-cluster") as pool:
            for cluster in pool.map(lambda name: LocalCluster.start(ClusterSpec(name)), ("east", "west")):
                stack.callback(cluster.destroy)
                self._clusters["east" if not self._clusters else "west"] = cluster
        create_topic(self._properties("east"), _TOPIC, self._partitions)
        return "east and west"

    def _mirror_first(self) -> str:
        self._write("east", self._records)
        return self._mirror(_THERE)

    def _mirror(self, link: str) -> str:
        with Mirror(self._config(), links=[link]) as mirror:
            report = mirror.run(until="caught-up")
        return f"{report.counters.records} records"

    def _readiness(self) -> str:
        return readiness(self._config(), link=_THERE, source_gone=True).verdict

    def _failover(self) -> list[dict[str, Any]]:
        report = promote(
            self._config(), Verb.FAILOVER, link=_THERE, options=PromotionOptions(source_gone=True)
        )
        if report.error is not None:
            raise report.error
        cuts: list[dict[str, Any]] = report.as_dict()["promotion"]["cuts"]
        return cuts

    def _restore(self, orphans: int) -> str:
        def merge(config: Config) -> None:
            with Mirror(config, although_promoted=True) as mirror:
                mirror.run(until="caught-up")

        found = restore(self._config(), "merge", link=_THERE, merge=merge)
        if found.records != orphans:
            raise DifferenceError(
                f"drill: {orphans} records were left behind, and restore found {found.records}",
                fix="report this, with the output of the drill",
            )
        return f"{found.records} orphans merged"

    def _failback(self) -> str:
        report = failback(self._config(), link=_THERE)
        if report.promotion is not None and report.promotion.error is not None:
            raise report.promotion.error
        return "mirrors again from the cut"

    # -- clusters and records --------------------------------------------------------------------

    def _config(self) -> Config:
        return load_config(
            {
                "clusters": {side: self._properties(side) for side in ("east", "west")},
                "links": [
                    {"name": _THERE, "source": "east", "target": "west", "topics": [_TOPIC]},
                    {
                        "name": _BACK,
                        "source": "west",
                        "target": "east",
                        "topics": [_COPY.replace(".", "\\.")],
                        "naming": {"match": r"east\.(.*)", "to": "$1"},
                    },
                ],
                "defaults": {"lanes": 1, "heartbeats": "off"},
            }
        )

    def _properties(self, side: str) -> dict[str, str]:
        return self._clusters[side].client_properties

    def _end_brokers(self, side: str) -> str:
        for broker in self._clusters[side].brokers:
            broker.kill()
        return "kill -9 of its brokers"

    def _start_brokers(self, side: str) -> str:
        for broker in self._clusters[side].brokers:
            broker.start(timeout=_START_SECONDS)
        return "its brokers answer"

    def _write(self, side: str, count: int) -> str:
        topic = _TOPIC if side == "east" else _COPY
        producer = TrafficProducer(
            self._properties(side), topic=topic, transactional_id=f"drill-{side}", seconds=_START_SECONDS
        )
        for first in range(0, count, _PER_TRANSACTION):
            records = []
            for _ in range(min(_PER_TRANSACTION, count - first)):
                self._number += 1
                value = f"{side}-{self._number}".encode()
                records.append(
                    Record(
                        self._number % self._partitions,
                        b"k%d" % (self._number % 97),
                        value,
                        (),
                        self._clock.wall_ms(),
                    )
                )
            producer.write(Transaction(tuple(records), commit=True))
        return f"{count} records on {side}"

    def _expect(self, side: str, count: int) -> None:
        found = self._count(side)
        if found != count:
            raise DifferenceError(
                f"drill: {side} has {found} records, and {count} were mirrored",
                fix="report this, with the output of the drill",
            )

    def _count(self, side: str) -> int:
        return self._fingerprint(side)[0]

    def _fingerprint(self, side: str) -> tuple[int, str]:
        """Returns count and hash of the committed records, whatever their order within a partition."""
        topic = _TOPIC if side == "east" else _COPY
        properties = self._properties(side)
        ends = Offsets(properties).settled_ends(topic, self._partitions)
        found = sorted(
            (partition, record.key or b"", record.value or b"", record.timestamp)
            for partition, end in ends.items()
            for record in read_partition(properties, topic, partition, end)
        )
        digest = hashlib.sha256()
        for each in found:
            digest.update(repr(each).encode())
        return len(found), digest.hexdigest()
