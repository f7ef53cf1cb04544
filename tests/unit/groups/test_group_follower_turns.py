"""Very many groups: whose turn it is to be moved or deleted, between coordinators that are played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from test_group_follower_refusals import LANES, ORDERS, Flow

from eomirror.errors import ClusterError
from eomirror.groups import offset_writer
from eomirror.groups.followed_groups import GONE_SECONDS, MirroredPartitions
from eomirror.kafka.consumer_groups import Committed
from eomirror.lane.spec import GroupOffset

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 10


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few dozen groups are very many."""
    monkeypatch.setattr(offset_writer, "_MOST_MOVED", MOST)


def names(count: int) -> list[str]:
    return [f"group-{number:03}" for number in range(count)]


def commit(flow: Flow, groups: list[str], offset: int) -> None:
    """Every group commits on the source, and the lanes write its checkpoint at once."""
    for group in groups:
        flow.source.offsets[group] = {(ORDERS.topic, ORDERS.partition): Committed(offset)}
    flow.round()
    flow.follower.record_answers(tuple(GroupOffset(group, ORDERS, offset, offset + 1000) for group in groups))


def test_a_group_that_commits_all_the_time_does_not_keep_others_from_being_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More groups are active than one round moves: each has its turn, whatever its name."""
    flow = Flow(monkeypatch)
    groups = names(3 * MOST)
    for offset in range(1, 5):
        commit(flow, groups, offset)
        flow.clock.now += 1

    assert sorted(flow.standing()) == groups


def test_a_run_that_ends_when_it_has_caught_up_waits_until_each_group_had_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A link that moves no groups waits for none."""
    flow = Flow(monkeypatch)
    groups = names(3 * MOST)
    commit(flow, groups, 7)
    for moved in (MOST, 2 * MOST, 3 * MOST):
        flow.round()
        assert (len(flow.standing()), flow.follower.waits()) == (moved, moved < len(groups))

    without = Flow(monkeypatch, sync_group_offsets=False)
    commit(without, groups, 7)
    without.round()
    assert not without.follower.waits()


def test_a_group_that_commits_all_the_time_is_found_further_back_than_its_lane_remembers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new attempt of the lane remembers nothing; what it says so of is behind the group by the next look."""
    flow = Flow(monkeypatch)
    flow.ends.mirrored[ORDERS] = None
    told: list[GroupOffset] = []
    monkeypatch.setattr(flow.follower, "_send", lambda _, items: told.extend(items))
    for offset in range(1, 7):
        flow.source.offsets["a"] = {(ORDERS.topic, ORDERS.partition): Committed(offset)}
        flow.round()
        # it writes a checkpoint of what was looked up, and knows nothing by itself
        flow.follower.record_answers(tuple(told))
        told.clear()
        flow.clock.now += 1

    flow.round()
    assert flow.standing() == {"a": 1006}


def test_the_map_is_not_read_again_and_again_for_a_group_before_the_first_mirrored_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That is known only after all of it was read, and stays so until the group moves or a lane begins anew."""
    flow = Flow(monkeypatch)
    flow.ends.mirrored[ORDERS] = None
    flow.ends.before = True
    flow.source.offsets["old"] = {(ORDERS.topic, ORDERS.partition): Committed(5)}
    flow.round()
    flow.follower.record_answers((GroupOffset("old", ORDERS, 5, None),))
    for _ in range(100):
        flow.round()
        flow.clock.now += 1
    assert flow.ends.asked == 1
    assert flow.follower.snapshot().pending == {"it is before the first mirrored record, which is at 9": 1}

    flow.follower.lane_restarted([ORDERS])
    flow.round()
    assert flow.ends.asked == 2


def test_a_group_whose_coordinator_is_away_does_not_keep_others_from_being_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows whether its offsets were taken, so the round ends; the next one begins with the others."""
    flow = Flow(monkeypatch)
    groups = names(5)

    def write(
        group: str, offsets: Mapping[tuple[str, int], Committed], *, then: Any = flow.target.write
    ) -> str:
        if group == groups[0]:
            raise ClusterError("no answer")
        done: str = then(group, offsets)
        return done

    monkeypatch.setattr(flow.target, "write", write)
    commit(flow, groups, 7)
    for _ in range(3):
        flow.follower.round(MirroredPartitions(LANES, ()))

    assert sorted(flow.standing()) == groups[1:]
    assert flow.follower.snapshot().error == "no answer"


def test_groups_that_may_not_be_deleted_do_not_keep_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """More groups are gone on the source than one round looks at, and the first ones have to stay."""
    flow = Flow(monkeypatch, group_deletions="delete")
    groups = names(3 * MOST)
    commit(flow, groups, 7)
    for _ in range(4):
        flow.round()
    staying = groups[: 2 * MOST]
    flow.target.unauthorized.update(staying)
    flow.source.offsets.clear()
    flow.round()
    flow.clock.now += GONE_SECONDS + 1
    for _ in range(5):
        flow.round()
        flow.clock.now += offset_writer._RECHECK_SECONDS + 1

    assert sorted(flow.standing()) == staying
    assert flow.follower.snapshot().deleted == MOST
    assert sum(flow.follower.snapshot().skipped.values()) == len(staying)


def test_a_group_that_was_deleted_is_not_looked_for_while_a_broker_of_the_source_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was gone before is all that is known then, and the group that is deleted by now is not among it."""
    flow = Flow(monkeypatch, group_deletions="delete")
    groups = names(2)
    commit(flow, groups, 7)
    flow.round()
    del flow.source.offsets[groups[0]]
    flow.round()
    flow.clock.now += GONE_SECONDS + 1
    flow.round()
    assert sorted(flow.standing()) == groups[1:]

    monkeypatch.setattr(flow.source, "names", lambda *, strict: ([*groups[1:]], strict))
    flow.clock.now += offset_writer._RECHECK_SECONDS + 1
    flow.round()
    commit(flow, groups[1:], 8)
    flow.round()
    assert flow.standing() == {groups[1]: 1008}


def test_offsets_are_renewed_in_time_also_when_the_target_did_not_answer_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How long brokers keep them is asked for until it is known: nobody is moved again and again meanwhile."""
    flow = Flow(monkeypatch)
    answers = iter([ClusterError("no answer")])

    def retention() -> float:
        for error in answers:
            raise error
        return 400.0

    monkeypatch.setattr(flow.target, "retention_seconds", retention)
    flow.follower.round(MirroredPartitions(LANES, ()))
    assert flow.follower.snapshot().error == "no answer"
    commit(flow, ["a"], 7)
    for _ in range(9):
        flow.round()
        flow.clock.now += offset_writer._RECHECK_SECONDS + 1
    assert flow.follower.snapshot().moved == 1
    flow.clock.now += 10
    flow.round()
    assert flow.follower.snapshot().moved == 2


def test_a_fault_of_ours_is_shown_until_a_round_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks must not take where groups stood before it for where they stand now."""
    flow = Flow(monkeypatch)
    commit(flow, ["a"], 7)

    def broken(*_: object, **__: object) -> None:
        raise ValueError("'group_id' cannot be empty")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(flow.source, "read_offsets", broken)
        with pytest.raises(ValueError, match="group_id"):
            flow.follower.round(MirroredPartitions(LANES, ()))
        assert "ValueError" in flow.follower.snapshot().error
    flow.round()
