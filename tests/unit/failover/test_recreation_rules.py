"""What refuses a recreation, and what a recreation refuses."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import load_config
from eomirror.errors import NotReadyError
from eomirror.failover.recreation import _Recreate, refuse_recreated
from eomirror.records.control import ControlView
from eomirror.records.promotion import Promotion, Restoration
from eomirror.records.recreation import Recreation

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
    return made


def test_a_topic_that_another_link_reads_is_not_deleted() -> None:
    """It would stop at another topic of that name, or copy every record a second time."""
    other = {"name": "onward", "source": "east", "target": "north", "topics": ["orders"]}
    with_other, alone = rules(other), rules()

    with pytest.raises(NotReadyError, match="link onward mirrors orders from east as well"):
        with_other._refuse_shared(with_other.config.link("back"), ["orders"])

    with_other._refuse_shared(with_other.config.link("back"), ["pay"])
    alone._refuse_shared(alone.config.link("back"), ["orders"])


@pytest.mark.parametrize(
    ("decided", "refused"), [(None, True), ("keep", True), ("merge", False), ("export", False)]
)
def test_orphans_that_are_nowhere_else_are_not_deleted(decided: str | None, *, refused: bool) -> None:
    """Merged ones are in the copies, and exported ones in their file or topic."""
    restoration = (
        None
        if decided is None
        else Restoration(number=2, orphans=decided, records=7, place="", run="r", timestamp=1)
    )

    if refused:
        with pytest.raises(NotReadyError, match="7 records of east never reached the copies"):
            rules()._refuse_undecided(["orders"], {"orders": 7}, restoration)
    else:
        rules()._refuse_undecided(["orders"], {"orders": 7}, restoration)
    rules()._refuse_undecided([], {"orders": 0}, None)


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
