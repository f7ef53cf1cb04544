"""
What becomes of a frame: rules, a frame and the time come in, a verdict goes out, and what happened is noted.

Pure: no sockets, no clock, no randomness but a seeded generator.
"""

from __future__ import annotations

import enum
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.clusters.frames import Request, answer_error, correlation_id, parse_request, with_error
from support.clusters.rules import (
    AnswerWith,
    CutAfter,
    Delay,
    DropAnswers,
    HalfOpen,
    Hold,
    Lifetimes,
    Match,
    Refuse,
    Resets,
    Throttle,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.clusters.rules import Rule

__all__ = ["Decider", "Event", "Greeting", "Kind", "Verdict"]


class Kind(enum.StrEnum):
    """
    What to do with a frame.

    DELIVER: send it on, at the time that the verdict names.
    HOLD: keep it until its rule is released.
    DROP: forget it.
    """

    DELIVER = "deliver"
    HOLD = "hold"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Verdict:
    """
    What becomes of one frame.

    Attributes:
        kind: What to do.
        at: When to deliver, on the clock whose time was given.
        cut: Break the client's connection, after that.
        rule: Name of the rule that holds it.
        instead: What to deliver in the frame's place; None for the frame itself.
    """

    kind: Kind
    at: float = 0.0
    cut: bool = False
    rule: str = ""
    instead: bytes | None = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """
    What becomes of a new connection.

    Attributes:
        accepted: Whether it may stay.
        dies_at: When it has to break; None for never.
    """

    accepted: bool
    dies_at: float | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """
    Something that a rule did, or that a test waits for.

    Attributes:
        kind: ``connected``, ``refused``, ``held`` (by its rule), ``behind`` (queued behind a held one), ``released``,
            ``cut`` (the client's side), ``dropped`` (an answer), ``falsified`` (an answer), ``swallowed``,
            ``late answer`` (the broker's, to a request that was held), ``lost answer`` (to a request whose client was
            cut off), ``reset`` (by chance).
        at: When.
        connection: Number of the connection.
        rule: Name of the rule; empty where there is none.
        request: The request; None for connections.
        error: Error code of an answer, where it is known.
    """

    kind: str
    at: float
    connection: int
    rule: str = ""
    request: Request | None = None
    error: int | None = None


@dataclass(slots=True)
class _Armed:
    name: str
    rule: Rule
    seen: int = 0
    done: int = 0


@dataclass(slots=True)
class _Connection:
    dead: bool = False  # half-open: nothing passes any more
    cut: bool = False  # the client is gone
    held_by: str = ""  # name of the rule whose request blocks this direction
    pending: dict[int, tuple[Request, str]] = field(
        default_factory=dict
    )  # by correlation id; rule that held it
    clear_at: dict[str, float] = field(default_factory=dict)  # per direction, when the wire is free again


class Decider:
    """
    The rules of one proxy, and what they did.

    Args:
        seed: Everything random follows from it.
    """

    def __init__(self, seed: int | str = 0) -> None:
        self.events: list[Event] = []
        self.requests: Counter[tuple[int, str]] = Counter()  # by API key and transactional id
        self.answers: Counter[int] = Counter()  # by API key, as brokers gave them
        self._random = random.Random(seed)
        self._rules: dict[str, _Armed] = {}
        self._connections: dict[int, _Connection] = {}

    # -- rules -----------------------------------------------------------------------------------

    def arm(self, name: str, rule: Rule) -> None:
        """Let a rule hold from now on; one of the same name goes."""
        self._rules[name] = _Armed(name, rule)
        if isinstance(rule, HalfOpen):
            for connection in self._connections.values():
                connection.dead = True

    def disarm(self, name: str) -> None:
        """Take a rule away, if it is there; what it holds stays held."""
        self._rules.pop(name, None)

    def reset(self, seed: int | str) -> None:
        """Forget rules, counts and events; draw from a new seed."""
        self._rules.clear()
        self.events.clear()
        self.requests.clear()
        self.answers.clear()
        self._random.seed(seed)

    def seen(self, match: Match) -> int:
        """How many requests came of this API and transaction; the match may name no more than these two."""
        return sum(
            count
            for (api_key, identity), count in self.requests.items()
            if match.api_key in (None, api_key) and match.transactional_id in (None, identity)
        )

    # -- connections -----------------------------------------------------------------------------

    def connect(self, number: int, now: float) -> Greeting:
        """A client has connected."""
        if any(now < armed.rule.until for armed in self._of(Refuse)):
            self._note("refused", now, number)
            return Greeting(accepted=False)
        dies_at = None
        for armed in self._of(Lifetimes):
            dies_at = now + self._random.uniform(armed.rule.shortest, armed.rule.longest)
        self._connections[number] = _Connection(dead=bool(list(self._of(HalfOpen))))
        self._note("connected", now, number)
        return Greeting(accepted=True, dies_at=dies_at)

    def client_gone(self, number: int, now: float) -> None:
        """The client's side of a connection is over, whichever side ended it."""
        connection = self._connections.get(number)
        if connection is not None and not connection.cut:
            connection.cut = True
            self._note("cut", now, number)

    def closed(self, number: int) -> None:
        """Both sides of a connection are over."""
        self._connections.pop(number, None)

    def lingers(self, number: int) -> bool:
        """Whether the broker's side must stay open without its client: a request is held, or not answered yet."""
        connection = self._connections.get(number)
        return connection is not None and bool(connection.held_by or connection.pending or connection.dead)

    def release(self, name: str, now: float) -> None:
        """The requests that this rule holds go to the broker now."""
        for number, connection in self._connections.items():
            if connection.held_by == name:
                connection.held_by = ""
                self._note("released", now, number, name)

    # -- frames ----------------------------------------------------------------------------------

    def request(self, number: int, frame: bytes, now: float) -> Verdict:
        """A whole request has come from a client."""
        request = parse_request(frame)
        connection = self._connections[number]
        self.requests[request.api_key, request.transactional_id] += 1
        if connection.dead:
            return self._swallow(number, request, now)
        if connection.held_by:
            connection.pending[request.correlation_id] = (request, connection.held_by)
            self._note("behind", now, number, connection.held_by, request)
            return Verdict(Kind.HOLD, rule=connection.held_by)
        chosen = None
        for armed in list(self._rules.values()):
            # every rule counts what fits it, even when another one decides
            if self._strikes(armed, request) and chosen is None:
                chosen = armed
        if chosen is not None and isinstance(chosen.rule, Hold):
            connection.held_by = chosen.name
            connection.pending[request.correlation_id] = (request, chosen.name)
            self._note("held", now, number, chosen.name, request)
            return Verdict(Kind.HOLD, cut=chosen.rule.cut, rule=chosen.name)
        reset = any(self._random.random() < armed.rule.share for armed in self._of(Resets))
        if reset and chosen is None and self._random.random() < 0.5:
            self._note("reset", now, number, "", request)
            return Verdict(Kind.DROP, cut=True)
        connection.pending[request.correlation_id] = (request, "")
        if reset and chosen is None:
            self._note("reset", now, number, "", request)
            return Verdict(Kind.DELIVER, self._delivery(connection, "up", len(frame), now), cut=True)
        at = self._delivery(connection, "up", len(frame), now)
        return Verdict(Kind.DELIVER, at, cut=chosen is not None, rule=chosen.name if chosen else "")

    def answer(self, number: int, frame: bytes, now: float) -> Verdict:
        """A whole answer has come from the broker."""
        connection = self._connections[number]
        request, rule = connection.pending.pop(correlation_id(frame), (None, ""))
        if request is not None:
            self.answers[request.api_key] += 1
            if rule:
                self._note("late answer", now, number, rule, request, answer_error(request, frame))
        if connection.dead:
            return self._swallow(number, request, now)
        if connection.cut:
            if request is not None and not rule:
                self._note("lost answer", now, number, "", request, answer_error(request, frame))
            return Verdict(Kind.DROP)
        for armed in self._of(DropAnswers):
            dropping = armed.rule
            if request is None or not dropping.match.fits(request):
                continue
            if dropping.times is None or armed.done < dropping.times:
                armed.done += 1
                self._note("dropped", now, number, armed.name, request, answer_error(request, frame))
                return Verdict(Kind.DROP)
        instead = None if request is None else self._falsified(number, request, frame, now)
        return Verdict(Kind.DELIVER, self._delivery(connection, "down", len(frame), now), instead=instead)

    # -- inside ----------------------------------------------------------------------------------

    def _of(self, kind: type) -> Iterator[_Armed]:
        return (armed for armed in self._rules.values() if isinstance(armed.rule, kind))

    def _falsified(self, number: int, request: Request, frame: bytes, now: float) -> bytes | None:
        """The answer with an error code that the broker did not give, if a rule asks for it."""
        for armed in self._of(AnswerWith):
            if armed.done < armed.rule.times and armed.rule.match.fits(request):
                instead = with_error(request, frame, armed.rule.error)
                if instead is not None:
                    armed.done += 1
                    self._note("falsified", now, number, armed.name, request, answer_error(request, frame))
                    return instead
        return None

    @staticmethod
    def _strikes(armed: _Armed, request: Request) -> bool:
        """Count a request for a rule that holds or cuts; whether it is the one."""
        rule = armed.rule
        if not isinstance(rule, Hold | CutAfter) or not rule.match.fits(request):
            return False
        armed.seen += 1
        times = rule.times if isinstance(rule, CutAfter) else 1
        return rule.nth <= armed.seen < rule.nth + times

    def _delivery(self, connection: _Connection, direction: str, size: int, now: float) -> float:
        at = now
        for armed in self._of(Delay):
            jitter = armed.rule.jitter
            at += max(0.0, armed.rule.seconds + (self._random.uniform(-jitter, jitter) if jitter else 0.0))
        at = max(at, connection.clear_at.get(direction, at))
        for armed in self._of(Throttle):
            at += size / armed.rule.bytes_per_second
        connection.clear_at[direction] = at
        return at

    def _swallow(self, number: int, request: Request | None, now: float) -> Verdict:
        self._note("swallowed", now, number, "", request)
        return Verdict(Kind.DROP)

    def _note(
        self,
        kind: str,
        now: float,
        number: int,
        rule: str = "",
        request: Request | None = None,
        error: int | None = None,
    ) -> None:
        self.events.append(Event(kind, now, number, rule, request, error))
