"""What the driver does when attempts end, on a Spark context of the user's; lanes, owner and discovery are fakes."""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import fake_lanes
import pytest
from engine import FakeLink, Run, alive, assigned, link, measured, notes, wait_for

from eomirror.driver import link as links_module
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    DataLossError,
    MirrorError,
    SupersededError,
    UsageError,
)
from eomirror.lane.spec import Ending

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.lane.spec import AssignedPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def test_epochs_follow_each_other_with_a_short_gap(user_context: Any, folder: Path) -> None:
    """Two lanes roll over again and again; workers are reused; the gap is printed."""
    with Run(fake_lanes.steady, links=[link(epoch=1.0)], spark=user_context) as run:
        run.wait_for(lambda: len(notes(folder, "end")) >= 24, 120)
    gaps = []
    for lane in (0, 1):
        mine = [note for note in notes(folder, "begin", "end") if note["lane"] == lane]
        gaps += [
            after["at"] - before["at"]
            for before, after in pairwise(mine)
            if (before["kind"], after["kind"]) == ("end", "begin")
        ]
    # the first two epochs may still meet workers that import
    gaps = sorted(gaps[1:])
    pids = {note["pid"] for note in notes(folder, "begin")}
    measured("epoch gap", p50=median(gaps), max=gaps[-1], gaps=len(gaps), workers=len(pids))
    assert len(pids) <= 4
    assert median(gaps) < 1.5
    epochs = [note["epoch"] for note in notes(folder, "begin") if note["lane"] == 0]
    assert epochs == list(range(1, len(epochs) + 1))
    assert run.error is None


def test_stop_is_cooperative_and_releases_the_link(user_context: Any, folder: Path) -> None:
    """All lanes hand back, the claim is released, the user's context lives on."""
    with Run(fake_lanes.steady, spark=user_context) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) == 2)
        before = time.monotonic()
        run.driver.request_stop()
        run.wait(15)
        seconds = time.monotonic() - before
    assert seconds < 5
    assert [note["reason"] for note in notes(folder, "stopped")] == ["shutdown"] * 2
    assert run.fakes["east->west"].calls[-2:] == ["release", "close"]
    assert (run.result.exit_code, run.result.aborted, run.result.links[0].outcome) == (0, False, "stopped")
    assert user_context.parallelize([1, 2], 2).count() == 2


def test_a_killed_worker_is_followed_by_the_next_attempt(user_context: Any, folder: Path) -> None:
    """A kill -9 of one lane's worker: that lane gets attempt 2, the other never notices."""
    with Run(fake_lanes.steady, spark=user_context) as run:
        first = run.wait_for(lambda: len(notes(folder, "begin")) == 2 and notes(folder, "begin"))
        victim = next(note for note in first if note["lane"] == 0)
        killed = time.monotonic()
        os.kill(victim["pid"], signal.SIGKILL)
        again = run.wait_for(lambda: [note for note in notes(folder, "begin") if note["attempt"] == 2])
        measured("kill -9 to next attempt", seconds=again[0]["at"] - killed)
        run.wait_for(lambda: run.snapshots[-1].links[0].lanes[0].retries == 1)
    assert [(note["lane"], note["epoch"]) for note in again] == [(0, 1)]
    assert [note["lane"] for note in notes(folder, "begin")].count(1) == 1
    assert run.snapshots[-1].links[0].lanes[0].last_failure.startswith("worker died")
    assert run.error is None


def test_a_lane_that_raises_is_tried_again(user_context: Any, folder: Path) -> None:
    """A bug that shows once costs one attempt, and its text is kept."""
    with Run(fake_lanes.raises_once, spark=user_context) as run:
        run.wait_for(
            lambda: [note for note in notes(folder, "begin") if (note["lane"], note["attempt"]) == (0, 2)]
        )
        run.wait_for(lambda: run.snapshots[-1].links[0].lanes[0].retries == 1)
    assert "ZeroDivisionError: a bug of the lane" in run.snapshots[-1].links[0].lanes[0].last_failure
    assert run.error is None


def test_a_lane_that_always_raises_fails_its_link(
    user_context: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mirror does not repeat a bug for ever; the error names it."""
    monkeypatch.setattr("eomirror.driver.retry._LONGEST_SECONDS", 0.2)
    with Run(fake_lanes.raises_always, spark=user_context) as run:
        run.wait(90)
    assert isinstance(run.error, MirrorError)
    assert "ZeroDivisionError" in str(run.error)
    assert len(notes(folder, "raise")) == 5
    assert "release" in run.fakes["east->west"].calls


def test_a_fenced_lane_of_the_own_run_is_rebuilt(user_context: Any, folder: Path) -> None:
    """SUPERSEDED with control still ours: the owner is asked, then the lane goes on."""
    with Run(fake_lanes.superseded_once, spark=user_context) as run:
        run.wait_for(
            lambda: [note for note in notes(folder, "begin") if (note["lane"], note["attempt"]) == (0, 2)]
        )
    assert run.fakes["east->west"].calls.count("check") == 1
    assert run.error is None


@pytest.mark.usefixtures("folder")
def test_another_mirror_ends_the_link(user_context: Any) -> None:
    """SUPERSEDED with control of another run: the error reaches the caller as its own type."""
    fake = FakeLink(check_error=SupersededError("run b owns the link"))
    with Run(fake_lanes.superseded_once, {"east->west": fake}, spark=user_context) as run:
        run.wait()
    assert isinstance(run.error, SupersededError)
    assert run.error.exit_code == 5


def test_until_caught_up_ends_by_itself(user_context: Any, folder: Path) -> None:
    """Goals are taken once; when the committed positions reach them the run ends with 0."""
    with Run(
        fake_lanes.steady, {"east->west": FakeLink(goal=1050)}, until="caught-up", spark=user_context
    ) as run:
        run.wait()
    assert run.error is None
    assert (run.result.exit_code, run.result.links[0].outcome) == (0, "caught up")
    snapshot = run.snapshots[-1].links[0]
    assert (snapshot.goals, snapshot.goals_reached) == (4, 4)
    assert all(partition.position >= 1050 for topic in snapshot.topics for partition in topic.partitions)
    assert notes(folder, "stopped")


def test_a_stopped_topic_is_reported_and_does_not_hold_the_others(user_context: Any, folder: Path) -> None:
    """Caught up with the rest, exit code of the loss, the reason in the report; lanes with nothing left rest."""
    fake = FakeLink([assigned("orders", 0), assigned("orders", 1), assigned("pay", 1)], goal=1010)
    with Run(fake_lanes.loses_data, {"east->west": fake}, until="caught-up", spark=user_context) as run:
        run.wait()
    assert run.error is None
    assert run.result.exit_code == DataLossError.exit_code
    assert "offsets [0, 7) are gone" in run.result.links[0].stopped_topics["orders"]
    assert {tuple(note["partitions"]) for note in notes(folder, "begin")} == {("pay-1",)}
    last = {spec.lane: report for spec, report in run.reports}
    assert last[0] is not None
    assert last[0].ending is Ending.REBUILD


def test_rights_that_are_missing_are_waited_for(
    user_context: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F30: lanes without their ids try again; a topic is left out, the others go on, and it is tried again."""
    monkeypatch.setattr(links_module, "REFRESH_SECONDS", 0.2)
    fake = FakeLink([assigned("orders", 0), assigned("pay", 1), assigned("pay", 2)])
    with Run(fake_lanes.lacks_a_right, {"east->west": fake}, spark=user_context) as run:
        run.wait_for(
            lambda: [note for note in notes(folder, "begin") if "orders-0" in note["partitions"]], 30
        )
        run.wait_for(lambda: not run.snapshots[-1].links[0].stopped_topics)
    assert run.error is None
    assert run.result.exit_code == 0
    assert any(shown.links[0].stopped_topics == {"orders": "lacks Read"} for shown in run.snapshots)
    assert [report.ending for _, report in run.reports].count(Ending.UNAUTHORIZED) >= 2


def test_rights_that_are_missing_fail_a_run_that_is_to_catch_up(user_context: Any, folder: Path) -> None:
    """The run that waits for its end gets it, with the right's name."""
    assert folder.is_dir()
    with Run(
        fake_lanes.lacks_a_right, {"east->west": FakeLink([assigned("pay", 1)], goal=1010)}, until="caught-up",
        spark=user_context,
    ) as run:  # fmt: skip
        run.wait()
    assert isinstance(run.error, AuthorizationError)
    assert "lacks Write" in str(run.error)


class ListedLink(FakeLink):
    """Only the refresh that follows a listing of changed topics finds partitions."""

    looked = False

    def differs(self) -> bool:
        """As `Discovery.differs`."""
        self.looked = True
        return True

    def refresh(self) -> tuple[AssignedPartition, ...]:
        """As `Discovery.refresh`."""
        looked, self.looked = self.looked, False
        return super().refresh() if looked else ()


@pytest.mark.parametrize("made", [FakeLink, ListedLink], ids=["by a refresh", "by a listing"])
def test_a_new_partition_reaches_its_lane_and_disturbs_no_other(
    made: type[FakeLink], user_context: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The running attempt adopts it; no lane is restarted; the next epoch has it in its spec."""
    monkeypatch.setattr(links_module, "REFRESH_SECONDS", 0.3)
    fake = made()
    with Run(fake_lanes.steady, {"east->west": fake}, links=[link(epoch=8)], spark=user_context) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) == 2)
        fake.partitions = [*fake.partitions, assigned("orders", 5)]
        run.wait_for(lambda: notes(folder, "added"), 10)
        assert len(notes(folder, "begin")) == 2
        run.wait_for(lambda: [note for note in notes(folder, "begin") if "orders-5" in note["partitions"]])
    assert [(note["lane"], note["partitions"]) for note in notes(folder, "added")] == [(1, ["orders-5"])]
    assert "east.orders" in {topic.target_topic for topic in run.snapshots[-1].links[0].topics}


def test_a_partition_that_comes_to_an_idle_lane_starts_it(
    user_context: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane without partitions holds no slot until it gets one."""
    monkeypatch.setattr(links_module, "REFRESH_SECONDS", 0.3)
    fake = FakeLink([assigned("orders", 0)])
    with Run(fake_lanes.steady, {"east->west": fake}, spark=user_context) as run:
        run.wait_for(lambda: notes(folder, "begin") and run.snapshots[-1].links[0].lanes)
        fake.partitions = [*fake.partitions, assigned("orders", 1)]
        run.wait_for(lambda: [note for note in notes(folder, "begin") if note["lane"] == 1])
    assert [note["partitions"] for note in notes(folder, "begin") if note["lane"] == 1] == [["orders-1"]]


def test_one_failed_link_leaves_the_others_running(user_context: Any, folder: Path) -> None:
    """Its error is shown at once and raised at the end."""
    fakes = {"a": FakeLink(prepare_error=ClusterError("east does not answer")), "b": FakeLink()}
    with Run(fake_lanes.steady, fakes, links=[link("a"), link("b")], spark=user_context) as run:
        wait_for(lambda: len(notes(folder, "begin")) == 2)
        wait_for(lambda: run.snapshots and run.snapshots[-1].links[0].state == "failed")
        assert run.snapshots[-1].links[1].state == "running"
        run.driver.request_stop()
        run.wait()
    assert isinstance(run.error, ClusterError)
    assert len(notes(folder, "stopped")) == 2


@pytest.mark.faults
def test_a_lane_that_does_not_listen_is_cut_off_in_time(user_context: Any, folder: Path) -> None:
    """Stop takes 5 s even then; the report says that a transaction was cut off; the worker dies soon after."""
    with Run(fake_lanes.deaf, spark=user_context) as run:
        pids = [
            note["pid"] for note in run.wait_for(lambda: len(notes(folder, "begin")) == 2 and notes(folder))
        ]
        before = time.monotonic()
        run.driver.request_stop()
        run.wait(15)
        seconds = time.monotonic() - before
    measured("stop with deaf lanes", seconds=seconds)
    assert seconds < 7
    assert run.result.aborted
    wait_for(lambda: not [pid for pid in pids if alive(pid)], 30)


def test_a_stop_while_the_link_is_being_taken_does_not_wait_for_it(user_context: Any, folder: Path) -> None:
    """Watching a foreign claim may take long; the run ends in time and no lane starts."""
    fake = FakeLink(acquire_seconds=8)
    with Run(fake_lanes.steady, {"east->west": fake}, spark=user_context) as run:
        run.wait_for(lambda: "acquire" in fake.calls)
        before = time.monotonic()
        run.driver.request_stop()
        run.wait(15)
        assert time.monotonic() - before < 6
        wait_for(lambda: "release" in fake.calls, 20)
    assert notes(folder) == []


def test_a_context_with_too_few_slots_is_refused(user_context: Any, folder: Path) -> None:
    """A lane that waits for a slot for ever is worse than an error."""
    with Run(fake_lanes.steady, links=[link(lanes=9)], spark=user_context) as run:
        run.wait()
    assert isinstance(run.error, UsageError)
    assert "8 slots for 9 lanes" in str(run.error)
    assert notes(folder) == []


def test_what_is_no_spark_context_is_refused(folder: Path) -> None:
    """Spark Connect sessions and mistakes get a sentence, not a traceback."""
    with Run(fake_lanes.steady, spark=object()) as run:
        run.wait()
    assert isinstance(run.error, UsageError)
    assert notes(folder) == []
