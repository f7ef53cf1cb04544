"""A worker that ends with its task, or is told to end: what goes on in it is brought to an end before."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import eomirror.log
import eomirror.spark.attempt
from eomirror import __version__
from eomirror.config import Cluster, Link
from eomirror.lane.spec import Ending, LaneReport, LaneSpec
from eomirror.spark.attempt import LaneInterruptedError
from eomirror.spark.mailbox import ChannelMailbox
from eomirror.spark.task import LaneTask, pack_spec

if TYPE_CHECKING:
    from eomirror.lane.spec import LaneMailbox

_REPORT = LaneReport(lane=3, epoch=5, attempt=1, ending=Ending.EPOCH, continues=True)


def task() -> LaneTask:
    """One whose lane goes on behind its epoch."""
    lane = LaneSpec(
        link=Link(name="a->b", source="a", target="b", topics=(".*",)), source=Cluster("a", {}),
        target=Cluster("b", {}), source_cluster_id="S", target_cluster_id="T", run="r", generation=1, lane=3,
        epoch=5, attempt=1, seconds=300.0, partitions=(),
    )  # fmt: skip
    return LaneTask(
        packed=pack_spec(lane), number=(3, 5, 1), host="127.0.0.1", port=1, token="t" * 64,
        version=__version__, log_level="info", lane=_goes_on,
    )  # fmt: skip


def _goes_on(_: LaneSpec, mailbox: LaneMailbox, __: Any) -> LaneReport:
    mailbox.added()
    return _REPORT


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What became of the line and of the lane, in order."""
    made: list[str] = []
    line = SimpleNamespace(added=lambda: made.append("mirrors"), close=lambda: made.append("line closed"))
    monkeypatch.setattr(ChannelMailbox, "connect", lambda *_, **__: line)
    monkeypatch.setattr(eomirror.spark.attempt, "leave_parked", lambda: made.append("left"))
    monkeypatch.setattr(eomirror.log, "configure_logging", lambda _: None)
    return made


@pytest.mark.parametrize(("reused", "then"), [("1", []), (None, ["left"])])
def test_a_lane_goes_on_only_where_its_worker_does(
    said: list[str], monkeypatch: pytest.MonkeyPatch, reused: str | None, then: list[str]
) -> None:
    """EO-8: spark.python.worker.reuse=false would cut it off within a transaction, at every change of epochs."""
    if reused is None:
        monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    else:
        monkeypatch.setenv("SPARK_REUSE_WORKER", reused)

    (report,) = task()([])

    assert report == _REPORT
    assert said == ["mirrors", *then]


def test_a_signal_while_the_driver_is_called_ends_what_goes_on(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-8: the lane of the epoch before mirrors meanwhile; the sender of the signal ends the worker next."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise LaneInterruptedError("SIGTERM")

    monkeypatch.setattr(ChannelMailbox, "connect", interrupted)

    (report,) = task()([])

    assert replace(report, reason="") == replace(_REPORT, ending=Ending.STOPPED, continues=False)
    assert said == ["left"]
