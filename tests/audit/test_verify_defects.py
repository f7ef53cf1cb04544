"""`eomirror verify` on real brokers: planted defects have the right name and offsets, and clean copies have none."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror.config import load_config
from eomirror.verify.runner import Verifier
from eomirror.verify.scope import RequestedRange
from support.fakes.forged_copy import ForgedCopy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eomirror.verify.verdict import LinkVerdict, PartitionVerdict
    from support.traffic.records import Record

pytestmark = pytest.mark.integration

LINK = "defects"
COUNT = 40


def original() -> list[Record]:
    """Forty records that all differ; number 5 has a null value, number 6 a null key."""
    records: list[Record] = [
        (
            b"key-%02d" % n,
            b"value-%02d" % n,
            1_700_000_000_000 + n,
            (("first", b"a%02d" % n), ("second", b"b")),
        )
        for n in range(COUNT)
    ]
    records[5] = (records[5][0], None, *records[5][2:])
    records[6] = (None, *records[6][1:])
    return records


def flipped(data: bytes) -> bytes:
    """One bit of the last byte differs."""
    return data[:-1] + bytes([data[-1] ^ 1])


def replaced(place: int, change: Callable[[Record], Record]) -> list[Record]:
    """The original with one record changed."""
    records = original()
    records[place] = change(records[place])
    return records


def moved(source: int, target: int) -> list[Record]:
    """The original with one record at another place."""
    records = original()
    records.insert(target, records.pop(source))
    return records


def swapped(one: int, other: int) -> list[Record]:
    """The original with two records in each other's place."""
    records = original()
    records[one], records[other] = records[other], records[one]
    return records


def without(*places: int) -> list[Record]:
    """The original, and some records lacking."""
    return [record for place, record in enumerate(original()) if place not in places]


def header(change: Callable[[tuple[tuple[str, bytes | None], ...]], Any]) -> list[Record]:
    """The original with the headers of record 20 changed."""
    return replaced(20, lambda record: (*record[:3], tuple(change(record[3]))))


FOREIGN: Record = (b"foreign", b"foreign", 1_700_000_000_000, ())
ALTERED = [("altered", 20, 20)]
EVERYTHING = original()

#: name -> what the target holds, and the differences that must be found: kind, source offset, target offset
DEFECTS: dict[str, tuple[list[Record], list[tuple[str, int | None, int | None]]]] = {
    "first-dropped": (without(0), [("missing", 0, None)]),
    "middle-dropped": (without(20), [("missing", 20, None)]),
    "last-dropped": (without(39), [("missing", 39, None)]),
    "duplicate": ([*EVERYTHING[:21], *EVERYTHING[20:]], [("duplicate", None, 21)]),
    "neighbours-swapped": (swapped(20, 21), [("reordered", 21, 20)]),
    "moved-far": (moved(2, 35), [("reordered", 2, 35)]),
    "key-bit": (replaced(20, lambda r: (flipped(r[0] or b""), *r[1:])), ALTERED),
    "value-bit": (replaced(20, lambda r: (r[0], flipped(r[1] or b""), *r[2:])), ALTERED),
    "timestamp-bit": (replaced(20, lambda r: (*r[:2], r[2] ^ 1, r[3])), ALTERED),
    "header-key-bit": (header(lambda h: [("firsu", h[0][1]), h[1]]), ALTERED),
    "header-value-bit": (header(lambda h: [("first", flipped(h[0][1])), h[1]]), ALTERED),
    "header-order": (header(lambda h: [h[1], h[0]]), ALTERED),
    "header-dropped": (header(lambda h: h[:1]), ALTERED),
    "null-value-empty": (replaced(5, lambda r: (r[0], b"", *r[2:])), [("altered", 5, 5)]),
    "null-key-empty": (replaced(6, lambda r: (b"", *r[1:])), [("altered", 6, 6)]),
    "foreign": ([*EVERYTHING[:10], FOREIGN, *EVERYTHING[10:]], [("foreign", None, 10)]),
    "half-torn": (without(*range(20, 30)), [("missing", n, None) for n in range(20, 30)]),
    "position-too-far": (EVERYTHING[:37], [("missing", n, None) for n in (37, 38, 39)]),
    "batch-twice": (
        [*EVERYTHING[:20], *EVERYTHING[10:20], *EVERYTHING[20:]],
        [("duplicate", None, n) for n in range(20, 30)],
    ),
}

PARTS = {
    "key-bit": ("key",),
    "value-bit": ("value",),
    "timestamp-bit": ("timestamp",),
    "header-key-bit": ("headers",),
    "header-value-bit": ("headers",),
    "header-order": ("headers",),
    "header-dropped": ("headers",),
    "null-value-empty": ("value",),
    "null-key-empty": ("key",),
}


@pytest.fixture(scope="module")
def stage(east: Any, west: Any) -> ForgedCopy:
    """All planted topics."""
    stage = ForgedCopy(east, west, LINK)
    plain = [f"{LINK}.{name}" for name in DEFECTS]
    clean = [f"{LINK}.clean", f"{LINK}.empty"]
    aborted = f"{LINK}.aborted-visible"
    stage.create("east", [*plain, *clean, aborted])
    stage.create("west", [f"east.{name}" for name in (*plain, *clean, aborted)])
    for side, topic in (("east", f"{LINK}.partitions"), ("west", f"east.{LINK}.partitions")):
        stage.create(side, [topic], partitions=2)
    for side, topic in (("east", f"{LINK}.compacted"), ("west", f"east.{LINK}.compacted")):
        stage.create(side, [topic], **{"cleanup.policy": "compact"})
    stage.create("west", [f"eomirror.{LINK}.positions"])
    for name, (records, _) in DEFECTS.items():
        stage.write("east", f"{LINK}.{name}", EVERYTHING)
        stage.write("west", f"east.{LINK}.{name}", records)
    # a clean copy, past aborted data, markers and holes, in other batches
    for commit in (True, False):
        stage.transaction("east", f"{LINK}.clean", EVERYTHING[:15], commit=commit)
    stage.write("east", f"{LINK}.clean", EVERYTHING[15:])
    stage.transaction("west", f"east.{LINK}.clean", EVERYTHING[:7], commit=False)
    provenance = [(*record[:3], (*record[3], ("eomirror.hops", b"x"))) for record in EVERYTHING]
    stage.transaction("west", f"east.{LINK}.clean", provenance, commit=True)
    # the source aborted what the target shows
    stage.transaction("east", aborted, EVERYTHING[:3], commit=False)
    stage.write("east", aborted, EVERYTHING[3:])
    stage.write("west", f"east.{aborted}", EVERYTHING)
    # one record in the wrong partition
    for partition in (0, 1):
        half = EVERYTHING[partition::2]
        stage.write("east", f"{LINK}.partitions", half, partition)
    stage.write("west", f"east.{LINK}.partitions", [r for r in EVERYTHING[0::2] if r != EVERYTHING[20]], 0)
    stage.write(
        "west", f"east.{LINK}.partitions", [*EVERYTHING[1:20:2], EVERYTHING[20], *EVERYTHING[21::2]], 1
    )
    # as if compaction had run on the target only: superseded records and a tombstone are gone
    first, keyed = EVERYTHING[0], EVERYTHING[1]
    gone: Record = (b"gone", b"1", 1, ())
    stage.write(
        "east",
        f"{LINK}.compacted",
        [first, gone, keyed, (*first[:1], b"new", *first[2:]), (b"gone", None, 2, ())],
    )
    stage.write("west", f"east.{LINK}.compacted", [keyed, (*first[:1], b"new", *first[2:])])
    return stage


@pytest.fixture(scope="module")
def path(stage: ForgedCopy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A configuration of the link."""
    path = tmp_path_factory.mktemp("verify") / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": stage.sides,
                "links": [{"name": LINK, "source": "east", "target": "west", "topics": [f"{LINK}\\..*"]}],
            }
        )
    )
    path.chmod(0o600)
    stage.claim(load_config(path))
    return path


@pytest.fixture(scope="module", params=["native", pytest.param("client", marks=pytest.mark.slow)])
def verdict(path: Any, request: pytest.FixtureRequest) -> LinkVerdict:
    """What the verifier says of all topics, read by either plane."""
    config = load_config(path)
    clusters = config.clusters
    verifier = Verifier(
        config.link(LINK), clusters["east"], clusters["west"], show=20, native=request.param == "native"
    )
    try:
        assert verifier.plane == request.param
        return verifier.run()
    finally:
        verifier.close()


def of(verdict: LinkVerdict, name: str, partition: int = 0) -> PartitionVerdict:
    """The verdict about one partition."""
    (found,) = [
        each
        for each in verdict.partitions
        if (each.scope.source.topic, each.scope.source.partition) == (f"{LINK}.{name}", partition)
    ]
    assert found.scope.problem == ""
    return found


def differences(found: PartitionVerdict) -> list[tuple[str, int | None, int | None]]:
    """Kind and offsets of what is shown."""
    return [(each.kind, each.source_offset, each.target_offset) for each in found.shown]


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(verdict: LinkVerdict, name: str) -> None:
    """Each defect has its name and its offsets, nothing else differs, and its records are shown."""
    found = of(verdict, name)
    expected = DEFECTS[name][1]
    assert differences(found) == expected
    assert sum(found.differences.values()) == len(expected)
    assert found.differs
    for shown in found.shown:
        assert (shown.source is None) == (shown.source_offset is None)
        assert (shown.target is None) == (shown.target_offset is None)
        assert shown.parts == PARTS.get(name, ())


def test_a_record_in_the_wrong_partition_is_missing_in_one_and_foreign_in_the_other(
    verdict: LinkVerdict,
) -> None:
    """Both partitions differ, each by one record."""
    assert differences(of(verdict, "partitions", 0)) == [("missing", 10, None)]
    assert differences(of(verdict, "partitions", 1)) == [("foreign", None, 10)]


def test_an_aborted_record_that_the_target_shows_is_foreign(verdict: LinkVerdict) -> None:
    """What the source aborted must not be there."""
    found = of(verdict, "aborted-visible")
    assert differences(found) == [("foreign", None, n) for n in range(3)]


@pytest.mark.parametrize("name", ["clean", "compacted", "empty"])
def test_a_clean_copy_has_no_difference(verdict: LinkVerdict, name: str) -> None:
    """Aborted data, markers, holes, the provenance header and compaction on one side are no defects."""
    found = of(verdict, name)
    assert differences(found) == []
    assert not found.differs
    assert found.matched == {"clean": COUNT, "compacted": 2, "empty": 0}[name]
    if name == "clean" and verdict.plane == "native":
        assert (found.source["aborted"], found.target["aborted"]) == (15, 7)


def test_the_command_ends_with_3_or_0(path: Any) -> None:
    """What differs ends with 3 and is told as JSON; a clean topic alone ends with 0."""
    for topic, code, word in ((f"{LINK}\\.duplicate", 3, "differs"), (f"{LINK}\\.clean", 0, "equal")):
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "verify", str(path), "--topic", topic, "-o", "json"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        (link,) = json.loads(done.stdout)["links"]
        assert (link["verdict"], len(link["partitions"])) == (word, 1)


@pytest.mark.slow
def test_spark_says_what_one_process_says(path: Any) -> None:
    """A job of four tasks finds each defect by the same name and offsets, and ends with the same code."""
    told = []
    for arguments in ((), ("--master", "local[4]")):
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "verify", str(path), "--show", "3", "-o", "json", *arguments],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 3, done.stderr
        (link,) = json.loads(done.stdout)["links"]
        told.append(link)
    alone, spread = told
    assert (alone.pop("spark"), spread.pop("spark")) == ("", "local[4], 4 tasks at a time")
    assert len(spread["partitions"]) > 20
    assert spread == alone


def test_more_keys_than_fit_are_compared_in_shares(path: Any) -> None:
    """The same partition is read again for each share, with the same connections."""
    config = load_config(path)
    clusters = config.clusters
    verifier = Verifier(config.link(LINK), clusters["east"], clusters["west"], most_keys=1)
    try:
        found = of(verifier.run(bound=RequestedRange(topics=f"{LINK}\\.compacted")), "compacted")
    finally:
        verifier.close()
    assert (differences(found), found.matched) == ([], 2)
