"""Which groups `offsets groups` asks for: those that the link follows, by the same engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.config import Link
from eomirror.errors import UsageError
from eomirror.groups.offset_queries import group_matcher

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ["Billing", "billing", "billing-2", "x"]


def matcher(groups: str | None, *patterns: str) -> Callable[[str], bool]:
    """Of a link that follows groups by these patterns."""
    link = Link(name="one", source="a", target="b", topics=("t",), groups=patterns or (".*",))
    return group_matcher(link, None, groups)


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ((r"\p{Lu}.*",), ["Billing"]),
        (("[a-z&&[^x]]+",), ["billing"]),
        (("billing", "x"), ["billing", "x"]),
        ((".*",), NAMES),
    ],
)
def test_a_pattern_of_the_link_means_what_it_means_to_the_mirror(
    patterns: tuple[str, ...], found: list[str]
) -> None:
    """Also one that Python's expressions do not know, or read in another way."""
    assert [name for name in NAMES if matcher(None, *patterns)(name)] == found


def test_a_pattern_of_the_command_wins_over_the_link_s() -> None:
    """It matches whole names."""
    assert [name for name in NAMES if matcher("billing", "none")(name)] == ["billing"]


@pytest.mark.parametrize("groups", ["(", "(?!x).*"])
def test_a_pattern_that_is_none_is_named(groups: str) -> None:
    """With what to write."""
    with pytest.raises(UsageError, match="--groups"):
        matcher(groups)


def test_a_group_id_with_a_line_feed_is_a_group_like_any_other() -> None:
    """Followed and excluded as patterns say: a dot matches each letter that an id may have."""
    assert matcher(None)("a\nb")
    assert matcher("a.b", "none")("a\nb")
    link = Link(name="one", source="a", target="b", topics=("t",), groups=("a.*",), exclude_groups=(".*b",))
    assert not group_matcher(link, None)("a\nb")
