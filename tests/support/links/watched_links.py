"""
Links of one real mirror, and what an operator sees of them: pages, data and metrics of `run --listen` and of `serve`.

Both clusters ask who the mirror is, so that rights and passwords can be taken away.  One mirror runs all links, because
its start takes most of the time of a test; each fault has a link of its own, so that one does not hide another.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import re
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
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

from eomirror.demo.mirror_process import ProcessTree
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.ports import free_ports
from support.judges.alert_rules import History, Scrape, firing
from support.links.mirrors import CommandMirror
from support.links.plane import kafka_of, plane_under_test
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = ["PASSWORD", "RUN", "SERVE", "Guarded", "Named", "WatchedLinks"]

#: Places where an operator looks.
RUN, SERVE = "run", "serve"

_USER = "mirror"
PASSWORD = "correct horse battery"  # noqa: S105  of clusters that live as long as their tests
_START_SECONDS = 240.0


class Guarded:
    """A cluster of one broker that lets the mirror in as a user with few rights; the tests may do everything."""

    def __init__(self, name: str, **properties: str) -> None:
        spec = ClusterSpec(
            name, security="sasl_plaintext", authorizer=True, users={_USER: PASSWORD}, heap="384m",
            properties=properties, kafka_version=kafka_of(name.removeprefix("named-")),
        )  # fmt: skip
        self.cluster = LocalCluster.start(spec, timeout=_START_SECONDS)

    @property
    def direct(self) -> dict[str, str]:
        """Client properties of the tests."""
        return self.cluster.client_properties

    @property
    def mirrors(self) -> dict[str, str]:
        """Client properties of the mirror."""
        return {**self.cluster.client_properties_of(_USER), "sasl.password": PASSWORD}

    def grant(self, kind: ResourceType, prefix: str) -> None:
        """All rights on everything whose name begins so."""
        binding = AclBinding(
            kind, prefix, ResourcePatternType.PREFIXED, f"User:{_USER}", "*", AclOperation.ALL,
            AclPermissionType.ALLOW,
        )  # fmt: skip
        admin = AdminClient(self.direct)
        for future in admin.create_acls([binding]).values():
            future.result(30)

    def revoke(self, kind: ResourceType, prefix: str) -> None:
        """What `grant` gave."""
        one = AclBindingFilter(
            kind, prefix, ResourcePatternType.PREFIXED, f"User:{_USER}", "*", AclOperation.ANY,
            AclPermissionType.ANY,
        )  # fmt: skip
        admin = AdminClient(self.direct)
        for future in admin.delete_acls([one]).values():
            assert future.result(30)

    def set_password(self, password: str) -> None:
        """Of the mirror's user; living connections stay."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(_USER, info, password.encode())
        admin = AdminClient(self.direct)
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)

    def kill(self) -> None:
        """SIGKILL to the broker."""
        self.cluster.brokers[0].kill()

    def start(self) -> None:
        """Start it again."""
        self.cluster.brokers[0].start(timeout=_START_SECONDS)


@dataclass
class Named:
    """
    Seconds from a fault until an operator could see it, by place.

    Attributes:
        page: The page says it, with what to do.
        metrics: The series is exported.
        alert: The expression of the rule holds.
    """

    page: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    alert: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return "; ".join(
            f"{place}: page {self.page[place]:.1f} s, metrics {self.metrics[place]:.1f} s, "
            f"alert {self.alert[place]:.1f} s"
            for place in self.alert
        )


class WatchedLinks:
    """
    The rig.

    Args:
        source: Cluster to mirror from.
        target: Cluster to mirror to.
        folder: For files.
        names: Names of links; link ``NAME`` mirrors topic ``NAME.orders``.
        options: Settings of single links, by name.
    """

    def __init__(
        self,
        source: Guarded,
        target: Guarded,
        folder: Path,
        names: Sequence[str],
        options: Mapping[str, Mapping[str, Any]],
    ) -> None:
        self.source, self.target, self.folder = source, target, folder
        self._ports = dict(zip((RUN, SERVE), free_ports(2), strict=True))
        self.settings: dict[str, Any] = {
            "clusters": {"east": source.mirrors, "west": target.mirrors},
            "links": [
                {"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"], **options.get(name, {})}
                for name in names
            ],
            "defaults": {"lanes": 1, "plane": plane_under_test(), "groups": []},
        }  # fmt: skip
        self._names = list(names)
        self._histories: dict[tuple[str, str], History] = {}
        self._stack = ExitStack()
        self._starts = 0
        self.mirror = self._command("mirror", "--listen", f"127.0.0.1:{self._ports[RUN]}")
        for name in names:
            source.grant(ResourceType.TOPIC, f"{name}.")
            create_topic(source.direct, self.topic(name))
        for kind, prefix in (
            (ResourceType.TOPIC, "eomirror."),
            (ResourceType.TOPIC, "mm2-offset-syncs."),
            (ResourceType.TOPIC, "east."),
            (ResourceType.TRANSACTIONAL_ID, "eomirror."),
        ):
            target.grant(kind, prefix)

    @staticmethod
    def topic(name: str) -> str:
        """Topic of a link."""
        return f"{name}.orders"

    def start(self) -> None:
        """Starts `run` and `serve`."""
        for name in self._names:
            self.write(name)
        self.mirror.start()
        command = [sys.executable, "-m", "eomirror", "serve", str(self.mirror.folder / "mirror.yaml")]
        command += ["--listen", f"127.0.0.1:{self._ports[SERVE]}"]
        served = ProcessTree(command, log=self.folder / "serve.log")
        self._stack.callback(served.kill)

    def start_mirror(self) -> None:
        """Starts `run` again, if it has ended."""
        if self.mirror.tree.exit_code is not None:
            self.mirror.start()

    def second(self, *arguments: str) -> CommandMirror:
        """Another mirror, not started; ended with the rig."""
        self._starts += 1
        return self._command(f"second-{self._starts}", *arguments)

    def close(self) -> None:
        """Ends what was started."""
        self._stack.close()

    def write(self, name: str, count: int = 50) -> None:
        """Writes records to the source of a link."""
        produce(self.source.direct, self.topic(name), 1, some_records(3, count), transactional_id=f"writer-{name}",
                abort_every=0)  # fmt: skip

    def answer(self, place: str, path: str) -> str | None:
        """Body of an answer; None if no process answers."""
        connection = http.client.HTTPConnection("127.0.0.1", self._ports[place], timeout=5)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        return None

    def data(self, place: str, name: str) -> dict[str, Any]:
        """A link as ``/api/v1`` tells it; empty if no process answers."""
        body = self.answer(place, f"/api/v1/links/{quote(name)}")
        found: dict[str, Any] = orjson.loads(body or b"{}")
        return found

    def page(self, place: str, name: str) -> str:
        """Text of a link's page, without markup."""
        body = self.answer(place, f"/links/{quote(name)}") or ""
        assert PASSWORD not in body
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    def scrape(self, place: str, name: str) -> Scrape:
        """Scrapes, as Prometheus would; the sample is kept."""
        body = self.answer(place, "/metrics")
        assert PASSWORD not in (body or "")
        found = Scrape(body, name)
        self._histories.setdefault((place, name), History()).add(time.monotonic(), found)
        return found

    def firing(self, place: str, name: str) -> dict[str, list[dict[str, str]]]:
        """Alerts of the shipped rules that hold in the last scrape."""
        return firing(self._histories[place, name], time.monotonic())

    def healthy(self, name: str) -> None:
        """Waits until the link runs and has caught up in both places, and no alert of it holds but of take-overs."""
        for place in (RUN, SERVE):
            wait_for(lambda place=place: " ✓ ok caught up " in self.page(place, name), 180)
        self._histories.clear()
        for place in (RUN, SERVE):
            self.scrape(place, name)

    def named(
        self,
        name: str,
        since: float,
        alerts: Mapping[str, str],
        words: Mapping[str, Sequence[str]],
        series: Mapping[str, tuple[str, Mapping[str, str], float]],
        *,
        seconds: float,
    ) -> Named:
        """
        Waits until a fault is named in every place of ``alerts``.

        Args:
            since: Monotonic time of the fault.
            alerts: Alert by place.
            words: What the page of each place says.
            series: Metric, labels and least value, by place.
            seconds: Longest time.
        """
        found = Named()
        while True:
            fired: dict[str, Any] = {}
            for place, alert in alerts.items():
                scrape, page = self.scrape(place, name), self.page(place, name)
                now = time.monotonic() - since
                metric, labels, least = series[place]
                fired[place] = set(self.firing(place, name))
                if metric == "up" or all(word in page for word in words[place]):
                    found.page.setdefault(place, now)
                values = scrape.values(metric, **labels)
                if any(value == 0 if metric == "up" else value >= least for value in values):
                    found.metrics.setdefault(place, now)
                if alert in fired[place]:
                    found.alert.setdefault(place, now)
            if all(each.keys() == alerts.keys() for each in (found.page, found.metrics, found.alert)):
                return found
            if time.monotonic() - since > seconds:
                pages = {place: self.page(place, name)[:1500] for place in alerts}
                raise AssertionError(f"not named within {seconds} s: {found.__dict__}; {fired}; {pages}")
            time.sleep(0.25)

    def _command(self, folder: str, *arguments: str) -> CommandMirror:
        made = CommandMirror(self.settings, self.folder / folder, *arguments)
        self._stack.callback(made.close)
        return made


@contextlib.contextmanager
def watched_links(
    folder: Path, names: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> Iterator[WatchedLinks]:
    """Two clusters and the mirror of all links between them."""
    with ExitStack() as stack:
        sides = []
        for name in ("named-east", "named-west"):
            # retention looks often, and deletes at once
            side = Guarded(name, **{"log.retention.check.interval.ms": "500"})
            stack.callback(side.cluster.destroy)
            sides.append(side)
        rig = WatchedLinks(sides[0], sides[1], folder, names, options)
        stack.callback(rig.close)
        rig.start()
        yield rig
