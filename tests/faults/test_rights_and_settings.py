"""
Rights and passwords that are taken away under a running mirror (F30), and settings that drift (F31).

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

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.rig import Bare
from support.fix_rig import REPEATS
from support.judges.words import PATIENCE, says
from support.links.link import alter_topic
from support.links.plane import kafka_of

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from support.fix_rig import SceneInto
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip

_USER = "mirror"
_PASSWORD = "correct horse"  # noqa: S105  of a cluster that lives as long as its test


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
def guarded_scene(scene_into: SceneInto) -> Iterator[Scene]:
    """A link into a cluster that asks who we are; its mirrors are the real command."""
    spec = ClusterSpec(
        "guarded",
        security="sasl_plaintext",
        authorizer=True,
        users={_USER: _PASSWORD},
        heap="384m",
        kafka_version=kafka_of("west"),
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
        with scene_into(target) as made:
            yield made


def guarded(scene: Scene) -> Guarded:
    """The target of a guarded scene."""
    assert isinstance(scene.target, Guarded)
    return scene.target


@pytest.mark.fault("F30")
def test_rights_that_are_revoked_are_waited_for(guarded_scene: Scene) -> None:
    """F30: the ids of its transactions, its own topics, its only copy; each time it goes on after the grant."""
    scene = guarded_scene
    mirror = scene.command()
    scene.start(mirror)
    for kind, name, *words in (
        (ResourceType.TRANSACTIONAL_ID, "eomirror.", "ransactional Id authorization failed", "error 53"),
        (ResourceType.TOPIC, "eomirror.", "uthorization failed", "lacks"),
        (ResourceType.TOPIC, "source.", "uthorization failed", "lacks"),
    ):
        scene.write_for(500)
        guarded(scene).revoke(kind, name)
        scene.entry.injected()
        says(scene, mirror, *words)
        # it lives, and tries again and again
        scene.rest(8.0)
        guarded(scene).grant(kind, name)
        scene.heal(PATIENCE)
    scene.write_for(500)
    scene.catch_up(PATIENCE)

    scene.judge()
    assert len(scene.check_generations()) == 1, "another mirror took the link"


@pytest.mark.fault("F30")
def test_a_password_that_was_changed_and_changed_back(guarded_scene: Scene) -> None:
    """F30: new connections with the old password are refused; the mirror goes on when it is right again."""
    scene = guarded_scene
    mirror = scene.command()
    scene.start(mirror)
    scene.write_for(500)
    guarded(scene).set_password("another")
    guarded(scene).restart()
    scene.entry.injected()
    says(scene, mirror, "uthentication failed")
    scene.rest(8.0)
    guarded(scene).set_password(_PASSWORD)
    scene.heal(PATIENCE)
    scene.write_for(500)
    scene.catch_up(PATIENCE)

    scene.judge()
    assert len(scene.check_generations()) == 1, "another mirror took the link"


@pytest.mark.fault("F31")
def test_settings_that_change_all_the_time(scene: Scene, rng: random.Random) -> None:
    """F31: an operator changes settings of the topic and of its copy while records flow; nothing is lost or altered."""
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
