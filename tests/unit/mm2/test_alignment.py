"""Which source record was mirrored last: by hand, and against a replicator that crashes at random moments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.kafka.record_digests import RecordDigest
from eomirror.mm2.resume_offset import align

if TYPE_CHECKING:
    import random


def log(words: str, first: int = 0) -> list[RecordDigest]:
    """One record per letter; a dot is an offset without a record."""
    return [RecordDigest(first + index, word.encode()) for index, word in enumerate(words) if word != "."]


CASES = {
    "clean stop": ("abcdefgh", "abcd", 3, (3,)),
    "crash behind the commit": ("abcdefgh", "abcdef", 3, (5,)),
    "second run shorter than the first": ("abcdefgh", "abcdefde", 3, (5,)),
    "second run longer": ("abcdefgh", "abcdedefg", 3, (6,)),
    "three runs": ("abcdefgh", "abcdeddefd", 3, (5,)),
    "an earlier run went beyond one that committed": ("abcdefgh", "abcdefbcd", 2, (5,)),
    "nothing committed": ("abcdefgh", "abc", None, (2,)),
    "nothing committed, two runs": ("abcdefgh", "abcdab", None, (3,)),
    "holes on the source": ("ab..cd.efgh", "abcde", 5, (7,)),
    "all records are equal": ("aaaaaaaa", "aaaa", 2, (2, 3, 4, 5, 6, 7)),
    "the end repeats": ("abxyxyxy", "abxyxy", 1, (3, 5)),
    "an earlier run may have ended in what repeats": ("abcabd", "abca", 2, (3, 4)),
    "another producer wrote": ("abcdefgh", "abcdz", 3, ()),
    "ends before the commit": ("abcdefgh", "ab", 3, ()),
    "empty copy": ("abcdefgh", "", 3, ()),
}


@pytest.mark.parametrize("case", CASES)
def test_candidates(case: str) -> None:
    """The only place that explains the end of the copy, or all that do."""
    source, copy, committed, expected = CASES[case]
    assert align(log(source), log(copy, 100), committed).candidates == expected


def test_a_whole_copy_has_no_run_that_began_before_it() -> None:
    """A copy of one record can only be the first one, if nothing was deleted from it."""
    assert align(log("abcabc"), log("a"), None, from_start=True).candidates == (0,)
    assert align(log("abcabc"), log("a"), None).candidates == (0, 3)


def test_records_of_the_last_run_are_paired() -> None:
    """Source and target offsets, holes on both sides included."""
    found = align(log("ab.cdef"), log("xab.cd", 100), 1)
    assert found.pairs == ((0, 101), (1, 102), (3, 104), (4, 105))


# source; where it is cut; copy; committed: what the copy holds of what was not read is newer
NEWER = {
    "a crash that got far, and a short run": ("abcdefghijklmnop", slice(2, 8), "ijklmnefg", 3),
    "the same, stopped in order": ("abcdefghijklmnop", slice(2, 8), "ijklmnefg", 6),
    "a run that begins before the last commit": ("abcdefghijklmnop", slice(2, 8), "ijklmndef", 4),
    "one that begins before what was read": ("abcdefghijklmnop", slice(2, 8), "ijklmnabcdef", 4),
    "nothing was committed": ("abcdefghijklmnop", slice(0, 6), "ijklmnabc", None),
}


@pytest.mark.parametrize("case", NEWER)
def test_what_was_not_read_of_the_source_is_not_taken_for_older(case: str) -> None:
    """A crashed run got further than the source was read, and a short one followed: where it ended says nothing."""
    words, cut, copy, committed = NEWER[case]
    source = log(words)
    assert align(source[cut], log(copy, 100), committed, to_end=False).candidates == ()
    # read further, it is found
    assert align(source, log(copy, 100), committed).candidates == (13,)


def test_what_is_older_than_the_compared_records_of_the_source_is_passed_over() -> None:
    """Where the source was read to its end; else it may be newer, and more has to be read."""
    assert align(log("defgh", 3), log("xyabcdef", 100), 4).candidates == (5,)
    assert align(log("defgh", 3), log("xyabcdef", 100), 4, to_end=False).candidates == ()
    assert align(log("abcdefgh"), log("abcdef", 100), 4, to_end=False).candidates == (5,)


def test_too_many_readings_are_no_reason_to_guess() -> None:
    """The last record is unlike all others, but a run before it may have got further."""
    source = log("a" * 300 + "b" + "a" * 300)
    found = align(source, log("a" * 250 + "b", 1000), 250).candidates
    assert found[0] == 300
    assert len(found) > 1
    # nothing that the copy holds lies behind it
    assert align(source[:301], log("a" * 250 + "b", 1000), 250).candidates == (300,)


def replicated(rng: random.Random, source: list[RecordDigest]) -> tuple[list[RecordDigest], int | None, int]:
    """What a replicator leaves that commits now and then and crashes: its copy, its commit, its furthest index."""
    copy: list[bytes] = []
    committed: int | None = None
    furthest = -1
    for _ in range(rng.randrange(1, 5)):
        at = 0 if committed is None else committed + 1
        for index in range(at, min(len(source), at + rng.randrange(0, 12))):
            copy.append(source[index].digest)
            furthest = max(furthest, index)
            if rng.random() < 0.1:
                committed = index
    return [RecordDigest(2 * index, digest) for index, digest in enumerate(copy)], committed, furthest


@pytest.mark.parametrize("letters", [2, 5, 1000])
def test_the_furthest_record_is_always_among_the_candidates(rng: random.Random, letters: int) -> None:
    """And the only one, where no two records are equal; where they are, nothing else is ever the only one."""
    for _ in range(150):
        names = list(range(1000)) if letters == 1000 else [rng.randrange(letters) for _ in range(40)]
        source = [RecordDigest(3 * index, b"%d" % name) for index, name in enumerate(names[:40])]
        copy, committed, furthest = replicated(rng, source)
        offset = None if committed is None else source[committed].offset
        found = align(source, copy, offset, from_start=True).candidates
        story = (names, [record.digest for record in copy], committed, furthest, found)
        if not copy:
            assert found == ()
        elif letters == 1000:
            # a window that ends too early, on either side, tells nothing rather than something else
            for cut in (rng.randrange(len(source) + 1), furthest, furthest + 1):
                assert align(source[:cut], copy, offset).candidates in ((), (source[furthest].offset,)), story
            window = copy[rng.randrange(len(copy)) :]
            seen = max((record.digest for record in window), key=[each.digest for each in source].index)
            assert align(source, window, offset).candidates in (
                (),
                (source[[each.digest for each in source].index(seen)].offset,),
            ), story
            # as `adopt` reads: the end of the copy, and a part of the source that may end too early
            low = max(0, (-1 if committed is None else committed) + 1 - rng.randrange(1, 12))
            part = source[low : low + len(window) + rng.randrange(6)]
            ends = align(part, window, offset, to_end=len(part) == len(source) - low).candidates
            assert ends in ((), (source[[each.digest for each in source].index(seen)].offset,)), story
            assert found == (source[furthest].offset,), story
        else:
            assert source[furthest].offset in found, story
