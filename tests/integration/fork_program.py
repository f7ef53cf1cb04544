"""
A process that runs a mirror, and forks afterwards: the child mirrors another link with clients of its own.

    python fork_program.py PARENT.yaml CHILD.yaml

Prints what each of the two has seen.  A process that hangs leaves a dump of its stacks on stderr and fails.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
import time
import warnings
from typing import Any

_PARENT_SECONDS = 120.0
_CHILD_SECONDS = 60.0


class UntilReached:
    """A mailbox that stops the lane once every goal's position is committed."""

    def __init__(self, goals: dict[Any, int]) -> None:
        self._goals = {tuple(source): goal for source, goal in goals.items()}
        self._positions: dict[tuple[str, int], int] = {}

    def report(self, progress: Any) -> None:
        for item in progress.partitions:
            self._positions[item.topic, item.partition] = item.position

    def stop(self) -> Any:
        from eomirror.lane.spec import StopReason

        reached = all(self._positions.get(source, -1) >= goal for source, goal in self._goals.items())
        return StopReason.SHUTDOWN if reached else None

    def added(self) -> tuple[Any, ...]:
        return ()

    def released(self) -> None:
        return None

    def followed(self) -> tuple[Any, ...]:
        return ()

    def answer(self, offsets: tuple[Any, ...]) -> None:
        del offsets


def mirror_here(path: str) -> str:
    """Owner, discovery, consumer and transactional producer, all in this process; gives how the lane ended."""
    from eomirror import load_config
    from eomirror.clock import new_run_id
    from eomirror.kafka.session import link_sessions
    from eomirror.lane.spec import LaneSpec
    from eomirror.link.owner import LinkOwner
    from eomirror.spark.attempt import run_lane
    from eomirror.topics.discovery import Discovery

    config = load_config(path)
    link = config.links[0]
    source, target = config.clusters[link.source], config.clusters[link.target]
    run = new_run_id()
    sessions = link_sessions(link, source, target, "test")
    discovery, owner = Discovery(link, *sessions), LinkOwner(link, *sessions, run=run)
    # threads of these clients have the stacks that the parent's had: a child that waits for one waits for these
    gc.collect()
    layout = owner.acquire(1, discovery.prepare())
    report = run_lane(
        LaneSpec(
            link=link, source=source, target=target, source_cluster_id=layout.source_cluster_id,
            target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
            epoch=1, attempt=1, seconds=60, partitions=layout.lanes[0],
        ),
        UntilReached(dict(discovery.goals())),
    )  # fmt: skip
    owner.release()
    owner.close()
    sessions.close()
    return f"{report.ending}, {report.records} records"


def say(text: str) -> None:
    """A line that is there even if this process is killed."""
    os.write(1, f"{text}\n".encode())


def main(parent: str, child: str) -> int:
    """Mirror, fork, mirror in the child."""
    faulthandler.dump_traceback_later(_PARENT_SECONDS, exit=True)
    from eomirror import Mirror, load_config

    # whatever the parent leaves to its collector is for the child to find, and to destroy
    gc.disable()
    with Mirror(load_config(parent)) as mirror:
        say(f"parent: exit code {mirror.run(until='caught-up').exit_code}")
    del mirror
    # threads of py4j and of our own may live on; whether the fork is sound all the same is what is tried here
    warnings.simplefilter("ignore", DeprecationWarning)
    # its watchdog is a thread, which a child could wait for without end
    faulthandler.cancel_dump_traceback_later()
    number = os.fork()
    if number == 0:
        faulthandler.dump_traceback_later(_CHILD_SECONDS, exit=True)
        code = 1
        try:
            say(f"child: {mirror_here(child)}")
            code = 0
        except BaseException as error:  # noqa: BLE001  whatever it is, the child must not go on as its parent
            say(f"child: {error!r}")
        finally:
            os._exit(code)
    end = time.monotonic() + _CHILD_SECONDS + 10
    while time.monotonic() < end:
        ended, status = os.waitpid(number, os.WNOHANG)
        if ended:
            say(f"child: exit status {os.waitstatus_to_exitcode(status)}")
            return 0
        time.sleep(0.05)
    os.kill(number, 9)
    say("child: hung")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
