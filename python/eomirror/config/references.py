"""Resolves ``${env:NAME}``, ``${file:/path}`` and ``${file:/path:key}``, which keep secrets out of the file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from eomirror.config.java_properties import parse_properties
from eomirror.config.nodes import Place, quoted
from eomirror.config.secret import OUR_REFERENCE, REFERENCE, is_secret_key, unfilled

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["resolve"]

_MAX_FILE_BYTES = 1 << 20
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def resolve(place: Place, text: str, environ: Mapping[str, str], *, foreign: bool = False) -> str | None:
    """
    Returns the text with its references replaced; ``$${...}`` stands for a literal ``${...}``.

    Args:
        place: Where the text stands.
        text: The text.
        environ: Variables.
        foreign: Keep ``${...}`` of other programs as it is, rather than refuse it.

    Returns None and adds a fault if a reference cannot be resolved.  Faults name the variable or the file, never its
    content.
    """
    pieces: list[str] = []
    complete = True
    end = 0
    for found in REFERENCE.finditer(text):
        pieces.append(text[end : found.start()])
        end = found.end()
        if found[1]:
            pieces.append(found[0][1:])
            continue
        ours = OUR_REFERENCE.fullmatch(found[2])
        if ours is None:
            if foreign:
                pieces.append(found[0])
                continue
            complete = False
            _, fix = unfilled(found[0]) or ("", "")
            shown = "a reference ${...}" if is_secret_key(place.path) else quoted(found[0])
            place.refuse(f"{shown} is of another program, and was not filled in", fix)
            continue
        piece = _variable(place, ours[2], environ) if ours[1] == "env" else _file(place, ours[2])
        complete = complete and piece is not None
        pieces.append(piece or "")
    pieces.append(text[end:])
    return "".join(pieces) if complete else None


def _variable(place: Place, name: str, environ: Mapping[str, str]) -> str | None:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        place.refuse(f"{quoted(name)} is not a name of an environment variable", "write ${env:NAME}")
        return None
    value = environ.get(name)
    if value is None:
        place.refuse(f"environment variable {name} is not set", f"set {name} before you start eomirror")
    elif "\0" in value:
        place.refuse(f"environment variable {name} contains a NUL character", f"correct {name}")
        return None
    return value


def _file(place: Place, text: str) -> str | None:
    name, _, key = text.partition(":")
    if key and os.path.lexists(text):
        name, key = text, ""
    path = PurePosixPath(name)
    if not path.is_absolute() or ".." in path.parts or "\0" in name:
        place.refuse(f"{quoted(name)} is not an absolute path", "write ${file:/path/to/secret}, without ..")
        return None
    try:
        # non-blocking: a named pipe must not block a check
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                place.refuse(f"{quoted(name)} is not a regular file", "name a file with the secret only")
                return None
            data = stream.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        place.refuse(
            f"{quoted(name)} cannot be read: {error.strerror}",
            "check the path and that this user may read it",
        )
        return None
    if status.st_mode & _OTHERS:
        place.faults.warn(
            place.path,
            f"other users can read {quoted(name)} (mode {stat.S_IMODE(status.st_mode):04o})",
            f"chmod 600 {Path(name).name}",
            place.node.line,
        )
    content = _content(place, name, data)
    if content is None or not key:
        return content
    # as Kafka's FileConfigProvider: one key of a property file
    properties = parse_properties(content)
    if key not in properties:
        place.refuse(f"{quoted(name)} has no key {quoted(key)}", "correct the key, or the file")
        return None
    return properties[key][0]


def _content(place: Place, name: str, data: bytes) -> str | None:
    try:
        # some editors write a byte order mark, which is not part of the password
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if len(data) > _MAX_FILE_BYTES or "\0" in text:
        place.refuse(
            f"{quoted(name)} is not a text of at most 1 MiB", "name a UTF-8 file with the secret only"
        )
        return None
    return text.removesuffix("\n").removesuffix("\r")
