"""Declares the sink that samples are added to: a text, or a message of OpenTelemetry. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.lane.measures import Histogram
    from eomirror.metrics.families import Family

__all__ = ["Sink"]


class Sink(Protocol):
    """Takes samples: `eomirror.metrics.exposition.Exposition`, `eomirror.metrics.otlp.Samples`."""

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """
        Adds a sample.

        Args:
            family: A counter or a gauge.
            value: Its value; None if it is unknown.
            labels: Values of the family's labels, in their order.
        """

    def add_histogram(
        self, family: Family, histogram: Histogram, bounds: Sequence[float], *labels: str
    ) -> None:
        """
        Adds a histogram.

        Args:
            family: Its family.
            histogram: Its counts.
            bounds: Upper bounds of its buckets, without the last.
            labels: Values of the family's labels, in their order.
        """
