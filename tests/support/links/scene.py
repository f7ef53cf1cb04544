"""
A link under traffic: a writer on the source, a mirror in between, a reader on the target that forgets nothing.

Everything but the mirror goes past the proxies.  A scene ends with `Scene.judge`: both sides are read again by
clients that share no code with the mirror, and compared byte for byte; what the reader saw meanwhile is compared with
what lies there in the end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson

from eomirror.demo.clients import Offsets, create_topic, read_partition
from eomirror.demo.scenario import judge
from eomirror.demo.traffic import TrafficPlan
from eomirror.demo.watch import TopicWatcher
from eomirror.errors import ClusterError
from eomirror.records.names import LinkNames
from support.judges.translated import check_link
from support.links.mirrors import CommandMirror, RunningMirror, ThreadMirror
from support.links.plane import plane_under_test
from support.traffic.idle_groups import IdleGroups
from support.traffic.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.clusters.rig import Bare, Pair, Rig, Side
    from support.judges.ledger import Entry

__all__ = ["HEAL_SECONDS", "PARTITIONS", "RATE", "START_SECONDS", "Scene"]

PARTITIONS = 3
RATE = 500.0
START_SECONDS = 120.0
# the goal is 10 s on a machine of its own; a loaded one gets more before a test calls it a standstill
HEAL_SECONDS = 45.0
_MARKER_SECONDS = 2.0
# how a broker of Kafka 4.3 says that it leaves out the markers of a transaction
_LEFT_OUT = "Couldn't find leader endpoint for partitions"
# what positions of one partition and one transaction share
_ONE_TRANSACTION = (
    "prev",
    "generation",
    "lane",
    "run",
    "epoch",
    "attempt",
    "txn",
    "producer_id",
    "producer_epoch",
)


class Scene:
    """
    One topic, its copy, and a link between them.

    Args:
        rig: The clusters.
        name: Of the topic and of the link.
        seed: Of the traffic.
        entry: Where figures go.
        folder: For the files of mirrors in processes of their own.
        spark: Context for mirrors in this process.
        partitions: Of the topic.
        rate: Records per second.
        per_transaction: Records in each transaction of the traffic.
        records: At least so many are committed on the source before the traffic ends.
        replicas: Of each partition of the topic.

    Attributes:
        strangers: Records that others than `traffic` have committed on the source; they have no stamp.
    """

    def __init__(
        self,
        rig: Rig | Pair,
        name: str,
        *,
        seed: int,
        entry: Entry,
        folder: Path,
        spark: Any = None,
        partitions: int = PARTITIONS,
        rate: float = RATE,
        per_transaction: int = 50,
        records: int = 0,
        replicas: int = 1,
    ) -> None:
        self.name = name
        self.copy = f"source.{name}"
        self.source, self.target = rig.source, rig.target
        self.names = LinkNames(name)
        self.lane_id = self.names.transactional_id(0)
        self.entry = entry
        self.partitions = partitions
        self.strangers = 0
        self._least = records
        self.offsets = Offsets(self.target.direct)
        self._folder = folder
        self._spark = spark
        self._mirror: RunningMirror | None = None
        self._mirrors: list[RunningMirror] = []
        self._logged = {one: one.log_path.stat().st_size for one in self.target.cluster.brokers}
        create_topic(self.source.direct, name, partitions, replicas=replicas, retention_ms="-1")
        plan = TrafficPlan(seed, partitions, per_transaction=per_transaction)
        self.traffic = Writer(self.source.direct, name, plan, rate=rate)
        self.watcher = TopicWatcher(self.target.direct, self.copy, partitions)
        self._groups = IdleGroups(self.source.direct, name, partitions, seed=seed)

    # -- mirrors -----------------------------------------------------------------------------------

    def settings(
        self,
        *,
        lanes: int = 2,
        link: dict[str, Any] | None = None,
        spark: dict[str, str] | None = None,
        proxied: bool = True,
        **properties: str,
    ) -> dict[str, Any]:
        """A configuration; ``properties`` go to both clusters' clients, with ``_`` for each dot."""
        settings = {key.replace("_", "."): value for key, value in properties.items()}

        def cluster(side: Side | Bare) -> dict[str, str]:
            return {**(side.proxied if proxied else side.direct), **settings}

        return {
            "clusters": {"source": cluster(self.source), "target": cluster(self.target)},
            "links": [
                {
                    "name": self.name,
                    "source": "source",
                    "target": "target",
                    "topics": [self.name],
                    "lanes": lanes,
                    **(link or {}),
                }
            ],
            "defaults": {"plane": plane_under_test()},
            **({"spark": spark} if spark else {}),
        }

    def in_thread(self, **settings: Any) -> ThreadMirror:
        """A mirror in this process, through the proxies."""
        made = ThreadMirror(self.settings(**settings), self._spark)
        self._mirrors.append(made)
        return made

    def command(
        self, *arguments: str, environment: dict[str, str] | None = None, **settings: Any
    ) -> CommandMirror:
        """A mirror in processes of its own."""
        folder = self._folder / f"mirror-{len(self._mirrors)}"
        made = CommandMirror(self.settings(**settings), folder, *arguments, environment=environment)
        self._mirrors.append(made)
        return made

    def start(self, mirror: RunningMirror | None = None, **settings: Any) -> float:
        """
        Start this mirror, one in this process if none is given, which has to live from now on.

        Returns:
            Seconds until the reader was shown something new.
        """
        began = time.monotonic()
        self.watch_over(mirror or self.in_thread(**settings))
        self.mirror.start()
        self.begin()
        self.await_news(START_SECONDS)
        return time.monotonic() - began

    def begin(self) -> None:
        """Write and read from now on."""
        for worker in (self.traffic, self.watcher, self._groups):
            if worker.ident is None:
                worker.start()

    @property
    def mirror(self) -> RunningMirror:
        """The mirror that has to live."""
        assert self._mirror is not None, "not started"
        return self._mirror

    def watch_over(self, mirror: RunningMirror | None) -> None:
        """This mirror has to live from now on; or none has, where the test ends it."""
        self._mirror = mirror

    # -- waiting -----------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], Any], seconds: float, what: str) -> Any:
        """Wait, as long as the mirror lives: the test does not start it again."""
        until = time.monotonic() + seconds
        while not (value := condition()):
            self._check()
            assert time.monotonic() < until, f"{what} within {seconds:g} s\n{self.whereabouts()}"
            time.sleep(0.05)
        return value

    def rest(self, seconds: float) -> None:
        """Let time pass, as long as the mirror lives."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._check()
            time.sleep(0.05)

    def await_news(self, seconds: float = HEAL_SECONDS) -> float:
        """Seconds until the reader is shown something new."""
        began = time.monotonic()
        return self.wait(lambda: self.watcher.first_arrival(began), seconds, "no record arrives") - began

    def heal(self, seconds: float = HEAL_SECONDS) -> float:
        """
        A fault is over: seconds until the reader has seen all that is committed now, entered into the ledger.

        A first arrival would say little: one lane of two may go on, and what was on the way arrives anyway.
        """
        began = time.monotonic()
        expected = self.traffic.ledger.records + self.strangers
        self.wait(
            lambda: self.watcher.records >= expected, seconds, f"not all of {expected} records are there"
        )
        return self.entry.recovered(time.monotonic() - began)

    def write_for(self, records: int, seconds: float = 0.0) -> None:
        """Wait until so many more records are committed on the source; by default as long as that may take."""
        goal = self.traffic.ledger.records + records
        seconds = seconds or 60.0 + 5.0 * records / self.traffic.rate
        self.wait(lambda: self.traffic.ledger.records >= goal, seconds, f"{records} records are not written")

    def catch_up(self, seconds: float = HEAL_SECONDS) -> None:
        """End the traffic when it has written as much as it is to, and wait until the reader has seen all of it."""
        self.write_for(max(0, self._least - self.traffic.ledger.records))
        self.traffic.finish()
        expected = self.traffic.ledger.records + self.strangers
        self.wait(
            lambda: self.watcher.records >= expected, seconds, f"not all of {expected} records are there"
        )

    def has_open_transaction(self) -> bool:
        """Whether data of a transaction that has not ended lies in the copy."""
        return bool(self._open_transactions())

    def _open_transactions(self) -> dict[int, tuple[int, int]]:
        return self.offsets.open_transactions(self.copy, self.partitions)

    def freeze_in_transaction(self, freeze: Callable[[], None], thaw: Callable[[], None]) -> None:
        """Stop something at a moment at which the copy has an open transaction."""
        for _ in range(60):
            self.wait(self.has_open_transaction, 30, "no transaction is seen open")
            freeze()
            # what was on the way to the broker when the processes stopped has arrived after the first pause; a commit
            # among it has all of its markers after the second, also on a busy machine
            time.sleep(0.3)
            found = self._open_transactions()
            if found:
                time.sleep(_MARKER_SECONDS)
                if self._open_transactions() == found:
                    self.entry.injected()
                    return
            thaw()
        raise AssertionError("no transaction could be frozen open in 60 tries")

    def whereabouts(self) -> str:
        """Where the records are, for a test whose wait timed out."""
        try:
            return self._whereabouts()
        except (ClusterError, TimeoutError) as error:
            return f"where it is cannot be told: {error}"

    def _whereabouts(self) -> str:
        ends = {
            (side, committed): Offsets(properties).ends(topic, self.partitions, committed=committed)
            for side, properties, topic in (
                ("source", self.source.direct, self.name),
                ("target", self.target.direct, self.copy),
            )
            for committed in (True, False)
        }
        shown = [len(self.watcher.histories[number].offsets) for number in range(self.partitions)]
        lines = [
            f"{side} {'stable' if stable else 'high'}: {found}" for (side, stable), found in ends.items()
        ]
        return "\n".join([*lines, f"reader was shown {shown} of {self.traffic.ledger.sequences}"])

    # -- the end -----------------------------------------------------------------------------------

    def judge(self, *, stop: bool = True, aborted: bool = True) -> None:
        """Stop the mirror, and compare."""
        if stop and self._mirror is not None:
            self._mirror.stop()
        self.traffic.check()
        self.watcher.check()
        ends = self.offsets.settled_ends(self.copy, self.partitions)
        until = time.monotonic() + 30
        while not self.watcher.has_reached(ends) and time.monotonic() < until:
            time.sleep(0.05)
        comparison, revision = judge(
            self.source.direct, self.target.direct, self.name, {self.copy: self.watcher}, self.partitions
        )[self.copy]
        self.entry.compared(comparison, revision)
        assert comparison.line == "0 missing, 0 duplicate, 0 reordered, 0 altered", comparison.differences
        assert comparison.source == comparison.target == self.traffic.ledger.records + self.strangers > 0
        assert revision.stable, revision
        assert self.watcher.broken == self.strangers
        assert not aborted or self.traffic.ledger.aborted_transactions > 0
        assert not self.has_open_transaction()
        self._check_translations()

    def _check_translations(self) -> None:
        """
        O5: every sync and checkpoint that was committed, whatever was broken meanwhile.

        One that alone has got its marker names records that are aborted and come again (docs/adr/0012, a known limit):
        where the target says that it left out markers of this link, a checkpoint may repeat, and never skip.
        """
        found = check_link(
            self.source.direct, self.target.direct, self.name, self.copy, self.partitions, alias="source",
            may_repeat=self._markers_left_out(),
        )  # fmt: skip
        assert found["syncs"] > 0
        for what, count in found.items():
            self.entry.notes[what] = self.entry.notes.get(what, 0) + count

    def _markers_left_out(self) -> bool:
        """Whether the target has said so of the link's topics since the scene began."""
        said = ""
        for broker, size in self._logged.items():
            with broker.log_path.open("rb") as log:
                log.seek(size)
                said += log.read().decode(errors="replace")
        ours = (self.copy, self.names.positions_topic)
        lines = (line for line in said.splitlines() if _LEFT_OUT in line)
        return any(topic in line for line in lines for topic in ours)

    def positions(self) -> list[dict[str, Any]]:
        """
        Every position that was ever committed, in the order of each partition of the positions topic.

        The topic is compacted, but its first segment stays whole for ten minutes.
        """
        topic = self.names.positions_topic
        found: list[dict[str, Any]] = []
        for number, end in self.offsets.settled_ends(topic, self.offsets.partitions(topic)).items():
            found += (
                {**orjson.loads(record.key or b"{}"), **orjson.loads(record.value)}
                for record in read_partition(self.target.direct, topic, number, end)
                if record.value is not None
            )
        return found

    def check_generations(self) -> list[str]:
        """
        Nothing was committed for a generation after one of a newer generation; the positions chain (EO-2, O4).

        Returns:
            Runs that committed positions, in the order of their generations.
        """
        newest: dict[tuple[str, int], dict[str, Any]] = {}
        runs: dict[int, str] = {}
        # lanes move between partitions of the topic, so order by generation; within one it is the log's order
        positions = [position for position in self.positions() if "topic" in position]
        for position in sorted(positions, key=lambda item: item["generation"]):
            before = newest.get((position["topic"], position["partition"]))
            # written as foreseen, and again as acknowledged: the later record of a transaction counts (0006)
            again = before is not None and all(before[name] == position[name] for name in _ONE_TRANSACTION)
            if before is not None and not again:
                assert position["prev"] == before["offset"], (before, position)
            newest[position["topic"], position["partition"]] = position
            runs.setdefault(position["generation"], position["run"])
            assert runs[position["generation"]] == position["run"], position
        return list(dict.fromkeys(runs.values()))

    def close(self) -> None:
        """End everything."""
        for worker in (self.traffic, self.watcher, self._groups):
            worker.asked.set()
        for mirror in self._mirrors:
            mirror.close()
        for worker in (self.traffic, self.watcher, self._groups):
            if worker.ident is not None:
                worker.join(30)

    def _check(self) -> None:
        self.traffic.check()
        self.watcher.check()
        if self._mirror is not None:
            self._mirror.check()
