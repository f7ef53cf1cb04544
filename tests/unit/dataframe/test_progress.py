"""What a sink decides from its progress record."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eomirror.dataframe.progress import covered, must_write, source_offsets
from eomirror.errors import StateError, UsageError
from eomirror.records.sink_progress import SinkProgress, decode_progress

HELD = SinkProgress("one", 7, 10, 100, "0" * 16, {"t": {"0": 5, "1": 0}}, {"t": {"0": 50, "1": 20}})


def due(
    last: SinkProgress | None, query: str, batch: int, begin: object = None, end: object = None, **how: bool
) -> bool:
    """The decision for a sink "s"."""
    return must_write(last, "s", query, batch, (begin, end), append=how.get("append", False))  # type: ignore[arg-type]


def test_a_record_is_read_as_it_was_written() -> None:
    """Also by a release that knows fewer fields; a damaged record and a later version are refused."""
    assert decode_progress(HELD.as_text().encode(), "here") == HELD
    assert decode_progress(HELD.as_text().encode()[:-1] + b',"later":1}', "here") == HELD
    for value in (b"", b"[]", b"{}", b'{"v":1}', HELD.as_text().encode().replace(b'"v":1', b'"v":2')):
        with pytest.raises(StateError, match="here"):
            decode_progress(value, "here")


def test_batches_of_one_query_count() -> None:
    """A sink without progress writes; later it skips what it holds."""
    assert due(None, "one", 0)
    assert [due(HELD, "one", batch) for batch in (6, 7, 8, 12)] == [False, False, True, True]


def test_another_query_is_judged_by_source_offsets() -> None:
    """Exactly behind: write.  All before: skip.  Anything else, also before the first offset held: refuse."""
    behind = {"t": {"0": 60, "1": 20}}
    assert due(HELD, "two", 0, HELD.sources, behind)
    assert not due(HELD, "two", 0, {"t": {"0": 5, "1": 0}}, {"t": {"0": 40, "1": 20}})
    assert not due(HELD, "two", 0, None, {"t": {"0": 40, "1": 20}})
    for begin, end in [
        ({"t": {"0": 0, "1": 0}}, {"t": {"0": 40, "1": 20}}),
        ({"t": {"0": 40, "1": 20}}, behind),
        (behind, {"t": {"0": 70, "1": 20}}),
        (None, behind),
    ]:
        with pytest.raises(UsageError, match="startingOffsets"):
            due(HELD, "two", 0, begin, end)
        assert due(HELD, "two", 0, begin, end, append=True)


def test_without_source_offsets_another_query_is_refused() -> None:
    """The sink does not guess which rows it holds."""
    for last, end in [(replace(HELD, sources=None), HELD.sources), (HELD, None)]:
        with pytest.raises(UsageError, match="cannot tell which rows"):
            due(last, "two", 0, None, end)


def test_offsets_have_the_connectors_form_or_none() -> None:
    """Offsets of other sources are unknown, not misread."""
    assert source_offsets({"t": {"0": 5}}) == {"t": {"0": 5}}
    for other in ({"logOffset": 3}, {"t": {"x": 1}}, {"t": {"0": "5"}}, {"t": {"0": True}}):
        assert source_offsets(other) is None
    assert covered({}, {})
    assert not covered({"t": {"2": 1}}, {"t": {"0": 5}})
