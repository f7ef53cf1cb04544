"""What all commands on a promoted link have in common; no broker."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import NotReadyError
from eomirror.failover import promoted_link
from eomirror.failover.promoted_link import PromotedLink
from eomirror.records.control import ControlView, Generation
from eomirror.records.promotion import Promotion, PromotionHistory, Reversal
from eomirror.types import Assignment

PROMOTION = Promotion(
    number=1, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b", cuts=(),
    started=1, timestamp=2,
)  # fmt: skip
LAYOUT = Generation(
    generation=1, revision=0, run="r", highest_lane=0, assignment=Assignment(1, {}), timestamp=0
)
REVERSAL = Reversal(number=1, link="back", ends={}, run="r", timestamp=0)


class Owner:
    """Notes what is asked of it."""

    made: list[Owner]

    def __init__(self, *_: Any, **options: Any) -> None:
        self.options, self.calls = options, []
        self.made.append(self)

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Connections that were opened and closed, in their order."""
    seen: list[str] = []

    class Sessions:
        target = SimpleNamespace()

        def __iter__(self) -> Any:
            return iter((object(), self.target))

        def close(self) -> None:
            seen.append("closed")

    def connect(link: Any, *_: Any, **__: Any) -> Any:
        seen.append(link.name)
        return Sessions()

    monkeypatch.setattr(promoted_link, "link_sessions", connect)
    monkeypatch.setattr(promoted_link, "LinkOwner", Owner)
    Owner.made = []
    return seen


def command() -> PromotedLink:
    config = load_config(
        {
            "clusters": {name: {"bootstrap.servers": "x:1"} for name in ("a", "b")},
            "links": [{"name": "there", "source": "a", "target": "b", "topics": ["t"]}],
        }
    )
    return PromotedLink(config, None, "reverse", on_event=None, clock=SYSTEM_CLOCK)


def test_it_closes_every_connection_that_it_opened(opened: list[str]) -> None:
    """Also that of the link back."""
    with closing(command()) as made:
        made.connect(made.link)
    assert opened == ["there", "there", "closed", "closed"]


@pytest.mark.usefixtures("opened")
def test_a_link_that_is_not_promoted_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what comes first; the link back, which never ran, is the other name in the file."""
    for view, state in ((ControlView(), "never ran"), (ControlView(LAYOUT), "is not promoted: it mirrors")):
        monkeypatch.setattr(promoted_link, "control_of", lambda *_, view=view: view)
        with closing(command()) as made, pytest.raises(NotReadyError, match=state) as refused:
            made.in_force()
        assert "not the link back; or promote it first: `eomirror cutover`" in refused.value.fix

    there = ControlView(history=PromotionHistory({1: PROMOTION}))
    monkeypatch.setattr(promoted_link, "control_of", lambda *_: there)
    with closing(command()) as made:
        assert made.in_force() == (there, PROMOTION)


@pytest.mark.usefixtures("opened")
def test_a_record_is_noted_by_an_owner_that_says_which_command_it_is() -> None:
    """A mirror or another command that meets its claim can name it; it gives the link back."""
    with closing(command()) as made:
        made.note(REVERSAL)
        made.owner(made.link, made.sessions, adopt={})
    noting, other = Owner.made
    assert noting.calls == ["retake", "note", "release", "close"]
    assert noting.options["although_promoted"] is True
    assert "although_promoted" not in other.options
    assert {one.options["command"] for one in Owner.made} == {"reverse"}
    assert {one.options["run"] for one in Owner.made} == {made.run_id}
