"""
What is mirrored: workloads and the seeded generators of their records.

A workload is either *bulk* (everything is there before a mirror starts, so that the mirror sets the pace) or
*paced* (a feeder produces at a fixed rate while the mirror runs, so that the feeder does).

Records of bulk workloads begin with their own number, so that no two of a topic are equal and a duplicate, a
swap or a hole cannot hide behind an equal neighbour.  The rest is cut from a pool of seeded content: generating
fresh content for every record would take longer than mirroring it.  The pool of the JSON workload is larger
than zstd's window, so repetition in it does not flatter the codec.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "MASKED_FIELD",
    "MASK_SECRET",
    "SMALL",
    "WORKLOADS",
    "Workload",
    "json_document",
    "masked_value",
    "values",
]

#: What the masked workload hides, and the key of the hash.
MASKED_FIELD = "$.customer.email"
MASK_SECRET = "a key of the benchmark"  # noqa: S105  hides nothing

_EMAIL = re.compile(rb'(?<="email":")[^"]*')
_DIGITS = 16
# zstd at its default level looks back 2 MiB; the pool is 8 times that
_JSON_POOL_DOCUMENTS = 16_000
_RANDOM_POOL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """
    One kind of traffic.

    Attributes:
        name: On the command line and in topic names.
        title: In reports.
        content: ``random`` bytes or ``json`` documents.
        value_bytes: Size of a value; of JSON, about.
        partitions: Of the source topic; targets get the same number.
        codec: Compression of the source's batches; both mirrors are told to write with it too.
        batch_records: Largest number of records in a source batch; 0 for as many as fit 256 KiB.
        expected_rate: Records/s that the fastest mirror is expected to reach; decides how much is loaded.
        rate: Records/s of a paced workload; 0 for bulk.
        provenance: This mirror writes its provenance header, so that every record is encoded anew; others copy.
        masked: This mirror replaces a JSON field of each record by its keyed hash.  MirrorMaker 2 has a transformation
            that looks for a header of each record and finds none: those of fields fail on records that are bytes, so it
            does less work than a mask.
    """

    name: str
    title: str
    content: Literal["random", "json"] = "random"
    value_bytes: int = 100
    partitions: int = 6
    codec: Literal["none", "zstd"] = "none"
    batch_records: int = 0
    expected_rate: int = 0
    rate: int = 0
    provenance: bool = False
    masked: bool = False

    @property
    def topic(self) -> str:
        """Name of the source topic."""
        return f"bench-{self.name}"

    @property
    def paced(self) -> bool:
        """Whether a feeder sets the pace."""
        return self.rate > 0

    def records_for(self, seconds: float) -> int:
        """How many records keep the fastest mirror busy for so long."""
        return int(self.expected_rate * seconds)


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(name="100b", title="100 B, uncompressed", value_bytes=100, expected_rate=2_600_000),
        Workload(name="1kb", title="1 kB, uncompressed", value_bytes=1000, expected_rate=360_000),
        Workload(
            name="json-zstd",
            title="1 kB JSON, zstd",
            content="json",
            value_bytes=1000,
            codec="zstd",
            expected_rate=750_000,
        ),
        Workload(
            name="small-batches",
            title="100 B, 10 records a batch",
            value_bytes=100,
            batch_records=10,
            expected_rate=2_450_000,
        ),
        Workload(
            name="provenance",
            title="100 B, a header added to each",
            value_bytes=100,
            expected_rate=1_700_000,
            provenance=True,
        ),
        Workload(
            name="json",
            title="1 kB JSON, uncompressed",
            content="json",
            value_bytes=1000,
            expected_rate=360_000,
        ),
        Workload(
            name="masked",
            title="1 kB JSON, uncompressed, a field masked",
            content="json",
            value_bytes=1000,
            expected_rate=360_000,
            masked=True,
        ),
        Workload(
            name="trickle",
            title="200 partitions, 1 record/s each",
            value_bytes=100,
            partitions=200,
            rate=200,
        ),
    )
}

#: What ``--small`` runs.
SMALL = ("100b", "1kb")


def json_document(draw: random.Random) -> bytes:
    """
    An order of about 1 kB as an application would write it: some words repeat, ids and amounts do not.

    Compresses about 3 times in a batch of its like.
    """
    document = {
        "id": f"{draw.getrandbits(128):032x}",
        "type": draw.choice(["order.created", "order.paid", "order.shipped", "order.cancelled"]),
        "time": f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}T{draw.randint(0, 23):02}:"
        f"{draw.randint(0, 59):02}:{draw.randint(0, 59):02}.{draw.randint(0, 999):03}Z",
        "customer": {
            "id": draw.randint(1, 5_000_000),
            "email": f"{draw.getrandbits(48):x}@{draw.choice(['mail', 'post', 'inbox'])}.example",
            "country": draw.choice(["DE", "FR", "US", "JP", "BR", "IN", "ZA", "SE"]),
            "segment": draw.choice(["private", "business", "reseller"]),
        },
        "lines": [
            {
                "sku": f"SKU-{draw.getrandbits(40):010X}",
                "quantity": draw.randint(1, 20),
                "price": round(draw.uniform(1, 900), 2),
                "currency": "EUR",
                "warehouse": draw.choice(["north", "south", "east", "west"]),
            }
            for _ in range(5)
        ],
        "address": {
            "street": f"{draw.choice(['Main', 'Park', 'Oak', 'Lake', 'Hill'])} Street {draw.randint(1, 300)}",
            "postal_code": f"{draw.randint(10_000, 99_999)}",
        },
        "trace": f"{draw.getrandbits(160):040x}",
        "signature": f"{draw.getrandbits(320):080x}",
    }
    return json.dumps(document, separators=(",", ":")).encode()


def masked_value(value: bytes) -> bytes:
    """Returns what a mask makes of a value of the masked workload, computed without the mirror's code."""

    def hidden(found: re.Match[bytes]) -> bytes:
        return hmac.new(MASK_SECRET.encode(), found[0], hashlib.sha256).hexdigest().encode()

    return _EMAIL.sub(hidden, value)


def values(workload: Workload, *, seed: int, first: int = 0, pool_size: int = 0) -> Iterator[bytes]:
    """
    Endless values of a workload, equal for equal arguments.

    Args:
        workload: Whose.
        seed: Of the content.
        first: Number of the first record; values hold their numbers.
        pool_size: Documents in the JSON pool; 0 for the size that defeats the codec's window.
    """
    draw = random.Random(f"{workload.name}-{seed}")
    make = _json_values(draw, pool_size) if workload.content == "json" else _random_values(workload, draw)
    number = first
    while True:
        yield make(number)
        number += 1


def _random_values(workload: Workload, draw: random.Random) -> Callable[[int], bytes]:
    body = workload.value_bytes - _DIGITS
    pool = draw.randbytes(_RANDOM_POOL_BYTES)
    span = len(pool) - body
    stride = 7919  # a prime: neighbours share no content, and the pool is walked through evenly

    def make(number: int) -> bytes:
        at = number * stride % span
        return b"%016x" % number + pool[at : at + body]

    return make


def _json_values(draw: random.Random, pool_size: int) -> Callable[[int], bytes]:
    pool = [json_document(draw)[1:] for _ in range(pool_size or _JSON_POOL_DOCUMENTS)]

    def make(number: int) -> bytes:
        return b'{"n":%d,' % number + pool[number % len(pool)]

    return make
