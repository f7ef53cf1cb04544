"""When a mirror lets the class archive of Spark be made, and what the program does that makes it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from eomirror.errors import MirrorError
from eomirror.spark import class_archive, launch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of an archive that does not exist, in a folder of this test's own."""
    path = tmp_path / "cache" / "spark-1.jsa"
    for module in (class_archive, launch):
        monkeypatch.setattr(module, "spark_archive", lambda: ("spark-1", []))
        monkeypatch.setattr(module, "class_archive", lambda *_: path)
    monkeypatch.setattr(launch, "is_usual_start", lambda _: True)
    monkeypatch.setattr(class_archive, "_yield_to_all", lambda: None)
    monkeypatch.delenv("EOMIRROR_CLASS_ARCHIVES", raising=False)
    return path


def test_it_is_made_once(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wanted while there is none, and made by the program."""
    timer = launch.make_archive_later()
    assert timer is not None
    timer.cancel()
    monkeypatch.setattr(class_archive, "_rehearse", lambda made: made.write_bytes(b"classes"))
    class_archive._main_in_background()
    assert archive.read_bytes() == b"classes"
    assert archive.stat().st_mode & 0o777 == 0o644
    assert launch.make_archive_later() is None


def test_a_jvm_that_makes_none_is_not_asked_again(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason stands beside its place; the program itself ends well."""
    monkeypatch.setattr(class_archive, "_rehearse", lambda _: None)
    class_archive._main_in_background()
    assert "wrote no class archive" in archive.with_name("spark-1.jsa.failed").read_text("utf-8")
    assert launch.make_archive_later() is None
    # one who asks for it gets the error
    with pytest.raises(MirrorError, match="wrote no class archive"):
        class_archive.make_archive()


@pytest.mark.parametrize("reason", ["off", "configured", "locked", "read-only"])
def test_it_is_left_alone(archive: Path, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    """Switched off, a Spark of another kind, another process that makes it, or a folder that cannot be written."""
    rehearsed: list[Path] = []
    monkeypatch.setattr(class_archive, "_rehearse", rehearsed.append)
    if reason == "off":
        monkeypatch.setenv("EOMIRROR_CLASS_ARCHIVES", "off")
        assert launch.make_archive_later() is None
    elif reason == "configured":
        monkeypatch.setattr(launch, "is_usual_start", lambda _: False)
        assert launch.make_archive_later() is None
    elif reason == "locked":
        archive.parent.mkdir()
        with (archive.parent / "class-archives.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            class_archive._main_in_background()
    else:
        archive.parent.write_text("a file in its place")
        class_archive._main_in_background()
    assert rehearsed == []


def test_the_program_yields_to_all_others() -> None:
    """Least priority for CPU and disk, and the first to be killed where memory is short; so are its children."""
    code = (
        "import os, psutil; from eomirror.spark.class_archive import _yield_to_all as y; y(); p = psutil.Process(); "
        "print(os.getpriority(os.PRIO_PROCESS, 0), int(p.ionice().ioclass), "
        "open('/proc/self/oom_score_adj').read().strip())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["19", "3", "1000"]


def test_a_program_that_cannot_be_started_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror goes on without an archive."""
    monkeypatch.setattr(sys, "executable", os.devnull)
    launch._make_in_background()
