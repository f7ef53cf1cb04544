"""Claims of owners, as tests need them."""

from __future__ import annotations

from typing import Any

from eomirror.records.control import Claim

__all__ = ["claim"]


def claim(run: str = "r", sequence: int = 3, **changes: Any) -> Claim:
    """A claim of a process that cannot be looked for from here, renewed every 5 s."""
    values: dict[str, Any] = {
        "run": run, "host": "h", "pid": 1, "boot": "", "started": "", "sequence": sequence,
        "interval_ms": 5_000, "released": False, "timestamp": 0, **changes,
    }  # fmt: skip
    return Claim(**values)
