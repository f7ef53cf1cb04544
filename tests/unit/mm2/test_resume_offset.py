"""Where a partition that MM2 has mirrored goes on: every answer and every refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eomirror.errors import UsageError
from eomirror.kafka.record_digests import RecordDigest
from eomirror.mm2.resume_offset import Alignment, Mm2PartitionFacts, furthest_sync, judge, refuse_unknown
from eomirror.records.mm2 import OffsetSync
from eomirror.types import SourcePartition

FACTS = Mm2PartitionFacts(
    source=SourcePartition("orders", 3),
    target_topic="east.orders",
    committed=99,
    source_start=0,
    source_end=200,
    has_committed=True,
    target_end=100,
    last=98,
    alignment=Alignment((99,), ((97, 95), (98, 96), (99, 98))),
)


def test_a_copy_that_ends_with_a_record_goes_on_behind_it() -> None:
    """With what the comparison tells the offset map: records without a hole between them in one range."""
    found = judge(FACTS)
    assert (found.resume, found.target_offset, found.problem) == (100, 98, "")
    assert found.ranges == ((97, 95, 2), (99, 98, 1))


def test_records_behind_the_commit_are_not_mirrored_twice() -> None:
    """After a crash the copy goes further than what was committed."""
    assert judge(replace(FACTS, alignment=Alignment((120,)))).resume == 121


def test_several_places_are_shown_and_none_is_taken() -> None:
    """Unless an offset sync rules out all but one."""
    twice = replace(FACTS, alignment=Alignment((99, 120)))
    found = judge(twice)
    assert (found.resume, found.candidates) == (None, (100, 121))
    assert "repeat" in found.problem
    assert judge(replace(twice, synced=110)).resume == 121
    assert judge(replace(twice, synced=90)).resume is None


def test_with_exactly_once_the_commit_is_believed_where_the_copy_agrees() -> None:
    """Also among several places; not where the copy ends otherwise."""
    once = replace(FACTS, transactional=True)
    assert judge(replace(once, alignment=Alignment((99, 120)))).resume == 100
    assert judge(replace(once, alignment=Alignment((120,)))).candidates == (121,)
    assert judge(replace(once, alignment=Alignment(()))).problem
    assert judge(replace(once, alignment=Alignment(()), has_committed=False)).resume == 100
    assert judge(replace(once, alignment=Alignment(()), last=None)).resume == 100


def test_a_commit_that_is_gone_is_not_believed_against_the_copy() -> None:
    """Exactly-once was not on all the time: the copy goes on behind the commit with what the source still has."""
    gone = replace(FACTS, transactional=True, has_committed=False)
    assert judge(replace(gone, alignment=Alignment((120,)))).candidates == (121,)
    assert judge(replace(gone, alignment=Alignment((97,)))).resume == 100


def test_what_was_dealt_with_behind_the_last_record_is_not_dealt_with_again() -> None:
    """A link that was handed back has committed beyond its last record: markers, or what it dropped on purpose."""
    found = judge(replace(FACTS, has_committed=False, alignment=Alignment((97,), ((97, 98),))))
    assert (found.resume, found.ranges) == (100, ((97, 98, 1),))


def test_a_sync_rules_out_candidates_that_are_not_shown_as_well() -> None:
    """Many are known, a few are shown; a sync that leaves the last shown one leaves those behind it, too."""
    many = replace(FACTS, alignment=Alignment(tuple(range(99, 130))))
    assert len(judge(many).candidates) == 8
    found = judge(replace(many, synced=106))
    assert (found.resume, found.candidates) == (None, tuple(range(107, 115)))


def test_a_sync_counts_where_its_two_records_are_equal() -> None:
    """The topic of syncs may be that of the opposite flow, about its own topic of the same name."""
    source = [RecordDigest(offset, b"%d" % (offset % 7)) for offset in range(100, 130)]
    copy = [RecordDigest(offset - 50, b"%d" % (offset % 7)) for offset in range(95, 125)]
    syncs = [
        OffsetSync("orders", 3, 110, 60),
        OffsetSync("orders", 3, 120, 71),
        OffsetSync("orders", 3, 700, 650),
    ]
    assert furthest_sync(syncs, source, copy) == 110
    assert furthest_sync(syncs[1:], source, copy) is None


def test_nothing_to_compare_is_no_answer_without_exactly_once() -> None:
    """A copy whose records are gone, or that another producer ended."""
    assert judge(replace(FACTS, alignment=Alignment(()), last=None)).candidates == (100,)
    assert judge(replace(FACTS, alignment=Alignment(()))).candidates == (100,)
    assert judge(replace(FACTS, alignment=Alignment(()), committed=None)).candidates == (0,)


def test_a_partition_that_was_never_mirrored_begins_where_the_link_says() -> None:
    """No position is adopted, and that is no problem."""
    found = judge(replace(FACTS, committed=None, target_end=0, last=None, alignment=Alignment(())))
    assert (found.resume, found.problem) == (None, "")


def test_a_source_that_ends_before_the_commit_is_refused() -> None:
    """It was truncated, or its topic created anew."""
    assert "truncated" in judge(replace(FACTS, source_end=99)).problem


def test_contradicting_offsets_are_refused_until_one_is_chosen() -> None:
    """What the user says counts, whatever else is known."""
    torn = replace(FACTS, contradicted=True)
    assert judge(torn).problem
    assert judge(replace(torn, chosen=42)).resume == 42


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ("b-0", "does not mirror"),
        ("a-7", "no such partition"),
        ("late-0", "east.late on the target has no such"),
        ("late-1", "resumes at its own position"),
    ],
)
def test_an_offset_for_what_cannot_be_taken_over_is_refused(chosen: str, said: str) -> None:
    """A mistyped partition, or one without a copy: it would begin elsewhere than the user said, and say nothing."""
    topic, _, number = chosen.rpartition("-")
    targets = {"a": "east.a", "late": "east.late"}
    with pytest.raises(UsageError, match=said):
        refuse_unknown(
            [SourcePartition(topic, int(number))],
            targets,
            [SourcePartition("a", 0)],
            [SourcePartition("late", 1)],
        )
    refuse_unknown([SourcePartition("a", 0)], targets, [SourcePartition("a", 0)])
