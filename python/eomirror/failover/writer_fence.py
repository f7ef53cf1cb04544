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
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    LaneError,
    MirrorError,
    NotReadyError,
    UnreachableError,
    UsageError,
)
from eomirror.failover.facts import history_of, mirrored
from eomirror.kafka.session import ClusterSession
from eomirror.kafka.write_denials import WriteDenials
from eomirror.link.state import LinkState
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Fence

if TYPE_CHECKING:
    from eomirror.config import Config, Link

__all__ = ["FenceMethod", "LinkWriterFence", "run_command"]

_COMMAND_SECONDS = 300.0
_STDERR = 2


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

    def fence(self) -> None:
        """
        Stops the applications; a fence that stands already is completed.

        Raises:
            NotReadyError: The command failed.
            AuthorizationError: ACLs may not be altered, or control may not be written.
            ClusterError: A cluster refuses, or does not answer.
        """
        if self._method.name == "wait":
            return
        self._fenced = True
        with closing(self._target()) as target:
            history = history_of(self._link, target)
            topics = self._topics(target) if self._method.name == "acl" else ()
            standing = history.fence
            if standing is not None and standing.method != self._method.name:
                self._fenced = False
                raise NotReadyError(
                    f"link {self._link.name} is fenced already, with the method {standing.method}, by {standing.host}",
                    fix=f"`eomirror unfence CONFIG --link {self._link.name}` first, or use --method {standing.method}",
                )
            if standing is not None and set(topics) - set(standing.topics):
                # Topics that were found since: what is added now is recorded first, like the others.
                with closing(self._denials()) as denials:
                    more = set(topics) - set(standing.topics) - denials.existing()
                if more:
                    self._write(replace(standing, topics=tuple(sorted({*standing.topics, *more}))))
            if standing is None:
                number = 1 if history.last is None else history.last.number + 1
                added = tuple(topics)
                if topics:
                    with closing(self._denials()) as denials:
                        added = tuple(sorted(set(topics) - denials.existing()))
                standing = Fence(
                    number=number,
                    method=self._method.name,
                    topics=added,
                    lifted=False,
                    host=socket.gethostname(),
                    timestamp=self._clock.wall_ms(),
                )
                self._write(standing)
        if self._method.name == "command":
            self._call("fence")
            return
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

    def undo(self) -> None:
        """Lifts the fence if this object has set or completed it; raises as `lift`."""
        if self._fenced:
            self.lift()

    def lift(self) -> Fence | None:
        """
        Undoes the fence that stands.

        Returns:
            The fence; None if there was none.

        Raises:
            NotReadyError: The command failed.
            AuthorizationError: ACLs may not be altered, or control may not be written.
            ClusterError: A cluster refuses, or does not answer.
        """
        with closing(self._target()) as target:
            standing = history_of(self._link, target).fence
        if standing is None:
            return None
        if standing.method == "command":
            if not self._method.command:
                raise UsageError(
                    f"link {self._link.name} was fenced with a command on {standing.host}",
                    fix="add --method command --fence-command COMMAND",
                )
            self._call("unfence")
        else:
            with closing(self._denials()) as denials:
                denials.allow(standing.topics)
        self._write(replace(standing, lifted=True, timestamp=self._clock.wall_ms()))
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

    def _write(self, fence: Fence) -> None:
        topic = self._names.control_topic
        target = self._config.clusters[self._link.target]
        producer = TransactionalProducer(
            target,
            client_id=self._names.client_id("fence"),
            transactional_id=f"{self._names.control_transactional_id}.fence",
            transaction_timeout=self._link.transaction_timeout,
            known_topic=topic,
            clock=self._clock,
        )
        try:
            producer.init()
            producer.begin()
            producer.write([MetadataRecord(topic, 0, fence.key(), fence.value())])
            producer.flush(self._link.transaction_timeout)
            producer.commit()
        except LaneError as error:
            raise UnreachableError(
                f"cannot write {topic} on {self._link.target}: {error}",
                fix="repeat this when the target is healthy",
            ) from error
        finally:
            producer.close()

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
