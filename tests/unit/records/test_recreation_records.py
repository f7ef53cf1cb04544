"""Recreation and copy-back stand in control, are read again, and decide who may run the link back."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from eomirror.errors import NotReadyError, StateError
from eomirror.link.ownership import refuse_copying_back
from eomirror.records.control import decode_control
from eomirror.records.promotion import Promotion
from eomirror.records.recreation import CopyBack, Recreation

RECREATION = Recreation(
    number=2,
    link="back",
    topics={"orders": "id"},
    ends={},
    records=7,
    place="",
    done=False,
    run="r",
    timestamp=1,
)
ORDER = CopyBack(link="there", number=2, done=False, until={}, run="r", timestamp=1)
DONE = CopyBack(link="there", number=2, done=True, until={"orders": {"0": 9}}, run="r", timestamp=2)


def test_the_newest_of_each_is_read_again() -> None:
    """One of each stands at a time."""
    view = decode_control([(one.key(), one.value(), "c-0@1") for one in (RECREATION, ORDER, DONE)])

    assert (view.recreation, view.copy_back) == (RECREATION, DONE)


def test_a_record_with_a_field_of_another_type_is_refused() -> None:
    """A list of topics without ids would delete whatever has their names."""
    body = orjson.loads(RECREATION.value()) | {"topics": ["orders"]}

    with pytest.raises(StateError):
        decode_control([(RECREATION.key(), orjson.dumps(body), "c-0@1")])


def test_a_link_that_copies_back_runs_for_nothing_else_until_that_is_done() -> None:
    """The error names the command that goes on."""
    waiting = decode_control([(ORDER.key(), ORDER.value(), "c-0@1")])

    with pytest.raises(NotReadyError, match="link back copies topics back whole") as raised:
        refuse_copying_back("back", waiting)

    assert "--link there --orphans recreate" in raised.value.fix
    refuse_copying_back("back", decode_control([(DONE.key(), DONE.value(), "c-0@1")]))


def test_an_order_of_a_reversal_names_that_command_and_one_of_an_older_release_the_other() -> None:
    """The command that goes on with it."""
    older = orjson.loads(ORDER.value())
    del older["command"]
    for value, command in (
        (replace(ORDER, done=False, command="reverse").value(), "eomirror reverse CONFIG --link there`"),
        (orjson.dumps({**older, "done": False}), "restore CONFIG --link there --orphans recreate`"),
    ):
        view = decode_control([(ORDER.key(), value, "c")])
        with pytest.raises(NotReadyError) as refused:
            refuse_copying_back("back", view)
        assert command in refused.value.fix


def test_topics_are_recreated_only_for_the_promotion_in_force() -> None:
    """An older recreation explains no topic that another promotion finds deleted."""
    promotion = Promotion(
        number=2, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b", cuts=(),
        started=1, timestamp=1,
    )  # fmt: skip
    view = decode_control(
        [(one.key(), one.value(), "c-0@1") for one in (RECREATION, promotion, replace(promotion, number=1))]
    )

    assert view.recreated == {"orders": "id"}
    assert decode_control([(RECREATION.key(), RECREATION.value(), "c-0@1")]).recreated == {}
    later = replace(promotion, number=3)
    assert decode_control([(one.key(), one.value(), "c-0@1") for one in (RECREATION, later)]).recreated == {}
