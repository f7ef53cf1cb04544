"""Class archives: named after the JVM and the jars that they belong to, and used only where they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from eomirror import jvm
from eomirror.jvm import archive_arguments, class_archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar, and a cache folder and a Java of this test's own."""
    monkeypatch.setenv("EOMIRROR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    program = tmp_path / "java" / "bin" / "java"
    library = tmp_path / "java" / "lib" / "server" / "libjvm.so"
    for path in (program, library):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"first")
    program.chmod(0o755)
    found = tmp_path / "a.jar"
    found.write_bytes(b"classes")
    return found


def test_an_archive_is_used_once_it_is_there(jar: Path) -> None:
    """No arguments before; then its path, and silence from a JVM that cannot use it."""
    assert archive_arguments("kafka-1", [jar]) == []
    archive = class_archive("kafka-1", [jar])
    archive.parent.mkdir()
    archive.write_bytes(b"")
    assert archive_arguments("kafka-1", [jar]) == [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=error"]
    assert archive_arguments("kafka-2", [jar]) == []


def test_other_jars_have_another_archive(jar: Path) -> None:
    """A jar that was replaced under its name: the JVM would refuse the archive."""
    before = class_archive("kafka-1", [jar])
    assert class_archive("kafka-1", [jar]) == before
    jar.write_bytes(b"other classes")
    assert class_archive("kafka-1", [jar]) != before


def test_another_runtime_has_another_archive(jar: Path, tmp_path: Path) -> None:
    """One that was upgraded in place: ``java`` itself may stay the same file."""
    before = class_archive("kafka-1", [jar])
    (tmp_path / "java" / "lib" / "server" / "libjvm.so").write_bytes(b"second one")
    assert class_archive("kafka-1", [jar]) != before


def test_without_a_java_there_is_nothing_to_use(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs one says so itself."""
    monkeypatch.setenv("JAVA_HOME", str(jar.parent / "nowhere"))
    assert archive_arguments("kafka-1", [jar]) == []


def test_the_archive_of_an_image_serves_a_user_without_a_home(
    jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder is looked at first; it was made under the times of whole seconds that layers keep."""
    monkeypatch.setattr(jvm, "SHARED_FOLDER", tmp_path / "share")
    usual = class_archive("kafka-1", [jar])
    (tmp_path / "share").mkdir()
    shared = tmp_path / "share" / usual.name
    shared.write_bytes(b"")
    whole = int(jar.stat().st_mtime)
    os.utime(jar, (whole, whole))
    assert class_archive("kafka-1", [jar]) == shared
    assert archive_arguments("kafka-1", [jar])[0] == f"-XX:SharedArchiveFile={shared}"
