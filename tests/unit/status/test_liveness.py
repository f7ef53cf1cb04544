"""Whether the owner of a link lives, seen from a machine whose clock may be another (fault F34)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.status.liveness import Liveness, judge_liveness
from support.fakes.claims import claim

if TYPE_CHECKING:
    from eomirror.records.control import Claim

NOW = 1_700_000_000_000
DAY = 86_400_000
CLAIM = claim(timestamp=NOW)
LATER = replace(CLAIM, sequence=4, timestamp=NOW + 5_000)


def look(latest: Claim | None = CLAIM, first: Claim | None = CLAIM, **values: Any) -> Liveness:
    """At one claim, or at two that were seen one after the other."""
    given: dict[str, Any] = {"watched": 0.0, "now_ms": NOW + 1_000}
    return judge_liveness(first, latest, **{**given, **values})


@pytest.mark.parametrize("age", [-5_000, 0, 4_900, 15_000])
def test_a_claim_that_looks_fresh_is_believed_at_once(age: int) -> None:
    """It says that the owner lives, and that both clocks agree."""
    assert look(now_ms=NOW + age) == Liveness("running")


@pytest.mark.parametrize("age", [-DAY, -5_001, 15_001, DAY])
def test_a_claim_that_does_not_look_fresh_is_watched(age: int) -> None:
    """Old or from the future: only whether it moves says which, and it takes more than an interval to know."""
    assert look(now_ms=NOW + age, watched=0.0).state == ""
    assert look(now_ms=NOW + age, watched=6.9).state == ""
    assert look(now_ms=NOW + age, watched=7.0) == Liveness("silent")


@pytest.mark.parametrize("ahead", [-DAY, DAY])
def test_a_claim_that_moves_has_a_living_owner_whatever_the_clocks_say(ahead: int) -> None:
    """F34: and its clock is so far ahead of ours."""
    found = look(LATER, now_ms=LATER.timestamp - ahead, watched=4.0)
    assert found == Liveness("running", ahead)
    # the next look believes a claim that is fresh by that clock, at once
    assert look(LATER, LATER, now_ms=LATER.timestamp - ahead + 9_000, offset_ms=ahead) == Liveness(
        "running", ahead
    )


def test_clocks_that_come_together_again_are_noticed() -> None:
    """The offset that was found before does not outlive the first renewal by the new clock."""
    assert look(now_ms=NOW + 1_000, offset_ms=DAY).state == ""
    assert look(LATER, now_ms=LATER.timestamp, offset_ms=DAY, watched=4.0) == Liveness("running", 0)


def test_another_run_that_takes_the_link_while_we_look_is_running() -> None:
    """Its sequence begins anew."""
    other = replace(CLAIM, run="s", sequence=1)
    assert look(other, now_ms=NOW + DAY).state == "running"


def test_who_released_the_link_or_is_known_to_be_dead_is_not_watched() -> None:
    """No clock is asked."""
    assert look(None, None) == Liveness("stopped")
    assert look(replace(CLAIM, released=True), now_ms=NOW + DAY) == Liveness("stopped")
    assert look(dead=True) == Liveness("silent")
