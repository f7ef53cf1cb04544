"""A configuration file that changes under `eomirror run`, on real brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import yaml

from support.links.mirrors import CommandMirror
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]


class Changed:
    """A mirror whose file is edited; `one` and `two` are its links."""

    def __init__(self, east: LocalCluster, west: LocalCluster, name: str, folder: Path) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name = name
        self.links = {"one": self.link("one", ["a", "b"]), "two": self.link("two", ["z"])}
        self.mirror = CommandMirror(self.settings(), folder / "mirror", "--listen", "127.0.0.1:0")
        self.path = folder / "mirror" / "mirror.yaml"
        self.numbers: dict[str, int] = {}

    def link(self, link: str, words: list[str], **given: Any) -> dict[str, Any]:
        """Settings of a link of some topics."""
        return {
            "name": f"{self.name}-{link}", "source": "east", "target": "west",
            "topics": [self.topic(word) for word in words], "plane": plane_under_test(), "heartbeats": "off", **given,
        }  # fmt: skip

    def settings(self) -> dict[str, Any]:
        """The file."""
        return {"clusters": {"east": self.east, "west": self.west}, "links": list(self.links.values())}

    def topic(self, word: str) -> str:
        """Name of a topic."""
        return f"{self.name}.{word}"

    def write(self, *words: str) -> None:
        """Twenty records more into each."""
        for word in words:
            number = self.numbers[word] = self.numbers.get(word, 0) + 1
            produce(self.east, self.topic(word), 2, some_records(number, 20), transactional_id=self.name)

    def edit(self, **links: dict[str, Any] | None) -> None:
        """Writes the file with links that change, or are gone."""
        self.links = {name: link for name, link in (self.links | links).items() if link is not None}
        self.path.write_text(yaml.safe_dump(self.settings()))

    def same(self, *words: str) -> bool:
        """True if the copies are whole."""
        return all(
            read_committed(self.west, f"east.{self.topic(word)}")
            == read_committed(self.east, self.topic(word))
            for word in words
        )

    def page(self, link: str) -> dict[str, Any]:
        """The link as the mirror shows it."""
        line = next(line for line in self.mirror.log.read_text().splitlines() if '"listening"' in line)
        address = str(json.loads(line)["url"]).removeprefix("http://")
        with urlopen(f"http://{address}api/v1/links/{self.name}-{link}", timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def attempts(self, link: str) -> dict[int, tuple[str, int, int]]:
        """Run, epoch and attempt of each lane."""
        shown = self.page(link)
        return {
            lane["lane"]: (shown["owner"]["run"], lane["epoch"], lane["attempt"]) for lane in shown["lanes"]
        }


@pytest.fixture
def changed(east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path) -> Any:
    """A running mirror of two links."""
    made = Changed(east, west, topic_name, tmp_path)
    for word in ("a", "b", "c", "z"):
        create_topic(made.east, made.topic(word), 2)
        made.write(word)
    try:
        made.mirror.start()
        wait_for(lambda: made.same("a", "b", "z"), 90)
        # each of four lanes begins once in the driver and once on Spark
        wait_for(lambda: made.mirror.said("lane_starts") >= 8, 90)
        # the page may show it a moment later
        wait_for(
            lambda: all(epoch > 1 for link in made.links for _, epoch, _ in made.attempts(link).values()), 30
        )
        yield made
        made.mirror.check()
        made.mirror.stop(aborted=True)
    finally:
        made.mirror.close()


def test_topics_come_and_go_without_a_pause_of_other_lanes(changed: Changed) -> None:
    """EO-1: a topic that comes back goes on where it ended; lanes that are not concerned keep their attempts."""
    before, others = changed.attempts("one"), changed.attempts("two")
    changed.edit(one=changed.link("one", ["a", "b", "c"]))
    wait_for(lambda: changed.same("c"), 30)
    assert changed.attempts("one") == before

    changed.edit(one=changed.link("one", ["b", "c"]))
    wait_for(lambda: changed.mirror.said("topics_left_the_link"), 30)
    changed.write("a", "b", "c", "z")
    wait_for(lambda: changed.same("b", "c", "z"), 30)
    assert not changed.same("a")
    assert changed.topic("a") not in {row["topic"] for row in changed.page("one")["topic_rows"]}

    changed.edit(one=changed.link("one", ["a", "b", "c"]))
    wait_for(lambda: changed.same("a"), 30)
    assert changed.attempts("two") == others
    assert {run for run, _, _ in changed.attempts("one").values()} == {run for run, _, _ in before.values()}
    assert not changed.mirror.said("lane_retries")


def test_links_begin_again_begin_and_end_beside_one_that_goes_on(changed: Changed) -> None:
    """EO-1, EO-2: the link has another generation with other lanes, and each record once."""
    others = changed.attempts("two")
    before = changed.page("one")["generation"]
    changed.edit(one=changed.link("one", ["a", "b"], lanes=3))
    wait_for(
        lambda: (changed.page("one")["generation"] or 0) > before and len(changed.attempts("one")) == 3, 60
    )
    changed.edit(three=changed.link("three", ["c"]))
    wait_for(lambda: changed.same("c"), 60)
    changed.edit(three=None)
    wait_for(lambda: changed.mirror.said(f"{changed.name}-three ends"), 30)
    changed.write("a", "b", "c", "z")
    wait_for(lambda: changed.same("a", "b", "z"), 60)
    assert not changed.same("c")
    assert changed.attempts("two") == others


def test_a_bad_file_is_refused_by_name_and_the_one_of_before_stays_in_force(changed: Changed) -> None:
    """`status`, page and metrics tell it until a good one is taken."""
    before = changed.attempts("one")
    changed.edit(one=changed.link("one", ["a", "b"], lanes=0))
    wait_for(lambda: changed.page("one")["refused_configuration"], 30)
    refused = changed.page("one")["refused_configuration"]
    assert "links[0].lanes" in refused["reason"]
    changed.write("a", "z")
    wait_for(lambda: changed.same("a", "z"), 30)
    assert changed.attempts("one") == before

    good = changed.path.with_name("good.yaml")
    changed.links["one"] = changed.link("one", ["a", "b"])
    good.write_text(yaml.safe_dump(changed.settings()))

    def status() -> str:
        command = [sys.executable, "-m", "eomirror", "status", str(good), "-o", "table"]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    wait_for(lambda: "the changed configuration is refused" in status(), 30)
    changed.edit()
    wait_for(lambda: changed.page("one")["refused_configuration"] is None, 30)
    wait_for(lambda: "the changed configuration is refused" not in status(), 30)
    assert changed.attempts("one") == before
