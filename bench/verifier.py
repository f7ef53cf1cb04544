"""
What `eomirror verify` costs: records compared per CPU-second, and memory, of the whole command.

A topic is mirrored by this mirror and compared by the command as its users call it; the count of equal records, and
a foreign record that is planted afterwards, show that the comparison took place.  A call for no topic at all tells
what starting costs: Python, the clients, and what is asked before anything is read.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from bench.loading import load
from bench.measure import parse_pss
from bench.peers.eomirror import Mirror
from bench.topics import Topics
from bench.verify import WrongCopyError
from bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.peers.process import Site

__all__ = ["VerifyCost", "measure_verify", "verify_markdown"]

_WORKLOAD = WORKLOADS["100b"]
_SAMPLE_SECONDS = 0.02
_MIRROR_SECONDS = 1800
_DIFFERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyCost:
    """
    One call, over a topic of 100-byte values.

    Attributes:
        plane: Who read: ``native`` or ``client``.
        records: Records compared, each on both sides.
        seconds: Wall time of the command.
        cpu_seconds: User and system time of the command, with its start.
        start_cpu_seconds: The same of a call that compares nothing.
        records_per_cpu_second: Of the whole command.
        records_per_cpu_second_running: Without the start.
        peak_pss_mebibytes: Of the command.
        start_pss_mebibytes: Peak of the call that compares nothing.
    """

    plane: str
    records: int
    seconds: float
    cpu_seconds: float
    start_cpu_seconds: float
    records_per_cpu_second: int
    records_per_cpu_second_running: int
    peak_pss_mebibytes: int
    start_pss_mebibytes: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Call:
    code: int
    told: dict[str, Any]
    seconds: float
    cpu: float
    pss: int


def measure_verify(site: Site, *, records: int) -> list[VerifyCost]:
    """
    Load, mirror and compare.

    Raises:
        WrongCopyError: The command did not say what is true.
        RuntimeError: The mirror or the command failed.
    """
    source, target = Topics(site.source), Topics(site.target)
    source.delete(_WORKLOAD.topic)
    source.create(_WORKLOAD.topic, _WORKLOAD.partitions)
    produced = load(site.source, _WORKLOAD, records)
    peer = Mirror()
    config = peer.configure(site, _WORKLOAD)
    mirror = [sys.executable, "-m", "eomirror", "run", str(config), "--until", "caught-up"]
    done = subprocess.run(mirror, capture_output=True, text=True, timeout=_MIRROR_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"the mirror ended with {done.returncode}: {done.stderr[-2000:]}")
    costs = []
    for plane, option in (("native", "auto"), ("client", "client")):
        idle = _call(config, "--plane", option, "--topic", "no-such-topic")
        call = _call(config, "--plane", option)
        _check(call, code=0, matched=produced, foreign=0)
        costs.append(
            VerifyCost(
                plane=plane,
                records=produced,
                seconds=round(call.seconds, 2),
                cpu_seconds=round(call.cpu, 2),
                start_cpu_seconds=round(idle.cpu, 2),
                records_per_cpu_second=int(produced / call.cpu),
                records_per_cpu_second_running=int(produced / max(call.cpu - idle.cpu, 0.01)),
                peak_pss_mebibytes=call.pss >> 20,
                start_pss_mebibytes=idle.pss >> 20,
            )
        )
    producer = Producer({"bootstrap.servers": site.target})
    producer.produce(peer.target_topic(_WORKLOAD), b"planted", b"planted", 0)
    producer.flush(30)
    _check(_call(config), code=_DIFFERS, matched=produced, foreign=1)
    target.delete_all(but=())
    source.delete_all(but=())
    return costs


def verify_markdown(costs: Sequence[VerifyCost]) -> str:
    """A table for a report."""
    lines = [
        "## eomirror verify, values of 100 B",
        "",
        "| plane | records | s | CPU s | of it start | records per CPU-s | without start | peak PSS MiB | at start |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {cost.plane} | {cost.records:,} | {cost.seconds:.1f} | {cost.cpu_seconds:.2f} "
        f"| {cost.start_cpu_seconds:.2f} | {cost.records_per_cpu_second:,} "
        f"| {cost.records_per_cpu_second_running:,} | {cost.peak_pss_mebibytes} | {cost.start_pss_mebibytes} |"
        for cost in costs
    ]
    lines += ["", "Every record was found equal, and a foreign record that was planted afterwards was found."]
    return "\n".join(lines)


def _call(config: Path, *arguments: str) -> _Call:
    command = [sys.executable, "-m", "eomirror", "verify", str(config), "-o", "json", *arguments]
    before = os.times()
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = _Peak(process.pid)
    told, errors = process.communicate()
    peak.stop()
    after = os.times()
    if not told:
        raise RuntimeError(f"the command ended with {process.returncode}: {errors[-2000:]}")
    return _Call(
        code=process.returncode,
        told=json.loads(told)["links"][0],
        seconds=time.monotonic() - begin,
        # it has been waited for, and nothing else has
        cpu=after.children_user - before.children_user + after.children_system - before.children_system,
        pss=peak.bytes,
    )


def _check(call: _Call, *, code: int, matched: int, foreign: int) -> None:
    found = sum(each["matched"] for each in call.told["partitions"])
    planted = sum(each["differences"]["foreign"] for each in call.told["partitions"])
    if (call.code, found, planted) != (code, matched, foreign):
        raise WrongCopyError(
            f"verify ended with {call.code} and found {found} equal, {planted} foreign; expected were {code}, "
            f"{matched} and {foreign}"
        )


class _Peak:
    """Largest PSS of a process, sampled from a thread."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._path = Path(f"/proc/{pid}/smaps_rollup")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="peak", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sample no more."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(OSError):
                self.bytes = max(self.bytes, parse_pss(self._path.read_text("ascii")))
