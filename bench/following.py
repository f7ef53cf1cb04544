"""
What following consumer groups costs the driver of a link: CPU of one look at all of them, every second by default.

The groups are real (their offsets are committed on a broker).  The lanes are played: they answer at once that each
offset is committed as a checkpoint, so that what is left is the follower's own work.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from bench.topics import Topics
from bench.translation import commit_offsets
from eomirror import load_config
from eomirror.clock import SYSTEM_CLOCK
from eomirror.groups.followed_groups import MirroredPartitions
from eomirror.groups.follower import GroupFollower
from eomirror.kafka.session import ClusterSession
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.peers.process import Site
    from eomirror.lane.spec import GroupOffset

__all__ = ["FollowingCost", "following_markdown", "measure_following"]

_TOPIC = "bench-followed"


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingCost:
    """
    What was measured.

    Attributes:
        groups: How many are followed.
        partitions: In how many partitions each has an offset.
        rounds: Looks that were measured, after the first.
        first_cpu_seconds: CPU of this process for the first look, in which every offset is new.
        cpu_seconds: Mean CPU of a later one, in which no group has moved.
        seconds: The same on the clock.
    """

    groups: int
    partitions: int
    rounds: int
    first_cpu_seconds: float
    cpu_seconds: float
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def following_markdown(cost: FollowingCost) -> str:
    """A table for a report."""
    return "\n".join(
        [
            f"| following {cost.groups:,} groups x {cost.partitions} partitions | figure |",
            "|---|---:|",
            f"| the first look, CPU | {cost.first_cpu_seconds:.2f} s |",
            f"| a later look, CPU | {cost.cpu_seconds:.3f} s |",
            f"| a later look, on the clock | {cost.seconds:.2f} s |",
        ]
    )


def measure_following(
    site: Site, *, groups: int, partitions: int, rounds: int, say: Callable[[str], None]
) -> FollowingCost:
    """Measure."""
    Topics(site.source).create(_TOPIC, partitions)
    say(f"committing offsets of {groups:,} groups")
    commit_offsets(site, _TOPIC, groups, partitions, prefix="followed")
    config = load_config(
        {
            "clusters": {
                "source": {"bootstrap.servers": site.source},
                "target": {"bootstrap.servers": site.target},
            },
            "links": [
                {"source": "source", "target": "target", "topics": [_TOPIC], "groups": ["followed-.*"]},
            ],
        }
    )

    def committed(lane: int, offsets: Sequence[GroupOffset]) -> None:
        del lane
        follower.record_answers(tuple(replace(each, downstream=each.upstream) for each in offsets))

    target = ClusterSession(config.clusters["target"], client_id="bench.following")
    follower = GroupFollower(
        config.links[0],
        config.clusters["source"],
        target,
        send=committed,
        clock=SYSTEM_CLOCK,
    )
    mirrored = MirroredPartitions({SourcePartition(_TOPIC, number): 0 for number in range(partitions)}, ())
    say("following")
    began = time.process_time()
    follower.round(mirrored)
    first = time.process_time() - began
    follower.round(mirrored)
    found = follower.snapshot()
    if found.error or found.followed != groups or found.pending:
        raise RuntimeError(f"not followed: {found}")
    costs = []
    for _ in range(rounds):
        began, cpu = time.perf_counter(), time.process_time()
        follower.round(mirrored)
        costs.append((time.perf_counter() - began, time.process_time() - cpu))
    follower.close()
    return FollowingCost(
        groups=groups,
        partitions=partitions,
        rounds=rounds,
        first_cpu_seconds=first,
        cpu_seconds=fmean(cpu for _, cpu in costs),
        seconds=fmean(clock for clock, _ in costs),
    )
