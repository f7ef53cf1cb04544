"""The HTTP server: read-only, bounded, silent about what it was sent; on loopback for local names only."""

from __future__ import annotations

import gzip
import http.client
import socket
import time
from typing import TYPE_CHECKING

import pytest

from eomirror.errors import MirrorError
from eomirror.serve import http as server_module
from eomirror.serve.http import Address, HttpServer, Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """Repeats the request as its answer."""

    def handle(request: Request) -> Response:
        if request.path == ("fails",):
            raise ValueError("a detail that stays inside")
        return Response(repr((request.path, dict(request.query))).encode(), "text/plain")

    made = HttpServer(Address("127.0.0.1", 0), handle)
    yield made
    made.close()


def ask(
    server: HttpServer, method: str, path: str, host: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, headers={} if host is None else {"Host": host})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def test_a_request_is_decoded(server: HttpServer) -> None:
    """Segments of the path and values of the query are text, whatever was escaped in them."""
    status, headers, body = ask(server, "GET", "/links/east-%3Ewest/a%2Fb?q=%3Cscript%3E&q=2")
    assert (status, body) == (200, b"(('links', 'east->west', 'a/b'), {'q': '2'})")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]


def test_head_has_the_headers_and_no_body(server: HttpServer) -> None:
    """HEAD says how long the body of GET is."""
    status, headers, body = ask(server, "HEAD", "/")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    ("offer", "taken"),
    [("gzip", True), ("deflate, GZIP;q=0.5, br", True), ("gzip;q=0", False), ("gzip; q=0.000", False),
     ("br", False), ("", False), ("x-gzipped", False)],
)  # fmt: skip
def test_a_body_is_compressed_for_a_client_that_takes_it(offer: str, *, taken: bool) -> None:
    """It is the same body, under the same tag; a short one is sent as it is."""
    long = b"eomirror_lag_records 1\n" * 10_000
    server = HttpServer(
        Address("127.0.0.1", 0),
        lambda request: Response(long if request.path == ("long",) else b"short", "text/plain"),
    )
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        tags = []
        for path, headers in (("/long", {"Accept-Encoding": offer}), ("/long", {"Accept-Encoding": ""})):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            packed = answer.getheader("Content-Encoding") == "gzip"
            assert packed == (taken and offer == headers["Accept-Encoding"])
            assert len(body) == int(answer.getheader("Content-Length") or -1)
            assert (gzip.decompress(body) if packed else body) == long
            assert answer.getheader("Vary") == "Accept-Encoding"
            if packed:
                assert len(body) < len(long) / 20
            tags.append(answer.getheader("ETag"))
        assert tags[0] == tags[1]
        connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
        assert connection.getresponse().read() == b"short"
    finally:
        connection.close()
        server.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X<script>"])
def test_no_other_method_does_anything(server: HttpServer, method: str) -> None:
    """The answer repeats nothing of the request."""
    status, _, body = ask(server, method, "/%3Cscript%3E")
    assert (status, body) == (501, b"Not Implemented\n")


def test_a_failure_is_an_answer_without_details(server: HttpServer) -> None:
    """And the server goes on."""
    status, _, body = ask(server, "GET", "/fails")
    assert (status, body) == (500, b"Internal Server Error\n")
    assert ask(server, "GET", "/")[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:9464", 200), ("127.0.0.1", 200), ("[::1]:1", 200), ("evil.example", 421), ("", 421)],
)
def test_only_local_names_are_answered_on_loopback(server: HttpServer, host: str, status: int) -> None:
    """A web page whose name resolves to 127.0.0.1 reads nothing."""
    assert ask(server, "GET", "/", host)[0] == status


@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 36", "Content-Length: +36", "Content-Length: 0\r\nContent-Length: 36", "Content-Length:",
        "Transfer-Encoding: chunked", "Transfer-Encoding: identity\r\nContent-Length: 36", "Host: evil.example",
        "host: localhost", "Content-Length : 36", "Transfer-Encoding\t: chunked", "no field",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_and_a_second_host_are_refused(server: HttpServer, method: str, lines: str) -> None:
    """RFC 9112, 3.2 and 6.3: what follows the head on the connection is no second request."""
    behind = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(f"{method} / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n{behind}".encode())
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert b"smuggled" not in answer


def test_an_empty_body_is_none(server: HttpServer) -> None:
    """Some clients announce it."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_idle_connections_keep_no_scraper_out(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new connection replaces the oldest one."""
    monkeypatch.setattr(server_module, "_MOST_CONNECTIONS", 4)
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(12)]
    try:
        assert ask(server, "GET", "/")[0] == 200
        idle[0].settimeout(10)
        assert idle[0].recv(1) == b""
    finally:
        for each in idle:
            each.close()


def test_a_port_in_use_is_named(server: HttpServer) -> None:
    """The error says what and where."""
    with pytest.raises(MirrorError, match=rf"cannot listen on 127\.0\.0\.1:{server.port}: .*in use") as taken:
        HttpServer(Address("127.0.0.1", server.port), lambda _: Response(b"", ""))
    # an option that works as it is written
    assert "--listen 127.0.0.1:0" in taken.value.fix


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a" * 70 + ".example"])
def test_a_foreign_address_is_named(host: str) -> None:
    """An address of another machine, or of none."""
    with pytest.raises(MirrorError, match="cannot listen on"):
        HttpServer(Address(host, 0), lambda _: Response(b"", ""))


def test_a_server_that_closes_frees_its_port(server: HttpServer) -> None:
    """A mirror that restarts takes the port again at once."""
    ask(server, "GET", "/")
    server.close()
    began = time.monotonic()
    again = HttpServer(Address("127.0.0.1", server.port), lambda _: Response(b"x", "text/plain"))
    try:
        assert ask(again, "GET", "/")[2] == b"x"
    finally:
        again.close()
    assert time.monotonic() - began < 10


def test_a_client_that_has_the_answer_gets_no_body(server: HttpServer) -> None:
    """A page that looks every few seconds costs a header while nothing changes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("GET", "/same")
        answer = connection.getresponse()
        tag = answer.getheader("ETag") or ""
        answer.read()
        for path, status in (("/same", 304), ("/other", 200), ("/fails", 500)):
            connection.request("GET", path, headers={"If-None-Match": tag})
            answer = connection.getresponse()
            assert (answer.status, bool(answer.read())) == (status, status != 304)
    finally:
        connection.close()
