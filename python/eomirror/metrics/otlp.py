"""
Sends the metrics by OTLP over HTTP, as protobuf (OpenTelemetry); needs the extra ``otel``.

The standard variables OTEL_* configure it: OpenTelemetry's own exporter reads endpoint, headers, certificates,
compression and timeout.  Its log lines are dropped: they repeat what the endpoint answers, and headers that it cannot
parse, and both may hold a password.  `OtlpExport` logs a failure with its status code instead.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.lane.measures import Histogram as Counts
    from eomirror.metrics.families import Family, Sink

__all__ = ["OtlpExport", "Samples", "interval_seconds"]

log = structlog.get_logger(__name__)

_DEFAULT_INTERVAL_MS = 60_000
# the end of a run takes at most 5 s, and its last counters are worth a part of it
_LAST_SECONDS = 2.0
_PROTOCOL = "http/protobuf"
_UNITS = (("_seconds", "s"), ("_bytes", "By"))
_STATUS = range(100, 600)
# optional in the protocol, though not in the types
_NO_EXTREMES: dict[str, Any] = {"min": None, "max": None}


def interval_seconds(environment: Mapping[str, str]) -> float | None:
    """
    Returns the seconds between two exports; None if the variables switch the export off.

    Raises:
        UsageError: A variable asks for what is not offered.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    wanted = environment.get("OTEL_METRICS_EXPORTER", "").strip().lower() or "otlp"
    if wanted == "none":
        return None
    if wanted != "otlp":
        raise _refused("OTEL_METRICS_EXPORTER", "names another exporter", "leave it out, or set it to otlp")
    for name in ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if environment.get(name, "").strip().lower() not in {"", _PROTOCOL}:
            raise _refused(name, "asks for another protocol", f"set it to {_PROTOCOL}, usually on port 4318")
    for name in ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"):
        for number, header in enumerate(environment.get(name, "").split(","), 1):
            if header.strip() and "=" not in header:
                raise _refused(name, f"header {number} is not NAME=VALUE", "separate headers by commas")
    text = environment.get("OTEL_METRIC_EXPORT_INTERVAL", "").strip() or str(_DEFAULT_INTERVAL_MS)
    if not (text.isascii() and text.isdigit() and int(text)):
        raise _refused("OTEL_METRIC_EXPORT_INTERVAL", "is not a number of ms", "write 60000 for a minute")
    return int(text) / 1000


class Samples:
    """
    Collects samples as OpenTelemetry's metrics: a `Sink`.

    A counter is a cumulative sum.  A value that is unknown (NaN) has no data point.

    Args:
        started_ns: Start of this process, ns since the epoch.
        now_ns: Wall clock.
    """

    def __init__(self, started_ns: int, now_ns: int) -> None:
        self._started_ns, self._now_ns = started_ns, now_ns
        self._numbers: dict[Family, list[NumberDataPoint]] = {}
        self._histograms: dict[Family, list[HistogramDataPoint]] = {}

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """Adds a sample of a counter or gauge."""
        if value is None or math.isnan(value):
            return
        named = dict(zip(family.labels, labels, strict=True))
        point = NumberDataPoint(named, self._started_ns, self._now_ns, value)
        self._numbers.setdefault(family, []).append(point)

    def add_histogram(self, family: Family, histogram: Counts, bounds: Sequence[float], *labels: str) -> None:
        """Adds a histogram."""
        counts = histogram.counts or (0,) * (len(bounds) + 1)
        point = HistogramDataPoint(
            attributes=dict(zip(family.labels, labels, strict=True)),
            start_time_unix_nano=self._started_ns,
            time_unix_nano=self._now_ns,
            count=sum(counts),
            sum=histogram.total,
            bucket_counts=counts,
            explicit_bounds=bounds,
            **_NO_EXTREMES,
        )
        self._histograms.setdefault(family, []).append(point)

    def metrics(self) -> list[Metric]:
        """Returns all metrics."""
        cumulative = AggregationTemporality.CUMULATIVE
        found = []
        for family, numbers in self._numbers.items():
            data = Sum(numbers, cumulative, is_monotonic=True) if family.kind == "counter" else Gauge(numbers)
            found.append(Metric(family.name, family.text, _unit(family.name), data))
        for family, points in self._histograms.items():
            found.append(Metric(family.name, family.text, _unit(family.name), Histogram(points, cumulative)))
        return found


class OtlpExport:
    """
    Exports the metrics again and again in a thread of its own, and once more at its end.

    Args:
        collect: Adds all samples to a sink.
        version: Release of eomirror.
        started: Start of this process, seconds since the epoch.
        every_seconds: Seconds between two exports.
    """

    def __init__(
        self,
        collect: Callable[[Sink], None],
        *,
        version: str,
        started: float,
        every_seconds: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._collect = collect
        self._started_ns = int(started * 1_000_000_000)
        self._every = every_seconds
        self._clock = clock
        self._codes = _Codes()
        library = logging.getLogger("opentelemetry")
        library.handlers, library.propagate = [self._codes], False
        self._exporter = OTLPMetricExporter()
        named = {"service.name": "eomirror", "service.version": version}
        self._resource = Resource(named).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("eomirror", version)
        self._failing = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)

    def start(self) -> None:
        """Starts to export."""
        log.info("exports_metrics", endpoint=_endpoint(os.environ), every_seconds=self._every)
        self._thread.start()

    def close(self) -> None:
        """Exports the last values, for at most two seconds, and ends."""
        self._over.set()
        self._thread.join(_LAST_SECONDS)
        self._exporter.shutdown()

    def _run(self) -> None:
        while True:
            over = self._over.wait(self._every)
            try:
                self._export()
            except Exception:
                log.exception("metrics_not_exported", endpoint=_endpoint(os.environ))
            if over:
                return

    def _export(self) -> None:
        samples = Samples(self._started_ns, self._clock.wall_ms() * 1_000_000)
        self._collect(samples)
        scope = ScopeMetrics(self._scope, samples.metrics(), "")
        result = self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        failed, code = result is not MetricExportResult.SUCCESS, self._codes.take()
        if failed and not self._failing:
            reason = "it does not answer in time" if code is None else f"it answers {code}"
            log.warning(
                "metrics_not_exported",
                endpoint=_endpoint(os.environ),
                reason=reason,
                fix="check OTEL_EXPORTER_OTLP_ENDPOINT and _HEADERS; every interval it is tried again",
            )
        elif self._failing and not failed:
            log.info("metrics_exported_again", endpoint=_endpoint(os.environ))
        self._failing = failed


class _Codes(logging.Handler):
    """Takes the log of OpenTelemetry; of each line it keeps the status code alone."""

    _last: int | None = None

    def take(self) -> int | None:
        """Returns the newest code since the last call; None if there was none."""
        code, self._last = self._last, None
        return code

    def emit(self, record: logging.LogRecord) -> None:
        given = record.args if isinstance(record.args, tuple) else ()
        for each in given:
            if isinstance(each, int) and each in _STATUS:
                self._last = each


def _unit(name: str) -> str:
    bare = name.removesuffix("_total")
    return next((unit for end, unit in _UNITS if bare.endswith(end)), "")


def _endpoint(environment: Mapping[str, str]) -> str:
    """Returns scheme, host and port of the endpoint: a URL may hold a password."""
    found = environment.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") or environment.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"
    )
    parts = urlsplit(found)
    try:
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        port = ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def _refused(name: str, reason: str, fix: str) -> UsageError:
    # the value may be a secret
    return UsageError(f"--otlp: the variable {name} {reason}", fix=fix)
