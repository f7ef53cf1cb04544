"""
Two clusters whose logs change under stopped mirrors, and the commands of a way around that: one schedule.

Real are the commands (failover, reverse, restore, failback) with all their looks and records, the owner of a link, its
first positions, and what a lane decides when it starts.  Simulated are the clusters: logs of single-record batches with
their producers, and the state topics.  Nothing runs at the same time here (`sim_promotion` has that); what changes is
drawn between two verbs, and at each crash point of a command.

A log can lose its end, be restored to an older state and written on, be created again, and be written by applications
that were not stopped.  Every record has a number of its own, so at the end the logs tell what is missing, and what is
there twice.
"""

from __future__ import annotations

import importlib
import json
import re
import shutil
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from sim_world import Choices, Crashed

from eomirror import load_config
from eomirror._native import encode_offset_map
from eomirror.errors import MirrorError, NotReadyError, UnreachableError
from eomirror.failover import (
    common_end,
    drain,
    group_reader,
    orphan_reader,
    orphans,
    promoted_link,
    promotion,
    restoration,
    reversal,
)
from eomirror.failover.machine import Verb
from eomirror.failover.orphan_sinks import OrphanFile
from eomirror.failover.promotion import PromotionOptions
from eomirror.failover.readiness import Facts
from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.kafka.errors import Action
from eomirror.kafka.partition_reader import GONE
from eomirror.kafka.session import LinkSessions
from eomirror.lane.spec import AssignedPartition
from eomirror.link import copy_ends, offset_map_reader, owned_control, source_comparison
from eomirror.link import owner as owner_module
from eomirror.link import state as link_state
from eomirror.link.owner import LinkOwner
from eomirror.link.start_checks import StartChecks, StartFacts
from eomirror.records.control import ControlView, decode_control
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key
from eomirror.records.position import Position, decode_key, decode_position
from eomirror.recovery.copy_end import CommittedBatch
from eomirror.recovery.hanging import RecordState
from eomirror.recovery.resume import SourceFacts, Stop, TargetFacts, decide_resume
from eomirror.status.model import LinkStatus
from eomirror.topics.plan import Plan
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.plane.protocol import MetadataRecord

# the package has a function of this name
failback: Any = importlib.import_module("eomirror.failover.failback")

__all__ = ["BrokenReturnError", "DisasterWorld", "disasters"]

CONFIG = load_config(
    {
        "clusters": {
            "east": {"bootstrap.servers": "127.0.0.1:1"},
            "west": {"bootstrap.servers": "127.0.0.1:2"},
        },
        "links": [
            {"name": "there", "source": "east", "target": "west", "topics": ["a"]},
            {
                "name": "back", "source": "west", "target": "east", "topics": ["east\\.(a)"],
                "naming": {"match": "east\\.(.*)", "to": "$1"},
            },
        ],
    }
)  # fmt: skip
THERE, BACK = CONFIG.links
_TOPICS = {"east": "a", "west": "east.a"}
_IDS = {"east": "E", "west": "W"}
_PARTITIONS = 2
# of a transaction of a lane
_MOST = 4
_CUT = 6
_CRASH, _CHANGE = 40, 20
_CALM_STEPS = 24


#: Defects that stand open, whose schedules are left out.
OPEN: frozenset[str] = frozenset()


class BrokenReturnError(AssertionError):
    """A rule does not hold; the text begins with its name."""


@dataclass(slots=True)
class Entry:
    """
    A batch of one record, or a marker.

    Attributes:
        uid: Number of the record, which its copies have too; None for a marker, and an aborted record.
        origin: Cluster that its header names.
        copied: True if that is so.
        stamp: Checksum of the batch.
    """

    uid: int | None
    producer_id: int
    epoch: int
    stamp: int
    origin: str = ""
    copied: bool = False
    transaction: int = -1
    is_marker: bool = False


@dataclass(slots=True)
class Log:
    """One partition."""

    topic_id: str
    entries: list[Entry]


class LinkTopics:
    """State topics of one link."""

    def __init__(self, link: Link) -> None:
        self.link, self.names = link, LinkNames(link.state_name)
        self.control: list[tuple[bytes, bytes | None, str]] = []
        self.positions: dict[SourcePartition, Position] = {}
        self.chunks: list[LogRecord] = []
        self.producer_id = self.epoch = -1
        self._viewed, self._view = -1, ControlView()

    def view(self) -> ControlView:
        """Control as it is."""
        if self._viewed != len(self.control):
            self._viewed, self._view = len(self.control), decode_control(self.control)
        return self._view


class Message:
    """A record as confluent-kafka shows it."""

    def __init__(self, where: tuple[str, int], offset: int, entry: Entry) -> None:
        self._where, self._offset, self.entry = where, offset, entry

    def topic(self) -> str:
        return self._where[0]

    def partition(self) -> int:
        return self._where[1]

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return str(self.entry.uid).encode()

    value = key

    def headers(self) -> list[tuple[str, bytes]]:
        return []

    def timestamp(self) -> tuple[int, int]:
        return 1, self.entry.uid or 0


class DisasterWorld:
    """
    One schedule.

    Args:
        choices: What is drawn.
        trace: Takes what happens in words.
    """

    def __init__(
        self, choices: Choices, trace: list[str] | None = None, without: frozenset[str] = OPEN
    ) -> None:
        self.draw = choices.draw
        self.trace, self.open = trace, without
        self.now = 0.0
        self.calm = self.dead = False
        self._number = 0
        self.runs = self.transactions = 0
        self.logs = {
            (side, number): Log(f"id-{side}", []) for side in _TOPICS for number in range(_PARTITIONS)
        }
        self.states = {link.state_name: LinkTopics(link) for link in CONFIG.links}
        self._folder: Path | None = None
        # acknowledged records, those that the environment has taken, and those that the user leaves where they are
        self.acknowledged: set[int] = set()
        self.taken: set[int] = set()
        self.kept: set[int] = set()
        # of others, in the copies of a link that mirrors: what they are is asked when it is promoted
        self.waiting: set[int] = set()
        self.changes = self.draw(4)
        self.exports = 0
        self.refused = ""
        self.completed = 0

    # -- what happens ------------------------------------------------------------------------------

    def run(self, actions: int) -> None:
        """
        A storm of ``actions``, then calm until the first link mirrors again or a command refuses.

        Raises:
            BrokenReturnError: A rule does not hold.
        """
        for _ in range(3):
            self._write("east")
        self.mirror(THERE)
        for _ in range(actions):
            self.act()
            self._check_once()
            if self.refused:
                break
        self._settle()

    def act(self) -> None:
        """One action; 0 is dull."""
        self.now += 1
        kind = self.draw(16)
        there, back = self._promoted(THERE), self._promoted(BACK)
        active = "west" if there is not None and back is None else "east"
        if not kind:
            return
        if kind < 4:
            self._write(active)
        elif kind == 4:
            self._write("east" if active == "west" else "west")
        elif kind == 5:
            self._change()
        elif kind < 9:
            self.mirror(BACK if there is not None else THERE, most=None if self.draw(3) else 3)
        elif kind < 12 and there is None:
            self._promote()
        elif kind < 12:
            self._on(("reverse", "reverse", "failback", "restore")[self.draw(4)])
        elif kind < 14 and there is not None:
            self._on(("reverse", "failback")[self.draw(2)])
        elif there is not None:
            self._on("restore")

    def _on(self, verb: str) -> str:
        return {"reverse": self._reverse, "failback": self._failback, "restore": self._restore}[verb]()

    def _settle(self) -> None:
        self.calm = True
        if self._promoted(THERE) is None:
            self._promote()
        for _ in range(_CALM_STEPS):
            if self.refused:
                break
            if self._promoted(THERE) is None and not self.completed:
                self.refused = self.mirror(THERE)
                if not self.refused:
                    self._done()
                break
            there = self.states[THERE.state_name].view().history
            if self._promoted(BACK) is None or there.current.number not in there.reversals:
                self.refused = self._reverse() or self.mirror(BACK)
                if self.refused:
                    break
            found = self._failback()
            if found and "would be left behind" in found:
                self.refused = self._restore()
            elif found:
                self.refused = found
        else:
            raise BrokenReturnError("D-5 ends: the way back does not end")
        self._check_once()
        self.say(f"end: {self.refused or 'returned'}")

    def _done(self) -> None:
        """The first link mirrors, and has caught up: each record is on both sides, or the user left it."""
        self.completed += 1
        sides = [self._uids(side) for side in _TOPICS]
        filed = self._filed()
        left = sorted((sides[0] ^ sides[1]) - filed - self.kept - self.waiting)
        if left:
            uid = left[0]
            only = "east" if uid in sides[0] else "west"
            raise BrokenReturnError(f"D-2 left behind: {left} are on {only} alone, and no report names them")

    def _uids(self, side: str) -> set[int]:
        return {
            one.uid
            for number in range(_PARTITIONS)
            for one in self.logs[side, number].entries
            if one.uid is not None
        }

    def folder(self) -> Path:
        """The folder of exported records."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="eomirror-sim-"))
        return self._folder

    def close(self) -> None:
        """Delete that folder."""
        if self._folder is not None:
            shutil.rmtree(self._folder)
            self._folder = None

    def _filed(self) -> set[int]:
        """The records in files, those of killed exports too."""
        return {
            json.loads(line)["timestamp"]
            for path in (self._folder.iterdir() if self._folder is not None else ())
            for line in path.read_bytes().splitlines()
        }

    def _check_once(self) -> None:
        there: set[int] = set()
        for where, log in self.logs.items():
            seen: set[int] = set()
            for one in log.entries:
                if one.uid is None:
                    continue
                if one.uid in seen:
                    raise BrokenReturnError(f"D-3 twice: {one.uid} is twice in {where}")
                seen.add(one.uid)
            there |= seen
        filed = self._filed()
        if gone := sorted(self.acknowledged - there - filed - self.taken):
            raise BrokenReturnError(f"D-1 nowhere: {gone} are in neither cluster nor file")

    def say(self, text: str) -> None:
        """Trace."""
        if self.trace is not None:
            self.trace.append(text)

    # -- applications and disasters ----------------------------------------------------------------

    def _stamp(self) -> int:
        self._number += 1
        return self._number

    def _write(self, side: str, number: int | None = None, many: int | None = None) -> None:
        number = self.draw(_PARTITIONS) if number is None else number
        log = self.logs[side, number]
        again = self.draw(8) == 7
        for _ in range(1 + self.draw(3) if many is None else many):
            uid = self._stamp()
            self.acknowledged.add(uid)
            if side == "west" and (self._promoted(THERE) is None or self._promoted(BACK) is not None):
                self.waiting.add(uid)
            # an application may emit a record again, with the header of a copy
            other = _IDS["west" if side == "east" else "east"]
            log.entries.append(Entry(uid, -1, -1, uid, other if again else ""))
            self.say(f"application writes {uid} to {side}-{number} at {len(log.entries) - 1}")

    def _change(self) -> None:
        """A log is not any more what it was."""
        if not self.changes or self.calm:
            return
        self.changes -= 1
        side = ("east", "west")[self.draw(2)]
        number = self.draw(_PARTITIONS)
        log = self.logs[side, number]
        kind = self.draw(8)
        if kind == 7:
            again = f"id-{side}-{self._stamp()}"
            for one in range(_PARTITIONS):
                self.logs[side, one] = Log(again, [])
            self.say(f"topic of {side} is created again")
        elif log.entries:
            many = 1 + self.draw(_CUT)
            end = max(0, len(log.entries) - many)
            gone = log.entries[end:]
            del log.entries[end:]
            torn = [one for one in log.entries[self._last_end(log) :] if one.producer_id >= 0]
            if torn:
                # Its marker is lost.  Who looks first aborts what is not whole, and commits or aborts what is.
                last = torn[-1]
                whole = last.stamp % 3 > 0 and (last.producer_id, last.epoch, last.transaction) not in {
                    (one.producer_id, one.epoch, one.transaction) for one in gone if one.uid is not None
                }
                for one in torn if not whole else ():
                    one.uid = None
                log.entries.append(
                    Entry(
                        None,
                        last.producer_id,
                        last.epoch,
                        self._stamp(),
                        transaction=last.transaction,
                        is_marker=True,
                    )
                )
            self.say(f"{side}-{number} loses what stands from {end} on, {len(torn)} torn")
        self._take()
        if kind % 2:
            self._write(side, number, 1 + self.draw(_CUT + 2))

    def _last_end(self, log: Log) -> int:
        """Returns the offset behind the last marker or record of an application."""
        at = len(log.entries)
        while at and log.entries[at - 1].producer_id >= 0 and not log.entries[at - 1].is_marker:
            at -= 1
        return at

    def _take(self) -> None:
        filed = self._filed()
        self.taken |= self.acknowledged - self._uids("east") - self._uids("west") - filed

    def point(self, name: str = "", *, quiet: bool = False) -> None:
        """A point between two steps of a command; nothing but a death comes there if it is quiet."""
        if self.dead:
            raise Crashed
        if self.calm:
            return
        drawn = self.draw(_CRASH)
        if drawn == _CRASH - 1:
            self.say(f"the command is killed at {name}")
            self.dead = True
            raise Crashed
        if quiet:
            return
        if drawn == _CRASH - 2:
            self.say(f"at {name}:")
            self._change()
        elif drawn == _CRASH - 3:
            self.say(f"at {name}:")
            self._write(("east", "west")[self.draw(2)])

    # -- verbs -------------------------------------------------------------------------------------

    def _command(self, name: str, call: Callable[[], Any]) -> tuple[str, Any]:
        self.dead = False
        try:
            found = call()
        except Crashed:
            return "killed", None
        except MirrorError as error:
            self.say(f"{name} refuses: {error.message}")
            return error.message, None
        finally:
            self.dead = False
        self.say(f"{name} done")
        return "", found

    def _promote(self) -> None:
        planned = self.draw(4) == 3
        verb = Verb.PROMOTE if planned else Verb.FAILOVER
        options = PromotionOptions(force=True, source_gone=not planned and self.draw(2) == 1, patience=3.0)
        _, report = self._command(
            verb.value, lambda: promotion.promote(CONFIG, verb, link="there", options=options, clock=self)
        )
        if report is not None:
            self.say(f"  {report.state}: {report.error and report.error.message}")
        if report is not None and report.promotion is not None:
            for cut in report.promotion.cuts:
                self.say(f"  cut {cut.source} at {cut.position}, {cut.target_end}, proven {cut.proven}")

    def _reverse(self) -> str:
        def call(*, common: bool) -> tuple[str, Any]:
            return self._command(
                f"reverse{' --from-common-end' if common else ''}",
                lambda: reversal.reverse(
                    CONFIG, link="there", from_common_end=common, mirror=self.mirror_once, clock=self
                ),
            )

        found, report = call(common=False)
        if "--from-common-end" in found or (found and "not what was mirrored" in found):
            found, report = call(common=True)
        if report is not None:
            self.waiting.clear()
            for each in report.foreign:
                _, number, start, end = re.fullmatch(r"(.*)-(\d+) \[(\d+), (\d+)\): \d+", each).groups()  # type: ignore[union-attr]
                entries = self.logs["west", int(number)].entries[int(start) : int(end)]
                self.kept |= {one.uid for one in entries if one.uid is not None}
                self.say(f"  foreign: {each}")
            for each in report.partitions:
                self.say(
                    f"  back begins {each.topic}-{each.partition} at {each.begins}, {each.orphans} orphans"
                )
        return found

    def _failback(self) -> str:
        options = PromotionOptions(force=True, patience=3.0)
        found, report = self._command(
            "failback", lambda: failback.failback(CONFIG, link="there", options=options, clock=self)
        )
        if report is not None and report.promotion is not None and report.promotion.error is not None:
            found = report.promotion.error.message
            self.say(f"  {found}")
        return found

    def _restore(self) -> str:
        action = ("merge", "export", "keep")[self.draw(3)]

        def call(to: str) -> tuple[str, Any]:
            return self._command(
                f"restore {action} {to}",
                lambda: restoration.restore(
                    CONFIG,
                    action,
                    link="there",
                    to=self.folder() / to,
                    merge=self.mirror_once,
                    clock=self,  # type: ignore[arg-type]
                ),
            )

        found, report = call(f"f{self.draw(2)}")
        if "they may be nowhere else" in found or "they are not continued" in found:
            self.exports += 1
            found, report = call(f"another{self.exports}")
        if report is not None:
            for each in report.partitions:
                self.say(
                    f"  {each.action} {each.topic}-{each.partition} [{each.start}, {each.end}): {each.records}"
                )
        for number, restoration_ in self.states[THERE.state_name].view().history.restorations.items():
            for source, ranges in (restoration_.ranges or {}).items():
                for each in ranges:
                    if each.action == "keep" and number == self._number_of(THERE):
                        entries = self.logs["east", source.partition].entries[each.start : each.end]
                        self.kept |= {one.uid for one in entries if one.uid is not None}
        return found

    def _number_of(self, link: Link) -> int:
        current = self._promoted(link)
        return 0 if current is None else current.number

    # -- mirrors -----------------------------------------------------------------------------------

    def mirror_once(self, config: Config) -> None:
        """See `eomirror.cli.failover.mirror_once`."""
        link = config.links[0]
        if stopped := self.mirror(link, although_promoted=True):
            if self.dead:
                raise Crashed
            raise NotReadyError(f"not everything was mirrored: {stopped}")

    def mirror(self, link: Link, *, although_promoted: bool = False, most: int | None = None) -> str:
        """Runs a mirror, up to its end or for so many records; returns why it does not, if so."""
        self.runs += 1
        run = f"run{self.runs}"
        owner = LinkOwner(
            link, *self.sessions(link), run=run, clock=self, take_over=True,
            although_promoted=although_promoted, hanging_client=None,
        )  # fmt: skip
        stopped = ""
        with closing(owner):
            try:
                layout = owner.acquire(1, self.partitions(link))
                state = self.states[link.state_name]
                state.epoch += 1
                if state.producer_id < 0 or self.draw(8) == 7:
                    state.producer_id, state.epoch = 1_000 + self._stamp(), 0
                for item in self.partitions(link):
                    stopped = self._lane(link, item, layout.generation, run, most) or stopped
                owner.release()
            except MirrorError as error:
                stopped = error.message
            except Crashed:
                stopped = "killed"
                if although_promoted:
                    raise
                self.dead = False
        self.say(f"mirror {link.name}: {stopped or 'caught up'}")
        return stopped

    def _lane(self, link: Link, item: AssignedPartition, generation: int, run: str, most: int | None) -> str:
        state = self.states[link.state_name]
        position = state.positions[item.source]
        number = item.source.partition
        source, target = self.logs[link.source, number], self.logs[link.target, number]
        decision = decide_resume(
            position,
            SourceFacts(source.topic_id, 0, len(source.entries), policy="delete"),
            TargetFacts(target.topic_id, len(target.entries)),
            accept_gaps=False,
        )
        if isinstance(decision, Stop):
            return decision.error.message
        batch = decision.history.batch
        if batch is not None and source.entries[batch.offset].stamp != batch.crc:
            return f"{item.source} is not the log that was mirrored"
        if position.target_writer is not None and position.target_offset is not None:
            last = target.entries[position.target_offset]
            if (last.producer_id, last.epoch) != position.target_writer or last.uid is None:
                return f"the copy of {item.source} was overwritten"
        mirrored = 0
        while position.offset < len(source.entries) and (most is None or mirrored < most):
            self.point(f"a transaction of {link.name}", quiet=True)
            start = position.offset
            end = min(start + _MOST, len(source.entries))
            own = _IDS[link.target]
            self.transactions += 1
            some = [
                (offset, one)
                for offset, one in enumerate(source.entries[start:end], start)
                if one.uid is not None
                and (link.loops.whole or not link.guard or not (one.copied and one.origin == own))
            ]
            mirrored += end - start
            first = len(target.entries)
            for offset, one in some:
                target.entries.append(
                    Entry(
                        one.uid,
                        state.producer_id,
                        state.epoch,
                        self._stamp(),
                        _IDS[link.source],
                        True,  # noqa: FBT003  a field
                        self.transactions,
                    )
                )
                self.say(
                    f"{link.name} copies {one.uid} of {item.source} at {offset} to {len(target.entries) - 1}"
                )
            ranges: list[tuple[int, int, int]] = []
            for at, (offset, _) in enumerate(some):
                if ranges and ranges[-1][0] + ranges[-1][2] == offset:
                    ranges[-1] = (*ranges[-1][:2], ranges[-1][2] + 1)
                else:
                    ranges.append((offset, first + at, 1))
            writer = position.target_writer or (None, None)
            if some:
                target.entries.append(
                    Entry(
                        None,
                        state.producer_id,
                        state.epoch,
                        self._stamp(),
                        "",
                        False,  # noqa: FBT003  a field
                        self.transactions,
                        True,  # noqa: FBT003  a field
                    )
                )
                state.chunks.append(
                    LogRecord(
                        state.names.offset_map_topic, 0, len(state.chunks),
                        offset_map_key(item.source, item.topic_id, some[0][0]),
                        encode_offset_map(item.target_topic, number, ranges),
                    )
                )  # fmt: skip
            position = replace(
                position, offset=end, prev=start, generation=generation, run=run, lane=0, epoch=1, attempt=1,
                producer_id=state.producer_id, producer_epoch=state.epoch, txn=1, timestamp=self.wall_ms(),
                records=len(some), total_records=position.total_records + len(some),
                target_offset=first + len(some) - 1 if some else position.target_offset,
                target_producer_id=None if some else writer[0],
                target_producer_epoch=None if some else writer[1],
                batch_offset=end - 1, batch_crc=source.entries[end - 1].stamp,
                batch_timestamp=source.entries[end - 1].stamp,
            )  # fmt: skip
            state.positions[item.source] = position
        return ""

    # -- what the commands see ---------------------------------------------------------------------

    def partitions(self, link: Link) -> list[AssignedPartition]:
        """All partitions of a link."""
        topic, copy = _TOPICS[link.source], _TOPICS[link.target]
        if not link.mirrors(topic):
            return []
        return [
            AssignedPartition(
                SourcePartition(topic, number), self.logs[link.source, number].topic_id, copy,
                self.logs[link.target, number].topic_id,
            )
            for number in range(_PARTITIONS)
        ]  # fmt: skip

    def sessions(self, link: Link, *_: object, **__: object) -> LinkSessions:
        """Connections to both sides of a link."""
        return LinkSessions(_Session(self, link.source), _Session(self, link.target))  # type: ignore[arg-type]

    def state_of(self, topic: str) -> LinkTopics | None:
        """The link that a state topic belongs to, if it has run."""
        for state in self.states.values():
            names = state.names
            if topic in {names.control_topic, names.positions_topic, names.offset_map_topic}:
                return state
        return None

    def log_of(self, side: str, where: tuple[str, int]) -> Log:
        """The log of a partition."""
        assert where[0] == _TOPICS[side], where
        return self.logs[side, where[1]]

    def _promoted(self, link: Link) -> Any:
        return self.states[link.state_name].view().history.current

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall_ms(self) -> int:
        """The same in ms."""
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        """Time passes, and applications may write."""
        self.now += seconds
        self.point("a wait")


# -- what stands for Kafka in the modules under test -----------------------------------------------

_CURRENT: list[DisasterWorld] = []


def _world() -> DisasterWorld:
    return _CURRENT[-1]


class _Admin:
    def __init__(self, cluster: Any, **_: object) -> None:
        self._world, self.name = _world(), cluster.alias

    def describe_cluster(self) -> Any:
        return SimpleNamespace(cluster_id=_IDS[self.name])

    def topic_names(self) -> list[str]:
        return [_TOPICS[self.name]]

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicFacts | None]:
        return {name: self._facts(name) for name in names}

    def visible_topics(self, names: Iterable[str]) -> Any:
        return self.describe_topics(names), {}

    def _facts(self, name: str) -> TopicFacts | None:
        if name == _TOPICS[self.name]:
            return TopicFacts(name, self._world.logs[self.name, 0].topic_id, _PARTITIONS, 1)
        state = self._world.state_of(name)
        if state is None or state.link.target != self.name or not state.control:
            return None
        return TopicFacts(name, f"id-{name}", 1, 1)

    def offsets(self, asked: Iterable[Any], *, at: str, read_committed: bool) -> dict[Any, int]:
        del read_committed
        ends = {where: len(self._world.log_of(self.name, tuple(where)).entries) for where in asked}
        return dict.fromkeys(ends, 0) if at == "earliest" else ends

    def topic_configs(self, names: Iterable[str], **_: Any) -> dict[str, dict[str, ConfigValue]]:
        value = ConfigValue("delete", is_default=True, source="default")
        return {name: {"cleanup.policy": value} for name in names}

    def close(self) -> None:
        """Nothing is open."""


class _Reader:
    def __init__(self, cluster: Any, **_: object) -> None:
        self._world, self._side = _world(), cluster.alias

    def connect(self, topics: object) -> None:
        """Nothing to do."""

    def read(
        self,
        ranges: Mapping[Any, tuple[int, int]],
        take: Any,
        *,
        passing: Collection[Action] = (),
        **_: object,
    ) -> dict[Any, Action]:
        unread = {}
        for where, (low, high) in ranges.items():
            entries = self._world.log_of(self._side, tuple(where)).entries
            for offset, one in enumerate(entries[low:high], low):
                if one.uid is not None:
                    take(where, Message(tuple(where), offset, one))
            if len(entries) < high:
                if Action.SOURCE_TRUNCATED not in passing:
                    raise UnreachableError(f"{where} ends at {len(entries)}")
                unread[where] = Action.SOURCE_TRUNCATED
        return unread

    def first(self, offsets: Mapping[Any, int], **_: object) -> dict[Any, Message]:
        found = {}
        for where, start in offsets.items():
            entries = self._world.log_of(self._side, tuple(where)).entries
            at = next((n for n in range(start, len(entries)) if entries[n].uid is not None), None)
            if at is not None:
                found[where] = Message(tuple(where), at, entries[at])
        return found

    def close(self) -> None:
        """Nothing is open."""


class _Session:
    def __init__(self, world: DisasterWorld, side: str) -> None:
        self.cluster = CONFIG.clusters[side]
        self.admin = _Admin(self.cluster)
        self.client_id, self.clock, self.world = "sim", world, world

    @contextmanager
    def reader(self, **_: object) -> Iterator[_Reader]:
        yield _Reader(self.cluster)

    def close(self) -> None:
        """Nothing is open."""


def _session(cluster: Any, **_: object) -> _Session:
    return _Session(_world(), cluster.alias)


class _Digests:
    def __init__(self, session: _Session) -> None:
        self._reader = _Reader(session.cluster)

    def read(self, topic: str, partition: int, low: int, high: int, *, timestamps: bool) -> list[Any]:
        del timestamps
        found: list[Any] = []
        if low < high:
            self._reader.read(
                {(topic, partition): (low, high)},
                lambda _, one: found.append(SimpleNamespace(offset=one.offset(), digest=one.key())),
                passing=GONE,
            )
        return found


class _Maps:
    def __init__(self, link: Link, target: object) -> None:
        del target
        self._state = _world().states[link.state_name]

    def maps(self, positions: Collection[Position]) -> Any:
        return offset_map_reader._maps(self._state.chunks, list(positions))


class _StateTopics:
    def __init__(self, session: object) -> None:
        del session

    def records(self, topic: str, **_: object) -> list[LogRecord]:
        state = _world().state_of(topic)
        assert state is not None
        if topic == state.names.offset_map_topic:
            return state.chunks
        return [LogRecord(topic, 0, 0, one.key(), one.value()) for one in state.positions.values()]

    def each(self, topic: str, take: Callable[[LogRecord], None], **how: object) -> None:
        for one in self.records(topic, **how):
            take(one)


class _Producers:
    """What the target tells about producers, as `TargetHangingClient` asks it."""

    def __init__(self, link: Link, session: _Session) -> None:
        self._world, self._side = _world(), session.cluster.alias
        self._state = self._world.states[link.state_name]

    def _entry(self, where: Any, offset: int) -> Entry | None:
        entries = self._world.log_of(self._side, tuple(where)).entries
        return entries[offset] if offset < len(entries) else None

    def batches(self, records: Mapping[Any, int]) -> Any:
        found = {where: (offset, self._entry(where, offset)) for where, offset in records.items()}
        return {
            where: None if one is None else (offset, one.stamp, one.stamp)
            for where, (offset, one) in found.items()
        }

    def record_states(self, records: Mapping[Any, int]) -> dict[Any, RecordState]:
        found = {where: self._entry(where, offset) for where, offset in records.items()}
        return {
            where: RecordState.DELETED
            if one is None
            else RecordState.ABORTED
            if one.uid is None and not one.is_marker
            else RecordState.COMMITTED
            for where, one in found.items()
        }

    def batches_at(self, records: Mapping[Any, int]) -> dict[Any, CommittedBatch]:
        found = {where: self.batch_at((*where, offset)) for where, offset in records.items()}
        return {where: batch for where, batch in found.items() if batch is not None}

    def batch_at(self, record: tuple[str, int, int]) -> CommittedBatch | None:
        one = self._entry(record[:2], record[2])
        if one is None:
            return None
        # A marker is of no producer, although its batch names one.
        writer = (-1, -1) if one.is_marker else (one.producer_id, one.epoch)
        return CommittedBatch(record[2], record[2], *writer)

    def committed(self, where: Any, offsets: tuple[int, int]) -> list[CommittedBatch]:
        entries = self._world.log_of(self._side, tuple(where)).entries
        return [
            CommittedBatch(offset, offset, one.producer_id, one.epoch)
            for offset, one in enumerate(entries[slice(*offsets)], offsets[0])
            if one.uid is not None
        ]

    def producers_of_others(self, where: object) -> set[int]:
        del where
        return set()

    def lanes(self, highest: int) -> dict[int, int]:
        del highest
        return {self._state.producer_id: 0} if self._state.producer_id >= 0 else {}

    def release(self) -> None:
        """Nothing is open."""


class _Extension:
    """The extension's client, for copies among the records of an old source."""

    def __init__(self, cluster: Any, client_id: str) -> None:
        del client_id
        self._world, self._side = _world(), cluster.alias

    def copied(self, where: Any, offsets: tuple[int, int], origin: str, seconds: float) -> Any:
        del seconds
        entries = self._world.log_of(self._side, tuple(where)).entries
        found = [
            (offset, offset + 1)
            for offset, one in enumerate(entries[slice(*offsets)], offsets[0])
            if one.copied and one.origin == origin
        ]
        return found, offsets[1]


class _State:
    def __init__(self, link: Link, target: object) -> None:
        del target
        self._topics = _world().states[link.state_name]

    def control(self, *, wait_for_open: bool = True) -> ControlView:
        del wait_for_open
        return self._topics.view()

    def positions(self, *, wait_for_open: bool, overruled: object) -> Mapping[SourcePartition, Position]:
        del wait_for_open, overruled
        return dict(self._topics.positions)

    def positions_partitions(self) -> int:
        return 1

    def map_has_records(self) -> bool:
        return bool(self._topics.chunks)


class _Topics:
    def __init__(self, *_: object, **__: object) -> None:
        self._world = _world()

    def control(self, topic: str) -> Any:
        state = self._world.state_of(topic)
        assert state is not None
        return state.view(), []

    def positions(self, topic: str) -> Any:
        state = self._world.state_of(topic)
        assert state is not None
        found = dict(state.positions)
        return SimpleNamespace(valid=lambda: found)


class _Control:
    """The control producer, which is not fenced here."""

    def __init__(self, link: Link, *_: object, **__: object) -> None:
        self._topics = _world().states[link.state_name]
        self.ready = False

    def initialize(self) -> None:
        self.ready = True

    def is_held(self) -> bool:
        return False

    def identity(self) -> Any:
        return SimpleNamespace(producer_id=1, producer_epoch=0)

    def commit(self, records: Sequence[MetadataRecord]) -> None:
        if _world().dead:
            raise Crashed
        for record in records:
            if record.topic == self._topics.names.positions_topic:
                name = decode_key(record.key or b"", where="")
                assert not isinstance(name, int)
                self._topics.positions[name] = decode_position(name, record.value or b"", where="")
            else:
                self._topics.control.append((record.key or b"", record.value, ""))

    publish = commit

    def drop(self) -> None:
        self.ready = False


class _Nothing:
    """Looks at what the model leaves out."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def look(self, *_: object, **__: object) -> None: ...

    start = stop = close = look

    def moves(self, *_: object, **__: object) -> list[Any]:
        return []


class _Checks(StartChecks):
    """The checks of a start, as far as they concern a first run, and the beginnings that a reversal has set."""

    def __init__(self, link: Link, source: Any, target: Any, **_: object) -> None:
        self._link, self._source, self._target = link, source, target
        self.into_filled, self.refused, self._twins = False, {}, {}

    def copies_of_a_promoted_link(self, asked: StartFacts) -> Iterator[tuple[str, MirrorError]]:
        if asked.first_run and self._link.name == BACK.name and not asked.known:
            yield (
                "",
                NotReadyError(
                    "link back never ran, and its source is a copy of link there, which was promoted"
                ),
            )

    def round_trips(self, _: StartFacts) -> Iterator[tuple[str, MirrorError]]:
        yield from ()

    running_twins = copies_come_back = carried_on = filled_by_mm2 = filled_copies = round_trips


class _Discovery:
    def __init__(self, link: Link, *_: object, **__: object) -> None:
        self._link = link

    def prepare(self, *, strict: bool) -> list[AssignedPartition]:
        del strict
        return _world().partitions(self._link)

    def plan(self) -> Plan:
        """Topics and settings are alike."""
        return Plan(("east-id", "west-id"), {}, (), (), (), (), {}, first_run=False)


class _File(OrphanFile):
    """A real file; the command may be killed between two records."""

    def write(self, where: SourcePartition, message: Message, headers: Any) -> None:
        _world().point("an export", quiet=True)
        super().write(where, message, headers)


def _facts(config: Config, link: Link, *, answers: bool, **_: object) -> Facts:
    del config
    world = _world()
    view = world.states[link.state_name].view()
    return Facts(
        status=LinkStatus(
            link=link.name, state="stopped" if view.generation is not None else "never ran", lag_records=0
        ),
        promotion=view.history.current,
        source_answers=answers,
        now_ms=world.wall_ms(),
    )


def _link_sessions(link: Link, *_: object, **__: object) -> LinkSessions:
    return _world().sessions(link)


def _point(name: str) -> None:
    _world().point(name)


_REPLACED: dict[Any, dict[str, Any]] = {
    owner_module: {
        "StartChecks": _Checks, "crash_point": _point,
        "still_marking": lambda link, _: link, "unmoved": lambda positions, _: positions,
        "warn_of_lost_deletions": lambda *_: None, "refuse_unwritable": lambda *_: None, "is_dead": lambda _: True,
    },
    owned_control: {
        "LinkState": _State, "ControlProducer": _Control, "fence": lambda *_, **__: None,
        "end_hanging": lambda *_, **__: None, "crash_point": _point, "refuse_unwritable": lambda *_: None,
    },
    promotion: {
        "source_answers": lambda *_: True, "read_facts": _facts, "LinkState": _State,
        "end_hanging_copies": lambda *_, **__: None, "_Renewal": _Nothing, "crash_point": _point,
    },
    group_reader: {
        "GroupReader": _Nothing, "note_moves": lambda *_: "", "ClusterGroups": _Nothing, "crash_point": _point,
    },
    drain: {"StatusTopics": _Topics},
    link_state: {"LinkState": _State},
    copy_ends: {"target_hanging_client": _Producers, "CompactedTopicReader": _StateTopics},
    source_comparison: {"target_hanging_client": _Producers},
    common_end: {"RecordDigestReader": _Digests, "OffsetMapReader": _Maps},
    promoted_link: {"link_sessions": _link_sessions, "target_hanging_client": None, "LinkState": _State},
    reversal: {"link_discovery": _Discovery, "OffsetMapReader": _Maps, "crash_point": _point},
    orphans: {"LinkState": _State, "ClusterSession": _session, "OffsetMapReader": _Maps},
    orphan_reader: {
        "PartitionReader": _Reader, "ClusterAdmin": _Admin,
        "extension_client": _Extension, "_claimed_origin": lambda message: message.entry.origin,
    },
    restoration: {"link_discovery": _Discovery, "OrphanFile": _File, "crash_point": _point},
    failback: {"ClusterSession": _session, "link_sessions": _link_sessions},
}  # fmt: skip


class disasters:  # noqa: N801  used like a function
    """
    Replaces what stands for Kafka in the modules under test while the block runs.

    Args:
        mutant: (module or class, name) -> what stands there instead: a safeguard that is switched off.
    """

    def __init__(self, mutant: Mapping[tuple[Any, str], Any] | None = None) -> None:
        self._wanted = [
            (place, name, value) for place, names in _REPLACED.items() for name, value in names.items()
        ]
        self._wanted += [(place, name, value) for (place, name), value in (mutant or {}).items()]
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Callable[..., DisasterWorld]:
        for place, name, value in self._wanted:
            self._before.append((place, name, getattr(place, name)))
            setattr(place, name, value)
        return self._made

    def __exit__(self, *_: object) -> None:
        for place, name, value in reversed(self._before):
            setattr(place, name, value)
        for world in _CURRENT:
            world.close()
        _CURRENT.clear()

    def _made(
        self, choices: Choices, trace: list[str] | None = None, without: frozenset[str] = OPEN
    ) -> DisasterWorld:
        world = DisasterWorld.__new__(DisasterWorld)
        _CURRENT[:] = [world]
        world.__init__(choices, trace, without)  # type: ignore[misc]
        return world
