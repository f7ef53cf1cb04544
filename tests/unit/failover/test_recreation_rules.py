"""What refuses a recreation, and what a recreation refuses."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror import load_config
from eomirror.errors import NotReadyError
from eomirror.failover.orphan_reader import OrphanRange, OrphanReader
from eomirror.failover.recreation import _elsewhere, _Recreate, refuse_recreated
from eomirror.records.control import ControlView
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.promotion import Promotion
from eomirror.records.recreation import Recreation
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from pathlib import Path

PROMOTION = Promotion(
    number=2, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b", cuts=(),
    started=1, timestamp=1,
)  # fmt: skip


def recreation(**changes: Any) -> Recreation:
    values: dict[str, Any] = {"number": 2, "topics": {"orders": "id"}, "done": False, **changes}
    return Recreation(link="back", ends={}, records=7, place="", run="r", timestamp=1, **values)


def rules(*others: dict[str, Any]) -> _Recreate:
    """The rules of a recreation, without connections."""
    config = load_config(
        {
            "clusters": {
                name: {"bootstrap.servers": f"{name}:1"} for name in ("east", "west", "north")
            },
            "links": [
                {"name": "there", "source": "east", "target": "west", "topics": ["orders"], "naming": "identity"},
                {"name": "back", "source": "west", "target": "east", "topics": ["orders"], "naming": "identity"},
                *others,
            ],
        }
    )  # fmt: skip
    made = _Recreate.__new__(_Recreate)
    made.config, made.link = config, config.link("there")
    made._command = "restore"
    return made


def test_a_topic_that_another_link_reads_is_not_deleted() -> None:
    """It would stop at another topic of that name, or copy every record a second time."""
    other = {"name": "onward", "source": "east", "target": "north", "topics": ["orders"]}
    with_other, alone = rules(other), rules()

    with pytest.raises(NotReadyError, match="link onward mirrors orders from east as well"):
        with_other._refuse_shared(with_other.config.link("back"), ["orders"])

    with_other._refuse_shared(with_other.config.link("back"), ["pay"])
    alone._refuse_shared(alone.config.link("back"), ["orders"])


ORDERS = SourcePartition("orders", 0)
RANGE = OrphanRange(source=ORDERS, start=20, end=50, target="b")


@pytest.mark.parametrize(
    ("dealt", "refused"),
    [
        ((), "[20, 50)"),
        ((DealtRange(20, 50, "keep"),), "[20, 50)"),
        ((DealtRange(20, 50, "merge"),), ""),
        ((DealtRange(20, 50, "export", "f"),), ""),
        ((DealtRange(20, 30, "export", "f"),), "[30, 50)"),
        ((DealtRange(20, 30, "export", "f"), DealtRange(20, 50, "keep")), "[30, 50)"),
        ((DealtRange(30, 40, "merge"), DealtRange(20, 30, "export", "f")), "[40, 50)"),
        (None, "an older release"),
    ],
)
def test_orphans_that_are_nowhere_else_are_not_deleted(
    dealt: tuple[DealtRange, ...] | None, refused: str
) -> None:
    """Merged ones are in the copies, and exported ones in their file or topic; the others are named by offsets."""
    made: Any = rules()
    made._count = lambda ranges: {each.source: 7 for each in ranges}
    recorded, older = {ORDERS: dealt or ()}, dealt is None

    if refused:
        with pytest.raises(NotReadyError, match="7 records of east never reached the copies") as raised:
            made._refuse_undecided([RANGE], recorded, older=older)
        assert refused in str(raised.value)
        assert "eomirror restore CONFIG --link there --orphans export|merge" in raised.value.fix
    else:
        made._refuse_undecided([RANGE], recorded, older=older)
    made._refuse_undecided([], {}, older=False)


@pytest.mark.parametrize("held", [None, 2, 3, -3])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_export_that_is_gone_is_not_relied_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held: int | None, *, elsewhere: bool
) -> None:
    """The file is read where it can be; one of another host is named instead.  Other records do not count."""
    path = tmp_path / "orphans"
    if held is not None:
        lines = [
            {"topic": "orders", "partition": 0, "offset": offset, "value": "b3RoZXI=" if held < 0 else None}
            for offset in range(20, 20 + abs(held))
        ]
        path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    made: Any = rules()
    made._count = lambda ranges: {each.source: 3 for each in ranges}
    made.clock = made.tell = None

    def write(_: object, __: object, sink: Any, ___: object) -> None:
        for offset in range(20, 23):
            message = SimpleNamespace(offset=lambda at=offset: at, key=lambda: None, value=lambda: None)
            sink.write(ORDERS, message, None)

    monkeypatch.setattr(OrphanReader, "write", write)
    host = "another" if elsewhere else socket.gethostname()
    there = max(0, held or 0)
    recorded = {ORDERS: (DealtRange(20, 50, "export", str(path), 3, host),)}

    if held == 3 or (held is None and elsewhere):
        made._refuse_not_exported([RANGE], recorded)
    else:
        with pytest.raises(
            NotReadyError, match=rf"hold {there} of them: the others would be deleted"
        ) as raised:
            made._refuse_not_exported([RANGE], recorded)
        assert "--orphans export" in raised.value.fix
    unchecked = _elsewhere(recorded)
    assert unchecked == ((f"another:{path}",) if held is None and elsewhere else ())


@pytest.mark.parametrize(
    ("found", "unfinished", "refused"),
    [
        (None, False, ""),
        (recreation(), False, "being deleted"),
        (recreation(), True, "being deleted"),
        (recreation(done=True), False, "were deleted"),
        (recreation(done=True), True, ""),
        (recreation(number=1), False, ""),
        (recreation(topics={}, done=True), False, ""),
    ],
)
def test_other_work_on_the_orphans_is_refused_for_topics_that_are_gone(
    found: Recreation | None, unfinished: bool, refused: str
) -> None:
    """Offsets of a topic that was deleted have no meaning; a decision that was withdrawn changes nothing."""
    link = rules().link
    view = ControlView(recreation=found)

    if refused:
        with pytest.raises(NotReadyError, match=refused):
            refuse_recreated(link, view, PROMOTION, unfinished=unfinished)
    else:
        refuse_recreated(link, view, PROMOTION, unfinished=unfinished)
