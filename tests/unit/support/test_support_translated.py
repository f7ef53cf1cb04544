"""The judge of syncs and checkpoints (O5): a wrong one does not pass, and a hole of compaction accuses no reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.records.mm2 import Checkpoint, OffsetSync
from support.judges import translated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# offset -> what stands there; markers and aborted records leave holes
SOURCE = {0: "a", 1: "b", 4: "c", 5: "d"}
TARGET = {10: "a", 11: "b", 12: "c", 15: "d"}


def copies(
    monkeypatch: pytest.MonkeyPatch, there: Mapping[int, str], here: Mapping[int, str]
) -> translated.Copies:
    logs = {"t": (there, 7), "copy": (here, 17)}

    def read(properties: Any, topic: str, partition: int) -> Iterator[Any]:
        del properties, partition
        records, end = logs[topic]
        yield from ((offset, None, what.encode(), ()) for offset, what in records.items())
        yield end

    monkeypatch.setattr(translated, "_read", read)
    return translated.Copies({}, {}, "t", "copy", 0)


def checkpoint(upstream: int, downstream: int) -> Checkpoint:
    return Checkpoint("g", "copy", 0, upstream, downstream)


@pytest.mark.parametrize(
    ("upstream", "downstream"),
    [(0, 0), (0, 10), (1, 11), (2, 12), (4, 12), (5, 13), (5, 15), (7, 16), (7, 17)],
)
def test_every_offset_between_the_same_records_is_right(
    monkeypatch: pytest.MonkeyPatch, upstream: int, downstream: int
) -> None:
    """Whatever stands for a marker or an aborted record."""
    copies(monkeypatch, SOURCE, TARGET).check_checkpoint(checkpoint(upstream, downstream))


@pytest.mark.parametrize(
    ("upstream", "downstream", "words"),
    [
        (1, 10, "1 records are read twice, 0 are skipped"),
        (1, 12, "0 records are read twice, 1 are skipped"),
        (5, 11, "2 records are read twice"),
        (0, 17, "4 are skipped"),
        (5, 18, "beyond the target's end"),
    ],
)
def test_a_wrong_checkpoint_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, upstream: int, downstream: int, words: str
) -> None:
    """It says how many records are concerned."""
    with pytest.raises(AssertionError, match=words):
        copies(monkeypatch, SOURCE, TARGET).check_checkpoint(checkpoint(upstream, downstream))


def test_what_compaction_took_from_one_side_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are on both sides still do."""
    left = {offset: what for offset, what in TARGET.items() if what != "b"}
    both = copies(monkeypatch, SOURCE, left)
    both.check_checkpoint(checkpoint(2, 11))
    both.check_sync(OffsetSync("t", 0, 1, 11))
    with pytest.raises(AssertionError):
        both.check_checkpoint(checkpoint(2, 10))


def test_a_sync_of_two_records_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one behind the end of the target."""
    both = copies(monkeypatch, SOURCE, TARGET)
    both.check_sync(OffsetSync("t", 0, 4, 12))
    for wrong in (OffsetSync("t", 0, 4, 11), OffsetSync("t", 0, 5, 17)):
        with pytest.raises(AssertionError):
            both.check_sync(wrong)
