"""Addresses of --listen: what is bound, and what is refused with a reason."""

from __future__ import annotations

import pytest

from eomirror.errors import UsageError
from eomirror.serve.http import Address, parse_listen


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:9464", Address("127.0.0.1", 9464), True),
        ("9464", Address("127.0.0.1", 9464), True),
        ("localhost:0", Address("localhost", 0), True),
        ("[::1]:80", Address("::1", 80), True),
        ("0.0.0.0:9464", Address("0.0.0.0", 9464), False),  # noqa: S104  parsed, not bound
        ("mirror.example:9464", Address("mirror.example", 9464), False),
    ],
)
def test_an_address_is_read(text: str, address: Address, loopback: bool) -> None:
    """A port alone is for this machine only."""
    assert parse_listen(text) == address
    assert address.loopback is loopback


@pytest.mark.parametrize(
    "text",
    ["", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "1.2.3.4:65536", "::1:80", "a b:80",
     "http://localhost:80", "localhost:-1", "localhost:٣", "[]:80"],
)  # fmt: skip
def test_another_text_is_refused(text: str) -> None:
    """The error shows the text and a good one."""
    with pytest.raises(UsageError, match=r"--listen .*") as refused:
        parse_listen(text)
    assert "127.0.0.1:9464" in refused.value.fix
