"""An executor as Spark starts it on Kubernetes: the entry point of our image, with a stand-in for Kubernetes' API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINT = ROOT / "deploy" / "container" / "entrypoint.sh"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
PAGE = (ROOT / "docs" / "deploy.md").read_text()


class Api(ThreadingHTTPServer):
    """Keeps pods, and runs the container of each as a process of this machine."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.pods: dict[str, dict[str, Any]] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.images: set[str] = set()

    def start(self, pod: dict[str, Any]) -> None:
        """Starts the container of a pod."""
        name = pod["metadata"]["name"]
        (container,) = pod["spec"]["containers"]
        self.images.add(container["image"])
        fields = {"status.podIP": "127.0.0.1", "metadata.name": name}
        environ = {"PATH": PATH, "HOME": str(self.folder)}
        for each in container["env"]:
            path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environ[each["name"]] = fields[path] if path in fields else each.get("value", "")
        environ["SPARK_LOCAL_DIRS"] = str(self.folder)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes.append(
                subprocess.Popen(
                    [ENTRYPOINT, *container["args"]], env=environ, stdout=log, stderr=log, cwd=self.folder
                )
            )
        running = {"name": container["name"], "ready": True, "restartCount": 0, "image": "", "imageID": ""}
        pod["metadata"] |= {"uid": name, "resourceVersion": "1", "namespace": "default"}
        pod["status"] = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "containerStatuses": [{**running, "state": {"running": {}}}],
        }
        self.pods[name] = pod


class Handler(BaseHTTPRequestHandler):
    """Answers what Spark's scheduler asks."""

    protocol_version = "HTTP/1.1"
    server: Api

    def do_POST(self) -> None:
        """Creates a pod."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith("/api/v1/namespaces/default/pods"):
            self.server.start(body)
        self._answer(201, body)

    def do_GET(self) -> None:
        """Lists pods, and nothing else."""
        found = re.match(r"/api/v1/namespaces/default/pods(?:/([^?]+))?", self.path)
        if found and found[1]:
            pod = self.server.pods.get(found[1])
            self._answer(200 if pod else 404, pod or {"kind": "Status", "apiVersion": "v1", "code": 404})
            return
        items = list(self.server.pods.values()) if found else []
        listed = {"apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        self._answer(200, {"kind": "PodList" if found else "List", **listed})

    def do_PATCH(self) -> None:
        """Changes nothing."""
        self._unread()
        self._answer(200, {})

    def do_DELETE(self) -> None:
        """Forgets the pods; their executors end with the driver."""
        self._unread()
        self.server.pods.clear()
        self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name in the base class
        """Stays silent."""

    def _unread(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _answer(self, code: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """The stand-in, and no process of it afterwards."""
    server = Api(tmp_path)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()
    for process in server.processes:
        process.kill()
        process.wait()


def command_of_the_page() -> str:
    """The command for Kubernetes as a master."""
    found = re.search(r"^(PYSPARK_PYTHON=.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_an_executor_in_a_pod_of_our_image_runs_the_lanes(
    api: Api, east: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """The command of docs/deploy.md; addresses, and what a stand-in does not offer, are ours."""
    create_topic(east.client_properties, topic_name, 2)
    written = produce(
        east.client_properties, topic_name, 2, some_records(11, 800), transactional_id=topic_name
    )
    document = {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}],
        "defaults": {"lanes": 2},
    }
    (tmp_path / "mirror.yaml").write_text(yaml.safe_dump(document))
    (tmp_path / "mirror.yaml").chmod(0o600)
    command = command_of_the_page().strip()
    for ours, theirs in (
        (f"k8s://http://127.0.0.1:{api.server_address[1]}", "k8s://https://kubernetes.default.svc"),
        ("spark.driver.host=127.0.0.1", "spark.driver.host=mirror-driver"),
    ):
        assert theirs in command
        command = command.replace(theirs, ours)
    for setting in (
        "executor.instances=1",
        "executor.cores=2",
        "executor.memory=512m",
        "kubernetes.executor.enableApiWatcher=false",
        "kubernetes.executor.disableConfigMap=true",
    ):
        command += f" --spark-conf spark.{setting}"
    done = subprocess.run(
        ["/bin/bash", "-ec", f"{command} --until caught-up"],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
        env={**os.environ, "PATH": PATH},
    )  # fmt: skip
    logs = "".join(path.read_text()[-3000:] for path in tmp_path.glob("*.log"))
    assert done.returncode == 0, done.stderr[-3000:] + logs
    assert api.images == {"eomirror:0.1.0"}
    assert read_committed(west.client_properties, f"east.{topic_name}") == written
    for process in api.processes:
        assert process.wait(30) == 0, logs
