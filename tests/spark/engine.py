"""Drives the engine with fake lanes, a fake owner and a fake discovery; shared by the tests in this folder."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eomirror import __version__
from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link, Secret
from eomirror.driver.driver import DriverOptions, MirrorDriver
from eomirror.lane.spec import AssignedPartition, LaneReport, LaneSpec
from eomirror.link.ownership import moved
from eomirror.records.control import Generation
from eomirror.spark.context import engine_settings
from eomirror.topics.source_topics import SourceContact
from eomirror.types import Assignment, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"

#: Passwords of `with_passwords`, of the source and of the target.
PASSWORDS = ("planted-password-of-east", "planted-password-of-west")


def assigned(topic: str, partition: int) -> AssignedPartition:
    """A partition under prefix naming."""
    return AssignedPartition(
        SourcePartition(topic, partition), f"id-{topic}", f"east.{topic}", f"tid-{topic}"
    )


@dataclass
class FakeLayout:
    """A published layout."""

    generation: int
    lanes: dict[int, tuple[AssignedPartition, ...]]
    source_cluster_id: str = "source-id"
    target_cluster_id: str = "target-id"
    provenance_header: bool = False
    stopped: tuple[Any, ...] = ()
    pause: Any = None


@dataclass
class FakeLink:
    """Discovery and owner of one link: partitions are a list that the test may extend."""

    partitions: list[AssignedPartition] = field(
        default_factory=lambda: [assigned("orders", n) for n in range(4)]
    )
    goal: int = 0
    calls: list[str] = field(default_factory=list)
    check_error: Exception | None = None
    prepare_error: Exception | None = None
    acquire_seconds: float = 0.0
    contact: SourceContact = field(default_factory=SourceContact)
    listing: None = None
    refused: dict[str, Any] = field(default_factory=dict)
    generation: Generation | None = None
    _lanes: int = 0

    def prepare(self, **_: bool) -> tuple[AssignedPartition, ...]:
        """As `Discovery.prepare`."""
        self.calls.append("prepare")
        if self.prepare_error is not None:
            raise self.prepare_error
        return tuple(self.partitions)

    def refresh(self) -> tuple[AssignedPartition, ...]:
        """As `Discovery.refresh`."""
        return tuple(self.partitions)

    published = False

    def left_out(self) -> dict[str, Any]:
        """As `Discovery.left_out`."""
        return {}

    def differs(self) -> bool:
        """As `Discovery.differs`."""
        return False

    def keep(self) -> tuple[list[tuple[str, str]], None, dict[str, bytes]]:
        """As `Discovery.keep`."""
        return [], None, {}

    def goals(self, **_: object) -> dict[SourcePartition, int]:
        """As `Discovery.goals`."""
        return {item.source: self.goal for item in self.partitions}

    def _spread(self, items: Sequence[AssignedPartition]) -> dict[int, tuple[AssignedPartition, ...]]:
        lanes: dict[int, list[AssignedPartition]] = {}
        for item in items:
            lanes.setdefault(item.source.partition % self._lanes, []).append(item)
        return {lane: tuple(found) for lane, found in lanes.items()}

    def acquire(
        self,
        lanes: int,
        partitions: Sequence[AssignedPartition],
        *,
        stopped: Callable[[], bool],  # noqa: ARG002  sleeps instead
    ) -> FakeLayout:
        """As `LinkOwner.acquire`."""
        self.calls.append("acquire")
        time.sleep(self.acquire_seconds)
        self._lanes = lanes
        return FakeLayout(7, self._spread(partitions))

    def extend(
        self, partitions: Sequence[AssignedPartition], _needs: Mapping[SourcePartition, float], **_: Any
    ) -> dict[int, tuple[AssignedPartition, ...]]:
        """As `LinkOwner.extend`."""
        self.calls.append("extend")
        return self._spread(partitions)

    def move(
        self, lanes: Mapping[SourcePartition, int], givers: Collection[int], *, fence: bool
    ) -> Generation:
        """As `LinkOwner.move`."""
        assert fence, "lanes without a slot do not go on"
        self.calls.append(f"move {len(lanes)} from {sorted(givers)} to {sorted(set(lanes.values()))}")
        self.generation = moved(
            self.generation
            or Generation(
                generation=7,
                revision=0,
                run="r",
                highest_lane=self._lanes - 1,
                assignment=Assignment(
                    self._lanes,
                    {item.source: item.source.partition % self._lanes for item in self.partitions},
                ),
                timestamp=0,
            ),
            lanes,
            givers=givers,
            now_ms=0,
        )
        return self.generation

    def check(self) -> None:
        """As `LinkOwner.check`."""
        self.calls.append("check")
        if self.check_error is not None:
            raise self.check_error

    def renew(self, _: Any = (), **__: Any) -> None:
        """As `LinkOwner.renew`."""
        self.calls.append("renew")

    def release(self, _: Any = (), **__: Any) -> bool:
        """As `LinkOwner.release`."""
        self.calls.append("release")
        return True

    def close(self) -> None:
        """As both."""
        self.calls.append("close")


def with_passwords() -> dict[str, Cluster]:
    """Both clusters, with `PASSWORDS`."""
    return {
        name: Cluster(name, {"sasl.password": Secret(password)})
        for name, password in zip(("east", "west"), PASSWORDS, strict=True)
    }


def link(name: str = "east->west", *, lanes: int = 2, epoch: float = 60.0) -> Link:
    """A link for a fake."""
    return replace(Link(name=name, source="east", target="west", topics=(".*",)), lanes=lanes, epoch=epoch)


def worker_settings(folder: Path) -> dict[str, str]:
    """Settings under which workers find the fake lanes, and the lanes their folder."""
    return {
        "spark.executorEnv.PYTHONPATH": f"{PYTHON}:{HERE}",
        "spark.executorEnv.FAKE_LANES_FOLDER": str(folder),
    }


def settings(folder: Path, **spark: str) -> dict[str, str]:
    """Settings of an own context for fake lanes."""
    given = {**worker_settings(folder), **{name.replace("__", "."): value for name, value in spark.items()}}
    return engine_settings(master=None, configured={}, given=given, version=__version__)


class Run:
    """A driver that runs in a thread; leaving the block stops it."""

    def __init__(
        self,
        lane: Any,
        fakes: Mapping[str, FakeLink] | None = None,
        *,
        links: Sequence[Link] = (),
        until: str | float | None = None,
        spark: Any = None,
        spark_settings: Mapping[str, str] | None = None,
        clusters: Mapping[str, Cluster] | None = None,
        local_lanes: bool = False,
    ) -> None:
        self.links = list(links) or [link()]
        self.fakes = dict(fakes or {one.name: FakeLink() for one in self.links})
        self.reports: list[tuple[LaneSpec, LaneReport]] = []
        self.events: list[tuple[float, str]] = []
        self.snapshots: list[Any] = []
        self.result: Any = None
        self.error: BaseException | None = None
        cluster = {**{name: Cluster(name, {}) for name in ("east", "west")}, **(clusters or {})}
        self.driver = MirrorDriver(
            [(one, cluster[one.source], cluster[one.target]) for one in self.links],
            DriverOptions(
                version=__version__,
                settings=spark_settings or {},
                spark=spark,
                on_event=lambda text: self.events.append((time.monotonic(), text)),
                on_report=lambda spec, report: self.reports.append((spec, report)),
                local_lanes=local_lanes,
                lane=lane,
                discovery=lambda one, *_: self.fakes[one.name],
                owner=lambda one, *_, **__: self.fakes[one.name],
                heart=lambda *_: None,
                follower=lambda *_: None,
                clock=SYSTEM_CLOCK,
            ),
        )
        self._until = until
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.result = self.driver.run(self._until, self.snapshots.append)
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.request_stop()
        self._thread.join(20)

    def wait(self, seconds: float = 60) -> None:
        """Wait for the end of the run."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the run did not end"

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        """Wait until the condition holds; gives its value."""
        return wait_for(lambda: condition() or (self.error and self._give_up()), seconds)

    def _give_up(self) -> None:
        raise AssertionError(f"the run failed: {self.error!r}")


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until the condition holds; gives its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"did not happen within {seconds} s")


def notes(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """What the lanes noted, in order of time."""
    lines = [
        json.loads(line) for path in sorted(folder.glob("lane-*")) for line in path.read_text().splitlines()
    ]
    return sorted((line for line in lines if not kinds or line["kind"] in kinds), key=lambda line: line["at"])


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


def measured(what: str, **numbers: float) -> None:
    """Show a measurement; `pytest -s` prints it."""
    sys.stdout.write(f"\n{what}: {', '.join(f'{name} {number:.3g}' for name, number in numbers.items())}\n")
