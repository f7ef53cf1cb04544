"""
Finds a Java that Spark and Kafka accept, and the class archives with which its programs start faster.

Spark 4 and Kafka 4 brokers both need Java 17 (https://kafka.apache.org/43/operations/java-version/).

A class archive (JEP 350, https://openjdk.org/jeps/350) contains a program's classes in the JVM's memory format.
With one, a broker is up in 2 s instead of 4 and Spark's driver in half its CPU time.  Creating one takes seconds:
``python -m eomirror.demo.class_archives`` makes both, and a mirror that of Spark in the background
(`eomirror.spark.class_archive`).  Every later start on this machine uses them.  An image contains that of Spark, made
when it was built, in `SHARED_FOLDER`.

A JVM ignores an archive of another JVM or of other jars, but a truncated archive crashes it.  So the name of the file
identifies the JVM and the jars, and the file is renamed into place when it is complete.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from eomirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LEAST_JAVA",
    "SHARED_FOLDER",
    "archive_arguments",
    "cache_folder",
    "class_archive",
    "find_java",
    "find_keytool",
    "java_major",
    "java_program",
]

LEAST_JAVA = 17

#: Archives of this installation of Python, for all users: also for one without a home.
SHARED_FOLDER = Path(sys.prefix, "share", "eomirror")

_GET_JAVA = (
    "install a Java runtime of version 17 or newer (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and put it on PATH, or set JAVA_HOME to its folder"
)
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def java_major(banner: str) -> int:
    """
    Returns the major version in the output of ``java -version``; 0 if there is none.

    Java 8 and older print ``1.8``.
    """
    found = _VERSION.search(banner)
    if found is None:
        return 0
    first, second = int(found[1]), int(found[2] or 0)
    return second if first == 1 else first


def java_program() -> Path | None:
    """Returns the ``java`` of ``JAVA_HOME``, else the first on ``PATH``, without running it; None if there is none."""
    return _program(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


def _program(java_home: str, path: str) -> Path | None:
    place = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java", path=path)
    return Path(place) if place and os.access(place, os.X_OK) else None


def find_java() -> Path:
    """
    Returns the ``java`` of ``JAVA_HOME``, else the first on ``PATH``: Spark's own order.

    Raises:
        MirrorError: There is none, or it is older than 17; the fix describes the installation.
    """
    return _find_java(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@functools.cache
def _find_java(java_home: str, path: str) -> Path:
    place = _program(java_home, path)
    if place is None:
        where = f"in JAVA_HOME ({java_home})" if java_home else "on PATH"
        raise MirrorError(f"no java found {where}", fix=_GET_JAVA)
    try:
        answer = subprocess.run([place, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MirrorError(f"{place} does not run: {error}", fix=_GET_JAVA) from error
    major = java_major(answer.stderr + answer.stdout)
    if answer.returncode != 0 or major < LEAST_JAVA:
        found = f"is version {major}" if major else "does not print its version"
        raise MirrorError(f"{place} {found}; {LEAST_JAVA} or newer is needed", fix=_GET_JAVA)
    return place


def find_keytool() -> Path:
    """
    Returns the ``keytool`` of the runtime of `find_java`; every Java runtime has one.

    Raises:
        MirrorError: It is missing.
    """
    beside = find_java().resolve().with_name("keytool")
    if os.access(beside, os.X_OK):
        return beside
    on_path = shutil.which("keytool")
    if on_path is None:
        raise MirrorError(f"no keytool next to {find_java()} or on PATH", fix=_GET_JAVA)
    return Path(on_path)


def cache_folder() -> Path:
    """Returns the folder of downloaded or generated files: ``EOMIRROR_CACHE``, else the user's cache folder."""
    chosen = os.environ.get("EOMIRROR_CACHE")
    return Path(chosen) if chosen else platformdirs.user_cache_path("eomirror")


def class_archive(name: str, jars: Iterable[Path]) -> Path:
    """
    Returns the path of a program's class archive: in `SHARED_FOLDER` if it is there, else where it would be made.

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
        # as exact as the JVM's own check, and as the layers of an image
        digest.update(f"{path}\0{found.st_size}\0{int(found.st_mtime)}\0".encode())
    archive = f"{name}-{digest.hexdigest()[:16]}.jsa"
    shared = SHARED_FOLDER / archive
    return shared if shared.is_file() else cache_folder() / archive


def archive_arguments(name: str, jars: Iterable[Path]) -> list[str]:
    """Returns JVM arguments that use the archive of `class_archive`; none if it does not exist."""
    archive = class_archive(name, jars)
    if not archive.is_file():
        return []
    # without the second argument, a JVM that ignores the archive writes a message to standard output
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error"]
