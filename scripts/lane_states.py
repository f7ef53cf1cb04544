"""
Writes the diagram of a lane's states in DESIGN.md from `eomirror.lane.machine.TRANSITIONS`.

    python scripts/lane_states.py           write
    python scripts/lane_states.py --check   exit 1 when the diagram is not what the table says
"""

from __future__ import annotations

import sys
from pathlib import Path

from eomirror.lane.machine import TRANSITIONS

DESIGN = Path(__file__).resolve().parent.parent / "DESIGN.md"
BEGIN = "<!-- states: written by scripts/lane_states.py -->\n"
END = "<!-- states: end -->\n"


def diagram() -> str:
    """Returns the transitions as a Mermaid state diagram, one arrow for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), (following, _) in TRANSITIONS.items():
        arrows.setdefault((state.value, following.value), []).append(event.value)
    lines = [f"    {start} --> {end}: {', '.join(events)}" for (start, end), events in arrows.items()]
    return "\n".join(
        ["```mermaid", "stateDiagram-v2", "    [*] --> starting", *lines, "    closed --> [*]", "```", ""]
    )


def main(arguments: list[str]) -> int:
    """Write or check."""
    before = DESIGN.read_text()
    head, begin, rest = before.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        print("lane states: DESIGN.md has lost the marks of the diagram", file=sys.stderr)
        return 1
    now = head + BEGIN + diagram() + END + tail
    if now == before:
        return 0
    if arguments == ["--check"]:
        print("lane states: DESIGN.md does not show TRANSITIONS\n  fix: run `just docs`", file=sys.stderr)
        return 1
    DESIGN.write_text(now)
    print("lane states: written to DESIGN.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
