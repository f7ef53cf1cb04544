"""The rights that `plan --acls` prints: they suffice, each is needed, and `plan` names all that are missing at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from support.clusters.guarded_pair import guarded_pair
from support.traffic.records import produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.clusters.guarded_pair import Guarded

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    """The clusters."""
    with guarded_pair(tmp_path) as pair:
        yield pair


def test_a_user_without_rights_has_a_link_after_two_rounds_of_plan(guarded: Guarded) -> None:
    """Round 1 names all that is missing and changes nothing; its lines suffice to run, verify and fail over."""
    committed = guarded.write("orders")
    guarded.write("pay.first", 2)
    guarded.commit("app-1", "orders", 40)
    before = guarded.topics("east"), guarded.topics("west")
    guarded.configure(
        {"source": "east", "target": "west", "topics": ["orders", "pay\\..*"], "sync_group_offsets": True}
    )

    code, _, said = guarded.command("plan")
    assert code == 1, said
    assert (guarded.topics("east"), guarded.topics("west")) == before
    named = [line[line.index("kafka-acls.sh") :] for line in said.splitlines() if "kafka-acls.sh" in line]
    assert sorted(named) == sorted(guarded.printed())
    guarded.grant(named)
    code, out, said = guarded.command("plan")
    assert code == 3, said
    assert (guarded.topics("east"), guarded.topics("west")) == before

    link = "east->west"
    for words in (
        ("run", "--until", "caught-up"), ("verify",), ("status",), ("readiness", "--link", link),
        ("failover", "--link", link, "--yes", "--force"),
    ):  # fmt: skip
        code, out, said = guarded.command(*words)
        assert code == 0, (words, out, said)
        assert "lacks" not in said + out, (words, said, out)
    assert read_committed(guarded.all("west"), "east.orders") == committed
    asked = [ConsumerGroupTopicPartitions("app-1")]
    admin = AdminClient(dict(guarded.all("west")))
    moved = admin.list_consumer_group_offsets(asked)["app-1"].result(30)
    assert [one.topic for one in moved.topic_partitions] == ["east.orders"]


def test_plan_names_exactly_what_is_missing(guarded: Guarded) -> None:
    """One right of each kind of resource, taken away before any topic exists on the target."""
    guarded.write("orders")
    guarded.configure({"source": "east", "target": "west", "topics": ["orders"], "heartbeats": "off"})
    lines = guarded.printed()
    guarded.grant(lines)
    wait_for(lambda: guarded.missing() == [], 20)
    taken = [
        next(line for line in lines if all(word in line for word in words))
        for words in (
            ("Read", "--topic 'orders'"), ("Write", "east.orders"), ("AlterConfigs", "east.orders"),
            ("Write", "--transactional-id"), ("Read", "--group"),
        )
    ]  # fmt: skip
    for line in taken:
        guarded.revoke([line])
        wait_for(lambda line=line: guarded.missing() == [line], 20)
        guarded.grant([line])
        wait_for(lambda: guarded.missing() == [], 20)
    guarded.revoke(taken)
    wait_for(lambda: set(guarded.missing()) == set(taken), 20)
    code, _, said = guarded.command("run", "--until", "caught-up")
    assert code == 1, said
    assert "User:mirror lacks Describe on topic orders of cluster east" in said
    # all at once, as `plan` does, and nothing that is there
    [failed] = [json.loads(line) for line in said.splitlines() if '"run_failed"' in line]
    assert {right["command"] for right in failed["missing_rights"]} == set(taken)
    assert set(failed["fix"].splitlines()) == set(taken)

    code, out, said = guarded.command("plan", "-o", "json")
    assert code == 1, said
    (link,) = json.loads(out)["links"]
    rights = link["missing_rights"]
    assert {right["command"] for right in rights} == set(taken)
    for right in rights:
        assert right["principal"] == "User:mirror"
        assert f"--operation {right['operation']} --{right['resource']} '{right['name']}'" in right["command"]
        assert (right["pattern"] == "prefixed") == right["command"].endswith("prefixed")
        assert (
            guarded.clusters[right["cluster"]].client_properties_of("mirror")["bootstrap.servers"]
            in right["command"]
        )


@pytest.mark.slow
def test_the_printed_rights_suffice_for_the_way_back(guarded: Guarded) -> None:
    """`reverse` and `failback`, with the link back run between them, as a user who has what `--acls` printed."""
    guarded.write("orders")
    guarded.commit("app-1", "orders", 40)
    guarded.configure(
        {"name": "there", "source": "east", "target": "west", "topics": ["orders"], "groups": ["app-.*"]},
        {
            "name": "back", "source": "west", "target": "east", "topics": ["east\\.orders"], "groups": ["app-.*"],
            "naming": {"match": r"east\.(.*)", "to": "$1"},
        },
    )  # fmt: skip
    guarded.grant(guarded.printed())
    wait_for(lambda: guarded.missing() == [], 20)

    def ran(*words: str) -> None:
        code, out, said = guarded.command(*words)
        assert code == 0, (words, out, said)
        assert "lacks" not in said + out, (words, said, out)
        assert "AUTHORIZATION" not in said + out, (words, said, out)

    ran("run", "--until", "caught-up", "--link", "there")
    ran("failover", "--link", "there", "--yes", "--force")
    ran("reverse", "--link", "there", "--dry-run")
    ran("reverse", "--link", "there", "--yes")
    produce(guarded.all("west"), "east.orders", 1, some_records(5, 50), transactional_id="west")
    ran("run", "--until", "caught-up", "--link", "back")
    ran("readiness", "--link", "back")
    ran("failback", "--link", "there", "--dry-run")
    ran("failback", "--link", "there", "--yes")
    produce(guarded.all("east"), "orders", 1, some_records(6, 50), transactional_id="east")
    ran("run", "--until", "caught-up", "--link", "there")
    ran("verify", "--link", "there")
    found = [
        read_committed(guarded.all(side), name)
        for side, name in (("east", "orders"), ("west", "east.orders"))
    ]
    assert found[0] == found[1]


@pytest.mark.slow
def test_each_line_is_needed_before_and_after_the_first_run(guarded: Guarded) -> None:
    """Without one line `plan` names exactly this one: while no topic exists on the target, and when all do."""
    guarded.write("orders")
    guarded.write("pay.first", 2)
    guarded.commit("app-1", "orders", 40)
    guarded.configure(
        {
            "source": "east", "target": "west", "topics": ["orders", "pay\\..*"], "groups": ["app-.*", "one"],
            "sync_group_offsets": True, "group_deletions": "delete", "on_refused": "dead-letter", "lanes": 9,
        },
        {
            "source": "west", "target": "east", "topics": ["back.*"], "groups": [], "offset_syncs": "source",
            "heartbeats": "source", "sync_topic_configs": False,
        },
    )  # fmt: skip
    lines = guarded.printed()
    guarded.grant(lines)
    for again in (False, True):
        wait_for(lambda: guarded.missing() == [], 20)
        for line in lines:
            guarded.revoke([line])
            wait_for(lambda line=line: guarded.missing() == [line], 20)
            guarded.grant([line])
        if not again:
            wait_for(lambda: guarded.missing() == [], 20)
            code, out, said = guarded.command("run", "--until", "caught-up")
            assert code == 0, (out, said)


@pytest.mark.slow
def test_what_a_running_mirror_and_verify_lack_is_named_with_the_command(guarded: Guarded) -> None:
    """A right that is taken away later: verify, status and run name user, operation and resource, and the line."""
    guarded.write("orders")
    guarded.configure({"source": "east", "target": "west", "topics": ["orders"], "groups": []})
    lines = guarded.printed()
    guarded.grant(lines)
    wait_for(lambda: guarded.missing() == [], 20)
    code, _, said = guarded.command("run", "--until", "caught-up")
    assert code == 0, said
    for words, command in (
        (("Read", "--topic 'orders'"), ("verify",)),
        (("Read", "--topic 'east.orders'"), ("verify",)),
        (("Read", "--topic 'eomirror.east.west.'"), ("verify",)),
        (("Write", "--topic 'east.orders'"), ("run", "--until", "caught-up")),
        (("Write", "--transactional-id"), ("run", "--until", "caught-up")),
    ):
        line = next(line for line in lines if all(f"{word}" in line for word in words))
        guarded.revoke([line])
        wait_for(lambda line=line: guarded.missing() == [line], 20)
        code, out, said = guarded.command(*command)
        assert code != 0, (line, out, said)
        assert "User:mirror lacks" in out + said, (line, out, said)
        assert line.partition(" --operation")[0] in (out + said).replace("\\n", "\n"), (line, out, said)
        guarded.grant([line])
        wait_for(lambda: guarded.missing() == [], 20)
