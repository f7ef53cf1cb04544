"""Fake messages, batches of them, and what an independent reader expects of a plan."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from eomirror._native import Planner, Policy

HOPS = "eomirror.hops"
SOURCE, TARGET = "source-id", "target-id"
#: Clusters that a record may have passed before it came to the source.
ELSEWHERE = ("a-id", "b-id", TARGET)

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Message:
    """Answers what a consumed `confluent_kafka.Message` answers."""

    topic_: str
    partition_: int
    offset_: int
    key_: bytes | None
    value_: bytes | None
    timestamp_: tuple[int, int]
    headers_: list[Header] | None
    epoch_: int | None
    #: Clusters that the record has really passed; empty for a local record, whatever its headers pretend.
    path: tuple[str, ...] = field(default=())

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        return self.timestamp_

    def headers(self) -> list[Header] | None:
        return self.headers_

    def leader_epoch(self) -> int | None:
        return self.epoch_

    @property
    def milliseconds(self) -> int:
        """The timestamp as it is to be written."""
        return -1 if self.timestamp_[0] == 0 else self.timestamp_[1]

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name.encode()) + len(value or b"") for name, value in self.headers_ or ())
        return len(self.key_ or b"") + len(self.value_ or b"") + headers


# -- batches -------------------------------------------------------------------------------------------------------

# Contents come from a generator whose seed is drawn: a batch of 25 records is one draw for hypothesis and not 200,
# and a failure still shrinks to few records.
_seeds = st.integers(0, 2**32 - 1)
_FORGED = (None, b"", b"EM\x01abcdxyz", b"\x00" * 20)
_NAMES = ("", "a", "b.", "\u00e9\u4e16")


def _bytes(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", rng.randbytes(rng.randrange(1, 12))))


def _headers(rng: random.Random) -> list[Header] | None:
    # under our own name too: an application may copy or invent the header
    made: list[Header] = [
        (HOPS, rng.choice(_FORGED)) if rng.random() < 0.2 else (rng.choice(_NAMES), _bytes(rng))
        for _ in range(rng.randrange(5))
    ]
    return made or rng.choice((None, []))


def _path(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(ELSEWHERE, rng.choice((0, 0, 0, 1, 2, 3))))


@st.composite
def logs(draw: st.DrawFn, *, most: int = 25) -> list[Message]:
    """
    Records of two topics with two partitions each, interleaved as fetches interleave them.

    Offsets grow per partition, with holes where markers, aborted data or compacted records were.
    """
    count, rng = draw(st.integers(1, most)), random.Random(draw(_seeds))
    next_offsets: dict[tuple[str, int], int] = {}
    made = []
    for _ in range(count):
        where = rng.choice((("orders", 0), ("orders", 1), ("payments", 0), ("payments", 1)))
        first = next_offsets[where] if where in next_offsets else rng.choice((0, 5, 2**40))
        offset = first + rng.choice((0, 0, 0, 1, 7))
        next_offsets[where] = offset + 1
        stamp = rng.choice(((0, -1), (1, rng.randrange(1, 2**62)), (2, rng.randrange(1, 2**62))))
        epoch = rng.choice((None, rng.randrange(9)))
        record = Message(*where, offset, _bytes(rng), _bytes(rng), stamp, _headers(rng), epoch)
        made.append(_sent_along(record, _path(rng)))
    return made


def _sent_along(record: Message, path: tuple[str, ...]) -> Message:
    """The record as it stands on the source after links with provenance have carried it there."""
    for here, there in pairwise((*path, SOURCE)):
        policy = Policy(
            {record.topic_: record.topic_}, source_cluster_id=here, target_cluster_id=there, header=True
        )
        (written,) = Planner(policy).plan([record]).records
        record = Message(
            record.topic_,
            record.partition_,
            record.offset_,
            record.key_,
            record.value_,
            record.timestamp_,
            written[7],
            record.epoch_,
            (*record.path, here),
        )
    return record


@dataclass(frozen=True, slots=True)
class Rules:
    """A policy, and what it means."""

    routes: dict[str, str]
    header: bool
    guard: bool
    origins: tuple[str, ...] | None

    def policy(self) -> Policy:
        """As the core takes it."""
        return Policy(
            self.routes,
            source_cluster_id=SOURCE,
            target_cluster_id=TARGET,
            header=self.header,
            guard=self.guard,
            origins=self.origins,
        )

    def reason(self, record: Message) -> str:
        """Why the record is dropped; empty for one that is kept."""
        if not self.guard:
            return ""
        passed = record.path or (SOURCE,)
        if TARGET in passed:
            return "hop"
        return "origin" if self.origins is not None and passed[0] not in self.origins else ""


rules = st.builds(
    Rules,
    # one target each, or both into one
    routes=st.sampled_from(
        [{"orders": "east.orders", "payments": "east.payments"}, {"orders": "all", "payments": "all"}]
    ),
    header=st.booleans(),
    guard=st.booleans(),
    origins=st.none()
    | st.sets(st.sampled_from([SOURCE, "a-id", "b-id"])).map(lambda found: tuple(sorted(found))),
)


def cut(draw: Any, records: list[Message]) -> list[list[Message]]:
    """The records in batches, empty ones among them."""
    marks = sorted(draw(st.lists(st.integers(0, len(records)), max_size=3)))
    return [records[begin:end] for begin, end in zip([0, *marks], [*marks, len(records)], strict=True)]


# -- the target ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What a target made of the records: the runs it acknowledges, and each record's offset."""

    runs: dict[tuple[str, int], list[tuple[int, int]]]
    offsets: list[int]

    def acks(self) -> list[tuple[str, int, list[tuple[int, int]]]]:
        """As `eomirror._native.Acks` takes them."""
        return [(topic, partition, list(runs)) for (topic, partition), runs in self.runs.items()]


@st.composite
def written(draw: st.DrawFn, places: list[tuple[str, int]]) -> Written:
    """Acknowledges one record after the other; foreign records and markers leave holes."""
    rng = random.Random(draw(_seeds))
    runs: dict[tuple[str, int], list[tuple[int, int]]] = {}
    offsets = []
    for place in places:
        if place not in runs:
            offset = rng.choice((0, 1, rng.randrange(2**40)))
            runs[place] = [(offset, 1)]
        else:
            first, count = runs[place][-1]
            offset = first + count + rng.choice((0, 0, 0, 1, 5))
            # a hole makes a new run; so may the end of a request
            if offset == first + count and rng.random() < 0.6:
                runs[place][-1] = (first, count + 1)
            else:
                runs[place].append((offset, 1))
        offsets.append(offset)
    return Written(runs, offsets)


# -- an independent reader of the provenance header ------------------------------------------------------------------


def read_provenance(value: bytes, key: bytes | None, content: bytes | None) -> tuple[str, str, list[str]]:
    """Origin, topic and hops, by the layout in rust/core/src/header.rs; asserts that it belongs to the record."""
    assert value[:3] == b"EM\x01"
    framed = b"".join(
        b"\0" * 9 if part is None else b"\1" + len(part).to_bytes(8, "big") + part for part in (key, content)
    )
    assert value[3:7] == _crc32c(framed).to_bytes(4, "big")
    texts, rest = [], value[7:]
    for _ in range(2):
        texts.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    hops, rest = rest[0], rest[1:]
    names = []
    for _ in range(hops):
        names.append(rest[1 : 1 + rest[0]].decode())
        rest = rest[1 + rest[0] :]
    assert rest == b""
    return texts[0], texts[1], names


def _crc32c(data: bytes) -> int:
    """RFC 3720, appendix B.4, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
