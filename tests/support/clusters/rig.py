"""
Two clusters, each with a direct listener for the judge and one that is entered through a proxy.

Brokers start when a test first asks for their side, and live as long as the rig.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.localkafka.cluster import ADMIN, ClusterSpec, Listener, LocalCluster
from eomirror.localkafka.ports import free_ports
from support.clusters.apart import proxy_apart
from support.clusters.proxy import FaultProxy
from support.links.plane import kafka_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PROXIED", "Bare", "Pair", "Rig", "Side"]

PROXIED = "PROXIED"
"""Name of the listener whose advertised port is the proxy's."""

# a machine that does much else at the time takes longer than a minute, and that says nothing about the mirror
_START_SECONDS = 240.0


class Side:
    """
    One cluster of one broker behind one proxy.

    Args:
        name: Of the cluster.
        properties: Of the broker.
        apart: Give the proxy a process of its own.

    Attributes:
        cluster: The cluster.
        proxy: Before its PROXIED listener.
        direct: Client properties past the proxy.
        proxied: Client properties through the proxy.
    """

    def __init__(self, name: str, *, properties: Mapping[str, str], apart: bool = False) -> None:
        (port,) = free_ports(1)
        listener = Listener(PROXIED, advertised_ports=(port,))
        self.cluster = LocalCluster.start(
            ClusterSpec(
                name,
                heap="384m",
                extra_listeners=(listener,),
                properties=properties,
                kafka_version=kafka_of(name),
            ),
            timeout=_START_SECONDS,
        )
        with contextlib.ExitStack() as until_now:
            until_now.callback(self.cluster.destroy)
            upstream = self.cluster.brokers[0].ports.bound[PROXIED]
            if apart:
                self.proxy = until_now.enter_context(proxy_apart(port, upstream))
            else:
                self.proxy = FaultProxy(port, upstream)
                until_now.callback(self.proxy.close)
            self._open = until_now.pop_all()
        self.direct = self.cluster.client_properties
        self.proxied = self.cluster.client_properties_of(ADMIN, listener=PROXIED)

    def close(self) -> None:
        """End the proxy, then the brokers."""
        self._open.close()


@dataclass(frozen=True, slots=True)
class Bare:
    """A cluster without a proxy, in the place of a `Side`."""

    cluster: LocalCluster

    @property
    def direct(self) -> dict[str, str]:
        """Client properties."""
        return self.cluster.client_properties

    @property
    def proxied(self) -> dict[str, str]:
        """Client properties, of a cluster without a proxy."""
        return self.cluster.client_properties

    def restart(self) -> None:
        """Kill the one broker, and start it with what lies there now: keys, passwords, rights."""
        (broker,) = self.cluster.brokers
        broker.kill()
        broker.start(timeout=_START_SECONDS)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two clusters of a test's own, in the place of a `Rig`."""

    source: Bare
    target: Bare


class Rig:
    """
    Source and target; each starts when it is first asked for.

    Args:
        properties: Broker properties of both.
        apart: Give each proxy a process of its own.
    """

    def __init__(self, *, properties: Mapping[str, str] | None = None, apart: bool = False) -> None:
        self._properties = dict(properties or {})
        self._isolated = apart
        self._sides: dict[str, Side] = {}
        self._seed = ""

    @property
    def source(self) -> Side:
        """The cluster to mirror from."""
        return self._side("rig-source")

    @property
    def target(self) -> Side:
        """The cluster to mirror to."""
        return self._side("rig-target")

    def reset(self, seed: str) -> None:
        """Before a test: no rule, no connection, randomness from this seed."""
        for name, side in self._sides.items():
            side.proxy.reset(f"{seed}/{name}")
        self._seed = seed

    def trouble(self) -> list[str]:
        """What went wrong in the proxies themselves."""
        return [line for side in self._sides.values() for line in side.proxy.trouble()]

    def close(self) -> None:
        """End what was started."""
        for side in self._sides.values():
            side.close()
        self._sides.clear()

    def _side(self, name: str) -> Side:
        if name not in self._sides:
            self._sides[name] = Side(name, properties=self._properties, apart=self._isolated)
            self._sides[name].proxy.reset(f"{self._seed}/{name}")
        return self._sides[name]
