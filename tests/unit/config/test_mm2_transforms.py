"""Connect's transformations in MirrorMaker 2's file: rules, or a refusal by name."""

from __future__ import annotations

import pytest

from eomirror.config import load_config
from eomirror.config.mm2_properties import Imported, import_mm2

_HEAD = (
    "clusters=a,b\na.bootstrap.servers=x:1\nb.bootstrap.servers=y:1\na->b.enabled=true\na->b.topics=orders\n"
)
_SMT = "org.apache.kafka.connect.transforms."
_PREDICATE = f"{_SMT}predicates."


def imported(*lines: str) -> Imported:
    """A flow with these lines."""
    return import_mm2(_HEAD + "\n".join(lines), keep_secrets=True)


def refusals(found: Imported) -> dict[str, str]:
    """Reasons by key, without those that concern no transformation."""
    return {
        each.key: each.reason
        for each in found.not_honoured
        if "transforms" in each.key or "predicates" in each.key
    }


@pytest.mark.parametrize(
    ("negate", "predicate", "rule"),
    [
        ("false", ("HasHeaderKey", "name=debug"), {"drop": {"where": {"header": "debug"}}}),
        ("true", ("HasHeaderKey", "name=region"), {"keep": {"where": {"header": "region"}}}),
        ("false", ("RecordIsTombstone", ""), {"drop": {"where": {"tombstone": True}}}),
        ("true", ("RecordIsTombstone", ""), {"drop": {"where": {"tombstone": False}}}),
    ],
)
def test_a_filter_by_record_becomes_a_rule(
    negate: str, predicate: tuple[str, str], rule: dict[str, object]
) -> None:
    """Every key of it is carried over, and the result is a configuration."""
    type_, setting = predicate
    found = imported(
        "a->b.transforms=f", f"a->b.transforms.f.type={_SMT}Filter", "a->b.transforms.f.predicate=p",
        f"a->b.transforms.f.negate={negate}", "a->b.predicates=p", f"a->b.predicates.p.type={_PREDICATE}{type_}",
        f"a->b.predicates.p.{setting}" if setting else "",
    )  # fmt: skip
    assert found.settings["links"][0]["transform"] == [rule]
    assert refusals(found) == {}
    assert load_config(found.settings).links[0].transform


def test_headers_are_added_and_removed_on_the_topics_of_a_predicate() -> None:
    """Keys of the whole file hold for the flow; names of copies become those of the source."""
    found = imported(
        "transforms=in,out", f"transforms.in.type={_SMT}InsertHeader", "transforms.in.header=from",
        "transforms.in.value.literal=a", "transforms.in.predicate=p", f"transforms.out.type={_SMT}DropHeaders",
        "transforms.out.headers=x, y", f"predicates.p.type={_PREDICATE}TopicNameMatches",
        r"predicates.p.pattern=a\\.ord.*",
    )  # fmt: skip
    assert found.settings["links"][0]["transform"] == [
        {"add": {"topics": ["ord.*"], "headers": {"from": "a"}}},
        {"remove": {"headers": ["x", "y"]}},
    ]
    assert refusals(found) == {}


def test_a_filter_by_topic_excludes_the_topic() -> None:
    """It needs no rule."""
    found = imported(
        "transforms=f", f"transforms.f.type={_SMT}Filter", "transforms.f.predicate=p",
        f"predicates.p.type={_PREDICATE}TopicNameMatches", "predicates.p.pattern=.*-test",
    )  # fmt: skip
    (link,) = found.settings["links"]
    assert ".*-test" in link["exclude"]
    assert "transform" not in link


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        (f"{_SMT}MaskField$Value", "MaskField$Value: it changes fields"),
        (f"{_SMT}ReplaceField$Value", "bytes, on which it fails"),
        (f"{_SMT}InsertField$Value", "origin_header"),
        (f"{_SMT}RegexRouter", "naming: {match"),
        (f"{_SMT}TimestampRouter", "one copy"),
        (f"{_SMT}Filter", "drops every record"),
        ("com.example.Mine", "runs no Java"),
    ],
)
def test_what_has_no_meaning_for_bytes_is_refused_by_name(type_: str, words: str) -> None:
    """The refusal is grave: the copies would be others than MirrorMaker 2's."""
    found = imported("transforms=t", f"transforms.t.type={type_}")
    told = refusals(found)
    assert words in told["transforms.t.type"]
    assert "transforms" in told
    assert all(each.grave for each in found.not_honoured if each.key.startswith("transforms"))
    assert "transform" not in found.settings["links"][0]
