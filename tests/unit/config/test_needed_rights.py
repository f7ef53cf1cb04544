"""The table of the rights that links need, and the commands that grant them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import load_config
from eomirror.config.rights import ClusterUser, Right, account_of, lacking, named, needed_rights
from eomirror.errors import TopicError

if TYPE_CHECKING:
    from eomirror.config import Config

_DOCS = Path(__file__).parents[3] / "docs/configure.md"

# resources as docs/configure.md names them, and as a configuration names them
_NAMES = {
    "mirrored topics": {"orders"},
    "copies": {"east.orders"},
    "topics `eomirror.LINK.*`": {"eomirror.east.west."},
    "topics `eomirror.OTHER.*`": {"eomirror.north.east."},
    "transactional ids `eomirror.LINK.*`": {"eomirror.east.west."},
    "followed groups": {"app"},
    "`heartbeats`": {"heartbeats"},
    "`mm2-offset-syncs.TARGET.internal`": {"mm2-offset-syncs.west.internal"},
    "`mm2-offset-syncs.SOURCE.internal`": {"mm2-offset-syncs.east.internal"},
    "`SOURCE.checkpoints.internal`": {"east.checkpoints.internal"},
    "`SOURCE.heartbeats`": {"east.heartbeats"},
    "the cluster": {""},
    "`eomirror.sink.claims`": {"eomirror.sink.claims"},
}


QUERY = {
    "source": "east", "target": "west", "topics": ["orders"],
    "transform": {"sql": "SELECT value FROM records"}, "lanes": 20,
}  # fmt: skip


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    """Loads a configuration of these links."""

    def load(*links: dict[str, Any], **cluster: str) -> Config:
        clusters = {
            alias: {"bootstrap.servers": f"{alias}1:9092,{alias}2:9092", **cluster}
            for alias in ("east", "west", "north")
        }
        file = tmp_path / "mirror.yaml"
        file.write_text(json.dumps({"clusters": clusters, "links": list(links)}))
        return load_config(str(file))

    return load


def link(*topics: str, **settings: Any) -> dict[str, Any]:
    return {"source": "east", "target": "west", "topics": list(topics), "groups": ["app"], **settings}


def rights_of(config: Config, name: str = "east->west") -> set[tuple[str, Right]]:
    return {(need.account.cluster, need.right) for need in needed_rights(config, [config.link(name)])}


def test_the_table_of_the_documentation_is_the_one_of_the_code(loaded: Any) -> None:
    """Each right of the code stands in docs/configure.md, and no other."""
    other = {"source": "north", "target": "east", "topics": ["a"], "groups": []}
    told: set[tuple[str, str, str]] = set()
    section = _DOCS.read_text().partition("## Grant rights")[2]
    for side, resource, operations in re.findall(
        r"^\| (source|target) \| ([^|]+) \| ([A-Z][^|]+) \|$", section, re.MULTILINE
    ):
        names = set().union(*(found for label, found in _NAMES.items() if label in resource))
        assert names, resource
        more = re.findall(r"also (\w+)", resource)
        alias = "east" if side == "source" else "west"
        told |= {(alias, name, each) for name in names for each in (*operations.split(", "), *more)}
    found: set[tuple[str, str, str]] = set()
    for settings in (
        {
            "sync_group_offsets": True, "group_deletions": "delete", "acls": True, "quotas": True,
            "deletions": "delete",
        },
        {"offset_syncs": "source", "heartbeats": "source"},
    ):  # fmt: skip
        rights = rights_of(loaded(link("orders", **settings), other))
        found |= {(alias, right.name, right.operation) for alias, right in rights}
    found |= {(alias, right.name, right.operation) for alias, right in rights_of(loaded(QUERY))}
    # mirrored, and so read and copied, like any topic
    beats = {each for each in found if each[1] == "heartbeats" and each[2] == "Read"}
    copies = {each for each in found if each[1] == "east.heartbeats" and each[0] == "west"}
    assert told - copies == found - beats - copies


@pytest.mark.parametrize(
    ("pattern", "naming", "source", "copy"),
    [
        ("orders", "prefix", [("orders", False)], [("east.orders", False)]),
        ("pay\\.eu", "prefix", [("pay.eu", False)], [("east.pay.eu", False)]),
        ("pay\\..*", "prefix", [("pay.", True)], [("east.pay.", True)]),
        ("pay\\..*", "identity", [("pay.", True)], [("pay.", True)]),
        ("pays?", "identity", [("pay", True)], [("pay", True)]),
        ("a|b-.*", "prefix", [("a", False), ("b-", True)], [("east.a", False), ("east.b-", True)]),
        ("(a|b).*", "prefix", [("*", False)], [("east.", True)]),
        (".*", "identity", [("*", False)], [("*", False)]),
        ("x[|]y.*", "identity", [("x", True)], [("x", True)]),
        ("a_.*", {"pattern": "m-{source}_{topic}"}, [("a_", True)], [("m-east_a_", True)]),
        ("a_.*", {"match": "a_(.*)", "to": "b_$1"}, [("a_", True)], [("b_", True)]),
        ("a_.*", {"match": "(a_.*)", "to": "$1"}, [("a_", True)], [("*", False)]),
        ("a.*", {"map": {"ab": "x", "cd": "y"}}, [("a", True)], [("x", False)]),
    ],
)
def test_a_pattern_becomes_the_beginning_of_names(
    loaded: Any, pattern: str, naming: Any, source: list[tuple[str, bool]], copy: list[tuple[str, bool]]
) -> None:
    """On both sides, under every naming; text that is not fixed becomes the wildcard."""
    rights = rights_of(loaded(link(pattern, naming=naming)))
    for name, prefixed in source:
        assert ("east", Right("Read", "topic", name, prefixed)) in rights, rights
    for name, prefixed in copy:
        assert ("west", Right("Write", "topic", name, prefixed)) in rights, rights


def test_a_query_needs_the_claims_of_its_tasks_and_nothing_of_groups_or_many_lanes(loaded: Any) -> None:
    """It is one producer, whatever `lanes` says, and no group is followed."""
    rights = rights_of(loaded(QUERY))

    claims = {
        each.operation for alias, each in rights if each.name == "eomirror.sink.claims" and alias == "west"
    }
    assert claims == {"Create", "Read", "Write"}
    assert not any(each.resource == "group" for _, each in rights)
    assert not any(each.operation == "Alter" and each.name.startswith("eomirror.") for _, each in rights)
    # the progress of sinks is not the link's
    assert not any(each.name == "eomirror.sink.progress" for _, each in rights)


def test_no_right_implies_another(loaded: Any) -> None:
    """A wider right of another link, or of another alias of the same cluster, leaves narrower ones out."""
    wide = {"source": "east", "target": "north", "topics": [".*"], "groups": [".*"]}
    config = loaded(link("orders", "pay\\..*"), wide)
    needed = needed_rights(config, config.links)
    for one in needed:
        for two in needed:
            same = one.account == two.account and one is not two
            assert not (same and one.right.covers(two.right)), (one, two)


def test_a_right_that_the_link_can_do_without_names_what_it_cannot(loaded: Any) -> None:
    """Settings of copies are read in any case, and changed if that is allowed."""
    needed = needed_rights(loaded(link("orders")), loaded(link("orders")).links)
    copy = Right("AlterConfigs", "topic", "east.orders")
    [altered] = [need for need in needed if need.right == copy]
    assert (altered.optional, altered.least) == (True, (Right("DescribeConfigs", "topic", "east.orders"),))
    assert [need for need in needed if need.optional] == [altered]


def test_the_command_has_address_principal_and_pattern(loaded: Any) -> None:
    """Without a login the user is ANONYMOUS; a certificate's name is not known from the file."""
    plain = loaded(link("pay\\..*")).clusters["east"]
    assert Right("Read", "topic", "pay.", prefixed=True).acl(account_of(plain)) == (
        "kafka-acls.sh --bootstrap-server east1:9092,east2:9092 --add --allow-principal 'User:ANONYMOUS' "
        "--operation Read --topic 'pay.' --resource-pattern-type prefixed"
    )
    tls = loaded(link("a"), **{"security.protocol": "SSL"}).clusters["east"]
    assert "--command-config ADMIN.properties" in Right("Read", "topic", "a").acl(account_of(tls))
    assert "'User:PRINCIPAL'" in Right("Read", "topic", "a").acl(account_of(tls))
    assert "'User:CN=m'" in Right("Read", "topic", "a").acl(account_of(tls, "User:CN=m"))


def test_one_error_names_all_rights() -> None:
    """Principal, operations, resources and cluster are in the message, one command a line in the fix."""
    rights = [Right("Read", "topic", "a"), Right("Write", "transactional-id", "e.", prefixed=True)]
    error = lacking("", ClusterUser("west", "w:1", "m"), rights)
    assert (
        error.message == "User:m lacks Read on topic a, Write on transactional-id e.* of cluster west (w:1)"
    )
    assert error.fix.splitlines() == [right.acl(ClusterUser("west", "w:1", "m")) for right in rights]


@pytest.mark.parametrize("at", ["", "@0", "@1234"])
def test_a_denied_read_of_the_extension_gets_its_command(at: str) -> None:
    """The class stays, because it decides whether other topics are compared; other errors stay as they are."""
    ours = ClusterUser("west", "w:1", "m")
    error = TopicError(
        f"east.a-b-0{at}: the broker refuses the request: TOPIC_AUTHORIZATION_FAILED", fix="x", topic="a"
    )
    told = named(error, ours)
    assert (type(told), told.topic) == (TopicError, "a")
    assert "User:m lacks Read on topic east.a-b of cluster west (w:1)" in told.message
    assert told.fix == Right("Read", "topic", "east.a-b").acl(ours)
    assert [right["command"] for right in told.missing_rights] == [told.fix]
    assert named(told, ours) is told
    other = TopicError("a-0: the log was truncated", fix="x")
    assert named(other, ours) is other
