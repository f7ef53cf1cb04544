"""Readers of the status of several links, which commands read concurrently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eomirror.errors import MirrorError
from eomirror.kafka.parallel import run_all
from eomirror.status.derive import unread_status
from eomirror.status.hanging import HangingTransactions
from eomirror.status.reader import StatusReader

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.status.model import LinkStatus

__all__ = ["LinkReaders", "more_seconds"]

_MOST_AT_ONCE = 32
# the clients of many links share the CPU with each other and with a mirror: a cluster that answers looked silent
_FEW_LINKS = 8
_SECONDS_PER_LINK = 0.2
_MOST_MORE_SECONDS = 8.0


def more_seconds(links: int) -> float:
    """Returns the time that a cluster may take to answer, beyond that of a status of few links."""
    return min(_MOST_MORE_SECONDS, max(0, links - _FEW_LINKS) * _SECONDS_PER_LINK)


class LinkReaders:
    """
    Reads the status of links; keeps the connections until it is closed.

    Args:
        links: Names of the links; empty for all.
    """

    def __init__(self, config: Config, links: tuple[str, ...]) -> None:
        chosen = [config.link(name) for name in links] if links else list(config.links)
        self._readers = [
            (
                link.name,
                StatusReader(
                    link,
                    config.clusters[link.source],
                    config.clusters[link.target],
                    hanging=HangingTransactions,
                    more_seconds=more_seconds(len(chosen)),
                ),
            )
            for link in chosen
        ]

    def read(self, *, strict: bool = False) -> list[LinkStatus]:
        """
        Returns the status of each link; reads them concurrently, so that an unreachable one delays no other.

        Args:
            strict: Raise the error of a single link that cannot be read; otherwise, and with several links, it is
                shown as unknown.

        Raises:
            MirrorError: The only link cannot be read.
        """
        found: dict[int, LinkStatus] = {}
        alone = strict and len(self._readers) == 1

        def read(place: int) -> None:
            found[place] = _read(*self._readers[place], alone=alone)

        run_all(read, range(len(self._readers)), threads=_MOST_AT_ONCE, name="status")
        return [found[place] for place in range(len(self._readers))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for _, reader in self._readers:
            reader.close()


def _read(link: str, reader: StatusReader, *, alone: bool) -> LinkStatus:
    """Returns the status of a link; unknown if it fails and is not ``alone``, so that the others are shown."""
    try:
        return reader.read()
    except MirrorError as error:
        if alone:
            raise
        return unread_status(link, None, error)
