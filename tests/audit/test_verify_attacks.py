"""
Copies that are made to look right, and copies that are right and look wrong.

Written as by an attacker who wants `eomirror verify` to end with 0 where it must not, or never to end.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror.config import load_config
from eomirror.records.dead_letter import DeadLetter
from eomirror.types import SourcePartition
from eomirror.verify.runner import Verifier
from support.fakes.forged_copy import ForgedCopy

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.records.position import Position
    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict
    from support.traffic.records import Record

pytestmark = pytest.mark.integration

LINK = "attacks"
RECORDS: list[Record] = [(b"k%02d" % n, b"v%02d" % n, 1_700_000_000_000 + n, ()) for n in range(20)]


def identical(count: int) -> list[Record]:
    """Records that cannot be told apart."""
    return [(b"k", b"v", 1_700_000_000_000, ())] * count


# word -> what the source has, what the target has, what is found: kinds and counts
CONTENT: dict[str, tuple[list[Record], list[Record], dict[str, int]]] = {
    "identical-lost": (identical(20), identical(19), {"missing": 1}),
    "identical-twice": (identical(20), identical(21), {"duplicate": 1}),
    # one record lost, another twice: the counts agree
    "balanced": (RECORDS, [*RECORDS[:5], RECORDS[4], *RECORDS[6:]], {"duplicate": 1, "missing": 1}),
    # all values move on by one record: every key and every value is there
    "shifted": (
        RECORDS,
        [(r[0], RECORDS[(n + 1) % 20][1], *r[2:]) for n, r in enumerate(RECORDS)],
        {"altered": 20},
    ),
    # key and value trade a byte at their border
    "border": ([(b"ab", b"c", 1, ())], [(b"a", b"bc", 1, ())], {"altered": 1}),
    "header-to-value": ([(b"a", b"b", 1, (("h", b"x"),))], [(b"a", b"bhx", 1, ())], {"altered": 1}),
    "header-split": (
        [(b"a", b"b", 1, (("h", b"x"), ("h", b"y")))],
        [(b"a", b"b", 1, (("h", b"xy"),))],
        {"altered": 1},
    ),
    "reversed": (RECORDS, RECORDS[::-1], {"reordered": 19}),
    "nothing": (RECORDS, [], {"missing": 20}),
    "all-foreign": ([], RECORDS, {"foreign": 20}),
}

# word -> how the position is made up, and what is said about it
POSITIONS: dict[str, tuple[Callable[[Position], Position], str]] = {
    # without a look at the ends, the reader would wait for these records for ever
    "source-beyond": (lambda p: replace(p, offset=p.offset + 5), "the source ends at 20"),
    "target-beyond": (lambda p: replace(p, target_offset=30), "the target ends at 20"),
    "other-partition": (lambda p: replace(p, target_partition=1), "partition 1 of the target"),
    "other-topic": (
        lambda p: replace(p, target_topic=f"east.{LINK}.identical-lost"),
        "was recreated since the position was committed",
    ),
    "other-source": (lambda p: replace(p, topic_id="AAAAAAAAAAAAAAAAAAAAAA"), "source topic"),
}


def letter(word: str, offset: int, topic_id: str) -> tuple[bytes, bytes]:
    """Key and value of a dead letter at an offset whose record has another digest."""
    made = DeadLetter(
        source=SourcePartition(f"{LINK}.{word}", 0), offset=offset, target_topic=f"east.{LINK}.{word}", reason="size",
        error="", limit="", timestamp=1, key=b"", value=b"", headers=(), digest="00112233445566ff",
    )  # fmt: skip
    return made.record_key(), made.record_value(topic_id=topic_id, run="r", timestamp=1)


@pytest.fixture(scope="module")
def verdict(east: Any, west: Any, tmp_path_factory: pytest.TempPathFactory) -> LinkVerdict:
    """What the verifier says of all of them."""
    stage = ForgedCopy(east, west, LINK)
    words = [*CONTENT, *POSITIONS, "letter", "unclaimed"]
    stage.create("east", [f"{LINK}.{word}" for word in words])
    stage.create("west", [f"east.{LINK}.{word}" for word in words if word != "unclaimed"])
    stage.create("west", [f"east.{LINK}.unclaimed"], partitions=2)
    stage.create("west", [f"eomirror.{LINK}.positions", f"eomirror.{LINK}.dead-letter"])
    for word, (source, target, _) in CONTENT.items():
        stage.write("east", f"{LINK}.{word}", source)
        stage.write("west", f"east.{LINK}.{word}", target)
    for word in (*POSITIONS, "unclaimed"):
        stage.write("east", f"{LINK}.{word}", RECORDS)
        stage.write("west", f"east.{LINK}.{word}", RECORDS)
    stage.write("west", f"east.{LINK}.unclaimed", RECORDS[:1], partition=1)
    stage.write("east", f"{LINK}.letter", RECORDS)
    stage.write("west", f"east.{LINK}.letter", [*RECORDS[:7], *RECORDS[8:]])
    key, value = letter("letter", 7, stage.topic_id("east", f"{LINK}.letter"))
    stage.producers["west"].produce(f"eomirror.{LINK}.dead-letter", value, key)
    document = {
        "clusters": stage.sides,
        "links": [{"name": LINK, "source": "east", "target": "west", "topics": [f"{LINK}\\..*"]}],
    }
    path = tmp_path_factory.mktemp("attacks") / "mirror.yaml"
    path.write_bytes(orjson.dumps(document))
    path.chmod(0o600)
    config = load_config(path)
    stage.claim(config, {word: change for word, (change, _) in POSITIONS.items()})
    verifier = Verifier(config.link(LINK), config.clusters["east"], config.clusters["west"], show=3)
    try:
        return verifier.run()
    finally:
        verifier.close()


def of(verdict: LinkVerdict, word: str) -> list[PartitionVerdict]:
    """About the partitions of a topic."""
    return [each for each in verdict.partitions if each.scope.source.topic == f"{LINK}.{word}"]


def kinds(found: PartitionVerdict) -> dict[str, int]:
    """Differences that there are."""
    return {kind: count for kind, count in found.differences.items() if count}


@pytest.mark.parametrize("word", CONTENT)
def test_content_that_looks_right_is_found_out(verdict: LinkVerdict, word: str) -> None:
    """Equal counts, equal sets, equal concatenations: none of it makes a copy."""
    (found,) = of(verdict, word)
    assert kinds(found) == CONTENT[word][2]
    assert found.differs


@pytest.mark.parametrize("word", POSITIONS)
def test_a_position_that_cannot_be_true_is_a_difference(verdict: LinkVerdict, word: str) -> None:
    """It is neither believed nor waited for."""
    # where it speaks of another partition, the copy's own is one that no position speaks of
    found = of(verdict, word)[0]
    assert POSITIONS[word][1] in found.scope.problem
    assert found.differs


def test_a_dead_letter_about_another_record_is_no_excuse(verdict: LinkVerdict) -> None:
    """A letter has to hold the digest of the record at its offset."""
    (missing,) = of(verdict, "letter")
    assert kinds(missing) == {"missing": 1}
    assert missing.shown[0].source_offset == 7


def test_a_partition_of_the_copy_that_no_position_speaks_of_is_foreign(verdict: LinkVerdict) -> None:
    """The source has one partition and its copy two: what lies in the second came from nowhere."""
    first, second = of(verdict, "unclaimed")
    assert (kinds(first), first.matched) == ({}, 20)
    assert kinds(second) == {"foreign": 1}
    assert second.scope.target.partition == 1
