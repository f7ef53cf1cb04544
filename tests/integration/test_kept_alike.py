"""ACL entries, client quotas and copies without a source: `plan`, `apply` and `run` on clusters with an authorizer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from support.clusters.guarded import acl, add_acls, delete_acls
from support.clusters.guarded_pair import guarded_pair
from support.clusters.quotas import client_quotas, set_quota
from support.links.link import alter_topic
from support.links.moving.java import java_gateway
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.clusters.guarded_pair import Guarded

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

APP, LOCAL = "User:app", "User:local"
NOW = {"deletions": "delete", "deletion_delay": "0s"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """The clusters."""
    with guarded_pair(tmp_path) as pair:
        yield pair


def granted(pair: Guarded, *without: str) -> list[str]:
    """Grants what `plan --acls` prints, but for lines with one of these texts; returns those."""
    lines = pair.printed()
    left = [line for line in lines if any(text in line for text in without)]
    assert len(left) >= len(without), lines
    pair.grant([line for line in lines if line not in left])
    wait_for(lambda: pair.missing() == left, 20)
    return left


def asked(pair: Guarded, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the link of `plan` or `apply`."""
    code, out, said = pair.command(*words, "-o", "json")
    assert out, said
    (link,) = json.loads(out)["links"]
    return code, link


def test_entries_follow_the_source_and_others_stay(guarded: Guarded) -> None:
    """Read-only entries of mirrored topics arrive, and leave with those of the source; no other is touched."""
    guarded.write("orders")
    east, west = guarded.admin("east"), guarded.admin("west")
    read, write = AclOperation.READ, AclOperation.WRITE
    deny = AclPermissionType.DENY
    add_acls(
        east,
        [
            acl("orders", APP, operation=read), acl("orders", APP, operation=write), acl("orders", "User:ops"),
            acl("orders", "User:out", deny, operation=write), acl("unmirrored", APP, operation=read),
            acl("orders", "User:*", deny, operation=write),
        ],
    )  # fmt: skip
    # as if by hand: one of an application of its own, and one that the source calls for as well
    foreign = [acl("east.orders", LOCAL, operation=read), acl("east.orders", "User:ops", operation=read)]
    add_acls(west, foreign)
    scram = UserScramCredentialUpsertion(
        "app", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    east.alter_user_scram_credentials([scram])["app"].result(30)
    guarded.configure({"source": "east", "target": "west", "topics": ["orders"], "acls": True, **NOW})
    granted(guarded)

    code, link = asked(guarded, "plan")
    assert code == 3, link
    signs = {(row["sign"], row["entry"]["principal"]) for row in link["changes"] if row["what"] == "acl"}
    assert signs == {("+", APP), ("+", "User:out"), ("=", "User:*")}
    assert ("app", "SCRAM-SHA-256", 4096) in {tuple(user.values()) for user in link["missing_users"]}
    assert guarded.entries("west", APP, "User:out") == set()

    code, link = asked(guarded, "apply")
    assert code == 0, link
    assert not link["differs"]
    place = "TOPIC LITERAL east.orders"
    wanted = {(APP, "READ", "ALLOW", place), ("User:out", "WRITE", "DENY", place)}
    by_hand = {(LOCAL, "READ", "ALLOW", place), ("User:ops", "READ", "ALLOW", place)}
    everyone = (APP, LOCAL, "User:ops", "User:out", "User:*")
    assert guarded.entries("west", *everyone) == wanted | by_hand
    assert "east.orders" in guarded.topics("west")
    code, link = asked(guarded, "plan")
    assert (code, link["differs"]) == (0, False), link

    delete_acls(east, [acl("orders", APP, operation=read), acl("orders", "User:ops")])
    wait_for(lambda: (APP, "READ", "ALLOW", "TOPIC LITERAL orders") not in guarded.entries("east", APP), 20)
    code, link = asked(guarded, "plan")
    assert (code, [row["sign"] for row in link["changes"] if row["due"] is True]) == (3, ["-"])
    code, _, said = guarded.command("run", "--until", "caught-up")
    assert code == 0, said
    wait_for(lambda: guarded.entries("west", APP) == set(), 20)
    assert guarded.entries("west", *everyone) == {("User:out", "WRITE", "DENY", place)} | by_hand

    code, out, said = guarded.command("events", "-o", "json")
    texts = [event["text"] for event in json.loads(out)["events"] if event["kind"] == "target"]
    assert f"+ allow {APP} Read on topic east.orders" in texts, (out, said)
    assert f"- allow {APP} Read on topic east.orders" in texts
    assert any(text.startswith("+ topic east.orders") for text in texts)


def test_an_operation_without_its_right_is_named_and_the_rest_goes_on(guarded: Guarded) -> None:
    """ACL entries, quotas and settings, one by one; records are mirrored, and a later grant suffices."""
    committed = guarded.write("orders")
    add_acls(guarded.admin("east"), [acl("orders", APP, operation=AclOperation.READ)])
    guarded.configure(
        {"source": "east", "target": "west", "topics": ["orders"], "acls": True, "quotas": True}
    )
    left = granted(guarded, "--operation Alter --cluster", "--operation AlterConfigs --topic")
    assert len(left) == 2
    # what AlterConfigs implies, and the link does not run without
    code, link = asked(guarded, "plan")
    assert code == 1, link
    assert "lacks AlterConfigs on topic east.orders" in link["problem"], link
    guarded.grant([left[0].replace("AlterConfigs", "DescribeConfigs")])
    wait_for(lambda: asked(guarded, "plan")[0] == 3, 20)

    code, link = asked(guarded, "plan")
    assert code == 3, link
    assert {right["command"] for right in link["lacking_rights"]} == set(left)
    code, link = asked(guarded, "apply")
    assert code == 3, link
    (problem,) = [one for one in link["problems"] if one["what"] == "acls"]
    assert [right["command"] for right in problem["missing_rights"]] == [
        line for line in left if "--cluster" in line
    ]
    code, _, said = guarded.command("run", "--until", "caught-up")
    assert code == 0, said
    assert committed
    assert guarded.entries("west", APP) == set()
    code, out, said = guarded.command("status", "-o", "json")
    (status,) = json.loads(out)["links"]
    assert "lacks Alter on cluster" in status["comparison"]["problems"]["acls"], status["comparison"]

    alter_topic(guarded.all("east"), "orders", retention_ms="7200000")
    code, link = asked(guarded, "apply")
    assert code == 3, link
    guarded.grant(left)
    wait_for(lambda: guarded.missing() == [], 20)
    code, link = asked(guarded, "apply")
    assert code == 0, link
    assert guarded.entries("west", APP) == {(APP, "READ", "ALLOW", "TOPIC LITERAL east.orders")}
    copy = ConfigResource(ResourceType.TOPIC, "east.orders")
    found = guarded.admin("west").describe_configs([copy])[copy].result(30)
    assert found["retention.ms"].value == "7200000"


def test_rights_go_both_ways_and_end_where_they_began(guarded: Guarded) -> None:
    """Group entries of equal names, and prefixed ones: what one link has added the other does not carry back."""
    guarded.write("orders")
    east, west = guarded.admin("east"), guarded.admin("west")
    group, prefixed = ResourceType.GROUP, ResourcePatternType.PREFIXED
    here = acl("app-", APP, operation=AclOperation.READ, kind=group, pattern=prefixed)
    there = acl("local", LOCAL, operation=AclOperation.READ, kind=group)
    add_acls(east, [here, acl("ord", APP, operation=AclOperation.READ, pattern=prefixed)])
    add_acls(west, [there])
    rules = [
        {"type": "group", "name": ".*", "operation": "read", "principal": "User:(app|local)"},
        {
            "type": "topic",
            "name": "ord.*",
            "operation": "read",
            "pattern": "prefixed",
            "principal": "User:app",
        },
    ]
    both = {"topics": ["orders"], "acls": rules, "heartbeats": "off", **NOW}
    guarded.configure(
        {"source": "east", "target": "west", **both}, {"source": "west", "target": "east", **both}
    )
    granted(guarded)

    for _ in range(2):
        code, out, said = guarded.command("apply", "-o", "json")
        assert code == 0, (out, said)
    groups = {(APP, "READ", "ALLOW", "GROUP PREFIXED app-"), (LOCAL, "READ", "ALLOW", "GROUP LITERAL local")}
    ours = {(APP, "READ", "ALLOW", "TOPIC PREFIXED ord")}
    copies = {(APP, "READ", "ALLOW", "TOPIC PREFIXED east.ord")}
    wait_for(lambda: guarded.entries("west", APP, LOCAL) == groups | copies, 20)
    assert guarded.entries("east", APP, LOCAL) == groups | ours

    delete_acls(east, [here])
    wait_for(lambda: len(guarded.entries("east", APP)) == 1, 20)
    for _ in range(2):
        code, out, said = guarded.command("apply", "-o", "json")
        assert code == 0, (out, said)
    rest = {(LOCAL, "READ", "ALLOW", "GROUP LITERAL local")}
    wait_for(lambda: guarded.entries("west", APP, LOCAL) == rest | copies, 20)
    assert guarded.entries("east", APP, LOCAL) == rest | ours


def test_quotas_follow_the_source_and_others_stay(guarded: Guarded) -> None:
    """Users and client ids, not addresses; a value that another hand has set stays, before and after."""
    guarded.write("orders")
    here, there = (guarded.clusters[alias].internal_servers for alias in ("east", "west"))
    rate = "producer_byte_rate"
    both: dict[str, str | None] = {"user": "app", "client-id": None}
    guarded.configure({"source": "east", "target": "west", "topics": ["orders"], "quotas": True, **NOW})
    granted(guarded)
    with java_gateway() as gateway:
        for entity, key, value in (
            ({"user": "app"}, rate, 1000.0), (both, "request_percentage", 12.5), ({"user": "local"}, rate, 1.0),
            ({"ip": "10.0.0.1"}, "connection_creation_rate", 5.0),
        ):  # fmt: skip
            set_quota(gateway, here, entity, key, value)
        set_quota(gateway, there, {"user": "local"}, rate, 9.0)

        code, link = asked(guarded, "apply")
        assert code == 0, link
        local = {((("user", "local"),), rate): 9.0}
        pair = (("client-id", None), ("user", "app"))
        assert client_quotas(gateway, there) == local | {
            ((("user", "app"),), rate): 1000.0, (pair, "request_percentage"): 12.5,
        }  # fmt: skip

        set_quota(gateway, here, {"user": "app"}, rate, 3000.0)
        set_quota(gateway, here, both, "request_percentage", None)
        set_quota(gateway, here, {"user": "local"}, rate, None)
        code, link = asked(guarded, "plan")
        signs = sorted(row["sign"] for row in link["changes"] if row["what"] == "quota")
        assert (code, signs) == (3, ["-", "~"]), link
        code, link = asked(guarded, "apply")
        assert code == 0, link
        assert client_quotas(gateway, there) == local | {((("user", "app"),), rate): 3000.0}


def test_a_copy_leaves_with_its_topic_as_the_policy_says(guarded: Guarded) -> None:
    """Reported by default; deleted once, by name and id, and never one that the link did not make."""
    for name in ("orders", "other"):
        guarded.write(name)
    link: dict[str, Any] = {"source": "east", "target": "west", "topics": ["orders", "other"], "groups": []}
    guarded.configure({**link, **NOW})
    granted(guarded)
    code, _, said = guarded.command("run", "--until", "caught-up")
    assert code == 0, said
    guarded.admin("east").delete_topics(["orders"])["orders"].result(30)
    wait_for(lambda: "orders" not in guarded.topics("east"), 20)

    guarded.configure(link)
    code, found = asked(guarded, "plan")
    rows = [row for row in found["changes"] if row["sign"] == "-"]
    assert (code, [(row["entry"]["name"], row["due"]) for row in rows]) == (0, [("east.orders", False)]), (
        found
    )
    guarded.configure({**link, **NOW})
    # the first look remembers that it is gone, the second deletes it
    code, found = asked(guarded, "apply")
    assert (code, [row["sign"] for row in found["stands"]]) == (3, ["-"]), found
    assert "east.orders" in guarded.topics("west")
    code, found = asked(guarded, "plan")
    assert code == 3, found
    code, found = asked(guarded, "apply")
    assert code == 0, found
    wait_for(lambda: "east.orders" not in guarded.topics("west"), 20)
    assert "east.other" in guarded.topics("west")
