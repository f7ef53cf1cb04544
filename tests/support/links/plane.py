"""Which plane the mirrors of tests use: one suite serves both (``pytest --plane native``)."""

from __future__ import annotations

import os

__all__ = ["PLANES", "VARIABLE", "plane_under_test"]

PLANES = ("client", "native")
# also for tests that start programs, and for a whole run: EOMIRROR_TEST_PLANE=native just faults
VARIABLE = "EOMIRROR_TEST_PLANE"


def plane_under_test() -> str:
    """``client``, unless this run asks for ``native``."""
    return os.environ.get(VARIABLE, PLANES[0])
