"""Answers before the log start of where a consumer goes."""

from __future__ import annotations

from dataclasses import replace

from eomirror.groups.log_start import not_below
from eomirror.groups.translation import Translation

EXACT = Translation(
    link="a-b", group="g", topic="t", partition=0, offset=5, to_topic="a.t", to_partition=0, to_offset=7,
    kind="exact",
)  # fmt: skip


def test_a_consumer_is_sent_to_what_is_left() -> None:
    """From an offset out of range one with ``auto.offset.reset=latest`` would go to the end."""
    earlier, unknown = replace(EXACT, kind="earlier"), replace(EXACT, to_offset=None, kind="unknown")

    assert not_below({("a.t", 0): 9}, [EXACT, earlier, unknown]) == [
        replace(EXACT, to_offset=9, kind="next"),
        replace(earlier, to_offset=9),
        unknown,
    ]


def test_what_is_within_the_log_stays_as_it_is() -> None:
    """Likewise where nobody knows where the log begins."""
    assert not_below({("a.t", 0): 7, ("a.t", 1): 9}, [EXACT]) == [EXACT]
    assert not_below({}, [EXACT]) == [EXACT]
