"""Failback: the fence stands until the clients are switched, and is lifted before the link returns."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror import load_config
from eomirror.cli.failover import asked
from eomirror.cli.options import LinkCommand
from eomirror.errors import UsageError
from eomirror.failover.failback import failback
from eomirror.failover.machine import Verb
from eomirror.failover.promotion import PromotionOptions
from eomirror.failover.writer_fence import FenceMethod
from eomirror.records.control import ControlView
from eomirror.records.promotion import Fence, Promotion, PromotionHistory, Reversal

module: Any = import_module("eomirror.failover.failback")

CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [
            {"name": "there", "source": "east", "target": "west", "topics": ["orders"], "naming": "identity"},
            {"name": "back", "source": "west", "target": "east", "topics": ["orders"], "naming": "identity"},
        ],
    }
)
PROMOTION = Promotion(
    number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
    cuts=(), started=0, timestamp=0,
)  # fmt: skip
REVERSAL = Reversal(number=1, link="back", ends={}, run="r", timestamp=0)
FENCE = Fence(number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=1)


class World:
    """Both links, and the order of what is done to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.switched: bool | None = True
        self.promoted = False
        self.fenced = False
        self.verb: Verb | None = None
        monkeypatch.setattr(
            module, "_control", lambda _, link, __: ControlView(history=self.history(link.name))
        )
        monkeypatch.setattr(module, "refuse_forgotten", lambda *_, **__: None)
        monkeypatch.setattr(module, "promote", self.promote)
        monkeypatch.setattr(module, "reverse", self.reverse)
        monkeypatch.setattr(module.LinkWriterFence, "fence", lambda _: self.calls.append("fence"))
        monkeypatch.setattr(module.LinkWriterFence, "lift", self.lift)

    def history(self, link: str) -> PromotionHistory:
        if link == "there":
            return PromotionHistory({1: PROMOTION}, {1: REVERSAL})
        fences = {1: FENCE} if self.fenced else {}
        return PromotionHistory({1: PROMOTION} if self.promoted else {}, fences=fences)

    def promote(self, _: Any, verb: Verb, *, link: str, options: PromotionOptions, **__: Any) -> Any:
        assert link == "back"
        self.verb = verb
        if options.fence is not None:
            options.fence.fence()
            self.fenced = True
        if options.verify is not None:
            options.verify()
        self.calls.append("promote")
        self.promoted = True
        return SimpleNamespace(promotion=PROMOTION, switched=self.switched, error=None)

    def lift(self, *_: Any) -> Fence:
        self.calls.append("lift")
        self.fenced = False
        return FENCE

    def reverse(self, _: Any, *, link: str, **__: Any) -> str:
        assert link == "back"
        self.calls.append("reverse")
        return "reversed"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_one_call_takes_all_steps_in_their_order(world: World) -> None:
    """A fence that stood while the link returns would stop the link itself."""
    found = failback(
        CONFIG,
        link="there",
        method=FenceMethod(name="acl"),
        verify=lambda link: world.calls.append(f"verify {link.name}"),
    )

    assert world.calls == ["fence", "verify back", "promote", "lift", "reverse"]
    assert (world.verb, found.unfenced, found.reversal) == (Verb.CUTOVER, True, "reversed")


def test_applications_that_were_not_switched_stay_fenced(world: World) -> None:
    """They would write to the copies again; a second call takes the steps that are left."""
    world.switched = False
    found = failback(CONFIG, link="there", method=FenceMethod(name="acl"))
    assert world.calls == ["fence", "promote"]
    assert found.reversal is None

    world.calls.clear()
    found = failback(CONFIG, link="there")
    assert world.calls == ["lift", "reverse"]
    assert found.promotion is None


def test_the_second_half_is_asked_for_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lifts the fence and sets positions; another name, or Ctrl-C, leaves all as it is."""
    world.promoted = world.fenced = True
    action = LinkCommand(config=CONFIG, link="there", dry_run=False, yes=False, report=None, output=None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.prompt", lambda *_, **__: "back")
    with pytest.raises(UsageError, match="nothing was changed"):
        failback(CONFIG, link="there", options=PromotionOptions(confirm=asked(action, "failback")))
    assert world.calls == []

    monkeypatch.setattr("click.prompt", lambda *_, **__: "there")
    failback(CONFIG, link="there", options=PromotionOptions(confirm=asked(action, "failback")))
    assert world.calls == ["lift", "reverse"]


def test_without_a_fence_the_user_has_stopped_the_producers(world: World) -> None:
    """Then nothing is fenced, and nothing is lifted."""
    found = failback(CONFIG, link="there", method=FenceMethod(name="wait"))

    assert world.calls == ["promote", "reverse"]
    assert (world.verb, found.unfenced) == (Verb.PROMOTE, False)
