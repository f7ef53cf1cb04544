"""The JSON of ``status -o json`` and ``/api/v1``, and the metrics, keep their names and values."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from eomirror.errors import UnreachableError
from eomirror.lane.spec import LaneProgress, PartitionProgress, StoppedTopic
from eomirror.metrics.collect import ProcessFacts, exposition
from eomirror.metrics.verdict import Window
from eomirror.plane.protocol import Serving
from eomirror.records.control import ControlView, Gap, Generation, Pause, Stopped
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.mm2 import Checkpoint
from eomirror.records.position import AttemptClaim, Position
from eomirror.records.promotion import Cut, Fence, Promotion, PromotionHistory, Restoration
from eomirror.records.reports import (
    DrillResult,
    GroupsLeft,
    LaneRestarts,
    Reports,
    StandbyProcess,
    TailComparison,
    Verification,
)
from eomirror.recovery.resume import SourceFacts, TargetFacts
from eomirror.serve.body import Judged, link_body, topic_body
from eomirror.status.derive import Observed, groups_status, link_status, unread_status, with_reports
from eomirror.status.hanging import with_hanging
from eomirror.status.live import LinkFacts, LinkView, running_view
from eomirror.status.liveness import Liveness
from eomirror.status.model import Hanging
from eomirror.status.progress import Progress
from eomirror.status.retention import RetentionLimits, retention_rows
from eomirror.types import Assignment, SourcePartition
from support.fakes.claims import claim

if TYPE_CHECKING:
    from typing import Any

    from eomirror.status.model import LinkStatus

GOLDEN = Path(__file__).with_name("status.json")
FACTS = LinkFacts("a->b", "a", "b", "prefix", "auto")
ORDERS, PAY = SourcePartition("orders", 0), SourcePartition("pay", 0)
NOW_MS = 200_000
PROCESS = ProcessFacts("1.2.3", 1.5, 1_000, 1_700_000_000.5, 9)


def position(source: SourcePartition) -> Position:
    """At offset 10."""
    return Position(
        topic=source.topic, partition=source.partition, offset=10, source_cluster_id="S",
        topic_id=f"id-{source.topic}", target_topic=f"a.{source.topic}", target_partition=source.partition,
        target_topic_id=f"id-a.{source.topic}", target_offset=7, generation=1, lane=0, run="r", epoch=1, attempt=1,
        producer_id=1, producer_epoch=0, txn=1, timestamp=1_000, total_records=8, total_copied_headers=3,
        total_dropped={"dead-letter": 2},
    )  # fmt: skip


def promoted() -> PromotionHistory:
    """A promotion that left records behind, of which one was dealt with, and a fence that stands."""
    cut = Cut(
        topic="orders", partition=0, topic_id="id-orders", position=10, target_topic="a.orders", timestamp=1,
        target_topic_id="id-a.orders", target_end=8, source_end=14,
    )  # fmt: skip
    promotion = Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(cut,), started=1, timestamp=1,
    )  # fmt: skip
    done = Restoration(
        number=1, orphans="keep", records=1, place="", run="r", timestamp=2,
        ranges={ORDERS: (DealtRange(11, 12, "keep", "", 1, ""),)},
    )  # fmt: skip
    fence = Fence(number=1, method="acl", topics=("orders",), lifted=False, host="h", timestamp=150_000)
    return PromotionHistory({1: promotion}, restorations={1: done}, fences={1: fence})


def from_topics(past: PromotionHistory | None = None) -> LinkStatus:
    """A link with everything that its topics can show."""
    layout = Assignment(1, dict.fromkeys((ORDERS, PAY), 0))
    stop = Stopped(
        topic="pay", reason="refused", fix="mend it", exit_code=4, lane=0, run="r", timestamp=3_000
    )
    gap = Gap(topic="pay", partition=0, start=3, end=8, reason="?", run="r", timestamp=2_000)
    control = ControlView(
        Generation(generation=1, revision=0, run="r", highest_lane=0, assignment=layout, timestamp=0),
        claim(timestamp=NOW_MS - 1_000),
        stopped=(stop,),
        gaps=(gap,),
        pause=Pause(topics="", host="h", timestamp=5),
        history=past or PromotionHistory(),
    )
    attempt = AttemptClaim(
        lane=0, generation=1, run="r", epoch=2, attempt=1, producer_id=1, producer_epoch=0, host="h", pid=7,
        timestamp=4_000, plane="client", plane_reason="why",
    )  # fmt: skip
    found = link_status(
        "a->b", control, {source: position(source) for source in (ORDERS, PAY)}, history=(), attempts=(attempt,),
        observed={
            source: Observed(
                SourceFacts(f"id-{source.topic}", 5, 14), 13, TargetFacts(f"id-a.{source.topic}", 8)
            )
            for source in (ORDERS, PAY)
        },
        oldest={ORDERS: NOW_MS - 100_000}, opened={ORDERS: NOW_MS - 9_000}, now_ms=NOW_MS,
        liveness=Liveness("running", 0),
    )  # fmt: skip
    reports = Reports(
        restarts=(
            LaneRestarts(
                lane=0, count=3, endings={"rebuild": 3}, ending="rebuild", reason="x", run="r", timestamp=4
            ),
        ),
        verifications=(
            Verification(
                topic="orders", outcome="differs", partitions=1, offsets=6, up_to={"0": 6}, differences={"missing": 2},
                host="h", timestamp=5,
            ),
        ),
        drill=DrillResult(passed=False, rpo_records=0, rto_ms=1500, host="h", timestamp=6, stage="s", problem="p"),
        tail=TailComparison(
            outcome="equal", tail=10_000, topics=2, partitions=3, offsets=500, command="cutover", host="h", timestamp=6
        ),
        standbys=tuple(
            StandbyProcess(run=run, host="i", pid=8, since=NOW_MS - 60_000, interval_ms=10_000, timestamp=seen)
            for run, seen in (("s", NOW_MS - 9_000), ("was killed", NOW_MS - 50_000))
        ),
        left=GroupsLeft(groups={"g": "was read on the target"}, count=1, run="r", timestamp=7),
    )  # fmt: skip
    found = with_hanging(
        with_reports(found, reports, now_ms=NOW_MS),
        [
            Hanging(
                topic="a.orders", partition=0, producer_id=1, start=3, end=8, since=9, problem="hangs", fix="abort it"
            )
        ],
    )  # fmt: skip
    checkpoint = Checkpoint(group="g", topic="a.orders", partition=0, upstream=9, downstream=5, metadata="")
    groups = groups_status([(checkpoint, 50_000), ("torn", 60_000)], {"a.orders"}, {("a.orders", 0): 13})
    retention = retention_rows(
        found.partitions, {ORDERS: 5}, {"orders": RetentionLimits(110.0, by_size=True)}
    )
    return replace(found, groups=groups, retention=retention, source_seconds=0.5, target_seconds=0.25)


def driver() -> Progress:
    """The state of the driver of the same link; a topic is stopped."""
    made = Progress("a->b")
    for source in (ORDERS, PAY):
        made.assign(0, source, f"a.{source.topic}")
    made.phase.state = "running"
    made.begin(0, epoch=2, attempt=1)
    parts = tuple(
        PartitionProgress(topic=source.topic, partition=0, position=11, lso=13, lag_seconds=1.5)
        for source in (ORDERS, PAY)
    )
    said = LaneProgress(
        lane=0, epoch=2, state="OPEN", partitions=parts, serving=Serving("client", "why", 2.0, "orders-0: no leader"),
        records=5, commit_ms=4.0,
        stopped_topics={"pay": StoppedTopic("refused", "mend it", 4)},
    )  # fmt: skip
    made.update(said, attempt=1, now=1)
    return made


def bodies() -> dict[str, Any]:
    """Each JSON body."""
    topics, ended = from_topics(), from_topics(promoted())
    live = replace(driver().snapshot(1), run="r", generation=1, source_age_seconds=1.0, claim_age_seconds=2.0)
    views = {
        "serve": LinkView(facts=FACTS, status=topics, read_seconds=0.5),
        "serve, promoted": LinkView(facts=FACTS, status=ended, read_seconds=0.5),
        "serve, unread": LinkView(
            facts=FACTS, status=unread_status("a->b", topics, UnreachableError("away")), kept_seconds=3.0
        ),
        "run": running_view(FACTS, live),
        "run, with topics": running_view(FACTS, live, topics, 0.5),
    }
    found: dict[str, Any] = {"status": topics.as_dict(), "status, promoted": ended.as_dict()}
    for name, view in views.items():
        judged = Judged(view, Window().judge(view, 0.0), 0.0)
        found[name] = link_body(judged)
        found[f"{name}, topic"] = topic_body(
            next(row for row in judged.topic_rows if row.topic == "orders"), judged.partitions_of("orders")
        )
        metrics = exposition(
            [(view, judged.verdict)], PROCESS, now_ms=NOW_MS, per_partition=True, per_group=True
        )
        text = metrics.text().decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in text if not line.startswith("#")]
        found[f"{name}, metrics"] = {sample: value for sample, value in samples if value != "0"}
    return found


def test_json_and_metrics_of_a_link_keep_their_names_and_values() -> None:
    """Users' scripts rely on them.  A new field is added to the file by EOMIRROR_REWRITE=1."""
    made = orjson.loads(orjson.dumps(bodies(), option=orjson.OPT_NON_STR_KEYS))
    if os.environ.get("EOMIRROR_REWRITE"):
        # a line for each field
        parts = (
            f"{json.dumps(name)}: {{\n"
            + ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in body.items())
            + "\n}"
            for name, body in made.items()
        )
        GOLDEN.write_text("{\n" + ",\n".join(parts) + "\n}\n")
    assert made == orjson.loads(GOLDEN.read_bytes())
