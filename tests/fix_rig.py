"""Fixtures of the fault rig: clusters behind proxies, and how often a seeded fault is repeated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rig.clusters import Rig

if TYPE_CHECKING:
    from collections.abc import Iterator

REPEATS = int(os.environ.get("EOMIRROR_REPEATS", "2"))
"""How often a test repeats a seeded fault; ``EOMIRROR_REPEATS=200`` for a long run."""


@pytest.fixture(scope="session")
def session_rig() -> Iterator[Rig]:
    """The session's rig; a side that no test asks for never starts."""
    rig = Rig()
    yield rig
    rig.close()


@pytest.fixture
def rig(session_rig: Rig, seed: int, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The rig, whole again for each test: no rules, no connections, randomness of this test's own."""
    session_rig.reset(f"{seed}/{request.node.nodeid}")
    yield session_rig
    trouble = session_rig.trouble()
    session_rig.reset("")
    assert not trouble, trouble
