"""Topics and partitions that are deleted for good, on either side: what is left stays, and is not created again."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)

from eomirror import Mirror
from support.clusters.guarded import guarded_spec
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, delete_topic, produce, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.cluster import ClusterSpec
    from support.traffic.records import Record

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# links that have no offset map
UNMAPPED = [
    pytest.param(
        {"partitions": "keyed", "origin_header": True, "target_partitions": 3, "plane": plane_under_test()},
        id="keyed",
    ),
    pytest.param({"transform": {"sql": "SELECT key, value FROM records"}}, id="query"),
]
NAMINGS = [pytest.param(False, id="prefix", marks=pytest.mark.slow), pytest.param(True, id="identity")]


class Scene(Disaster):
    """
    A link and its link back, by a pattern: what matches it comes and goes on the source.

    Attributes:
        deletes: Whether a topic that is gone leaves with its copy, at once.
        given: Settings of a link that has no offset map, and so follows no groups.
    """

    deletes = False
    given: dict[str, Any] | None = None

    def settings(self, *, lost: bool = False) -> dict[str, Any]:
        """Both links by patterns of this test's topics."""
        found = super().settings(lost=lost)
        found["links"][0]["topics"] = [f"{self.name}\\..*"]
        if self.deletes:
            found["links"][0] |= {"deletions": "delete", "deletion_delay": "0s"}
        if self.given:
            found["links"][0] |= self.given
            found["defaults"] = {"lanes": 2, "heartbeats": "off"}
        if self.with_back:
            found["links"][1]["topics"] = [("" if self.equal_names else "east\\.") + f"{self.name}\\..*"]
        return found

    def source(self, word: str) -> str:
        """A topic on the source."""
        return f"{self.name}.{word}"

    def target(self, word: str) -> str:
        """Its copy."""
        return self.source(word) if self.equal_names else f"east.{self.source(word)}"

    def make(self, word: str, partitions: int, count: int = 60) -> dict[int, list[Record]]:
        """Create a source topic with records."""
        create_topic(self.east, self.source(word), partitions)
        return self.fill(self.source(word), partitions, count) if count else {}

    def fill(self, topic: str, partitions: int, count: int = 60, *, side: str = "east") -> Any:
        """Write records in transactions; what was committed, by partition."""
        self._numbers += count
        rows = [(b"k%d" % n, b"%d-%d" % (self._numbers, n), 1_600_000_000_000 + n, ()) for n in range(count)]
        properties = self.east if side == "east" else self.west
        return produce(properties, topic, partitions, rows, transactional_id=f"{self.name}-w-{side}")

    def topics(self, side: str) -> Any:
        """Names of the topics on that side."""
        return AdminClient(self.east if side == "east" else self.west).list_topics(timeout=10).topics

    def held(self, word: str) -> dict[int, list[Record]]:
        """What a plain reader sees in the copy."""
        return read_committed(self.west, self.target(word))

    def verdicts(self, *, code: int = 0, link: str = "") -> dict[str, dict[str, Any]]:
        """What `verify` says of each partition, with its exit code."""
        got, found, said = self.command("verify", link=link)
        assert got == code, (found, said)
        (only,) = found["links"]
        return {
            f"{one['scope']['source']['topic']}-{one['scope']['source']['partition']}": one
            for one in only["partitions"]
        }

    def table(self) -> str:
        """What `verify` prints for people."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "verify", str(self.path()), "--link", self.name, "-o", "table"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return " ".join(done.stdout.split())

    def run(self, *options: str, crash: str = "") -> tuple[int, str]:
        """`run --until caught-up` as a user calls it; exit code and what it wrote to stderr; dies at ``crash``."""
        done = subprocess.run(
            [
                sys.executable, "-m", "eomirror", "run", str(self.path()), "--until", "caught-up", "--link", self.name,
                *options,
            ],
            capture_output=True, text=True, timeout=180, check=False,
            env={**os.environ, **({"EOMIRROR_CRASH_POINT": f"{crash}@{self.folder / crash}"} if crash else {})},
        )  # fmt: skip
        return done.returncode, done.stderr

    def shown(self) -> tuple[set[str], list[str], str]:
        """Topics and stopped topics that `status` names, and what `readiness` says of these."""
        (link,) = self.command("status")[1]["links"]
        (checks,) = [
            one["text"] for one in self.command("readiness")[1]["checks"] if "stopped" in one["name"]
        ]
        return {one["topic"] for one in link["topics"]}, [one["topic"] for one in link["stopped"]], checks

    def check(self, verb: str, *options: str, code: int = 0) -> dict[str, Any]:
        """A command with its exit code."""
        got, found, said = self.command(verb, *options)
        assert got == code, (found, said)
        return found


@pytest.fixture
def scenes(east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any) -> Callable[..., Scene]:
    """Makes the scene of a test."""

    def make(**options: Any) -> Scene:
        return Scene(
            east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, **options
        )

    return make


@pytest.mark.parametrize("identity", NAMINGS)
@pytest.mark.timeout(300)
def test_a_deleted_topic_is_gone_and_no_difference(scenes: Any, identity: bool) -> None:
    """While lanes still have it, after the mirror was restarted, and when its copy is deleted as well."""
    scene = scenes(equal_names=identity, back=False)
    scene.write("east", 20)
    written = scene.make("gone", 2)
    scene.catch_up()
    assert {one["verdict"] for one in scene.verdicts().values()} == {"equal"}
    delete_topic(scene.east, scene.source("gone"))

    for _ in range(2):
        found = scene.verdicts()
        assert {found[f"{scene.source('gone')}-{n}"]["verdict"] for n in (0, 1)} == {"gone"}
        assert {found[f"{scene.topic}-{n}"]["verdict"] for n in (0, 1)} == {"equal"}
        # records and markers
        ends = [found[f"{scene.source('gone')}-{n}"]["scope"]["target"] for n in (0, 1)]
        assert all(end["start"] == 0 and end["end"] >= len(written[n]) > 0 for n, end in enumerate(ends))
        assert f"{scene.target('gone')}-0 holds offsets [0, {ends[0]['end']})" in scene.table()
        assert scene.command("readiness")[1]["lost"] == 0
        scene.check("promote", "--dry-run")
        assert scene.held("gone") == written
        scene.catch_up()
    delete_topic(scene.west, scene.target("gone"))
    assert scene.verdicts()[f"{scene.source('gone')}-0"]["verdict"] == "gone"
    assert scene.check("promote", "--yes", "--verify", "full")["promotion"]["lost"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("identity", NAMINGS)
@pytest.mark.timeout(500)
def test_a_deleted_topic_holds_back_no_planned_switch(scenes: Any, identity: bool) -> None:
    """Deleted under the mirror; promoted, returned, and moved again: its copy keeps what it has."""
    scene = scenes(equal_names=identity)
    scene.write("east", 20)
    written = scene.make("gone", 2)
    with running(Mirror(scene.config(), spark=scene.spark, links=[scene.name])):
        wait_for(lambda: scene.count("west") == scene.count("east"), 60)
        wait_for(lambda: scene.target("gone") in AdminClient(scene.west).list_topics(timeout=10).topics, 60)
        wait_for(lambda: scene.held("gone") == written, 60)
        delete_topic(scene.east, scene.source("gone"))
        if plane_under_test() == "native":
            # The client plane looks at ids with its next transaction.
            wait_for(lambda: scene.command("status")[1]["links"][0]["stopped"], 120)
        (link,) = scene.command("status")[1]["links"]
        assert {one["topic"]: one["partitions"][0]["gone"] for one in link["topics"]} == {
            scene.topic: False, scene.source("gone"): True,
        }  # fmt: skip
        scene.check("cutover", "--dry-run", "--method", "wait")
        found = scene.check("promote", "--yes")
    assert found["promotion"]["lost"] == 0
    assert {cut["topic"] for cut in found["promotion"]["cuts"]} == {scene.topic, scene.source("gone")}
    assert scene.held("gone") == written

    scene.check("reverse", "--yes")
    scene.check("reverse", "--yes")
    later = scene.fill(scene.target("gone"), 2, side="west")
    scene.write("west", 20)
    scene.catch_up(scene.back)
    # what was deleted stays deleted: only what applications wrote since comes back
    assert read_committed(scene.east, scene.source("gone")) == later
    scene.verdicts()
    scene.verdicts(link=scene.back)
    scene.check("failback", "--yes")
    scene.write("east", 20)
    more = scene.fill(scene.source("gone"), 2)
    scene.catch_up()
    scene.verdicts()
    held = scene.held("gone")
    assert held == {n: written[n] + later[n] + more[n] for n in held}
    assert scene.count("east") == scene.count("west")
    scene.check("cutover", "--yes", "--method", "wait")


@pytest.mark.parametrize("identity", NAMINGS)
@pytest.mark.timeout(300)
def test_a_topic_that_was_made_again_is_not_gone(scenes: Any, identity: bool) -> None:
    """Its new records are on no copy: it differs, and no planned command leaves it behind."""
    scene = scenes(equal_names=identity, back=False)
    scene.write("east", 20)
    scene.make("again", 2)
    scene.catch_up()
    delete_topic(scene.east, scene.source("again"))
    scene.catch_up()
    assert scene.verdicts()[f"{scene.source('again')}-0"]["verdict"] == "gone"
    scene.make("again", 1)

    found = scene.verdicts(code=3)
    assert {found[f"{scene.source('again')}-{n}"]["verdict"] for n in (0, 1)} == {"differs"}
    _, found, _ = scene.command("promote", "--dry-run", "--verify", "skip")
    assert not found["readiness"]["ready"]
    assert scene.source("again") in str(found["readiness"]["checks"])
    assert scene.run()[0] == 4


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_topic_that_was_made_again_with_fewer_partitions(scenes: Any) -> None:
    """The printed command adopts what exists; one that names more is obeyed, too; and the topic may grow again."""
    scene = scenes(back=False)
    scene.write("east", 20)
    old = scene.make("few", 6)
    scene.catch_up()
    delete_topic(scene.east, scene.source("few"))
    new = scene.make("few", 2)
    topic = scene.source("few")
    code, said = scene.run()
    assert code == 4
    wanted = f"--resume-at {topic}-0=0 --resume-at {topic}-1=0"
    assert wanted in said, said
    assert f"{topic}-2=0" not in said
    (link,) = scene.command("status")[1]["links"]
    assert all(wanted in stop["fix"] for stop in link["stopped"])

    code, said = scene.run(*(word for n in range(6) for word in ("--resume-at", f"{topic}-{n}=0")))
    assert code == 0, said
    assert f"{topic}-5" in said
    held = scene.held("few")
    assert held == {n: old[n] + new.get(n, []) for n in range(6)}
    found = scene.verdicts()
    assert {n: found[f"{topic}-{n}"]["verdict"] for n in range(6)} == {
        0: "equal", 1: "equal", 2: "gone", 3: "gone", 4: "gone", 5: "gone",
    }  # fmt: skip
    scene.check("promote", "--dry-run")

    with running(Mirror(scene.config(), spark=scene.spark, links=[scene.name])):
        admin = AdminClient(scene.east)
        (future,) = admin.create_partitions([NewPartitions(topic, 4)]).values()
        future.result(30)
        wait_for(
            lambda: len(AdminClient(scene.east).list_topics(topic, timeout=9).topics[topic].partitions) == 4
        )
        grown = scene.fill(topic, 4)
        wait_for(
            lambda: scene.held("few") == {n: old[n] + new.get(n, []) + grown.get(n, []) for n in range(6)},
            60,
        )
    found = scene.verdicts()
    assert {n: found[f"{topic}-{n}"]["verdict"] for n in range(6)} == {
        0: "equal", 1: "equal", 2: "equal", 3: "equal", 4: "gone", 5: "gone",
    }  # fmt: skip
    assert scene.run("--resume-at", f"{topic}-9=0")[0] == 2
    assert scene.check("promote", "--yes")["promotion"]["lost"] == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_topic_that_an_acl_hides_is_not_gone(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """The brokers do not list it, and it may hold anything: no verdict, and no planned command."""
    guarded = start_cluster(guarded_spec("hiding"))
    everything = dict(guarded.client_properties)
    scene = Scene(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    scene.write("east", 20)
    scene.make("hidden", 1)
    scene.catch_up()
    allowed = [(kind, "*") for kind in (ResourceType.TOPIC, ResourceType.GROUP)]
    allowed.append((ResourceType.BROKER, "kafka-cluster"))
    rules = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            "User:mirror",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in allowed
    ]
    rules.append(
        AclBinding(
            ResourceType.TOPIC, scene.source("hidden"), ResourcePatternType.LITERAL, "User:mirror", "*",
            AclOperation.DESCRIBE, AclPermissionType.DENY,
        )
    )  # fmt: skip
    admin = AdminClient(everything)
    for future in admin.create_acls(rules).values():
        future.result(30)
    scene.east = guarded.client_properties_of("mirror")
    wait_for(lambda: scene.source("hidden") not in AdminClient(scene.east).list_topics(timeout=10).topics)

    for _round in range(2):
        code, _, said = scene.command("verify")
        assert code == 1, said
        assert f"lacks Describe on topic {scene.source('hidden')}" in said
        code, _, said = scene.command("promote", "--dry-run", "--verify", "skip")
        assert code != 0, said
        # parked from here on, as a deleted topic would be
        scene.run()


@pytest.mark.timeout(200)
def test_a_deleted_copy_is_not_created_by_the_way_back(scenes: Any) -> None:
    """EO-5: the link that returns lists the topic again, and has a position of it."""
    scene = scenes(equal_names=True)
    scene.write("east", 20)
    # without a record nothing of it is lost
    scene.make("lost", 1, 0)
    scene.catch_up()
    delete_topic(scene.west, scene.target("lost"))
    for verb, *options in (("failover", "--yes", "--force"), ("reverse", "--yes"), ("failback", "--yes")):
        code, found, said = scene.command(verb, *options)
        assert code == 0, (verb, found, said)
        assert scene.target("lost") not in scene.topics("west"), verb
    assert f"the target topic {scene.target('lost')} was deleted" in said


@pytest.mark.slow
@pytest.mark.parametrize("identity", NAMINGS)
@pytest.mark.timeout(400)
def test_a_deleted_copy_is_created_by_no_command(scenes: Any, identity: bool, tmp_path: Path) -> None:
    """EO-5: neither on the way over nor on the way back; the link that returns stops the topic by name."""
    scene = scenes(equal_names=identity)
    scene.write("east", 20)
    scene.make("lost", 2)
    scene.catch_up()
    delete_topic(scene.west, scene.target("lost"))

    orphans = "--orphans", "export", "--to", str(tmp_path / "orphans"), "--yes"
    for verb, *options in (
        ("readiness",), ("promote", "--dry-run"), ("cutover", "--dry-run", "--method", "wait"),
        ("failover", "--yes", "--force"), ("reverse", "--dry-run"), ("reverse", "--yes"),
        ("restore", "--orphans", "merge", "--yes"), ("restore", *orphans),
    ):  # fmt: skip
        scene.command(verb, *options)
        assert scene.target("lost") not in scene.topics("west"), verb
    scene.write("west", 20)
    scene.catch_up(scene.back)
    for options in (("--dry-run",), ("--yes",)):
        scene.check("failback", *options)
        assert scene.target("lost") not in scene.topics("west"), options
    code, said = scene.run()
    assert code == 1
    assert f"the target topic {scene.target('lost')} was deleted" in said
    assert scene.target("lost") not in scene.topics("west"), "run"
    assert scene.count("east") == scene.count("west")


@pytest.mark.timeout(300)
def test_a_topic_leaves_with_its_copy_and_comes_again_as_a_new_one(scenes: Any) -> None:
    """`deletions: delete`: no stop is left, the others flow, and the new records are on a new copy, once."""
    scene = scenes(back=False)
    scene.deletes = True
    scene.write("east", 20)
    written = scene.make("came", 2)
    source, target = scene.source("came"), scene.target("came")
    mirror = Mirror(scene.config(), spark=scene.spark, links=[scene.name])
    with running(mirror):
        wait_for(lambda: target in scene.topics("west"), 60)
        wait_for(lambda: scene.held("came") == written, 60)
        scene.commit("east", "g", {0: 5}, topic=source)
        wait_for(lambda: scene.checkpoints().get(("g", target, 0), 0) > 0, 60)
        delete_topic(scene.east, source)
        wait_for(lambda: target not in scene.topics("west"), 60)
        scene.write("east", 20)
        wait_for(lambda: scene.count("west") == scene.count("east"), 20)
        wait_for(lambda: scene.shown() == ({scene.topic}, [], "0"), 30)
        assert set(scene.verdicts()) == {f"{scene.topic}-{n}" for n in (0, 1)}
        # it would skip records of a new copy
        assert scene.checkpoints() == {("g", target, 0): 0}

        again = scene.make("came", 3)
        wait_for(lambda: target in scene.topics("west"), 60)
        wait_for(lambda: scene.held("came") == again, 60)
        again = {n: again[n] + more for n, more in scene.fill(source, 3).items()}
        scene.write("east", 20)
        wait_for(lambda: scene.held("came") == again and scene.count("west") == scene.count("east"), 60)
        assert scene.shown() == ({scene.topic, source}, [], "0")
    assert {one["verdict"] for one in scene.verdicts().values()} == {"equal"}


@pytest.mark.timeout(300)
def test_a_mirror_that_dies_before_it_has_forgotten_a_topic(scenes: Any) -> None:
    """F1: the copy is deleted, its positions are not; it comes again before the next start, with fewer partitions."""
    scene = scenes(back=False)
    scene.deletes = True
    scene.write("east", 20)
    scene.make("came", 3)
    scene.catch_up()
    delete_topic(scene.east, scene.source("came"))
    # the first look remembers that it is gone
    scene.catch_up()
    assert scene.target("came") in scene.topics("west")
    code, said = scene.run(crash="owner.parked")
    assert code == -9, said
    wait_for(lambda: scene.target("came") not in scene.topics("west"), 20)
    assert scene.shown()[0] == {scene.topic, scene.source("came")}

    again = scene.make("came", 2)
    scene.write("east", 20)
    scene.catch_up()
    assert scene.held("came") == again
    assert scene.count("west") == scene.count("east")
    assert scene.shown() == ({scene.topic, scene.source("came")}, [], "0")
    found = scene.verdicts()
    assert {name: one["verdict"] for name, one in found.items()} == dict.fromkeys(
        [f"{topic}-{n}" for topic in (scene.topic, scene.source("came")) for n in (0, 1)], "equal"
    )


@pytest.mark.parametrize("given", UNMAPPED)
@pytest.mark.timeout(300)
def test_a_topic_of_a_link_without_an_offset_map_comes_again(scenes: Any, given: dict[str, Any]) -> None:
    """`deletions: delete`: placed by key, or by a query; the new records are on a new copy, each once."""
    scene = scenes(back=False)
    scene.deletes, scene.given = True, given
    source, target = scene.source("came"), scene.target("came")
    scene.write("east", 20)

    def copied(*written: dict[int, list[Record]]) -> bool:
        """Compares values: the key decides the partition, and the statement leaves the timestamp out."""
        wanted = sorted(record[1] for one in written for rows in one.values() for record in rows)
        copies = scene.held("came") if target in scene.topics("west") else {}
        return sorted(record[1] for rows in copies.values() for record in rows) == wanted

    first = scene.make("came", 2)
    with running(Mirror(scene.config(), spark=scene.spark, links=[scene.name])):
        wait_for(lambda: copied(first), 90)
        delete_topic(scene.east, source)
        wait_for(lambda: target not in scene.topics("west"), 60)
        wait_for(lambda: scene.shown() == ({scene.topic}, [], "0"), 30)
        assert source not in scene.topics("east"), "a reader has created it"
        again = scene.make("came", 4)
        wait_for(lambda: copied(again), 60)
        more = scene.fill(source, 4)
        scene.write("east", 20)
        wait_for(lambda: copied(again, more) and scene.count("west") == scene.count("east"), 60)
    assert copied(again, more)
