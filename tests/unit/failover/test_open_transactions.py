"""A transaction that a crash left open is named at once, and waited for as long as a coordinator is going to end it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import ClusterError, NotReadyError
from eomirror.failover import open_transactions as module
from eomirror.failover import orphan_reader
from eomirror.failover.open_transactions import await_ended, open_transactions
from eomirror.failover.orphan_reader import OrphanRange, OrphanReader, Reading
from eomirror.kafka.errors import Action
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable

WHERE, OTHER = SourcePartition("payments", 3), SourcePartition("orders", 0)
CLUSTER: Any = SimpleNamespace(alias="east", bootstrap_servers="e:1")
ENDS = {WHERE: 200, OTHER: 50}


class Cluster:
    """A source whose partition is held back from offset 100, until a moment of the played clock."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, clock: PlayedClock, *, until: float = float("inf"),
        timeout: tuple[int, int] | None = None, name: str | None = "nightly-etl-7", error: Exception | None = None,
    ) -> None:  # fmt: skip
        self.clock, self.until, self.timeout, self.name, self.error = clock, until, timeout, name, error
        self.asked, self.high = 0, max(ENDS.values())
        monkeypatch.setattr(module, "extension_client", lambda *_: self)

    def offsets(self, asked: Any, *, at: str, read_committed: bool) -> dict[Any, int]:
        assert at == "latest"
        if not read_committed:
            return {where: min(self.high, ENDS[where]) for where in asked}
        self.asked += 1
        held = self.clock.now < self.until
        return {where: 100 if held and where == WHERE else ENDS[where] for where in asked}

    def open_transactions(self, asked: list[Any], _: float) -> list[Any]:
        assert asked == [WHERE]
        if self.error is not None:
            raise self.error
        return [("payments", 3, 12, 4, 100, self.name, self.timeout)]


def waited(cluster: Any, clock: PlayedClock, said: list[str] | None = None) -> None:
    await_ended(
        CLUSTER, cluster, ENDS, client_id="c", clock=clock, tell=[].append if said is None else said.append
    )


def test_nothing_open_costs_one_request_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No false alarm, and no wait."""
    clock, said = PlayedClock(1_000), list[str]()
    cluster = Cluster(monkeypatch, clock, until=0)

    waited(cluster, clock, said)

    assert (cluster.asked, said, clock.now) == (1, [], 1_000)


def test_a_log_that_ends_before_the_range_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has lost its end since; no transaction holds it back."""
    clock, said = PlayedClock(1_000), list[str]()
    cluster = Cluster(monkeypatch, clock)
    cluster.high = 100

    waited(cluster, clock, said)

    assert (said, clock.now) == ([], 1_000)


def test_it_is_named_at_once_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactional id, partition, offsets, age, and when its coordinator ends it; then every few seconds."""
    clock, said = PlayedClock(1_000), list[str]()
    cluster = Cluster(monkeypatch, clock, until=1_030, timeout=(887_000, 150_000))
    first: Callable[[], str] = lambda: said[0]  # noqa: E731  read at the end

    waited(cluster, clock, said)

    assert clock.now == 1_030
    assert first() == (
        "waiting: payments-3 is held back from offset 100 to 200 by an open transaction: transactional.id "
        "nightly-etl-7, producer 12 epoch 4, open for 113 s; its coordinator aborts it at 1970-01-01T00:17:17Z, in 37 s"
    )
    assert len(said) == 3


@pytest.mark.parametrize(
    "timeout", [None, (0, 1_000)], ids=["unknown to its coordinator", "not ended in time"]
)
def test_one_that_nothing_ends_is_refused_with_the_command_that_does(
    monkeypatch: pytest.MonkeyPatch, timeout: tuple[int, int] | None
) -> None:
    """After some seconds, in which the markers of one that was just decided are written."""
    clock, said = PlayedClock(1_000), list[str]()
    cluster = Cluster(monkeypatch, clock, timeout=timeout)

    with pytest.raises(NotReadyError) as caught:
        waited(cluster, clock, said)

    assert clock.now - 1_000 < 15
    assert "payments-3 is held back from offset 100" in caught.value.message
    assert "nightly-etl-7" in caught.value.message
    assert "abort --topic payments --partition 3 --start-offset 100" in caught.value.fix
    assert "kafka-transactions.sh --bootstrap-server e:1" in caught.value.fix
    assert said[0].startswith("waiting: payments-3")


@pytest.mark.parametrize(
    ("error", "told"),
    [(ClusterError("unknown request"), "its producer is unknown"), (None, "lacks Describe on it")],
    ids=["older broker", "hidden id"],
)
def test_without_an_answer_of_the_brokers_the_partition_is_named(
    monkeypatch: pytest.MonkeyPatch, error: ClusterError | None, told: str
) -> None:
    """It is waited for, because it may end; nothing tells that it hangs."""
    clock, said = PlayedClock(1_000), list[str]()
    cluster = Cluster(monkeypatch, clock, error=error, name=None)

    with pytest.raises(NotReadyError) as caught:
        waited(cluster, clock, said)

    assert 300 <= clock.now - 1_000 < 330
    assert told in caught.value.message
    assert told in said[0]
    assert "kafka-transactions.sh" in caught.value.fix


def test_the_first_of_several_is_the_one_that_holds_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition may have more of them open."""
    cluster: Any = Cluster(monkeypatch, PlayedClock())
    later = ("payments", 3, 99, 0, 150, "later", None)
    monkeypatch.setattr(
        cluster, "open_transactions", lambda *_: [later, ("payments", 3, 12, 4, 100, "x", None)]
    )

    (one,) = open_transactions(CLUSTER, cluster, ENDS, client_id="c")

    assert (one.transactional_id, one.start, one.end) == ("x", 100, 200)


@pytest.mark.parametrize("wait", [True, False])
def test_a_read_that_comes_to_no_end_looks_for_one(monkeypatch: pytest.MonkeyPatch, *, wait: bool) -> None:
    """Each command that reads orphans: those that act wait, those that only look count up to there."""
    clock = PlayedClock(1_000)
    cluster = Cluster(monkeypatch, clock, until=1_020, timeout=(990_000, 60_000))

    class Reader:
        """Has no record behind offset 100 as long as the transaction is open."""

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def connect(self, _: Any) -> None: ...

        def read(self, ranges: Any, take: Any, **options: Any) -> dict[Any, Any]:
            ((where, (low, high)),) = ranges.items()
            held = clock.now < cluster.until
            for offset in range(low, min(high, 100) if held else high):
                take(where, SimpleNamespace(offset=lambda offset=offset: offset, headers=list))
            if held and high > 100:
                assert options["partial"]
                clock.now += options["stall"]
                return {where: Action.UNREACHABLE}
            return {}

        def close(self) -> None: ...

        offsets = cluster.offsets

    monkeypatch.setattr(orphan_reader, "PartitionReader", Reader)
    monkeypatch.setattr(orphan_reader, "ClusterAdmin", Reader)
    monkeypatch.setattr(orphan_reader, "log_starts", lambda *_: {WHERE: 0})
    said: list[str] = []
    reading = Reading(tell=said.append, wait=wait)

    ranges = [OrphanRange(source=WHERE, start=90, end=200)]
    counts = OrphanReader(CLUSTER, "c", clock).count(ranges, reading)

    assert counts == {WHERE: 110 if wait else 10}
    assert len(reading.open) == (0 if wait else 1)
    assert any("nightly-etl-7" in each for each in said) is wait
