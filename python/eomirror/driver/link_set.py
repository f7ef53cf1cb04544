"""
The links of a run: a thread for each, which begin and end as the configuration says.

A changed configuration comes from any thread; the driver's loop takes it between two looks.  A link that has to begin
again ends first: its thread stays until it is over, and the next one has another run id, so that no transaction has the
name of one before.
"""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING

from eomirror.clock import new_run_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.config.changes import ConfigChanges
    from eomirror.driver.link import LinkThread
    from eomirror.driver.link_tools import Copies

__all__ = ["LinkSet"]


class LinkSet:
    """
    Holds the threads of the links.  Not thread-safe, but for `later`, `get` and iteration.

    Args:
        given: Each link with its source and target cluster.
        make: Makes the thread of a link, given the id of its run; ``first`` is True until the link was taken once.
        copies: Pairs of topics that the links have claimed.
    """

    def __init__(
        self,
        given: Sequence[tuple[Link, Cluster, Cluster]],
        make: Callable[..., LinkThread],
        copies: Copies,
    ) -> None:
        self._given = list(given)
        self._make = make
        self._copies = copies
        copies.configure(self.given)
        self._threads: dict[str, LinkThread] = {}
        # links that were asked to end for a change
        self._leaving: set[str] = set()
        # links of the start that were not taken yet
        self._untaken: set[str] = set()
        self._refused = ""
        self._due: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[LinkThread]:
        return iter(list(self._threads.values()))

    def get(self, name: str) -> LinkThread | None:
        """Returns the thread of a link; None for an unknown name."""
        return self._threads.get(name)

    @property
    def given(self) -> list[Link]:
        """The links of the configuration."""
        return [link for link, *_ in self._given]

    @property
    def lanes(self) -> int:
        """Number of lanes of all links."""
        return sum(link.lanes for link in self.given)

    @property
    def over(self) -> bool:
        """True if no link runs or will begin."""
        return not self._about_to_begin and all(thread.over for thread in self)

    @property
    def idle_for_good(self) -> bool:
        """True if no link has, or will have, something to mirror."""
        return not self._about_to_begin and all(
            thread.over or thread.progress.idle_for_good for thread in self
        )

    @property
    def _about_to_begin(self) -> bool:
        # one that was superseded stands by again: the next look begins it
        return bool(self._leaving) or any(thread.progress.superseded for thread in self)

    def make(self, run: str) -> None:
        """Makes the threads of all links, without starting them."""
        self._threads = {
            link.name: self._make(link, source, target, run, first=True)
            for link, source, target in self._given
        }
        self._untaken = set(self._threads)

    def start(self) -> None:
        """Starts them."""
        for thread in self:
            thread.start()

    def later(self, change: Callable[[], None]) -> None:
        """Lets the next `look` call ``change``; may be called from any thread."""
        self._due.put(change)

    def take(self, given: Sequence[tuple[Link, Cluster, Cluster]], changes: ConfigChanges) -> None:
        """
        Takes the links of a changed configuration.

        Args:
            given: As of the constructor.
            changes: What differs.
        """
        self._given = list(given)
        self._copies.configure(self.given)
        by_name = {link.name: link for link in self.given}
        again = dict(changes.again)
        for name, settings in changes.live.items():
            if (thread := self._threads.get(name)) is None:
                # an earlier change of the same look begins it, with the newest settings
                continue
            if thread.lanes and not thread.over and thread.progress.error is None:
                thread.configuration.changed(", ".join(settings))
                thread.reconfigure(by_name[name])
            else:
                # nothing to keep: what it waits for may be what the change mends
                again[name] = settings
        for name in (*changes.ended, *again):
            told = f"{', '.join(again[name])}: the link begins again" if name in again else "the link ends"
            if (thread := self._threads.get(name)) is not None:
                thread.configuration.changed(told)
                thread.request_stop(alone=True)
                self._leaving.add(name)

    def show_refusal(self, reason: str) -> None:
        """Shows the reason for which a changed configuration is refused; an empty one once one is taken."""
        self._refused = reason
        for thread in self:
            thread.configuration.refuse(reason)

    def look(self) -> None:
        """Takes what is due; begins the links that lack a thread, and those that stand by again."""
        while not self._due.empty():
            self._due.get()()
        self._untaken -= {thread.name for thread in self if thread.generation is not None}
        for name in [name for name in self._leaving if self._threads[name].over]:
            self._leaving.discard(name)
            self._threads.pop(name).give_up(self._copies)
        # its last records may be those that a link begun now has to know, or that it writes too
        writing = any(self._threads[name].lanes for name in self._leaving)
        for link, source, target in self._given:
            thread = self._threads.get(link.name)
            if thread is None and writing:
                continue
            # a mirror that stands by lets another one take the link
            if thread is None or (thread.progress.superseded and thread.over):
                first = link.name in self._untaken
                made = self._make(link, source, target, new_run_id(), first=first)
                made.configuration.refuse(self._refused)
                self._threads[link.name] = made
                made.start()
