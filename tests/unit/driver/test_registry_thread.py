"""The thread that mirrors registries: what it records, what a run waits for, and what stops it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import load_config
from eomirror.driver.background import Background
from eomirror.driver.registry_thread import RegistryThread
from eomirror.records.control_record import ControlEntry
from eomirror.records.reports import decode_reports
from eomirror.registry.mirror import SchemasSnapshot
from support.clusters.schema_registry import SchemaRegistry
from support.fakes.clocks import PlayedClock
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Link:
    """A link that nothing happens to."""

    name = "east->west"
    patient = True

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        raise AssertionError(f"{error} {everything}")


@pytest.fixture
def registries() -> Iterator[tuple[SchemaRegistry, SchemaRegistry]]:
    made = SchemaRegistry(), SchemaRegistry()
    yield made
    for one in made:
        one.close()


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Ends what a test began."""
    made = threading.Event()
    yield made
    made.set()


def thread(over: threading.Event, clock: PlayedClock, **schemas: Any) -> RegistryThread:
    """It, not started."""
    loaded = load_config(
        {
            "clusters": {alias: {"bootstrap.servers": "127.0.0.1:1"} for alias in ("east", "west")},
            "links": [{"source": "east", "target": "west", "topics": ["a"], **schemas}],
        }
    )
    spec: Any = type("Spec", (), {"link": loaded.links[0], "run": "r"})
    return RegistryThread(Background(Link(), over), spec, over=over, clock=clock)  # type: ignore[arg-type]


def test_a_run_waits_for_a_round_and_records_its_state(
    registries: tuple[SchemaRegistry, SchemaRegistry], over: threading.Event
) -> None:
    """One record at each change, one event at each change of the state, and the age once a minute."""
    source, target = registries
    source.add("a", '"int"')
    clock = PlayedClock(1000.0)
    made = thread(over, clock, schemas={"source": source.url, "target": target.url})
    written: list[Any] = []

    def commit(records: Sequence[Any]) -> None:
        written.extend(records)

    made.write(commit)
    assert written == []
    assert not made.settled()
    made.start()
    wait_for(made.settled)
    assert target.shown() == source.shown()
    status = made.status()
    assert status is not None
    assert (status.state, status.subjects, status.age_seconds) == ("mirrored", 1, 0.0)

    def fails(_: Sequence[Any]) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        made.write(fails)
    for _ in range(3):
        made.write(commit)
    assert [ControlEntry.of(one.key, one.value).kind for one in written] == ["schemas", "event"]
    recorded = decode_reports([(written[0].key, written[0].value)]).schemas
    assert recorded is not None
    assert (recorded.state, recorded.run, recorded.equal_at) == ("mirrored", "r", 1_000_000)
    clock.sleep(61)
    made.write(commit)
    assert [ControlEntry.of(one.key, one.value).kind for one in written[2:]] == ["schemas"]


def test_a_question_during_a_round_is_followed_by_another_round_at_once(
    registries: tuple[SchemaRegistry, SchemaRegistry], over: threading.Event
) -> None:
    """The round that runs may have read already; the clock stands, so the interval never passes."""
    source, target = registries
    source.add("a", '"int"')
    began, goes_on = threading.Event(), threading.Event()

    def slow(_: object) -> bool:
        began.set()
        return goes_on.wait(30)

    source.allowed = slow
    made = thread(over, PlayedClock(), schemas={"source": source.url, "target": target.url})
    made.start()
    assert began.wait(30)
    assert not made.settled()
    goes_on.set()
    wait_for(made.settled)


@pytest.mark.parametrize(("state", "pause"), [("mirrored", 400.0), ("away", 10.0)])
def test_a_slow_round_is_followed_by_a_long_pause_unless_a_registry_is_away(
    over: threading.Event, monkeypatch: pytest.MonkeyPatch, state: Any, pause: float
) -> None:
    """A large registry is asked for a fifth of the time; one that comes back is not left for minutes."""
    clock = PlayedClock()
    pauses: list[tuple[float, bool]] = []

    class Slow:
        def round(self) -> SchemasSnapshot:
            clock.sleep(100)
            return SchemasSnapshot(state=state)

        def close(self) -> None:
            pass

    def waits(_: RegistryThread, seconds: float, *, asked: bool) -> None:
        pauses.append((seconds, asked))
        over.set()

    monkeypatch.setattr("eomirror.driver.registry_thread.registry_mirror", lambda *_, **__: Slow())
    monkeypatch.setattr(RegistryThread, "_wait", waits)
    ends = {"source": "http://127.0.0.1:1", "target": "http://127.0.0.1:2"}
    thread(over, clock, schemas=ends).start()
    wait_for(lambda: bool(pauses))
    assert pauses == [(pause, False)]


def test_a_bug_is_a_state_without_its_text(over: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a foreign error may contain a header, and so a login."""

    def fails(*_: object, **__: object) -> None:
        raise ValueError("Invalid header value b'Bearer s3cret'")

    monkeypatch.setattr("eomirror.driver.registry_thread.registry_mirror", fails)
    ends = {"source": "http://127.0.0.1:1", "target": "http://127.0.0.1:2"}
    made = thread(over, PlayedClock(), schemas=ends)
    made.start()

    def told() -> bool:
        status = made.status()
        return status is not None and status.state == "behind"

    wait_for(told)
    status = made.status()
    assert status is not None
    assert "ValueError" in status.problem
    assert "s3cret" not in status.problem
    assert status.fix


def test_a_link_without_registries_waits_for_nothing(over: threading.Event) -> None:
    """It starts no thread, and has no state."""
    made = thread(over, PlayedClock())
    made.start()
    assert made.settled()
    assert made.status() is None
    made.write(lambda records: None if not records else pytest.fail(str(records)))


def test_files_that_cannot_be_read_are_a_state(over: threading.Event) -> None:
    """An operator replaces them while the mirror runs."""
    ends = {
        "source": {"url": "https://127.0.0.1:1", "ssl.ca.location": "/nowhere/ca.pem"},
        "target": "http://127.0.0.1:2",
    }
    made = thread(over, PlayedClock(), schemas=ends)
    made.start()

    def away() -> bool:
        status = made.status()
        return status is not None and status.state == "away" and "certificate files" in status.problem

    wait_for(away)
    assert not made.settled()
