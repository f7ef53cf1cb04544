"""
Locates the cache folder, and the class archives in it with which JVMs start faster.

A class archive (JEP 350, https://openjdk.org/jeps/350) contains a program's classes in the JVM's memory format.
With one, a broker is up in 2 s instead of 4 and Spark's driver in half its CPU time.  Creating one takes seconds, so
only ``python -m eomirror.demo.class_archives`` does it; every later start on this machine uses them.

A JVM ignores an archive of another JVM or of other jars, but a truncated archive crashes it.  So the name of the file
identifies the JVM and the jars, and the file is renamed into place when it is complete.
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
    """Returns the folder of downloaded or generated files: ``EOMIRROR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("EOMIRROR_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("eomirror")


def class_archive(name: str, jars: Iterable[Path]) -> Path:
    """
    Returns the path of a program's class archive, which may not exist.

    Args:
        name: Name and version of the program.
        jars: Class path of the program.
    """
    digest = hashlib.sha256()
    java = java_program()
    # a runtime may be replaced under the same path: an archive belongs to its library
    runtime = [] if java is None else [java.resolve(), java.resolve().parents[1] / "lib/server/libjvm.so"]
    for path in [*runtime, *jars]:
        try:
            found = path.stat()
        except OSError:
            continue
        digest.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode())
    return cache_folder() / f"{name}-{digest.hexdigest()[:16]}.jsa"


def archive_arguments(name: str, jars: Iterable[Path]) -> list[str]:
    """Returns JVM arguments that use the archive of `class_archive`; none if it does not exist."""
    archive = class_archive(name, jars)
    if not archive.is_file():
        return []
    # without the second argument, a JVM that ignores the archive writes a message to standard output
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error"]
