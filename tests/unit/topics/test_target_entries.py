"""The order in which entries are recorded and changed on the target; clusters are played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror import load_config
from eomirror.config.rights import ClusterUser, Right, lacking
from eomirror.errors import ClusterError, MirrorError, UnreachableError
from eomirror.kafka.cluster_metadata import AclEntry
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.session import LinkSessions
from eomirror.records.events import change_events
from eomirror.records.kept_entries import OwnEntry, TargetComparison
from eomirror.records.reports import Reports
from eomirror.topics import target_entries
from eomirror.topics.entries import CopyEntry, EntryPlan, entry_id
from eomirror.topics.target_entries import EntryReader, TargetEntries
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from eomirror.records.control_record import ControlRecord

WEST = ClusterUser("west", "w:1", "mirror")
READ = AclEntry("topic", "literal", "orders", "User:app", "*", "Read", "allow")
COPY = READ._replace(name="east.orders")


class Acls:
    """The ACL entries of a cluster."""

    def __init__(self, story: list[str], *entries: AclEntry) -> None:
        self.there = set(entries)
        self.story = story
        self.refused: dict[AclEntry, MirrorError] = {}
        self.unanswered: set[str] = set()
        self.may = True

    def entries(self) -> tuple[AclEntry, ...]:
        return tuple(sorted(self.there))

    def add(self, entries: list[AclEntry]) -> dict[AclEntry, MirrorError]:
        self.story += [f"add {entry.name}" for entry in entries]
        self.there |= set(entries) - self.refused.keys()
        self.answer("add")
        return {entry: self.refused[entry] for entry in entries if entry in self.refused}

    def delete(self, entries: list[AclEntry]) -> dict[AclEntry, MirrorError]:
        self.story += [f"delete {entry.name}" for entry in entries]
        self.answer("delete")
        self.there -= set(entries)
        return {}

    def answer(self, request: str) -> None:
        if request in self.unanswered:
            raise UnreachableError("no broker answered in time")

    def scram_users(self) -> tuple[()]:
        return ()


class Admin:
    """A cluster."""

    account = WEST
    name = "west (w:1)"

    def __init__(self, acls: Acls) -> None:
        self.acls = acls
        self.cluster_id = "id"
        self.topics: dict[str, str] = {}
        # True if topics are open to the mirror without an entry about them
        self.open = False
        self.settings: dict[str, Any] | None = {}

    def missing_rights(self, asked: list[Right]) -> tuple[set[Right], list[Right]]:
        return set() if self.acls.may else set(asked), []

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id=self.cluster_id)

    def broker_settings(self) -> dict[str, Any] | None:
        return self.settings

    def describe_topics(self, names: list[str]) -> dict[str, Any]:
        return {name: SimpleNamespace(topic_id=self.topics.get(name, "")) for name in names}

    def visible_topics(self, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        found = {
            name: SimpleNamespace(topic_id=self.topics[name]) if name in self.topics else None
            for name in names
            if self.open or self.topics
        }
        return found, dict.fromkeys(set(names) - found.keys())

    def delete_topics(self, ids: dict[str, str]) -> dict[str, MirrorError]:
        """As `eomirror.topics.native_admin.delete_topics`: another topic of that name stays."""
        self.acls.story += [f"delete topic {name}" for name in ids]
        self.topics = {name: one for name, one in self.topics.items() if ids.get(name) != one}
        return {}


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
        self.admins = [Admin(self.east), Admin(self.west)]
        sides: list[Any] = [SimpleNamespace(cluster=None, admin=admin) for admin in self.admins]
        self.names = ["orders"]
        self.positions: dict[Any, Any] = {}
        self.reads = 0
        monkeypatch.setattr(target_entries, "write_records", self.write)
        monkeypatch.setattr(target_entries, "delete_topics", lambda at, ids: at.admin.delete_topics(ids))
        self.entries = TargetEntries(
            load_config({"clusters": ends, "links": [given]}).links[0],
            LinkSessions(*sides),
            positions=self.read,
            clock=self.clock,
        )
        monkeypatch.setattr(EntryReader, "reports", staticmethod(self.reports))

    def read(self) -> dict[Any, Any]:
        """Plays the positions."""
        self.reads += 1
        return self.positions

    def reports(self, session: Any, control: str) -> Reports:
        """Plays the control topics; another link's may not be read."""
        if session.admin is self.admins[0]:
            raise lacking("read it: ", WEST, [Right("Read", "topic", control)])
        return Reports(own=tuple(self.own.values()))

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
        found: EntryPlan = self.entries.apply(self.entries.compare(self.names, "id"))
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


NOW: dict[str, Any] = {"deletions": "delete", "deletion_delay": "0s"}


def test_an_entry_whose_request_has_no_answer_stays_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been added: forgotten, it would stay on the target for ever."""
    site = Site(monkeypatch, **NOW)
    site.west.unanswered = {"add"}

    stands = site.round()

    assert list(stands.problems) == [str(COPY)]
    assert (site.west.there, site.own.keys()) == ({COPY}, {entry_id(COPY)})
    site.east.there.clear()
    site.round()
    assert (site.west.there, site.own) == (set(), {})


def test_a_deletion_that_fails_does_not_forget_what_was_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are requests of their own."""
    site = Site(monkeypatch, **NOW)
    site.round()
    other = READ._replace(operation="Describe")
    site.east.there = {other}
    site.west.unanswered = {"delete"}

    site.round()

    added = COPY._replace(operation="Describe")
    assert site.west.there == {COPY, added}
    assert site.own.keys() == {entry_id(COPY), entry_id(added)}


def test_the_first_entry_about_an_open_copy_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With allow.everyone.if.no.acl.found it would shut out the mirror; a super user has every right."""
    cases: list[tuple[dict[str, Any] | None, set[AclEntry]]] = [
        (None, set()),
        ({"allow.everyone.if.no.acl.found": ""}, set()),
        ({"log.dirs": ""}, {COPY}),
    ]
    for settings, wanted in cases:
        site = Site(monkeypatch)
        site.admins[1].open, site.admins[1].settings = True, settings
        stands = site.round()
        assert site.west.there == wanted
        assert [change.sign for change in stands.diff.changes] == ["="] * (not wanted)
    mine = COPY._replace(principal="User:mirror", operation="Write")
    site = Site(monkeypatch)
    site.admins[1].open, site.admins[1].settings = True, None
    site.west.there = {mine}
    site.round()
    assert site.west.there == {mine, COPY}


@pytest.mark.parametrize("lost", ["other cluster", "positions of another", "heartbeats only", "empty"])
def test_nothing_is_deleted_while_the_source_is_lost(monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """A cluster that was replaced has no entries and few topics; no time of absence begins."""
    site = Site(monkeypatch, **NOW)
    site.round()
    site.east.there.clear()
    site.story.clear()
    if lost == "other cluster":
        site.admins[0].cluster_id = "new"
    elif lost == "positions of another":
        site.positions = {0: position(source_cluster_id="old")}
    else:
        site.names = ["heartbeats", "eomirror.west.east.control", "west.orders"][: 3 * (lost != "empty")]

    stands = site.round()

    assert (site.west.there, site.story) == ({COPY}, [])
    assert ["kept here" in change.reason for change in stands.diff.changes if change.sign == "-"] == [True]
    assert site.own[entry_id(COPY)].gone_since == 0


def position(topic: str = "orders", **given: Any) -> Any:
    """A position of a copy `east.TOPIC`."""
    fields = {
        "target_topic": f"east.{topic}",
        "target_topic_id": "t1",
        "source_cluster_id": "id",
        "generation": 1,
    }
    return SimpleNamespace(topic=topic, **{**fields, **given})


def leaving(monkeypatch: pytest.MonkeyPatch, **link: Any) -> Site:
    """A link whose topic `gone` is gone, and whose topic `orders` is there."""
    site = Site(monkeypatch, **{"acls": False, "topics": ["orders", "gone"], **NOW, **link})
    site.admins[0].topics = {"orders": "s"}
    site.admins[1].topics = {"east.gone": "t1", "east.orders": "t2"}
    site.positions = {0: position("gone"), 1: position("orders", target_topic_id="t2")}
    return site


def test_a_copy_is_deleted_at_the_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, and no other; positions are read to find it, and before it is deleted, and not at each look."""
    site = leaving(monkeypatch)
    site.round()
    assert site.story == ["record"]
    site.round()
    assert (site.story, site.reads) == (["record", "delete topic east.gone"], 2)
    site.round()
    assert site.story == ["record", "delete topic east.gone"]
    assert site.admins[1].topics == {"east.orders": "t2"}
    # until the link has forgotten it
    assert list(site.own) == [entry_id(GONE)]


GONE = CopyEntry("east.gone", "gone", "t1")


def test_a_new_copy_of_that_name_is_not_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, which has the link since, deleted the copy and made a new one while this one stood still."""
    site = leaving(monkeypatch)
    site.round()
    site.clock.now += 60
    plan = site.entries.compare(site.names, "id")
    site.admins[1].topics["east.gone"] = "t3"

    site.entries.apply(plan)

    assert site.story == ["record", "delete topic east.gone"]
    assert site.admins[1].topics["east.gone"] == "t3"


def test_a_topic_leaves_with_its_copy_until_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a process that finds the copy deleted: the one before has died in between."""
    site = leaving(monkeypatch, **NOW)
    site.round()
    assert site.entries.leaving == {}
    site.round()
    assert site.entries.leaving == {"gone": GONE}

    later = leaving(monkeypatch, **NOW)
    later.own, later.admins[1].topics = site.own, {"east.orders": "t2"}
    stands = later.round()
    assert (later.entries.leaving, later.story) == ({"gone": GONE}, [])
    # there is nothing to delete
    assert stands.diff.changes == ()
    assert later.entries.compare(later.names, "id").diff.changes == ()

    # as the owner does
    del later.positions[0], later.own[entry_id(GONE)]
    assert later.entries.forget(["gone", "orders"]) == [GONE]
    reads = later.reads
    for _ in range(2):
        later.round()
    assert (later.entries.leaving, later.own, later.story, later.reads) == ({}, {}, [], reads)


def test_a_topic_whose_copy_another_hand_has_deleted_leaves_after_the_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not earlier: it may come back, and then its records are missing."""
    site = leaving(monkeypatch, deletion_delay="1h")
    del site.admins[1].topics["east.gone"]
    for _ in range(3):
        site.round()
    assert (site.entries.leaving, site.story) == ({}, ["record"])
    site.clock.now += 3600.0
    site.round()
    assert (site.entries.leaving, site.story) == ({"gone": GONE}, ["record"])


@pytest.mark.parametrize(
    "case",
    ["report", "ignore", "of several", "of another cluster", "hidden", "without id", "source lost", "back"],
)
def test_a_topic_does_not_leave_without_proof(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """The policy, the source, and a copy that is known to be deleted."""
    site = leaving(monkeypatch, **({"deletions": case} if case in {"report", "ignore"} else {}))
    del site.admins[1].topics["east.gone"]
    if case == "of several":
        monkeypatch.setattr("eomirror.config.model.Link.guard", True)
    elif case == "of another cluster":
        site.positions[2] = position("gone", source_cluster_id="old")
    elif case == "hidden":
        monkeypatch.setattr(site.admins[1], "visible_topics", lambda names: ({}, dict.fromkeys(names)))
    elif case == "without id":
        # what has the name may be the copy
        site.admins[1].topics["east.gone"] = ""
        site.positions[0] = position("gone", target_topic_id="")
    elif case == "source lost":
        site.names = []
    elif case == "back":
        site.admins[0].topics["gone"] = "s2"
        site.names = ["gone", "orders"]
    for _ in range(3):
        site.round()
    assert (site.entries.leaving, site.story) == ({}, [])


@pytest.mark.parametrize(
    "case", ["recreated", "without id", "of another cluster", "of several", "hidden", "returned", "reported"]
)
def test_a_copy_that_may_be_of_another_hand_stays(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """Its id, its cluster, its writers; and a topic that is hidden, or back, is not gone."""
    site = leaving(monkeypatch, **({"deletions": "report"} if case == "reported" else {}))
    if case == "recreated":
        site.admins[1].topics["east.gone"] = "t9"
    elif case == "without id":
        site.admins[1].topics["east.gone"] = ""
        site.positions[0] = position("gone", target_topic_id="")
    elif case == "of another cluster":
        site.positions[2] = position("gone", source_cluster_id="old")
    elif case == "of several":
        monkeypatch.setattr("eomirror.config.model.Link.guard", True)
    elif case == "hidden":
        site.admins[0].topics = {}
    site.round()
    if case == "returned":
        site.names = ["gone", "orders"]
    for _ in range(2):
        site.round()
    assert "east.gone" in site.admins[1].topics
    assert not any("delete" in each for each in site.story)
    # the topic leaves, whose copy is deleted; what has the name now stays
    assert site.own.keys() == ({entry_id(GONE)} if case == "recreated" else set())


def test_entries_of_a_link_that_may_not_be_read_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count as written by hand, so that a deleted one would return; the command is named."""
    site = Site(monkeypatch)
    site.names = ["eomirror.west.east.control", "orders"]
    stands = site.round()
    (problem,) = stands.problems.values()
    assert "--topic 'eomirror.west.east.control'" in problem.fix
    assert site.west.there == {COPY}


def test_records_of_apply_are_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After it the first run of a link begins where `start` says, as without it."""
    site = Site(monkeypatch)
    own = OwnEntry(of="acl", entry=entry_id(COPY)[1], timestamp=1)
    comparison = TargetComparison(standing=0, command="apply", timestamp=1)
    records: list[ControlRecord] = [own, comparison, *change_events([("+", "a")], now_ms=1)]
    there = [SimpleNamespace(key=one.key(), value=one.value()) for one in records]
    monkeypatch.setattr(CompactedTopicReader, "records", lambda *_, **__: there)
    assert not site.entries.begun()
    there.append(SimpleNamespace(key=b'{"kind":"claim"}', value=b"{}"))
    assert site.entries.begun()
