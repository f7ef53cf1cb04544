"""What a changed file does to the links of a running mirror, and when it is read."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror.config import Config, Link, load_config
from eomirror.config.changes import LIVE, WatchedFile, changes_of, with_live
from eomirror.errors import ConfigError, MirrorError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def settings(**links: dict[str, Any]) -> dict[str, Any]:
    """Links between two clusters, by name."""
    return {
        "clusters": {"east": {"bootstrap.servers": "e:9092"}, "west": {"bootstrap.servers": "w:9092"}},
        "links": [
            {"name": name, "source": "east", "target": "west", "topics": [f"{name}-.*"], **given}
            for name, given in links.items()
        ],
    }


def configured(**links: dict[str, Any]) -> Config:
    """The same, loaded."""
    return load_config(settings(**links))


def test_links_begin_end_and_begin_again() -> None:
    """A link whose settings are the same is not mentioned."""
    before = configured(same={}, gone={}, lanes={"lanes": 2}, topics={})
    after = configured(same={}, new={}, lanes={"lanes": 3, "exclude": ["x"]}, topics={"exclude": ["x"]})
    found = changes_of(before, after)
    assert (found.begun, found.ended, found.later) == (("new",), ("gone",), ())
    assert found.again == {"lanes": ("exclude", "lanes")}
    assert found.live == {"topics": ("exclude",)}
    assert changes_of(before, before).texts == []


def test_registries_that_change_begin_their_link_again() -> None:
    """Those that are the same, with their login, do not."""
    end = {"url": "http://r:8081", "bearer.auth.token": "t"}
    before = configured(one={"schemas": {"source": end, "target": "http://s:8081"}}, two={})
    same = configured(one={"schemas": {"source": dict(end), "target": "http://s:8081"}}, two={})
    assert changes_of(before, same).texts == []
    after = configured(
        one={"schemas": {"source": {**end, "bearer.auth.token": "u"}, "target": "http://s:8081"}}, two={}
    )
    assert changes_of(before, after).again == {"one": ("schemas",)}


def test_a_property_of_a_cluster_begins_its_links_again() -> None:
    """Also one that is no link's own setting."""
    before, given = configured(one={}), settings(one={})
    given["clusters"]["west"]["client.rack"] = "b"
    assert changes_of(before, load_config(given)).again == {"one": ("cluster",)}


def test_settings_of_spark_wait_for_the_next_start() -> None:
    """The context lives as long as the mirror."""
    after = load_config(settings(one={}) | {"spark": {"spark.driver.memory": "2g"}})
    assert changes_of(configured(one={}), after).later == ("spark",)


def test_a_link_that_was_asked_for_must_stay() -> None:
    """The run would go on without it, unasked."""
    before, after = configured(one={}, two={}), configured(two={})
    with pytest.raises(UsageError, match="'one'"):
        changes_of(before, after, ["one"])
    assert changes_of(before, configured(one={}), ["one"]).texts == []


def test_each_live_setting_is_one_of_a_link() -> None:
    """And no setting of another kind is taken."""
    assert {item.name for item in dataclasses.fields(Link)} >= LIVE
    one, other = configured(one={}).links[0], configured(one={"lanes": 3, "topics": ["x"]}).links[0]
    assert with_live(one, other) == dataclasses.replace(one, topics=("x",))


def test_topics_that_change_what_the_links_mean_to_each_other_begin_it_again() -> None:
    """Heartbeats that are listed by their name belong to an application; the link writes them no more."""
    before = configured(one={"topics": ["a"]})
    after = configured(one={"topics": ["a", "heartbeats"]})
    assert changes_of(before, after).again == {"one": ("topics",)}


def test_a_link_with_a_query_begins_again_for_each_setting() -> None:
    """The source of its query has the topics, too."""
    rule = {"transform": {"sql": "SELECT * FROM source"}}
    before, after = configured(one=rule), configured(one={**rule, "exclude": ["x"]})
    assert changes_of(before, after).again == {"one": ("exclude",)}
    assert changes_of(before, before).texts == []


class Edited:
    """A file that is edited."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text(yaml.safe_dump(settings(one={})))
        self.watched = WatchedFile(path)

    def text(self, text: str) -> None:
        """Writes another text."""
        self.path.write_text(text)
        # two writes within one tick of the clock
        found = self.path.stat()
        os.utime(self.path, ns=(found.st_atime_ns, found.st_mtime_ns + 1_000_000))

    def looks(self, count: int = 2) -> list[Config | MirrorError]:
        """What so many looks find."""
        return [found for _ in range(count) if (found := self.watched.look()) is not None]


@pytest.fixture
def edited(tmp_path: Path) -> Edited:
    """A file with a link."""
    return Edited(tmp_path / "mirror.yaml")


def test_a_file_is_read_once_it_stands_still(edited: Edited) -> None:
    """One that is being written has no faults yet."""
    assert edited.looks(3) == []
    edited.text("links: [")
    assert edited.looks(1) == []
    edited.text(yaml.safe_dump(settings(one={}, two={})))
    (found,) = edited.looks(4)
    assert isinstance(found, Config)
    assert [link.name for link in found.links] == ["one", "two"]


def test_a_bad_file_is_told_once(edited: Edited) -> None:
    """With its faults; and a good one after it is taken."""
    edited.text(yaml.safe_dump(settings(one={"lanes": 0})))
    (found,) = edited.looks(4)
    assert isinstance(found, ConfigError)
    assert "links[0].lanes" in str(found)
    edited.text(yaml.safe_dump(settings(one={})))
    (found,) = edited.looks(4)
    assert isinstance(found, Config)


def test_a_file_that_is_gone_is_an_error_and_one_that_replaces_it_is_read(edited: Edited) -> None:
    """Editors and Kubernetes replace files."""
    edited.path.unlink()
    (found,) = edited.looks(4)
    assert "the file is gone" in str(found)
    edited.text(yaml.safe_dump(settings(two={})))
    (found,) = edited.looks(4)
    assert isinstance(found, Config)


def test_a_link_to_another_file_is_followed(edited: Edited, tmp_path: Path) -> None:
    """A ConfigMap's volume swaps the link to a folder."""
    link, other = tmp_path / "link.yaml", tmp_path / "other.yaml"
    link.symlink_to(edited.path)
    watched = WatchedFile(link)
    other.write_text(yaml.safe_dump(settings(two={})))
    swapped = tmp_path / "swapped"
    swapped.symlink_to(other)
    swapped.replace(link)
    assert watched.look() is None
    found = watched.look()
    assert isinstance(found, Config)
    assert [each.name for each in found.links] == ["two"]


def test_who_asks_gets_the_file_in_any_case(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that it names may have changed."""
    given = settings(one={})
    given["clusters"]["west"]["bootstrap.servers"] = "${env:WEST}"
    monkeypatch.setenv("WEST", "w1:9092")
    edited.text(yaml.safe_dump(given))
    assert len(edited.looks(3)) == 1
    monkeypatch.setenv("WEST", "w2:9092")
    assert edited.looks(3) == []
    found = edited.watched.look(asked=True)
    assert isinstance(found, Config)
    assert found.clusters["west"].bootstrap_servers == "w2:9092"
