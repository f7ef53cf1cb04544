"""One Spark context for all tests of a session that need the engine, used as it is and left alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark_context() -> Iterator[Any]:
    """A local context with the mirror's own settings; starting one per test would take most of the time."""
    from eomirror import __version__
    from eomirror.spark.context import engine_settings, open_engine

    engine = open_engine(
        None, engine_settings(master=None, configured={}, given={}, version=__version__), lanes=2
    )
    yield engine.context
    engine.close()
