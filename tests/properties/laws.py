"""
How a law is tried: so many examples, from the run's seed.

Each run of the tests draws other examples; ``EOMIRROR_SEED``, which the header of the run prints, repeats them.
Nothing is kept between runs, so a failure never depends on what this machine has seen before.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, seed, settings

if TYPE_CHECKING:
    from collections.abc import Callable


def law(examples: int) -> Callable[[Any], Any]:
    """Try the test with so many examples; stands above ``@given``."""

    def decorate(test: Any) -> Any:
        tried = settings(
            max_examples=examples,
            deadline=None,  # the machine may be busy; pytest's own limit catches a hang
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )(test)
        # set by fix_kafka.pytest_configure, before test files are imported
        return seed(int(os.environ["EOMIRROR_SEED"], 0))(tried)

    return decorate
