"""Several `eomirror serve` on one mirror: they answer alike with the mirror killed, and with the source gone."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from eomirror.demo.mirror_process import ProcessTree
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.localkafka.ports import free_ports
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]

# what differs from process to process, or from moment to moment
_OWN = {
    "age_seconds", "source_seconds", "target_seconds", "clock_offset_seconds", "claim_age_seconds",
    "source_seen_seconds", "history", "since",
}  # fmt: skip
# events that only the process that serves has seen
_SEEN = {"source", "target", "mirror", "outage", "silent"}
_AGE = re.compile(r"last read, [^(<]*? ago(?: \(about [^)]*\))?")
_OWN_METRICS = ("process_", "eomirror_link_read_seconds", "eomirror_owner_claim_age_seconds")


class Serving:
    """One process."""

    def __init__(self, config: Path, port: int, log: Path) -> None:
        self.port = port
        command = [sys.executable, "-m", "eomirror", "serve", str(config), "--listen", f"127.0.0.1:{port}"]
        self.process = ProcessTree(command, log=log)

    def ask(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            return 0, b""
        finally:
            connection.close()

    def data(self, path: str) -> Any:
        return without(orjson.loads(self.ask(f"/api/v1/links/{path}")[1]))

    def metrics(self) -> dict[tuple[str, str], str]:
        return {
            (sample.name, repr(sorted(sample.labels.items()))): repr(sample.value)
            for family in text_string_to_metric_families(self.ask("/metrics")[1].decode())
            for sample in family.samples
            if not sample.name.startswith(_OWN_METRICS)
        }

    def everything(self, link: str) -> tuple[Any, ...]:
        return self.data(link), self.metrics(), self.shown(link)

    def shown(self, link: str) -> str:
        """The page of a link, without its times and the clusters' answer times."""
        page = self.ask(f"/links/{quote(link)}")[1].decode()
        page = re.sub(r'(?s)<section id="(?:speed|events|lines)">.*?</section>', "", page)
        page = re.sub("<dt>changed in the last hour</dt><dd>.*?</dd>", "", _AGE.sub("", page))
        return re.sub(r"<time[^>]*>[^<]*</time>|\([^()]* ago\)|claim \S+ \S+ old", "", page)


def answered(body: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question; empty while it is looked for."""
    return {} if body.get("pending") else body


def without(value: Any) -> Any:
    """A body without what is a process's own."""
    if isinstance(value, dict):
        return {key: without(item) for key, item in value.items() if key not in _OWN}
    if isinstance(value, list):
        return [without(item) for item in value if not (isinstance(item, dict) and item.get("kind") in _SEEN)]
    return _AGE.sub("", value) if isinstance(value, str) else value


@contextmanager
def serving(config: Path, folder: Path, count: int) -> Iterator[list[Serving]]:
    """Several processes, each ready."""
    with ExitStack() as stack:
        made = []
        for number, port in enumerate(free_ports(count)):
            made.append(Serving(config, port, folder / f"serve-{port}-{number}.log"))
            stack.callback(made[-1].process.terminate)
        for each in made:
            wait_for(lambda each=each: each.ask("/readyz")[0] == 200, 60)
        yield made


def test_two_of_them_answer_alike_whatever_is_dead(
    west: Any, topic_name: str, tmp_path: Path, start_cluster: Callable[[ClusterSpec], Any]
) -> None:
    """State, lag, owner, events, readiness, an offset, the page and metrics; one that starts late says the same."""
    source = start_cluster(ClusterSpec("source"))
    create_topic(source.client_properties, topic_name, 2)
    written = produce(
        source.client_properties, topic_name, 2, some_records(3, 600), transactional_id=topic_name
    )
    config = tmp_path / "mirror.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    "source": dict(source.client_properties),
                    "west": dict(west.client_properties),
                },
                "links": [{"name": topic_name, "source": "source", "target": "west", "topics": [topic_name]}],
            }
        )
    )
    config.chmod(0o600)
    mirror = ProcessTree([sys.executable, "-m", "eomirror", "run", str(config)], log=tmp_path / "run.log")
    try:
        with serving(config, tmp_path, 2) as both:
            total = sum(map(len, written.values()))

            def mirrored() -> bool:
                found = both[0].data(topic_name)
                return found.get("lag_records") == 0 and found["topic_rows"][0]["records"] == total

            wait_for(mirrored, 90)
            # the mirror is dead: its claim stands still, and it never released it
            mirror.kill()
            alike(both, topic_name, "silent", "down")
            lost = [each.data(f"{topic_name}/readiness")["failover"]["lost"] for each in both]
            assert lost == [0, 0]
            assert translated(both[0], topic_name) == translated(both[1], topic_name)
            # the source is dead as well: what it held is unknown, and what was mirrored is not
            source.stop()
            alike(both, topic_name, "silent", "down", source=False)
            with serving(config, tmp_path, 1) as late:
                alike([both[0], *late], topic_name, "silent", "down", source=False)
                answers = [translated(each, topic_name) for each in (*both, *late)]
                assert answers[0] == answers[1] == answers[2]
                assert answers[0]["offsets"][0]["to_offset"] is not None
                shown = both[0].data(topic_name)
                assert shown["topic_rows"][0]["records"] == total
                # the mirror may have been killed before it recorded how far it had seen the source
                assert shown["failover"].startswith(("unknown", "loses what was written since"))
                for each in late:
                    # pending while the dead source is asked
                    readiness = wait_for(lambda each=each: answered(each.data(f"{topic_name}/readiness")), 60)
                    assert readiness["planned"]["ready"] is False
                    assert readiness["failover"]["ready"] is True
            assert outages(config) == []
            # it ends while no mirror runs, and both have seen it
            source.brokers[0].start()
            (told,) = wait_for(lambda: outages(config), 60)
            alike(both, topic_name, "silent", "down")
            assert told.startswith("cluster source did not answer for ")
            assert len(outages(config)) == 1
    finally:
        mirror.kill()


def outages(config: Path) -> list[str]:
    """Texts of the outages in `eomirror events`, which has seen none of them."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "events", str(config), "-o", "json"],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [row["text"] for row in orjson.loads(done.stdout)["events"] if row["kind"] == "outage"]


def alike(some: list[Serving], link: str, state: str, verdict: str, *, source: bool = True) -> None:
    """Waits until all have seen it, and compares data, metrics and page."""

    def seen(each: Serving) -> bool:
        found = each.data(link)
        return (found["state"], found["verdict"], not found["problem"]) == (state, verdict, source)

    for each in some:
        wait_for(lambda each=each: seen(each), 90)
    first, *others = some
    for other in others:
        # a rate is that of the last seconds, and each looks at moments of its own
        with suppress(AssertionError):
            wait_for(lambda other=other: other.everything(link) == first.everything(link), 90)
        for there, here in zip(other.everything(link), first.everything(link), strict=True):
            assert there == here
    for each in some:
        assert each.ask("/livez")[0] == each.ask("/readyz")[0] == 200


def translated(server: Serving, link: str) -> Any:
    """Where the 100th offset of partition 0 is on the target; asked again while the answer is on its way."""
    path = f"{link}/offset?topic={link}&partition=0&offset=100"
    wait_for(lambda: "pending" not in server.data(path), 60)
    return server.data(path)
