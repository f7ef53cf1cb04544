"""
Writes samples in Prometheus' text format 0.0.4, or as OpenMetrics 1.0. Pure.

Names of topics and groups are foreign text: a label value is escaped as both formats demand, so a name can neither end
its line nor its quotes.  Control characters are escaped as well, because a scrape is read in terminals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.lane.measures import Histogram
    from eomirror.metrics.families import Family

__all__ = ["OPENMETRICS_TYPE", "TEXT_TYPE", "Exposition", "wants_openmetrics"]

#: Content type of format 0.0.4.
TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Content type of OpenMetrics.
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# C0, DEL and C1; the formats have no escape for them, so a label's value has the text \\xNN
_CONTROL = {code: f"\\\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_LABEL = str.maketrans({**_CONTROL, "\\": "\\\\", '"': '\\"', "\n": "\\n"})
_HELP = str.maketrans({"\\": "\\\\", "\n": "\\n"})
_TOTAL = "_total"


def wants_openmetrics(accept: str) -> bool:
    """Returns True if an ``Accept`` header names OpenMetrics."""
    return "application/openmetrics-text" in accept


@dataclass(slots=True)
class Exposition:
    """
    Collects samples by family, and writes them.

    Attributes:
        openmetrics: Write OpenMetrics instead of format 0.0.4.
    """

    openmetrics: bool = False
    _lines: dict[str, list[str]] = field(default_factory=dict)
    _families: dict[str, Family] = field(default_factory=dict)

    @property
    def content_type(self) -> str:
        """Content type of the text."""
        return OPENMETRICS_TYPE if self.openmetrics else TEXT_TYPE

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """
        Adds a sample.

        Args:
            family: A counter or a gauge.
            value: Its value; None for NaN.
            labels: Values of the family's labels, in their order.
        """
        self._of(family).append(f"{family.name}{_labels(family.labels, labels)} {_number(value)}\n")

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
        lines = self._of(family)
        counts = histogram.counts or (0,) * (len(bounds) + 1)
        total = 0
        for bound, count in zip((*bounds, math.inf), counts, strict=True):
            total += count
            named = _labels((*family.labels, "le"), (*labels, _number(bound)))
            lines.append(f"{family.name}_bucket{named} {total}\n")
        named = _labels(family.labels, labels)
        lines.append(f"{family.name}_sum{named} {_number(histogram.total)}\n")
        lines.append(f"{family.name}_count{named} {total}\n")

    def text(self) -> bytes:
        """Returns all samples, each family after its HELP and TYPE."""
        parts: list[str] = []
        for name, family in self._families.items():
            shown = name.removesuffix(_TOTAL) if self.openmetrics and family.kind == "counter" else name
            parts.append(f"# HELP {shown} {_help(family.text, quotes=self.openmetrics)}\n")
            parts.append(f"# TYPE {shown} {family.kind}\n")
            parts += self._lines[name]
        if self.openmetrics:
            parts.append("# EOF\n")
        return "".join(parts).encode("utf-8", "replace")

    def _of(self, family: Family) -> list[str]:
        lines = self._lines.get(family.name)
        if lines is None:
            self._families[family.name] = family
            lines = self._lines[family.name] = []
        return lines


# a topic has the same labels in several families, and in each scrape
@lru_cache(maxsize=16_384)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = ",".join(f'{name}="{value.translate(_LABEL)}"' for name, value in zip(names, values, strict=True))
    return f"{{{pairs}}}" if pairs else ""


def _help(text: str, *, quotes: bool) -> str:
    escaped = text.translate(_HELP)
    return escaped.replace('"', '\\"') if quotes else escaped


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    # microseconds are enough; more digits are a tenth of a scrape
    return repr(round(value, 6))
