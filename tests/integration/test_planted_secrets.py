"""
Twenty planted secrets appear nowhere: page, API, metrics, log, Spark's UI, process arguments, files, errors, `-o json`.

Some are real logins, the others stand in properties that librdkafka and Spark take and do not use here.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml

from eomirror.demo.mirror_process import ProcessTree
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.localkafka.ports import free_ports
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

_USER = "mirror"


@dataclass
class Planted:
    """Secrets by the place where they stand."""

    by_place: dict[str, str] = field(default_factory=dict)

    def plant(self, place: str) -> str:
        """Returns a new secret for a place."""
        self.by_place[place] = f"planted-{len(self.by_place):02}-vA7q"
        return self.by_place[place]

    def found_in(self, text: str | bytes) -> list[str]:
        """Returns the places of the secrets that a text contains."""
        data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        return [place for place, secret in self.by_place.items() if secret.encode() in data]


class Stage:
    """A mirror that runs with secrets in every place that takes one."""

    def __init__(
        self, source: LocalCluster, target: LocalCluster, name: str, folder: Path, secrets: Planted
    ) -> None:
        self.name, self.folder, self.secrets = name, folder, secrets
        self.home, self.tmp = folder / "private", folder / "tmp"
        self.home.mkdir(mode=0o700)
        self.tmp.mkdir()
        self.environment = {
            "TMPDIR": str(self.tmp),
            "SPARK_LOCAL_DIRS": str(self.tmp / "spark"),
            "EAST_KEY_PASSWORD": secrets.plant("ssl.key.password from the environment"),
            "WEST_PASSWORD": secrets.by_place["sasl.password, a real login"],
            "STORE_TOKEN": secrets.plant("spark token from the environment"),
        }
        east = {
            **source.client_properties,
            "sasl.username": secrets.plant("sasl.username with a plain connection").replace(
                "planted", "user"
            ),
            "sasl.password": secrets.plant("sasl.password in the file"),
            "sasl.oauthbearer.client.secret": self.filed("sasl.oauthbearer.client.secret from a file"),
            "sasl.oauthbearer.token.endpoint.url": f"https://u:{secrets.plant('password in a URL')}@idp.example/t",
            "sasl.oauthbearer.config": f"scope=x token={secrets.plant('sasl.oauthbearer.config')}",
            "ssl.keystore.password": secrets.plant("ssl.keystore.password"),
            "ssl.key.password": "${env:EAST_KEY_PASSWORD}",
            "consumer": {"sasl.oauthbearer.client.id": self.filed("a property of consumers from a file")},
            "producer": {"ssl.key.password": secrets.plant("ssl.key.password of producers")},
        }
        del secrets.by_place["sasl.username with a plain connection"]
        west = {
            **target.client_properties_of(_USER),
            "sasl.password": "${env:WEST_PASSWORD}",
            "ssl.key.password": self.filed("ssl.key.password from a file"),
            "sasl.oauthbearer.client.secret": secrets.plant("sasl.oauthbearer.client.secret in the file"),
        }
        self.port, self.ui, self.serving = free_ports(3)
        java = f"-Djavax.net.ssl.keyStorePassword={secrets.plant('a Java option')}"
        self.settings: dict[str, Any] = {
            "clusters": {"east": east, "west": west},
            "links": [{"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"]}],
            "defaults": {"lanes": 1, "plane": "auto", "groups": []},
            "spark": {
                "spark.ui.enabled": "true",
                "spark.ui.port": str(self.ui),
                "spark.hadoop.fs.s3a.secret.key": self.filed("spark.hadoop.fs.s3a.secret.key from a file"),
                "spark.hadoop.store.token": "${env:STORE_TOKEN}",
                "spark.ssl.keyPassword": secrets.plant("spark.ssl.keyPassword"),
                "spark.ssl.trustStorePassword": secrets.plant("spark.ssl.trustStorePassword"),
                "spark.hadoop.store.url": f"https://u:{secrets.plant('password in a URL of Spark')}@s.example/",
                "spark.hadoop.client.api.key": secrets.plant("an API key"),
                "spark.hadoop.other.password": secrets.plant("spark.hadoop.other.password"),
                "spark.executorEnv.STORE_SECRET": secrets.plant("spark.executorEnv"),
                "spark.hadoop.store.java": java,
            },
        }
        self.path = self.home / "mirror.yaml"
        self.write()

    def write(self) -> None:
        """Writes the configuration."""
        self.path.write_text(yaml.safe_dump(self.settings))
        self.path.chmod(0o600)

    def filed(self, place: str) -> str:
        """Reference to a file with a secret."""
        file = self.home / f"{len(self.secrets.by_place)}.secret"
        file.write_text(self.secrets.plant(place) + "\n")
        file.chmod(0o600)
        return f"${{file:{file}}}"

    def command(self, *arguments: str) -> str:
        """Output and errors of a command, whatever its exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", *arguments],
            capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **self.environment},
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def files(self) -> Iterator[Path]:
        """Files that a run has written, as long as they exist."""
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_relative_to(self.home):
                yield path


def ask(port: int, path: str) -> bytes:
    """Body of an answer; follows one redirection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body, place = answer.read(), answer.getheader("Location")
    finally:
        connection.close()
    return ask(port, "/" + place.split("/", 3)[3]) if place else body


@pytest.fixture
def stage(east: Any, start_cluster: Callable[..., LocalCluster], topic_name: str, tmp_path: Path) -> Stage:
    """A link from a cluster that other tests share into one with a login."""
    secrets = Planted()
    password = secrets.plant("sasl.password, a real login")
    west = start_cluster(ClusterSpec("guarded", security="sasl_plaintext", users={_USER: password}))
    create_topic(east.client_properties, f"{topic_name}.orders")
    produce(
        east.client_properties, f"{topic_name}.orders", 1, some_records(1, 50), transactional_id=topic_name
    )
    return Stage(east, west, topic_name, tmp_path, secrets)


class Leaks:
    """Collects the places of secrets, by where they were found."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.found: dict[str, list[str]] = {}

    def look(self, where: str, text: str | bytes) -> None:
        """Looks for secrets in a text, which must not be empty."""
        assert text, where
        if found := self.stage.secrets.found_in(text):
            self.found[where] = found

    def look_at_pages(self, port: int) -> None:
        """Everything that a process serves."""
        link = self.stage.name
        offset = f"offset?topic={link}.orders&partition=0&offset=1"
        for page in (
            "/", f"/links/{link}", f"/links/{link}/readiness", f"/links/{link}/groups", f"/links/{link}/{offset}",
            "/metrics", "/livez", "/readyz", "/api/v1/links", f"/api/v1/links/{link}",
            f"/api/v1/links/{link}/readiness", f"/api/v1/links/{link}/{offset}",
        ):  # fmt: skip
            self.look(f"{port}{page}", ask(port, page))

    def look_at_arguments(self, tree: ProcessTree) -> None:
        """Of each process, as every user of the machine can read them."""
        for process in tree.processes():
            with contextlib.suppress(psutil.Error):
                self.look(f"arguments of {process.name()}", " ".join(process.cmdline()) or "-")

    def look_at_spark(self) -> None:
        """Pages and data of Spark's own UI."""
        (application,) = yaml.safe_load(ask(self.stage.ui, "/api/v1/applications/"))
        data = f"/api/v1/applications/{application['id']}"
        for page in ("/environment/", "/jobs/", "/executors/", f"{data}/environment", f"{data}/jobs"):
            body = ask(self.stage.ui, page)
            assert len(body) > 100, page
            self.look(f"Spark {page}", body)

    def look_at_commands(self) -> None:
        """Outputs and errors."""
        for words in (
            ("status", "-o", "json"), ("plan", "-o", "json"), ("check", "-o", "json"), ("check",),
            ("verify", "-o", "json"), ("lag", "-o", "json"), ("events", "-o", "json"),
            ("readiness", "--link", self.stage.name, "-o", "json"),
        ):  # fmt: skip
            output = self.stage.command(words[0], str(self.stage.path), *words[1:])
            self.look(f"eomirror {' '.join(words)}", output)

    def look_at_files(self) -> None:
        """Logs, and what else lies in the folders of the run."""
        for path in self.stage.files():
            with contextlib.suppress(OSError):
                self.look(f"file {path.relative_to(self.stage.folder)}", path.read_bytes() or b"-")


def test_planted_secrets_are_nowhere(stage: Stage) -> None:
    """While a mirror runs and `serve` reads beside it, and in what both leave behind."""
    assert len(stage.secrets.by_place) >= 20
    leaks = Leaks(stage)
    trees = [
        ProcessTree(
            [sys.executable, "-m", "eomirror", word, str(stage.path), "--listen", f"127.0.0.1:{port}"],
            log=stage.folder / f"{word}.log",
            environment=stage.environment,
        )
        for word, port in (("run", stage.port), ("serve", stage.serving))
    ]
    try:
        for port in (stage.port, stage.serving):
            wait_for(lambda port=port: _ready(port), 120)
            leaks.look_at_pages(port)
        for tree in trees:
            leaks.look_at_arguments(tree)
        leaks.look_at_spark()
        leaks.look_at_commands()
        leaks.look_at_files()
    finally:
        for tree in trees:
            if tree.exit_code is None:
                tree.terminate(30)
                tree.kill()
    leaks.look_at_files()
    stage.environment["WEST_PASSWORD"] = stage.secrets.plant("a wrong password")
    refused = stage.command("status", str(stage.path))
    assert "west" in refused
    leaks.look("a refused login", refused)
    assert not leaks.found


def _ready(port: int) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return b'"ready":true' in ask(port, "/readyz")
    return False
