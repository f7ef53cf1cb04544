"""The page in Chromium: it runs under its own policy, updates in place, and foreign names do no harm."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from test_page import EVIL, STATUS, served

from eomirror.serve.address import Address
from eomirror.serve.http import HttpServer, Request, Response

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = shutil.which("chromium")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"), pytest.mark.timeout(120),
]  # fmt: skip


def test_a_page_updates_itself_and_runs_no_foreign_script(tmp_path: Path) -> None:
    """Chromium shows what a later read found; it reports neither a refused resource nor an error of the script."""
    first, later = (served(replace(STATUS, rate=rate)) for rate in (4_111.0, 4_777.0))
    shown: list[Request] = []

    def answer(request: Request) -> Response:
        if request.path[:1] != ("links",):
            return later.answer(request)
        shown.append(request)
        return (first if len(shown) == 1 else later).answer(request)

    server = HttpServer(Address("127.0.0.1", 0), answer)
    try:
        done = subprocess.run(
            [
                str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0",
                f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom",
                f"{server.url}links/east-%3Ewest",
            ],
            capture_output=True, text=True, timeout=100, check=True,
        )  # fmt: skip
    finally:
        server.close()
    page = done.stdout
    assert "Pause updates</button>" in page
    assert 'hidden="">Pause' not in page, "page.js did not run"
    assert "4,777 records/s" in page
    assert "4,111" not in page
    assert "CONSOLE" not in done.stderr, done.stderr
    # the heading of a foreign name is text, not an element
    assert "<script>alert" not in page
    assert EVIL.split("(", maxsplit=1)[0].replace("<", "&lt;").replace(">", "&gt;") in page
