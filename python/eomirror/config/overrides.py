"""Applies ``-s path=value`` from the command line to a configuration; paths are written as in faults."""

from __future__ import annotations

import re

from eomirror.config.document import parse_yaml
from eomirror.config.nodes import Faults, Map, Node, Scalar, Sequence
from eomirror.errors import UsageError

__all__ = ["apply_override"]

_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]+\])*)")
_NO_PATH = re.compile(r"[^A-Za-z0-9_.\[\]]")
_FIX = "write -s links[0].lanes=4, -s defaults.commit_interval=50ms or -s clusters.east.bootstrap.servers=HOST:PORT"


def apply_override(root: Map, text: str) -> None:
    """
    Sets one value in the tree.

    Values under ``clusters`` and ``spark`` are plain texts; others are parsed as YAML, so that they can be lists.

    Raises:
        UsageError: The text is not an assignment, or a list has no such element.
    """
    path, separator, value = text.partition("=")
    path = path.strip()
    if not separator or not path:
        # a password may follow the path, after a colon or a blank: do not show it
        named = _NO_PATH.split(path)[0]
        raise UsageError(f"override {named[:60]!a} is not an assignment", fix=_FIX)
    steps = _steps(path)
    node: Node = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        fresh: Node = Sequence() if isinstance(following, int) else Map()
        if following is None:
            fresh = _value(path, steps, value)
        node = _enter(node, step, fresh, path, last=following is None)


def _steps(path: str) -> list[str | int]:
    section, _, rest = path.partition(".")
    if section == "spark" and rest:
        return ["spark", rest if rest.startswith("spark.") else f"spark.{rest}"]
    if section == "clusters" and rest.count("."):
        alias, _, key = rest.partition(".")
        role, _, inner = key.partition(".")
        return (
            ["clusters", alias, role, inner]
            if role in ("consumer", "producer") and inner
            else ["clusters", alias, key]
        )
    steps: list[str | int] = []
    for part in path.split("."):
        found = _STEP.fullmatch(part)
        if not found:
            raise UsageError(f"override path {path[:60]!a} is not valid", fix=_FIX)
        steps.append(found[1])
        steps.extend(int(number) for number in re.findall(r"[0-9]+", found[2]))
    return steps


def _value(path: str, steps: list[str | int], value: str) -> Node:
    if steps[0] in ("clusters", "spark"):
        return Scalar(value)
    faults = Faults()
    node = parse_yaml(value.encode(), faults)
    if faults.faults:
        raise UsageError(f"the value of override {path} is not valid YAML", fix="quote it as in YAML")
    return _without_lines(node) if value.strip() else Scalar("", plain=True)


def _without_lines(node: Node) -> Node:
    """Clears the line numbers: an override is on no line of the file."""
    node.line = 0
    for inner in (
        node.items if isinstance(node, Sequence) else (node.entries.values() if isinstance(node, Map) else ())
    ):
        _without_lines(inner)
    return node


def _enter(node: Node, step: str | int, fresh: Node, path: str, *, last: bool) -> Node:
    if isinstance(step, int):
        if not isinstance(node, Sequence) or step > len(node.items) - (0 if last else 1):
            raise UsageError(f"override {path}: there is no element {step}", fix="count from 0")
        if last and step < len(node.items):
            node.items[step] = fresh
        elif last:
            node.items.append(fresh)
        return node.items[step]
    if not isinstance(node, Map):
        raise UsageError(f"override {path}: {step} cannot be set there", fix=_FIX)
    if last or step not in node.entries or _is_null(node.entries[step]):
        node.entries[step] = fresh
    return node.entries[step]


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_null
