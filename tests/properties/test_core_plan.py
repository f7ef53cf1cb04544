"""Laws of a batch's plan and of the books of its transaction, through the binding."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import pytest
from core_messages import HOPS, SOURCE, Message, Rules, Written, cut, logs, read_provenance, rules, written
from hypothesis import assume, given
from hypothesis import strategies as st
from laws import law

from eomirror._native import Acks, PatternSet, Planner, decode_offset_map
from eomirror.errors import TransactionFailedError

Place = tuple[str, int]


def kept(policy: Rules, records: list[Message]) -> list[Message]:
    """What the policy keeps, in order."""
    return [record for record in records if not policy.reason(record)]


def places(policy: Rules, records: list[Message]) -> list[Place]:
    """Where the kept records go."""
    return [(policy.routes[record.topic_], record.partition_) for record in kept(policy, records)]


def planned(policy: Rules, records: list[Message]) -> Planner:
    """A planner that has the records in its books."""
    planner = Planner(policy.policy())
    planner.plan(list(records))
    return planner


def facts(account: Any) -> dict[str, Any]:
    """Every field of an account."""
    names = [name for name in dir(account) if not name.startswith("_")]
    return {name: getattr(account, name) for name in names}


# -- plans -------------------------------------------------------------------------------------------------------


@law(200)
@given(rules, logs())
def test_every_record_is_kept_or_dropped_for_a_reason(policy: Rules, records: list[Message]) -> None:
    """EO-7, EO-11: nothing else happens to one, and what is kept is what was fetched, in order."""
    planner = Planner(policy.policy())
    plan = planner.plan(list(records))

    keeping = kept(policy, records)
    assert (plan.fetched, plan.kept, plan.dropped) == (
        len(records), len(keeping), len(records) - len(keeping),
    )  # fmt: skip
    assert plan.bytes == sum(record.size for record in keeping)
    assert [(one[0], one[3], one[2], one[1], one[6]) for one in plan.records] == [
        (policy.routes[one.topic_], one.partition_, one.key_, one.value_, one.milliseconds) for one in keeping
    ]
    assert all(one[4] is None and one[5] is None for one in plan.records)
    assert not plan.ends
    assert plan.error_at is None


@law(200)
@given(rules, logs())
def test_headers_change_only_as_the_policy_says(policy: Rules, records: list[Message]) -> None:
    """EO-11: without `header` the very list goes on; with it, one header of ours stands behind all others."""
    plan = Planner(policy.policy()).plan(list(records))

    for record, argument in zip(kept(policy, records), plan.records, strict=True):
        if not policy.header:
            assert argument[7] is record.headers_
            continue
        *others, (name, value) = argument[7]
        assert others == [header for header in record.headers_ or [] if header[0] != HOPS]
        assert name == HOPS
        origin, topic, hops = read_provenance(value, record.key_, record.value_)
        passed = [*record.path, SOURCE]
        assert (origin, topic, hops) == (passed[0], policy.routes[record.topic_], passed)


@law(150)
@given(rules, logs(), st.data())
def test_how_the_log_was_fetched_changes_nothing(
    policy: Rules, records: list[Message], data: st.DataObject
) -> None:
    """Batches may end anywhere: same records, same account, same digest."""
    whole, pieces = Planner(policy.policy()), Planner(policy.policy())
    batches = cut(data.draw, records)

    at_once = whole.plan(list(records))
    one_by_one = [pieces.plan(list(batch)) for batch in batches]

    assert [one for plan in one_by_one for one in plan.records] == at_once.records
    acks = Acks(data.draw(written(places(policy, records))).acks())
    assert [facts(one) for one in pieces.settle(acks)] == [facts(one) for one in whole.settle(acks)]


# -- books -------------------------------------------------------------------------------------------------------


@law(200)
@given(rules, logs(), st.data())
def test_books_that_balance_are_accepted_with_every_figure(
    policy: Rules, records: list[Message], data: st.DataObject
) -> None:
    """EO-7: per source partition what was fetched, acknowledged and dropped, and where every record went."""
    target: Written = data.draw(written(places(policy, records)))
    went = dict(zip((id(one) for one in kept(policy, records)), target.offsets, strict=True))
    planner = planned(policy, records)
    mine: dict[Place, list[Message]] = defaultdict(list)
    for record in records:
        mine[record.topic_, record.partition_].append(record)
    counts: dict[Place, int] = defaultdict(int)
    for place in places(policy, records):
        counts[place] += 1

    assert {(topic, number): count for topic, number, count in planner.planned()} == counts
    own_records = ("eomirror.link.positions", 0, [(5, 3)])
    accounts = planner.settle(Acks([*target.acks(), own_records]))

    assert {(one.source_topic, one.source_partition) for one in accounts} == set(mine)
    for account in accounts:
        fetched = mine[account.source_topic, account.source_partition]
        keeping = kept(policy, fetched)
        pairs = [(one.offset_, went[id(one)]) for one in keeping]
        dropped: dict[str, int] = defaultdict(int)
        for reason in filter(None, map(policy.reason, fetched)):
            dropped[reason] += 1
        assert (account.fetched, account.acked, account.dropped) == (len(fetched), len(pairs), dropped)
        assert account.fetched == account.acked + sum(account.dropped.values())
        assert account.bytes == sum(one.size for one in keeping)
        assert (account.first_source_offset, account.last_source_offset) == (
            fetched[0].offset_, fetched[-1].offset_,
        )  # fmt: skip
        assert account.leader_epoch == (-1 if fetched[-1].epoch_ is None else fetched[-1].epoch_)
        assert account.timestamp == (keeping[-1].milliseconds if keeping else -1)
        assert (account.target_topic, account.target_partition) == (
            policy.routes[account.source_topic], account.source_partition,
        )  # fmt: skip
        assert (account.first_target_offset, account.last_target_offset) == (
            (pairs[0][1], pairs[-1][1]) if pairs else (-1, -1)
        )
        assert bool(account.digest) == bool(pairs) == bool(account.offset_map)
        if pairs:
            topic, number, ranges = decode_offset_map(account.offset_map)
            assert (topic, number) == (account.target_topic, account.target_partition)
            assert [(of + n, to + n) for of, to, count in ranges for n in range(count)] == pairs


CHANGES = {
    "one more": lambda runs, _: [*runs, (runs[-1][0] + runs[-1][1], 1)],
    "one more inside": lambda runs, at: [*runs[:at], (runs[at][0], runs[at][1] + 1), *runs[at + 1 :]],
    "one fewer": lambda runs, _: [*runs[:-1], (runs[-1][0], runs[-1][1] - 1)],
    "a run fewer": lambda runs, at: [*runs[:at], *runs[at + 1 :]],
    "a run twice": lambda runs, at: [*runs[: at + 1], *runs[at:]],
    "runs out of order": lambda runs, _: runs[::-1],
    "an offset before the one before it": lambda runs, at: [
        *runs[: at + 1], (runs[at][0] + runs[at][1] - 1, 1), *runs[at + 1 :],
    ],
    "a run of nothing": lambda runs, at: [*runs[:at], (runs[at][0], 0), *runs[at + 1 :]],
    "a run of less than nothing": lambda runs, at: [*runs[:at], (runs[at][0], -1), *runs[at + 1 :]],
    "a negative offset": lambda runs, _: [(-1, 1), *runs[1:]],
    "nothing": lambda _, __: [],
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@law(40)
@given(policy=rules, records=logs(most=12), data=st.data())
def test_books_that_do_not_balance_are_refused(
    change: str, policy: Rules, records: list[Message], data: Any
) -> None:
    """EO-7: one acknowledgement more or fewer, or an offset that goes back; and the right ones still count."""
    assume(kept(policy, records))
    right: Written = data.draw(written(places(policy, records)))
    place = data.draw(st.sampled_from(sorted(right.runs)))
    runs = right.runs[place]
    changed = CHANGES[change](runs, data.draw(st.integers(0, len(runs) - 1)))
    assume(changed != runs)
    planner = planned(policy, records)

    with pytest.raises(TransactionFailedError):
        planner.settle(Acks(Written({**right.runs, place: changed}, right.offsets).acks()))
    assert planner.settle(Acks(right.acks()))


@law(80)
@given(rules, logs(most=12), st.data())
def test_acknowledgements_of_the_wrong_partition_are_refused(
    policy: Rules, records: list[Message], data: st.DataObject
) -> None:
    """EO-7: as many as were planned, and yet not where they belong; nor any with an error."""
    assume(kept(policy, records))
    right: Written = data.draw(written(places(policy, records)))
    planner = planned(policy, records)
    topic, number = data.draw(st.sampled_from(sorted(right.runs)))
    moved = {place: runs for place, runs in right.runs.items() if place != (topic, number)}
    moved[topic, number + 2] = right.runs[topic, number]

    with pytest.raises(TransactionFailedError):
        planner.settle(Acks(Written(moved, right.offsets).acks()))
    with pytest.raises(TransactionFailedError):
        planner.settle(Acks(right.acks(), failed=1))


@law(100)
@given(rules, logs(most=12), st.data())
def test_an_offset_that_moves_on_is_another_map(
    policy: Rules, records: list[Message], data: st.DataObject
) -> None:
    """An offset that could be right is believed, and the account says so: nothing is remembered from elsewhere."""
    assume(kept(policy, records))
    right: Written = data.draw(written(places(policy, records)))
    topic, number = data.draw(st.sampled_from(sorted(right.runs)))
    runs = right.runs[topic, number]
    moved = {**right.runs, (topic, number): [*runs[:-1], (runs[-1][0] + 1, runs[-1][1])]}
    planner = planned(policy, records)

    before = {one.offset_map for one in planner.settle(Acks(right.acks()))}
    after = {one.offset_map for one in planner.settle(Acks(Written(moved, right.offsets).acks()))}
    assert before != after


@law(100)
@given(rules, logs(most=12), st.data())
def test_a_fetch_that_goes_back_is_refused_and_leaves_the_books(
    policy: Rules, records: list[Message], data: st.DataObject
) -> None:
    """EO-7: a record that was fetched twice in one transaction would be written twice."""
    right: Written = data.draw(written(places(policy, records)))
    planner = planned(policy, records)
    before = [facts(one) for one in planner.settle(Acks(right.acks()))]
    again = data.draw(st.sampled_from(records))

    with pytest.raises(TransactionFailedError, match=re.escape(f"{again.topic_}-{again.partition_}@")):
        planner.plan([again])
    assert [facts(one) for one in planner.settle(Acks(right.acks()))] == before


@law(60)
@given(rules, logs(most=12), st.data())
def test_closed_books_know_nothing(policy: Rules, records: list[Message], data: st.DataObject) -> None:
    """After a commit or an abort the same records may come again, and come to the same account."""
    right: Written = data.draw(written(places(policy, records)))
    planner = planned(policy, records)
    before = [facts(one) for one in planner.settle(Acks(right.acks()))]

    planner.clear()

    assert planner.planned() == planner.settle(Acks()) == []
    planner.plan(list(records))
    assert [facts(one) for one in planner.settle(Acks(right.acks()))] == before


# -- patterns ----------------------------------------------------------------------------------------------------

_atoms = st.one_of(
    st.sampled_from("abc-_0").map(re.escape),
    st.just(r"\."),
    st.just("."),
    st.sampled_from(["[a-c]", "[^a]", "[0-9_]", r"\d"]),
)
_pieces = st.builds(str.__add__, _atoms, st.sampled_from(["", "", "", "?", "*", "+", "{1,2}"]))
_sequences = st.lists(_pieces, max_size=4).map("".join)
# a group is repeated at most once: `re` must not need exponential time for what we compare with
_groups = st.builds("({}|{}){}".format, _sequences, _sequences, st.sampled_from(["", "?"]))
_patterns = st.lists(st.one_of(_pieces, _groups), max_size=4).map("".join) | st.builds(
    "{}|{}".format, _sequences, _sequences
)


@law(200)
@given(st.lists(_patterns, max_size=3), st.lists(_patterns, max_size=2), st.data())
def test_a_filter_takes_what_pythons_fullmatch_takes(
    include: list[str], exclude: list[str], data: st.DataObject
) -> None:
    """Any included pattern and no excluded one, each on the whole name."""
    names = st.text(alphabet="abc-_.0\n\u00e9", max_size=6)
    for pattern in [*include, *exclude]:
        names |= st.from_regex(pattern.replace(r"\d", "[0-9]"), fullmatch=True)
    name = data.draw(names)
    # Python's \d takes the digits of every script, as Rust's does; `names` has ASCII ones only
    matches = [any(re.fullmatch(pattern, name) for pattern in patterns) for patterns in (include, exclude)]

    assert PatternSet(include, exclude).matches(name) == (matches[0] and not matches[1])
