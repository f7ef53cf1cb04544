"""Groups that are left alone on the target, as control keeps them for `status`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.driver.group_thread import LeftGroupRecords
from eomirror.records.reports import GroupsLeft, decode_reports
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_change_is_written_once_and_again_after_a_failure() -> None:
    """Of very many the first by name, and how many they are; an empty record when none is left."""
    left: dict[str, str] = {}
    spec: Any = SimpleNamespace(link=SimpleNamespace(state_name="one"), run="r")
    records = LeftGroupRecords(spec, lambda: dict(left), PlayedClock())
    written: list[Any] = []

    def commit(due: Sequence[Any]) -> None:
        written.extend(due)

    records.write(commit)
    assert written == []
    left |= {f"g{number:02}": "read there" for number in range(30)}

    def fails(_: Sequence[Any]) -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        records.write(fails)
    for _ in range(2):
        records.write(commit)
    left.clear()
    records.write(commit)

    first, last = (decode_reports([(each.key, each.value)]).left for each in written)
    assert isinstance(first, GroupsLeft)
    assert isinstance(last, GroupsLeft)
    assert (first.count, list(first.groups)[-1], first.run) == (30, "g19", "r")
    assert (last.count, dict(last.groups)) == (0, {})
