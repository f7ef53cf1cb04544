"""A listener that expects a login: it answers ApiVersions and closes the connection at another request, as Kafka."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["sasl_listener"]

_API_VERSIONS = 18
# API keys with their lowest and highest version, as a broker tells them before the login
_APIS = ((0, 3, 12), (1, 4, 17), (3, 0, 12), (17, 0, 1), (18, 0, 3), (36, 0, 2), (60, 0, 2))


@contextmanager
def sasl_listener() -> Iterator[str]:
    """Serves while the block runs; gives the address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=_answer, args=(client,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def _answer(client: socket.socket) -> None:
    with client, client.makefile("rb") as requests:
        while len(head := requests.read(12)) == 12:
            size, key, version, correlation = struct.unpack(">ihhi", head)
            requests.read(size - 8)
            if key != _API_VERSIONS:
                return
            # of a version above 0 the answer is that of version 0 with UNSUPPORTED_VERSION; the client asks again
            body = struct.pack(">ihi", correlation, 35 if version else 0, len(_APIS))
            body += b"".join(struct.pack(">hhh", *each) for each in _APIS)
            client.sendall(struct.pack(">i", len(body)) + body)
