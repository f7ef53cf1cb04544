"""A lane's mailbox in which nothing new ever lies: no partitions, no groups."""

from __future__ import annotations

from typing import Any

__all__ = ["QuietMailbox"]


class QuietMailbox:
    """What every mailbox of a test needs besides `report` and `stop`."""

    def added(self) -> tuple[Any, ...]:
        """No partitions."""
        return ()

    def released(self) -> None:
        """None are taken."""

    def descriptor(self) -> None:
        """Nothing arrives."""

    def followed(self) -> tuple[Any, ...]:
        """No groups."""
        return ()

    def answer(self, offsets: tuple[Any, ...]) -> None:
        """No driver asks."""
        del offsets
