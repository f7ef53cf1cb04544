"""SIGTERM as an exception, for commands that must undo or record something when they are ended."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["terminable"]


@contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM unwind the stack, as Ctrl-C does."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
