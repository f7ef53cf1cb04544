"""
What a test may ask of a proxy, as data; `support.clusters.decider` says what each means for a frame.

Without a rule everything passes at once.  Several rules may stand together; for a request, the first one in the
order of their arming that holds it or cuts its connection decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.clusters.frames import Request

__all__ = [
    "ANY", "AnswerWith", "CutAfter", "Delay", "DropAnswers", "HalfOpen", "Hold", "Lifetimes", "Match", "Refuse",
    "Resets", "Rule", "Throttle",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """
    Which requests a rule is about; None stands for any.

    Attributes:
        api_key: The API.
        transactional_id: Whose transaction; a request that names none does not fit.
        client_id: Who sent it.
        commit: Of an EndTxn, whether it commits.
    """

    api_key: int | None = None
    transactional_id: str | None = None
    client_id: str | None = None
    commit: bool | None = None

    def fits(self, request: Request) -> bool:
        """Whether a request is meant."""
        pairs = (
            (self.api_key, request.api_key),
            (self.transactional_id, request.transactional_id),
            (self.client_id, request.client_id),
            (self.commit, request.commit),
        )
        return all(wanted is None or wanted == found for wanted, found in pairs)


ANY = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """
    Keep one request in the network, and deliver it when told to: a straggler.

    The connection to the broker stays open, and what the client sends behind the request on the same connection
    waits behind it, as it would on a wire.

    Attributes:
        match: Which requests count.
        nth: Which of them, counted from 1 when the rule is armed.
        cut: Break the client's connection at once, so that the client sends the request again.
    """

    match: Match
    nth: int = 1
    cut: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class CutAfter:
    """
    Deliver a request to the broker, and break the client's connection before the answer.

    Attributes:
        match: Which requests count.
        nth: The first one that this happens to, counted from 1 when the rule is armed.
        times: How many it happens to, from that one on.
    """

    match: Match
    nth: int = 1
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DropAnswers:
    """
    Deliver requests, and lose their answers; the connection stays open.

    Attributes:
        match: Which requests' answers.
        times: How many answers; None for all.
    """

    match: Match
    times: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerWith:
    """
    Deliver requests, and put an error code into the broker's answers: it did what it says it refuses.

    Attributes:
        match: Which requests' answers; of a Produce, the first partition is refused.
        error: The code (https://kafka.apache.org/protocol#protocol_error_codes).
        times: How many answers.
    """

    match: Match
    error: int
    times: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """
    Deliver every frame later, in both directions; the order of a connection stays.

    Attributes:
        seconds: How much later.
        jitter: At most so much more or less, drawn from the proxy's seed.
    """

    seconds: float
    jitter: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """Let only so many bytes a second pass, for each connection and direction."""

    bytes_per_second: float


@dataclass(frozen=True, slots=True)
class HalfOpen:
    """
    Swallow everything in both directions and keep the sockets open, as after a lost NAT entry.

    Connections that are or come up under this rule stay dead when it is gone; new ones live.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Every connection breaks at an age between these seconds, drawn from the proxy's seed."""

    shortest: float = 0.5
    longest: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Resets:
    """
    Now and then a request breaks its connection: before it is delivered, or behind it, either as likely.

    Attributes:
        share: Of all requests, drawn from the proxy's seed.
    """

    share: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Break every new connection at once, until this time of the monotonic clock."""

    until: float


Rule = Hold | CutAfter | DropAnswers | AnswerWith | Delay | Throttle | HalfOpen | Lifetimes | Refuse | Resets
