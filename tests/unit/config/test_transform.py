"""The setting `transform`: refused rules, secrets, and what must not go with it."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from eomirror._native import Transform
from eomirror.config import Inspection, inspect_config, masked
from eomirror.config.carried import carried_link, resolved_link
from eomirror.config.model import require_untransformed
from eomirror.config.schema import json_schema
from eomirror.errors import ConfigError, UsageError

CLUSTERS = {alias: {"bootstrap.servers": f"{alias}:9092"} for alias in ("east", "west")}
SECRET = "correct horse battery staple"  # noqa: S105  a test's
KEEP = {"keep": {"topics": ["orders"], "where": {"header": "region", "equals": "eu"}}}


def inspected(*rules: Any, environ: dict[str, str] | None = None, **link: Any) -> Inspection:
    """One link with these rules."""
    links = [{"source": "east", "target": "west", "topics": ["orders"], "transform": list(rules), **link}]
    return inspect_config({"clusters": CLUSTERS, "links": links}, environ=environ or {})


def mask(**settings: Any) -> dict[str, Any]:
    """A mask of a field."""
    return {"mask": {"fields": ["$.a"], "with": "hash", "secret": SECRET, **settings}}


@pytest.mark.parametrize(
    "rule",
    [
        KEEP,
        {"keep": {"where": {"field": "$.a", "in": ["x", 5]}, "tombstones": True}},
        {"drop": {"where": {"key": True, "matches": "test-.*"}}},
        {"drop": {"where": {"tombstone": True}}},
        {"drop": {"where": {"header": "debug"}}},
        {"keep": {"where": {"timestamp": {"after": "2026-01-01T00:00:00Z", "before": 1790000000000}}}},
        mask(),
        {"mask": {"headers": ["token"], "record_key": True, "with": None}},
        {"mask": {"headers": ["token"], "with": "null"}},
        {"mask": {"fields": ["$.items[*].card", "$['a b'][0]"], "with": {"truncate": 4}}},
        {"rename": {"headers": {"old": "new"}}},
        {"remove": {"headers": ["old"]}},
        {"add": {"headers": {"copied-from": "east"}}},
    ],
)
def test_a_rule_is_read_compiled_and_written_again(rule: dict[str, Any]) -> None:
    """What is shown is a rule with the same meaning, without its secret; the schema accepts each."""
    config = inspected(rule).config

    assert config is not None
    (link,) = config.links
    assert isinstance(link.compiled(), Transform)
    (shown,) = masked(config)["links"][0]["transform"]
    assert SECRET not in str(shown)
    again = inspected(shown).config
    assert again is not None
    if "mask" not in rule:
        assert again.links[0].transform == link.transform
    assert pickle.loads(pickle.dumps(link)) == link  # noqa: S301  made here
    assert "transform" in json_schema()["properties"]["links"]["items"]["properties"]


@pytest.mark.parametrize(
    ("rule", "path", "words"),
    [
        ("keep", "transform[0]", "a rule is a mapping"),
        ({"sql": "SELECT 1"}, "transform[0]", "a rule is a mapping"),
        ({"keep": {}}, "transform[0].keep.where", "is missing"),
        ({"keep": {"where": {"header": "a", "key": True}}}, "transform[0].keep.where", "one of"),
        ({"keep": {"where": {"header": "a", "equal": "b"}}}, "transform[0].keep.where", "one of"),
        ({"keep": {"where": {"key": "orders"}}}, "transform[0].keep.where.key", "not true"),
        ({"keep": {"where": {"field": "a.b"}}}, "transform[0].keep", "no path to a field"),
        ({"keep": {"where": {"header": "a", "matches": "("}}}, "transform[0].keep", "invalid"),
        ({"keep": {"where": {"header": "a", "in": []}}}, "transform[0].keep.where.in", "no list of texts"),
        ({"keep": {"topics": ["*x"], "where": {"header": "a"}}}, "transform[0].keep", "invalid"),
        ({"drop": {"where": {"timestamp": {"before": "1970-1"}}}}, "transform[0].drop.where.timestamp.before", "time"),
        ({"drop": {"where": {"tombstone": True}, "tombstones": True}}, "transform[0].drop.tombstones", "unknown key"),
        ({"mask": {"with": "null"}}, "transform[0].mask", "hides nothing"),
        ({"mask": {"fields": ["$.a"]}}, "transform[0].mask.with", "is missing"),
        ({"mask": {"fields": ["$.a"], "with": "hash"}}, "transform[0].mask.secret", "is missing"),
        ({"mask": {"fields": ["$.a"], "with": "md5"}}, "transform[0].mask.with", "no way to hide"),
        ({"mask": {"fields": ["$.a"], "with": {"truncate": -1}}}, "transform[0].mask.with", "no way to hide"),
        ({"mask": {"fields": ["$"], "with": "null"}}, "transform[0].mask", "whole document"),
        (mask(secret=""), "transform[0].mask.secret", "empty"),
        (mask(secret="${env:ABSENT}"), "transform[0].mask.secret", "ABSENT is not set"),  # noqa: S106
        (mask(fields=["${env:HOME}"]), "transform[0].mask.fields", "only `secret`"),
        (mask(**{"with": "null"}), "transform[0].mask.secret", "only `with: hash`"),
        ({"rename": {"headers": ["a"]}}, "transform[0].rename.headers", "no mapping"),
        ({"remove": {"headers": ["eomirror.origin"]}}, "transform[0].remove.headers", "eomirror itself"),
    ],
)  # fmt: skip
def test_a_fault_names_the_rule_and_the_fix(rule: Any, path: str, words: str) -> None:
    """Each is a fault of its own path."""
    faults = inspected(rule).faults

    assert faults[0].path == f"links[0].{path}"
    assert words in faults[0].message
    assert faults[0].fix
    assert not any(SECRET in str(fault) for fault in faults)


def test_too_many_rules_are_refused() -> None:
    """Records are counted by rule, and for so many there are no counters."""
    (fault,) = inspected(*[KEEP] * 33).faults

    assert fault.path == "links[0].transform"
    assert "at most 32" in fault.fix


@pytest.mark.parametrize(
    ("setting", "path", "words"),
    [
        ({"on_refused": "dead-letter"}, "on_refused", "what the transform hides"),
        ({"provenance": "on"}, "transform", "one way only"),
    ],
)
def test_what_would_let_hidden_contents_out_is_refused(
    setting: dict[str, Any], path: str, words: str
) -> None:
    """A dead letter has the original record, and a changed copy would be a new record on the way back."""
    (fault,) = inspected(KEEP, **setting).faults

    assert fault.path == f"links[0].{path}"
    assert words in fault.message


def test_a_policy_without_rules_is_refused_and_one_that_shows_contents_is_warned_of() -> None:
    """`on_unreadable: keep` lets a record through unmasked."""
    (fault,) = inspected(on_unreadable="drop").faults
    assert fault.path == "links[0].on_unreadable"
    config = inspected(mask(), on_unreadable="keep").config
    assert config is not None
    assert ["unmasked" in warning.message for warning in config.warnings] == [True]


def test_a_secret_comes_from_the_environment_and_is_carried_by_reference() -> None:
    """A task on another machine has the reference, which its worker resolves; a missing variable is named."""
    config = inspected(mask(secret="${env:MASK_KEY}"), environ={"MASK_KEY": SECRET}).config  # noqa: S106
    assert config is not None
    (link,) = config.links
    assert SECRET not in repr(link)
    sent = pickle.dumps(carried_link(link))
    assert SECRET.encode() not in sent
    arrived = resolved_link(pickle.loads(sent), {"MASK_KEY": SECRET})  # noqa: S301  made here
    assert arrived == link
    with pytest.raises(ConfigError, match="MASK_KEY"):
        resolved_link(pickle.loads(sent), {})  # noqa: S301  made here


def test_a_short_secret_is_warned_of() -> None:
    """It is found by trying."""
    config = inspected(mask(secret="short")).config  # noqa: S106  too short is the point
    assert config is not None
    (warning,) = config.warnings
    assert warning.path == "links[0].transform[0].mask.secret"


def test_commands_that_write_over_originals_refuse_the_link() -> None:
    """They name the link and the command."""
    config = inspected(KEEP).config
    assert config is not None
    with pytest.raises(UsageError, match="`restore` would compare"):
        require_untransformed(config.links[0], "`restore`")
    plain = inspected().config
    assert plain is not None
    require_untransformed(plain.links[0], "`restore`")
