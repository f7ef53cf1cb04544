"""A configuration of one link, for tests that send nothing."""

from __future__ import annotations

from eomirror import load_config

__all__ = ["CONFIG"]

CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"source": "east", "target": "west", "topics": ["orders"]}],
    }
)
