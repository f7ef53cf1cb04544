"""
A small HTTP server for read-only endpoints: GET and HEAD without a body, bounded connections, a time limit for each.

It serves a mirror that must not be disturbed, so it takes no more than `_MOST_CONNECTIONS` threads.  A new connection
replaces the oldest one, so idle ones cannot keep the scraper out.

On a loopback address it answers only requests for a local host name.  Otherwise a web page could make a browser on this
machine read from it under a name of the page's own (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import re
import socket
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import structlog

from eomirror.errors import MirrorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Address", "HttpServer", "Request", "Response", "parse_listen"]

_HIGHEST_PORT = 65_535
_LOOPBACK = ("127.", "localhost", "::1")


class Address(NamedTuple):
    """A host and a port to bind."""

    host: str
    port: int

    @property
    def loopback(self) -> bool:
        """True if only processes of this machine can connect."""
        return self.host.startswith(_LOOPBACK)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> Address:
    """
    Parses ``HOST:PORT``, ``[IPV6]:PORT``, or ``PORT`` for this machine only.

    Port 0 takes a free one.

    Raises:
        UsageError: The text is neither.
    """
    host, _, number = text.rpartition(":")
    host = host or "127.0.0.1"
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _refused(text, "an IPv6 address stands in brackets")
    if text.startswith(":"):
        raise _refused(text, "the host is missing")
    if not host or any(character.isspace() or character in "/@" for character in host):
        raise _refused(text, "the host is not a name or an address")
    if not (number.isascii() and number.isdigit()) or int(number) > _HIGHEST_PORT:
        raise _refused(text, f"the port is not a number from 0 to {_HIGHEST_PORT}")
    return Address(host, int(number))


def _refused(text: str, reason: str) -> UsageError:
    return UsageError(
        f"--listen {text}: {reason}",
        fix="write HOST:PORT, such as 127.0.0.1:9464, or 0.0.0.0:9464 for all interfaces",
    )


log = structlog.get_logger(__name__)

_MOST_CONNECTIONS = 32
_IDLE_SECONDS = 20.0
# a shorter body is not worth the work
_COMPRESSED_BYTES = 1_000
_NEVER = frozenset({"q=0", "q=0.0", "q=0.00", "q=0.000"})
# RFC 9110, 5.6.2; a blank before the colon would hide a field from some readers
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})

#: Sent with every answer: nothing may be loaded from elsewhere, framed, guessed or kept.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Request:
    """
    A GET or HEAD request.

    Attributes:
        path: Decoded segments of the path; empty for ``/``.
        query: Values of the query, by name; the last one counts.
        accept: The ``Accept`` header.
    """

    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """
    An answer.

    Attributes:
        body: Its bytes.
        content_type: Their type.
        status: HTTP status code.
    """

    body: bytes
    content_type: str
    status: int = HTTPStatus.OK


class HttpServer:
    """
    Serves requests in threads of their own until it is closed.

    Args:
        address: Address to bind; port 0 takes a free one.
        handle: Answers a request; called from several threads.

    Attributes:
        port: Port that it listens on.

    Raises:
        MirrorError: The address cannot be bound.
    """

    def __init__(self, address: Address, handle: Callable[[Request], Response]) -> None:
        try:
            self._server = _Server(address, handle)
        except (OSError, UnicodeError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else "not a host name"
            fix = "name a free port of an address of this machine: --listen 127.0.0.1:9464"
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                free = address._replace(port=0)
                fix = f"end the process that listens there, or let the system choose a port: --listen {free}"
            raise MirrorError(f"cannot listen on {address}: {reason}", fix=fix) from error
        self.port: int = self._server.server_address[1]
        self.url = f"http://{address._replace(port=self.port)}/"
        if not address.loopback:
            log.warning(
                "listens_without_authentication",
                address=str(address),
                reason="every client that can connect may read names of topics and groups",
            )
        self._thread = threading.Thread(
            target=lambda: self._server.serve_forever(poll_interval=0.1), name="http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Ends all connections."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: Address, handle: Callable[[Request], Response]) -> None:
        self.handle = handle
        self.names = _LOCAL_NAMES if address.loopback else None
        self._lock = threading.Lock()
        self._open: OrderedDict[socket.socket, None] = OrderedDict()
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        self.address_family = family
        super().__init__((address.host, address.port), _Handler)

    def server_bind(self) -> None:
        # the parent's looks up the name of the address, which may take seconds
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MOST_CONNECTIONS:
                oldest, _ = self._open.popitem(last=False)
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # the client has gone, or sent nonsense: nothing that an operator can act on
        del request, client_address
        log.debug("http_connection_failed")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "eomirror"
    sys_version = ""
    timeout = _IDLE_SECONDS

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  named by the standard library
        del format, args

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # the parent's page repeats what the client sent
        del message, explain
        self.close_connection = True
        self._send(Response(f"{HTTPStatus(code).phrase}\n".encode(), "text/plain; charset=utf-8", code))

    def _answer(self) -> None:
        hosts = self.headers.get_all("Host", ())
        lengths = set(self.headers.get_all("Content-Length", ()))
        # What follows a body that is not read would be taken for a request, perhaps of another client of a proxy.
        torn = self.headers.defects or any(not _NAME.fullmatch(name) for name in self.headers)
        if torn or len(hosts) > 1 or lengths - {"0"} or "Transfer-Encoding" in self.headers:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        host = "".join(hosts).lower()
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if self.server.names is not None and name not in self.server.names:
            text = b"this server answers requests for localhost only\n"
            self._send(Response(text, "text/plain; charset=utf-8", HTTPStatus.MISDIRECTED_REQUEST))
            return
        parts = urlsplit(self.path)
        try:
            query = parse_qs(parts.query, max_num_fields=20)
        except ValueError:
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        request = Request(
            tuple(unquote(part) for part in parts.path.split("/") if part),
            {key: values[-1] for key, values in query.items()},
            self.headers.get("Accept") or "",
        )
        try:
            response = self.server.handle(request)
        except Exception:
            log.exception("http_request_failed", path=parts.path)
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        if response.status == HTTPStatus.OK:
            # weak: it is the same for a compressed body
            tag = f'W/"{blake2b(response.body, digest_size=12).hexdigest()}"'
            if tag in (self.headers.get("If-None-Match") or ""):
                response = Response(b"", response.content_type, HTTPStatus.NOT_MODIFIED)
            self._send(response, tag)
        else:
            self._send(response)

    def _send(self, response: Response, tag: str = "") -> None:
        self.send_response(response.status)
        if tag:
            self.send_header("ETag", tag)
        body = response.body
        self.send_header("Content-Type", response.content_type)
        self.send_header("Vary", "Accept-Encoding")
        if len(body) >= _COMPRESSED_BYTES and self._takes_gzip():
            # the fastest level makes a tenth of a page, and a twentieth of metrics
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _takes_gzip(self) -> bool:
        # a request that could not be parsed has no headers
        offers = (getattr(self, "headers", None) or {}).get("Accept-Encoding") or ""
        for offer in offers.lower().split(","):
            name, _, quality = offer.partition(";")
            if name.strip() == "gzip":
                return quality.strip() not in _NEVER
        return False
