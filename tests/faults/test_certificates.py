"""
Certificates that expire or change under a running mirror (fault F30): the broker's, the client's, the authority.

Both sides look at certificates when a connection begins, so the broker is killed and started again each time.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from eomirror.localkafka.cluster import ADMIN, ClusterSpec, Listener, LocalCluster
from support.clusters.certificates import BrokerKeys, ClientKeys
from support.clusters.rig import Bare
from support.judges.words import PATIENCE, says
from support.links.plane import kafka_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.fix_rig import SceneInto
    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1800),
]  # fmt: skip

_DOOR = "DOOR"
# from before the mirror's start until after its first records
_CLIENT_SECONDS = 100


@dataclass(frozen=True, slots=True)
class Certified(Bare):
    """
    A cluster that shows the mirror a certificate, and asks for one; judge and writer come in by another door.

    Attributes:
        keys: Of the brokers.
        client: Of the mirror.
    """

    keys: BrokerKeys
    client: ClientKeys

    @property
    def direct(self) -> dict[str, str]:
        """Client properties past the certificate."""
        return self.cluster.client_properties_of(ADMIN, listener=_DOOR)

    @property
    def proxied(self) -> dict[str, str]:
        """Client properties of the mirror."""
        return {
            **self.cluster.client_properties,
            "ssl.key.location": str(self.client.key),
            "ssl.certificate.location": str(self.client.certificate),
        }


@pytest.fixture
def scene_with_certificates(scene_into: SceneInto, tmp_path: Path) -> Iterator[Scene]:
    """A link into a cluster that speaks mutual TLS; its mirrors are the real command."""
    folder = tmp_path / "certified"
    keys = BrokerKeys.make(folder / "tls", tmp_path / "keys")
    client = ClientKeys.make(tmp_path / "client", keys)
    client.issue()
    demand = {
        "listener.name.client.ssl.client.auth": "required",
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(tmp_path / "keys" / "ca.pem"),
    }
    spec = ClusterSpec(
        "certified",
        security="ssl",
        heap="384m",
        kafka_version=kafka_of("west"),
        data_dir=folder,
        extra_listeners=(Listener(_DOOR),),
        properties=demand,
    )
    with LocalCluster.start(spec) as cluster, scene_into(Certified(cluster, keys, client)) as made:
        yield made


def certified(scene: Scene) -> Certified:
    """The target of a scene with certificates."""
    assert isinstance(scene.target, Certified)
    return scene.target


def begin(scene: Scene) -> CommandMirror:
    """A mirror that has mirrored something."""
    mirror = scene.command()
    scene.start(mirror)
    scene.write_for(500)
    return mirror


def shut_out(scene: Scene, mirror: CommandMirror, *words: str) -> None:
    """The mirror is let in no more: it names why, lives, and tries again and again."""
    certified(scene).restart()
    scene.entry.injected()
    says(scene, mirror, *words)
    scene.rest(8.0)


def end(scene: Scene, mirrors: int = 1) -> None:
    """Write on, and compare; only the mirrors of the test have taken the link."""
    scene.write_for(500)
    scene.catch_up(PATIENCE)

    scene.judge()
    assert len(scene.check_generations()) == mirrors, "another mirror took the link"


@pytest.mark.fault("F30")
def test_a_broker_s_certificate_that_expires_is_waited_for(scene_with_certificates: Scene) -> None:
    """F30: the broker's certificate runs out; with a new one the mirror goes on, without a restart."""
    scene = scene_with_certificates
    target = certified(scene)
    mirror = begin(scene)
    target.keys.use("expired")
    shut_out(scene, mirror, "certificate")
    target.keys.use("serving")
    target.restart()
    scene.heal(PATIENCE)
    end(scene)


@pytest.mark.fault("F30")
def test_an_authority_that_is_replaced_in_two_steps_costs_nothing(scene_with_certificates: Scene) -> None:
    """F30: both authorities are trusted first, then the broker's certificate is of the other; no restart is needed."""
    scene = scene_with_certificates
    target = certified(scene)
    target.keys.trust("ca", "second")
    begin(scene)
    target.keys.use("successor")
    target.restart()
    scene.entry.injected()
    scene.heal(PATIENCE)
    end(scene)


@pytest.mark.fault("F30")
def test_an_authority_that_is_not_trusted_yet_is_named(scene_with_certificates: Scene) -> None:
    """F30: the broker's certificate is of an authority that the mirror does not know; told of it, it goes on."""
    scene = scene_with_certificates
    target = certified(scene)
    mirror = begin(scene)
    target.keys.use("successor")
    shut_out(scene, mirror, "certificate")
    target.keys.trust("second")
    replace_and_restart(scene)
    end(scene, mirrors=2)


@pytest.mark.fault("F30")
def test_a_client_s_certificate_that_expires_is_named(scene_with_certificates: Scene) -> None:
    """F30: the mirror's own certificate runs out under it; with a new one in its place it goes on."""
    scene = scene_with_certificates
    target = certified(scene)
    target.client.issue(_CLIENT_SECONDS)
    issued = time.monotonic()
    mirror = begin(scene)
    # the connections that it has live on
    scene.rest(max(0.0, issued + _CLIENT_SECONDS + 2.0 - time.monotonic()))
    scene.heal()
    shut_out(scene, mirror, "certificate")
    target.client.issue()
    replace_and_restart(scene)
    end(scene, mirrors=2)


@pytest.mark.fault("F30")
def test_a_key_that_is_away_while_lanes_are_rebuilt_is_waited_for(scene_with_certificates: Scene) -> None:
    """F30: a rotation takes the file away for a moment, and a rebuild falls into it; back, and no restart is needed."""
    scene = scene_with_certificates
    target = certified(scene)
    mirror = begin(scene)
    aside = target.client.key.with_suffix(".aside")
    target.client.key.rename(aside)
    # a lane that outlives a restart of the broker has the key in memory: it is away until the lane is rebuilt
    (broker,) = target.cluster.brokers
    broker.kill()
    scene.entry.injected()
    says(scene, mirror, "ssl.key.location")
    broker.start(timeout=PATIENCE)
    scene.rest(8.0)
    aside.rename(target.client.key)
    scene.heal(PATIENCE)
    end(scene)


def replace_and_restart(scene: Scene) -> None:
    """Files are read when a client is made, so the mirror is stopped, as a person would, and started again."""
    old = scene.mirror
    scene.watch_over(None)
    old.close()
    scene.entry.recovered(scene.start(scene.command()))
