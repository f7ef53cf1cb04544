"""
The drill: a disaster and the return from it, on two throw-away clusters or on the user's own, timed and compared.

The story uses the commands' own library (`eomirror.failover`), and the judge plain clients that share no code with it::

    traffic on east -> mirror -> more traffic that is not mirrored -> the brokers of east are killed
    readiness, failover -> west is what was mirrored -> traffic on west -> east is started again
    reverse, mirror back, restore (merge) -> both sides hold the same records -> failback -> traffic on east -> mirror

On the user's own clusters (`OwnClusters`) the topics and links have names of their own, and are deleted at the end.  No
broker is killed there: the source counts as lost because the commands do not ask it.
"""

from __future__ import annotations

import hashlib
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from eomirror import __version__
from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.config import load_config
from eomirror.config.clients import admin_properties
from eomirror.config.masking import masked
from eomirror.demo.clients import Offsets, TrafficProducer, create_topic, delete_topics, read_partition
from eomirror.demo.traffic import Record, Transaction
from eomirror.errors import DifferenceError, UsageError
from eomirror.failover import PromotionOptions, Verb, failback, promote, readiness, restore, reverse
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.mirror import Mirror

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link

__all__ = [
    "Drill",
    "DrillClusters",
    "DrillReport",
    "DrillStage",
    "DrillSwitch",
    "LocalClusters",
    "OwnClusters",
]

_SIDES = ("east", "west")
_PER_TRANSACTION = 50
_START_SECONDS = 120.0
_SCOPE = (
    "readiness and failover of the drill's own topic; no consumer group was moved, so the time that groups take is not "
    "in it"
)


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
class DrillSwitch:
    """
    One move of the applications.

    Attributes:
        name: ``failover`` or ``failback``.
        rpo_records: Records that it left behind.
        rto_seconds: Time from the loss, or from the last write, until applications may write on the other side.
    """

    name: str
    rpo_records: int
    rto_seconds: float


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
        clusters: ``local``, or the link whose clusters they were.
        switches: RPO and RTO of failover and failback.
        started: Time of the first stage, in ISO 8601 and UTC.
        host: Host that ran it.
        version: Version of eomirror.
        configuration: Clusters and links of the drill with all settings, without secrets.
        rto_scope: What the RTO covers, in words.
    """

    passed: bool
    rpo_records: int
    rto_seconds: float
    cuts: tuple[dict[str, Any], ...]
    stages: tuple[DrillStage, ...]
    clusters: str
    switches: tuple[DrillSwitch, ...]
    started: str
    host: str
    version: str
    configuration: Mapping[str, Any]
    rto_scope: str = _SCOPE

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
            f"Started at {self.started} on {self.host}, by eomirror {self.version}. Clusters: {self.clusters}.",
            "",
            f"The RTO covers {self.rto_scope}.",
            "",
            "| switch | RPO, records | RTO, seconds |",
            "|---|---|---|",
            *(f"| {each.name} | {each.rpo_records} | {each.rto_seconds:.1f} |" for each in self.switches),
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
        configuration = [
            "",
            "```yaml",
            yaml.safe_dump(dict(self.configuration), sort_keys=False).rstrip(),
            "```",
        ]
        return "\n".join([*head, *rows, *cuts, *configuration, ""])


class DrillClusters(Protocol):
    """
    Two clusters, called east and west.

    Attributes:
        title: Name in the evidence.
        topic: Topic of the drill on east.
        copy: Its copy on west.
        there: Name of the link.
        back: Name of the link back.
    """

    title: str
    topic: str
    copy: str
    there: str
    back: str

    def start(self, partitions: int) -> str:
        """Makes both usable, and the topic; returns the result in words."""

    def config(self) -> Config:
        """Returns the configuration of both links."""

    def properties(self, side: str) -> Mapping[str, Any]:
        """Returns the properties of plain clients of ``east`` or ``west``."""

    def lose(self) -> str:
        """East is lost."""

    def regain(self) -> str:
        """East is back."""

    def close(self) -> None:
        """Removes all that was made."""


class LocalClusters:
    """Two clusters on this machine, which the drill starts and removes."""

    title = "two local ones, started for the drill"
    topic, copy, there, back = "orders", "east.orders", "drill", "drill-back"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clusters: dict[str, LocalCluster] = {}

    def start(self, partitions: int) -> str:
        """Starts both."""
        with ThreadPoolExecutor(2, thread_name_prefix="drill-cluster") as pool:
            for side, cluster in zip(
                _SIDES, pool.map(lambda name: LocalCluster.start(ClusterSpec(name)), _SIDES), strict=True
            ):
                self._stack.callback(cluster.destroy)
                self._clusters[side] = cluster
        create_topic(self.properties("east"), self.topic, partitions)
        return "east and west"

    def config(self) -> Config:
        """Returns the configuration of both links."""
        clusters = {side: self.properties(side) for side in _SIDES}
        return load_config({"clusters": clusters, **_links(self, *_SIDES)})

    def properties(self, side: str) -> dict[str, str]:
        """Returns the properties of plain clients."""
        return self._clusters[side].client_properties

    def lose(self) -> str:
        """Kills the brokers of east."""
        for broker in self._clusters["east"].brokers:
            broker.kill()
        return "kill -9 of its brokers"

    def regain(self) -> str:
        """Starts the brokers of east."""
        for broker in self._clusters["east"].brokers:
            broker.start(timeout=_START_SECONDS)
        return "its brokers answer"

    def close(self) -> None:
        """Removes both."""
        self._stack.close()


class OwnClusters:
    """
    Source and target of a link of the user, with topics and links of the drill's own names.

    Args:
        config: Configuration of the user.
        link: The link; only its clusters take part.

    Raises:
        UsageError: A link of the configuration would mirror the topic of the drill, or both clusters are one.
    """

    def __init__(self, config: Config, link: Link) -> None:
        if link.source == link.target:
            raise UsageError(
                f"link {link.name} has one cluster as source and target",
                fix="name a link between two clusters",
            )
        run = new_run_id()[:12]
        self.title = f"those of link {link.name}"
        self.there, self.back = f"drill-{run}", f"drill-{run}-back"
        self.topic = f"{self.there}-orders"
        self.copy = f"{link.source}.{self.topic}"
        self._config = config
        self._aliases = {"east": link.source, "west": link.target}
        for other in config.links:
            for alias, name in ((link.source, self.topic), (link.target, self.copy)):
                if other.source == alias and other.mirrors(name):
                    raise UsageError(
                        f"link {other.name} would mirror the topic of the drill, {name}",
                        fix='add "drill-.*" and ".*\\\\.drill-.*" to its `exclude`, and restart its mirror',
                    )

    def start(self, partitions: int) -> str:
        """Makes the topic, with the replication that the brokers have by default."""
        create_topic(self.properties("east"), self.topic, partitions, replicas=-1)
        return f"topic {self.topic}"

    def config(self) -> Config:
        """Returns the configuration of both links."""
        made = load_config(
            {
                "clusters": {alias: {"bootstrap.servers": "127.0.0.1:1"} for alias in self._aliases.values()},
                **_links(self, *self._aliases.values()),
            }
        )
        return replace(made, clusters={alias: self._config.clusters[alias] for alias in made.clusters})

    def properties(self, side: str) -> Mapping[str, Any]:
        """Returns the properties of plain clients."""
        return admin_properties(self._config.clusters[self._aliases[side]], client_id="eomirror.drill")

    def lose(self) -> str:
        """East stays as it is; the commands do not ask it."""
        return "it is not asked from here on"

    def regain(self) -> str:
        """East is asked again."""
        return "it is asked again"

    def close(self) -> None:
        """Deletes the topics of the drill on both sides."""
        for side in _SIDES:
            delete_topics(
                self.properties(side),
                lambda name: (
                    name in {self.topic, self.copy}
                    or name.startswith((f"eomirror.{self.there}.", f"eomirror.{self.back}."))
                ),
            )


def _links(names: DrillClusters, source: str, target: str) -> dict[str, Any]:
    """Returns both links; they write nothing but the copies and the topics `eomirror.LINK.*`."""
    return {
        "links": [
            {"name": names.there, "source": source, "target": target, "topics": [re.escape(names.topic)]},
            {
                "name": names.back,
                "source": target,
                "target": source,
                "topics": [re.escape(names.copy)],
                "naming": {"match": re.escape(source) + r"\.(.*)", "to": "$1"},
            },
        ],
        "defaults": {"lanes": 1, "heartbeats": "off", "groups": [], "offset_syncs": "off"},
    }


class Drill:
    """
    Runs the drill.

    Args:
        records: Records that each side writes in each stage.
        partitions: Partitions of the topic.
        clusters: The clusters; two local ones by default.
        on_event: Receives a short text for each step.

    Attributes:
        stage: Name of the stage that runs, or ran last; empty before the first one.
    """

    def __init__(
        self,
        *,
        clusters: DrillClusters | None = None,
        records: int = 2_000,
        partitions: int = 3,
        on_event: Callable[[str], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._records, self._partitions = records, partitions
        self._on_event = on_event or (lambda _: None)
        self._clock = clock
        self._number = 0
        self.stage = ""
        self._stages: list[DrillStage] = []
        self._clusters: DrillClusters = clusters or LocalClusters()

    def run(self) -> DrillReport:
        """
        Runs all stages; what was made for the drill is removed at the end.

        Raises:
            DifferenceError: A comparison does not hold.
            MirrorError: A stage failed.
        """
        started = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC).isoformat(timespec="seconds")
        with closing(self._clusters):
            self._stage("start", lambda: self._clusters.start(self._partitions))
            configuration = masked(self._clusters.config())
            self._stage("write and mirror", self._mirror_first)
            mirrored = self._count("east")
            self._stage("write what is not mirrored", lambda: self._write("east", self._records // 4))
            orphans = self._count("east") - mirrored
            self._stage("lose the source", self._clusters.lose)
            self._stage("readiness", self._readiness)
            cuts = self._stage("failover", self._failover)
            rto = sum(stage.seconds for stage in self._stages[-2:])
            self._expect("west", mirrored)
            self._stage("write on the target", lambda: self._write("west", self._records))
            self._stage("start the source again", self._clusters.regain)
            self._stage("reverse", self._reverse)
            self._stage("mirror back", lambda: self._mirror(self._clusters.back))
            self._stage("restore", lambda: self._restore(orphans))
            self._stage("mirror back the rest", lambda: self._mirror(self._clusters.back), compare=True)
            self._stage("failback", self._failback)
            returned = self._stages[-1].seconds
            self._stage("write on the source", lambda: self._write("east", self._records))
            self._stage("mirror again", lambda: self._mirror(self._clusters.there), compare=True)
            self.stage = "clean up"
        return DrillReport(
            passed=True,
            rpo_records=orphans,
            rto_seconds=rto,
            cuts=tuple(cuts),
            stages=tuple(self._stages),
            clusters=self._clusters.title,
            switches=(
                DrillSwitch(name="failover", rpo_records=orphans, rto_seconds=rto),
                DrillSwitch(name="failback", rpo_records=0, rto_seconds=returned),
            ),
            started=started,
            host=socket.gethostname(),
            version=__version__,
            configuration=configuration,
        )

    # -- stages ----------------------------------------------------------------------------------

    def _stage(self, name: str, act: Callable[[], Any], *, compare: bool = False) -> Any:
        self.stage = name
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

    def _mirror_first(self) -> str:
        self._write("east", self._records)
        return self._mirror(self._clusters.there)

    def _mirror(self, link: str) -> str:
        with Mirror(self._config(), links=[link]) as mirror:
            report = mirror.run(until="caught-up")
        return f"{report.counters.records} records"

    def _reverse(self) -> str:
        return f"{reverse(self._config(), link=self._clusters.there).orphans} offsets are orphans"

    def _readiness(self) -> str:
        return readiness(self._config(), link=self._clusters.there, source_gone=True).verdict

    def _failover(self) -> list[dict[str, Any]]:
        report = promote(
            self._config(),
            Verb.FAILOVER,
            link=self._clusters.there,
            options=PromotionOptions(source_gone=True),
        )
        if report.error is not None:
            raise report.error
        cuts: list[dict[str, Any]] = report.as_dict()["promotion"]["cuts"]
        return cuts

    def _restore(self, orphans: int) -> str:
        def merge(config: Config) -> None:
            with Mirror(config, although_promoted=True) as mirror:
                mirror.run(until="caught-up")

        found = restore(self._config(), "merge", link=self._clusters.there, merge=merge)
        if found.records != orphans:
            raise DifferenceError(
                f"drill: {orphans} records were left behind, and restore found {found.records}",
                fix="report this, with the output of the drill",
            )
        return f"{found.records} orphans merged"

    def _failback(self) -> str:
        report = failback(self._config(), link=self._clusters.there)
        if report.promotion is not None and report.promotion.error is not None:
            raise report.promotion.error
        return "mirrors again from the cut"

    # -- records ---------------------------------------------------------------------------------

    def _config(self) -> Config:
        return self._clusters.config()

    def _topic(self, side: str) -> str:
        return self._clusters.topic if side == "east" else self._clusters.copy

    def _properties(self, side: str) -> Any:
        return self._clusters.properties(side)

    def _write(self, side: str, count: int) -> str:
        topic = self._topic(side)
        producer = TrafficProducer(
            self._properties(side),
            topic=topic,
            transactional_id=f"{self._clusters.there}-{side}",
            seconds=_START_SECONDS,
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
        topic = self._topic(side)
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
