"""A token endpoint on this machine (RFC 6749), and unsigned tokens."""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Reply", "TokenEndpoint", "token_endpoint", "unsigned_token"]


def unsigned_token(**claims: Any) -> str:
    """A JWT with these claims and an empty signature (RFC 7515, appendix A.5)."""
    parts = (json.dumps(part).encode() for part in ({"alg": "none", "typ": "JWT"}, claims))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), ""])


class Reply(NamedTuple):
    """What the endpoint answers."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class TokenEndpoint(ThreadingHTTPServer):
    """
    Answers requests for tokens as it is told.

    Attributes:
        asked: Headers and form of every request.
        answer: Takes a request's headers.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[tuple[dict[str, str], str]] = []
        self.answer: Callable[[Mapping[str, str]], Reply] = lambda _: Reply(200, b"{}", {})

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}/token"

    def says(self, status: int, body: bytes, **headers: str) -> None:
        """Answer every request with this from now on."""
        self.answer = lambda _: Reply(status, body, headers)

    def knows(self, identity: str, secret: str, token: Callable[[], str]) -> None:
        """Give a token to clients that know the secret, from now on."""
        known = "Basic " + base64.b64encode(f"{identity}:{secret}".encode()).decode()

        def answer(headers: Mapping[str, str]) -> Reply:
            body = {"access_token": token(), "token_type": "Bearer", "expires_in": 300}
            status = 200 if headers.get("Authorization") == known else 401
            return Reply(status, json.dumps(body).encode(), {"Content-Type": "application/json"})

        self.answer = answer


class _Handler(BaseHTTPRequestHandler):
    server: TokenEndpoint

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        headers = dict(self.headers)
        self.server.asked.append((headers, form))
        reply = self.server.answer(headers)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is the base class's
        """Say nothing."""


@contextmanager
def token_endpoint() -> Iterator[TokenEndpoint]:
    """A token endpoint in a thread."""
    server = TokenEndpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
