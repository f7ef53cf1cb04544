"""A client without a login at a listener that expects one is told so within seconds; a listener is played."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from eomirror.config import Cluster
from eomirror.errors import UnreachableError
from eomirror.kafka.admin import identify
from support.clusters.sasl_listener import sasl_listener

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG = """
clusters:
  east: {{bootstrap.servers: "{0}"}}
  west: {{bootstrap.servers: "{0}"}}
links:
  - {{name: l, source: east, target: west, topics: [orders]}}
"""


@pytest.mark.parametrize("properties", [{}, {"security.protocol": "plaintext"}])
def test_a_listener_that_expects_a_login_is_named_as_the_cause(properties: dict[str, str]) -> None:
    """It closes each connection at the first request, which librdkafka tells its log alone."""
    with sasl_listener() as address:
        began = time.monotonic()
        with pytest.raises(UnreachableError, match="connecting to a SASL listener") as raised:
            identify(Cluster("east", {**properties, "bootstrap.servers": address}), client_id="test")

    assert "security.protocol" in raised.value.fix
    assert "timed out" not in raised.value.message
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "command", ["plan", "status", "lag", "verify", "readiness", "failover --yes --dry-run", "offsets groups"]
)
def test_every_command_says_so(tmp_path: Path, command: str) -> None:
    """Each connects through the same client first."""
    first, *rest = command.split()
    words = [first, *rest] if first == "offsets" else [first]
    path = tmp_path / "mirror.yaml"
    with sasl_listener() as address:
        path.write_text(_CONFIG.format(address))
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", *words, str(path), *([] if first == "offsets" else rest)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    assert done.returncode != 0
    assert "connecting to a SASL listener" in done.stdout + done.stderr
