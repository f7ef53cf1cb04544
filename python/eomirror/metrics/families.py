"""
Names, types and meanings of all metrics. Pure.

docs/reference/metrics.md is generated from `FAMILIES`.  Users rely on the names, the labels and the bounds of buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.lane.measures import Histogram
    from eomirror.status.model import LaneStatus

__all__ = ["FAMILIES", "LANE_FAMILIES", "PREFIX", "Family", "Sink", "by_name"]

#: Prefix of all metrics but those of the process, whose names are Prometheus' own.
PREFIX = "eomirror_"

#: Places that export a metric: the running mirror (``run --listen``), and ``eomirror serve``.
_RUN, _SERVE, _BOTH = ("run",), ("serve",), ("run", "serve")


@dataclass(frozen=True, slots=True)
class Family:
    """
    A metric.

    Attributes:
        name: Full name.
        kind: ``counter``, ``gauge`` or ``histogram``.
        text: Meaning, one line.
        labels: Names of its labels.
        places: Commands that export it: ``run`` (with ``--listen``), ``serve``.
        read: Returns its value for a lane, None for none; None for a metric that `eomirror.metrics.collect` makes.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    places: tuple[str, ...]
    read: Callable[[LaneStatus], float | None] | None = None


def _lane(name: str, kind: str, text: str, read: Callable[[LaneStatus], float | None]) -> Family:
    """Returns a metric of each lane of a running mirror."""
    return Family(PREFIX + name, kind, text, ("link", "lane"), _RUN, read)


def _link(name: str, kind: str, text: str, *labels: str, places: tuple[str, ...] = _BOTH) -> Family:
    return Family(PREFIX + name, kind, text, ("link", *labels), places)


FAMILIES = (
    Family(PREFIX + "build_info", "gauge", "Release of eomirror; always 1.", ("version",), _BOTH),
    _link("link_info", "gauge", "Ends and naming of a link; always 1.", "source", "target", "naming", "plane"),
    _link("link_state", "gauge", "1 for the state of the link, 0 for all others.", "state"),
    _link("link_verdict", "gauge",
          "1 for the verdict on the link, 0 for all others: `ok`, `starting`, `behind` (the lag grows, or an open "
          "transaction holds records back), `stalled` (records wait, none is mirrored, or a lane is silent or has no "
          "slot), `stopped` (a topic is), `source away`, `target away`, `down`, `rewound` (the source went back), "
          "`promoted`, `handed back`, `paused`, `unknown`.",
          "verdict"),
    _link("link_read_seconds", "gauge", "Time that the last read of the link's topics took."),
    _link("records_total", "counter",
          "Mirrored records, committed. In `run`: by this run; in `serve`: since the link first ran.", "topic"),
    _link("bytes_total", "counter", "Keys, values and headers of mirrored records, committed.", "topic",
          places=_RUN),
    _link("dropped_records_total", "counter", "Records dropped by configuration, committed.", "topic", "reason",
          places=_RUN),
    _link("dead_letters_total", "counter",
          "Records that the target refuses and that `on_refused: dead-letter` skipped. In `run`: by this run; in "
          "`serve`: since the link first ran. Absent for topics without.", "topic"),
    _link("loop_dropped_total", "counter",
          "Records that the loop guard dropped: they have passed the target, or come from an origin that the link does "
          "not forward. Normal where links run in both directions. Counted as dead_letters_total.", "topic"),
    _link("transformed_records_total", "counter",
          "Records that a rule of the transform left out (`dropped`) or changed (`changed`), since the link first ran. "
          "The rule `unreadable` has the records that no rule could read, `query` those that a query left out.",
          "topic", "rule", "outcome"),
    _link("copied_headers_total", "counter",
          "Mirrored records with the provenance header of another record, which an application had copied.",
          places=_RUN),
    _link("transactions_total", "counter",
          "Transactions by outcome: `committed`, `aborted` or `fenced`.", "lane", "outcome", places=_RUN),
    _link("transaction_duration_seconds", "histogram",
          "Time from the begin of a committed transaction to its commit.", "lane", places=_RUN),
    _link("transaction_records", "histogram", "Mirrored records of a committed transaction.", "lane", places=_RUN),
    _link("replication_latency_seconds", "histogram",
          "Time from a record's timestamp to its commit on the target; one value for each transaction and partition, "
          "that of the last record, without records that are older than the start of their lane. With CreateTime it "
          "includes the producer's own delay.", places=_RUN),
    _link("replication_latency_left_out_total", "counter",
          "Values that replication_latency_seconds leaves out: the record waited for the mirror to be started, or its "
          "timestamp is not the time of its append.", places=_RUN),
    _link("lag_records", "gauge",
          "Offsets between the position and the source's last stable offset; NaN if unknown, absent for ended links "
          "(promoted or handed back).", "topic"),
    _link("lag_seconds", "gauge",
          "Age of the oldest record that is not mirrored; 0 if there is none and the source was asked; NaN if unknown, "
          "absent for ended links.", "topic"),
    _link("partition_lag_records", "gauge", "As lag_records, of one partition.", "topic", "partition"),
    _link("partition_lag_seconds", "gauge", "As lag_seconds, of one partition.", "topic", "partition"),
    _link("partition_position", "gauge", "Next source offset to fetch, as committed.", "topic", "partition"),
    _link("source_last_seen_age_seconds", "gauge", "Time since the source last answered; NaN before.",
          places=_RUN),
    _link("source_unreachable_seconds", "gauge",
          "Time since the source stopped answering; 0 while it answers. In `serve`: 0 or NaN."),
    _link("owner_generation", "gauge", "Generation of the lane layout."),
    _link("owner_claim_age_seconds", "gauge", "Time since the owner renewed its claim; NaN before."),
    _link("lanes", "gauge", "Lanes by data plane.", "plane"),
    _lane("lane_memory_bytes", "gauge", "Resident memory of a lane's worker; absent without one.",
          lambda lane: None if lane.report is None else lane.report.memory_bytes),
    _link("spark_jobs", "gauge", "Attempts of lanes that Spark runs, each a job of its own.", places=_RUN),
    _link("delayed_lanes", "gauge", "Lanes that have not been able to read some partition for some time.",
          places=_RUN),
    _link("lane_restarts_total", "counter",
          "Attempts of lanes that ended early in the owner's run, by kind of ending.", "reason"),
    _link("superseded_total", "counter",
          "Attempts of lanes that another mirror or generation fenced, and 1 for a link that another mirror took.",
          places=_RUN),
    _link("recent_take_overs", "gauge",
          "Owners that took the link in the last 15 minutes although the one before had not released it, which was "
          "killed or is superseded.", places=_SERVE),
    _link("throttled_seconds", "gauge", "Time that broker quotas have throttled the lanes' open planes.",
          places=_RUN),
    _link("source_fenced_seconds", "gauge",
          "Time for which a fence (`fence`, `cutover`, `failback`) has stopped applications of the source; 0 if none "
          "stands."),
    _link("stopped_topics", "gauge",
          "Stopped topics, by reason: `data_loss`, `configuration`, `superseded` or `failed`.", "reason"),
    _link("topic_stopped", "gauge", "1 for a topic that is stopped; absent for the others and for ended links.",
          "topic"),
    _link("topic_paused", "gauge", "1 for a topic that lanes hold (`eomirror pause`); absent for the others.", "topic"),
    _link("problem_partitions", "gauge", "Partitions with a problem, those of stopped topics included."),
    _link("gap_records_total", "counter", "Source offsets that were lost, and that the user accepted.", "topic"),
    _link("missing_offsets_total", "counter",
          "Skipped source offsets that were in no batch, such as those that compaction removed; absent for topics "
          "without.", "topic"),
    _link("retention_used_ratio", "gauge",
          "Age of the oldest record that is not mirrored, as a share of the source topic's `retention.ms`; of a log "
          "that `retention.bytes` cuts, the share that is not mirrored, if larger. At 1 the source may delete it. Of "
          "topics whose records have waited for a minute, the 500 oldest.", "topic"),
    _link("retention_left_seconds", "gauge",
          "Time until the source may delete the oldest record that is not mirrored, by `retention.ms`; of the same "
          "topics.", "topic"),
    _link("hanging_transactions", "gauge", "Transactions on the target that no coordinator will end."),
    _link("open_source_transactions", "gauge",
          "Partitions of a topic that an open transaction of the source holds back; absent for topics without and "
          "for ended links.", "topic"),
    _link("oldest_open_source_transaction_seconds", "gauge",
          "Age of the first record of the oldest open transaction of the source; absent for topics without and "
          "for ended links.", "topic"),
    _link("drifted_topics", "gauge", "State topics of the link whose settings lose records."),
    _link("verified_topics", "gauge",
          "Mirrored topics by the result of their last `verify`: `equal`, `differs`, or `never` compared.", "outcome"),
    _link("verified_age_seconds", "gauge",
          "Time since the last `verify` of a topic; the 500 oldest, absent for topics without and for ended links.",
          "topic"),
    _link("unverified_records", "gauge", "Offsets of compared topics that were mirrored since their last `verify`."),
    _link("verify_differences", "gauge", "Differences that the last `verify` of each topic found, by kind.", "kind"),
    _link("topic_differs", "gauge", "1 for a topic whose last `verify` found a difference; absent for the others.",
          "topic"),
    _link("target_differences", "gauge",
          "Differences of ACL entries, client quotas and copies without a source that stand on the target: refused, "
          "reported only, or not due yet; NaN if they were never compared."),
    _link("target_problems", "gauge",
          "Operations that keep the target alike and that failed at the last comparison, such as one without its "
          "right; NaN if there was none."),
    _link("target_changed_age_seconds", "gauge",
          "Time since a topic, a setting, an ACL entry or a quota was last changed on the target; NaN if none was."),
    _link("configuration_refused", "gauge",
          "1 while the running mirror refuses the changed configuration file, and goes on with the one of before."),
    _link("drill_age_seconds", "gauge", "Time since the last recorded drill; NaN if there is none."),
    _link("drill_passed", "gauge", "1 if the last recorded drill passed, 0 if it failed; NaN if there is none."),
    _link("readiness", "gauge",
          "1 if `promote`, `cutover` or `failover` would start, as far as the status shows: it asks neither groups nor "
          "leaders.", "verb"),
    _link("failover_loss_records", "gauge",
          "Source offsets that a failover at this moment would leave behind, those behind open transactions included; "
          "NaN if more may be lost than is known, absent for ended links."),
    _link("failover_loss_seconds", "gauge",
          "Age of the oldest of these records; NaN if unknown, absent for ended links."),
    _link("readiness_check", "gauge",
          "Checks of a planned promotion: 0 holds, 1 the operator must know, 2 refuses.", "check"),
    _link("groups", "gauge",
          "Followed consumer groups, `followed`; offsets without a checkpoint, `pending`; groups that are not moved, "
          "`skipped`.", "state"),
    _link("group_offset_age_seconds", "gauge",
          "In `run`: time since the last look at the source's groups. In `serve`: age of the newest checkpoint. "
          "NaN if there is none."),
    _link("group_reread_records", "gauge",
          "Source offsets that a group committed beyond its checkpoints, as of the last look, and reads again if it "
          "resumes on the target without the source. The 20 groups with most; absent without a checkpoint.", "group",
          places=_RUN),
    _link("group_lag_records", "gauge",
          "Source offsets from a group's checkpoints to the end of the source; NaN if unknown.", "group"),
    _link("group_checkpoint_age_seconds", "gauge", "Age of a group's newest checkpoint.", "group"),
    _link("schema_subjects", "gauge", "Subjects of the source's schema registry that the link mirrors."),
    _link("schema_changes_pending", "gauge", "Changes of the target's schema registry that were refused or not made."),
    _link("schema_conflicts", "gauge", "Subjects that are left alone: their ids or versions stand for other schemas."),
    _link("schema_age_seconds", "gauge",
          "Time since the target's schema registry was last seen to have all of the source's; NaN if it was not."),
    Family("process_cpu_seconds_total", "counter", "User and system CPU time of this process.", (), _BOTH),
    Family("process_resident_memory_bytes", "gauge", "Resident memory of this process.", (), _BOTH),
    Family("process_start_time_seconds", "gauge", "Start of this process, seconds since the epoch.", (), _BOTH),
    Family("process_open_fds", "gauge", "Open file descriptors of this process.", (), _BOTH),
)  # fmt: skip

by_name = {family.name: family for family in FAMILIES}

#: Metrics of each lane, with the functions that return their values.
LANE_FAMILIES = tuple((family, family.read) for family in FAMILIES if family.read is not None)


class Sink(Protocol):
    """Takes samples: `eomirror.metrics.exposition.Exposition`, `eomirror.metrics.otlp.Samples`."""

    def add(self, family: Family, value: float | None, *labels: str) -> None:
        """
        Adds a sample.

        Args:
            family: A counter or a gauge.
            value: Its value; None if it is unknown.
            labels: Values of the family's labels, in their order.
        """

    def add_histogram(
        self, family: Family, histogram: Histogram, bounds: Sequence[float], *labels: str
    ) -> None:
        """
        Adds a histogram.

        Args:
            family: Its family.
            histogram: Its counts.
            bounds: Upper bounds of its buckets, without the last.
            labels: Values of the family's labels, in their order.
        """
