"""Answers before the log start of where a consumer goes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.config import Cluster
from eomirror.groups import corrections as log_start
from eomirror.groups.corrections import from_log_start
from eomirror.groups.translation import Translation
from eomirror.kafka.session import ClusterSession

if TYPE_CHECKING:
    import pytest

EXACT = Translation(
    link="a-b", group="g", topic="t", partition=0, offset=5, to_topic="a.t", to_partition=0, to_offset=7,
    kind="exact",
)  # fmt: skip


def _raised(
    monkeypatch: pytest.MonkeyPatch, starts: dict[tuple[str, int], int], *translations: Translation
) -> list[Translation]:
    monkeypatch.setattr(log_start, "_log_starts", lambda *_: starts)
    return from_log_start(translations, ClusterSession(Cluster("b", {}), client_id="test"))


def test_a_consumer_is_sent_to_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """From an offset out of range one with ``auto.offset.reset=latest`` would go to the end."""
    earlier, unknown = replace(EXACT, kind="earlier"), replace(EXACT, to_offset=None, kind="unknown")

    assert _raised(monkeypatch, {("a.t", 0): 9}, EXACT, earlier, unknown) == [
        replace(EXACT, to_offset=9, kind="next"),
        replace(earlier, to_offset=9),
        unknown,
    ]


def test_what_is_within_the_log_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does an offset in a partition whose log start is not known."""
    assert _raised(monkeypatch, {("a.t", 0): 7, ("a.t", 1): 9}, EXACT) == [EXACT]
    assert _raised(monkeypatch, {}, EXACT) == [EXACT]
