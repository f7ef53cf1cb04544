"""Two clusters that let the mirror in as a user without any right, and commands that run as this user."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.config import load_config
from eomirror.kafka.session import link_sessions
from eomirror.localkafka.cluster import LocalCluster
from eomirror.topics.rights import missing_rights
from support.clusters.guarded import add_acls, delete_acls, guarded_spec
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, some_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

__all__ = ["Guarded", "binding_of", "guarded_pair"]

_RESOURCES = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}


def binding_of(line: str) -> tuple[str, AclBinding]:
    """What `kafka-acls.sh` makes of a line: the cluster's address, and the entry."""
    words = shlex.split(line)
    assert words[0] == "kafka-acls.sh"
    assert "--add" in words
    given = {
        word: words[at + 1]
        for at, word in enumerate(words[:-1])
        if word.startswith("--") and word not in {"--add", "--cluster"}
    }
    if "--cluster" in words:
        given["--cluster"] = "kafka-cluster"
    [kind] = [kind for kind in _RESOURCES if kind in given]
    operation = re.sub(r"(?<!^)(?=[A-Z])", "_", given["--operation"]).upper()
    pattern = given.get("--resource-pattern-type", "literal").upper()
    return given["--bootstrap-server"], AclBinding(
        _RESOURCES[kind], given[kind], ResourcePatternType[pattern], given["--allow-principal"], "*",
        AclOperation[operation], AclPermissionType.ALLOW,
    )  # fmt: skip


class Guarded:
    """Two clusters that let the mirror in as a user without any right, and commands that run as this user."""

    def __init__(self, folder: Path, east: LocalCluster, west: LocalCluster) -> None:
        self.clusters = {"east": east, "west": west}
        self.folder = folder
        # a client that is collected ends its requests
        self._admins = {alias: AdminClient(dict(self.all(alias))) for alias in self.clusters}

    def all(self, alias: str) -> dict[str, str]:
        """Properties of a client that may do everything."""
        return self.clusters[alias].client_properties

    def admin(self, alias: str) -> AdminClient:
        """A client that may do everything."""
        return self._admins[alias]

    def entries(self, alias: str, *principals: str) -> set[tuple[str, str, str, str]]:
        """Principal, operation, permission and place of the entries of these principals."""
        any_entry = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found: list[AclBinding] = self.admin(alias).describe_acls(any_entry).result(30)
        return {
            (
                one.principal, one.operation.name, one.permission_type.name,
                f"{one.restype.name} {one.resource_pattern_type.name} {one.name}",
            )
            for one in found
            if one.principal in principals
        }  # fmt: skip

    def configure(self, *links: dict[str, Any], **defaults: Any) -> None:
        """Writes the configuration."""
        clusters = {alias: cluster.client_properties_of("mirror") for alias, cluster in self.clusters.items()}
        file = {
            "clusters": clusters,
            "links": list(links),
            "defaults": {"lanes": 1, "plane": plane_under_test(), **defaults},
        }
        (self.folder / "mirror.yaml").write_text(json.dumps(file))
        (self.folder / "mirror.yaml").chmod(0o600)

    def command(self, *words: str) -> tuple[int, str, str]:
        """Runs a command; returns its exit code, stdout and stderr."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", words[0], str(self.folder / "mirror.yaml"), *words[1:]],
            capture_output=True, text=True, check=False, timeout=280, env=dict(os.environ),
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def printed(self, *words: str) -> list[str]:
        """The lines of `plan --acls`."""
        code, out, err = self.command("plan", "--acls", *words)
        assert code == 0, err
        return out.splitlines()

    def grant(self, lines: Sequence[str]) -> None:
        """Runs lines as an administrator does."""
        self._each(lines, add_acls)

    def revoke(self, lines: Sequence[str]) -> None:
        """Takes back what lines gave."""
        self._each(lines, delete_acls)

    def missing(self) -> list[str]:
        """The commands for what is missing, of all links, as `plan` finds it."""
        config = load_config(str(self.folder / "mirror.yaml"))
        found = []
        for link in config.links:
            source, target = config.clusters[link.source], config.clusters[link.target]
            with closing(link_sessions(link, source, target, "plan")) as sessions:
                found += [need.plain["command"] for need in missing_rights(config, link, sessions)]
        return list(dict.fromkeys(found))

    def _each(self, lines: Sequence[str], change: Callable[[AdminClient, list[AclBinding]], None]) -> None:
        for alias, cluster in self.clusters.items():
            address = cluster.client_properties_of("mirror")["bootstrap.servers"]
            made = [entry for line in lines for server, entry in [binding_of(line)] if server == address]
            change(self.admin(alias), made)

    def write(self, topic: str, seed: int = 1) -> Any:
        """Creates a topic on east and writes to it."""
        create_topic(self.all("east"), topic)
        return produce(self.all("east"), topic, 1, some_records(seed, 100), transactional_id=topic)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Commits an offset of a group on east."""
        consumer = Consumer({**self.all("east"), "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()

    def topics(self, alias: str) -> set[str]:
        """All topics of a cluster, internal ones included."""
        return set(self.admin(alias).list_topics(timeout=10).topics)


@contextmanager
def guarded_pair(folder: Path) -> Iterator[Guarded]:
    """Starts the clusters."""
    with (
        LocalCluster.start(guarded_spec("east")) as east,
        LocalCluster.start(guarded_spec("west")) as west,
    ):
        yield Guarded(folder, east, west)
