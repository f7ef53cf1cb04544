"""
Runs blocking calls in threads that never keep the process from ending: one beside the caller, or one for many items.

`concurrent.futures` joins its threads when the interpreter ends, and a call to a cluster that stands still may take
a minute: a mirror that was told to stop in that minute would not.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["in_thread", "run_all"]

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_thread(call: Callable[[], Result], *, name: str) -> Future[Result]:
    """Starts a call in a thread of this name; returns at once."""
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again by the caller's thread
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def run_all(call: Callable[[Item], object], items: Iterable[Item], *, threads: int, name: str) -> None:
    """
    Calls ``call`` with every item; returns when all calls have ended.

    Args:
        call: May block and raise.
        threads: Maximum number of concurrent calls.
        name: Of the threads.

    Raises:
        BaseException: The error of the first failed call; items that had not started by then are skipped.
    """
    waiting: queue.SimpleQueue[Item] = queue.SimpleQueue()
    count = 0
    for item in items:
        waiting.put(item)
        count += 1
    done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
    failed = threading.Event()

    def work() -> None:
        while not failed.is_set():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                call(item)
            except BaseException as error:  # noqa: BLE001  raised again by the caller's thread
                failed.set()
                done.put(error)
                return
            done.put(None)

    for number in range(min(threads, count)):
        threading.Thread(target=work, name=f"{name}-{number}", daemon=True).start()
    for _ in range(count):
        error = done.get()
        if error is not None:
            raise error
