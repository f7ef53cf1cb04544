"""The fence by ACL on a cluster with an authorizer: it stops an application, is seen, and is removed exactly."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.demo.mirror_process import ProcessTree
from eomirror.errors import AuthorizationError, NotReadyError
from eomirror.failover import PromotionOptions, Verb, promote
from eomirror.failover.writer_fence import FenceMethod, LinkWriterFence
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.ports import free_ports
from support.clusters.guarded import acl, add_acls, guarded_spec
from support.judges.alert_rules import History, Scrape, firing
from support.links.disaster import Disaster
from support.links.moving.java import java_gateway
from support.traffic.records import create_topic, wait_for
from support.traffic.switched_clients import JavaApplication

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_USERS = "application", "operator"
_EVERYTHING = AclBindingFilter(
    ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def entries(admin: AdminClient) -> set[tuple[str, str, str]]:
    """Topic, principal and permission of every ACL entry on topics."""
    found = admin.describe_acls(_EVERYTHING).result(30)
    return {(one.name, one.principal, one.permission_type.name) for one in found}


def add(
    admin: AdminClient,
    name: str,
    principal: str,
    permission: AclPermissionType,
    *,
    operation: AclOperation = AclOperation.WRITE,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """Add an entry; for writes to one topic by default."""
    add_acls(admin, [acl(name, principal, permission, operation=operation, kind=kind, pattern=pattern)])


def delete(admin: AdminClient, name: str, principal: str, *, kind: ResourceType = ResourceType.TOPIC) -> None:
    """Delete the entries of a principal on one resource, as `kafka-acls.sh --remove` does."""
    every = AclBindingFilter(
        kind, name, ResourcePatternType.ANY, principal, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for future in admin.delete_acls([every]).values():
        future.result(30)


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalCluster]:
    """Who has no entry may do nothing, as is Kafka's default."""
    with LocalCluster.start(guarded_spec("guarded", *_USERS)) as cluster:
        yield cluster


def refused(properties: Mapping[str, Any], topic: str) -> bool:
    """Whether an application may not write; raises for any other failure."""
    failed: list[KafkaError] = []
    producer = Producer({**properties, "message.timeout.ms": 15_000})
    producer.produce(topic, b"more", on_delivery=lambda error, _: failed.append(error) if error else None)
    try:
        producer.flush(30)
    except KafkaException as raised:
        failed.append(raised.args[0])
    if failed:
        assert failed[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, failed[0]
    return bool(failed)


def java_application(gateway: Any, properties: Mapping[str, Any], topic: str) -> JavaApplication:
    """Java's clients with the same login."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    name, password = properties["sasl.username"], properties["sasl.password"]
    settings = {
        "security.protocol": str(properties["security.protocol"]).upper(), "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{login} required username="{name}" password="{password}";',
    }  # fmt: skip
    servers = properties["bootstrap.servers"]
    return JavaApplication(gateway, "Java 4.3", servers, topic, "java", settings=settings)


@pytest.mark.timeout(400)
def test_an_acl_fence_stops_applications_and_is_removed_exactly(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    An entry that was there before stays; a second call, and one on a cluster without authorizer, say so.

    Java's producer fails every record while the fence stands, and goes on without a restart when it is lifted.
    """
    guarded = start_cluster(
        ClusterSpec(
            "guarded",
            security="sasl_plaintext",
            authorizer=True,
            users={"application": "secret"},
            heap="384m",
        )
    )
    everything = dict(guarded.client_properties)
    scene = Disaster(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    other = f"{topic_name}.other"
    create_topic(everything, other)
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    add(admin, other, "User:*", AclPermissionType.DENY)
    before = entries(admin)
    scene.write("east")
    scene.catch_up()
    assert not refused(application, scene.topic)
    stack = ExitStack()
    java = java_application(stack.enter_context(java_gateway()), application, scene.topic)
    stack.callback(java.close)
    assert java.send("before") == ""
    _, found, said = scene.command("cutover", "--method", "acl", "--dry-run", "--verify", "skip")
    (check,) = (each for each in found["readiness"]["checks"] if each["name"] == "fence")
    assert (check["level"], check["text"].split(": ", 1)[1]) == (
        "ok",
        f"adds 1 entries DENY Write for User:*: {scene.topic}",
    ), said
    assert entries(admin) == before

    for _ in range(2):
        code, _, said = scene.command("fence", "--method", "acl", "--yes")
        assert code == 0, said
    assert refused(application, scene.topic)
    assert all("TopicAuthorizationException" in java.send(f"fenced {n}") for n in range(2))
    assert entries(admin) == before | {(scene.topic, "User:*", "DENY")}
    code, found, said = scene.command("unfence", "--yes")
    assert (code, found["lifted"]) == (0, "acl"), said
    assert entries(admin) == before
    assert not refused(application, scene.topic)
    with stack:
        assert java.send("after") == ""
    written = [(record[1] or b"").decode() for records in scene.read("east").values() for record in records]
    assert [written.count(value) for value in ("before", "fenced 0", "fenced 1", "after")] == [1, 0, 0, 1]
    assert scene.command("unfence", "--yes")[1]["lifted"] is None

    # the application has written since, and no mirror runs: refused before anything is touched
    code, _, said = scene.command("cutover", "--method", "acl", "--yes", "--patience", "1")
    assert code == 6, said
    assert entries(admin) == before


@pytest.mark.timeout(200)
def test_a_fence_by_acl_needs_an_authorizer(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The error names the other methods, and nothing is left to undo."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    scene.write("east")
    scene.catch_up()

    code, _, said = scene.command("fence", "--method", "acl", "--yes")

    assert code == 1
    assert "no authorizer" in said
    assert "--method" in said
    assert scene.command("unfence", "--yes")[1]["lifted"] is None


def shown(scene: Disaster, verb: str) -> str:
    """What a command prints on a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", verb, str(scene.path()), "--link", scene.name, "-o", "table"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return " ".join(done.stdout.split())


class Serving:
    """`eomirror serve`, which reads the target alone."""

    def __init__(self, scene: Disaster) -> None:
        (self._port,) = free_ports(1)
        command = [
            sys.executable,
            "-m",
            "eomirror",
            "serve",
            str(scene.path()),
            "--listen",
            f"127.0.0.1:{self._port}",
        ]
        self._process = ProcessTree(command, log=scene.folder / "serve.log")
        self._link = scene.name
        self._history = History()

    def close(self) -> None:
        self._process.terminate()

    def read(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    def await_fence(self, *, standing: bool, state: str) -> None:
        """Wait until a look has found it, and the link in that state."""

        def seen() -> bool:
            try:
                scrape = Scrape(self.read("/metrics"), self._link)
            except OSError:
                return False
            (value,) = scrape.values("eomirror_source_fenced_seconds") or [-1.0]
            in_state = scrape.values("eomirror_link_state", state=state) == [1.0]
            return in_state and (value > 0 if standing else value == 0)

        wait_for(seen, 60)

    def alerts(self) -> list[str]:
        """Links for which the alert's expression holds; its `for` is left out."""
        now = time.monotonic()
        self._history.add(now, Scrape(self.read("/metrics"), self._link))
        found = firing(self._history, now, age=None, only=["EomirrorSourceFenced"])
        return [labels["link"] for labels in found.get("EomirrorSourceFenced", [])]


@pytest.mark.timeout(400)
def test_a_fence_whose_command_died_is_seen_everywhere(
    guarded: LocalCluster, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """All producers are denied: status, history, readiness, page, metric and alert name host, time and command."""
    everything = dict(guarded.client_properties)
    scene = Disaster(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    scene.write("east")
    scene.catch_up()
    with ExitStack() as stack:
        serving = Serving(scene)
        stack.callback(serving.close)
        serving.await_fence(standing=False, state="stopped")
        assert serving.alerts() == []
        assert scene.command("status")[1]["links"][0]["fence"] is None
        assert scene.command("history")[1]["fence"] is None

        code, _, _ = scene.command(
            "cutover", "--method", "acl", "--verify", "skip", "--yes", crash="failover.fenced"
        )
        assert code == -9
        assert refused(application, scene.topic)

        fix = f"eomirror unfence CONFIG --link {scene.name}"
        fence = scene.command("status")[1]["links"][0]["fence"]
        assert (fence["method"], fence["topics"]) == ("acl", [scene.topic])
        assert scene.command("history")[1]["fence"] == fence
        code, found, _ = scene.command("readiness")
        (check,) = (each for each in found["checks"] if each["name"] == "standing fence")
        assert (check["level"], found["ready"]) == ("warn", True), found
        assert fix in check["fix"]
        for verb in ("status", "history", "readiness"):
            text = shown(scene, verb)
            assert f"by {fence['host']}" in text, text
            assert fix in text, text
        serving.await_fence(standing=True, state="stopped")
        assert serving.alerts() == [scene.name]
        assert fix in serving.read(f"/api/v1/links/{scene.name}")
        for path in ("/", f"/links/{scene.name}"):
            page = serving.read(path)
            assert f"by {fence['host']}" in page
            assert "unfence" in page

        # a planned promotion keeps the old source closed on purpose: shown, and no alarm for a day
        code, _, said = scene.command("cutover", "--method", "acl", "--verify", "skip", "--yes")
        assert code == 0, said
        assert scene.command("status")[1]["links"][0]["fence"] == fence
        serving.await_fence(standing=True, state="promoted")
        assert serving.alerts() == []
        assert refused(application, scene.topic)

        assert scene.command("unfence", "--yes")[0] == 0
        assert scene.command("status")[1]["links"][0]["fence"] is None
        serving.await_fence(standing=False, state="promoted")
    assert not refused(application, scene.topic)


@pytest.mark.timeout(400)
def test_a_fence_that_would_shut_out_mirror_and_consumers_is_refused(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    With ``allow.everyone.if.no.acl.found=true`` the first entry of a topic ends it for every operation.

    The real run and every dry run say so, and Java's application writes and reads on.  Where an entry names the topic,
    by its name or its prefix, the fence stops writers and nothing else.
    """
    setting = {"allow.everyone.if.no.acl.found": "true"}
    guarded = start_cluster(guarded_spec("guarded", *_USERS, **setting))
    everything = dict(guarded.client_properties)
    scene = Disaster(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    # the mirror is no super user: it is shut out as well
    scene.east = guarded.client_properties_of("operator")
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    scene.write("east")
    scene.catch_up()
    # the first one finds everything mirrored
    runs = [
        ("cutover", "--method", "acl", "--verify", "skip", "--yes"),
        ("cutover", "--method", "acl", "--verify", "skip", "--dry-run"),
        ("fence", "--method", "acl", "--dry-run"),
        ("fence", "--method", "acl", "--yes"),
    ]
    with ExitStack() as stack:
        java = java_application(stack.enter_context(java_gateway()), application, scene.topic)
        stack.callback(java.close)
        read: list[str] = []

        def reads(value: str) -> bool:
            read.extend(java.poll())
            return value in read

        for number, run in enumerate(runs):
            code, found, said = scene.command(*run)
            told = f"{found} {said}"
            assert code == 6, (run, told)
            assert "allow.everyone.if.no.acl.found" in told, (run, told)
            assert scene.topic in told
            assert "--allow-principal" in told, (run, told)
            assert entries(admin) == set()
            assert java.send(f"open {number}") == ""
        wait_for(lambda: reads(f"open {len(runs) - 1}"), 60)
        assert scene.command("unfence", "--yes")[1]["lifted"] is None
        scene.catch_up()

        # who may alter ACLs and not read the setting is told which right is missing
        for operation in (AclOperation.ALTER, AclOperation.DESCRIBE):
            add(
                admin, "kafka-cluster", "User:operator", AclPermissionType.ALLOW, operation=operation,
                kind=ResourceType.BROKER,
            )  # fmt: skip
        code, _, said = scene.command("fence", "--method", "acl", "--yes")
        assert (code, "could not be read" in said, "--operation DescribeConfigs --cluster" in said) == (
            6,
            True,
            True,
        ), said
        assert entries(admin) == set()

        for user in ("application", "operator"):
            add(
                admin, topic_name, f"User:{user}", AclPermissionType.ALLOW, operation=AclOperation.ALL,
                pattern=ResourcePatternType.PREFIXED,
            )  # fmt: skip
        before = entries(admin)
        code, _, said = scene.command("fence", "--method", "acl", "--yes")
        assert code == 0, said
        assert "TopicAuthorizationException" in java.send("fenced")
        java.close()
        java.restart()
        assert not reads("fenced")
        scene.catch_up()
        assert scene.command("unfence", "--yes")[1]["lifted"] == "acl"
        assert entries(admin) == before
        assert java.send("after") == ""
        wait_for(lambda: reads("after"), 60)


class SharedTopic(Disaster):
    """Three links of one topic, of which two have the same target; ``only`` leaves the others out of the file."""

    other: Mapping[str, Any]
    only: tuple[str, ...] = ()

    def settings(self, *, lost: bool = False) -> dict[str, Any]:
        found = super().settings(lost=lost)
        found["clusters"]["other"] = dict(self.other)
        there = {"source": "east", "topics": [self.topic]}
        found["links"] += [
            {
                **there,
                "name": f"{self.name}-two",
                "target": "west",
                "naming": {"match": "(.*)", "to": "two.$1"},
            },
            {**there, "name": f"{self.name}-three", "target": "other"},
        ]
        if self.only:
            found["links"] = [link for link in found["links"] if link["name"] in self.only]
            used = {link["target"] for link in found["links"]} | {"east"}
            found["clusters"] = {alias: of for alias, of in found["clusters"].items() if alias in used}
        return found


@pytest.mark.timeout(500)
def test_a_topic_stays_closed_until_the_last_fence_is_lifted(
    guarded: LocalCluster, east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Whichever link lifts first, on the same target and on another, and where the files know nothing of each other."""
    everything = dict(guarded.client_properties)
    scene = SharedTopic(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    scene.other = east.client_properties
    one, two, three = scene.name, f"{scene.name}-two", f"{scene.name}-three"
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    before = entries(admin)
    scene.write("east")
    for link in (one, two, three):
        scene.catch_up(link)

    def does(verb: str, link: str) -> dict[str, Any]:
        more = ("--method", "acl") if verb == "fence" else ()
        code, found, said = scene.command(verb, *more, "--yes", link=link)
        assert code == 0, said
        return found

    for first, second, apart in ((one, two, False), (two, one, False), (three, one, False), (one, two, True)):
        for link in (first, second):
            scene.only = (link,) if apart else ()
            does("fence", link)
        scene.only = (first,) if apart else ()
        found = does("unfence", first)
        assert refused(application, scene.topic), (first, second)
        assert list(found["kept"]) == [scene.topic]
        assert entries(admin) == before | {(scene.topic, "User:*", "DENY")}
        scene.only = (second,) if apart else ()
        found = does("unfence", second)
        assert found["kept"] == {}
        assert not refused(application, scene.topic), (first, second)
        assert entries(admin) == before

    # an entry that was there before any fence stays, also behind the last of them
    add(admin, scene.topic, "User:*", AclPermissionType.DENY)
    scene.only = ()
    for link in (one, two):
        does("fence", link)
    for link in (one, two):
        assert does("unfence", link)["kept"] == {}
    assert entries(admin) == before | {(scene.topic, "User:*", "DENY")}
    delete(admin, scene.topic, "User:*")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("by", ["hand", "another link"])
def test_nothing_is_promoted_once_an_entry_is_gone(
    guarded: LocalCluster,
    east: Any,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    *,
    by: str,
) -> None:
    """A person deletes it, or a link of a file that does not know this one; the promotion looks at the entries."""
    everything = dict(guarded.client_properties)
    scene = SharedTopic(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    scene.other = east.client_properties
    other = f"{scene.name}-three"
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    scene.write("east")
    for link in (scene.name, other):
        scene.catch_up(link)
    if by == "another link":
        scene.only = (other,)
        assert scene.command("fence", "--method", "acl", "--yes", link=other)[0] == 0

    def opens() -> None:
        """In the middle of the command, when everything is mirrored and compared."""
        if by == "hand":
            delete(admin, scene.topic, "User:*")
        else:
            scene.only = (other,)
            assert scene.command("unfence", "--yes", link=other)[0] == 0
        wait_for(lambda: (scene.topic, "User:*", "DENY") not in entries(admin), 10)

    scene.only = (scene.name,)
    config = scene.config()
    fence = LinkWriterFence(config, config.link(scene.name), FenceMethod(name="acl"))
    report = promote(
        config, Verb.CUTOVER, link=scene.name, options=PromotionOptions(fence=fence, verify=opens)
    )

    assert isinstance(report.error, NotReadyError), report
    assert (report.promotion, report.error.exit_code) == (None, 6)
    assert f"entries DENY Write for User:* on {scene.topic}" in report.error.message
    assert not refused(application, scene.topic)
    scene.only = (scene.name,)
    assert scene.command("history")[1]["fence"] is None


@pytest.mark.timeout(400)
def test_a_refused_fence_leaves_nothing(
    guarded: LocalCluster,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The right to alter ACLs is missing from the start, or taken away in between: nothing stands, nothing is added."""
    everything = dict(guarded.client_properties)
    scene = Disaster(everything, west.client_properties, topic_name, tmp_path, spark_context, back=False)
    admin, application = AdminClient(everything), guarded.client_properties_of("application")
    add(admin, scene.topic, "User:application", AclPermissionType.ALLOW)
    before = entries(admin)
    scene.write("east")
    scene.catch_up()
    scene.east = guarded.client_properties_of("operator")
    cluster = {"kind": ResourceType.BROKER}
    right = "--operation Alter --cluster"

    def grant(operation: AclOperation) -> None:
        add(admin, "kafka-cluster", "User:operator", AclPermissionType.ALLOW, operation=operation, **cluster)  # type: ignore[arg-type]

    try:
        for lacking in ("--operation Describe --cluster", right):
            done = [scene.command("fence", "--method", "acl", run) for run in ("--yes", "--dry-run")]
            assert scene.command("history")[1]["fence"] is None
            assert scene.command("unfence", "--yes")[1]["lifted"] is None
            assert entries(admin) == before
            for code, _, said in done:
                assert (code, lacking in said) == (1, True), said
            grant(AclOperation.DESCRIBE)
        grant(AclOperation.ALTER)
        plan = LinkWriterFence._plan

        def planned_then_revoked(self: LinkWriterFence) -> Any:
            found = plan(self)
            delete(admin, "kafka-cluster", "User:operator", **cluster)
            grant(AclOperation.DESCRIBE)
            return found

        monkeypatch.setattr(LinkWriterFence, "_plan", planned_then_revoked)
        config = scene.config()
        fence = LinkWriterFence(config, config.link(scene.name), FenceMethod(name="acl"))
        with pytest.raises(AuthorizationError) as raised:
            fence.fence()
        assert right in raised.value.fix
        assert scene.command("history")[1]["fence"] is None
        assert entries(admin) == before
        fence.undo()
        assert not refused(application, scene.topic)
        assert scene.command("unfence", "--yes")[1]["lifted"] is None
    finally:
        delete(admin, "kafka-cluster", "User:operator", **cluster)
