"""Files of offsets that cannot be imported, refused before any cluster is asked."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import UsageError, load_config
from eomirror.offsets import import_offsets

CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [{"source": "east", "target": "west", "topics": ["orders"]}],
    }
)
ROW = {"topic": "east.orders", "partition": 0, "offset": 7}


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "is none that"),
        ({"v": 2, "cluster": "west", "groups": {}}, "version 2"),
        ({"v": 1, "cluster": "west", "groups": []}, "is none that"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{"topic": "t"}]}}, "is none that"),
        ({"v": 1, "cluster": "west", "groups": {"g": [{**ROW, "partition": -1}]}}, "is none that"),
        ({"v": 1, "cluster": "north", "groups": {"g": [ROW]}}, "cluster north"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(document: dict[str, Any], why: str) -> None:
    """By what is wrong with it."""
    with pytest.raises(UsageError, match=why):
        import_offsets(CONFIG, document)


def test_a_group_that_the_file_does_not_have_is_refused() -> None:
    """Rather than importing nothing in silence."""
    document = {"v": 1, "cluster": "west", "groups": {"g": [ROW]}}
    with pytest.raises(UsageError, match="no group other"):
        import_offsets(CONFIG, document, group="other")
