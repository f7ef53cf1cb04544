"""
Apicurio Registry: a registry of other people, with a layer of Confluent's API (`/apis/ccompat/v7`).

Its archive is pinned, and fetched as the jars of Kafka are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eomirror.jvm import find_java, java_major
from eomirror.localkafka.jars import Jar, jar_folder
from eomirror.localkafka.ports import free_ports
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["apicurio"]

_ARCHIVE = Jar(
    group="io.apicurio",
    artifact="apicurio-registry-app",
    version="3.3.3",
    sha256="8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63",
    classifier="all",
    extension="tar.gz",
)
_START_SECONDS = 120.0
_LEAST_JAVA = 21


def _java() -> Path:
    """Returns a Java that runs it, which may be another one than that of the brokers; skips the test without one."""
    for place in (find_java(), *sorted(Path("/usr/lib/jvm").glob("*/bin/java"))):
        told = subprocess.run([str(place), "-version"], capture_output=True, text=True, check=False).stderr
        if java_major(told) >= _LEAST_JAVA:
            return place
    pytest.skip(f"Apicurio {_ARCHIVE.version} needs Java {_LEAST_JAVA}")


def _folder() -> Path:
    """Returns the unpacked archive; fetches it once."""
    packed = jar_folder(f"apicurio-{_ARCHIVE.version}", "Apicurio Registry", (_ARCHIVE,))
    folder = packed.with_name(f"{packed.name}-unpacked")
    if folder.is_dir():
        return folder
    part = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(packed / _ARCHIVE.file_name) as archive:
        archive.extractall(part, filter="data")
    try:
        part.rename(folder)
    except OSError:
        # another process was faster
        shutil.rmtree(part, ignore_errors=True)
    return folder


@contextmanager
def apicurio(work: Path) -> Iterator[str]:
    """
    Runs it while the block runs; yields the address of its Confluent layer.

    Args:
        work: Folder for its log.
    """
    folder = _folder()
    (port, management) = free_ports(2)
    command = [
        *(str(_java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-Duser.home=" + str(work)),
        *(f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"),
        *(f"-Dquarkus.management.port={management}", "-Dquarkus.management.host=127.0.0.1"),
        # as Confluent's: an id for each content, and deletions in two steps
        "-Dapicurio.rest.deletion.artifact-version.enabled=true",
        "-Dapicurio.rest.deletion.artifact.enabled=true",
        *("-jar", str(folder / "quarkus-run.jar")),
    ]
    log = work / "apicurio.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=work)
    address = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def ready() -> bool:
        assert process.poll() is None, log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"{address}/subjects", timeout=5) as answer:  # noqa: S310  of this machine
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    try:
        wait_for(ready, _START_SECONDS)
        yield address
    finally:
        process.terminate()
        process.wait(30)
