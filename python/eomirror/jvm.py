"""
Finds a Java that Spark and Kafka accept.

Spark 4 and Kafka 4 brokers both need Java 17 (https://kafka.apache.org/43/operations/java-version/).
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

from eomirror.errors import MirrorError

__all__ = ["LEAST_JAVA", "find_java", "find_keytool", "java_major", "java_program"]

LEAST_JAVA = 17

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
