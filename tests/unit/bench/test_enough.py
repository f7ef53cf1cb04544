"""How much a bench loads when a mirror ran out of records, and what it does then."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

import bench.enough as enough_module
import pytest
from bench.enough import Supply, missing_records, room_for
from bench.peers.process import Site
from bench.throughput import Figures, RanOutError, Timing
from bench.verify import Ledger, WrongCopyError
from bench.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any

WORKLOAD = WORKLOADS["1kb"]
TIMING = Timing(warm_up=8.0, seconds=15.0, spare=3.0)
SHORT = Figures(
    peer="eomirror",
    title="eomirror, native plane",
    seconds=6.0,
    complete=True,
    verified=9_000_000,
    records=3_000_000,
    records_per_second=500_000.0,
    megabytes_per_second=500.0,
    cpu_cores=0.3,
    cpu_microseconds_per_record=0.6,
)
LONG = replace(SHORT, seconds=15.1, complete=False)
GIB = 1 << 30


def test_a_mirror_that_ran_out_gets_what_its_own_rate_needs() -> None:
    """For warm-up, steady state and spare, and some more: it is faster with warm brokers."""
    missing = missing_records(9_000_000, SHORT, TIMING)
    assert missing == pytest.approx(500_000 * 26 * 1.15 - 9_000_000, abs=1)


def test_a_steady_state_of_full_length_lacks_nothing() -> None:
    """Also one at whose end the copy was complete."""
    assert missing_records(9_000_000, LONG, TIMING) == 0
    assert missing_records(9_000_000, replace(LONG, complete=True), TIMING) == 0


def test_a_run_of_the_whole_copy_lacks_nothing() -> None:
    """It asks whether copies are right, and copies everything on purpose."""
    assert missing_records(1_000, SHORT, replace(TIMING, whole=True)) == 0


def test_a_mirror_that_stopped_short_of_its_end_lacks_nothing() -> None:
    """A short state of a mirror that stands still says something about the mirror; more records hide it."""
    assert missing_records(9_000_000, replace(SHORT, complete=False), TIMING) == 0


def test_a_mirror_without_a_steady_state_gets_as_much_again() -> None:
    """Its rate is not known."""
    assert missing_records(9_000_000, None, TIMING) == 9_000_000


def test_a_mirror_that_copied_everything_lacks_a_quarter_at_least() -> None:
    """A rate of the last seconds may be lower than that of the time before."""
    assert missing_records(40_000_000, SHORT, TIMING) == 10_000_000


def test_a_disk_has_to_take_source_and_copy() -> None:
    """What is loaded is there twice, what is there already once more."""
    assert room_for(1_000_000, 5_000_000, 1000, 100 * GIB) == 5_000_000
    some = room_for(1_000_000, 5_000_000, 1000, 10 * GIB)
    assert 0 < some < 5_000_000
    assert 1_000_000 * 1000 + some * 2 * 1000 <= 10 * GIB
    assert room_for(20_000_000, 5_000_000, 1000, 10 * GIB) == 0


class Measurements:
    """Stands for clusters: what each attempt finds, and how much is loaded in between."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: Figures | Exception) -> None:
        self.found: Iterator[Figures | Exception] = iter(found)
        self.held = 600
        self.firsts: list[int] = []
        self.cleaned = 0
        for name in ("measure", "load", "read_ledger"):
            stand_in: Callable[..., Any] = getattr(self, f"_{name}")
            monkeypatch.setattr(enough_module, name, stand_in)

    def supply(self, folder: Path) -> Supply:
        """Of what is on the source."""
        return Supply(Site("source", "target", folder), WORKLOAD, TIMING, self._read_ledger())

    def again(self, why: str) -> None:
        """Count that the clusters were made clean."""
        assert "more" in why
        self.cleaned += 1

    def _measure(self, *_: object) -> Figures:
        found = next(self.found)
        if isinstance(found, Exception):
            raise found
        return found

    def _load(self, _servers: str, _workload: object, more: int, *, first: int) -> int:
        self.firsts.append(first)
        loaded = more // WORKLOAD.partitions * WORKLOAD.partitions
        self.held += loaded
        return loaded

    def _read_ledger(self, *_: object) -> Ledger:
        each = self.held // WORKLOAD.partitions
        hashes = {number: array("Q", bytes(8 * each)) for number in range(WORKLOAD.partitions)}
        return Ledger(hashes=hashes)


SLOW = replace(SHORT, records_per_second=100.0)


def test_a_mirror_is_measured_anew_with_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The later figure counts, and records go on where the source ended."""
    bench = Measurements(monkeypatch, SLOW, LONG)
    supply = bench.supply(tmp_path)
    assert supply.measure(None, bench.again) is LONG  # type: ignore[arg-type]  who it is does not matter
    assert (bench.firsts, bench.cleaned) == ([100], 1)
    assert supply.source is not None
    assert supply.source.records == bench.held > 100 * 26


def test_the_third_attempt_is_the_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A figure of a short state is better than none, and says that it is short."""
    bench = Measurements(monkeypatch, RanOutError(), SLOW, SHORT)
    assert bench.supply(tmp_path).measure(None, bench.again) is SHORT  # type: ignore[arg-type]  as above
    assert bench.cleaned == 2


def test_without_room_there_is_one_attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And a mirror without a steady state has no figure."""
    bench = Measurements(monkeypatch, SLOW, RanOutError("no state"))
    monkeypatch.setattr(enough_module, "room_for", lambda *_: 0)
    supply = bench.supply(tmp_path)
    assert supply.measure(None, bench.again) is SLOW  # type: ignore[arg-type]  as above
    with pytest.raises(RanOutError, match="no state"):
        supply.measure(None, bench.again)  # type: ignore[arg-type]  as above
    assert bench.cleaned == 0


def test_a_wrong_copy_is_told_and_the_source_is_what_it_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mirrors that come later are compared with all of it."""
    bench = Measurements(monkeypatch, SLOW, WrongCopyError("a duplicate"))
    supply = bench.supply(tmp_path)
    with pytest.raises(WrongCopyError, match="a duplicate"):
        supply.measure(None, bench.again)  # type: ignore[arg-type]  as above
    assert supply.source is not None
    assert supply.source.records == bench.held > 600
