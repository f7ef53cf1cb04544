"""The order in which entries are recorded and changed on the target; clusters are played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson

from eomirror import load_config
from eomirror.config.rights import ClusterUser, Right, lacking
from eomirror.errors import ClusterError, MirrorError
from eomirror.kafka.cluster_metadata import AclEntry
from eomirror.kafka.session import LinkSessions
from eomirror.records.kept_entries import OwnEntry
from eomirror.records.reports import Reports
from eomirror.topics import target_entries
from eomirror.topics.entries import EntryPlan, entry_id
from eomirror.topics.target_entries import TargetEntries
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    import pytest

WEST = ClusterUser("west", "w:1", "mirror")
READ = AclEntry("topic", "literal", "orders", "User:app", "*", "Read", "allow")
COPY = READ._replace(name="east.orders")


class Acls:
    """The ACL entries of a cluster."""

    def __init__(self, story: list[str], *entries: AclEntry) -> None:
        self.there = set(entries)
        self.story = story
        self.refused: dict[AclEntry, MirrorError] = {}
        self.may = True

    def entries(self) -> tuple[AclEntry, ...]:
        return tuple(sorted(self.there))

    def described(self) -> None:
        pass

    def need(self, _: None, right: Right, doing: str) -> None:
        if not self.may:
            raise lacking(f"{doing}: ", WEST, [right])

    def add(self, entries: list[AclEntry]) -> dict[AclEntry, MirrorError]:
        self.story += [f"add {entry.name}" for entry in entries]
        self.there |= set(entries) - self.refused.keys()
        return {entry: self.refused[entry] for entry in entries if entry in self.refused}

    def delete(self, entries: list[AclEntry]) -> dict[AclEntry, MirrorError]:
        self.story += [f"delete {entry.name}" for entry in entries]
        self.there -= set(entries)
        return {}

    def scram_users(self) -> tuple[()]:
        return ()


class Site:
    """Both clusters, the records in control, and what happened in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **link: Any) -> None:
        self.story: list[str] = []
        self.east, self.west = Acls(self.story, READ), Acls(self.story)
        self.own: dict[tuple[str, str], OwnEntry] = {}
        self.failed = ""
        self.clock = PlayedClock()
        ends = {"east": {"bootstrap.servers": "e:1"}, "west": {"bootstrap.servers": "w:1"}}
        given = {"source": "east", "target": "west", "topics": ["orders"], "acls": True, **link}
        sides: list[Any] = [
            SimpleNamespace(cluster=None, admin=SimpleNamespace(acls=acls, account=WEST, name="west (w:1)"))
            for acls in (self.east, self.west)
        ]
        monkeypatch.setattr(target_entries, "write_records", self.write)
        self.entries = TargetEntries(
            load_config({"clusters": ends, "links": [given]}).links[0],
            LinkSessions(*sides),
            positions=None,
            clock=self.clock,
        )
        monkeypatch.setattr(
            TargetEntries, "_reports", staticmethod(lambda *_: Reports(own=tuple(self.own.values())))
        )

    def write(self, _cluster: Any, topic: str, records: Any, **_: Any) -> str:
        """Plays the control topic."""
        assert topic == "eomirror.east.west.control"
        for key, value in records:
            name = orjson.loads(key)
            place = name["of"], name["entry"]
            self.story.append("forget" if value is None else "record")
            if self.failed:
                continue
            if value is None:
                self.own.pop(place, None)
            else:
                self.own[place] = OwnEntry.decoded(name, orjson.loads(value))
        return self.failed

    def round(self) -> EntryPlan:
        """Compares and carries out, as a command does; returns what stands."""
        self.clock.now += 60
        found: EntryPlan = self.entries.apply(self.entries.compare(["orders"], "id"))
        return found


def test_an_entry_is_recorded_before_it_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies in between knows it for its own; a second look changes nothing."""
    site = Site(monkeypatch)

    stands = site.round()

    assert site.story == ["record", "add east.orders"]
    assert (stands.problems, stands.diff.changes) == ({}, ())
    assert site.entries.changed == [("+", f"{COPY}")]
    assert site.own.keys() == {entry_id(COPY)}
    site.round()
    assert len(site.story) == 2


def test_a_refused_entry_leaves_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Added by hand later, it is not ours."""
    site = Site(monkeypatch)
    site.west.refused[COPY] = ClusterError("its principal is refused")

    stands = site.round()

    assert site.story == ["record", "add east.orders", "forget"]
    assert list(stands.problems) == [str(COPY)]
    assert [change.entry for change in stands.diff.changes] == [COPY]
    assert (site.own, site.entries.changed) == ({}, [])


def test_without_its_right_nothing_is_recorded_or_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The problem has the command; after the grant the entry follows."""
    site = Site(monkeypatch)
    site.west.may = False

    stands = site.round()

    assert site.story == []
    assert "--operation Alter --cluster" in stands.problems["acls"].fix
    assert [change.sign for change in stands.diff.changes] == ["+"]
    site.west.may = True
    assert site.round().problems == {}
    assert site.west.there == {COPY}


def test_what_cannot_be_recorded_is_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could never be deleted again."""
    site = Site(monkeypatch)
    site.failed = "no broker answered in time"

    stands = site.round()

    assert site.story == ["record"]
    assert "records" in stands.problems
    assert site.west.there == set()


def test_our_entry_leaves_and_the_same_of_another_hand_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is deleted after the entry."""
    site = Site(monkeypatch, deletions="delete", deletion_delay="0s")
    site.round()
    foreign = COPY._replace(principal="User:local")
    site.west.there.add(foreign)
    site.east.there.clear()
    site.story.clear()

    site.round()

    assert site.story == ["record", "delete east.orders", "forget"]
    assert (site.west.there, site.own) == ({foreign}, {})


def test_the_same_comparison_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running mirror compares at an interval, at once after a copy was created, and not if nothing is carried."""
    site = Site(monkeypatch)
    site.entries.keep(["orders"], "id", at_once=False)
    assert site.west.there == {COPY}
    site.west.there.clear()
    site.entries.keep(["orders"], "id", at_once=False)
    assert site.west.there == set()
    site.entries.keep(["orders"], "id", at_once=True)
    assert site.west.there == {COPY}
    off = Site(monkeypatch, acls=False)
    off.entries.keep(["orders"], "id", at_once=True)
    assert (off.story, off.entries.last) == ([], None)
