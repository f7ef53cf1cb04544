"""A configuration file that changes under `eomirror run`, on real brokers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
import yaml
from confluent_kafka import Producer

from support.clusters.log_files import partition_batches
from support.links.mirrors import CommandMirror
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]


class Changed:
    """A mirror whose file is edited; `one` and `two` are its links."""

    def __init__(
        self, east: LocalCluster, west: LocalCluster, name: str, folder: Path, copies: Mapping[str, str]
    ) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name = name
        self.copies = copies
        self.links = {"one": self.link("one", ["a", "b"]), "two": self.link("two", ["z"])}
        self.mirror = CommandMirror(self.settings(), folder / "mirror", "--listen", "127.0.0.1:0")
        self.path = folder / "mirror" / "mirror.yaml"
        self.numbers: dict[str, int] = {}

    def link(self, link: str, words: list[str], **given: Any) -> dict[str, Any]:
        """Settings of a link of some topics."""
        return {
            "name": f"{self.name}-{link}", "source": "east", "target": "west",
            "topics": [self.topic(word) for word in words], "plane": plane_under_test(), "heartbeats": "off",
            **self.copies, **given,
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
            self._placed(read_committed(self.west, self.copy(word)))
            == self._placed(read_committed(self.east, self.topic(word)))
            for word in words
        )

    def copy(self, word: str) -> str:
        """Name of the copy of a topic."""
        return self.topic(word) if self.copies.get("naming") == "identity" else f"east.{self.topic(word)}"

    def _placed(self, records: dict[int, list[Any]]) -> Any:
        """The records as they are compared: those that are placed by key have other partitions, and a header."""
        if "partitions" not in self.copies:
            return records
        return sorted(repr(record[:2]) for found in records.values() for record in found)

    def page(self, link: str) -> dict[str, Any]:
        """The link as the mirror shows it."""
        line = next(line for line in self.mirror.log.read_text().splitlines() if '"listening"' in line)
        address = str(json.loads(line)["url"]).removeprefix("http://")
        with urlopen(f"http://{address}api/v1/links/{self.name}-{link}", timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def status(self, *arguments: str, path: Path | None = None) -> str:
        """What `eomirror status` says."""
        return self.said("status", *arguments, path=path)

    def said(self, command_: str, *arguments: str, path: Path | None = None) -> str:
        """What a command says."""
        command = [sys.executable, "-m", "eomirror", command_, str(path or self.path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout

    def attempts(self, link: str) -> dict[int, tuple[str, int, int]]:
        """Run, epoch and attempt of each lane."""
        shown = self.page(link)
        return {
            lane["lane"]: (shown["owner"]["run"], lane["epoch"], lane["attempt"]) for lane in shown["lanes"]
        }


@pytest.fixture
def copies() -> dict[str, str]:
    """Settings of both links."""
    return {}


@pytest.fixture
def changed(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, copies: dict[str, str]
) -> Any:
    """A running mirror of two links."""
    made = Changed(east, west, topic_name, tmp_path, copies)
    for word in ("a", "b", "c", "d", "z"):
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

    links = {link["link"]: link for link in json.loads(changed.status("-o", "json"))["links"]}
    parked = {
        topic["topic"]: {part["parked"] for part in topic["partitions"]}
        for topic in links[f"{changed.name}-one"]["topics"]
    }
    assert parked == {changed.topic("a"): {True}, changed.topic("b"): {False}, changed.topic("c"): {False}}
    assert links[f"{changed.name}-one"]["lag_records"] == 0

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
    changed.west, west = {**changed.west, "security.protocol": "ssl"}, changed.west
    changed.edit()
    changed.west = west
    wait_for(lambda: changed.page("one")["refused_configuration"], 30)
    assert "security.protocol" in changed.page("one")["refused_configuration"]["reason"]
    changed.edit(one=changed.link("one", ["a", "b"], lanes=0))
    wait_for(lambda: "links[0].lanes" in changed.page("one")["refused_configuration"]["reason"], 30)
    changed.write("a", "z")
    wait_for(lambda: changed.same("a", "z"), 30)
    assert changed.attempts("one") == before

    good = changed.path.with_name("good.yaml")
    changed.links["one"] = changed.link("one", ["a", "b"])
    good.write_text(yaml.safe_dump(changed.settings()))

    def status() -> str:
        return changed.status("-o", "table", path=good)

    wait_for(lambda: "the changed configuration is refused" in status(), 30)
    changed.edit()
    wait_for(lambda: changed.page("one")["refused_configuration"] is None, 30)
    wait_for(lambda: "the changed configuration is refused" not in status(), 30)
    assert changed.attempts("one") == before


@pytest.mark.parametrize(
    "copies",
    [
        {},
        pytest.param({"naming": "identity"}, marks=pytest.mark.slow),
        pytest.param({"partitions": "keyed", "origin_header": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_topic_moves_from_link_to_link_and_back_and_each_record_comes_once(
    changed: Changed,
    copies: dict[str, Any],  # noqa: ARG001  it is given to the fixture
) -> None:
    """EO-1, EO-2: the next link goes on where the one before has left off, with one change of the file for each."""

    def edit(here: str, there: str) -> None:
        own = {"one": ["b"], "two": ["z"]}
        changed.edit(**{here: changed.link(here, own[here]), there: changed.link(there, ["a", *own[there]])})

    runs = {run for run, _, _ in changed.attempts("one").values()}
    for here, there in (("one", "two"), ("two", "one")):
        left, taken = changed.mirror.said("topics_left_the_link"), changed.mirror.said("topics_carried_on")
        edit(here, there)
        wait_for(lambda left=left: changed.mirror.said("topics_left_the_link") > left, 30)
        changed.write("a", "b", "z")
        wait_for(lambda taken=taken: changed.mirror.said("topics_carried_on") > taken, 30)
        wait_for(lambda: changed.same("a", "b", "z"), 30)
    # an attempt that has not read control yet when the topic is parked leaves, and begins again (docs/adr/0030)
    assert {run for run, _, _ in changed.attempts("one").values()} == runs

    # the link that has it ends, and comes again with its old position
    changed.edit(one=None, two=changed.link("two", ["a", "z"]))
    changed.write("a", "z")
    wait_for(lambda: changed.same("a", "z"), 60)
    changed.edit(one=changed.link("one", ["a", "b"]), two=changed.link("two", ["z"]))
    changed.write("a", "b", "z")
    wait_for(lambda: changed.same("a", "b", "z"), 60)
    verified = json.loads(changed.said("verify", "-o", "json"))["links"]
    assert {part["verdict"] for link in verified for part in link["partitions"]} == {"equal"}, verified

    # while the mirror is down: the next run takes both links, and fences the lanes of both
    changed.mirror.stop(aborted=True)
    edit("one", "two")
    changed.write("a", "b", "z")
    said = changed.said("run", "--until", "caught-up")
    assert changed.same("a", "b", "z"), said
    edit("two", "one")
    changed.write("a", "b", "z")
    changed.mirror.start()
    wait_for(lambda: changed.same("a", "b", "z"), 60)
    wait_for(lambda: "has mirrored" not in changed.status("-o", "table"), 30)

    # the link that has it is in no file any more, so that nothing proves that it has ended
    changed.mirror.stop(aborted=True)
    changed.edit(one=None, two=changed.link("two", ["a", "z"]))
    changed.write("a", "z")
    changed.mirror.start()
    wait_for(lambda: changed.same("z"), 60)
    words = f"link {changed.name}-one has mirrored {changed.topic('a')}-0 in the meantime"
    wait_for(lambda: words in changed.status("-o", "table"), 30)
    assert f"--resume-at {changed.topic('a')}-1=" in changed.status("-o", "table")
    assert not changed.same("a")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_mirror_that_is_killed_while_topics_move_between_links(
    changed: Changed, rng: random.Random
) -> None:
    """
    F1, EO-1: at any moment of the change; the next run takes both links, and goes on where the topic was left.

    Where a link ends with the change, the file of before is restored.
    """
    own = {"one": ["b"], "two": ["z"]}
    here, there = "one", "two"
    for number in range(12):
        before, ends = dict(changed.links), number % 3 == 0
        left = None if ends else changed.link(here, own[here])
        changed.edit(**{here: left, there: changed.link(there, [*own[there], "a"])})
        end = time.monotonic() + rng.uniform(1.0, 6.0)
        while time.monotonic() < end:
            changed.write("a", "b", "z")
        changed.mirror.kill()
        changed.write("a", "b", "z")
        if ends:
            changed.edit(**before)
        else:
            here, there = there, here
        changed.mirror.start()
        wait_for(lambda: changed.same("a", "b", "z"), 120)


class Load(WorkerThread):
    """
    Writes a record each 5 ms to a topic, and tells how long each waited for its commit.

    A process that reads the copy would wait for a core itself.
    """

    def __init__(self, changed: Changed, cluster: LocalCluster, word: str) -> None:
        super().__init__(f"load of {word}")
        self._producer = Producer({**changed.east, "linger.ms": 0})
        self._topic, self._copy, self._cluster = changed.topic(word), changed.copy(word), cluster
        # records of before have times of their own
        self._seen = len(self._waits())

    def work(self) -> None:
        """Until the block ends."""
        while not self.asked.wait(0.005):
            self._producer.produce(self._topic, b"x", partition=0)
            self._producer.poll(0)
        self._producer.flush(30)

    def waits(self) -> str:
        """Of each transaction since the last call, from the time of its first record to that of its marker."""
        waits = self._waits()
        found, self._seen = sorted(waits[self._seen :]), len(waits)
        longest = ", ".join(map(str, found[-5:]))
        return f"median {found[len(found) // 2]}, longest {longest} ms of {len(found)} transactions"

    def _waits(self) -> list[int]:
        found: list[int] = []
        begun: list[int] = []
        for batch in partition_batches(self._cluster, self._copy):
            if not batch.marker:
                begun.append(batch.oldest)
            elif begun:
                found.append(batch.oldest - min(begun))
                begun = []
        return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_changes_under_load_and_twenty_bad_files(
    changed: Changed, west: LocalCluster, rng: random.Random
) -> None:
    """EO-1: all copies are exact, and a link that is not concerned keeps its attempts; prints times (pytest -s)."""
    others = changed.attempts("two")
    took: list[float] = []

    def taken(words: str, edit: Callable[[], None]) -> None:
        before, began = changed.mirror.said(words), time.monotonic()
        edit()
        wait_for(lambda: changed.mirror.said(words) > before, 60)
        took.append(time.monotonic() - began)

    words = ["a", "b"]
    with Load(changed, west, "z") as load:
        time.sleep(20)
        print("\nwithout changes:", load.waits(), flush=True)  # noqa: T201
        for number in range(100):
            if number % 5 == 4:
                bad = rng.choice([{"lanes": 0}, {"topics": ["("]}, {"plane": "fast"}, {"source": "north"}])
                good = dict(changed.links["one"])
                taken("configuration_refused", lambda bad=bad, good=good: changed.edit(one={**good, **bad}))
                changed.links["one"] = good
            kind = rng.choice(("topics", "topics", "topics", "lanes", "link"))
            given: dict[str, Any] = {}
            if kind == "topics":
                words = sorted({*words} ^ {rng.choice("abc")}) or ["a"]
                given["one"] = changed.link("one", words)
            elif kind == "lanes":
                given["one"] = changed.link("one", words, lanes=rng.randint(1, 4))
            else:
                given["three"] = None if "three" in changed.links else changed.link("three", ["d"])
            given.setdefault("one", changed.links["one"] | {"commit_interval_min": f"{3 + number % 7}ms"})
            taken('"configuration_taken"', lambda given=given: changed.edit(**given))
            changed.write(rng.choice("abc"))
        print("with 100 changes:", load.waits(), flush=True)  # noqa: T201
        load.finish(30)
    took.sort()
    told = f"median {took[len(took) // 2]:.1f}, longest {took[-1]:.1f}"
    print("seconds until a change is taken:", told, flush=True)  # noqa: T201
    changed.edit(one=changed.link("one", ["a", "b", "c"]), three=None)
    wait_for(lambda: changed.same("a", "b", "c", "z"), 120)
    assert changed.attempts("two") == others
