"""Whether two links write into the same copies."""

from __future__ import annotations

import pytest

from eomirror.config import Link
from eomirror.topology.flow import Flow
from eomirror.topology.naming import Naming
from eomirror.topology.warnings import meeting

IDENTITY, PREFIX = Naming("identity"), Naming()
REPLICA = Naming("match", match="(.*)_REPLICA", to="$1")
SOURCE = Naming("pattern", pattern="{source}_{topic}")
PLAIN = Naming("pattern", pattern="all_{topic}")
NO, MAYBE, YES = Flow


def to_all(*topics: str) -> tuple[Naming, tuple[str, ...]]:
    """These topics become one."""
    return Naming("map", names=tuple((topic, "all") for topic in topics)), topics


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((IDENTITY, ("a",)), (IDENTITY, ("a", "b")), YES),
        ((IDENTITY, ("a",)), (IDENTITY, ("b",)), NO),
        ((IDENTITY, ("a.*",)), (IDENTITY, (".*b",)), MAYBE),
        ((REPLICA, (".*_REPLICA",)), (REPLICA, (".*_REPLICA",)), YES),
        ((PREFIX, (".*",)), (PREFIX, (".*",)), NO),
        ((SOURCE, (".*",)), (SOURCE, (".*",)), NO),
        ((PLAIN, ("a",)), (PLAIN, (".*",)), YES),
        (to_all("a"), to_all("b"), YES),
        (to_all("a"), (IDENTITY, (".*",)), YES),
        (to_all("a"), (IDENTITY, ("b.*",)), NO),
        (to_all("a"), (PREFIX, (".*",)), NO),
        ((Naming("map", names=(("a", "B.x"),)), ("a",)), (PREFIX, ("x",)), YES),
        (to_all("a"), (PLAIN, (".*",)), MAYBE),
        ((PLAIN, (".*",)), (IDENTITY, (".*",)), MAYBE),
        ((PREFIX, (".*",)), (IDENTITY, (".*",)), NO),
    ],
)
def test_names_meet_where_topics_become_one(
    one: tuple[Naming, tuple[str, ...]], other: tuple[Naming, tuple[str, ...]], expected: Flow
) -> None:
    """Certain for names that are spelled out, and for equal policies; on one target only."""
    links = [
        Link(name=source, source=source, target="T", topics=topics, naming=naming)
        for source, (naming, topics) in (("A", one), ("B", other))
    ]
    elsewhere = Link(name="B", source="B", target="U", topics=other[1], naming=other[0])

    assert meeting(*links) is expected
    assert meeting(*reversed(links)) is expected
    assert meeting(links[0], elsewhere) is NO
