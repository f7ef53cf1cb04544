"""The lane of the extension, as far as it needs no broker."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from eomirror._native import NativeLane
from eomirror.plane.native.errors import NativeFailureError
from eomirror.plane.native.plane import stalled_text

if TYPE_CHECKING:
    from collections.abc import Sequence

_FORKED = """
import os
from eomirror._native import NativeLane
from eomirror.plane.native.errors import NativeFailureError

nowhere = {"bootstrap.servers": "127.0.0.1:1"}
lane = NativeLane(
    nowhere, nowhere, transactional_id="x", transaction_timeout=15.0, source_cluster_id="A", target_cluster_id="B"
)
child = os.fork()
if child == 0:
    try:
        lane.restart()
    except NativeFailureError as failure:
        os._exit(7 if failure.kind == "misuse" and "another process" in failure.message else 1)
    os._exit(2)
_, status = os.waitpid(child, 0)
lane.restart()
raise SystemExit(os.waitstatus_to_exitcode(status))
"""


def lane(*, origins: Sequence[str] | None = None, **properties: str) -> NativeLane:
    """A lane of two clusters where no broker listens; with origins, one that guards against loops."""
    nowhere = {"bootstrap.servers": "127.0.0.1:1", **properties}
    return NativeLane(
        nowhere,
        nowhere,
        transactional_id="x",
        transaction_timeout=15.0,
        source_cluster_id="A",
        target_cluster_id="B",
        header=origins is not None,
        guard=origins is not None,
        origins=origins,
    )


def test_the_clusters_whose_records_travel_on_may_be_a_list() -> None:
    """A link tells them as it has them in its configuration."""
    lane(origins=["A", "C"]).route("orders", "orders", target_id=None, max_batch_bytes=1_000_000)


def test_a_forked_child_is_refused_and_its_parent_goes_on() -> None:
    """Both would write into the same connections."""
    ended = subprocess.run(
        [sys.executable, "-c", _FORKED], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 7, ended.stderr


def test_a_target_that_does_not_answer_is_told_as_unreachable() -> None:
    """With what the system said last."""
    with pytest.raises(NativeFailureError, match="refused") as raised:
        lane().open(0.2)
    assert raised.value.kind == "unreachable"


def test_a_property_that_is_not_honoured_is_told_before_anything_connects() -> None:
    """The caller takes the other plane."""
    with pytest.raises(NativeFailureError, match=r"ssl\.crl\.location") as raised:
        lane(**{"ssl.crl.location": "/crl.pem"})
    assert raised.value.kind == "unhonoured"


def test_a_call_before_the_producer_is_open_is_a_fault_of_the_caller() -> None:
    """And no panic."""
    fresh = lane()
    for call in (lambda: fresh.begin(0.1), lambda: fresh.settle(0.1), lambda: fresh.pump(0.1, 1)):
        with pytest.raises(NativeFailureError) as raised:
            call()
        assert raised.value.kind == "misuse"
    fresh.close()
    with pytest.raises(NativeFailureError, match="closed"):
        fresh.restart()


def test_what_cannot_be_read_is_said_once_it_lasts() -> None:
    """The partition that has waited longest stands for the others; the move of a leader is not worth a word."""
    assert stalled_text([("orders", 3, 9.9, "it has no leader")]) == ""
    assert stalled_text([("orders", 3, 12.0, "it has no leader"), ("orders", 1, 1.0, "away")]) == (
        "orders-3 cannot be read for 12 s: it has no leader"
    )
    assert stalled_text(
        [("a", 0, 12.0, "it has no leader"), ("b", 1, 61.2, "away"), ("b", 2, 20.0, "away")]
    ) == ("b-1, and 2 more cannot be read for 61 s: away")
