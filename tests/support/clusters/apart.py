"""
A `FaultProxy` in a process of its own, for tests whose traffic would compete with it for the interpreter's lock.

Every method is called over a pipe and answers as it would here; rules and events are plain data.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from multiprocessing.managers import BaseManager
from typing import TYPE_CHECKING, cast

from support.clusters.proxy import FaultProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["proxy_apart"]


class _Manager(BaseManager):
    """Hosts the proxy."""


_Manager.register("FaultProxy", FaultProxy)


@contextlib.contextmanager
def proxy_apart(port: int, upstream_port: int, *, seed: int | str = 0) -> Iterator[FaultProxy]:
    """
    A proxy in a new process; both end with the block.

    Args:
        port: As of `FaultProxy`.
        upstream_port: As of `FaultProxy`.
        seed: As of `FaultProxy`.
    """
    # not forked: this process has threads, librdkafka's among them
    manager = _Manager(ctx=multiprocessing.get_context("spawn"))
    manager.start()
    try:
        proxy = cast("FaultProxy", manager.FaultProxy(port, upstream_port, seed=seed))  # type: ignore[attr-defined]
        yield proxy
        proxy.close()
    finally:
        manager.shutdown()
