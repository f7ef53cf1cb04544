"""
Makes the class archive of Spark's driver (`eomirror.jvm`): ``python -m eomirror.spark.class_archive``.

A JVM writes an archive when it ends, of the classes that it has used by then.  So this program starts a driver as a
mirror does, runs a job with a Python worker, and ends the driver in good order.  It needs no cluster and takes about
ten seconds of CPU, once for each JVM and list of jars.  An archive is about 60 MB; those older than a month are
removed.

A mirror whose lanes have run on Spark for a while starts the program (`eomirror.spark.launch.make_archive_later`) in a
session of its own, with the least priority for CPU and disk, and as the first process to be killed where memory is
short.  It goes on when the mirror ends, and nothing waits for it.  A folder that cannot be written, and
``EOMIRROR_CLASS_ARCHIVES=off``, leave everything as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import psutil

from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import MirrorError
from eomirror.jvm import class_archive
from eomirror.spark.context import engine_settings, open_engine
from eomirror.spark.launch import given_up, spark_archive
from eomirror.spark.task import WarmUpTask
from eomirror.spark.transport import DEFAULT_MASTER

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["forget_old", "keep_archive", "make_archive"]

_LANES = 2
_END_SECONDS = 120.0
_KEPT_SECONDS = 30 * 24 * 3600.0
_LEAST_NICE = 19


def make_archive() -> Path:
    """
    Makes the archive, unless it is there; returns its path.

    Raises:
        MirrorError: Spark did not start, or its JVM wrote no archive.
        OSError: The folder cannot be written.
    """
    archive = class_archive(*spark_archive())
    if archive.is_file():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    forget_old(archive.parent)
    with TemporaryDirectory(prefix=f".archives-{os.getpid()}-", dir=archive.parent) as name:
        made = Path(name, archive.name)
        _rehearse(made)
        keep_archive(made, archive)
    return archive


def forget_old(folder: Path) -> None:
    """Removes what was made long ago: each new list of jars leaves the archives of the one before behind."""
    for pattern in ("*.jsa", "*.jsa.failed", "spark-*.json"):
        for path in folder.glob(pattern):
            # another process may remove it, too
            with contextlib.suppress(FileNotFoundError):
                if SYSTEM_CLOCK.wall_ms() / 1000 - path.stat().st_mtime > _KEPT_SECONDS:
                    path.unlink()


def keep_archive(made: Path, archive: Path) -> None:
    """
    Puts an archive into its place: whole, on the disk and in one rename, since a truncated one would crash each JVM.

    Raises:
        MirrorError: The JVM made none.
    """
    if not made.is_file():
        raise MirrorError(
            f"the JVM wrote no class archive {archive.name}",
            fix="nothing is lost without it; to have one, use a Java runtime that can share classes",
        )
    # its users may be others: that of an image is made by root
    made.chmod(0o644)
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(archive)


def _rehearse(archive: Path) -> None:
    """Starts a driver and a worker as a mirror does, and lets the JVM write an archive when it ends."""
    from eomirror import __version__

    given = {"spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}"'}
    settings = engine_settings(master=DEFAULT_MASTER, configured={}, given=given, version=__version__)
    engine = open_engine(None, settings, lanes=_LANES)
    try:
        context = engine.context
        context.setLocalProperty("spark.scheduler.pool", "eomirror/rehearsal")
        context.setJobGroup("eomirror/rehearsal", "eomirror: classes of a driver")
        context.parallelize(range(_LANES), _LANES).mapPartitions(WarmUpTask()).collect()
        context.cancelJobGroup("eomirror/rehearsal")
    finally:
        engine.close(patience=_END_SECONDS)


def _yield_to_all() -> None:
    """Gives this process and its children the least priority, and makes them the first to be killed."""
    with contextlib.suppress(OSError, psutil.Error):
        os.setpriority(os.PRIO_PROCESS, 0, _LEAST_NICE)
    with contextlib.suppress(OSError, psutil.Error, AttributeError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")


@contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    """Locks the folder until the block ends; False if another process makes an archive there."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "class-archives.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _main_in_background() -> None:
    _yield_to_all()
    archive = class_archive(*spark_archive())
    # a folder that cannot be written is no error
    with contextlib.suppress(OSError), _only_one(archive.parent) as alone:
        if not alone or given_up(archive).is_file():
            return
        try:
            make_archive()
        except MirrorError as error:
            given_up(archive).write_text(f"{error}\n", "utf-8")


def _main() -> None:
    from eomirror.log import configure_logging

    configure_logging("error")
    if "--background" in sys.argv[1:]:
        _main_in_background()
        return
    try:
        sys.stdout.write(f"{make_archive()}\n")
    except (MirrorError, OSError) as error:
        raise SystemExit(f"{error}") from None


if __name__ == "__main__":
    _main()
