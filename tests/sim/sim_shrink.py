"""Makes a failing schedule small, and prints it: drop draws, then make them dull, while the same rule breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim_rules import BrokenRuleError
from sim_world import Choices, World

if TYPE_CHECKING:
    from collections.abc import Sequence

_TRIES = 1000


def broken_rule(script: Sequence[int], actions: int, mutation: str, trace: list[str] | None = None) -> str:
    """Id of the rule that this schedule breaks; empty when it breaks none."""
    try:
        World(Choices(script=script), mutation=mutation, trace=trace).run(actions)
    except BrokenRuleError as error:
        if trace is not None:
            trace.append(str(error))
        return error.rule
    return ""


def shrink(script: Sequence[int], actions: int, mutation: str, rule: str) -> list[int]:
    """A schedule of no more draws that breaks the same rule; gives up after some thousand tries."""
    best = list(script)
    # dull first: a draw that is left out shifts the meaning of all behind it
    for dull in (True, False, True):
        tries = 0
        size = max(1, len(best) // 2)
        while size:
            at = 0
            while at < len(best) and tries < _TRIES:
                middle = [0] * len(best[at : at + size]) if dull else []
                shorter = best[:at] + middle + best[at + size :]
                tries += 1
                if shorter != best and broken_rule(shorter, actions, mutation) == rule:
                    best = shorter
                    if dull:
                        at += size
                else:
                    at += size
            size //= 2
    return best


def report(seed: int, drawn: Sequence[int], actions: int, mutation: str, rule: str) -> str:
    """The shrunk schedule as a readable trace, and the seed that found it."""
    small = shrink(drawn, actions, mutation, rule)
    trace: list[str] = []
    broken_rule(small, actions, mutation, trace)
    head = f"seed {seed}, {len(drawn)} draws shrunk to {len(small)}: {small}"
    return "\n".join([head, *trace])
