"""Patterns that match nothing, because the other list excludes all of it."""

from __future__ import annotations

import pytest

from eomirror import load_config
from eomirror.topology.covered import MATCHES_NOTHING, covered_patterns

DEFAULTS = ("console-consumer-.*", "connect-.*", "__.*")


@pytest.mark.parametrize(
    ("pattern", "exclude"),
    [
        ("connect-.*", DEFAULTS),
        ("connect-sink", DEFAULTS),
        ("connect-(a|b).*", DEFAULTS),
        (r"connect\-[a-z]+\.s3", DEFAULTS),
        ("__consumer.*", DEFAULTS),
        ("a.*|b.*", ("[ab].*",)),
        (".*-internal", (r".*[\-.]internal",)),
        ("orders", (".*",)),
        (r"pay\.in", (r"pay[.]in",)),
    ],
)
def test_a_pattern_whose_names_are_all_excluded_is_found(pattern: str, exclude: tuple[str, ...]) -> None:
    """Whatever the two are written like."""
    ((found, other),) = covered_patterns((pattern,), exclude)
    assert (found, other in exclude) == (pattern, True)


@pytest.mark.parametrize(
    ("pattern", "exclude"),
    [
        (".*", DEFAULTS),
        ("connect.*", DEFAULTS),
        ("(connect|app)-.*", DEFAULTS),
        ("orders.*", ("orders",)),
        ("orders.*", (r"orders\.internal", "orders-.*")),
        ("[0-9]+", ("[a-z]+",)),
        ("app", ()),
        (r"a\.b", ("a-b",)),
    ],
)
def test_a_pattern_of_which_names_are_left_is_not(pattern: str, exclude: tuple[str, ...]) -> None:
    """No false alarm."""
    assert covered_patterns((pattern,), exclude) == []


@pytest.mark.parametrize(
    ("key", "against", "values"),
    [
        ("groups", "exclude_groups", {"groups": ["app-.*", "connect-.*"]}),
        ("topics", "exclude", {"topics": ["a", "pay.*"], "exclude": ["p.*"]}),
    ],
)
def test_a_configuration_says_so(key: str, against: str, values: dict[str, list[str]]) -> None:
    """With the list that excludes it, as `check` and `run` show."""
    link = {"source": "east", "target": "west", "topics": ["a"], "exclude_groups": ["connect-.*"], **values}
    clusters = {name: {"bootstrap.servers": "127.0.0.1:1"} for name in ("east", "west")}
    found = load_config({"clusters": clusters, "links": [link]}).warnings
    (warning,) = [each for each in found if MATCHES_NOTHING in each.message]
    assert warning.path == f"links[0].{key}"
    assert f"pattern {values[key][1]} matches nothing: {against} has " in warning.message
