"""What `plan` says about topics that their names keep out."""

from __future__ import annotations

import pytest

from eomirror.topology.filters import topic_filter

NAMES = ["orders", "orders_old", "__schemas", "east.orders", "west.orders", "mm2_x_internal", "stock"]


@pytest.mark.parametrize("separator", [".", "_"])
def test_every_topic_that_is_wanted_passes_or_has_its_reason(separator: str) -> None:
    """A topic that no pattern asks for is no news; one that passes has no reason."""
    chosen = topic_filter(("(?:.*[._])?orders.*", "__.*", "mm2.*"), (".*_old",), ("west",), separator)

    told = {name: reason for reason, names in chosen.left_out(NAMES).items() for name in names}

    assert {name for name in NAMES if chosen.matches(name)}.isdisjoint(told)
    assert told["orders_old"] == "`exclude` matches it"
    assert told["__schemas"] == "it is an internal topic of Kafka"
    assert ("mm2_x_internal" in told) is (separator == "_")
    assert ("west.orders" in told) is (separator == ".")
    assert "stock" not in told
    assert "east.orders" not in told
