"""
The example of each topology, the traffic that a test gives it, and where each record has to arrive.

A topic is written ``ALIAS/TOPIC``.  Files are in docs/examples; the addresses in them are those of three local
clusters, which a test replaces.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from support.judges.java_partitioner import java_partition
from support.traffic.records import is_within, some_records

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from support.traffic.records import Record

__all__ = ["EXAMPLES", "SCENARIOS", "Scenario", "assert_keyed", "assert_merged", "example_settings"]

# an example takes its key from there, in this process and in commands
os.environ["MASK_KEY"] = "an example, not a secret"

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"
PORTS = (19092, 29092, 39092)
"""Ports of the examples, in the order of the clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """
    Traffic for one example.

    Attributes:
        writes: Topics that applications write, with their partition counts.
        holds: Topics and those whose records they hold, each record once.  A written topic that is not named holds
            what was written to it, and nothing else.
        absent: Topics that must not exist.
        reads: Cluster, pattern and topics: a consumer there that subscribes to the pattern reads the records of these
            topics, each once.
        group: Consumer group and written topic of which it reads half before the mirror starts, and the copy where it
            resumes at the next record of each partition.
        keyed: Partition count of each topic whose records are placed by their keys; they name their places.
        hops: How many links a record may pass.
        records: Returns records to write, by seed and number; their keys are replaced.
        copied: Returns what a copy has of a record; None where it has nothing.
        compared: `verify` compares the copies.
        quick: The example belongs to the tests of every commit.
    """

    writes: Mapping[str, int]
    holds: Mapping[str, Sequence[str]]
    absent: Sequence[str] = ()
    reads: tuple[str, str, Sequence[str]] | None = None
    group: tuple[str, str, str] | None = None
    keyed: Mapping[str, int] = field(default_factory=dict)
    hops: int = 1
    quick: bool = False
    records: Callable[[int, int], list[Record]] = some_records
    copied: Callable[[Record], Record | None] = lambda record: record
    compared: bool = True

    def expected(self) -> dict[str, Sequence[str]]:
        """Returns every topic with those whose records it holds."""
        return {topic: (topic,) for topic in self.writes if topic not in self.holds} | dict(self.holds)


def customer_orders(seed: int, count: int) -> list[Record]:
    """Orders in JSON with personal data, and tombstones."""
    rng = random.Random(seed)
    found: list[Record] = []
    for number in range(count):
        customer = {"name": f"name-{seed}-{number}", "email": f"mail-{seed}-{number}"}
        order = {"region": rng.choice(("eu", "us")), "test": rng.random() < 0.2, "customer": customer}
        value = None if rng.random() < 0.1 else json.dumps(order).encode()
        found.append((b"", value, 1_600_000_000_000 + number, (("token", b"token-%d" % number), ("h", b"1"))))
    return found


def masked(record: Record) -> Record | None:
    """What docs/examples/masked-region.yaml makes of an order."""
    key, value, timestamp, headers = record
    hidden = tuple((name, None if name == "token" else text) for name, text in headers)
    if value is None:
        return key, None, timestamp, hidden
    order = json.loads(value)
    if order["test"]:
        return None
    mail, key_of_masks = order["customer"]["email"].encode(), os.environ["MASK_KEY"].encode()
    order["customer"] = {
        "name": None, "email": hmac.new(key_of_masks, mail, hashlib.sha256).hexdigest(),
    }  # fmt: skip
    return key, json.dumps(order).encode(), timestamp, hidden


def selected(record: Record) -> Record | None:
    """What the statement of docs/examples/sql-between-clusters.yaml makes of an order."""
    key, value, timestamp, headers = record
    order = json.loads(value or b"{}")
    if order.get("region") != "eu":
        return None
    order["customer"]["email"] = "***"
    return key, json.dumps(order).encode(), timestamp, headers


def _everywhere(copies: Sequence[str], sources: Sequence[str] = ()) -> dict[str, Sequence[str]]:
    """Returns copies each of which holds the records of all sources, by default of all copies."""
    return dict.fromkeys(copies, sources or copies)


SCENARIOS: dict[str, Scenario] = {
    "active-passive": Scenario(
        writes={"east/orders": 3, "east/payments": 1},
        holds={"west/orders": ["east/orders"], "west/payments": ["east/payments"]},
        group=("billing", "east/orders", "west/orders"),
        quick=True,
    ),
    "active-active-prefix": Scenario(
        writes={"east/orders": 2, "west/orders": 3, "east/pay.card": 1},
        holds={
            "west/east.orders": ["east/orders"],
            "east/west.orders": ["west/orders"],
            "west/east.pay.card": ["east/pay.card"],
        },
        absent=["east/west.east.orders", "west/east.west.orders", "east/east.orders", "west/west.orders"],
        reads=("west", r"^(.*\.)?orders$", ["east/orders", "west/orders"]),
        quick=True,
    ),
    "active-active": Scenario(
        writes={"east/orders": 2, "west/orders": 2},
        holds=_everywhere(["east/orders", "west/orders"]),
    ),
    "active-active-three": Scenario(
        writes={"east/orders": 2, "west/orders": 2, "north/orders": 2},
        holds=_everywhere(["east/orders", "west/orders", "north/orders"]),
    ),
    "hub-and-spoke": Scenario(
        writes={"hub/orders": 2, "spoke1/orders": 2, "spoke2/orders": 2},
        holds=_everywhere(["hub/orders", "spoke1/orders", "spoke2/orders"]),
        hops=2,
    ),
    "fan-in": Scenario(
        writes={"shop1/orders": 2, "shop1/payments": 1, "shop2/orders": 3, "shop2/payments": 1},
        holds={
            "lake/shop1.orders": ["shop1/orders"],
            "lake/shop1.payments": ["shop1/payments"],
            "lake/shop2.orders": ["shop2/orders"],
            "lake/shop2.payments": ["shop2/payments"],
        },
        absent=["lake/orders", "shop1/shop2.orders"],
        reads=("lake", r"^.*\.orders$", ["shop1/orders", "shop2/orders"]),
        quick=True,
    ),
    "aggregation": Scenario(
        writes={"shop1/orders": 2, "shop2/bestellungen": 3},
        holds={"lake/all_orders": ["shop1/orders", "shop2/bestellungen"]},
        absent=["lake/shop1.orders", "lake/bestellungen"],
    ),
    "keyed-aggregation": Scenario(
        writes={"shop1/orders": 2, "shop2/bestellungen": 5},
        holds={"lake/all_orders": ["shop1/orders", "shop2/bestellungen"]},
        absent=["lake/shop1.orders", "lake/bestellungen"],
        keyed={"lake/all_orders": 12},
    ),
    "topic-replica": Scenario(
        writes={"dc1/orders_REPLICA": 2, "dc2/orders_REPLICA": 2},
        holds=_everywhere(["dc1/orders", "dc2/orders"], ["dc1/orders_REPLICA", "dc2/orders_REPLICA"]),
    ),
    "same-cluster": Scenario(
        writes={"east/orders": 2},
        holds={"east/orders_REPLICA": ["east/orders"]},
        absent=["east/orders_REPLICA_REPLICA"],
    ),
    "migration": Scenario(
        writes={"old/orders": 3, "old/payments": 1, "old/customers": 1},
        holds={
            "new/orders": ["old/orders"],
            "new/payments": ["old/payments"],
            "new/customers": ["old/customers"],
        },
        group=("billing", "old/orders", "new/orders"),
    ),
    "data-lake": Scenario(
        writes={"berlin/sensors": 2, "berlin/alarms": 1, "lyon/sensors": 3, "lyon/scratch.tests": 1},
        holds={
            "lake/berlin.sensors": ["berlin/sensors"],
            "lake/berlin.alarms": ["berlin/alarms"],
            "lake/lyon.sensors": ["lyon/sensors"],
        },
        absent=["lake/lyon.scratch.tests"],
        reads=("lake", r"^.*\.sensors$", ["berlin/sensors", "lyon/sensors"]),
    ),
    "masked-region": Scenario(
        writes={"eu/orders": 2},
        holds={"us/eu.orders": ["eu/orders"]},
        absent=["us/orders", "eu/us.orders"],
        records=customer_orders,
        copied=masked,
    ),
    "sql-between-clusters": Scenario(
        writes={"east/orders": 2},
        holds={"west/east.orders": ["east/orders"]},
        absent=["west/orders", "east/west.orders"],
        records=customer_orders,
        copied=selected,
        compared=False,
    ),
    "regional-isolation": Scenario(
        writes={
            "eu/shared.orders": 2, "eu/shared.users.pii": 1, "eu/customers": 1, "us/shared.orders": 1,
            "us/customers": 1,
        },
        holds={"world/eu.shared.orders": ["eu/shared.orders"], "world/us.shared.orders": ["us/shared.orders"]},
        absent=[
            "world/eu.customers", "world/us.customers", "world/eu.shared.users.pii", "eu/us.shared.orders",
            "us/eu.shared.orders", "eu/us.customers", "us/eu.customers",
        ],
    ),
}  # fmt: skip


def example_settings(name: str, clusters: Sequence[Mapping[str, Any]], **defaults: object) -> dict[str, Any]:
    """
    Returns the configuration of an example with these clusters in place of its own.

    Args:
        name: File in docs/examples, without its suffix.
        clusters: Client properties, in the order of the ports of the examples.
        defaults: Further settings of each link.

    Raises:
        AssertionError: The example uses an address that no other example uses.
    """
    settings: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    for alias, properties in settings["clusters"].items():
        host, _, port = properties["bootstrap.servers"].rpartition(":")
        assert host == "127.0.0.1"
        settings["clusters"][alias] = dict(clusters[PORTS.index(int(port))])
    settings["defaults"] = {**settings.get("defaults", {}), **defaults}
    return settings


def assert_keyed(
    merged: Mapping[int, Sequence[Record]], sources: Sequence[Mapping[int, Sequence[Record]]], count: int
) -> None:
    """
    Asserts that a topic holds every record once, where its key puts it, in the order of each source partition.

    Raises:
        AssertionError: A record is missing, there twice, foreign, in another partition, or out of order.
    """
    assert sorted(merged) == list(range(count))
    for number, records in merged.items():
        assert all(headers[-1][0] == "eomirror.origin" for *_, headers in records)
        copies = [(*record, headers[:-1]) for *record, headers in records]
        parts = [
            [record for record in part if placed(record[0], partition, count) == number]
            for source in sources
            for partition, part in source.items()
        ]
        found, wanted = Counter(copies), Counter(each for part in parts for each in part)
        assert found == wanted, (
            f"partition {number}: missing {wanted - found}, twice or foreign {found - wanted}"
        )
        assert all(is_within(part, copies) for part in parts), f"partition {number}: out of order"


def placed(key: bytes | None, partition: int, count: int) -> int:
    """Returns the target partition of a record: by its key as Java's producers do, else by its source partition."""
    return partition % count if key is None else java_partition(key, count)


def assert_merged(
    merged: Mapping[int, Sequence[Record]], sources: Sequence[Mapping[int, Sequence[Record]]]
) -> None:
    """
    Asserts that a topic holds every record of every source once, in its partition, in the order of its source.

    Raises:
        AssertionError: A record is missing, there twice, foreign, or out of order.
    """
    for number, records in merged.items():
        parts = [source.get(number, ()) for source in sources]
        found, wanted = Counter(records), Counter(each for part in parts for each in part)
        assert found == wanted, (
            f"partition {number}: missing {wanted - found}, twice or foreign {found - wanted}"
        )
        assert all(is_within(part, records) for part in parts), f"partition {number}: out of order"
    assert all(set(source) <= set(merged) for source in sources)
