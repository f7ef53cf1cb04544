"""Links that begin and end with a changed configuration, with threads made of plain Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.config.changes import ConfigChanges
from eomirror.driver.link_set import LinkSet
from eomirror.driver.link_tools import Copies
from eomirror.errors import MirrorError


class Thread:
    """A link's thread that a test ends."""

    def __init__(self, name: str, run: str) -> None:
        self.name, self.run = name, run
        self.first, self.generation = True, None
        self.lanes, self.over = True, False
        self.progress: Any = SimpleNamespace(error=None, superseded=False, idle_for_good=False)
        self.refused = ""
        self.told: list[str] = []
        self.configuration: Any = SimpleNamespace(changed=self.told.append, refuse=self._refuse)
        self.calls: list[Any] = []

    def _refuse(self, reason: str) -> None:
        self.refused = reason

    def start(self) -> None:
        self.calls.append("start")

    def request_stop(self, *, alone: bool) -> None:
        self.calls.append("stop" if alone else "stop with the run")

    def reconfigure(self, link: Link) -> None:
        self.calls.append(link.topics)

    def give_up(self, _: Copies) -> None:
        self.calls.append("give up")

    def end(self) -> None:
        """Its lanes, and it."""
        self.lanes, self.over = False, True


def given(*names: str, topics: str = "t") -> list[tuple[Link, Cluster, Cluster]]:
    """Links of these names."""
    ends = Cluster("a", {}), Cluster("b", {})
    return [(Link(name=name, source="a", target="b", topics=(topics,)), *ends) for name in names]


def changes(**found: Any) -> ConfigChanges:
    """Differences; none but these."""
    return ConfigChanges(**{"begun": (), "ended": (), "again": {}, "live": {}, "later": (), **found})


class Rig:
    """A set of links; `made` has all threads, in the order in which they were made."""

    def __init__(self, *names: str) -> None:
        self.made: list[Thread] = []
        self.links = LinkSet(given(*names), self._make, Copies())  # type: ignore[arg-type]
        self.links.make("r1")
        self.links.start()

    def _make(self, link: Link, _source: Cluster, _target: Cluster, run: str, *, first: bool) -> Thread:
        self.made.append(Thread(link.name, run))
        self.made[-1].first = first
        return self.made[-1]

    @property
    def running(self) -> list[str]:
        """Names of the links that have a thread."""
        return [thread.name for thread in self.links]


def test_a_link_begins_again_once_it_has_ended_and_with_another_run() -> None:
    """EO-8: the names of its transactions must not repeat."""
    rig = Rig("one", "two")
    rig.links.later(lambda: rig.links.take(given("one", "two"), changes(again={"one": ("lanes",)})))
    rig.links.look()
    assert rig.made[0].calls == ["start", "stop"]
    assert rig.made[1].calls == ["start"]
    assert not rig.links.over
    rig.links.look()
    assert len(rig.made) == 2
    rig.made[0].end()
    rig.links.look()
    assert (rig.made[2].name, rig.made[2].calls) == ("one", ["start"])
    assert rig.made[2].run not in {"r1", ""}


def test_no_link_begins_while_one_that_leaves_may_write() -> None:
    """EO-1: it may write the same copies, or records that the new one has to know as copies."""
    rig = Rig("old")
    rig.links.take(given("new"), changes(begun=("new",), ended=("old",)))
    rig.links.look()
    assert rig.running == ["old"]
    assert not rig.links.over
    rig.made[0].end()
    rig.links.look()
    assert rig.running == ["new"]


def test_settings_that_no_lane_reads_reach_a_link_that_mirrors_and_begin_another_one_again() -> None:
    """What a link waits for, or has failed with, may be what the change mends."""
    rig = Rig("mirrors", "waits", "fails")
    rig.made[1].lanes = False
    rig.made[2].progress.error = MirrorError("refused")
    live = dict.fromkeys(("mirrors", "waits", "fails"), ("topics",))
    rig.links.take(given("mirrors", "waits", "fails", topics="u"), changes(live=live))
    assert [thread.calls[1:] for thread in rig.made] == [[("u",)], ["stop"], ["stop"]]


def test_changes_of_one_look_may_name_a_link_that_has_no_thread_yet() -> None:
    """A program may change the configuration as often as it likes."""
    rig = Rig("one")
    rig.links.later(lambda: rig.links.take(given("one", "new"), changes(begun=("new",))))
    rig.links.later(
        lambda: rig.links.take(given("one", "new", topics="u"), changes(live={"new": ("topics",)}))
    )
    rig.links.look()
    assert rig.running == ["one", "new"]


@pytest.mark.parametrize("reason", ["links[0].lanes", ""])
def test_a_refusal_is_shown_by_links_that_begin_later_too(reason: str) -> None:
    """Until a good file is taken."""
    rig = Rig("one")
    rig.links.show_refusal(reason)
    rig.links.take(given("one", "new"), changes(begun=("new",)))
    rig.links.look()
    assert [thread.refused for thread in rig.made] == [reason, reason]


def test_a_link_that_is_about_to_stand_by_again_is_not_over() -> None:
    """It ends between two looks; a run that took that for its end would fail."""
    rig = Rig("one")
    (old,) = rig.made
    old.end()
    assert rig.links.over
    old.progress.superseded = old.progress.idle_for_good = True
    assert not rig.links.over
    assert not rig.links.idle_for_good
    rig.links.look()
    assert len(rig.made) == 2


@pytest.mark.parametrize("generation", [None, 4])
def test_orders_of_the_start_are_for_a_link_until_it_was_taken(generation: int | None) -> None:
    """Such as `--resume-at`: one that waits for its cluster has not followed them when a change lets it begin again."""
    rig = Rig("one")
    (old,) = rig.made
    old.generation = generation  # type: ignore[assignment]
    rig.links.look()
    rig.links.take(given("one", "new"), changes(begun=("new",), again={"one": ("lanes",)}))
    old.end()
    rig.links.look()
    assert {thread.name: thread.first for thread in rig.made[1:]} == {"one": generation is None, "new": False}
