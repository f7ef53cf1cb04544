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
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.rights import Right, account_of
from eomirror.errors import (
    ClusterError,
    FencedError,
    LaneError,
    MirrorError,
    NotReadyError,
    UnreachableError,
    UsageError,
    some,
)
from eomirror.failover.facts import mirrored
from eomirror.kafka.acls import WriteDenials
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.session import ClusterSession
from eomirror.link.fencing import fence
from eomirror.link.other_links import OtherLinks
from eomirror.link.state import LinkState, history_of
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Fence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from eomirror.config import Cluster, Config, Link
    from eomirror.kafka.cluster_metadata import ConfigValue
    from eomirror.records.promotion import PromotionHistory

__all__ = ["FenceMethod", "LinkWriterFence", "WriterFence", "run_command"]

log = structlog.get_logger(__name__)

_COMMAND_SECONDS = 300.0
_STDERR = 2
_TRIES = 5
_OTHERS_SECONDS = 5.0
_APPLIED_SECONDS = 2.0
_LOOK_SECONDS = 0.2
_AUTHORIZER = "authorizer.class.name"
_EVERYONE = "allow.everyone.if.no.acl.found"
_OTHERWISE = "fence with another method: `--method wait`, or `--method command` with a hook of your own"

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


class WriterFence(Protocol):
    """
    Stops the applications that write to the source of a link, and lets them write again.

    Attributes:
        stops: False if the user stops the applications: `fence` then changes nothing.
    """

    @property
    def stops(self) -> bool:
        """See the attribute."""

    def fence(self) -> None:
        """Returns when no application writes any more; raises if that cannot be shown."""

    def check(self) -> None:
        """Raises if applications may write again, although `fence` of this object has stopped them."""

    def undo(self) -> None:
        """Undoes what `fence` of this object did; does nothing without it."""

    def described(self) -> str:
        """Returns what `fence` would do, in words; raises if it could not."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """
    Facts that `LinkWriterFence.fence` decides on.

    Attributes:
        history: Promotions and fences of the link.
        topics: Source topics to deny, for an ACL fence.
        denied: Topics of the source that have an entry DENY Write for User:*.
        cluster: Id of the source.
    """

    history: PromotionHistory
    topics: tuple[str, ...] = ()
    denied: frozenset[str] = frozenset()
    cluster: str = ""


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
        self._denied: tuple[str, ...] = ()
        self._kept: Mapping[str, str] = {}
        # Entries that this object has added, perhaps behind the back of a call that has lifted the fence since.
        self._added: set[str] = set()

    @property
    def stops(self) -> bool:
        """False for ``wait``: the user stops the applications."""
        return self._method.name != "wait"

    def fence(self) -> None:
        """
        Stops the applications; a fence that stands already is completed.  One that is refused leaves nothing behind.

        Raises:
            NotReadyError: The command failed, other calls fence and unfence the link, or as `described`.
            AuthorizationError: ACLs may not be altered, or control may not be written.
            ClusterError: A cluster refuses, or does not answer.
        """
        if self.stops:
            self._alone(self._set)

    def check(self) -> None:
        """
        Raises if the fence that this object has set, or an ACL fence that `fence` of another one has, is not whole.

        The entries themselves are looked at as well: a fence of another link, or a person, may have deleted one.

        Raises:
            NotReadyError: Applications may write again.
            ClusterError: A cluster does not answer.
        """
        standing = self.standing()
        if self._fenced and (standing is None or standing.lifting):
            raise NotReadyError(
                f"link {self._link.name}: another command has lifted the fence, so applications may write again",
                fix="let one operator act at a time, then repeat this",
            )
        needed = self._denied if self._fenced else ()
        if not self._fenced and standing is not None and not standing.lifting:
            needed = standing.topics
        if not needed:
            return
        deadline = Deadline(_APPLIED_SECONDS, self._clock)
        with closing(self._denials()) as denials:
            # The broker that answers may have yet to apply what the controller has added.
            while (gone := sorted(set(needed) - denials.existing())) and not deadline.passed:
                self._clock.sleep(_LOOK_SECONDS)
        if gone:
            raise NotReadyError(
                f"link {self._link.name}: the fence stands, but the entries DENY Write for User:* on {some(gone)} of "
                f"{self._link.source} are gone, so applications may write again",
                fix="find out who deleted them (`kafka-acls.sh`, or `eomirror unfence` of another link), then repeat "
                "this: it adds them again",
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
            NotReadyError: Another fence stands, or the first ACL entry of a topic would shut out its readers.
            AuthorizationError: ACLs may not be described or altered.
            ClusterError: A cluster refuses, or does not answer.
        """
        if self._method.name == "wait":
            return "wait: the user stops the producers"
        _, topics = self.inspect()
        if self._method.name == "command":
            return f"command: calls {self._method.command}"
        return f"acl: adds {len(topics)} entries DENY Write for User:*" + (
            f": {some(topics)}" if topics else ""
        )

    def inspect(self) -> tuple[Fence | None, tuple[str, ...]]:
        """
        Returns the fence that stands (None for none), and the topics for which `fence` would add an ACL entry.

        Raises:
            MirrorError: As `described`.
        """
        plan = self._plan()
        return plan.history.fence, tuple(sorted(set(plan.topics) - plan.denied))

    def standing(self) -> Fence | None:
        """
        Returns the fence that stands; None for none.

        Raises:
            ClusterError: The target does not answer.
        """
        with closing(self._target()) as target:
            return history_of(self._link, target).fence

    @property
    def kept(self) -> Mapping[str, str]:
        """Topics whose entry stays after `lift`, each with the name of the link whose fence needs it."""
        return self._kept

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

    def _plan(self) -> _Plan:
        """Returns what `fence` decides on; raises if it must not be set, or could not be.  Changes nothing."""
        acl = self._method.name == "acl"
        with closing(self._target()) as target:
            history = history_of(self._link, target)
            topics = self._topics(target) if acl else ()
        standing = history.fence
        if self._method.name != "wait" and standing is not None and standing.method != self._method.name:
            raise NotReadyError(
                f"link {self._link.name} is fenced already, with the method {standing.method}, by {standing.host}",
                fix=f"`eomirror unfence CONFIG --link {quote(self._link.name)}` first, or use --method "
                f"{standing.method}",
            )
        if not acl:
            return _Plan(history)
        with closing(self._denials()) as denials:
            cluster = denials.cluster_id()
            denied = denials.existing()
            bare = denials.bare(set(topics) - denied)
        if bare:
            self._refuse_first_entries(sorted(bare))
        return _Plan(history, topics, denied, cluster)

    def _refuse_first_entries(self, bare: list[str]) -> None:
        """
        Raises if the first entries of topics cannot be added, or may shut out the mirror and the consumers.

        With ``allow.everyone.if.no.acl.found=true`` everyone may use a topic without entries.  An entry of any kind
        ends that for all operations: the authorizer then allows what an entry ALLOW names, and nothing else.
        """
        settings = self._broker_settings()
        if settings is not None and (authorizer := settings.get(_AUTHORIZER)) and not authorizer.value:
            # Without one, brokers answer that there are no entries, and refuse only to add some.
            raise ClusterError(f"acl: {self._link.source} has no authorizer", fix=_OTHERWISE)
        found = None if settings is None else settings.get(_EVERYONE)
        if settings is not None and (found is None or (found.value or "").lower() == "false"):
            return
        source = self._config.clusters[self._link.source]
        account = account_of(source)
        fix = (
            "first grant the mirror and each application what they need on these topics, such as `"
            f"{Right('Read', 'topic', bare[0]).acl(account)}`, all at once; or {_OTHERWISE}"
        )
        if settings is None:
            known = f"the brokers' {_EVERYONE} could not be read; if it is true, the first one"
            fix = f"let it be read: `{Right('DescribeConfigs', 'cluster').acl(account)}`; or {fix}"
        elif found is not None and found.value is None:
            known = f"the brokers set {_EVERYONE}, and do not tell its value; if it is true, the first one"
        else:
            known = f"{_EVERYONE} is true: the first one"
        raise NotReadyError(
            f"acl: no ACL entry names {some(bare)} on {source.alias}, and {known} shuts out the mirror and every "
            "consumer",
            fix=fix,
        )

    def _set(self, record: Callable[[Fence], None]) -> None:
        plan = self._plan()
        before = plan.history.fence
        mine = set() if before is None else set(before.topics)
        # An entry that was there before stays.  One of another link's fence is deleted by the last fence to be lifted.
        there = set(plan.topics) & plan.denied - mine - self._added
        theirs = there - self._others(plan.cluster, there, lifting=True).keys()
        last = plan.history.last
        made = before or Fence(
            number=1 if last is None else last.number + 1,
            method=self._method.name,
            topics=(),
            lifted=False,
            host=socket.gethostname(),
            timestamp=self._clock.wall_ms(),
        )
        more = set(plan.topics) - mine - theirs
        made = replace(made, topics=tuple(sorted(mine | more)), lifting=False, source_cluster_id=plan.cluster)
        self._fenced, self._denied = True, plan.topics
        # What is added is recorded before it is added, also of topics that were found since.
        if made != before:
            record(made)
        self._added |= set(made.topics)
        try:
            if self._method.name == "command":
                self._call("fence")
            else:
                with closing(self._denials()) as denials:
                    denials.deny(plan.topics)
        except (ClusterError, UsageError) as error:
            self._take_back(record, before, made, error)
            raise
        # Fails if another call has begun to lift it.
        record(made)

    def _take_back(
        self, record: Callable[[Fence], None], before: Fence | None, made: Fence, error: MirrorError
    ) -> None:
        """
        Deletes what a refused fence has added, and records what stands: the fence before it, or what was not deleted.

        If that is not known either, the record stays, and `unfence` takes it up.
        """
        mine = set() if before is None else set(before.topics)
        more = set(made.topics) - mine
        left: set[str] = set()
        with suppress(MirrorError, LaneError):
            if more:
                with closing(self._denials()) as denials:
                    try:
                        denials.allow(more - self._others(made.source_cluster_id, more, lifting=False).keys())
                    except MirrorError:
                        left = more & denials.existing()
            if left:
                record(replace(made, topics=tuple(sorted(mine | left))))
                error.message += (
                    f"; the entries DENY Write on {some(sorted(left))} were added before that, and stay until "
                    f"`eomirror unfence CONFIG --link {quote(self._link.name)}`"
                )
            else:
                record(before or replace(made, lifted=True, timestamp=self._clock.wall_ms()))
            self._fenced = bool(left)
            self._added -= more - left

    def _others(self, cluster: str, topics: Collection[str], *, lifting: bool) -> dict[str, str]:
        """
        Returns which of these topics the standing fences of other links need, each with the name of such a link.

        Looks at every link of the targets that the configuration has for this source.  A target that does not answer is
        logged and skipped: no promotion of its links can be recorded, and `check` looks at the entries before one is.

        Args:
            cluster: Id of the source.
            topics: Source topics; nothing is read without one.
            lifting: Also fences that are being lifted.  Two commands that lift both record that first, so at least one
                of them sees the other, and deletes the entry.
        """
        needed: dict[str, str] = {}
        if not topics or not cluster:
            return needed
        here = _brokers(self._config.clusters[self._link.source])
        targets = {self._link.target} | {
            one.target for one in self._config.links if _brokers(self._config.clusters[one.source]) & here
        }
        names = {one.state_name: one.name for one in self._config.links}
        for alias in sorted(targets):
            try:
                with closing(
                    ClusterSession(
                        self._config.clusters[alias],
                        client_id=self._names.client_id("fence"),
                        timeout=_OTHERS_SECONDS,
                        clock=self._clock,
                    )
                ) as session:
                    others = OtherLinks(self._link.name, session, event="fence_not_read")
                    for state, fence in others.fences(but=self._link.state_name):
                        if fence.source_cluster_id == cluster and (lifting or not fence.lifting):
                            needed |= dict.fromkeys(set(fence.topics) & set(topics), names.get(state, state))
            except MirrorError as error:
                log.warning("fences_not_read", link=self._link.name, cluster=alias, reason=error.message)
        return needed

    def _lift(self, record: Callable[[Fence], None], *, although_promoted: bool) -> Fence | None:
        standing = self.standing()
        if standing is None:
            return None
        if standing.method == "command" and not self._method.command:
            raise UsageError(
                f"link {self._link.name} was fenced with a command on {standing.host}",
                fix="add --fence-command COMMAND",
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
            self._kept = self._others(standing.source_cluster_id, standing.topics, lifting=False)
            with closing(self._denials()) as denials:
                denials.allow(set(standing.topics) - self._kept.keys())
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

    def _broker_settings(self) -> Mapping[str, ConfigValue] | None:
        source = self._config.clusters[self._link.source]
        with closing(
            ClusterAdmin(source, client_id=self._names.client_id("fence"), clock=self._clock)
        ) as admin:
            return admin.broker_settings()

    def _target(self) -> ClusterSession:
        target = self._config.clusters[self._link.target]
        return ClusterSession(target, client_id=self._names.client_id("fence"), clock=self._clock)


def _brokers(cluster: Cluster) -> set[str]:
    return set(cluster.bootstrap_servers.replace(" ", "").split(","))


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
