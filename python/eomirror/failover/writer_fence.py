"""
Stops the applications that write to the source of a link, and undoes exactly that.

What will be changed is recorded in the link's control topic before it is changed, by a producer of its own: the mirror
owns the link and must keep running.  So a second call, or `unfence` on another host, undoes what a killed command left,
and an ACL entry that was there before stays.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from shlex import quote
from typing import TYPE_CHECKING, TypeVar

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    FencedError,
    LaneError,
    MirrorError,
    NotReadyError,
    UnreachableError,
    UsageError,
)
from eomirror.failover.facts import history_of, mirrored
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.session import ClusterSession
from eomirror.kafka.write_denials import WriteDenials
from eomirror.link.fencing import fence
from eomirror.link.state import LinkState
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.config import Config, Link

__all__ = ["FenceMethod", "LinkWriterFence", "run_command"]

_SHOWN = 3
_COMMAND_SECONDS = 300.0
_STDERR = 2
_TRIES = 5

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceMethod:
    """
    Method by which applications are stopped.

    Attributes:
        name: ``wait`` (the user stops them), ``acl`` (an entry DENY Write a topic) or ``command``.
        command: For ``command``: called with EOMIRROR_ACTION=fence, and again with EOMIRROR_ACTION=unfence.
    """

    name: str = "wait"
    command: str = ""


class LinkWriterFence:
    """
    Fence of one link's source.

    Args:
        method: How applications are stopped.

    Raises:
        UsageError: The method needs a command.
    """

    def __init__(
        self, config: Config, link: Link, method: FenceMethod, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        if method.name == "command" and not method.command:
            raise UsageError("the method command needs one", fix="add --fence-command COMMAND")
        self._config, self._link, self._method, self._clock = config, link, method, clock
        self._names = LinkNames(link.state_name)
        self._fenced = False
        # Entries that this object has added, perhaps behind the back of a call that has lifted the fence since.
        self._added: set[str] = set()

    def fence(self) -> None:
        """
        Stops the applications; a fence that stands already is completed.

        Raises:
            NotReadyError: The command failed, or other calls fence and unfence the link.
            AuthorizationError: ACLs may not be altered, or control may not be written.
            ClusterError: A cluster refuses, or does not answer.
        """
        if self._method.name == "wait":
            return
        self._fenced = True
        self._alone(self._set)

    def check(self) -> None:
        """
        Raises if the fence that this object has set does not stand any more: another call has begun to lift it.

        Raises:
            NotReadyError: Applications may write again.
            ClusterError: The target does not answer.
        """
        if not self._fenced:
            return
        with closing(self._target()) as target:
            standing = history_of(self._link, target).fence
        if standing is None or standing.lifting:
            raise NotReadyError(
                f"link {self._link.name}: another command has lifted the fence, so applications may write again",
                fix="let one operator act at a time, then repeat this",
            )

    def undo(self) -> None:
        """
        Lifts the fence if this object has set or completed it.

        Raises:
            NotReadyError: The link is promoted, so the fence stays; or as for `lift`.
            MirrorError: As for `lift`.
        """
        if self._fenced:
            self._alone(lambda record: self._lift(record, although_promoted=False))

    def lift(self) -> Fence | None:
        """
        Undoes the fence that stands.

        A promotion that is about to be recorded fails, or looks again and finds the fence lifted.

        Returns:
            The fence; None if there was none.

        Raises:
            NotReadyError: The command failed, or other calls fence and unfence the link.
            AuthorizationError: ACLs may not be altered, or control may not be written.
            ClusterError: A cluster refuses, or does not answer.
        """
        return self._alone(lambda record: self._lift(record, although_promoted=True))

    def described(self) -> str:
        """
        Returns what `fence` would do, in words.

        Raises:
            NotReadyError: Another fence stands.
            AuthorizationError: ACLs may not be described.
            ClusterError: A cluster refuses, or does not answer.
        """
        standing, topics = self.inspect()
        if standing is not None and standing.method != self._method.name:
            raise NotReadyError(
                f"fenced already, with the method {standing.method}, by {standing.host}",
                fix=f"`eomirror unfence CONFIG --link {quote(self._link.name)}` first",
            )
        if self._method.name == "wait":
            return "wait: the user stops the producers"
        if self._method.name == "command":
            return f"command: calls {self._method.command}"
        source = self._config.clusters[self._link.source]
        with closing(
            ClusterAdmin(source, client_id=self._names.client_id("fence"), clock=self._clock)
        ) as admin:
            # Without one, brokers answer that there are no entries, and refuse only to add some.
            if admin.broker_setting("authorizer.class.name") == "":
                raise ClusterError(
                    f"acl: {source.alias} has no authorizer",
                    fix="fence with another method: `--method wait`, or `--method command` with a hook of your own",
                )
        names = f": {', '.join(topics[:_SHOWN])}" if topics else ""
        more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
        return f"acl: adds {len(topics)} entries DENY Write for User:*{names}{more}"

    def inspect(self) -> tuple[Fence | None, tuple[str, ...]]:
        """
        Returns the fence that stands (None for none), and the topics for which `fence` would add an ACL entry.

        Raises:
            AuthorizationError: ACLs may not be described.
            ClusterError: A cluster refuses, or does not answer.
        """
        with closing(self._target()) as target:
            standing = history_of(self._link, target).fence
            topics = self._topics(target) if self._method.name == "acl" else ()
        if not topics:
            return standing, ()
        with closing(self._denials()) as denials:
            return standing, tuple(sorted(set(topics) - denials.existing()))

    # -- steps -----------------------------------------------------------------------------------

    def _alone(self, act: Callable[[Callable[[Fence], None]], _Done]) -> _Done:
        """
        Calls ``act`` with a function that writes a record; repeats it if another call has begun since.

        Two operators may fence and lift at the same time.  Their records come from producers of one transactional.id,
        of which the older is fenced, so the last record is that of the last call that changed anything.
        """
        for _ in range(_TRIES):
            producer = self._producer()
            try:
                producer.init()
                return act(partial(self._write, producer))
            except FencedError:
                continue
            except LaneError as error:
                raise UnreachableError(
                    f"cannot write {self._names.control_topic} on {self._link.target}: {error}",
                    fix="repeat this when the target is healthy",
                ) from error
            finally:
                producer.close()
        raise NotReadyError(
            f"link {self._link.name}: other commands fence and unfence its source at the same time",
            fix="let one operator act at a time, then repeat this",
        )

    def _set(self, record: Callable[[Fence], None]) -> None:
        with closing(self._target()) as target:
            history = history_of(self._link, target)
            topics = self._topics(target) if self._method.name == "acl" else ()
        standing = history.fence
        if standing is not None and standing.method != self._method.name:
            self._fenced = False
            raise NotReadyError(
                f"link {self._link.name} is fenced already, with the method {standing.method}, by {standing.host}",
                fix=f"`eomirror unfence CONFIG --link {quote(self._link.name)}` first, or use --method "
                f"{standing.method}",
            )
        # What is added is recorded before it is added, also of topics that were found since.
        mine = () if standing is None else standing.topics
        more: set[str] = set()
        if set(topics) - set(mine):
            with closing(self._denials()) as denials:
                more = set(topics) - set(mine) - (denials.existing() - self._added)
        if standing is None or more or standing.lifting:
            last = history.last
            standing = Fence(
                number=(1 if last is None else last.number + 1) if standing is None else standing.number,
                method=self._method.name,
                topics=tuple(sorted({*mine, *more})),
                lifted=False,
                host=socket.gethostname() if standing is None else standing.host,
                timestamp=self._clock.wall_ms() if standing is None else standing.timestamp,
            )
            record(standing)
        self._added |= set(standing.topics)
        if self._method.name == "command":
            self._call("fence")
        else:
            self._deny(topics)
        # Fails if another call has begun to lift it.
        record(standing)

    def _deny(self, topics: Sequence[str]) -> None:
        try:
            with closing(self._denials()) as denials:
                denials.deny(topics)
        except AuthorizationError:
            raise
        except ClusterError:
            # Without an authorizer nothing was added, and the record must not stand for it.
            with suppress(MirrorError):
                self.lift()
            raise

    def _lift(self, record: Callable[[Fence], None], *, although_promoted: bool) -> Fence | None:
        with closing(self._target()) as target:
            standing = history_of(self._link, target).fence
        if standing is None:
            return None
        if standing.method == "command" and not self._method.command:
            raise UsageError(
                f"link {self._link.name} was fenced with a command on {standing.host}",
                fix="add --method command --fence-command COMMAND",
            )
        record(replace(standing, lifting=True))
        # A promotion that has looked at the fence, and is not recorded yet, fails here, and looks again.
        fence(
            self._config.clusters[self._link.target],
            {self._names.control_transactional_id: self._names.client_id("fence")},
            known_topic=self._names.control_topic,
            transaction_timeout=self._link.transaction_timeout,
            clock=self._clock,
        )
        if not although_promoted:
            with closing(self._target()) as target:
                promoted = history_of(self._link, target).current is not None
            if promoted:
                record(replace(standing, lifting=False))
                raise NotReadyError(
                    f"link {self._link.name} has been promoted since by another command",
                    fix=f"point the applications to {self._link.target}, then `eomirror unfence CONFIG`",
                )
        if standing.method == "command":
            self._call("unfence")
        else:
            with closing(self._denials()) as denials:
                denials.allow(standing.topics)
        record(replace(standing, lifted=True, lifting=False, timestamp=self._clock.wall_ms()))
        return standing

    # -- inside ----------------------------------------------------------------------------------

    def _topics(self, target: ClusterSession) -> tuple[str, ...]:
        """Returns the source topics that the link mirrors, as its positions name them."""
        state = LinkState(self._link, target)
        found = state.positions(wait_for_open=False, overruled=())
        positions = mirrored(self._link, found, state.control(wait_for_open=False))
        return tuple(sorted({source.topic for source in positions}))

    def _call(self, action: str) -> None:
        environment = {"EOMIRROR_ACTION": action, "EOMIRROR_LINK": self._link.name}
        code = run_command(self._method.command, environment)
        if code != 0:
            raise NotReadyError(
                f"link {self._link.name}: the command to {action} its source ended with exit code {code}",
                fix="make the command succeed: it must return 0 once no application writes, or may write again",
            )

    def _producer(self) -> TransactionalProducer:
        return TransactionalProducer(
            self._config.clusters[self._link.target],
            client_id=self._names.client_id("fence"),
            transactional_id=f"{self._names.control_transactional_id}.fence",
            transaction_timeout=self._link.transaction_timeout,
            known_topic=self._names.control_topic,
            clock=self._clock,
        )

    def _write(self, producer: TransactionalProducer, fence: Fence) -> None:
        producer.begin()
        producer.write([MetadataRecord(self._names.control_topic, 0, fence.key(), fence.value())])
        producer.flush(self._link.transaction_timeout)
        producer.commit()

    def _denials(self) -> WriteDenials:
        source = self._config.clusters[self._link.source]
        return WriteDenials(source, client_id=self._names.client_id("fence"), clock=self._clock)

    def _target(self) -> ClusterSession:
        target = self._config.clusters[self._link.target]
        return ClusterSession(target, client_id=self._names.client_id("fence"), clock=self._clock)


def run_command(command: str, environment: dict[str, str]) -> int:
    """
    Runs a command of the user, without a shell; returns its exit code.

    Args:
        command: Words as a shell would split them.
        environment: Added to the environment of this process.

    Raises:
        UsageError: The command cannot be started.
        MirrorError: It does not end in time.
    """
    try:
        done = subprocess.run(
            shlex.split(command),
            env={**os.environ, **environment},
            timeout=_COMMAND_SECONDS,
            check=False,
            # stdout belongs to the result of this process
            stdout=_STDERR,
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot start {command!r}: {error}", fix="give the path of a program") from error
    except subprocess.TimeoutExpired as error:
        raise MirrorError(
            f"{command!r} did not end within {_COMMAND_SECONDS:.0f} s", fix="make the command quicker"
        ) from error
    return done.returncode
