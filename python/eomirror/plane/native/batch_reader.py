"""Reads batch headers of a source's log for the client plane, which sees records only (EO-6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror._native import PlaneReader
from eomirror.config.clients import consumer_properties
from eomirror.errors import MirrorError
from eomirror.plane.native.oauth import as_text, with_tokens
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.lane.spec import LaneSpec
    from eomirror.types import SourcePartition

__all__ = ["BatchReader"]

log = structlog.get_logger(__name__)

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 2.0


class BatchReader:
    """A connection of the native plane to a lane's source, opened on first use."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec
        self._reader: PlaneReader | None = None
        self._refused = False

    def holes(
        self, source: SourcePartition, start: int, end: int
    ) -> tuple[list[tuple[int, int]], bool] | None:
        """
        Returns ranges in ``[start, end)`` without a batch, and whether a batch shows that the log was compacted.

        None if the log cannot be read: the native plane cannot honour the source's properties, or gets no answer.
        """
        if self._refused:
            return None
        try:
            if self._reader is None:
                self._reader = self._connect()
            if self._reader is None:
                return None
            return self._reader.holes(*source, start, end, _READ_SECONDS)
        except MirrorError as error:
            log.info("log_gaps_not_checked", lane=self._spec.lane, source=str(source), reason=error.message)
            self.close()
            return None

    def close(self) -> None:
        """Closes the connection; the next read opens a new one."""
        self._reader = None

    def _connect(self) -> PlaneReader | None:
        names = LinkNames(self._spec.link.state_name)
        client_id = names.client_id(f"lane-{self._spec.lane}")
        properties, tokens = with_tokens(as_text(consumer_properties(self._spec.source, client_id=client_id)))
        if rejections := PlaneReader.unsupported_properties(properties, tokens):
            self._refused = True
            reason = "; ".join(f"{name}: {why}" for name, why in rejections)
            log.warning("log_gaps_not_checked", lane=self._spec.lane, reason=reason)
            return None
        return PlaneReader(properties, _CONNECT_SECONDS, tokens)
