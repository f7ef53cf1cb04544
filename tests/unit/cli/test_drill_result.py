"""`eomirror drill --record` notes every end of a drill, with its stage and without secrets; the drill is played."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror.cli.app import main
from eomirror.demo.drill import Drill, DrillReport
from eomirror.errors import ClusterError
from eomirror.kafka import plain_producer, session
from eomirror.records.events import link_events
from eomirror.records.reports import DrillResult, decode_reports

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECRET = "k3-battery-staple"  # noqa: S105  a planted one
CONFIG = f"""
clusters:
  west: {{bootstrap.servers: "127.0.0.1:1"}}
  east:
    bootstrap.servers: "127.0.0.1:3"
    security.protocol: SASL_PLAINTEXT
    sasl.mechanism: PLAIN
    sasl.username: mirror
    sasl.password: {SECRET}
links:
  - {{source: west, target: east, topics: [orders]}}
"""
PASSED = DrillReport(
    passed=True, rpo_records=7, rto_seconds=2.5, cuts=(), stages=(), clusters="local", switches=(),
    started="2026-11-26T22:45:21+00:00", host="h1", version="0.1.0", configuration={},
)  # fmt: skip


class Session:
    """A target on which every topic exists."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.admin = self

    def describe_topics(self, topics: list[str]) -> dict[str, object]:
        return dict.fromkeys(topics, object())

    def close(self) -> None:
        pass


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[bytes, bytes]]:
    """Records that the command writes to the target; it runs in a folder with ``mirror.yaml``."""
    found: list[tuple[bytes, bytes]] = []

    def write(_cluster: Any, _topic: str, records: list[tuple[bytes, bytes]], **_: Any) -> str:
        found.extend(records)
        return ""

    path = tmp_path / "mirror.yaml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "ClusterSession", Session)
    monkeypatch.setattr(plain_producer, "write_records", write)
    return found


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], BaseException]:
    """Runs the command with a drill whose second stage does this; returns how it ended."""

    def run(act: Callable[[], Any]) -> BaseException:
        def stages(self: Any) -> DrillReport:
            self._stage("start", lambda: "done")
            self._stage("failover", act)
            return PASSED

        monkeypatch.setattr(Drill, "run", stages)
        with pytest.raises(BaseException) as left:  # noqa: PT011  each test looks at it
            main(["drill", "--record", "mirror.yaml", "-o", "json"])
        return left.value

    return run


def noted(written: list[tuple[bytes, bytes]]) -> DrillResult:
    """The only drill that was written."""
    assert len(written) == 1
    found = decode_reports(written).drill
    assert found is not None
    return found


def raises(error: BaseException) -> Callable[[], Any]:
    """A stage that fails."""

    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "code", "problem"),
    [
        (ClusterError("no way to <west>", fix="look"), 1, "no way to <west>"),
        (KeyboardInterrupt(), 130, "ended by a signal"),
        (SystemExit(143), 143, "ended by a signal"),
    ],
)
def test_a_drill_that_ends_early_has_failed(
    written: list[tuple[bytes, bytes]],
    drill: Callable[[Callable[[], Any]], BaseException],
    error: BaseException,
    code: int,
    problem: str,
) -> None:
    """With the stage that ran, and the exit code of its end."""
    left = drill(raises(error))
    assert isinstance(left, SystemExit)
    assert left.code == code
    found = noted(written)
    assert (found.passed, found.stage, found.problem) == (False, "failover", problem)


def test_an_error_of_no_kind_is_noted_and_raised(
    written: list[tuple[bytes, bytes]], drill: Callable[[Callable[[], Any]], BaseException]
) -> None:
    """A bug is a failed drill, too."""
    error = RuntimeError("one\ntwo")
    assert drill(raises(error)) is error
    assert noted(written).problem == "RuntimeError: one two"


def test_sigterm_is_a_failure(
    written: list[tuple[bytes, bytes]], drill: Callable[[Callable[[], Any]], BaseException]
) -> None:
    """As from a timer that gives it too little time; afterwards the signal has its handler again."""
    before = signal.getsignal(signal.SIGTERM)
    left = drill(lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert isinstance(left, SystemExit)
    assert left.code == 128 + signal.SIGTERM
    assert noted(written).stage == "failover"
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_secret_in_an_error_is_not_recorded(
    written: list[tuple[bytes, bytes]], drill: Callable[[Callable[[], Any]], BaseException]
) -> None:
    """Every reader of the control topic would see it."""
    drill(raises(RuntimeError(f"login mirror:{SECRET} refused")))
    assert SECRET.encode() not in b"".join(part for record in written for part in record)
    assert noted(written).problem == "hidden, because it contains a secret"


def test_a_drill_that_passed_has_no_stage(
    written: list[tuple[bytes, bytes]], drill: Callable[[Callable[[], Any]], BaseException]
) -> None:
    """Its numbers are those of the evidence."""
    left = drill(lambda: "done")
    assert isinstance(left, SystemExit)
    assert left.code == 0
    found = noted(written)
    assert (found.passed, found.rpo_records, found.rto_ms, found.stage, found.problem) == (
        True, 7, 2500, "", "",
    )  # fmt: skip


def test_the_timeline_names_the_stage() -> None:
    """A record of an older release has none."""
    made = DrillResult(
        passed=False, rpo_records=0, rto_ms=0, host="h", timestamp=1, stage="failover", problem="no <way>"
    )
    older = orjson.dumps(
        {"v": 1, "passed": False, "rpo_records": 0, "rto_ms": 0, "host": "h", "timestamp": 1}
    )
    found = link_events([(made.key(), made.value(), 1), (made.key(), older, 2)], [])
    assert [event.text for event in found] == [
        "a drill failed at the stage 'failover': no <way>; repeat it with eomirror drill --report FILE",
        "a drill failed; repeat it with eomirror drill --report FILE",
    ]
