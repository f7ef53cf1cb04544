"""Runs lanes as long Spark tasks, and holds what DataFrames use: `sink` and `write`, imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eomirror.dataframe.sink import sink, write

__all__ = ["sink", "write"]


def __getattr__(name: str) -> Any:
    # lanes import this package in every worker, and need none of it
    if name in __all__:
        from eomirror.dataframe import sink as module

        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
