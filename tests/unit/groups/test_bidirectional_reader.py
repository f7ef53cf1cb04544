"""Equal names written on both sides: two prefixes of two orders, and the first record that is in neither."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from eomirror.groups.bidirectional_reader import Bound, bound_of_copies, bound_of_originals, settle
from eomirror.records.position import Position


def position(offset: int, target_offset: int | None) -> Any:
    """Only what is looked at."""
    return Position(
        topic="t", partition=0, offset=offset, prev=None, source_cluster_id="", topic_id="", leader_epoch=None,
        epoch_offset=None, target_topic="t", target_partition=0, target_topic_id="", target_offset=target_offset,
        generation=1, lane=0, run="r", epoch=1, attempt=1, producer_id=1, producer_epoch=1, txn=1, records=0, bytes=0,
        dropped={}, header=True, timestamp=0,
    )  # fmt: skip


def interleaved(rng: random.Random) -> tuple[list[str], list[str]]:
    """Two logs of the same records: each in its origin's order, mixed differently."""
    origins = [f"{side}{number}" for side in "ew" for number in range(rng.randrange(1, 30))]

    def mixed() -> list[str]:
        queues = {side: [name for name in origins if name[0] == side] for side in "ew"}
        log = []
        while any(queues.values()):
            side = rng.choice([side for side, queue in queues.items() if queue])
            log.append(queues[side].pop(0))
        return log

    return mixed(), mixed()


@pytest.mark.parametrize("seed", range(200))
def test_none_is_skipped_and_every_record_read_twice_is_counted(seed: int) -> None:
    """Against the two logs themselves: the first unread record, and how many behind it were read."""
    rng = random.Random(seed)
    there, here = interleaved(rng)
    read_to = rng.randrange(len(there) + 1)
    read = set(there[:read_to])
    places = {name: at for at, name in enumerate(here)}

    def bound(side: str) -> Bound:
        mine = [name for name in here if name[0] == side]
        left = [places[name] for name in mine if name not in read]
        return Bound(
            min(left, default=len(here)), max((places[name] + 1 for name in mine if name in read), default=0)
        )

    copies, originals = bound("e"), bound("w")
    low, high = min(copies.unread, originals.unread), max(copies.read, originals.read)
    records = [(at, here[at][0] == "e") for at in range(low, high)]

    found = settle(copies, originals, records, whole=True)

    assert not [name for name in here[: found.offset] if name not in read]
    assert found.again == sum(name in read for name in here[found.offset :])
    # as far as one can look
    for cut in (1, 3):
        if len(records) > cut:
            part = settle(copies, originals, records[:cut], whole=False)
            assert not [name for name in here[: part.offset] if name not in read]
            assert part.again >= sum(name in read for name in here[part.offset :])


def test_what_one_link_says_of_the_records_that_it_brings() -> None:
    """Behind its last record nothing is left to read before the end; before its first, all of it is."""
    at = position(90, 40)
    assert bound_of_copies(("exact", 17), None, at, 60) == Bound(17, 17, exact=True)
    assert bound_of_copies(("next", 17), None, at, 60) == Bound(17, 17)
    assert bound_of_copies(("next", 41), None, at, 60) == Bound(60, 41)
    assert bound_of_copies(("nothing", -1), None, position(90, None), 60) == Bound(60, 0)
    assert bound_of_copies(("before", 5), 3, at, 60) == Bound(3, 0)
    assert bound_of_copies(("before", 5), None, at, 60) is None
    assert bound_of_copies(("beyond", 90), None, at, 60) is None


def test_what_the_opposite_link_says_of_the_records_that_it_takes() -> None:
    """What it has passed over is no record of that side; where it never was, everything is left to read."""
    at = position(90, 40)
    assert bound_of_originals(("exact", 17), None, at, 20) == Bound(17, 17, exact=True)
    assert bound_of_originals(("next", 17), None, at, 20) == Bound(17, 17)
    assert bound_of_originals(("next", 70), None, at, 41) == Bound(90, 70)
    assert bound_of_originals(("nothing", -1), None, position(90, None), 20) == Bound(90, 0)
    assert bound_of_originals(("before", 5), 3, at, 2) == Bound(3, 0)
    assert bound_of_originals(("beyond", 5), None, at, 20) is None
    assert bound_of_originals(("nothing", -1), None, None, 20) == Bound(0, 0)


def test_one_writing_side_is_exact() -> None:
    """Wherever the two bounds leave no record between them, nothing is read again."""
    for unread, read in itertools.product((10, 12), (0, 10)):
        found = settle(Bound(10, 10, exact=True), Bound(unread, read), [], whole=True)
        assert (found.offset, found.again, found.exact) == (10, 0, True)
