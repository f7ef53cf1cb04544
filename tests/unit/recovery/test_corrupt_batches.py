"""Batches of the source that cannot be read: when an attempt is worth another one."""

from __future__ import annotations

from dataclasses import replace

from eomirror.errors import BrokerFailedError, SourceDamagedError, SourceUnreadableError
from eomirror.recovery.corrupt_batches import MOST_DAMAGED, Damage, after_damage, damage_error
from support.fakes.lane_fakes import ORDERS, PAYMENTS

ERROR = SourceDamagedError("CRC is 1, not 2", ORDERS)


def test_the_same_damage_is_counted_and_stops_its_topic_in_the_end() -> None:
    """Topic, partition and offset are named, how often it was tried, and how to go on."""
    damaged: tuple[Damage, ...] = ()
    for times in range(1, MOST_DAMAGED + 1):
        damaged = after_damage(damaged, ERROR, 7)
        stopping = damage_error(ERROR, damaged[-1])
        assert (stopping is None) is (times < MOST_DAMAGED)

    assert stopping is not None
    assert (stopping.topic, stopping.exit_code) == ("orders", 4)
    assert (
        f"orders-0: the batch at offset 7 is damaged on the source: CRC is 1, not 2; {MOST_DAMAGED} attempts"
        in str(stopping)
    )
    assert "--resume-at orders-0=OFFSET" in stopping.fix


def test_a_leader_that_does_not_say_why_it_cannot_read_is_no_loss_of_data() -> None:
    """Its topic is set aside by name after as many attempts, and may be tried again."""
    error = SourceUnreadableError("UNKNOWN_SERVER_ERROR (-1)", ORDERS)
    damage = Damage(source=ORDERS, position=7, times=MOST_DAMAGED)

    assert damage_error(error, replace(damage, times=MOST_DAMAGED - 1)) is None
    stopping = damage_error(error, damage)

    assert type(stopping) is BrokerFailedError
    assert (stopping.topic, stopping.exit_code) == ("orders", 1)
    assert "orders-0: the source's leader cannot read offset 7: UNKNOWN_SERVER" in str(stopping)


def test_two_partitions_are_counted_apart() -> None:
    """Attempts that meet now the one and now the other would go round for ever otherwise."""
    damaged: tuple[Damage, ...] = ()
    for source in (ORDERS, PAYMENTS, ORDERS):
        damaged = after_damage(damaged, SourceDamagedError("?", source), 7)

    assert damaged == (
        Damage(source=PAYMENTS, position=7, times=1),
        Damage(source=ORDERS, position=7, times=2),
    )


def test_another_position_is_another_damage() -> None:
    """What was met before is read by now."""
    damaged = after_damage(after_damage((), ERROR, 7), ERROR, 9)
    assert damaged == (Damage(source=ORDERS, position=9, times=1),)
