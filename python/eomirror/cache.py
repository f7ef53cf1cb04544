"""
The cache folder: what can be fetched or made again, among it class archives of the JVMs that we start.

A class archive (JEP 350, https://openjdk.org/jeps/350) holds a program's classes as the JVM wants them in memory.
With one, a broker is up in 2 s instead of 4 and Spark's driver in half its CPU time.  Making one takes some
seconds, so nothing does it by itself: ``python -m eomirror.demo.class_archives`` does, and from then on every start on
this machine uses them.

A JVM refuses an archive of another JVM or of other jars, and starts without; one that is cut short kills it.
Therefore the file's name stands for the JVM and the jars, and it is renamed into place when it is complete.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from eomirror.jvm import java_program

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["archive_arguments", "cache_folder", "class_archive"]


def cache_folder() -> Path:
    """Folder of everything that can be fetched again: ``EOMIRROR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("EOMIRROR_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("eomirror")


def class_archive(name: str, jars: Iterable[Path]) -> Path:
    """
    Where the class archive of a program lies, whether or not anybody has made it.

    Args:
        name: Of the program and its version.
        jars: Its class path.
    """
    digest = hashlib.sha256()
    java = java_program()
    # a runtime that is replaced under the same path is another one; its library is what an archive belongs to
    runtime = [] if java is None else [java.resolve(), java.resolve().parents[1] / "lib/server/libjvm.so"]
    for path in [*runtime, *jars]:
        try:
            found = path.stat()
        except OSError:
            continue
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return cache_folder() / f"{name}-{digest.hexdigest()[:16]}.jsa"


def archive_arguments(name: str, jars: Iterable[Path]) -> list[str]:
    """Arguments that let a JVM use the class archive of `class_archive`; none while nobody has made it."""
    archive = class_archive(name, jars)
    if not archive.is_file():
        return []
    # without the second one, a JVM that has to do without the archive would say so on standard output
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error"]
