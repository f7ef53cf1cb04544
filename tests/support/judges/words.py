"""What a mirror tells people while something is taken from it, in its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

__all__ = ["PATIENCE", "says"]

PATIENCE = 120.0
"""Seconds; a mirror tries again at most a minute after it was refused."""


def says(scene: Scene, mirror: CommandMirror, *words: str) -> None:
    """A mirror that lacks what it needs says what and what to do, and lives; what it said before does not count."""
    before = [mirror.said(word) for word in words]

    def said() -> bool:
        return any(mirror.said(word) > count for word, count in zip(words, before, strict=True))

    scene.wait(said, PATIENCE, f"no word of {words}")
    # a commit that is refused is of unknown outcome first; what to do is said by who tries next
    scene.wait(lambda: mirror.said("fix:") or mirror.said('"fix"'), PATIENCE, "no word of what to do")
