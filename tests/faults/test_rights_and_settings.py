"""
Rights and passwords that are taken away under a running mirror (fault F30), and settings that drift by hand (F31).

The target asks who the mirror is; the judge and the writer may do everything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eomirror.demo.cluster import ClusterSpec, LocalCluster
from fix_rig import REPEATS
from rig.clusters import Bare, Pair
from rig.link import alter_topic
from rig.scene import Scene

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from rig.ledger import Entry
    from rig.mirrors import CommandMirror

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip

_USER = "mirror"
_PASSWORD = "correct horse"  # noqa: S105  of a cluster that lives as long as its test
# a mirror asks about its claim every few seconds; a busy machine takes longer to end and to start one
_PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class Guarded(Bare):
    """A cluster that lets the mirror in as a user with few rights."""

    @property
    def proxied(self) -> dict[str, str]:
        """Client properties of the mirror."""
        return {**self.cluster.client_properties_of(_USER), "sasl.password": _PASSWORD}

    def grant(self, kind: ResourceType, name: str) -> None:
        """All rights on everything whose name begins so."""
        binding = AclBinding(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            f"User:{_USER}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        admin = AdminClient(dict(self.direct))
        for future in admin.create_acls([binding]).values():
            future.result(30)

    def revoke(self, kind: ResourceType, name: str) -> None:
        """What `grant` gave."""
        one = AclBindingFilter(
            kind,
            name,
            ResourcePatternType.PREFIXED,
            f"User:{_USER}",
            "*",
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        admin = AdminClient(dict(self.direct))
        for future in admin.delete_acls([one]).values():
            assert future.result(30)

    def set_password(self, password: str) -> None:
        """Of the mirror's user; living connections stay."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(_USER, info, password.encode())
        admin = AdminClient(dict(self.direct))
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)


@pytest.fixture
def guarded_scene(
    east: LocalCluster, tmp_path: Path, topic_name: str, rng: random.Random, entry: Entry
) -> Iterator[Scene]:
    """A link into a cluster that asks who we are; its mirrors are the real command."""
    spec = ClusterSpec(
        "guarded", security="sasl_plaintext", authorizer=True, users={_USER: _PASSWORD}, heap="384m"
    )
    with LocalCluster.start(spec) as cluster:
        target = Guarded(cluster)
        for kind, name in (
            (ResourceType.TOPIC, "eomirror."),
            (ResourceType.TOPIC, "mm2-offset-syncs."),
            (ResourceType.TOPIC, "source."),
            (ResourceType.TRANSACTIONAL_ID, "eomirror."),
        ):
            target.grant(kind, name)
        made = Scene(
            Pair(Bare(east), target), topic_name, seed=rng.getrandbits(32), entry=entry, folder=tmp_path
        )
        yield made
        made.close()


def guarded(scene: Scene) -> Guarded:
    """The target of a guarded scene."""
    assert isinstance(scene.target, Guarded)
    return scene.target


def ends_and_another_goes_on(scene: Scene, mirror: CommandMirror, words: str) -> CommandMirror:
    """A mirror that lacks what it needs ends by itself and says so; gives the next one, not started."""
    code = mirror.await_exit(_PATIENCE)
    assert code == 1, mirror.tree.last_lines()
    assert mirror.said(words), mirror.tree.last_lines()
    assert mirror.said("fix:")
    return scene.command()


@pytest.mark.fault("F30")
def test_rights_that_are_revoked_end_the_mirror_by_name(guarded_scene: Scene) -> None:
    """F30: the ids of its transactions, its own topics, its only copy; after each grant another mirror goes on."""
    scene = guarded_scene
    mirror = scene.command()
    scene.start(mirror)
    for kind, name, words in (
        (ResourceType.TRANSACTIONAL_ID, "eomirror.", "Transactional Id authorization failed"),
        (ResourceType.TOPIC, "eomirror.", "uthorization failed"),
        (ResourceType.TOPIC, "source.", f"on topic {scene.copy}"),
    ):
        scene.write_for(500)
        scene.watch_over(None)
        guarded(scene).revoke(kind, name)
        scene.entry.injected()
        mirror = ends_and_another_goes_on(scene, mirror, words)
        guarded(scene).grant(kind, name)
        scene.entry.recovered(scene.start(mirror))
    scene.write_for(500)
    scene.catch_up(_PATIENCE)

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F30")
def test_a_password_that_was_changed_and_changed_back(guarded_scene: Scene) -> None:
    """F30: new connections with the old password are refused, and the mirror ends; later another goes on."""
    scene = guarded_scene
    mirror = scene.command()
    scene.start(mirror)
    (broker,) = guarded(scene).cluster.brokers
    scene.write_for(500)
    scene.watch_over(None)
    guarded(scene).set_password("another")
    broker.kill()
    broker.start()
    scene.entry.injected()
    mirror = ends_and_another_goes_on(scene, mirror, "Authentication failed")
    guarded(scene).set_password(_PASSWORD)
    scene.entry.recovered(scene.start(mirror))
    scene.write_for(500)
    scene.catch_up(_PATIENCE)

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F31")
def test_settings_that_change_all_the_time(scene: Scene, rng: random.Random) -> None:
    """F31: somebody changes settings of the topic and of its copy while records flow; nothing is lost or altered."""
    choices = {
        "retention_ms": ("-1", "86400000", "604800000"),
        "segment_bytes": ("1048576", "16777216"),
        "max_message_bytes": ("1048588", "2097164"),
        "compression_type": ("producer", "lz4", "gzip", "uncompressed"),
        "flush_messages": ("1", "1000"),
    }
    scene.start(proxied=False)
    for _ in range(50 * REPEATS):
        name = rng.choice(list(choices))
        side, topic = rng.choice(((scene.source, scene.name), (scene.target, scene.copy)))
        alter_topic(side.direct, topic, **{name: rng.choice(choices[name])})
        scene.entry.injected()
        scene.rest(0.1)
    scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    scene.check_generations()
