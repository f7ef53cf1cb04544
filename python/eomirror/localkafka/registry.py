"""
Clusters that outlive the command that started them: ``eomirror cluster up``, ``status`` and ``down``.

One JSON file for each, in ``clusters/`` of the state folder, beside the cluster's own data::

    clusters/east.json    what runs, written when all brokers serve; stays while there is data
    clusters/east/        data, unless the user chose a folder; removed by ``down``
    clusters/east.lock    held during up and down

A process is taken for a broker of ours only when its command line ends with that broker's own properties file:
a pid that the kernel has given to another process since is never signalled, and a wall clock that was set
changes nothing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson
import platformdirs
import psutil

from eomirror.errors import MirrorError, UsageError
from eomirror.localkafka.broker import end_processes, has_ended
from eomirror.localkafka.cluster import LocalCluster
from eomirror.localkafka.jars import exact_version
from eomirror.localkafka.ports import is_free
from eomirror.localkafka.progress import OnProgress, quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.localkafka.spec import ClusterSpec

__all__ = ["BrokerRecord", "ClusterRecord", "ClusterRegistry", "state_folder"]

State = Literal["running", "degraded", "stopped"]
_FORMAT = 1
# of `st_blocks`: stat(2)
_BLOCK_BYTES = 512


def state_folder() -> Path:
    """Folder of what must not be lost: ``EOMIRROR_STATE``, else the user's state folder."""
    chosen = os.environ.get("EOMIRROR_STATE")
    return Path(chosen).absolute() if chosen else platformdirs.user_state_path("eomirror")


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """
    One broker of a recorded cluster.

    Attributes:
        node_id: From 1.
        pid: Of its process when it was started.
        port: Of its CLIENT listener on 127.0.0.1.
        folder: Of its ``server.properties`` and ``broker.log``.
    """

    node_id: int
    pid: int
    port: int
    folder: str

    def process(self) -> psutil.Process | None:
        """The living process of this broker; None when it is gone, even if its pid is in use again."""
        try:
            process = psutil.Process(self.pid)
            if has_ended(process) or process.cmdline()[-1:] != [str(Path(self.folder, "server.properties"))]:
                return None
        except psutil.Error:
            return None
        return process


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """
    One recorded cluster.

    Attributes:
        name: Its alias.
        kafka_version: The exact release.
        cluster_id: As brokers tell it.
        data_dir: Where everything of it lies.
        ours: Whether ``data_dir`` is in the state folder, so that ``down`` may remove it.
        brokers: In the order of node ids.
    """

    name: str
    kafka_version: str
    cluster_id: str
    data_dir: str
    ours: bool
    brokers: tuple[BrokerRecord, ...]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses for clients."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    @property
    def state(self) -> State:
        """``running`` when all brokers are alive, ``degraded`` when some are, ``stopped`` when none is."""
        alive = sum(broker.process() is not None for broker in self.brokers)
        if alive == len(self.brokers):
            return "running"
        return "degraded" if alive else "stopped"

    def data_bytes(self) -> int:
        """Returns the space that its data takes: index files of brokers are sparse, so less than their lengths."""
        taken = 0
        # A running broker deletes files and folders meanwhile; the walk passes over those.
        for folder, _, files in os.walk(self.data_dir):
            for file in files:
                with suppress(FileNotFoundError):
                    taken += Path(folder, file).lstat().st_blocks * _BLOCK_BYTES
        return taken

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields that ``-o json`` shows."""
        rows = []
        for broker in self.brokers:
            process = broker.process()
            rows.append(
                {
                    "node_id": broker.node_id,
                    "pid": process.pid if process else None,
                    "address": f"127.0.0.1:{broker.port}",
                    "rss_bytes": process.memory_info().rss if process else None,
                    "log": str(Path(broker.folder, "broker.log")),
                }
            )
        return {
            "name": self.name,
            "state": self.state,
            "bootstrap_servers": self.bootstrap_servers,
            "kafka_version": self.kafka_version,
            "cluster_id": self.cluster_id,
            "data_dir": self.data_dir,
            "brokers": rows,
        }


class ClusterRegistry:
    """
    Starts, finds and ends recorded clusters.

    Args:
        folder: State folder, see `state_folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "clusters"

    def names(self) -> list[str]:
        """Names of all recorded clusters."""
        return sorted(path.stem for path in self._folder.glob("*.json"))

    def get(self, name: str) -> ClusterRecord:
        """
        One recorded cluster.

        Raises:
            UsageError: There is none of this name.
            MirrorError: Its record cannot be read.
        """
        found = self._read(name)
        if found is None:
            known = ", ".join(self.names()) or "none"
            raise UsageError(
                f"no local cluster is named {name} (known: {known})",
                fix=f"start it with: eomirror cluster up {name}",
            )
        return found

    def up(self, spec: ClusterSpec, *, on_progress: OnProgress = quiet) -> ClusterRecord:
        """
        Make sure that a cluster runs; it lives on when this program ends.

        One that runs is left as it is.  One that has stopped or lost a broker is started again on its data
        and, where they are free and no other was asked for, on its ports.

        Raises:
            UsageError: It runs, or has data, with another version or number of brokers.
            MirrorError: It could not be started; see `LocalCluster.start`.
        """
        if spec.keeps_metadata_in_zookeeper:
            raise UsageError(
                f"cluster {spec.name}: Kafka {spec.kafka_version} needs a ZooKeeper, which ends with its program",
                fix="use Kafka 3.3 or newer",
            )
        with self._lock(spec.name):
            before = self._read(spec.name)
            if before is not None:
                self._check_same(before, spec)
                if before.state == "running":
                    return before
                end_processes([p for b in before.brokers if (p := b.process())], timeout=20)
                spec = replace(spec, data_dir=spec.data_dir or Path(before.data_dir))
                ports = tuple(broker.port for broker in before.brokers)
                if not spec.port and all(map(is_free, ports)):
                    spec = replace(spec, ports=ports)
            default = self._folder / spec.name
            data_dir = (spec.data_dir or default).absolute()
            cluster = LocalCluster.start(replace(spec, data_dir=data_dir), on_progress=on_progress)
            record = ClusterRecord(
                name=spec.name,
                kafka_version=exact_version(spec.kafka_version),
                cluster_id=cluster.cluster_id,
                data_dir=str(data_dir),
                ours=data_dir == default,
                brokers=tuple(
                    BrokerRecord(broker.node_id, broker.pid, broker.ports.bound["CLIENT"], str(broker.folder))
                    for broker in cluster.brokers
                ),
            )
            self._write(record)
            cluster.detach()
            return record

    def down(self, name: str, *, keep_data: bool) -> ClusterRecord:
        """
        End a cluster, and forget it with its data unless these are to be kept.

        A data folder that the user chose is never removed.

        Raises:
            UsageError: There is none of this name.
        """
        with self._lock(name):
            record = self.get(name)
            # data that goes needs no orderly shutdown
            timeout = 20.0 if keep_data or not record.ours else 0.0
            end_processes([p for b in record.brokers if (p := b.process())], timeout=timeout)
            if not keep_data:
                if record.ours:
                    shutil.rmtree(record.data_dir, ignore_errors=True)
                self._file(name).unlink(missing_ok=True)
            return record

    def _check_same(self, before: ClusterRecord, spec: ClusterSpec) -> None:
        for what, old, new in (
            ("brokers", len(before.brokers), spec.brokers),
            ("Apache Kafka", before.kafka_version, exact_version(spec.kafka_version)),
            ("its data in", before.data_dir, str((spec.data_dir or Path(before.data_dir)).absolute())),
        ):
            if old != new:
                raise UsageError(
                    f"cluster {spec.name} exists with {what} {old}, not {new}",
                    fix=f"end it first: eomirror cluster down {spec.name}; or choose another name",
                )

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _read(self, name: str) -> ClusterRecord | None:
        try:
            fields = orjson.loads(self._file(name).read_bytes())
        except FileNotFoundError:
            return None
        except orjson.JSONDecodeError as error:
            raise self._unreadable(name) from error
        if not isinstance(fields, dict) or fields.pop("format", None) != _FORMAT:
            raise self._unreadable(name)
        brokers = tuple(BrokerRecord(**broker) for broker in fields.pop("brokers"))
        return ClusterRecord(**fields, brokers=brokers)

    def _unreadable(self, name: str) -> MirrorError:
        return MirrorError(
            f"the record of cluster {name} cannot be read: {self._file(name)}",
            fix="end its java processes by hand, then remove this file",
        )

    def _write(self, record: ClusterRecord) -> None:
        """Replace the record in one step, so that a reader never sees half of it."""
        fresh = self._file(record.name).with_suffix(".new")
        fresh.write_bytes(orjson.dumps({"format": _FORMAT, **asdict(record)}, option=orjson.OPT_INDENT_2))
        fresh.replace(self._file(record.name))

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
