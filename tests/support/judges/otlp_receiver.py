"""A small receiver of OTLP over HTTP: it decodes the messages with OpenTelemetry's own definitions."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


class Receiver:
    """
    An endpoint of OTLP/HTTP.

    Attributes:
        messages: Decoded requests, each with its headers.
        code: Status that it answers; any but 200 repeats the headers of the request, as a careless proxy would.
    """

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, str], Any]] = []
        self.code = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                message = ExportMetricsServiceRequest.FromString(body)
                # before the answer: a test that sees the exporter end looks here
                receiver.messages.append((dict(self.headers) | {"path": self.path}, message))
                answer = b"" if receiver.code == 200 else str(self.headers).encode()
                reason = None if receiver.code == 200 else f"refused {self.headers['x-key']}"
                self.send_response(receiver.code, reason)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  named by the standard library
                del format, args

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def points(message: Any) -> dict[tuple[str, tuple[tuple[str, str], ...]], Any]:
    """Data points by the name and the labels that Prometheus sees."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], Any] = {}
    for metric in message.resource_metrics[0].scope_metrics[0].metrics:
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            labels = tuple(sorted((each.key, each.value.string_value) for each in point.attributes))
            found[metric.name, labels] = point
    return found
