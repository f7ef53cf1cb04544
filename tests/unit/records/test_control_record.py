"""One declaration gives a class of control records its key, value, checked decoding and sentence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from test_control_golden import GOLDEN, PARTS_OF_TOPICS

from eomirror.errors import StateError
from eomirror.records import control_record as registry
from eomirror.records.control import Gap, Stopped, decode_control
from eomirror.records.control_record import OMITTED, ControlEntry, ControlRecord, RecordError, control_record
from eomirror.records.events import link_events

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.json_fields import Excerpt, Whole

GAP = Gap(topic="a", partition=0, start=5, end=9, reason="retention", run="r", timestamp=7)
STOPPED = Stopped(topic="a", reason="lost", fix="", exit_code=4, lane=None, run="r", timestamp=9)


@pytest.fixture(autouse=True)
def _classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_CLASSES", dict(registry._CLASSES))


def test_a_declaration_is_all_that_a_class_needs() -> None:
    """What stands in key and value, what a missing field means, and its events."""

    @control_record(
        "moved",
        key=("topic", "partition"),
        sentence="topic {one.topic} was moved to {one.to}",
        deleted=("returned", "topic {topic} is back"),
    )
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Moved(ControlRecord):
        topic: str
        partition: int = field(metadata={"name": "p"})
        to: Excerpt
        offset: Whole | None = None
        ends: Mapping[int, int] = field(default_factory=dict, metadata=OMITTED)

    moved = Moved(topic="a", partition=3, to="b" * 2_000)
    assert moved.key() == Moved.key_of("a", 3) == b'{"kind":"moved","topic":"a","p":3}'
    assert moved.value() == b'{"v":1,"to":"%s","offset":null}' % (b"b" * 1_000)
    whole = Moved(topic="a", partition=3, to="b", offset=4, ends={7: 1})
    assert orjson.loads(whole.value()) == {"v": 1, "to": "b", "offset": 4, "ends": {"7": 1}}
    assert ControlEntry.of(whole.key(), whole.value()).record() == whole
    older = Moved(topic="a", partition=3, to="b")
    assert ControlEntry.of(older.key(), b'{"v":1,"to":"b","later":1}').record() == older
    events = link_events([(older.key(), older.value(), 1), (older.key(), None, 2)], [])
    assert [(each.kind, each.text, each.topic) for each in events] == [
        ("moved", "topic a was moved to b", "a"),
        ("returned", "topic a is back", "a"),
    ]
    with pytest.raises(RecordError, match="field p is missing"):
        ControlEntry.of(b'{"kind":"moved","topic":"a"}', older.value()).record()


def test_a_field_of_an_unknown_type_is_refused_at_its_declaration() -> None:
    """Not when the first record is written."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Strange(ControlRecord):
        when: complex

    with pytest.raises(KeyError, match="complex"):
        control_record("strange")(Strange)


@pytest.mark.parametrize(
    ("record", "change", "text"),
    [
        (STOPPED, {"exit_code": "4"}, "stopped record is not readable: field exit_code: '4' is of type str"),
        (STOPPED, {"run": None}, "stopped record is not readable: field run: None is of type NoneType"),
        (GAP, {"to": 1.5}, "gap record is not readable: field to: 1.5 is of type float"),
        (
            PARTS_OF_TOPICS[0],
            {"generation": -1},
            "promotion record is not readable: field generation: -1 is not an integer from 0",
        ),
        (PARTS_OF_TOPICS[0], {"topics": {"a": {}}}, "promotion record is not readable: field topics: "),
    ],
)
def test_the_error_of_a_record_names_it_and_its_field(
    record: ControlRecord, change: dict[str, Any], text: str
) -> None:
    """With the place of the record."""
    value = orjson.dumps({**orjson.loads(record.value()), **change})
    with pytest.raises(StateError) as refused:
        decode_control([(record.key(), value, "control-0@7")])
    assert refused.value.message.startswith(f"control-0@7: this {text}")
    body = orjson.loads(record.value())
    del body["run"]
    with pytest.raises(StateError, match="record is not readable: field run is missing"):
        decode_control([(record.key(), orjson.dumps(body), "control-0@7")])


def test_a_record_of_one_per_link_with_more_in_its_key_is_another_one() -> None:
    """A newer release may key it otherwise; its deletion would not end the one that this release knows."""
    key = b'{"kind":"pause","topics":"a"}'
    assert decode_control([(key, b'{"v":1,"topics":"","host":"h","timestamp":1}', "c")]).pause is None


def test_every_class_has_golden_bytes() -> None:
    """One that is added stands there, too."""
    written = [key for _, key, _, _ in GOLDEN] + [key for key, _ in PARTS_OF_TOPICS[1]]
    assert {orjson.loads(key)["kind"] for key in written} == set(registry._CLASSES)
