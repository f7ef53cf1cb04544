"""The setting `acls`: true, false, or rules; each fault with its path."""

from __future__ import annotations

from typing import Any

import pytest

from eomirror import load_config
from eomirror.config.acl_rules import AclRule
from eomirror.config.values import written
from eomirror.errors import ConfigError

ENDS = {"a": {"bootstrap.servers": "x:1"}, "b": {"bootstrap.servers": "y:1"}}


def acls_of(acls: Any) -> Any:
    """The setting of a link."""
    link = {"source": "a", "target": "b", "topics": ["x"], "acls": acls}
    return load_config({"clusters": ENDS, "links": [link]}).links[0].acls


def test_rules_are_parsed_and_written_back() -> None:
    """Operations in any spelling of Kafka's tools; what is not given is any."""
    rules = [
        {"type": "topic", "name": "pay.*", "operation": ["read", "DESCRIBE_CONFIGS", "alter-configs"]},
        {
            "type": "Group", "name": "g", "operation": "any", "pattern": "prefixed", "permission": "Deny",
            "principal": "User:a",
        },
    ]  # fmt: skip
    found = acls_of(rules)
    assert found == (
        AclRule(type="topic", name="pay.*", operations=("Read", "DescribeConfigs", "AlterConfigs")),
        AclRule(type="group", name="g", pattern="prefixed", permission="deny", principal="User:a"),
    )
    assert acls_of(written(found)) == found
    assert (acls_of(True), acls_of(False), acls_of([])) == (True, False, ())  # noqa: FBT003  values of the file


@pytest.mark.parametrize(
    ("acls", "path"),
    [
        ("yes", "links[0].acls"),
        ({"type": "topic"}, "links[0].acls"),
        (["topic"], "links[0].acls[0]"),
        ([{"type": "topic", "name": "x"}], "links[0].acls[0]"),
        ([{"type": "cluster", "name": "x", "operation": "read"}], "links[0].acls[0].type"),
        ([{"type": "topic", "name": "(", "operation": "read"}], "links[0].acls[0].name"),
        ([{"type": "topic", "name": "x", "operation": "reed"}], "links[0].acls[0].operation"),
        ([{"type": "topic", "name": "x", "operation": ["read", "reed"]}], "links[0].acls[0].operation[1]"),
        ([{"type": "topic", "name": "x", "operation": []}], "links[0].acls[0].operation"),
        ([{"type": "topic", "name": "x", "operation": "read", "host": "h"}], "links[0].acls[0].host"),
    ],
)
def test_a_faulty_rule_is_refused_at_its_place(acls: Any, path: str) -> None:
    """Before anything connects."""
    with pytest.raises(ConfigError) as raised:
        acls_of(acls)
    assert [fault.path for fault in raised.value.faults] == [path]
