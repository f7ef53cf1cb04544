"""
Evaluates the shipped alert rules on scrapes: the part of PromQL that they use, with Prometheus' meaning.

`tests/unit/metrics/test_alert_rules.py` compares it with what the tests for promtool expect.  A form that is not known
raises, so that a new rule cannot pass unseen.
"""

from __future__ import annotations

import math
import operator
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ["AGE_SECONDS", "RULES", "History", "Scrape", "firing", "parsed"]

RULES = Path(__file__).resolve().parents[3] / "deploy" / "prometheus" / "eomirror.rules.yaml"

#: Threshold of ages in tests: they do not wait for the minutes of the shipped ones.
AGE_SECONDS = 3.0

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]

_TOKEN = re.compile(r'\s*("[^"]*"|[A-Za-z_:][\w:]*|\d+(?:\.\d+)?(?:[smhd]\b)?|==|!=|>=|<=|[><(){}\[\],=*])')
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip
# Prometheus looks back so far for the newest sample
_STALE_SECONDS = 300.0


class Scrape:
    """
    Samples of one scrape.

    Args:
        text: Its body; None for a scrape that failed.
        link: Only samples of this link, and those without one.
    """

    def __init__(self, text: str | None, link: str = "") -> None:
        self.samples: list[tuple[str, Labels, float]] = [
            ("up", frozenset({("job", "eomirror")}), float(text is not None))
        ]
        for family in text_string_to_metric_families(text or ""):
            self.samples += [
                (each.name, frozenset(each.labels.items()), each.value)
                for each in family.samples
                if each.labels.get("link", link) == link or not link
            ]

    def values(self, name: str, **labels: str) -> list[float]:
        """Returns the values of series with this name and these labels."""
        return [
            value
            for known, found, value in self.samples
            if known == name and labels.items() <= dict(found).items()
        ]


@dataclass
class History:
    """Scrapes of one target, oldest first, each with its time in seconds."""

    scrapes: list[tuple[float, list[tuple[str, Labels, float]]]] = field(default_factory=list)

    def add(self, at: float, scrape: Scrape) -> None:
        """Adds the newest scrape."""
        self.scrapes.append((at, scrape.samples))

    def instant(self, name: str, at: float) -> Vector:
        """Returns the series of this name in the last scrape; one that it lacks is stale."""
        for when, samples in reversed(self.scrapes):
            if when <= at:
                fresh = when > at - _STALE_SECONDS
                return {labels: value for known, labels, value in samples if fresh and known == name}
        return {}

    def increase(self, name: str, at: float, seconds: float) -> Vector:
        """Returns the increase of each counter with two samples or more in a range, without extrapolation."""
        found: dict[Labels, list[float]] = defaultdict(list)
        for when, samples in self.scrapes:
            if at - seconds < when <= at:
                for known, labels, value in samples:
                    if known == name:
                        found[labels].append(value)
        return {
            labels: sum(after - before if after >= before else after for before, after in pairwise(values))
            for labels, values in found.items()
            if len(values) > 1
        }


@dataclass(frozen=True)
class _Moment:
    """Series at one time, and the threshold that takes the place of larger ages."""

    history: History
    at: float
    age: float | None


class Expression:
    """A parsed expression."""

    #: Metrics that it reads.
    names: frozenset[str] = frozenset()

    def at(self, moment: _Moment) -> Vector:
        """Returns its value."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Selector(Expression):
    name: str
    labels: tuple[tuple[str, str], ...]
    offset: float = 0.0
    range: float = 0.0

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset({self.name})

    def at(self, moment: _Moment) -> Vector:
        when = moment.at - self.offset
        found = (
            moment.history.increase(self.name, when, self.range)
            if self.range
            else moment.history.instant(self.name, when)
        )
        return {labels: value for labels, value in found.items() if set(self.labels) <= labels}


@dataclass(frozen=True)
class _Absent(Expression):
    inner: _Selector

    def at(self, moment: _Moment) -> Vector:
        return {} if self.inner.at(moment) else {frozenset(self.inner.labels): 1.0}


@dataclass(frozen=True)
class _Compared(Expression):
    left: Expression
    how: str
    right: Expression | float

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return self.left.names

    def at(self, moment: _Moment) -> Vector:
        holds = _COMPARISONS[self.how]
        left = self.left.at(moment)
        if isinstance(self.right, Expression):
            right = self.right.at(moment)
            return {at: value for at, value in left.items() if at in right and holds(value, right[at])}
        limit = self.right
        if (
            moment.age is not None
            and self.how == ">"
            and any(name.endswith("_seconds") for name in self.names)
        ):
            limit = min(limit, moment.age)
        return {at: value for at, value in left.items() if holds(value, limit)}


@dataclass(frozen=True)
class _Set(Expression):
    left: Expression
    how: str
    on: tuple[str, ...] | None
    right: Expression

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return self.left.names | (self.right.names if self.how == "or" else frozenset())

    def at(self, moment: _Moment) -> Vector:
        left, right = self.left.at(moment), self.right.at(moment)
        there = {_of(labels, self.on) for labels in right}
        if self.how == "or":
            here = {_of(labels, self.on) for labels in left}
            return left | {at: value for at, value in right.items() if _of(at, self.on) not in here}
        wanted = self.how == "and"
        return {at: value for at, value in left.items() if (_of(at, self.on) in there) == wanted}


@dataclass(frozen=True)
class _Folded(Expression):
    how: str
    by: tuple[str, ...]
    inner: Expression

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return self.inner.names

    def at(self, moment: _Moment) -> Vector:
        groups: dict[Labels, list[float]] = defaultdict(list)
        for labels, value in self.inner.at(moment).items():
            groups[_of(labels, self.by)].append(value)
        fold: dict[str, Callable[[Sequence[float]], float]] = {"max": _most, "sum": sum, "count": len}
        return {labels: fold[self.how](values) for labels, values in groups.items()}


def _most(values: Sequence[float]) -> float:
    # NaN loses against every number
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _of(labels: Labels, names: tuple[str, ...] | None) -> Labels:
    return labels if names is None else frozenset((name, value) for name, value in labels if name in names)


class _Parser:
    """Recursive descent; the weakest operator first: or; and, unless; comparisons."""

    def __init__(self, text: str) -> None:
        found, at = [], 0
        while at < len(text.rstrip()):
            token = _TOKEN.match(text, at)
            if token is None:
                raise ValueError(f"not known: {text[at:]!r}")
            found.append(token[1])
            at = token.end()
        self._rest = found

    def whole(self) -> Expression:
        expression = self._sets(("or",))
        if self._rest:
            raise ValueError(f"not known: {' '.join(self._rest)}")
        return expression

    def _sets(self, words: tuple[str, ...]) -> Expression:
        inner: Callable[[], Expression] = (
            (lambda: self._sets(("and", "unless"))) if words == ("or",) else self._compared
        )
        left = inner()
        while self._next() in words:
            how = self._take()
            on = self._names() if self._next() == "on" and self._take() else None
            left = _Set(left, how, on, inner())
        return left

    def _compared(self) -> Expression:
        left = self._single()
        if self._next() not in _COMPARISONS:
            return left
        how = self._take()
        right = self._number() if self._next()[:1].isdigit() else self._single()
        return _Compared(left, how, right)

    def _single(self) -> Expression:
        word = self._take()
        if word == "(":
            inner = self._sets(("or",))
            self._take(")")
            return inner
        if word in {"max", "sum", "count"}:
            self._take("by")
            by = self._names()
            self._take("(")
            inner = self._sets(("or",))
            self._take(")")
            return _Folded(word, by, inner)
        if word == "absent":
            self._take("(")
            selector = _Selector(self._take(), self._labels())
            self._take(")")
            return _Absent(selector)
        if word == "increase":
            self._take("(")
            name, labels = self._take(), self._labels()
            self._take("[")
            seconds = _duration(self._take())
            self._take("]")
            self._take(")")
            return _Selector(name, labels, range=seconds)
        if not re.fullmatch(r"[a-z]\w*", word):
            raise ValueError(f"not known: {word}")
        labels = self._labels()
        offset = _duration(self._take()) if self._next() == "offset" and self._take() else 0.0
        return _Selector(word, labels, offset=offset)

    def _number(self) -> float:
        value = float(self._take())
        while self._next() == "*":
            self._take()
            value *= float(self._take())
        return value

    def _labels(self) -> tuple[tuple[str, str], ...]:
        found: list[tuple[str, str]] = []
        if self._next() == "{":
            self._take()
            while self._next() != "}":
                name = self._take()
                self._take("=")
                found.append((name, self._take().strip('"')))
                if self._next() == ",":
                    self._take()
            self._take()
        return tuple(found)

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        found = []
        while (word := self._take()) != ")":
            if word != ",":
                found.append(word)
        return tuple(found)

    def _next(self) -> str:
        return self._rest[0] if self._rest else ""

    def _take(self, wanted: str = "") -> str:
        if not self._rest or (wanted and self._rest[0] != wanted):
            raise ValueError(f"{wanted or 'more'} is missing before {self._rest}")
        return self._rest.pop(0)


def _duration(text: str) -> float:
    return float(text[:-1]) * _UNITS[text[-1]]


def parsed(expression: str) -> Expression:
    """Returns an expression; raises ValueError for a form that is not known."""
    return _Parser(expression).whole()


def rules() -> Iterator[tuple[dict[str, Any], Expression]]:
    """Returns the shipped rules with their expressions."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule, parsed(str(rule["expr"]))


_SHIPPED: list[tuple[dict[str, Any], Expression]] = []


def firing(
    history: History, at: float, *, age: float | None = AGE_SECONDS, only: Iterable[str] | None = None
) -> dict[str, list[dict[str, str]]]:
    """
    Returns the alerts whose expressions hold, with the labels of each; ``for`` is left out.

    Args:
        history: Scrapes.
        at: Time of evaluation.
        age: In place of a larger threshold of a metric in seconds; None for the shipped thresholds.
        only: Alerts to evaluate; None for all.
    """
    if not _SHIPPED:
        _SHIPPED.extend(rules())
    moment = _Moment(history, at, age)
    found = {
        str(rule["alert"]): [dict(labels) for labels in expression.at(moment)]
        for rule, expression in _SHIPPED
        if only is None or rule["alert"] in only
    }
    return {alert: labels for alert, labels in found.items() if labels}
