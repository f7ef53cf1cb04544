"""Export by OTLP: a receiver decodes what Prometheus is told as well, and no header reaches a log."""

from __future__ import annotations

import logging
import math
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from test_exposition import FACTS, PROCESS, read, snapshot, status

from eomirror.errors import UsageError
from eomirror.lane.measures import DURATION_BOUNDS
from eomirror.metrics import otlp
from eomirror.metrics.collect import collect
from eomirror.metrics.otlp import OtlpExport, interval_seconds
from eomirror.metrics.verdict import Window
from eomirror.status.live import running_view
from support.judges.otlp_receiver import Receiver, points

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.metrics.families import Sink

SECRET = "planted-header-secret"  # noqa: S105  it is planted
VIEW = running_view(FACTS, snapshot(), status(), 0.3)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver that the variables name, with a secret header."""
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-key={SECRET}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.name=orders-mirror")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    yield made
    made.close()
    library = logging.getLogger("opentelemetry")
    library.handlers, library.propagate = [], True


@contextmanager
def exporting(seconds: float = 0.05) -> Iterator[None]:
    """Exports the link again and again."""

    def fill(out: Sink) -> None:
        collect(out, [(VIEW, Window().judge(VIEW, 0.0))], PROCESS, now_ms=1_000_000, per_group=True)

    export = OtlpExport(fill, version="1.2.3", started=1_700_000_000.5, every_seconds=seconds)
    export.start()
    try:
        yield
    finally:
        export.close()


def wait_for(condition: Any) -> None:
    """Waits for a condition, for 10 s."""
    for _ in range(1_000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("not reached")


def test_a_receiver_is_told_what_prometheus_is(receiver: Receiver) -> None:
    """Every known sample, counters as cumulative sums, histograms with their buckets, under the same names."""
    with exporting():
        wait_for(lambda: receiver.messages)
    headers, message = receiver.messages[0]
    assert (headers["path"], headers["x-key"]) == ("/v1/metrics", SECRET)
    resource = {each.key: each.value.string_value for each in message.resource_metrics[0].resource.attributes}
    assert resource["deployment.environment"] == "test"
    assert resource["service.name"] == "orders-mirror"
    assert resource["service.version"] == "1.2.3"
    found = points(message)
    told = read([VIEW], per_group=True)
    plain = {
        key: value
        for key, value in told.items()
        if not math.isnan(value) and not key[0].endswith(("_bucket", "_sum", "_count"))
    }
    numbers = {key: point for key, point in found.items() if hasattr(point, "as_double")}
    assert {key: point.as_int or point.as_double for key, point in numbers.items()} == pytest.approx(plain)
    assert len(plain) > 60
    (histogram,) = (
        point for (name, _), point in found.items() if name == "eomirror_transaction_duration_seconds"
    )
    assert list(histogram.bucket_counts)[:3] == [3, 1, 0]
    assert (histogram.count, histogram.sum) == (4, 0.03)
    assert list(histogram.explicit_bounds) == list(DURATION_BOUNDS)
    assert not histogram.HasField("min")
    metrics = {each.name: each for each in message.resource_metrics[0].scope_metrics[0].metrics}
    records = metrics["eomirror_records_total"]
    assert records.sum.is_monotonic
    assert records.sum.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert records.sum.data_points[0].start_time_unix_nano == 1_700_000_000_500_000_000
    assert metrics["eomirror_lag_seconds"].unit == "s"
    assert metrics["process_resident_memory_bytes"].unit == "By"


def test_the_last_values_are_exported_at_the_end(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of some seconds has its counters exported, whatever the interval."""
    # a busy machine may take longer than a run's end may
    monkeypatch.setattr(otlp, "_LAST_SECONDS", 30.0)
    with exporting(3_600):
        assert not receiver.messages
    assert len(receiver.messages) == 1


def test_a_failure_is_told_once_without_what_was_sent(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    """The endpoint and its status; neither headers, nor its answer, which repeats them, nor a password in the URL."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url.replace("//", f"//user:{SECRET}@"))
    receiver.code = 401
    with structlog.testing.capture_logs() as logs, exporting():
        wait_for(lambda: len(receiver.messages) >= 3)
        receiver.code = 200
        count = len(receiver.messages)
        wait_for(lambda: len(receiver.messages) >= count + 3)
    # threads of other tests may log as well, and so does a last export that takes too long
    failed, again, *_ = (each for each in logs if each["event"].startswith("metrics_"))
    assert (failed["event"], failed["log_level"]) == ("metrics_not_exported", "warning")
    assert failed["reason"] == "it answers 401"
    assert failed["endpoint"] == receiver.url
    assert again["event"] == "metrics_exported_again"
    shown = repr(logs) + caplog.text + "".join(capfd.readouterr())
    assert SECRET not in shown


def test_an_endpoint_that_is_away_delays_nothing(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waits two seconds for it at most."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    del receiver
    began = threading.Event()
    ended = threading.Event()

    def go() -> None:
        with exporting():
            began.wait(0.3)
        ended.set()

    threading.Thread(target=go, daemon=True).start()
    assert ended.wait(4)


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, 60.0),
        ({"OTEL_METRIC_EXPORT_INTERVAL": "2500"}, 2.5),
        ({"OTEL_SDK_DISABLED": "TRUE"}, None),
        ({"OTEL_METRICS_EXPORTER": "none"}, None),
        ({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, 60.0),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b,c=d=e, "}, 60.0),
    ],
)
def test_the_standard_variables_decide(variables: dict[str, str], seconds: float | None) -> None:
    """Interval, and whether anything is exported."""
    assert interval_seconds(variables) == seconds


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_METRICS_EXPORTER": "prometheus"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "0"},
        {"OTEL_METRIC_EXPORT_INTERVAL": "1m"},
        {"OTEL_EXPORTER_OTLP_HEADERS": f"a=b,{SECRET}"},
    ],
)
def test_what_is_not_offered_is_refused(variables: dict[str, str]) -> None:
    """By the name of the variable; its value may be a secret."""
    with pytest.raises(UsageError, match=next(iter(variables))) as error:
        interval_seconds(variables)
    assert SECRET not in str(error.value)
    assert error.value.fix


def test_nothing_of_opentelemetry_is_imported_without_the_option() -> None:
    """The extra is optional: the commands, and a mirror's endpoints, work without it."""
    program = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'opentelemetry', 'google'}:\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from eomirror.cli.run import _export_interval, run\n"
        "import eomirror.serve.running, eomirror.cli.serve, eomirror.mirror\n"
        "from eomirror.errors import UsageError\n"
        "try:\n"
        "    _export_interval()\n"
        "except UsageError as error:\n"
        "    print(error.message, error.fix)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "--otlp: the module opentelemetry is not installed pip install 'eomirror[otel]'\n"
