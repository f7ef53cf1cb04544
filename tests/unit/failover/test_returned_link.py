"""A failback that is repeated after its last step."""

from __future__ import annotations

import sys

import pytest

from eomirror import load_config
from eomirror.errors import NotReadyError
from eomirror.failover.failback import failback as run
from eomirror.records.control import ControlView
from eomirror.records.promotion import Promotion, PromotionHistory, Resumption

PROMOTION = Promotion(
    number=1, planned=True, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b", cuts=(),
    started=1, timestamp=2,
)  # fmt: skip
BACK = Resumption(number=1, link="back", starts={}, run="r", timestamp=1_700_000_000_000)
CONFIG = load_config(
    {
        "clusters": {name: {"bootstrap.servers": "x:1"} for name in ("a", "b")},
        "links": [{"source": "a", "target": "b", "topics": ["t"]}],
    }
)


@pytest.mark.parametrize(
    ("history", "message", "fix"),
    [
        (
            PromotionHistory({1: PROMOTION}, resumptions={1: BACK}),
            "has returned already, at 2023-11-14T22:13:20Z",
            "`eomirror run CONFIG --link 'a->b'`",
        ),
        (PromotionHistory(), "mirrors: there is nothing to return from", "the order is: failover or promote"),
        (
            PromotionHistory({1: PROMOTION}),
            "is promoted, but not reversed",
            "the order is: failover or promote",
        ),
    ],
)
def test_a_link_with_nothing_to_return_from_says_why(
    monkeypatch: pytest.MonkeyPatch, history: PromotionHistory, message: str, fix: str
) -> None:
    """The runbook says to repeat the command: one that is complete must not look like one that has not begun."""
    monkeypatch.setattr(sys.modules[run.__module__], "_control", lambda *_: ControlView(history=history))
    with pytest.raises(NotReadyError, match=message) as refused:
        run(CONFIG)
    assert fix in refused.value.fix
