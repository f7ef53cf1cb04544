"""What the proxy's decider makes of requests, answers, connections and rules; no socket, time is an argument."""

from __future__ import annotations

import struct

import pytest

from support.clusters.decider import Decider, Kind, Verdict
from support.clusters.frames import Api
from support.clusters.rules import (
    ANY,
    AnswerWith,
    CutAfter,
    Delay,
    DropAnswers,
    HalfOpen,
    Hold,
    Lifetimes,
    Match,
    Refuse,
    Rule,
    Throttle,
)

DELIVER = Verdict(Kind.DELIVER)
DROP = Verdict(Kind.DROP)


def end_txn(correlation: int, identity: str = "t-1", *, commit: bool = True) -> bytes:
    body = struct.pack(">hhih", Api.END_TXN, 1, correlation, -1)
    body += struct.pack(">h", len(identity)) + identity.encode() + struct.pack(">qhb", 1, 0, commit)
    return struct.pack(">i", len(body)) + body


def plain(api_key: int, correlation: int) -> bytes:
    return struct.pack(">ihhih", 10, api_key, 0, correlation, -1)


def answer(correlation: int, error: int = 0) -> bytes:
    return struct.pack(">iiih", 10, correlation, 0, error)


def connected(*rules: Rule) -> Decider:
    """A decider with these rules, named by their places, and one connection."""
    decider = Decider(1)
    for number, rule in enumerate(rules):
        decider.arm(str(number), rule)
    assert decider.connect(1, 0.0).accepted
    return decider


def kinds(decider: Decider) -> list[str]:
    return [event.kind for event in decider.events]


def test_without_rules_everything_passes_and_is_counted() -> None:
    """Requests by API and transaction, answers by API."""
    decider = connected()

    assert decider.request(1, end_txn(1), 0.0) == DELIVER
    assert decider.request(1, plain(Api.FETCH, 2), 0.0) == DELIVER
    assert decider.answer(1, answer(1), 0.0) == DELIVER
    assert decider.seen(Match(api_key=Api.END_TXN)) == 1
    assert decider.seen(Match(api_key=Api.END_TXN, transactional_id="other")) == 0
    assert decider.seen(ANY) == 2
    assert decider.answers == {Api.END_TXN: 1}


def test_the_nth_match_is_held_until_its_release() -> None:
    """Others pass; the broker's side stays; the straggler's answer is noted with its error code."""
    decider = connected(Hold(match=Match(api_key=Api.END_TXN, transactional_id="t-1"), nth=2))

    assert decider.request(1, end_txn(1), 0.0) == DELIVER
    assert decider.request(1, end_txn(2, "other"), 0.0) == DELIVER
    assert decider.request(1, end_txn(3), 0.0) == Verdict(Kind.HOLD, cut=True, rule="0")
    decider.client_gone(1, 0.0)
    assert decider.answer(1, answer(1), 0.0) == DROP
    assert decider.answer(1, answer(2), 0.0) == DROP
    assert decider.lingers(1)
    decider.release("0", 5.0)
    assert decider.lingers(1)
    assert decider.answer(1, answer(3, 47), 6.0) == DROP

    late = decider.events[-1]
    assert (late.kind, late.rule, late.error, late.at) == ("late answer", "0", 47, 6.0)
    assert not decider.lingers(1)
    decider.connect(2, 6.0)
    assert decider.request(2, end_txn(1), 6.0).kind is Kind.DELIVER


def test_what_comes_behind_a_held_request_waits_behind_it() -> None:
    """A connection keeps its order."""
    decider = connected(Hold(match=Match(api_key=Api.END_TXN), cut=False))

    assert decider.request(1, end_txn(1), 0.0) == Verdict(Kind.HOLD, rule="0")
    assert decider.request(1, plain(Api.FETCH, 2), 0.0) == Verdict(Kind.HOLD, rule="0")
    decider.release("0", 1.0)
    assert decider.request(1, plain(Api.FETCH, 3), 1.0).kind is Kind.DELIVER
    assert decider.answer(1, answer(1), 1.0).kind is Kind.DELIVER
    assert kinds(decider) == ["connected", "held", "behind", "released", "late answer"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_match_can_tell_a_commit_from_an_abort(commit: bool) -> None:
    """Only the one that is named is held."""
    decider = connected(Hold(match=Match(commit=commit)))

    assert decider.request(1, end_txn(1, commit=not commit), 0.0) == DELIVER
    assert decider.request(1, plain(Api.FETCH, 2), 0.0) == DELIVER
    assert decider.request(1, end_txn(3, commit=commit), 0.0).kind is Kind.HOLD


def test_a_request_is_delivered_before_its_connection_is_cut() -> None:
    """From the nth on, so many times; the broker's side stays until the answer, which is lost."""
    decider = connected(CutAfter(match=Match(api_key=Api.END_TXN), nth=2, times=1))

    assert not decider.request(1, end_txn(1), 0.0).cut
    assert decider.request(1, end_txn(2), 0.0) == Verdict(Kind.DELIVER, cut=True, rule="0")
    decider.client_gone(1, 0.0)
    assert decider.answer(1, answer(1), 0.0) == DROP
    assert decider.lingers(1)
    assert decider.answer(1, answer(2), 0.0) == DROP
    assert not decider.lingers(1)
    assert kinds(decider).count("lost answer") == 2
    decider.connect(2, 1.0)
    assert not decider.request(2, end_txn(1), 1.0).cut


def test_only_the_named_answers_are_dropped_and_only_so_often() -> None:
    """Requests pass, other answers pass."""
    decider = connected(DropAnswers(match=Match(api_key=Api.END_TXN), times=1))
    for correlation, frame in enumerate((end_txn(1), plain(Api.FETCH, 2), end_txn(3)), start=1):
        assert decider.request(1, frame, 0.0) == DELIVER, correlation

    assert decider.answer(1, answer(1), 0.0) == DROP
    assert decider.answer(1, answer(2), 0.0) == DELIVER
    assert decider.answer(1, answer(3), 0.0) == DELIVER
    assert decider.answers[Api.END_TXN] == 2


def test_an_answer_is_falsified_as_often_as_asked_and_the_event_has_what_the_broker_said() -> None:
    """The request was carried out; the client is told another code."""
    decider = connected(AnswerWith(match=Match(api_key=Api.END_TXN), error=120))
    for correlation, frame in enumerate((plain(Api.FETCH, 1), end_txn(2), end_txn(3)), start=1):
        assert decider.request(1, frame, 0.0) == DELIVER, correlation

    assert decider.answer(1, answer(1), 0.0) == DELIVER
    assert decider.answer(1, answer(2), 0.0) == Verdict(Kind.DELIVER, instead=answer(2, 120))
    assert decider.answer(1, answer(3), 0.0) == DELIVER
    assert [(event.kind, event.error) for event in decider.events[1:]] == [("falsified", 0)]


def test_half_open_kills_what_is_connected_for_good() -> None:
    """Nothing passes in either direction, and healing gives life to new connections only."""
    decider = connected()
    decider.request(1, end_txn(1), 0.0)
    decider.arm("dead", HalfOpen())
    decider.connect(2, 1.0)

    assert decider.answer(1, answer(1), 1.0) == DROP
    assert decider.request(2, plain(Api.API_VERSIONS, 1), 1.0) == DROP
    decider.disarm("dead")
    assert decider.request(1, plain(Api.FETCH, 2), 2.0) == DROP
    decider.connect(3, 2.0)
    assert decider.request(3, plain(Api.FETCH, 1), 2.0).kind is Kind.DELIVER
    decider.client_gone(1, 3.0)
    assert decider.lingers(1)


def test_delays_keep_the_order_of_a_connection() -> None:
    """Jitter moves frames, but never past the one before."""
    decider = connected(Delay(seconds=0.2, jitter=0.1))
    times = [decider.request(1, plain(Api.FETCH, number), 1.0).at for number in range(50)]

    assert times == sorted(times)
    assert 1.1 <= times[0] <= times[-1] <= 1.3
    assert len(set(times)) > 1


def test_a_throttle_counts_what_waits_before() -> None:
    """Two frames of 14 bytes at 14 bytes a second take two seconds; a quiet wire has no credit."""
    decider = connected(Throttle(bytes_per_second=14))

    assert decider.request(1, plain(Api.FETCH, 1), 5.0).at == 6.0
    assert decider.request(1, plain(Api.FETCH, 2), 5.0).at == 7.0
    assert decider.answer(1, answer(1), 5.0).at == 6.0
    assert decider.request(1, plain(Api.FETCH, 3), 20.0).at == 21.0


def test_lifetimes_follow_from_the_seed() -> None:
    """The same seed gives the same ages, all in the range."""
    ages = []
    for _ in range(2):
        decider = connected(Lifetimes(shortest=0.5, longest=1.5))
        ages.append([decider.connect(number, 10.0).dies_at for number in range(2, 12)])

    assert ages[0] == ages[1]
    assert all(age is not None and 10.5 <= age <= 11.5 for age in ages[0])
    assert len(set(ages[0])) == 10


def test_new_connections_are_refused_until_the_time_has_come() -> None:
    """The rule ends on its own."""
    decider = Decider()
    decider.arm("cut", Refuse(until=3.0))

    assert not decider.connect(1, 2.9).accepted
    assert decider.connect(2, 3.0).accepted
    assert kinds(decider) == ["refused", "connected"]


def test_a_reset_forgets_rules_counts_and_events() -> None:
    """What one test did is nothing to the next."""
    decider = connected(Hold(match=ANY))
    decider.request(1, end_txn(1), 0.0)
    decider.closed(1)
    decider.reset(2)

    assert decider.connect(2, 0.0).accepted
    assert decider.request(2, end_txn(1), 0.0) == DELIVER
    assert decider.seen(ANY) == 1
    assert kinds(decider) == ["connected"]
